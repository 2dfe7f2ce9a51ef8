//! What is shipped for the service manager is what the service manager understands.

use std::process::Command;

/// systemd's own opinion of the units, with a program that is there in place of ours.
#[test]
fn systemd_understands_the_units() {
    let units = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/systemd");
    let folder = tempfile::tempdir().unwrap();
    let mut verify = Command::new("systemd-analyze");
    verify.arg("verify").current_dir(folder.path());
    let mut seen = 0;
    for entry in std::fs::read_dir(units).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap().replace("/usr/bin/weir", "/bin/true");
        let name = path.file_name().unwrap().to_str().unwrap();
        std::fs::write(folder.path().join(name), text).unwrap();
        verify.arg(format!("./{}", name.replace('@', "@gw-a")));
        seen += 1;
    }
    assert!(seen >= 2);
    let Ok(verdict) = verify.output() else {
        return eprintln!("SKIPPED: systemd_understands_the_units needs systemd-analyze (systemd)");
    };
    let words = String::from_utf8_lossy(&verdict.stderr).into_owned();
    assert!(verdict.status.success() && words.is_empty(), "{words}");
}

/// As a packager does it: everything below DESTDIR, units that name the prefix.
#[test]
fn make_install_puts_programs_units_pages_and_completions_below_destdir() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (folder, built) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::copy(env!("CARGO_BIN_EXE_weir"), built.path().join("weir")).unwrap();
    std::fs::write(built.path().join("weir-lab"), "").unwrap();
    let mut make = Command::new("make");
    make.current_dir(root).args(["install", "PREFIX=/opt/weir"]);
    make.arg(format!("DESTDIR={}", folder.path().display()));
    make.arg(format!("BUILT={}", built.path().display()));
    let made = make.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let below = folder.path().join("opt/weir");
    for path in [
        "bin/weir",
        "bin/weir-lab",
        "share/man/man1/weir-up.1",
        "share/bash-completion/completions/weir",
        "share/zsh/site-functions/_weir",
        "share/fish/vendor_completions.d/weir.fish",
        "share/weir/prometheus/weir.rules.yml",
    ] {
        assert!(below.join(path).is_file(), "{path}");
    }
    let unit = std::fs::read_to_string(below.join("lib/systemd/system/weir@.service")).unwrap();
    assert!(unit.contains("=/opt/weir/bin/weir up") && !unit.contains("/usr/bin"), "{unit}");
    let help = Command::new(below.join("bin/weir")).arg("--version").output().unwrap();
    assert!(help.status.success());
}
