//! Shapiro and Wilk's (1965) test of normality, by Royston's (1995) approximation, AS R94.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal};

/// The approximation holds for so many samples.
const SAMPLES: std::ops::RangeInclusive<usize> = 3..=5000;

/// Coefficients of AS R94, lowest power first: of the two outermost weights in 1/sqrt(n) ...
const WEIGHT_LAST: [f64; 6] = [0.0, 0.221157, -0.147981, -2.071190, 4.434685, -2.706056];
const WEIGHT_BEFORE: [f64; 6] = [0.0, 0.042981, -0.293762, -1.752461, 5.682633, -3.582633];
/// ... and of mean and log deviation of the transformed W, for few samples (in n) and many (ln n).
const MEAN_FEW: [f64; 4] = [0.5440, -0.39978, 0.025054, -6.714e-4];
const DEVIATION_FEW: [f64; 4] = [1.3822, -0.77857, 0.062767, -0.0020322];
const MEAN_MANY: [f64; 4] = [-1.5861, -0.31082, -0.083751, 0.0038915];
const DEVIATION_MANY: [f64; 3] = [-0.4803, -0.082676, 0.0030302];
const GAMMA: [f64; 2] = [-2.273, 0.459];

/// Whether samples look normal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShapiroWilk {
    /// The statistic; 1 is as normal as can be.
    pub w: f64,
    /// Probability that normal samples have so small a W.
    pub p: f64,
}

/// The test. Absent below 3 and above 5000 samples, and where all are equal.
pub fn shapiro_wilk(samples: &[f64]) -> Option<ShapiroWilk> {
    let count = samples.len();
    if !SAMPLES.contains(&count) {
        return None;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mean = super::mean(&sorted);
    let squares: f64 = sorted.iter().map(|it| (it - mean).powi(2)).sum();
    if squares <= 0.0 {
        return None;
    }
    let weights = weights(count);
    let pairs = weights.iter().enumerate();
    let slope: f64 = pairs.map(|(at, it)| it * (sorted[count - 1 - at] - sorted[at])).sum();
    let w = (slope * slope / squares).min(1.0);
    Some(ShapiroWilk { w, p: probability(w, count) })
}

/// Weights of the largest less the smallest, the next, and so on.
fn weights(count: usize) -> Vec<f64> {
    if count == 3 {
        return vec![0.5_f64.sqrt()];
    }
    let n = count as f64;
    let normal = Normal::standard();
    let expected: Vec<f64> = (1..=count / 2)
        .map(|rank| -normal.inverse_cdf((rank as f64 - 0.375) / (n + 0.25)))
        .collect();
    let sum: f64 = 2.0 * expected.iter().map(|it| it * it).sum::<f64>();
    let root = 1.0 / n.sqrt();
    let last = polynomial(&WEIGHT_LAST, root) + expected[0] / sum.sqrt();
    if count <= 5 {
        let rest = ((sum - 2.0 * expected[0].powi(2)) / (1.0 - 2.0 * last * last)).sqrt();
        let others = expected[1..].iter().map(|it| it / rest);
        return std::iter::once(last).chain(others).collect();
    }
    let before = polynomial(&WEIGHT_BEFORE, root) + expected[1] / sum.sqrt();
    let taken = 2.0 * (expected[0].powi(2) + expected[1].powi(2));
    let rest = ((sum - taken) / (1.0 - 2.0 * (last * last + before * before))).sqrt();
    let others = expected[2..].iter().map(|it| it / rest);
    [last, before].into_iter().chain(others).collect()
}

fn probability(w: f64, count: usize) -> f64 {
    let n = count as f64;
    if count == 3 {
        let least = 0.75_f64.sqrt().asin();
        let p = 6.0 / std::f64::consts::PI * (w.sqrt().asin() - least);
        return p.clamp(0.0, 1.0);
    }
    let from_one = (1.0 - w).ln();
    let (transformed, mean, deviation) = if count <= 11 {
        let gamma = polynomial(&GAMMA, n);
        if from_one >= gamma {
            return 1e-99;
        }
        let deviation = polynomial(&DEVIATION_FEW, n).exp();
        (-(gamma - from_one).ln(), polynomial(&MEAN_FEW, n), deviation)
    } else {
        let deviation = polynomial(&DEVIATION_MANY, n.ln()).exp();
        (from_one, polynomial(&MEAN_MANY, n.ln()), deviation)
    };
    Normal::standard().sf((transformed - mean) / deviation)
}

fn polynomial(coefficients: &[f64], at: f64) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, it| sum * at + it)
}
