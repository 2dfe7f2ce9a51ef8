//! How many packets of a kind one network may have: a bucket that gives a rate, and runs empty in
//! a flood.
//!
//! A bucket is a cumulative sum (CUSUM; Page 1954) read from its other end: what comes beyond the
//! rate adds up, what stays below is taken off again, and half a second's worth is too much. Where
//! a rule names `times`, the rate follows what is usual, an average of tenths of seconds that
//! forgets (EWMA) and learns from no flood.

use weir_wire::frame::Time;

use super::super::NS_PER_S;
use super::TRICKLE;
use super::watch::FloodWatch;

/// What a bucket holds: so many milliseconds of its rate.
const BURST_MS: u64 = 500;
/// Packets are counted over a tenth of a second, ...
const INTERVAL_NS: u64 = NS_PER_S / INTERVALS_PER_S as u64;
const INTERVALS_PER_S: u32 = 10;
/// ... and what is usual is forgotten within a minute.
const MEMORY: u32 = 60 * INTERVALS_PER_S;
/// What a packet takes out.
const TOKEN: u64 = 1_000;

/// What a rate gives over time, half a second's worth at most.
#[derive(Clone, Copy, Debug, Default)]
struct Tokens {
    /// Thousandths of packets.
    left: u64,
    last: Time,
}

impl Tokens {
    fn full(now: Time, rate: u64) -> Self {
        Self { left: rate * BURST_MS, last: now }
    }

    /// Adds what a rate gives since something was added last.
    fn fill(&mut self, now: Time, rate: u64) {
        let most = rate * BURST_MS;
        // A rate of 1 a second gives a thousandth of a packet each millisecond.
        let given = u128::from(now.since_ns(self.last)) * u128::from(rate) / 1_000_000;
        self.left = most.min(self.left.saturating_add(given.min(most.into()) as u64));
        self.last = now;
    }

    /// Takes a packet out, if there is one left.
    fn take(&mut self) -> bool {
        let has = self.left >= TOKEN;
        self.left -= if has { TOKEN } else { 0 };
        has
    }
}

/// What one network may have of a kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bucket {
    tokens: Tokens,
    /// During a flood, for what seems real: flows that were answered before, SYNs sent again.
    real: Tokens,
    /// Since when there is a flood.
    pub(super) since: Option<Time>,
    /// While there is one: the second that is counted, its packets, and until when there were last
    /// more than half of the rate.
    second: u64,
    packets: i64,
    busy: Time,
    /// Somebody drops most of it before it comes here, and lets through who seems real.
    pub(super) is_early: bool,
    /// The tenth of a second that is counted, its packets, and those of the one before.
    interval: u64,
    current: u32,
    before: u32,
    /// What an interval has usually, from so many of them.
    mean: f32,
    learnt: u32,
}

impl Bucket {
    /// A full one. What is usual is learnt from nothing while all are new; later, who was not
    /// there before has had nothing.
    pub(super) fn full(now: Time, watch: &FloodWatch, all_are_new: bool) -> Self {
        Self {
            tokens: Tokens::full(now, watch.rate.into()),
            interval: now.0 / INTERVAL_NS,
            learnt: if all_are_new { 0 } else { MEMORY },
            ..Self::default()
        }
    }

    /// Packets a second that are no flood.
    pub(super) fn allowed(&self, watch: &FloodWatch) -> u64 {
        let usual = self.mean * INTERVALS_PER_S as f32 * watch.times as f32;
        u64::from(watch.rate).max(usual as u64)
    }

    /// Packets a second that pass during a flood.
    pub(super) fn trickle(&self, watch: &FloodWatch) -> u64 {
        (self.allowed(watch) / TRICKLE).max(1)
    }

    /// Packets a second, of late.
    pub(super) fn rate(&self) -> u32 {
        self.before.max(self.current).saturating_mul(INTERVALS_PER_S)
    }

    /// Counts packets, and learns from the intervals that are over.
    pub(super) fn count(&mut self, now: Time, watch: &FloodWatch, packets: u32) {
        let passed = (now.0 / INTERVAL_NS).saturating_sub(self.interval);
        if passed > 0 {
            if watch.times > 0 && self.since.is_none() {
                self.learn(watch, u32::try_from(passed).unwrap_or(u32::MAX));
            }
            self.before = if passed == 1 { self.current } else { 0 };
            (self.current, self.interval) = (0, self.interval + passed);
        }
        self.current = self.current.saturating_add(packets);
    }

    /// Takes in an interval that is over, and those without packets behind it.
    fn learn(&mut self, watch: &FloodWatch, passed: u32) {
        let (current, share) = (self.current as f32, 1.0 / MEMORY as f32);
        // The mean of all, as long as they are few.
        let few = passed.min(MEMORY - self.learnt);
        if few > 0 {
            let learnt = self.learnt + few;
            self.mean = (self.mean * self.learnt as f32 + current) / learnt as f32;
            self.learnt = learnt;
        } else {
            let most = self.allowed(watch) as f32 / INTERVALS_PER_S as f32;
            self.mean += (current.min(most) - self.mean) * share;
        }
        let empty = passed - few.max(1);
        self.mean *= (1.0 - share).powi(i32::try_from(empty).unwrap_or(i32::MAX));
    }

    /// Fills it with what a rate gives since it was filled last.
    pub(super) fn fill(&mut self, now: Time, rate: u64) {
        self.tokens.fill(now, rate);
    }

    /// Takes a packet out, if there is one left.
    pub(super) fn take(&mut self) -> bool {
        self.tokens.take()
    }

    /// The same for packets that pass a flood because they seem real, of which no more do.
    pub(super) fn take_real(&mut self, now: Time, rate: u64) -> bool {
        self.real.fill(now, rate);
        self.real.take()
    }

    /// Takes out, or gives back, what somebody else counted.
    pub(super) fn change(&mut self, packets: i64) {
        let tokens = packets.unsigned_abs().saturating_mul(TOKEN);
        self.tokens.left = match packets {
            0.. => self.tokens.left.saturating_sub(tokens),
            _ => self.tokens.left.saturating_add(tokens),
        };
    }

    /// Whether it is half empty, so that a flood may have begun.
    pub(super) fn is_suspicious(&self, watch: &FloodWatch) -> bool {
        self.tokens.left < self.allowed(watch) * BURST_MS / 2
    }

    /// A flood begins.
    pub(super) fn begin(&mut self, now: Time, watch: &FloodWatch) {
        self.real = Tokens::full(now, self.allowed(watch));
        let second = now.0 / NS_PER_S;
        // As if all of the second were busy.
        let busy = Time((second + 1) * NS_PER_S);
        (self.since, self.second, self.packets, self.busy) = (Some(now), second, 0, busy);
    }

    /// Counts packets during a flood, or takes some off that were none of it; whether it goes on.
    ///
    /// A second is judged when it is over: what was dropped early comes ten times a second at once,
    /// and what is taken off again of it, behind that.
    pub(super) fn goes_on(&mut self, now: Time, watch: &FloodWatch, packets: i64) -> bool {
        let second = now.0 / NS_PER_S;
        if second != self.second {
            let half = i64::try_from(self.allowed(watch) / 2).unwrap_or(i64::MAX);
            if self.packets > half {
                self.busy = self.busy.max(Time((self.second + 1) * NS_PER_S));
            }
            (self.second, self.packets) = (second, 0);
        }
        self.packets = self.packets.saturating_add(packets);
        now.since_ns(self.busy) < u64::from(watch.hold_s) * NS_PER_S
    }

    /// Whether the flood has begun within a second of what was counted last.
    pub(super) fn is_young(&self) -> bool {
        let last = Time(self.interval * INTERVAL_NS);
        self.since.is_some_and(|since| last.since_ns(since) < NS_PER_S)
    }

    /// The flood is over.
    pub(super) fn end(&mut self, now: Time, watch: &FloodWatch) {
        let Self { mean, learnt, .. } = *self;
        *self = Self { mean, learnt, ..Self::full(now, watch, false) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time(1_000_000_000_000 + ms * 1_000_000)
    }

    /// So many packets a second, evenly, over milliseconds.
    fn come(bucket: &mut Bucket, watch: &FloodWatch, from_ms: u64, to_ms: u64, rate: u32) -> bool {
        let mut is_over = false;
        for ms in from_ms..to_ms {
            for _ in 0..rate / 1_000 {
                bucket.count(at(ms), watch, 1);
                bucket.fill(at(ms), bucket.allowed(watch));
                is_over |= !bucket.take();
            }
        }
        is_over
    }

    #[test]
    fn what_is_usual_raises_what_is_allowed() {
        let watch = FloodWatch::parse("udp, by_dst, rate 1000, times 4").unwrap();
        let mut bucket = Bucket::full(at(0), &watch, true);
        come(&mut bucket, &watch, 0, 60_000, 5_000);
        assert!((19_000..21_000).contains(&bucket.allowed(&watch)), "{}", bucket.allowed(&watch));
        assert!(!come(&mut bucket, &watch, 60_000, 62_000, 15_000), "three times as much");
        assert!(come(&mut bucket, &watch, 62_000, 63_000, 60_000), "twelve times");
    }

    #[test]
    fn who_was_not_there_before_has_had_nothing() {
        let watch = FloodWatch::parse("udp, by_dst, rate 1000, times 4").unwrap();
        let mut bucket = Bucket::full(at(0), &watch, false);
        assert!(come(&mut bucket, &watch, 0, 1_000, 5_000));
    }

    #[test]
    fn what_is_usual_is_forgotten() {
        let watch = FloodWatch::parse("udp, by_dst, rate 1000, times 4").unwrap();
        let mut bucket = Bucket::full(at(0), &watch, true);
        come(&mut bucket, &watch, 0, 60_000, 5_000);
        bucket.count(at(60_000 + 600_000), &watch, 1);
        assert_eq!(bucket.allowed(&watch), 1_000, "after ten minutes of silence");
    }

    #[test]
    fn a_flood_teaches_nothing() {
        let watch = FloodWatch::parse("udp, by_dst, rate 1000, times 4").unwrap();
        let mut bucket = Bucket::full(at(0), &watch, true);
        come(&mut bucket, &watch, 0, 60_000, 1_000);
        let before = bucket.allowed(&watch);
        bucket.begin(at(60_000), &watch);
        come(&mut bucket, &watch, 60_000, 70_000, 50_000);
        assert_eq!(bucket.allowed(&watch), before);
    }
}
