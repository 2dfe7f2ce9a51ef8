//! Anybody's data: a CSV file, one column of values, one or more of factors.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::{Summary, cliffs_delta, dunn, kruskal_wallis, summary};

/// Rows of one file, at most: Dunn and Cliff compare every sample with every other.
const ROWS_MAX: usize = 1_000_000;
/// Levels of a factor, at most; above, a column is no factor but a measurement.
const LEVELS_MAX: usize = 200;

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
    /// Dunn's z.
    pub z: f64,
    /// Dunn's probability, corrected by Holm.
    pub p_holm: f64,
    /// Cliff's delta.
    pub cliffs_delta: f64,
}

/// A CSV file in memory.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Reads CSV (RFC 4180) with a line of column names; lines that begin with `#` are remarks.
    ///
    /// # Errors
    /// No header, a row of another length, an open quote, too many rows: says where.
    pub fn parse(text: &str) -> Result<Self> {
        let mut records = records(text.strip_prefix('\u{feff}').unwrap_or(text))?.into_iter();
        let (_, columns) = records.next().context("an empty file; its first line names columns")?;
        let columns: Vec<String> = columns.iter().map(|name| name.trim().to_owned()).collect();
        let mut rows = Vec::new();
        for (line, row) in records {
            ensure!(
                row.len() == columns.len(),
                "line {line} has {} fields where the first line names {}",
                row.len(),
                columns.len()
            );
            ensure!(rows.len() < ROWS_MAX, "more than {ROWS_MAX} rows");
            rows.push(row);
        }
        Ok(Self { columns, rows })
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
        Ok(self.rows.iter().map(move |row| row[at].trim()))
    }

    /// Samples of column `value` by level of column `factor`, levels in the order of their names
    /// (numbers by size).
    ///
    /// # Errors
    /// A column is missing, a value is no number, or the factor has too many levels.
    pub fn groups(&self, value: &str, factor: &str) -> Result<Vec<(String, Vec<f64>)>> {
        let mut groups: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (row, (level, text)) in self.column(factor)?.zip(self.column(value)?).enumerate() {
            if text.is_empty() || text.eq_ignore_ascii_case("na") {
                continue;
            }
            let sample = text.parse().ok().filter(|it: &f64| it.is_finite());
            let Some(sample) = sample else {
                bail!("row {} of column {value} is no number: {text}", row + 1);
            };
            groups.entry(level).or_default().push(sample);
            ensure!(groups.len() <= LEVELS_MAX, "{factor} has more than {LEVELS_MAX} levels");
        }
        let mut groups: Vec<_> =
            groups.into_iter().map(|(level, samples)| (level.to_owned(), samples)).collect();
        groups.sort_by(|a, b| by_size(&a.0, &b.0));
        Ok(groups)
    }

    /// Tests each factor on its own.
    ///
    /// # Errors
    /// As [`Table::groups`], or a factor has fewer than two levels.
    pub fn test(&self, value: &str, factors: &[&str]) -> Result<BTreeMap<String, FactorTest>> {
        let mut tests = BTreeMap::new();
        for factor in factors {
            let groups = self.groups(value, factor)?;
            ensure!(groups.len() > 1, "{factor} has {} level; a test needs two", groups.len());
            tests.insert((*factor).to_owned(), factor_test(&groups));
        }
        Ok(tests)
    }
}

/// Tests a factor by its groups.
pub fn factor_test(groups: &[(String, Vec<f64>)]) -> FactorTest {
    let samples: Vec<Vec<f64>> = groups.iter().map(|(_, samples)| samples.clone()).collect();
    let test = kruskal_wallis(&samples);
    let pairs = dunn(&samples).into_iter().map(|pair| PairTest {
        a: groups[pair.a].0.clone(),
        b: groups[pair.b].0.clone(),
        z: pair.z,
        p_holm: pair.p_holm,
        cliffs_delta: cliffs_delta(&samples[pair.a], &samples[pair.b]),
    });
    let described = groups.iter().filter_map(|(level, it)| Some((level.clone(), summary(it)?)));
    FactorTest {
        h: test.map(|it| it.h),
        df: groups.len().saturating_sub(1),
        p: test.map(|it| it.p),
        epsilon_squared: test.map(|it| it.epsilon_squared),
        groups: described.collect(),
        pairs: pairs.collect(),
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

/// Records of CSV, each with the line it begins in.
fn records(text: &str) -> Result<Vec<(usize, Vec<String>)>> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((at, first)) = lines.next() {
        if first.trim().is_empty() || first.starts_with('#') {
            continue;
        }
        let mut record = first.to_owned();
        // A quoted field may hold line ends.
        while record.matches('"').count() % 2 == 1 {
            let next = lines.next().with_context(|| format!("line {}: an open quote", at + 1))?.1;
            record = record + "\n" + next;
        }
        found.push((at + 1, fields(&record)));
    }
    Ok(found)
}

fn fields(record: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut quoted = false;
    let mut rest = record.chars().peekable();
    while let Some(sign) = rest.next() {
        let Some(field) = all.last_mut() else { break };
        match sign {
            '"' if quoted && rest.peek() == Some(&'"') => {
                rest.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => all.push(String::new()),
            _ => field.push(sign),
        }
    }
    all
}
