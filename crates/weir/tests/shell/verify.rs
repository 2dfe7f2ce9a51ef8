//! Tests of strangers in suricata-verify's format: how many pass must not sink.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Cases of the suite that pass; each of the others has its reason in docs/guide/detect.md.
const PASSED: u64 = 137;

#[test]
fn as_many_cases_of_suricata_verify_pass_as_ever_did() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = std::env::var_os("WEIR_SHARED").map_or(root.join("../shared"), Into::into);
    let folder = folder.join("conformance/suricata-verify/tests");
    if !folder.is_dir() {
        eprintln!("SKIPPED: {} is not there", folder.display());
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command.args(["verify", "--json"]).arg(&folder).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let failed = report["cases"].as_array().unwrap().iter().filter(|it| it["result"] == "failed");
    let failed: Vec<&Value> = failed.map(|it| &it["name"]).collect();
    assert!(report["passed"].as_u64() >= Some(PASSED), "these fail: {failed:?}");
}

#[test]
fn a_folder_without_tests_is_no_success_and_a_test_alone_has_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let verify = || {
        let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
        weir.arg("verify").arg(folder.path()).arg("--json").output().unwrap()
    };
    let output = verify();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no folder with a test.yaml"));
    std::fs::write(folder.path().join("test.yaml"), "").unwrap();
    let report: Value = serde_json::from_slice(&verify().stdout).unwrap();
    let name = folder.path().file_name().unwrap().to_str().unwrap();
    assert_eq!(report["cases"][0]["name"], name, "{report}");
}
