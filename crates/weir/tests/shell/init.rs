//! `weir init` in a network namespace of two ports: what it writes is what `weir check` takes.

use std::path::Path;
use std::process::{Command, Output};

const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// Runs `script` in a namespace of its own with the ports pf0 and p0; `None`: that is not allowed.
fn in_namespace(mtu: u32, script: &str) -> Option<Output> {
    let ports = format!(
        "ip link add pf0 mtu {mtu} type veth peer name p0 mtu {mtu} && \
         ip link set pf0 up && ip link set p0 up && {script}"
    );
    let output = Command::new("unshare").args(["-n", "sh", "-c", &ports]).output().ok()?;
    if String::from_utf8_lossy(&output.stderr).contains("Operation not permitted") {
        eprintln!("SKIPPED: weir init in a namespace needs root");
        return None;
    }
    Some(output)
}

fn said(output: &Output) -> String {
    let (out, error) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(error))
}

fn written(path: &Path, mtu: u32) -> Option<String> {
    let file = path.display();
    let output = in_namespace(mtu, &format!("{WEIR} init {file} && {WEIR} check {file}"))?;
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("accepted; pairs: 1"), "{}", said(&output));
    Some(std::fs::read_to_string(path).unwrap())
}

#[test]
fn what_is_written_names_the_ports_and_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let Some(text) = written(&folder.path().join("large.toml"), 9000) else { return };
    assert!(text.contains("host = \"pf0\"") && text.contains("wire = \"p0\""), "{text}");
    assert!(text.contains("\nroce_mtu = 4096 ") && text.contains("#   p0: veth, MTU 9000"));
    let text = written(&folder.path().join("small.toml"), 1500).unwrap();
    assert!(text.contains("\nroce_mtu = 1024 ") && text.contains("ip link set p0 mtu"), "{text}");
}

#[test]
fn a_file_that_is_there_is_written_over_only_by_force() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.toml");
    std::fs::write(&path, "mine").unwrap();
    let file = path.display();
    let Some(output) = in_namespace(1500, &format!("{WEIR} init {file}")) else { return };
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("--force"), "{}", said(&output));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    let forced = in_namespace(1500, &format!("{WEIR} init {file} --force")).unwrap();
    assert!(forced.status.success(), "{}", said(&forced));
    assert!(std::fs::read_to_string(&path).unwrap().contains("[gateway]"));
}

#[test]
fn ports_that_cannot_be_told_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gw.toml");
    let script = format!("ip link add x0 type veth peer name x1 && {WEIR} init {}", file.display());
    let Some(output) = in_namespace(1500, &script) else { return };
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("--host and --wire") && said(&output).contains("x1"));
    assert!(!file.exists());
}
