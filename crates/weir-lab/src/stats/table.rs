//! Anybody's data: a CSV file, one column of values, one or more of factors.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::{Summary, cliffs_delta, dunn, kruskal_wallis, summary};

/// Rows of one file, at most.
const ROWS_MAX: usize = 1_000_000;
/// Levels of a factor, at most; above, a column is no factor but a measurement.
const LEVELS_MAX: usize = 200;
/// Cells of values that say that there is none, in any case of letters.
const MISSING_VALUES: &[&str] = &["", "na", "n/a", "#n/a", "<na>", "nan", "-nan", "null"];
/// The same of levels: more of them could be names (Na, null, none).
const MISSING_LEVELS: &[&str] = &["", "NA", "NaN", "nan", "#N/A", "<NA>"];

/// What a factor explains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FactorTest {
    /// Kruskal-Wallis: the statistic, corrected for ties; absent where all samples are equal.
    pub h: Option<f64>,
    /// Degrees of freedom.
    pub df: usize,
    /// Probability by chance.
    pub p: Option<f64>,
    /// Effect size.
    pub epsilon_squared: Option<f64>,
    /// By level.
    pub groups: BTreeMap<String, Summary>,
    /// Every pair of levels.
    pub pairs: Vec<PairTest>,
}

/// How two levels differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairTest {
    /// One level.
    pub a: String,
    /// The other.
    pub b: String,
    /// Dunn's z; absent where all samples are equal.
    pub z: Option<f64>,
    /// Dunn's probability, corrected by Holm.
    pub p_holm: Option<f64>,
    /// Cliff's delta.
    pub cliffs_delta: f64,
}

/// A CSV file in memory.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<String>,
    rows: Vec<Row>,
}

#[derive(Clone, Debug)]
struct Row {
    /// Where it begins, from 1.
    line: usize,
    fields: Vec<String>,
}

/// Samples by level, and rows that were left out.
#[derive(Clone, Debug, PartialEq)]
pub struct Groups {
    /// Levels in the order of their names, numbers by size; none is empty.
    pub levels: Vec<(String, Vec<f64>)>,
    /// Rows without a value.
    pub without_value: usize,
    /// Rows with a value and without a level.
    pub without_level: usize,
}

impl Table {
    /// Reads CSV (RFC 4180) with a line of column names. Fields are parted by commas; by semicolons
    /// or tabs where the first line has those and no comma. Blank lines do not count; before the
    /// names, lines that begin with `#` and a blank are remarks.
    ///
    /// # Errors
    /// No header, a name twice, a row of another length, an open quote, too many rows: says where.
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut rows = csv::rows(text)?.into_iter();
        let header = rows.next().context("an empty file; its first line names columns")?;
        let columns: Vec<String> = header.fields.iter().map(|it| it.trim().to_owned()).collect();
        for (at, name) in columns.iter().enumerate() {
            let again = columns[..at].contains(name) && !name.is_empty();
            ensure!(!again, "two columns are called {name}");
        }
        let mut kept = Vec::new();
        for row in rows {
            ensure!(
                row.fields.len() == columns.len(),
                "line {} has {} fields where the first line names {}",
                row.line,
                row.fields.len(),
                columns.len()
            );
            ensure!(kept.len() < ROWS_MAX, "more than {ROWS_MAX} rows");
            kept.push(row);
        }
        Ok(Self { columns, rows: kept })
    }

    /// Reads the bytes of a file: UTF-8, UTF-16 with its mark, or else Latin-1, as spreadsheets
    /// write them.
    ///
    /// # Errors
    /// As [`Table::parse`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let units = |of: fn([u8; 2]) -> u16| {
            let units = bytes[2..].chunks_exact(2).map(|it| of([it[0], it[1]]));
            char::decode_utf16(units).map(|it| it.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        };
        let text: String = match bytes {
            [0xff, 0xfe, ..] => units(u16::from_le_bytes),
            [0xfe, 0xff, ..] => units(u16::from_be_bytes),
            _ => match std::str::from_utf8(bytes) {
                Ok(text) => text.to_owned(),
                Err(_) => bytes.iter().map(|byte| char::from(*byte)).collect(),
            },
        };
        Self::parse(&text)
    }

    /// Leaves out the rows that a study's `results.csv` says do not count; how many they were.
    pub fn leave_out_uncounted(&mut self) -> usize {
        let Some(at) = self.columns.iter().position(|it| it == "counts") else { return 0 };
        let before = self.rows.len();
        self.rows.retain(|row| row.fields[at].trim() != "no");
        before - self.rows.len()
    }

    /// Names of its columns.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// A column.
    ///
    /// # Errors
    /// There is none of that name; says which there are.
    pub fn column(&self, name: &str) -> Result<impl Iterator<Item = &str>> {
        let at = self.columns.iter().position(|column| column == name);
        let Some(at) = at else {
            bail!("no column is called {name}; there are {}", self.columns.join(", "));
        };
        Ok(self.rows.iter().map(move |row| row.fields[at].trim()))
    }

    /// Samples of column `value` by level of column `factor`. Rows without a value (an empty cell,
    /// NA, NaN, null) or without a level (an empty cell, NA, NaN) are left out and counted.
    ///
    /// # Errors
    /// A column is missing, a value is no finite number, or the factor has too many levels.
    pub fn groups(&self, value: &str, factor: &str) -> Result<Groups> {
        let mut groups: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        let (mut without_value, mut without_level) = (0, 0);
        let cells = self.column(factor)?.zip(self.column(value)?);
        for ((level, text), row) in cells.zip(&self.rows) {
            if MISSING_VALUES.iter().any(|it| text.eq_ignore_ascii_case(it)) {
                without_value += 1;
                continue;
            }
            let sample = text.parse().ok().filter(|it: &f64| it.is_finite());
            let Some(sample) = sample else {
                bail!("line {}: {value} is no finite number: {text}", row.line);
            };
            if MISSING_LEVELS.contains(&level) {
                without_level += 1;
                continue;
            }
            groups.entry(level).or_default().push(sample);
            ensure!(groups.len() <= LEVELS_MAX, "{factor} has more than {LEVELS_MAX} levels");
        }
        let mut levels: Vec<_> =
            groups.into_iter().map(|(level, samples)| (level.to_owned(), samples)).collect();
        levels.sort_by(|a, b| by_size(&a.0, &b.0));
        Ok(Groups { levels, without_value, without_level })
    }

    /// Tests each factor on its own.
    ///
    /// # Errors
    /// As [`Table::groups`], or a factor has fewer than two levels with values.
    pub fn test(&self, value: &str, factors: &[&str]) -> Result<BTreeMap<String, FactorTest>> {
        let mut tests = BTreeMap::new();
        for factor in factors {
            let groups = self.groups(value, factor)?.levels;
            match groups.as_slice() {
                [] => bail!("no row has both {value} and {factor}: there is nothing to test"),
                [(level, samples)] => bail!(
                    "{factor} has one level, {level} ({} values): a test needs two",
                    samples.len()
                ),
                _ => tests.insert((*factor).to_owned(), factor_test(&groups)),
            };
        }
        Ok(tests)
    }
}

/// Tests a factor by its groups, of which none is empty.
pub fn factor_test(groups: &[(String, Vec<f64>)]) -> FactorTest {
    let samples: Vec<Vec<f64>> = groups
        .iter()
        .map(|(_, samples)| {
            let mut sorted = samples.clone();
            sorted.sort_by(f64::total_cmp);
            sorted
        })
        .collect();
    let test = kruskal_wallis(&samples);
    let compared = dunn(&samples);
    let mut pairs = Vec::new();
    for a in 0..groups.len() {
        for b in a + 1..groups.len() {
            let found = compared.get(pairs.len());
            pairs.push(PairTest {
                a: groups[a].0.clone(),
                b: groups[b].0.clone(),
                z: found.map(|it| it.z),
                p_holm: found.map(|it| it.p_holm),
                cliffs_delta: cliffs_delta(&samples[a], &samples[b]),
            });
        }
    }
    let described = groups.iter().filter_map(|(level, it)| Some((level.clone(), summary(it)?)));
    FactorTest {
        h: test.map(|it| it.h),
        df: groups.len().saturating_sub(1),
        p: test.map(|it| it.p),
        epsilon_squared: test.map(|it| it.epsilon_squared),
        groups: described.collect(),
        pairs,
    }
}

/// Numbers by size, before words in their order.
pub fn by_size(a: &str, b: &str) -> std::cmp::Ordering {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => a.total_cmp(&b),
        (Ok(_), Err(_)) => std::cmp::Ordering::Less,
        (Err(_), Ok(_)) => std::cmp::Ordering::Greater,
        (Err(_), Err(_)) => a.cmp(b),
    }
}

mod csv {
    //! RFC 4180, as spreadsheets, R and pandas write it: a quote opens a field only at its
    //! beginning, so that `5" disk` is a field like others.

    use anyhow::{Result, ensure};

    use super::Row;

    /// Rows that are not blank, remarks before the first left out.
    pub(super) fn rows(text: &str) -> Result<Vec<Row>> {
        let (mut rows, mut line) = (Vec::new(), 1);
        let mut rest = text;
        let mut separator = None;
        while !rest.is_empty() {
            let is_remark = rows.is_empty() && (rest.starts_with("# ") || rest.starts_with("#\n"));
            let first = rest.split(['\n', '\r']).next().unwrap_or_default();
            if is_remark || first.trim().is_empty() {
                rest = behind_line_end(&rest[first.len()..]);
                line += 1;
                continue;
            }
            let separator = *separator.get_or_insert_with(|| separator_of(first));
            let (fields, lines, behind) = row(rest, separator, line)?;
            rows.push(Row { line, fields });
            line += lines;
            rest = behind;
        }
        Ok(rows)
    }

    /// Of the first line, outside of its quotes.
    fn separator_of(header: &str) -> char {
        let bare: String = header.split('"').step_by(2).collect();
        [',', ';', '\t'].into_iter().find(|it| bare.contains(*it)).unwrap_or(',')
    }

    fn behind_line_end(text: &str) -> &str {
        text.strip_prefix("\r\n").or_else(|| text.strip_prefix(['\n', '\r'])).unwrap_or(text)
    }

    /// One row, the lines that it takes, and what stands behind it.
    fn row(text: &str, separator: char, line: usize) -> Result<(Vec<String>, usize, &str)> {
        let (mut fields, mut lines, mut rest) = (Vec::new(), 1, text);
        loop {
            let field;
            let opened = rest.trim_start_matches(' ');
            (field, rest) = match opened.strip_prefix('"') {
                Some(quoted) => {
                    let (field, behind) = self::quoted(quoted);
                    ensure!(behind.is_some(), "line {line}: an open quote");
                    lines += field.matches('\n').count();
                    let behind = behind.unwrap_or_default();
                    // What stands between the quote and the separator belongs to the field.
                    let end = behind.find([separator, '\n', '\r']).unwrap_or(behind.len());
                    (field + behind[..end].trim_end(), &behind[end..])
                }
                None => {
                    let end = rest.find([separator, '\n', '\r']).unwrap_or(rest.len());
                    (rest[..end].to_owned(), &rest[end..])
                }
            };
            fields.push(field);
            match rest.strip_prefix(separator) {
                Some(more) => rest = more,
                None => return Ok((fields, lines, behind_line_end(rest))),
            }
        }
    }

    /// The field that a quote has opened, and what stands behind the quote that closes it.
    fn quoted(text: &str) -> (String, Option<&str>) {
        let (mut field, mut rest) = (String::new(), text);
        while let Some((before, behind)) = rest.split_once('"') {
            field.push_str(before);
            match behind.strip_prefix('"') {
                Some(more) => {
                    field.push('"');
                    rest = more;
                }
                None => return (field, Some(behind)),
            }
        }
        (field, None)
    }
}
