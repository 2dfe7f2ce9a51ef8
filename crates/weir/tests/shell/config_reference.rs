//! docs/guide/configuration.md is made from where the configuration's types are: the format that
//! each module writes above its types. `WEIR_WRITE=1 cargo test -p weir --test shell
//! config_reference` writes it anew.

use std::path::{Path, PathBuf};

/// Modules with a format, in the order of the page.
const MODULES: &[&str] = &[
    "file.rs",
    "access.rs",
    "access/party.rs",
    "access/terms.rs",
    "rules.rs",
    "labels.rs",
    "sinks.rs",
    "tag.rs",
    "marking.rs",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config")
}

fn source(module: &str) -> String {
    std::fs::read_to_string(folder().join(module)).unwrap()
}

/// What stands above a module: the first sentence, and its blocks of TOML.
fn format_of(module: &str) -> String {
    let text = source(module);
    let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    let lines: Vec<&str> = lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    let title = lines.split(|line| line.is_empty()).next().unwrap().join(" ");
    let title = title.split([':', '.']).next().unwrap();
    let mut page = format!("## {title}\n\n");
    let mut is_block = false;
    for line in lines {
        is_block |= line == "```toml";
        if is_block {
            page.push_str(line);
            page.push('\n');
        }
        is_block &= line != "```";
    }
    page.push('\n');
    page
}

fn reference() -> String {
    let head = "# The configuration, whole\n\n\
        Made from the types that read it (`crates/weir/src/config`); a test says when it is\n\
        stale. Defaults stand in brackets, *several* takes one value or a list of them.\n\
        `weir check FILE` names every problem with its line and remedy.\n\n";
    let pages: String = MODULES.iter().map(|module| format_of(module)).collect();
    format!("{head}{}\n", pages.trim_end())
}

#[test]
fn the_reference_is_what_the_types_say() {
    let path = folder().join("../../../../docs/guide/configuration.md");
    if std::env::var_os("WEIR_WRITE").is_some() {
        std::fs::write(&path, reference()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(
        written == reference(),
        "stale: WEIR_WRITE=1 cargo test -p weir --test shell config_reference"
    );
}

/// Keys of the structs that take no other: their fields.
fn keys(module: &str) -> Vec<String> {
    let text = source(module);
    let mut keys = Vec::new();
    for part in text.split("deny_unknown_fields").skip(1) {
        let Some((_, fields)) = part.split_once("struct ") else { continue };
        let fields = fields.split("\n}").next().unwrap();
        for line in fields.lines().filter_map(|line| line.strip_prefix("    pub")) {
            let name = line.trim_start_matches("(super)").trim_start_matches("(crate)");
            if let Some((name, _)) = name.trim().split_once(':') {
                keys.push(name.to_owned());
            }
        }
    }
    keys
}

#[test]
fn every_key_is_in_the_reference() {
    let reference = reference();
    let words: Vec<&str> =
        reference.split(|it: char| !it.is_ascii_alphanumeric() && it != '_').collect();
    let mut count = 0;
    let more = ["export.rs", "store.rs"];
    for module in MODULES.iter().chain(&more) {
        for key in keys(module) {
            assert!(words.contains(&key.as_str()), "{key} of {module} is described nowhere");
            count += 1;
        }
    }
    assert!(count > 100, "{count} keys were found: is this test still right?");
}
