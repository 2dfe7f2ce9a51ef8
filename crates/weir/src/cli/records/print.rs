//! Rows as tables, JSON, CSV and Parquet.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::process::ExitCode;

use anyhow::{Result, bail};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::PartialSchema;
use weir_serve::columns;

use super::super::{parquet, terminal};
use super::{Form, RecordArgs};

/// Prints what there is, and says what could not be read.
pub(super) fn print<T: Serialize + PartialSchema>(
    args: &RecordArgs,
    mut rows: Vec<T>,
    problems: &[String],
    cells_of: impl Fn(&T) -> Vec<(&'static str, String)>,
) -> Result<ExitCode> {
    rows.truncate(args.limit as usize);
    let form = if args.json { Form::Json } else { args.format };
    match form {
        Form::Json => super::super::print_json(&rows)?,
        Form::Csv => {
            let columns = columns::of::<T>();
            let names: Vec<_> = columns.iter().map(|it| it.0.as_str()).collect();
            std::io::stdout().write_all(csv(&names, &rows)?.as_bytes())?;
        }
        Form::Parquet if std::io::stdout().is_terminal() => {
            bail!("a Parquet file is nothing for a terminal: write it to a file, `> rows.parquet`");
        }
        Form::Parquet => {
            let mut flat_rows = Vec::with_capacity(rows.len());
            for row in &rows {
                let Value::Object(fields) = serde_json::to_value(row)? else { continue };
                flat_rows.push(flat(fields));
            }
            parquet::write(&columns::of::<T>(), &flat_rows, std::io::stdout())?;
        }
        Form::Table => {
            let mut cells: Vec<_> = rows.iter().map(cells_of).collect();
            leave_out_nameless(&mut cells);
            for (_, cell) in cells.iter_mut().flatten() {
                *cell = terminal::shown(cell);
            }
            std::io::stdout().write_all(table(&cells).as_bytes())?;
        }
    }
    if rows.len() == args.limit as usize {
        eprintln!("weir: {} rows are as many as --limit lets: there may be more", rows.len());
    }
    problems.iter().for_each(|problem| eprintln!("weir: {problem}"));
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Takes out columns of names in which no row has one.
fn leave_out_nameless(rows: &mut [Vec<(&str, String)>]) {
    let columns = rows.first().map_or(0, Vec::len);
    for column in (0..columns).rev() {
        let is_of_names = ["is", "by"].iter().any(|it| rows[0][column].0.ends_with(it));
        if is_of_names && rows.iter().all(|row| row[column].1.is_empty()) {
            rows.iter_mut().for_each(|row| drop(row.remove(column)));
        }
    }
}

/// Columns as wide as they must be; numbers to the right.
fn table(rows: &[Vec<(&str, String)>]) -> String {
    let Some(first) = rows.first() else { return "nothing\n".to_owned() };
    let is_number = |column: usize| {
        rows.iter().all(|row| row[column].1.bytes().all(|it| it.is_ascii_digit() || it == b'?'))
    };
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].1.chars().count());
        cells.chain([first[column].0.len()]).max().unwrap_or(0)
    };
    let shape: Vec<_> = (0..first.len()).map(|it| (width(it), is_number(it))).collect();
    let mut out = String::new();
    let names = first.iter().map(|(name, _)| *name).collect();
    let lines = rows.iter().map(|row| row.iter().map(|(_, cell)| cell.as_str()).collect());
    for line in std::iter::once::<Vec<&str>>(names).chain(lines) {
        let cells = line.iter().zip(&shape).map(|(cell, (width, is_number))| match is_number {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        let _ = writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    out
}

/// The columns of these names, whatever the rows hold, with the names first. A text that a
/// spreadsheet would take for a formula begins with an apostrophe there.
fn csv<T: Serialize>(names: &[&str], rows: &[T]) -> Result<String> {
    let mut out = String::new();
    csv_line(&mut out, names.iter().map(|name| Value::String((*name).to_owned())));
    for row in rows {
        let Value::Object(fields) = serde_json::to_value(row)? else { continue };
        let mut fields = flat(fields);
        csv_line(&mut out, names.iter().map(|name| fields.remove(*name).unwrap_or_default()));
    }
    Ok(out)
}

/// Names as columns of their own: `source_names.host`.
fn flat(fields: Map<String, Value>) -> Map<String, Value> {
    let mut flat = Map::new();
    for (name, value) in fields {
        match value {
            Value::Object(inner) if name.ends_with("names") => {
                flat.extend(inner.into_iter().map(|(kind, it)| (format!("{name}.{kind}"), it)));
            }
            // What is no table stays one cell, quoted as text is.
            Value::Object(_) => drop(flat.insert(name, Value::String(value.to_string()))),
            value => drop(flat.insert(name, value)),
        }
    }
    flat
}

fn csv_line(out: &mut String, cells: impl Iterator<Item = Value>) {
    let cells = cells.map(|cell| match cell {
        Value::Null => String::new(),
        Value::String(text) => csv_text(text),
        other => other.to_string(),
    });
    out.push_str(&cells.collect::<Vec<_>>().join(","));
    out.push_str("\r\n");
}

fn csv_text(mut text: String) -> String {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        text.insert(0, '\'');
    }
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_quotes_what_would_break_a_line() {
        let rows = [serde_json::json!({"a": "x,\"y\"\n", "b": 7, "c": null})];
        let names = ["a", "b", "c"];
        assert_eq!(csv(&names, &rows).unwrap(), "a,b,c\r\n\"x,\"\"y\"\"\n\",7,\r\n");
        // Rows that lack a field have an empty cell there, and no rows have columns too.
        let rows = [serde_json::json!({"b": 1}), serde_json::json!({"a": "x", "b": 2})];
        assert_eq!(csv(&["a", "b"], &rows).unwrap(), "a,b\r\n,1\r\nx,2\r\n");
        assert_eq!(csv::<Value>(&names, &[]).unwrap(), "a,b,c\r\n");
    }

    #[test]
    fn a_spreadsheet_finds_no_formula_in_what_a_stranger_chose() {
        let rows = [serde_json::json!({"a": "=HYPERLINK(\"x\")", "b": -7, "c": "@SUM(A1)"})];
        let names = ["a", "b", "c"];
        assert_eq!(
            csv(&names, &rows).unwrap(),
            "a,b,c\r\n\"'=HYPERLINK(\"\"x\"\")\",-7,'@SUM(A1)\r\n"
        );
    }

    #[test]
    fn a_table_is_as_wide_as_its_cells() {
        let rows = [vec![("name", "a".to_owned()), ("n", "12345".to_owned())]];
        assert_eq!(table(&rows), "name      n\na     12345\n");
        assert_eq!(table(&[]), "nothing\n");
    }
}
