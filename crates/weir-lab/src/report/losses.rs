//! What tools lost, in tables and figures of the shape that Hintze (2021) prints: his Table 3 for
//! the baseline, 4, 6 and 8 for the losses and their spread, 5, 7 and 9 for the requirements,
//! figures 19, 21 and 22.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};

use super::analysis::{Analysis, is_met};
use super::document::Document;
use super::{figures, number};
use crate::stats;
use crate::study::design::Losses;
use crate::study::record::{Folder, TrialRecord};

/// What the paper takes for consistent.
const CONSISTENT_CV: f64 = 0.1;

/// A tool at a level: the trials that count.
struct Row<'a> {
    tool: String,
    level: String,
    records: Vec<&'a TrialRecord>,
}

/// The tables, one set for each combination of the other factors.
pub(super) fn losses(
    folder: &Folder,
    analyses: &[Analysis],
    document: &mut Document,
) -> Result<()> {
    let Some(asked) = &folder.study.report.losses else { return Ok(()) };
    for (number, (place, rows)) in cases(folder, asked).into_iter().enumerate() {
        let name = format!("{} {}: {place}", asked.name, number + 1);
        document.heading(&name);
        baseline(asked, &rows, document);
        spread(asked, &rows, document);
        requirements(folder, analyses, asked, &place, &rows, document);
        let series = series(asked, &rows);
        if !series.is_empty() {
            let svg = figures::bars(&series, &asked.level, "Arrived and not taken (%)")
                .map_err(|reason| anyhow!("a figure: {reason}"))?;
            let caption = format!("{name}: packets that arrived and were not taken, by tool.");
            document.figure(&format!("losses-{}", number + 1), svg, &caption);
        }
    }
    Ok(())
}

/// Rows by the levels of all other factors, in the study's order.
fn cases<'a>(folder: &'a Folder, asked: &Losses) -> Vec<(String, Vec<Row<'a>>)> {
    let mut cases: Vec<(String, Vec<Row<'a>>)> = Vec::new();
    for levels in folder.study.combinations() {
        let place = place(&levels, asked);
        let trials = folder.plan.trials.iter().filter(|trial| trial.levels == levels);
        let records: Vec<&TrialRecord> =
            trials.filter_map(|trial| folder.counted(trial.number)).collect();
        let level = |factor: &String| levels.get(factor).cloned().unwrap_or_default();
        let row = Row { tool: level(&asked.tool), level: level(&asked.level), records };
        if row.records.is_empty() {
            continue;
        }
        match cases.iter_mut().find(|(known, _)| *known == place) {
            Some((_, rows)) => rows.push(row),
            None => cases.push((place, vec![row])),
        }
    }
    cases
}

fn place(levels: &BTreeMap<String, String>, asked: &Losses) -> String {
    let others = levels.iter().filter(|(factor, level)| {
        **factor != asked.tool && **factor != asked.level && *level != "none"
    });
    let words: Vec<String> = others.map(|(factor, level)| format!("{factor} {level}")).collect();
    words.join(", ")
}

fn values(row: &Row<'_>, name: &str) -> Vec<f64> {
    row.records.iter().filter_map(|it| it.values.get(name).copied()).collect()
}

fn baseline(asked: &Losses, rows: &[Row<'_>], document: &mut Document) {
    let of_nobody = rows.iter().filter(|row| row.tool == asked.baseline);
    let table = of_nobody.map(|row| {
        let (sent, lost) = (stats::mean(&values(row, "packets")), values(row, "lost_before"));
        let lost = stats::mean(&lost);
        vec![
            row.level.clone(),
            format!("{:.0}", sent - lost),
            format!("{lost:.0}"),
            format!("{:.4} %", 100.0 * lost / sent),
        ]
    });
    let table: Vec<Vec<String>> = table.collect();
    if !table.is_empty() {
        let head = ["Bandwidth (Gb/s)", "Packets received", "Packets dropped", "Percent dropped"];
        let caption = "Baseline, nobody listens: what is lost before the tool's port (shape of \
                       the paper's Table 3; means over trials).";
        document.table(&head, table, caption);
    }
}

fn spread(asked: &Losses, rows: &[Row<'_>], document: &mut Document) {
    let of_tools = rows.iter().filter(|row| row.tool != asked.baseline);
    let table = of_tools.filter_map(|row| {
        let (percent, packets) = (values(row, "lost"), values(row, "lost_packets"));
        let it = stats::summary(&packets)?;
        let consistent = it.cv.map_or("-", |cv| if cv < CONSISTENT_CV { "yes" } else { "no" });
        Some(vec![
            row.tool.clone(),
            row.level.clone(),
            row.records.len().to_string(),
            format!("{:.1} %", stats::mean(&percent)),
            it.sd.map_or("-".into(), number),
            it.cv.map_or("-".into(), |cv| format!("{:.1} %", cv * 100.0)),
            consistent.to_owned(),
        ])
    });
    let head = [
        "Tool",
        "Bandwidth (Gb/s)",
        "Trials",
        "Packets dropped, mean",
        "Packets dropped, SD",
        "CV",
        "Consistent",
    ];
    let caption = "What tools did not take of what came to their port (shape of the paper's \
                   Tables 4, 6 and 8); consistent: CV below 10 %.";
    document.table(&head, table.collect(), caption);
}

fn requirements(
    folder: &Folder,
    analyses: &[Analysis],
    asked: &Losses,
    place_wanted: &str,
    rows: &[Row<'_>],
    document: &mut Document,
) {
    let thresholds = &folder.study.report.thresholds;
    let Some(first) = analyses.first().filter(|_| !thresholds.is_empty()) else { return };
    let mut head = vec!["Tool", "Bandwidth (Gb/s)"];
    head.extend(thresholds.iter().map(|it| it.name.as_str()));
    let mut table = Vec::new();
    for row in rows.iter().filter(|row| row.tool != asked.baseline) {
        let at = first.cells.iter().position(|cell| {
            place(&cell.levels, asked) == place_wanted
                && cell.levels.get(&asked.tool) == Some(&row.tool)
                && cell.levels.get(&asked.level) == Some(&row.level)
        });
        let Some(at) = at else { continue };
        let mut line = vec![row.tool.clone(), row.level.clone()];
        line.extend(thresholds.iter().map(|it| is_met(it, analyses, at).to_owned()));
        table.push(line);
    }
    let caption = "Requirements (shape of the paper's Tables 5, 7 and 9; its `negative impact` \
                   column has a mark where there is none, as here).";
    document.table(&head, table, caption);
}

/// Mean losses by tool, each over the levels.
fn series(asked: &Losses, rows: &[Row<'_>]) -> Vec<(String, Vec<(String, f64)>)> {
    let mut series: Vec<(String, Vec<(String, f64)>)> = Vec::new();
    for row in rows.iter().filter(|row| row.tool != asked.baseline) {
        let lost = values(row, "lost");
        if lost.is_empty() {
            continue;
        }
        let point = (row.level.clone(), stats::mean(&lost));
        match series.iter_mut().find(|(tool, _)| *tool == row.tool) {
            Some((_, points)) => points.push(point),
            None => series.push((row.tool.clone(), vec![point])),
        }
    }
    series
}
