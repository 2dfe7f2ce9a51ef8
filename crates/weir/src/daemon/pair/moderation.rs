//! Lets dense frames gather, as adapters do that moderate their interrupts (docs/adr/0031).
//!
//! A round of a few frames costs twice as much a frame as one of many, and UDP datagrams leave
//! joined only when several wait. A worker that keeps up with a dense stream would take every frame
//! by itself, and with that all of a core; so it pauses after a round of a few.

use std::time::Duration;

use weir_wire::frame::Time;

/// Frames come densely when they are closer than this to each other.
const DENSE_GAP_NS: u64 = 10_000;
/// Frames of a round that is worth less than a pause.
const FEW_FRAMES: usize = 5;
/// How long they gather: what is added to a packet's way, at most.
const PAUSE: Duration = Duration::from_micros(30);
/// Whether they come densely is looked at so often.
const LOOK_NS: u64 = 1_000_000;

/// Whether one worker's frames come densely.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Moderation {
    since: Time,
    frames: u64,
    is_dense: bool,
}

impl Moderation {
    /// Notes that a round moved `frames`; how long to pause before the next.
    #[inline]
    pub(in crate::daemon) fn after(&mut self, frames: usize, now: Time) -> Option<Duration> {
        self.frames += frames as u64;
        let elapsed_ns = now.since_ns(self.since);
        // A clock that was set back begins anew.
        if elapsed_ns >= LOOK_NS || now < self.since {
            let is_dense = self.frames > elapsed_ns / DENSE_GAP_NS && now >= self.since;
            *self = Self { since: now, frames: 0, is_dense };
        }
        (self.is_dense && frames <= FEW_FRAMES).then_some(PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pauses while rounds of `each` frames follow each other by `gap_us`, from `begin_us` on.
    fn pauses(moderation: &mut Moderation, each: usize, gap_us: u64, begin_us: u64) -> usize {
        let rounds = (0..1000).map(|round| Time((begin_us + round * gap_us) * 1000));
        rounds.filter(|now| moderation.after(each, *now).is_some()).count()
    }

    const DAY_US: u64 = 86_400_000_000;

    #[test]
    fn dense_frames_gather_and_others_do_not_wait() {
        // A frame each 5 us; the first millisecond is there to find out.
        let paused = pauses(&mut Moderation::default(), 1, 5, DAY_US);
        assert!((790..=800).contains(&paused), "{paused}");
        assert_eq!(pauses(&mut Moderation::default(), 1, 11, DAY_US), 0);
        assert_eq!(pauses(&mut Moderation::default(), 1, 1000, DAY_US), 0);
    }

    #[test]
    fn a_round_of_many_frames_is_followed_at_once() {
        assert_eq!(pauses(&mut Moderation::default(), 6, 20, DAY_US), 0);
        assert!(pauses(&mut Moderation::default(), 5, 20, DAY_US) > 900);
    }

    #[test]
    fn when_they_stop_to_come_densely_nobody_waits_any_more() {
        let mut moderation = Moderation::default();
        assert!(pauses(&mut moderation, 1, 5, DAY_US) > 0);
        // The first that comes late may still find the old state.
        assert!(pauses(&mut moderation, 1, 100, 2 * DAY_US) <= 1);
    }

    #[test]
    fn a_clock_that_was_set_back_holds_nothing_up() {
        let mut moderation = Moderation::default();
        assert!(pauses(&mut moderation, 1, 5, 2 * DAY_US) > 0);
        assert_eq!(pauses(&mut moderation, 1, 100, DAY_US), 0);
        assert!(pauses(&mut moderation, 1, 5, DAY_US + 1_000_000) > 700);
    }
}
