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
