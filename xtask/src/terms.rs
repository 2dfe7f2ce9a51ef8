//! What `deny.toml` demands of everything that is linked in, checked from `cargo metadata`:
//! licences, sources, no `*` as a version. Its other sections need a database from the network and
//! are for `cargo deny check`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use spdx::{Expression, LicenseReq, ParseMode};
use toml::Table;

/// Where a package of the public registry comes from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Prints what is not as `deny.toml` demands; true when all is.
pub(crate) fn run(root: &Path, cargo: &str) -> Result<bool> {
    let text = std::fs::read_to_string(root.join("deny.toml")).context("cannot read deny.toml")?;
    let allowed = allowed(&text)?;
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists packages")?;
    let findings: Vec<String> = packages.iter().flat_map(|it| judge(it, &allowed)).collect();
    for line in &findings {
        println!("{line}");
    }
    println!("licences and sources: {} packages, {} findings", packages.len(), findings.len());
    Ok(findings.is_empty())
}

/// The licences that `deny.toml` allows, as SPDX expressions of one term.
fn allowed(text: &str) -> Result<Vec<String>> {
    let table: Table = text.parse().context("deny.toml")?;
    let listed = table["licenses"]["allow"].as_array().context("deny.toml allows licences")?;
    Ok(listed.iter().filter_map(|it| it.as_str().map(str::to_owned)).collect())
}

/// What is wrong with one package of `cargo metadata`.
fn judge(package: &Value, allowed: &[String]) -> Vec<String> {
    let mut findings = Vec::new();
    let name = format!("{} {}", text(&package["name"]), text(&package["version"]));
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    // A path in the workspace needs no version.
    let any = dependencies.filter(|it| it["req"] == "*" && it["path"].is_null());
    // Ours have no source, and the workspace's licence.
    let Some(source) = package["source"].as_str() else {
        findings.extend(any.map(|it| format!("{name}: {} in any version", text(&it["name"]))));
        return findings;
    };
    if source != REGISTRY {
        findings.push(format!("{name}: comes from {source}"));
    }
    let licence = text(&package["license"]);
    let is_allowed = |term: &LicenseReq| allowed.iter().any(|it| *it == term.to_string());
    match Expression::parse_mode(licence, ParseMode::LAX) {
        Ok(expression) if expression.evaluate(is_allowed) => {}
        Ok(_) => findings.push(format!("{name}: licence {licence} is not allowed by deny.toml")),
        Err(why) => findings.push(format!("{name}: licence {licence:?}: {}", why.reason)),
    }
    findings
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_licence_a_source_and_any_version_are_found() {
        let listed = "[licenses]\nallow = [\"MIT\", \"Apache-2.0 WITH LLVM-exception\"]\n";
        let allowed = allowed(listed).unwrap();
        let found = |source: Value, licence: &str, version: &str| {
            let dependencies = json!([{ "name": "b", "req": version, "path": null }]);
            let package = json!({ "name": "a", "version": "1.0.0", "source": source,
                "license": licence, "dependencies": dependencies });
            judge(&package, &allowed).len()
        };
        assert_eq!(found(json!(REGISTRY), "GPL-3.0-only OR MIT", "1"), 0);
        assert_eq!(found(json!(REGISTRY), "Apache-2.0/MIT", "*"), 0);
        assert_eq!(found(json!(REGISTRY), "Apache-2.0 WITH LLVM-exception", "1"), 0);
        assert_eq!(found(json!(REGISTRY), "Apache-2.0", "1"), 1);
        assert_eq!(found(json!(REGISTRY), "GPL-3.0-only AND MIT", "1"), 1);
        assert_eq!(found(json!(REGISTRY), "", "1"), 1);
        assert_eq!(found(json!("git+https://example.org/a"), "MIT", "1"), 1);
        assert_eq!(found(Value::Null, "MIT", "1"), 0);
        assert_eq!(found(Value::Null, "MIT", "*"), 1);
    }
}
