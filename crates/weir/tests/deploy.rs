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
