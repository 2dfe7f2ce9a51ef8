//! A study's report, made from its folder alone: no lab, no root, no network.
//!
//! ```text
//!   DIR/trials.jsonl -> results::write   DIR/results.csv, DIR/samples.csv, both as .parquet
//!                    -> analysis         combinations, tests
//!                    -> document         DIR/report.html (self-contained), DIR/report.md
//!                    -> figures          in the HTML, and DIR/figures/*.svg for the Markdown
//! ```

mod analysis;
mod columns;
mod document;
mod effects;
mod figures;
mod losses;
mod methods;
mod paper;
mod results;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::study::design::Threshold;
use crate::study::record::Folder;
use document::Document;

/// Writes all reports and results into the folder.
///
/// # Errors
/// The folder holds no study, or cannot be written.
pub fn write(path: &Path) -> Result<()> {
    write_with(path, &[])
}

/// The same, judged by other requirements: `NAME=VALUE`.
///
/// # Errors
/// As [`write()`], or the study has no such requirement; says which it has.
pub fn write_with(path: &Path, thresholds: &[String]) -> Result<()> {
    let mut folder = Folder::open(path)?;
    for changed in thresholds {
        change_threshold(&mut folder.study.report.thresholds, changed)?;
    }
    results::write(&folder)?;
    let document = document(&folder)?;
    let figures = path.join("figures");
    fs::create_dir_all(&figures)?;
    for (name, svg) in document.figures() {
        put(&figures.join(format!("{name}.svg")), svg)?;
    }
    put(&path.join("report.md"), &document.markdown())?;
    put(&path.join("report.html"), &document.html())
}

fn change_threshold(thresholds: &mut [Threshold], changed: &str) -> Result<()> {
    let (name, value) =
        changed.rsplit_once('=').with_context(|| format!("{changed}: write NAME=VALUE"))?;
    let names: Vec<String> = thresholds.iter().map(|it| it.name.clone()).collect();
    let found = thresholds.iter_mut().find(|it| it.name.eq_ignore_ascii_case(name.trim()));
    let found = found.with_context(|| match names.is_empty() {
        true => format!("no requirement is called {name}: this study has none"),
        false => format!("no requirement is called {name}; there are {}", names.join(", ")),
    })?;
    let value: f64 = value.trim().parse().with_context(|| format!("{value} is no number"))?;
    anyhow::ensure!(value.is_finite(), "{value} is no finite number");
    found.at_least = value;
    Ok(())
}

/// A file that appears whole.
fn put(path: &Path, text: &str) -> Result<()> {
    let unfinished = path.with_extension("part");
    fs::write(&unfinished, text).with_context(|| format!("cannot write {}", path.display()))?;
    fs::rename(unfinished, path)?;
    Ok(())
}

fn document(folder: &Folder) -> Result<Document> {
    let mut document = Document::new(&folder.study.title);
    methods::head(folder, &mut document);
    let analyses = analysis::analyse(folder);
    if analyses.len() > 1 {
        analysis::overview(&analyses, &mut document);
    }
    if folder.study.report.losses.is_none() {
        analysis::requirements(&folder.study.report.thresholds, &analyses, &mut document);
    }
    losses::losses(folder, &analyses, &mut document)?;
    let asked = &folder.study.report;
    let is_detailed = |it: &&analysis::Analysis| {
        let named = asked.detail.is_empty() || asked.detail.contains(&it.response.name);
        named && !asked.only_overview
    };
    for analysis in analyses.iter().filter(is_detailed) {
        analysis::tables(folder, analysis, &mut document);
        figures::draw(folder, analysis, &mut document)?;
        analysis::tests(folder, analysis, &mut document);
        paper::beside(folder, analysis, &mut document)?;
    }
    analysis::processors(folder, &mut document);
    methods::tail(folder, &mut document)?;
    paper::errata(folder, &mut document)?;
    Ok(document)
}

/// A number as people read it: four digits that count.
pub(crate) fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if !value.is_finite() {
        return "-".to_owned();
    }
    let digits = 3 - value.abs().log10().floor() as i32;
    match digits {
        ..=0 => format!("{value:.0}"),
        1..=6 => format!("{value:.*}", digits as usize),
        _ => format!("{value:.2e}"),
    }
}

/// A probability as people read it, in a table.
pub(crate) fn probability(p: f64) -> String {
    if p < 0.0001 { "< 0.0001".to_owned() } else { format!("{p:.4}") }
}

/// The same in a sentence.
pub(crate) fn p_is(p: f64) -> String {
    if p < 0.0001 { "p < 0.0001".to_owned() } else { format!("p = {p:.4}") }
}
