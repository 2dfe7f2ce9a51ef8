//! Tests on ranks: they ask nothing of a distribution's shape.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ChiSquared, ContinuousCDF, Normal};

/// Below this, without ties, Mann-Whitney's p is counted rather than approximated, as SciPy does.
const EXACT_BELOW: usize = 9;
/// The other group may then have so many; counting takes the product of both, squared.
const EXACT_OTHER_MAX: usize = 500;

/// Kruskal and Wallis (1952), corrected for ties.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KruskalWallis {
    /// The statistic.
    pub h: f64,
    /// Degrees of freedom: groups less one.
    pub df: usize,
    /// Probability of so much difference by chance, by the chi-squared distribution.
    pub p: f64,
    /// Effect size: H over (n - 1); 0 nothing, 1 everything is explained by the groups.
    pub epsilon_squared: f64,
}

/// One pair of Dunn's (1964) comparison after Kruskal-Wallis.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dunn {
    /// Place of the first group.
    pub a: usize,
    /// Place of the second group.
    pub b: usize,
    /// Difference of mean ranks (a less b) over its standard error, corrected for ties.
    pub z: f64,
    /// Two-sided, uncorrected.
    pub p: f64,
    /// Two-sided, corrected by Holm for all pairs.
    pub p_holm: f64,
}

/// Mann and Whitney (1947), two-sided.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MannWhitney {
    /// U of the first group.
    pub u: f64,
    /// Exact for small groups without ties; otherwise normal, corrected for ties and continuity.
    pub p: f64,
}

/// Whether groups differ. Absent below two groups, where one is empty, or where all samples are
/// equal.
pub fn kruskal_wallis(groups: &[Vec<f64>]) -> Option<KruskalWallis> {
    let ranked = Ranked::of(groups)?;
    let n = ranked.n;
    let squares = ranked.mean_ranks.iter().zip(groups);
    let sum: f64 = squares.map(|(mean, group)| mean * mean * group.len() as f64).sum();
    let h = (12.0 / (n * (n + 1.0)) * sum - 3.0 * (n + 1.0)) / ranked.tie_correction()?;
    let df = groups.len() - 1;
    let p = ChiSquared::new(df as f64).ok()?.sf(h.max(0.0));
    Some(KruskalWallis { h, df, p, epsilon_squared: h / (n - 1.0) })
}

/// Which groups differ, by pair. Empty where [`kruskal_wallis`] is absent.
pub fn dunn(groups: &[Vec<f64>]) -> Vec<Dunn> {
    let Some(ranked) = Ranked::of(groups) else { return Vec::new() };
    let n = ranked.n;
    let ties = ranked.ties / (12.0 * (n - 1.0));
    let variance = n * (n + 1.0) / 12.0 - ties;
    if variance <= 0.0 {
        return Vec::new();
    }
    let mut pairs = Vec::new();
    for a in 0..groups.len() {
        for b in a + 1..groups.len() {
            let sizes = 1.0 / groups[a].len() as f64 + 1.0 / groups[b].len() as f64;
            let difference = ranked.mean_ranks[a] - ranked.mean_ranks[b];
            let z = difference / (variance * sizes).sqrt();
            pairs.push(Dunn { a, b, z, p: two_sided(z), p_holm: 1.0 });
        }
    }
    let corrected = holm(&pairs.iter().map(|pair| pair.p).collect::<Vec<_>>());
    pairs.iter_mut().zip(corrected).for_each(|(pair, p)| pair.p_holm = p);
    pairs
}

/// Holm's (1979) correction of several probabilities, in their order.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut corrected = vec![1.0; p.len()];
    let mut least: f64 = 0.0;
    for (place, index) in order.into_iter().enumerate() {
        least = least.max(p[index] * (p.len() - place) as f64).min(1.0);
        corrected[index] = least;
    }
    corrected
}

/// Whether two groups differ. Absent where one is empty or all samples are equal.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> Option<MannWhitney> {
    let ranked = Ranked::of(&[a.to_vec(), b.to_vec()])?;
    let (n_a, n_b) = (a.len() as f64, b.len() as f64);
    let u = ranked.mean_ranks[0] * n_a - n_a * (n_a + 1.0) / 2.0;
    let larger = u.max(n_a * n_b - u);
    let few = a.len().min(b.len()) < EXACT_BELOW && a.len().max(b.len()) <= EXACT_OTHER_MAX;
    if ranked.ties == 0.0 && few {
        let p = (2.0 * exact_tail(a.len(), b.len(), larger.round() as usize)).min(1.0);
        return Some(MannWhitney { u, p });
    }
    let n = ranked.n;
    let ties = ranked.ties / (n * (n - 1.0));
    let deviation = (n_a * n_b / 12.0 * (n + 1.0 - ties)).sqrt();
    let z = (larger - n_a * n_b / 2.0 - 0.5) / deviation;
    (deviation > 0.0).then(|| MannWhitney { u, p: two_sided(z.max(0.0)) })
}

/// Cliff's (1993) delta: how much more often a sample of `a` exceeds one of `b` than the reverse.
/// Not a number where one is empty.
pub fn cliffs_delta(a: &[f64], b: &[f64]) -> f64 {
    let mut sorted = b.to_vec();
    sorted.sort_by(f64::total_cmp);
    // By bisection: groups of anybody's data may hold a million samples.
    let mut balance = 0.0;
    for one in a {
        let below = sorted.partition_point(|other| other < one);
        let up_to = sorted.partition_point(|other| other <= one);
        balance += below as f64 - (sorted.len() - up_to) as f64;
    }
    balance / (a.len() as f64 * b.len() as f64)
}

struct Ranked {
    /// Samples in all.
    n: f64,
    /// By group.
    mean_ranks: Vec<f64>,
    /// Sum of t^3 - t over runs of t equal samples.
    ties: f64,
}

impl Ranked {
    fn of(groups: &[Vec<f64>]) -> Option<Self> {
        if groups.len() < 2 || groups.iter().any(Vec::is_empty) {
            return None;
        }
        let samples = groups.iter().enumerate();
        let mut all: Vec<(f64, usize)> =
            samples.flat_map(|(group, it)| it.iter().map(move |value| (*value, group))).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut sums = vec![0.0; groups.len()];
        let (mut ties, mut ranked) = (0.0, 0);
        for run in all.chunk_by(|a, b| a.0 == b.0) {
            let count = run.len() as f64;
            let rank = ranked as f64 + (count + 1.0) / 2.0;
            run.iter().for_each(|(_, group)| sums[*group] += rank);
            ties += count.powi(3) - count;
            ranked += run.len();
        }
        let mean_ranks = sums.iter().zip(groups).map(|(sum, it)| sum / it.len() as f64).collect();
        Some(Self { n: ranked as f64, mean_ranks, ties })
    }

    /// Absent where all samples are equal.
    fn tie_correction(&self) -> Option<f64> {
        let correction = 1.0 - self.ties / (self.n.powi(3) - self.n);
        (correction > 0.0).then_some(correction)
    }
}

fn two_sided(z: f64) -> f64 {
    (2.0 * Normal::standard().sf(z.abs())).min(1.0)
}

/// The probability that U is at least `u`, by counting the arrangements that give each U.
fn exact_tail(n_a: usize, n_b: usize, u: usize) -> f64 {
    let (small, large) = (n_a.min(n_b), n_a.max(n_b));
    // ways[i][u]: arrangements of i of the smaller group among those of the larger seen so far.
    let mut ways = vec![vec![0.0_f64; small * large + 1]; small + 1];
    ways[0][0] = 1.0;
    // U is the sum of `small` places between 0 and `large`, in order: place by place.
    for place in 0..=large {
        for taken in 1..=small {
            for sum in place..=small * large {
                let before = ways[taken - 1][sum - place];
                ways[taken][sum] += before;
            }
        }
    }
    let all: f64 = ways[small].iter().sum();
    ways[small][u.min(small * large)..].iter().sum::<f64>() / all
}
