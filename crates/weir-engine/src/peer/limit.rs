//! How much one peer may send and be sent: a token bucket for each direction.
//!
//! What exceeds it is dropped, not delayed: a gateway that queued would add the very delay that TCP
//! is to find out about.

use weir_wire::frame::Time;

/// A bucket holds a tenth of a second, and two super-packets at least.
const DEPTH_NS: u64 = 100_000_000;
const DEPTH_BYTES_MIN: u64 = 2 << 16;

/// The limit of one peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateLimit {
    bits_per_second: u64,
    /// To the peer, from it.
    buckets: [Bucket; 2],
    /// Packets that exceeded it, both ways; a super-packet is one.
    pub(crate) dropped_packets: u64,
}

/// Of which direction a packet is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Heading {
    ToPeer,
    FromPeer,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// What is gone, in nanoseconds that it takes to come back.
    debt_ns: u64,
    at: Time,
}

impl RateLimit {
    pub(crate) fn new(bits_per_second: u64) -> Self {
        let buckets = [Bucket::default(); 2];
        Self { bits_per_second: bits_per_second.max(1), buckets, dropped_packets: 0 }
    }

    /// Goes on where `before` was, at the new rate.
    pub(crate) fn go_on(&mut self, before: &Self) {
        self.dropped_packets = before.dropped_packets;
        if self.bits_per_second == before.bits_per_second {
            self.buckets = before.buckets;
        }
    }

    /// Whether a frame of so many bytes passes at this moment.
    #[inline]
    pub(crate) fn admits(&mut self, way: Heading, now: Time, bytes: usize) -> bool {
        let cost_of = |bytes: u64| {
            let cost = u128::from(bytes) * 8_000_000_000 / u128::from(self.bits_per_second);
            u64::try_from(cost).unwrap_or(u64::MAX)
        };
        let (cost, depth) = (cost_of(bytes as u64), DEPTH_NS.max(cost_of(DEPTH_BYTES_MIN)));
        let bucket = &mut self.buckets[way as usize];
        let debt = bucket.debt_ns.saturating_sub(now.since_ns(bucket.at));
        let after = debt.saturating_add(cost);
        *bucket = Bucket { debt_ns: if after <= depth { after } else { debt }, at: now };
        let admits = after <= depth;
        self.dropped_packets += u64::from(!admits);
        admits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Bytes that pass in `seconds` when twice the rate is offered.
    fn passed(limit: &mut RateLimit, from: u64, seconds: u64, each: usize) -> u64 {
        let step = each as u64 * 8 * SECOND / limit.bits_per_second / 2;
        let times = (from..from + seconds * SECOND).step_by(step as usize);
        let admitted = times.filter(|at| limit.admits(Heading::ToPeer, Time(*at), each));
        admitted.count() as u64 * each as u64
    }

    #[test]
    fn what_passes_is_the_rate_and_the_depth_of_a_bucket() {
        for (rate, each) in [(50_000_000, 1514), (1_000_000, 1514), (1_000_000_000, 60_000)] {
            let mut limit = RateLimit::new(rate);
            let depth = (rate / 80).max(DEPTH_BYTES_MIN);
            let bytes = passed(&mut limit, SECOND, 10, each);
            let expected = rate / 8 * 10 + depth;
            assert!(bytes <= expected, "{rate}: {bytes} of {expected}");
            assert!(bytes + 2 * each as u64 >= expected, "{rate}: {bytes} of {expected}");
            assert!(limit.dropped_packets > 0);
        }
    }

    #[test]
    fn directions_have_a_bucket_each_and_a_new_rate_begins_full() {
        let mut limit = RateLimit::new(8_000_000);
        while limit.admits(Heading::ToPeer, Time(SECOND), 1000) {}
        assert!(limit.admits(Heading::FromPeer, Time(SECOND), 1000));
        let mut same = RateLimit::new(8_000_000);
        same.go_on(&limit);
        assert!(!same.admits(Heading::ToPeer, Time(SECOND), 1000));
        let mut wider = RateLimit::new(9_000_000);
        wider.go_on(&same);
        assert_eq!(wider.dropped_packets, 2);
        assert!(wider.admits(Heading::ToPeer, Time(SECOND), 1000));
    }

    #[test]
    fn a_clock_that_runs_back_and_a_tiny_rate_stop_nothing_for_ever() {
        let mut limit = RateLimit::new(0);
        assert!(!limit.admits(Heading::ToPeer, Time(5), usize::MAX));
        let mut limit = RateLimit::new(8_000);
        while limit.admits(Heading::ToPeer, Time(100 * SECOND), 1000) {}
        assert!(!limit.admits(Heading::ToPeer, Time(99 * SECOND), 1000));
        assert!(limit.admits(Heading::ToPeer, Time(101 * SECOND), 1000));
    }
}
