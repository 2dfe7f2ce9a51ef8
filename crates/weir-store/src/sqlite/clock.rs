//! How old things are: by the time that the store was open since, not by what the clock says. A
//! clock that is set a year ahead makes nothing a year old.
//!
//! The clock's life is kept as stretches in which it went as fast as time. A step of more than
//! [`STEP_S`], and a pause of more than that between two runs, begin another stretch:
//!
//! ```text
//!  2026-03-01 ======= 03-09     2031-01-01 == 01-03     2026-03-11 === now
//!                 <-- 2 d -->              <- 2 d ->               <- 3 d ->  = 7 days of life
//! ```

use std::ops::Range;
use std::time::Instant;

use rusqlite::Connection;

/// Seconds that the clock may stray from the time that passes before it has stepped: more than
/// daylight saving and a slow restart.
pub(super) const STEP_S: i64 = 3600;

/// Stretches that are kept, at most; beyond, the shortest is forgotten, and what was recorded in it
/// goes by size alone.
const STRETCHES_MAX: usize = 512;

/// What the clock said at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Seconds since 1970, as the clock has it.
    pub(super) wall_s: i64,
    /// When that was, by a clock that nobody sets.
    pub(super) at: Instant,
}

/// The stretches of the clock's life, in the order in which they were lived.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Clock(Vec<Range<i64>>);

impl Clock {
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let mut select =
            connection.prepare_cached("SELECT from_s, until_s FROM stretch ORDER BY id")?;
        let rows = select.query_map([], |row| Ok(row.get(0)?..row.get(1)?))?;
        Ok(Self(rows.collect::<Result<_, _>>()?))
    }

    pub(super) fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        let mut insert = connection.prepare_cached(
            "INSERT INTO stretch (id, from_s, until_s) VALUES (?1, ?2, ?3) \
             ON CONFLICT DO UPDATE SET from_s = excluded.from_s, until_s = excluded.until_s",
        )?;
        for (id, stretch) in self.0.iter().enumerate() {
            insert.execute((id as i64, stretch.start, stretch.end))?;
        }
        connection.execute("DELETE FROM stretch WHERE id >= ?1", [self.0.len() as i64])?;
        Ok(())
    }

    /// Goes on to `now`; by how many seconds the clock stepped since `last`, if it did. Without
    /// `last` the store was closed: a clock that is ahead then may be right.
    pub(super) fn follow(&mut self, last: Option<Look>, now: Look) -> Option<i64> {
        let Some(current) = self.0.last_mut() else {
            // Before that there was no other clock to count by.
            self.0.push(0..now.wall_s);
            return None;
        };
        let expected = match last {
            Some(last) => last.wall_s + now.at.duration_since(last.at).as_secs() as i64,
            None => current.end,
        };
        let step = now.wall_s - expected;
        if step.abs() <= STEP_S {
            current.end = current.end.max(now.wall_s);
            return None;
        }
        self.0.push(now.wall_s..now.wall_s);
        if self.0.len() > STRETCHES_MAX {
            let former = &self.0[..STRETCHES_MAX];
            let shortest = former.iter().enumerate().min_by_key(|(_, it)| it.end - it.start);
            if let Some((index, _)) = shortest {
                self.0.remove(index);
            }
        }
        (last.is_some() || step < 0).then_some(step)
    }

    /// Forgets what was lived more than `keep_s` ago.
    pub(super) fn forget(&mut self, keep_s: i64) {
        let kept = self.kept(keep_s).len();
        self.0.drain(..self.0.len() - kept);
    }

    /// Spans of time that are more than `keep_s` of life ago: slices of `slice_s` seconds that
    /// begin in them are over for so long. What the clock never showed is in none of them.
    pub(super) fn gone(&self, keep_s: i64, slice_s: i64) -> Vec<Range<i64>> {
        // What is written when the clock steps belongs to the stretch before or after.
        let wide = |it: &Range<i64>| it.start - STEP_S - slice_s..it.end + STEP_S;
        let kept: Vec<_> = self.kept(keep_s).iter().map(wide).collect();
        let mut gone: Vec<_> = self.0.iter().map(wide).collect();
        for kept in &kept {
            gone = gone.iter().flat_map(|it| without(it, kept)).collect();
        }
        gone
    }

    /// The latest `keep_s` of life.
    fn kept(&self, keep_s: i64) -> Vec<Range<i64>> {
        let mut kept = Vec::new();
        let mut left_s = keep_s;
        for stretch in self.0.iter().rev() {
            if left_s <= 0 {
                break;
            }
            kept.push(stretch.start.max(stretch.end - left_s)..stretch.end);
            left_s -= stretch.end - stretch.start;
        }
        kept
    }
}

/// What of `span` is not in `other`.
fn without(span: &Range<i64>, other: &Range<i64>) -> impl Iterator<Item = Range<i64>> + use<> {
    let before = span.start..span.end.min(other.start);
    let after = span.start.max(other.end)..span.end;
    [before, after].into_iter().filter(|it| !it.is_empty())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock;

    const DAY_S: i64 = 86_400;
    const NOW_S: i64 = 1_800_000_000;

    /// A clock, and the time that passes beside it.
    struct Life {
        clock: Clock,
        last: Option<Look>,
        at: Instant,
    }

    impl Life {
        fn begin(wall_s: i64) -> Self {
            let mut life = Self { clock: Clock::default(), last: None, at: clock::now() };
            life.look(wall_s, 0);
            life
        }

        /// So long after the last look, the clock says `wall_s`.
        fn look(&mut self, wall_s: i64, passed_s: i64) -> Option<i64> {
            self.at += Duration::from_secs(passed_s as u64);
            let now = Look { wall_s, at: self.at };
            let step = self.clock.follow(self.last, now);
            self.last = Some(now);
            step
        }

        fn is_gone(&self, time_s: i64, keep_s: i64) -> bool {
            self.clock.gone(keep_s, 0).iter().any(|it| it.contains(&time_s))
        }
    }

    #[test]
    fn a_clock_that_goes_ages_by_what_it_says() {
        let mut life = Life::begin(NOW_S);
        for day in 1..=10 {
            assert_eq!(life.look(NOW_S + day * DAY_S, DAY_S), None);
        }
        let now_s = NOW_S + 10 * DAY_S;
        assert!(life.is_gone(now_s - 7 * DAY_S - STEP_S - 1, 7 * DAY_S));
        assert!(!life.is_gone(now_s - 7 * DAY_S, 7 * DAY_S));
        assert!(life.is_gone(5, 7 * DAY_S), "what is older than the store too");
        assert_eq!(life.clock.0.len(), 1);
    }

    #[test]
    fn a_clock_a_year_ahead_makes_nothing_old_and_what_it_stamped_ages_too() {
        let mut life = Life::begin(NOW_S);
        let ahead_s = NOW_S + 365 * DAY_S;
        assert_eq!(life.look(ahead_s, 30), Some(365 * DAY_S - 30));
        assert!(!life.is_gone(NOW_S, DAY_S));
        // It is set right after half a day.
        assert_eq!(life.look(ahead_s + DAY_S / 2, DAY_S / 2), None);
        assert_eq!(life.look(NOW_S + DAY_S / 2, 0), Some(-365 * DAY_S));
        assert!(!life.is_gone(NOW_S, DAY_S) && !life.is_gone(ahead_s, DAY_S));
        life.look(NOW_S + DAY_S, DAY_S / 2);
        assert!(life.is_gone(NOW_S - 2 * STEP_S, DAY_S) && !life.is_gone(ahead_s, DAY_S));
        life.look(NOW_S + 3 * DAY_S, 2 * DAY_S);
        assert!(life.is_gone(ahead_s, DAY_S), "it is a day of life ago");
    }

    #[test]
    fn a_pause_counts_for_nothing_and_a_short_one_for_what_it_is() {
        let mut life = Life::begin(NOW_S);
        life.last = None;
        assert_eq!(life.look(NOW_S + 30 * DAY_S, 0), None, "the clock may be right");
        assert!(!life.is_gone(NOW_S, DAY_S));
        life.look(NOW_S + 31 * DAY_S, DAY_S);
        assert!(life.is_gone(NOW_S - 2 * STEP_S, DAY_S));
        let stretches = life.clock.0.len();
        life.last = None;
        life.look(NOW_S + 31 * DAY_S + 600, 0);
        assert_eq!(life.clock.0.len(), stretches);
    }

    #[test]
    fn a_clock_that_begins_in_1970_and_is_set_right_loses_nothing() {
        let mut life = Life::begin(20);
        assert!(life.look(NOW_S, 30).is_some());
        for earlier in [25, 400 * DAY_S, NOW_S - 3 * DAY_S] {
            assert!(!life.is_gone(earlier, DAY_S), "{earlier}: of a store that was there before");
        }
        life.look(NOW_S + DAY_S, DAY_S);
        life.look(NOW_S + 2 * DAY_S, DAY_S);
        assert!(life.is_gone(25, DAY_S));
    }

    #[test]
    fn slices_go_when_all_of_them_is_old() {
        let mut life = Life::begin(NOW_S);
        life.look(NOW_S + 3 * DAY_S, 3 * DAY_S);
        let cut_s = NOW_S + 2 * DAY_S - STEP_S;
        let gone = life.clock.gone(DAY_S, DAY_S);
        assert!(gone.iter().any(|it| it.contains(&(cut_s - DAY_S - 1))));
        assert!(!gone.iter().any(|it| it.contains(&(cut_s - DAY_S))));
    }

    #[test]
    fn a_clock_that_steps_for_ever_stays_small() {
        let mut life = Life::begin(NOW_S);
        for step in 0..2000 {
            life.look(NOW_S + step % 2 * 100 * DAY_S, 30);
        }
        assert_eq!(life.clock.0.len(), STRETCHES_MAX);
        assert!(!life.is_gone(NOW_S, DAY_S));
        life.look(NOW_S + 20 * DAY_S, 20 * DAY_S);
        life.look(NOW_S + 40 * DAY_S, 20 * DAY_S);
        life.clock.forget(10 * DAY_S);
        assert_eq!(life.clock.0.len(), 1);
    }
}
