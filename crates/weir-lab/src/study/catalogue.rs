//! The studies that Weir ships, and their papers' numbers: `studies/` of the repository.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::design::Study;

/// Study files, built in.
const STUDIES: &[&str] = &[
    include_str!("../../../../studies/ipsec-cost.toml"),
    include_str!("../../../../studies/bypass.toml"),
    include_str!("../../../../studies/factorial.toml"),
    include_str!("../../../../studies/characterise.toml"),
    include_str!("../../../../studies/monitoring.toml"),
    include_str!("../../../../studies/rdma-cost.toml"),
    include_str!("../../../../studies/vpn.toml"),
    include_str!("../../../../studies/attack.toml"),
];

/// Papers' numbers, built in, by name.
const PAPERS: &[(&str, &str)] = &[
    ("mireles-2020", include_str!("../../../../studies/papers/mireles-2020.csv")),
    ("hintze-2021", include_str!("../../../../studies/papers/hintze-2021.csv")),
    ("diamond-2022", include_str!("../../../../studies/papers/diamond-2022.csv")),
    ("elkirafi-rahimi-2021", include_str!("../../../../studies/papers/elkirafi-rahimi-2021.csv")),
];

/// What the papers print that cannot be so.
const ERRATA: &str = include_str!("../../../../studies/papers/errata.csv");

/// Bytes of a study file, at most.
const FILE_MAX: u64 = 1 << 20;

/// All shipped studies.
///
/// # Errors
/// One is broken, which a test rules out.
pub fn shipped() -> Result<Vec<Study>> {
    STUDIES.iter().map(|text| Study::parse(text)).collect()
}

/// The text of the study that `name` names: a shipped one, or a file.
///
/// # Errors
/// There is none; says which there are.
pub fn find(name: &str) -> Result<String> {
    for text in STUDIES {
        if Study::parse(text)?.name == name {
            return Ok((*text).to_owned());
        }
    }
    let path = Path::new(name);
    if path.extension().is_some_and(|it| it == "toml") {
        let bytes = path.metadata().with_context(|| format!("cannot read {name}"))?.len();
        anyhow::ensure!(bytes <= FILE_MAX, "{name} is no study: it has {bytes} bytes");
        return std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"));
    }
    let names: Vec<String> = shipped()?.into_iter().map(|study| study.name).collect();
    bail!("no study is called {name}; there are {} (or name a .toml file)", names.join(", "));
}

/// A paper's numbers as CSV.
pub fn paper(name: &str) -> Option<&'static str> {
    PAPERS.iter().find(|(paper, _)| *paper == name).map(|(_, text)| *text)
}

/// Errata of all papers as CSV.
pub fn errata() -> &'static str {
    ERRATA
}
