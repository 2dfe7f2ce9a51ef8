//! Confidence intervals by drawing again from the samples.

use super::{mean, median, quantile};
use crate::study::order::Draws;

/// Resamples of one interval: its ends then hardly move with the seed.
const RESAMPLES: usize = 5000;

/// The percentile interval of `statistic` at `confidence` (0.95), reproducible by `seed`. Absent
/// below two samples.
pub fn bootstrap_interval(
    samples: &[f64],
    statistic: fn(&[f64]) -> f64,
    confidence: f64,
    seed: u64,
) -> Option<[f64; 2]> {
    if samples.len() < 2 {
        return None;
    }
    let mut draws = Draws::new(seed);
    let mut drawn = vec![0.0; samples.len()];
    let mut seen = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        drawn.iter_mut().for_each(|it| *it = samples[draws.below(samples.len())]);
        seen.push(statistic(&drawn));
    }
    let tail = (1.0 - confidence) / 2.0;
    Some([quantile(&seen, tail), quantile(&seen, 1.0 - tail)])
}

/// The 95 % interval of a mean.
pub fn mean_interval(samples: &[f64], seed: u64) -> Option<[f64; 2]> {
    bootstrap_interval(samples, mean, 0.95, seed)
}

/// The 95 % interval of a median.
pub fn median_interval(samples: &[f64], seed: u64) -> Option<[f64; 2]> {
    bootstrap_interval(samples, median, 0.95, seed)
}
