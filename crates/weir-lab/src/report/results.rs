//! Results as tables that R, pandas and spreadsheets open: `results.csv`, a row an attempt, and
//! `samples.csv`, a row a sample of the attempts that count; the same as Parquet.

use std::fmt::Write;

use anyhow::Result;

use super::{columns, put};
use crate::study::record::{Folder, TrialRecord};

/// Writes them.
pub(super) fn write(folder: &Folder) -> Result<()> {
    let measured = value_names(folder);
    let is_measured = |name: &str| {
        measured.iter().any(|it| it == name)
            || name.starts_with("cpu_")
            || matches!(name, "seconds" | "value")
    };
    for (name, rows) in [("results", rows(folder)), ("samples", samples(folder))] {
        let path = folder.path().join(name);
        put(&path.with_extension("csv"), &csv(&rows))?;
        columns::write(&path.with_extension("parquet"), &rows, is_measured)?;
    }
    Ok(())
}

/// What the report carries along, by file: the study, the order of its trials, and its results.
pub(super) fn files(folder: &Folder) -> Result<Vec<(String, String)>> {
    let read = |name: &str| -> Result<(String, String)> {
        Ok((name.to_owned(), std::fs::read_to_string(folder.path().join(name))?))
    };
    Ok(vec![
        read("study.toml")?,
        read("plan.json")?,
        ("results.csv".to_owned(), csv(&rows(folder))),
        ("samples.csv".to_owned(), csv(&samples(folder))),
    ])
}

/// A row an attempt; the first names columns.
pub(super) fn rows(folder: &Folder) -> Vec<Vec<String>> {
    let factors = folder.study.factor_names();
    let values = value_names(folder);
    let parts = ["generator", "hosts", "gateways"];
    let mut head: Vec<String> =
        ["trial", "attempt", "replicate", "state", "counts"].map(str::to_owned).to_vec();
    head.extend(factors.iter().map(|it| (*it).to_owned()));
    head.extend(values.iter().cloned());
    head.extend(parts.map(|part| format!("cpu_{part}")));
    let rest = ["cpu_others", "cpu_stolen", "bottleneck", "reason", "began", "seconds"];
    head.extend(rest.map(str::to_owned));
    let mut rows = vec![head];
    for record in &folder.records {
        let mut row = vec![
            record.trial.to_string(),
            record.attempt.to_string(),
            record.replicate.to_string(),
            record.state.word().to_owned(),
            if counts(folder, record) { "yes" } else { "no" }.to_owned(),
        ];
        row.extend(factors.iter().map(|it| record.levels.get(*it).cloned().unwrap_or_default()));
        row.extend(values.iter().map(|it| text(record.values.get(it).copied())));
        let load = record.load.as_ref();
        let part = |name: &str| load.map(|it| it.parts.get(name).copied().unwrap_or(0.0));
        row.extend(parts.map(|name| text(part(name))));
        row.push(text(load.map(|it| it.others)));
        row.push(text(load.map(|it| it.stolen)));
        row.push(load.map(|it| it.bottleneck.clone()).unwrap_or_default());
        row.push(record.reason.clone().unwrap_or_default());
        row.push(record.began.to_string());
        row.push(format!("{:.1}", record.seconds));
        rows.push(row);
    }
    rows
}

fn samples(folder: &Folder) -> Vec<Vec<String>> {
    let factors = folder.study.factor_names();
    let mut head = vec!["trial".to_owned(), "attempt".to_owned(), "replicate".to_owned()];
    head.extend(factors.iter().map(|it| (*it).to_owned()));
    head.extend(["response", "sample", "value"].map(str::to_owned));
    let mut rows = vec![head];
    for record in folder.records.iter().filter(|it| counts(folder, it)) {
        for (response, samples) in &record.samples {
            for (at, sample) in samples.iter().enumerate() {
                let mut row = vec![record.trial.to_string(), record.attempt.to_string()];
                row.push(record.replicate.to_string());
                row.extend(
                    factors.iter().map(|it| record.levels.get(*it).cloned().unwrap_or_default()),
                );
                row.extend([response.clone(), (at + 1).to_string(), sample.to_string()]);
                rows.push(row);
            }
        }
    }
    rows
}

/// Whether this attempt is the one of its trial that counts.
pub(super) fn counts(folder: &Folder, record: &TrialRecord) -> bool {
    folder.counted(record.trial).is_some_and(|it| it.attempt == record.attempt)
}

fn value_names(folder: &Folder) -> Vec<String> {
    let mut names: Vec<String> =
        folder.records.iter().flat_map(|record| record.values.keys().cloned()).collect();
    names.extend(folder.study.responses.iter().map(|response| response.name.clone()));
    names.sort();
    names.dedup();
    names
}

fn text(value: Option<f64>) -> String {
    value.map(|it| it.to_string()).unwrap_or_default()
}

fn csv(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| quoted(cell)).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", cells.join(","));
    }
    text
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", cell.replace('"', "\"\""));
    }
    cell.to_owned()
}
