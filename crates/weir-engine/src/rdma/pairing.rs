//! Which two directions belong to one connected queue pair, inferred from the data.
//!
//! Connected packets name only their destination queue pair. A response carries the sequence number
//! of the request that it answers, and comes after it. So every request of a direction without a
//! partner is noted here by (addresses, PSN), and a response of a direction without a partner looks
//! up who asked:
//!
//! - exactly one direction asked within [`ANSWER_NS_MAX`]: they are a pair;
//! - several did: the one with the response's UDP source port, if there is exactly one (most
//!   senders derive that port from both queue pair numbers);
//! - otherwise the match is ambiguous. Nothing is joined, and the next response tries again.
//!
//! Directions that never meet stay two half conversations. UC has no responses: its directions are
//! joined by connection management only ([`super::cm`]).

use weir_wire::frame::Time;

/// Longest time from a request to a response that may still join them, in nanoseconds. Longer than
/// any sane acknowledgment timeout, short enough that numbers do not come round.
pub const ANSWER_NS_MAX: u64 = 1_000_000_000;

/// Requests remembered; a power of two. Eight thousand cover the in-flight requests of the few
/// queue pairs that have no partner yet.
const BUCKETS: usize = 2048;
const WAYS: usize = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// High half of the request's hash; the bucket is the low half.
    tag: u32,
    /// Direction that asked, plus one; zero: empty.
    direction: u32,
    /// Time in units of 2^20 ns; it wraps.
    time: u32,
    port: u16,
}

/// Who asked, lately.
#[derive(Debug, Default)]
pub(crate) struct Pairing {
    buckets: Vec<[Asked; WAYS]>,
}

/// What a look-up found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    /// Nobody asked.
    None,
    /// This direction asked.
    One(u32),
    /// Several may have asked.
    Ambiguous,
}

impl Pairing {
    /// Notes that `direction` sent the request with this hash.
    pub(crate) fn note_request(&mut self, hash: u64, direction: u32, port: u16, now: Time) {
        if self.buckets.is_empty() {
            self.buckets = vec![Default::default(); BUCKETS];
        }
        let asked =
            Asked { tag: (hash >> 32) as u32, direction: direction + 1, time: coarse(now), port };
        let bucket = &mut self.buckets[hash as usize % BUCKETS];
        let same = |old: &&mut Asked| old.tag == asked.tag && old.direction == asked.direction;
        if let Some(place) = bucket.iter_mut().find(same) {
            *place = asked;
            return;
        }
        bucket.rotate_right(1);
        bucket[0] = asked;
    }

    /// Who sent the request with this hash. `may_ask` says whether a direction still exists, has no
    /// partner and did send it.
    pub(crate) fn find(
        &self,
        hash: u64,
        port: u16,
        now: Time,
        may_ask: impl Fn(u32) -> bool,
    ) -> Match {
        let Some(bucket) = self.buckets.get(hash as usize % BUCKETS) else { return Match::None };
        let age_max = coarse(Time(ANSWER_NS_MAX)) as i32;
        let candidates = || {
            bucket.iter().filter(|asked| {
                asked.direction != 0
                    && asked.tag == (hash >> 32) as u32
                    && coarse(now).wrapping_sub(asked.time) as i32 <= age_max
                    && may_ask(asked.direction - 1)
            })
        };
        let direction = |asked: &Asked| asked.direction - 1;
        if candidates().next().is_none() {
            return Match::None;
        }
        let all = single(candidates().map(direction));
        let same_port = || single(candidates().filter(|asked| asked.port == port).map(direction));
        all.or_else(same_port).map_or(Match::Ambiguous, Match::One)
    }
}

/// The item of an iterator that has exactly one.
fn single(mut items: impl Iterator<Item = u32>) -> Option<u32> {
    items.next().filter(|_| items.next().is_none())
}

fn coarse(time: Time) -> u32 {
    (time.0 >> 20) as u32
}
