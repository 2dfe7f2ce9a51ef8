//! A paper's own numbers beside ours, and what papers print that cannot be so.

use anyhow::Result;

use super::analysis::{Analysis, Cell};
use super::document::Document;
use super::number;
use crate::stats;
use crate::stats::table::Table;
use crate::study::catalogue;
use crate::study::record::Folder;

/// A number that a paper prints.
struct Printed {
    place: String,
    there: String,
    levels: Vec<(String, String)>,
    statistic: String,
    value: String,
    unit: String,
}

/// The table of both.
pub(super) fn beside(folder: &Folder, analysis: &Analysis, document: &mut Document) -> Result<()> {
    let mut rows = Vec::new();
    for printed in numbers(folder, analysis)? {
        for cell in analysis.cells.iter().filter(|cell| printed.is_of(cell)) {
            rows.push(vec![
                printed.place.clone(),
                printed.there.clone(),
                printed.statistic.clone(),
                format!("{} {}", printed.value, printed.unit),
                cell.name.clone(),
                ours(folder, analysis, cell, &printed.statistic),
            ]);
        }
    }
    if !rows.is_empty() {
        document.heading("The paper's numbers beside ours");
        let head = ["Where", "There", "Statistic", "Paper", "Here", "Ours"];
        let caption = "Another machine, another network: shapes and shares may be compared, not \
                       levels.";
        document.table(&head, rows, caption);
    }
    Ok(())
}

/// Means that the paper prints, by the name of our combination.
pub(super) fn means(folder: &Folder, analysis: &Analysis) -> Result<Vec<(String, f64)>> {
    let mut means = Vec::new();
    for printed in numbers(folder, analysis)? {
        let Ok(value) = printed.value.parse() else { continue };
        if printed.statistic == "mean" && printed.unit == analysis.response.unit {
            let cells = analysis.cells.iter().filter(|cell| printed.is_of(cell));
            means.extend(cells.map(|cell| (cell.name.clone(), value)));
        }
    }
    Ok(means)
}

/// What this study's paper prints that cannot be so.
pub(super) fn errata(folder: &Folder, document: &mut Document) -> Result<()> {
    let table = Table::parse(catalogue::errata())?;
    let columns = [table.column("where")?, table.column("printed")?, table.column("should be")?];
    let [places, printed, corrected] = columns.map(|it| it.map(str::to_owned).collect::<Vec<_>>());
    let papers = table.column("paper")?.enumerate();
    let rows: Vec<Vec<String>> = papers
        .filter(|(_, paper)| *paper == folder.study.paper)
        .map(|(at, _)| vec![places[at].clone(), printed[at].clone(), corrected[at].clone()])
        .collect();
    if !rows.is_empty() {
        document.heading("Errata of the paper");
        document.table(&["Where", "Printed", "Remark"], rows, "Read before comparing.");
    }
    Ok(())
}

impl Printed {
    fn is_of(&self, cell: &Cell) -> bool {
        self.levels.iter().all(|(factor, level)| cell.levels.get(factor) == Some(level))
    }
}

fn numbers(folder: &Folder, analysis: &Analysis) -> Result<Vec<Printed>> {
    let Some(text) = catalogue::paper(&folder.study.paper) else { return Ok(Vec::new()) };
    let table = Table::parse(text)?;
    let names = ["study", "where", "there", "levels", "response", "statistic", "value", "unit"];
    let mut columns = Vec::new();
    for name in names {
        columns.push(table.column(name)?.map(str::to_owned).collect::<Vec<String>>());
    }
    let [studies, places, theres, levels, responses, statistics, values, units] = &columns[..]
    else {
        return Ok(Vec::new());
    };
    let ours = (0..studies.len())
        .filter(|at| studies[*at] == folder.study.name && responses[*at] == analysis.response.name);
    let printed = ours.map(|at| Printed {
        place: places[at].clone(),
        there: theres[at].clone(),
        levels: levels[at]
            .split_whitespace()
            .filter_map(|word| word.split_once('='))
            .map(|(factor, level)| (factor.to_owned(), level.to_owned()))
            .collect(),
        statistic: statistics[at].clone(),
        value: values[at].clone(),
        unit: units[at].clone(),
    });
    Ok(printed.collect())
}

fn ours(folder: &Folder, analysis: &Analysis, cell: &Cell, statistic: &str) -> String {
    let Some(it) = stats::summary(&cell.pooled()) else { return "-".to_owned() };
    let unit = &analysis.response.unit;
    let value = match statistic {
        "mean" | "peak" => Some(it.mean),
        "cv" => {
            let cv = stats::summary(&cell.runs).and_then(|it| it.cv);
            return cv.map_or("-".into(), |cv| format!("{:.1} %", 100.0 * cv));
        }
        "max" => Some(it.max),
        "min" => Some(it.min),
        "sd" => it.sd,
        "percent of baseline" => {
            let share = super::analysis::baseline(folder, analysis);
            let share = share.map(|baseline| 100.0 * stats::mean(&cell.runs) / baseline);
            return share.map_or("-".into(), |it| format!("{it:.1} %"));
        }
        "percent of guests' cable" => {
            let is_cable = |it: &&Cell| {
                let level = |factor: &str| it.levels.get(factor).map(String::as_str);
                level("hosts") == Some("guests") && level("scenario") == Some("cable")
            };
            let cable = analysis.cells.iter().find(is_cable).filter(|it| !it.runs.is_empty());
            let share = cable.map(|it| 100.0 * stats::mean(&cell.runs) / stats::mean(&it.runs));
            return share.map_or("-".into(), |it| format!("{it:.1} %"));
        }
        _ => None,
    };
    value.map_or("-".into(), |it| format!("{} {unit}", number(it)))
}
