//! The arrows of ARCHITECTURE.md against what `cargo metadata` says. A new arrow needs an ADR and a
//! line here.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// A crate and the crates of this workspace that it may depend on.
const ARROWS: &[(&str, &[&str])] = &[
    ("weir-wire", &[]),
    ("weir-suffix", &[]),
    ("weir-detect", &["weir-wire", "weir-suffix"]),
    ("weir-engine", &["weir-wire", "weir-detect"]),
    ("weir-port", &["weir-wire"]),
    ("weir-xfrm", &["weir-wire", "weir-engine"]),
    ("weir-store", &["weir-wire", "weir-detect", "weir-engine"]),
    ("weir-serve", &["weir-store"]),
    ("weir-lab", &["weir-wire", "weir-detect", "weir-engine", "weir-port"]),
    (
        "weir",
        &[
            "weir-wire",
            "weir-detect",
            "weir-engine",
            "weir-port",
            "weir-store",
            "weir-serve",
            "weir-xfrm",
        ],
    ),
    ("weir-fuzz", &["weir-wire", "weir-detect", "weir-engine", "weir-port", "weir-xfrm", "weir"]),
    ("xtask", &[]),
];

/// Arrows that are not in the list. Tests may look at anything, so their dependencies are free.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata failed");
    findings(&serde_json::from_slice(&output.stdout)?)
}

fn findings(metadata: &Value) -> Result<Vec<String>> {
    let packages = metadata["packages"].as_array().context("cargo metadata has packages")?;
    let mut findings = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((_, allowed)) = ARROWS.iter().find(|(from, _)| *from == name) else {
            findings.push(format!("Cargo.toml:1: crate `{name}` is not in the list of arrows"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let to = dependency["name"].as_str().unwrap_or_default();
            let inner = ARROWS.iter().any(|(from, _)| *from == to);
            if inner && dependency["kind"] != "dev" && !allowed.contains(&to) {
                findings.push(format!("crates/{name}/Cargo.toml:1: arrow `{to} <- {name}`"));
            }
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_arrow_that_is_not_in_the_list_is_found_except_for_tests() {
        let package = |name: &str, to: &str, kind: Value| {
            let dependency = json!({"name": to, "kind": kind});
            json!({"packages": [{"name": name, "dependencies": [dependency]}]})
        };
        let found = |it: Value| findings(&it).unwrap();
        assert_eq!(found(package("weir-engine", "weir-wire", Value::Null)).len(), 0);
        assert_eq!(found(package("weir-engine", "weir-port", Value::Null)).len(), 1);
        assert_eq!(found(package("weir-engine", "weir-port", json!("dev"))).len(), 0);
        assert_eq!(found(package("weir-engine", "serde", Value::Null)).len(), 0);
        assert_eq!(found(package("weir-utils", "serde", Value::Null)).len(), 1);
    }

    #[test]
    fn the_list_has_no_circle() {
        for (index, (_, allowed)) in ARROWS.iter().enumerate() {
            for to in *allowed {
                let place = ARROWS.iter().position(|(from, _)| from == to);
                assert!(place.is_some_and(|place| place < index), "{to}");
            }
        }
    }
}
