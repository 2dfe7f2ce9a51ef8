//! How often an alarm may be raised: the one measure of it, for every alarm that traffic can raise
//! again and again. Alarms that are raised once for each change of a state need none.

use weir_wire::frame::Time;

/// Periods of an alarm: the first begins with the first alarm, and in each there is one at most.
#[derive(Clone, Copy, Debug)]
pub(in crate::daemon) struct Period {
    length_ns: u64,
    begun: Option<Time>,
}

impl Period {
    /// Periods of this length.
    pub(in crate::daemon) const fn of_ns(length_ns: u64) -> Self {
        Self { length_ns, begun: None }
    }

    /// Whether the last one is over at `now`, or the clock went back.
    pub(in crate::daemon) fn is_over(&self, now: Time) -> bool {
        self.begun.is_none_or(|begun| now.since_ns(begun) >= self.length_ns || now < begun)
    }

    /// Begins the next.
    pub(in crate::daemon) fn begin(&mut self, now: Time) {
        self.begun = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_over_at_first_after_its_length_and_when_the_clock_goes_back() {
        let mut period = Period::of_ns(10);
        assert!(period.is_over(Time(0)));
        period.begin(Time(5));
        assert!(!period.is_over(Time(5)) && !period.is_over(Time(14)));
        assert!(period.is_over(Time(15)) && period.is_over(Time(4)));
    }
}
