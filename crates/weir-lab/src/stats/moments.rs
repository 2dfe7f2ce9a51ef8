//! Tests on means and variances, for comparison with those on ranks.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, FisherSnedecor};

use super::{mean, median};

/// Share of all squares that rounding may leave of equal samples.
const ROUNDING: f64 = 1e-24;

/// One-way analysis of variance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Anova {
    /// The statistic.
    pub f: f64,
    /// Degrees of freedom between groups.
    pub df_between: usize,
    /// Degrees of freedom within groups.
    pub df_within: usize,
    /// Probability of so much difference by chance.
    pub p: f64,
}

/// Levene's test in Brown and Forsythe's (1974) form, about medians.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Levene {
    /// The statistic.
    pub w: f64,
    /// Probability of so much difference of spread by chance.
    pub p: f64,
}

/// Whether means differ, if groups are normal and spread alike. Absent below two groups, where one
/// is empty, or where nothing varies within them.
pub fn anova(groups: &[Vec<f64>]) -> Option<Anova> {
    let all: Vec<f64> = groups.iter().flatten().copied().collect();
    if groups.len() < 2 || groups.iter().any(Vec::is_empty) || all.len() <= groups.len() {
        return None;
    }
    let grand = mean(&all);
    let between: f64 = groups.iter().map(|it| it.len() as f64 * (mean(it) - grand).powi(2)).sum();
    let of_group = |group: &Vec<f64>| -> f64 {
        let own = mean(group);
        group.iter().map(|it| (it - own).powi(2)).sum()
    };
    let within: f64 = groups.iter().map(of_group).sum();
    // What rounding leaves is no variation: distances of two samples from their median, above all.
    if within <= ROUNDING * (between + within) {
        return None;
    }
    let (df_between, df_within) = (groups.len() - 1, all.len() - groups.len());
    let f = (between / df_between as f64) / (within / df_within as f64);
    let p = FisherSnedecor::new(df_between as f64, df_within as f64).ok()?;
    f.is_finite().then(|| Anova { f, df_between, df_within, p: p.sf(f) })
}

/// Whether groups spread alike. Absent as [`anova`].
pub fn levene(groups: &[Vec<f64>]) -> Option<Levene> {
    let distances = |group: &Vec<f64>| -> Vec<f64> {
        let middle = median(group);
        group.iter().map(|it| (it - middle).abs()).collect()
    };
    let spread: Vec<Vec<f64>> = groups.iter().map(distances).collect();
    anova(&spread).map(|it| Levene { w: it.f, p: it.p })
}
