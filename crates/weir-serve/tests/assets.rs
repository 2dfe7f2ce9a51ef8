//! The dashboard's committed files are what its sources give.

use std::path::Path;
use std::process::Command;

const FILES: [&str; 3] = ["index.html", "assets/index.js", "assets/index.css"];

#[test]
fn the_committed_dashboard_is_built_from_its_sources() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let web = own.join("../../web");
    let vite = web.join("node_modules/vite/bin/vite.js");
    if !vite.exists() {
        eprintln!("SKIPPED: the dashboard is compared with its sources after `npm ci` in web/");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut build = Command::new("node");
    build.arg(vite).args(["build", "--logLevel", "error", "--outDir"]).arg(folder.path());
    let output = match build.current_dir(&web).output() {
        Ok(output) => output,
        Err(error) => return eprintln!("SKIPPED: node cannot be started: {error}"),
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for name in FILES {
        let built = std::fs::read(folder.path().join(name)).unwrap();
        let committed = std::fs::read(own.join("assets").join(name)).unwrap();
        assert!(built == committed, "{name} is old: run `npm ci && npm run build` in web/");
    }
}

#[test]
fn the_dashboard_needs_nothing_from_outside_and_passes_its_own_policy() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
    let page = std::fs::read_to_string(own.join("index.html")).unwrap();
    assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("//cdn"));
    assert!(!page.contains("style=") && !page.contains("<style"), "inline styles are refused");
    let scripts = page.matches("<script").count();
    assert_eq!(scripts, page.matches("src=\"/assets/").count(), "inline scripts are refused");
    let style = std::fs::read_to_string(own.join("assets/index.css")).unwrap();
    assert!(!style.contains("@import") && !style.contains("url("));
}

#[test]
fn a_browser_shows_hostile_strings_as_text_and_every_screen_fits_and_is_accessible() {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web");
    if !web.join("node_modules/playwright-core").exists() {
        eprintln!("SKIPPED: the dashboard is compared with its sources after `npm ci` in web/");
        return;
    }
    if !Path::new("/usr/bin/chromium").exists() {
        eprintln!("SKIPPED: the dashboard is looked at where chromium is installed");
        return;
    }
    for script in ["tests/hostile.mjs", "tests/made.mjs"] {
        let output = Command::new("node").arg(script).current_dir(&web).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stdout));
    }
    // Twelve minutes of updates at accelerated time; `node tests/leak.mjs` alone does an hour.
    let mut leak = Command::new("node");
    let output = leak.args(["tests/leak.mjs", "12"]).current_dir(&web).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
