//! Turns at the machine for tests that share it: a few at a time, or one alone.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// So many turns at a time. Who wants one waits until one is free.
#[derive(Debug)]
pub struct Turns {
    most: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    taken: usize,
    /// Whether somebody has the machine alone, or waits for it: nobody else gets a turn.
    alone: bool,
}

/// A turn, given back when dropped.
#[derive(Debug)]
pub struct Turn {
    turns: &'static Turns,
    alone: bool,
}

impl Turns {
    /// At most `most` at a time, which is at least one.
    pub const fn new(most: usize) -> Self {
        let state = Mutex::new(State { taken: 0, alone: false });
        Self { most, state, changed: Condvar::new() }
    }

    /// One turn beside others.
    pub fn take(&'static self) -> Turn {
        let mut state = self.wait(|it| !it.alone && it.taken < self.most);
        state.taken += 1;
        Turn { turns: self, alone: false }
    }

    /// The only turn: for what others would disturb.
    pub fn take_alone(&'static self) -> Turn {
        // Announced first, or it would wait until nobody else wants a turn any more.
        self.wait(|it| !it.alone).alone = true;
        let mut state = self.wait(|it| it.taken == 0);
        state.taken += 1;
        Turn { turns: self, alone: true }
    }

    fn wait(&self, until: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        // A test that failed with a turn in its hands gave it back all the same.
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_while(state, |state| !until(state));
        waited.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.taken -= 1;
        state.alone &= !self.alone;
        self.turns.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn no_more_than_the_most_have_a_turn_and_one_alone_has_no_company() {
        static TURNS: Turns = Turns::new(3);
        let (at_work, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = |number: usize| {
            let alone = number.is_multiple_of(5);
            let turn = if alone { TURNS.take_alone() } else { TURNS.take() };
            let others = at_work.fetch_add(1, Ordering::SeqCst);
            most.fetch_max(others + 1, Ordering::SeqCst);
            for _ in 0..100 {
                thread::yield_now();
                assert!(!alone || at_work.load(Ordering::SeqCst) == 1, "company");
            }
            at_work.fetch_sub(1, Ordering::SeqCst);
            drop(turn);
        };
        thread::scope(|scope| {
            for number in 0..40 {
                scope.spawn({
                    let work = &work;
                    move || work(number)
                });
            }
        });
        assert!(most.load(Ordering::SeqCst) <= 3);
        // All are free again.
        let turns = [TURNS.take(), TURNS.take(), TURNS.take()];
        drop(turns);
        drop(TURNS.take_alone());
    }
}
