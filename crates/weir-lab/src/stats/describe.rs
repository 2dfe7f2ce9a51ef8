//! A group of samples in a few numbers.

use serde::{Deserialize, Serialize};

/// A group of samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How many.
    pub n: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of the sample (divisor n - 1); absent below two.
    pub sd: Option<f64>,
    /// Coefficient of variation: standard deviation over mean; absent where the mean is zero.
    pub cv: Option<f64>,
    /// Smallest.
    pub min: f64,
    /// First quartile.
    pub q1: f64,
    /// Median.
    pub median: f64,
    /// Third quartile.
    pub q3: f64,
    /// Largest.
    pub max: f64,
}

/// Describes `samples`; nothing when there are none.
pub fn summary(samples: &[f64]) -> Option<Summary> {
    if samples.is_empty() {
        return None;
    }
    let mean = mean(samples);
    let sd = standard_deviation(samples);
    Some(Summary {
        n: samples.len(),
        mean,
        sd,
        cv: sd.filter(|_| mean != 0.0).map(|sd| sd / mean.abs()),
        min: quantile(samples, 0.0),
        q1: quantile(samples, 0.25),
        median: median(samples),
        q3: quantile(samples, 0.75),
        max: quantile(samples, 1.0),
    })
}

/// Arithmetic mean; not a number when there are no samples.
pub fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

/// Standard deviation with divisor n - 1; absent below two samples.
pub fn standard_deviation(samples: &[f64]) -> Option<f64> {
    (samples.len() > 1).then(|| {
        let mean = mean(samples);
        let squares: f64 = samples.iter().map(|it| (it - mean).powi(2)).sum();
        (squares / (samples.len() - 1) as f64).sqrt()
    })
}

/// Median; not a number when there are no samples.
pub fn median(samples: &[f64]) -> f64 {
    quantile(samples, 0.5)
}

/// The quantile `at` (0 to 1), linear between samples, as NumPy and R (type 7) have it.
pub fn quantile(samples: &[f64], at: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = at.clamp(0.0, 1.0) * last as f64;
    let below = place.floor() as usize;
    let above = sorted[(below + 1).min(last)];
    sorted[below] + (above - sorted[below]) * place.fract()
}
