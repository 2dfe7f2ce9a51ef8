//! What an exporter's sequence numbers tell. NetFlow v5 and IPFIX count records, v9 messages: each
//! header has the number of the first that follows it (RFC 3954 s5.1, RFC 7011 s3.1).

use super::SourceCounters;

/// Numbers that a message may be behind and still be late; farther back, the exporter began anew.
const LATE_MAX: u32 = 10_000;

/// Numbers that may be missing at once; more are a new beginning.
const LOST_MAX: u32 = 1 << 24;

/// The next number that is expected.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    next: Option<u32>,
    uptime_ms: u32,
}

impl Sequence {
    /// A message with `number` came, and `count` things that are numbered; `None`: nobody knows
    /// how many, so that the next message tells nothing.
    pub(super) fn heard(
        &mut self,
        number: u32,
        count: Option<u32>,
        uptime_ms: Option<u32>,
        counters: &mut SourceCounters,
    ) {
        let uptime_ms = uptime_ms.unwrap_or(self.uptime_ms);
        // Datagrams overtake each other by less than a minute; uptimes start over after 49 days.
        let back_ms = self.uptime_ms.wrapping_sub(uptime_ms);
        let is_younger = (60_000..1 << 31).contains(&back_ms);
        let after = count.map(|count| number.wrapping_add(count));
        let Some(next) = self.next else {
            (self.next, self.uptime_ms) = (after, uptime_ms);
            return;
        };
        let (ahead, behind) = (number.wrapping_sub(next), next.wrapping_sub(number));
        if ahead == 0 {
            // As it must be.
        } else if is_younger || (ahead > LOST_MAX && behind > LATE_MAX) {
            counters.restarts += 1;
        } else if ahead <= LOST_MAX {
            counters.lost += u64::from(ahead);
        } else {
            let late = u64::from(count.unwrap_or(0)).min(counters.lost);
            counters.late += late;
            counters.lost -= late;
            return;
        }
        (self.next, self.uptime_ms) = (after, uptime_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(messages: &[(u32, Option<u32>, u32)]) -> (u64, u64, u64) {
        let (mut sequence, mut counters) = (Sequence::default(), SourceCounters::default());
        for (number, count, uptime_ms) in messages {
            sequence.heard(*number, *count, Some(*uptime_ms), &mut counters);
        }
        (counters.lost, counters.late, counters.restarts)
    }

    #[test]
    fn what_is_missing_is_lost_until_it_comes_late() {
        let next = |number, count| (number, Some(count), 1_000_000);
        assert_eq!(told(&[next(7, 3), next(10, 5), next(15, 1)]), (0, 0, 0));
        assert_eq!(told(&[next(7, 3), next(15, 1), next(16, 1)]), (5, 0, 0));
        assert_eq!(told(&[next(7, 3), next(15, 1), next(10, 5), next(16, 1)]), (0, 5, 0));
        assert_eq!(told(&[next(u32::MAX, 3), next(2, 1), next(4, 1)]), (1, 0, 0));
    }

    #[test]
    fn an_exporter_that_begins_anew_loses_nothing() {
        let early = [(5_000_000, Some(3), 900_000), (0, Some(2), 1000), (2, Some(1), 2000)];
        assert_eq!(told(&early), (0, 0, 1));
        // IPFIX tells no uptime.
        assert_eq!(told(&[(500_000, Some(3), 0), (0, Some(2), 0), (3, Some(2), 0)]), (1, 0, 1));
    }

    #[test]
    fn records_that_cannot_be_counted_tell_nothing_of_the_next_message() {
        assert_eq!(told(&[(5, Some(1), 0), (6, None, 0), (90, Some(1), 0)]), (0, 0, 0));
    }
}
