//! How much room a worker's tables have.

use weir_engine::meter::{Meter, MeterLimits};

use crate::config::settings::Limits;

const NS_PER_S: u64 = 1_000_000_000;

/// The tables of one of so many workers: together they hold what `limits` says.
pub(in crate::daemon) fn meter(limits: &Limits, workers: usize, seed: u128) -> Meter {
    let limits = MeterLimits {
        flows_max: (limits.flows as usize).div_ceil(workers),
        conversations_max: (limits.conversations as usize).div_ceil(workers),
        active_timeout_ns: u64::from(limits.active_timeout_s) * NS_PER_S,
        idle_timeout_ns: u64::from(limits.idle_timeout_s) * NS_PER_S,
        ..MeterLimits::default()
    };
    Meter::new(limits, seed)
}
