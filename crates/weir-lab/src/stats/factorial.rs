//! Several factors at once: analysis of variance with all interactions, and the same on aligned
//! ranks (Wobbrock et al. 2011), which asks nothing of the distribution's shape.
//!
//! Type III sums of squares by effect coding: each term is judged beside all others, also where
//! cells are of different sizes. Every combination of levels must have been measured.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, FisherSnedecor};

use super::mean;

/// Parameters of one model, at most: fitting takes their third power.
const PARAMETERS_MAX: usize = 400;
/// Factors, at most.
const FACTORS_MAX: usize = 5;
/// A pivot smaller than this share of the largest is none.
const SINGULAR: f64 = 1e-10;

/// An observation: the place of its level in each factor, and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// By factor, from 0.
    pub levels: Vec<usize>,
    /// What was measured.
    pub value: f64,
}

/// A factor, or an interaction of several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Places of its factors.
    pub factors: Vec<usize>,
    /// Its degrees of freedom.
    pub df: usize,
    /// Degrees of freedom of what is left.
    pub df_residual: usize,
    /// The statistic.
    pub f: f64,
    /// Probability by chance.
    pub p: f64,
    /// Share of the variance that the term and chance have together which is the term's.
    pub partial_eta_squared: f64,
}

/// Effects of all factors and their interactions on means. Empty where a combination was not
/// measured, nothing is left to judge by (one run of each), or nothing varies.
pub fn effects(observations: &[Observation]) -> Vec<Effect> {
    let Some(model) = Model::of(observations) else { return Vec::new() };
    let values: Vec<f64> = observations.iter().map(|it| it.value).collect();
    model.terms.iter().filter_map(|term| model.effect(term, &values)).collect()
}

/// The same on aligned ranks: for each term all other effects are taken off, what is left is
/// ranked, and the ranks are analysed; of that analysis the term alone counts.
pub fn aligned_rank_effects(observations: &[Observation]) -> Vec<Effect> {
    let Some(model) = Model::of(observations) else { return Vec::new() };
    let effect = |term: &Vec<usize>| model.effect(term, &ranks(&aligned(observations, term)));
    model.terms.iter().filter_map(effect).collect()
}

/// What each observation has beyond its combination's mean.
pub fn residuals(observations: &[Observation]) -> Vec<f64> {
    let all: Vec<usize> = (0..observations.first().map_or(0, |it| it.levels.len())).collect();
    let means = means(observations, &all);
    observations.iter().zip(means).map(|(it, mean)| it.value - mean).collect()
}

/// Mean of those observations that share the levels of `factors`, for each observation.
fn means(observations: &[Observation], factors: &[usize]) -> Vec<f64> {
    let key =
        |it: &Observation| -> Vec<usize> { factors.iter().map(|at| it.levels[*at]).collect() };
    let mut groups: BTreeMap<Vec<usize>, Vec<f64>> = BTreeMap::new();
    for it in observations {
        groups.entry(key(it)).or_default().push(it.value);
    }
    let means: BTreeMap<Vec<usize>, f64> =
        groups.into_iter().map(|(key, group)| (key, mean(&group))).collect();
    observations.iter().map(|it| means[&key(it)]).collect()
}

/// Residuals with the effect of `term` alone put back.
fn aligned(observations: &[Observation], term: &[usize]) -> Vec<f64> {
    let mut values = residuals(observations);
    // By inclusion and exclusion of its parts' means.
    for part in subsets(term.len()).into_iter().chain([Vec::new()]) {
        let factors: Vec<usize> = part.iter().map(|at| term[*at]).collect();
        let sign = if (term.len() - part.len()).is_multiple_of(2) { 1.0 } else { -1.0 };
        let means = means(observations, &factors);
        values.iter_mut().zip(means).for_each(|(value, mean)| *value += sign * mean);
    }
    values
}

/// Ranks from 1, equal values sharing theirs. What differs by rounding alone is equal.
fn ranks(values: &[f64]) -> Vec<f64> {
    let largest = values.iter().fold(0.0_f64, |most, it| most.max(it.abs()));
    let near = largest * 1e-10;
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut ranked = 0;
    for run in order.chunk_by(|a, b| values[*b] - values[*a] <= near) {
        let rank = ranked as f64 + (run.len() + 1) as f64 / 2.0;
        run.iter().for_each(|at| ranks[*at] = rank);
        ranked += run.len();
    }
    ranks
}

/// Subsets of 0..count but the empty one, small ones first.
fn subsets(count: usize) -> Vec<Vec<usize>> {
    let members = |set: usize| (0..count).filter(|at| set >> at & 1 == 1).collect::<Vec<usize>>();
    let mut all: Vec<Vec<usize>> = (1..1_usize << count).map(members).collect();
    all.sort_by_key(|it| (it.len(), it.clone()));
    all
}

struct Model {
    terms: Vec<Vec<usize>>,
    /// Columns of each term, behind the one of the mean.
    columns: Vec<Vec<Vec<f64>>>,
    rows: usize,
}

impl Model {
    fn of(observations: &[Observation]) -> Option<Self> {
        let factors = observations.first()?.levels.len();
        if factors == 0 || factors > FACTORS_MAX {
            return None;
        }
        let count = |at: usize| observations.iter().map(|it| it.levels[at] + 1).max();
        let counts: Vec<usize> = (0..factors).filter_map(count).collect();
        let cells: usize = counts.iter().product();
        let seen: std::collections::BTreeSet<&Vec<usize>> =
            observations.iter().map(|it| &it.levels).collect();
        let is_whole = seen.len() == cells && counts.iter().all(|it| *it > 1);
        if !is_whole || cells > PARAMETERS_MAX || observations.len() <= cells {
            return None;
        }
        let terms = subsets(factors);
        let columns = terms.iter().map(|term| coded(observations, &counts, term)).collect();
        Some(Self { terms, columns, rows: observations.len() })
    }

    fn effect(&self, term: &[usize], values: &[f64]) -> Option<Effect> {
        let at = self.terms.iter().position(|it| it == term)?;
        let with: Vec<&Vec<f64>> = self.columns.iter().flatten().collect();
        let others = self.columns.iter().enumerate().filter(|(place, _)| *place != at);
        let without: Vec<&Vec<f64>> = others.flat_map(|(_, columns)| columns).collect();
        let left = left_over(&with, values)?;
        let own = (left_over(&without, values)? - left).max(0.0);
        let df = self.columns[at].len();
        let df_residual = self.rows - with.len() - 1;
        let f = (own / df as f64) / (left / df_residual as f64);
        let p = FisherSnedecor::new(df as f64, df_residual as f64).ok()?;
        let factors = term.to_vec();
        let partial_eta_squared = own / (own + left);
        let effect = || Effect { factors, df, df_residual, f, p: p.sf(f), partial_eta_squared };
        f.is_finite().then(effect)
    }
}

/// Columns of a term: products of its factors' codes, each 1 at its level, -1 at the last.
fn coded(observations: &[Observation], counts: &[usize], term: &[usize]) -> Vec<Vec<f64>> {
    let mut columns = vec![vec![1.0; observations.len()]];
    for factor in term {
        let code = |level: usize, row: usize| match observations[row].levels[*factor] {
            own if own == level => 1.0,
            own if own + 1 == counts[*factor] => -1.0,
            _ => 0.0,
        };
        let longer = columns.iter().flat_map(|column| {
            (0..counts[*factor] - 1).map(move |level| {
                column.iter().enumerate().map(|(row, it)| it * code(level, row)).collect()
            })
        });
        columns = longer.collect();
    }
    columns
}

/// Sum of squares that a least-squares fit of a mean and `columns` leaves; absent where columns
/// depend on each other.
fn left_over(columns: &[&Vec<f64>], values: &[f64]) -> Option<f64> {
    let ones = vec![1.0; values.len()];
    let all: Vec<&Vec<f64>> = std::iter::once(&ones).chain(columns.iter().copied()).collect();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    // About the mean, which keeps digits where values are large and near to each other.
    let centre = mean(values);
    let centred: Vec<f64> = values.iter().map(|it| it - centre).collect();
    let count = all.len();
    let mut matrix: Vec<Vec<f64>> = all
        .iter()
        .map(|a| all.iter().map(|b| dot(a, b)).chain([dot(a, &centred)]).collect())
        .collect();
    let largest = matrix.iter().flatten().fold(0.0_f64, |most, it| most.max(it.abs()));
    for pivot in 0..count {
        let best = (pivot..count)
            .max_by(|a, b| matrix[*a][pivot].abs().total_cmp(&matrix[*b][pivot].abs()))?;
        matrix.swap(pivot, best);
        if matrix[pivot][pivot].abs() <= largest * SINGULAR {
            return None;
        }
        let row = matrix[pivot].clone();
        for below in matrix.iter_mut().skip(pivot + 1) {
            let share = below[pivot] / row[pivot];
            if share != 0.0 {
                below.iter_mut().zip(&row).skip(pivot).for_each(|(a, b)| *a -= share * b);
            }
        }
    }
    let mut weights = vec![0.0; count];
    for row in (0..count).rev() {
        let known: f64 = (row + 1..count).map(|at| matrix[row][at] * weights[at]).sum();
        weights[row] = (matrix[row][count] - known) / matrix[row][row];
    }
    let fitted =
        |at: usize| all.iter().zip(&weights).map(|(column, it)| column[at] * it).sum::<f64>();
    Some(centred.iter().enumerate().map(|(at, it)| (it - fitted(at)).powi(2)).sum())
}
