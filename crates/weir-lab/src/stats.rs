//! Statistics of experiments: how to describe samples, and how to tell whether groups of them
//! differ. Distributions come from statrs; the tests are judged by SciPy (tests/stats.rs).
//!
//! | question | test |
//! |---|---|
//! | do groups differ, whatever their distribution? | [`kruskal_wallis`], then [`dunn`] by pair |
//! | do two groups differ? | [`mann_whitney`], [`cliffs_delta`] |
//! | is a group normal? are variances equal? | [`shapiro_wilk`], [`levene`] |
//! | do means differ, if both are so? | [`anova`] |
//! | which of several factors matter, and do they interact? | [`aligned_rank_effects`], [`effects`] |
//! | how sure is a mean or a median? | [`bootstrap_interval`] |

mod bootstrap;
mod describe;
mod factorial;
mod moments;
mod ranks;
mod shapiro;
pub mod table;

pub use bootstrap::{bootstrap_interval, mean_interval, median_interval};
pub use describe::{Summary, mean, median, quantile, standard_deviation, summary};
pub use factorial::{Effect, Observation, aligned_rank_effects, effects, residuals};
pub use moments::{Anova, Levene, anova, levene};
pub use ranks::{
    Dunn, KruskalWallis, MannWhitney, cliffs_delta, dunn, holm, kruskal_wallis, mann_whitney,
};
pub use shapiro::{ShapiroWilk, shapiro_wilk};
