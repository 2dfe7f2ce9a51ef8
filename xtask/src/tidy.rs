//! What the compiler does not check: arrows between crates and between the engine's modules,
//! names, lengths, files that nobody links. Every finding is one line, `FILE:LINE: what`.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

mod arrows;
mod modules;
mod source;

/// Folders whose content is not written by hand, or not ours.
const PASSED_OVER: &[&str] = &["target", ".git", "corpus", "testdata", "artifacts", "node_modules"];

/// Files of one run, at most.
const FILES_MAX: usize = 20_000;

/// Runs all checks and prints the findings; true when there are none.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let mut findings = arrows::check(root)?;
    let files = files(root)?;
    for path in &files {
        let shown = path.strip_prefix(root).unwrap_or(path);
        let Ok(text) = std::fs::read_to_string(path) else { continue };
        findings.extend(source::check(shown, &text));
        findings.extend(modules::check(shown, &text));
    }
    findings.extend(source::unlinked(root, &files));
    findings.sort();
    let sum = format!("tidy: {} files, {} findings", files.len(), findings.len());
    let mut out = std::io::stdout().lock();
    for line in findings.iter().chain([&sum]) {
        // Whoever reads the list may stop early (`| head`).
        if writeln!(out, "{line}").is_err() {
            break;
        }
    }
    Ok(findings.is_empty())
}

fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder)
            .with_context(|| format!("cannot list {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            if PASSED_OVER.iter().any(|passed| name == *passed) {
                continue;
            }
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
        anyhow::ensure!(found.len() < FILES_MAX, "more than {FILES_MAX} files");
    }
    found.sort();
    Ok(found)
}
