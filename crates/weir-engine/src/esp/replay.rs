//! The anti-replay window (RFC 4303 s3.4.3, App. A2; ring of words after RFC 6479).
//!
//! Two steps: [`ReplayWindow::check`] before decryption spares the work, and
//! [`ReplayWindow::mark`] after it wants an [`Authentic`], which only a packet that passed its
//! integrity check yields. So a forged number can never move the window.

use super::open::Authentic;
use super::sa::{SaError, Sequence};

const WORD_BITS: u64 = 64;

/// The smallest window, in packets (RFC 4303 s3.4.3 recommends it as the default).
pub const WINDOW_MIN: u32 = 64;

/// The largest window, in packets.
pub const WINDOW_MAX: u32 = 8192;

/// Why a number is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayError {
    /// Left of the window, or a number that no sender uses.
    Old,
    /// In the window and already accepted.
    Duplicate,
}

/// Which of the last `size` numbers were accepted.
///
/// A ring of 64-bit words, one bit a number, with at least one word more than the window needs:
/// when the window moves, whole words are cleared and nothing is shifted.
#[derive(Debug)]
pub struct ReplayWindow {
    highest: u64,
    size: u64,
    /// Ring of a power of two of words.
    words: Box<[u64]>,
}

impl ReplayWindow {
    /// An empty window of `size` packets.
    ///
    /// # Errors
    /// [`SaError::ReplayWindow`] unless `size` is a multiple of 64 from 64 to 8192.
    pub fn new(size: u32) -> Result<Self, SaError> {
        if !(WINDOW_MIN..=WINDOW_MAX).contains(&size) || !size.is_multiple_of(WORD_BITS as u32) {
            return Err(SaError::ReplayWindow { window: size });
        }
        let words = (size as usize / WORD_BITS as usize + 1).next_power_of_two();
        Ok(Self { highest: 0, size: size.into(), words: vec![0; words].into() })
    }

    /// The highest number accepted; 0 before the first.
    pub fn highest(&self) -> Sequence {
        Sequence(self.highest)
    }

    /// Its size in packets.
    pub fn size(&self) -> u32 {
        self.size as u32
    }

    /// Whether `sequence` may be accepted. Changes nothing.
    ///
    /// # Errors
    /// The reason why it may not.
    #[inline]
    pub fn check(&self, sequence: Sequence) -> Result<(), ReplayError> {
        let number = sequence.0;
        if number > self.highest {
            return Ok(());
        }
        if number == 0 || self.highest - number >= self.size {
            return Err(ReplayError::Old);
        }
        if self.is_marked(number) { Err(ReplayError::Duplicate) } else { Ok(()) }
    }

    /// Marks the number of an authentic packet as accepted and moves the window up to it.
    #[inline]
    pub fn mark(&mut self, authentic: Authentic) {
        self.mark_number(authentic.sequence().0);
    }

    /// The 64-bit number of a packet that carries only `low`, by the place of the window
    /// (RFC 4303 App. A2.2).
    ///
    /// # Errors
    /// [`ReplayError::Old`] for one that would lie before the first.
    #[inline]
    pub fn recover(&self, low: u32) -> Result<Sequence, ReplayError> {
        let top = Sequence(self.highest);
        let bottom = top.low().wrapping_sub(self.size as u32 - 1);
        let window_in_one_half = u64::from(top.low()) >= self.size - 1;
        let high = match (window_in_one_half, low >= bottom) {
            (true, true) | (false, false) => top.high(),
            (true, false) => top.high().wrapping_add(1),
            (false, true) => top.high().checked_sub(1).ok_or(ReplayError::Old)?,
        };
        Ok(Sequence(u64::from(high) << 32 | u64::from(low)))
    }

    #[inline]
    fn slot(&self, number: u64) -> (usize, u64) {
        let word = (number / WORD_BITS) as usize & (self.words.len() - 1);
        (word, 1 << (number % WORD_BITS))
    }

    #[inline]
    fn is_marked(&self, number: u64) -> bool {
        let (word, bit) = self.slot(number);
        self.words[word] & bit != 0
    }

    #[inline]
    fn mark_number(&mut self, number: u64) {
        if number > self.highest {
            let entered = number / WORD_BITS - self.highest / WORD_BITS;
            let first = self.highest / WORD_BITS + 1;
            for index in 0..entered.min(self.words.len() as u64) {
                let word = (first + index) as usize & (self.words.len() - 1);
                self.words[word] = 0;
            }
            self.highest = number;
        }
        let (word, bit) = self.slot(number);
        self.words[word] |= bit;
    }

    /// What survives a restart.
    pub fn snapshot(&self, state: &mut ReplayState) {
        state.highest = self.highest;
        state.window = self.size as u32;
        state.accepted.clear();
        let first = self.first_word();
        let last = self.highest / WORD_BITS;
        state.accepted.extend(
            (first..=last).map(|index| self.words[index as usize & (self.words.len() - 1)]),
        );
    }

    /// The window that `state` describes. Numbers of which it does not know whether they were
    /// accepted (it was kept for a smaller window) count as accepted.
    ///
    /// # Errors
    /// As [`ReplayWindow::new`], and [`SaError::StateDamaged`] when the parts of `state` do not
    /// fit.
    pub fn restore(size: u32, state: &ReplayState) -> Result<Self, SaError> {
        let kept = Self::new(state.window)?.with_words(state)?;
        let mut window = Self::new(size)?;
        window.highest = kept.highest;
        let lowest = kept.highest.saturating_sub(window.size - 1);
        for number in lowest..=kept.highest {
            if kept.check(Sequence(number)).is_err() {
                let (word, bit) = window.slot(number);
                window.words[word] |= bit;
            }
        }
        Ok(window)
    }

    fn with_words(mut self, state: &ReplayState) -> Result<Self, SaError> {
        self.highest = state.highest;
        let first = self.first_word();
        if state.accepted.len() as u64 != state.highest / WORD_BITS - first + 1 {
            return Err(SaError::StateDamaged { what: "window and its bits do not agree" });
        }
        for (index, word) in (first..).zip(&state.accepted) {
            let slot = index as usize & (self.words.len() - 1);
            self.words[slot] = *word;
        }
        Ok(self)
    }

    /// The word of the window's lowest number, counted from number 0.
    fn first_word(&self) -> u64 {
        self.highest.saturating_sub(self.size - 1) / WORD_BITS
    }
}

impl ReplayState {
    /// All numbers up to `highest` were accepted, or count as if.
    pub fn up_to(highest: u64) -> Self {
        let first = highest.saturating_sub(u64::from(WINDOW_MIN) - 1) / WORD_BITS;
        let words = highest / WORD_BITS - first + 1;
        Self { highest, window: WINDOW_MIN, accepted: vec![u64::MAX; words as usize] }
    }
}

/// A window as it is kept on disk: see [`ReplayWindow::snapshot`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayState {
    /// The highest number accepted.
    pub highest: u64,
    /// Size of the window in packets.
    pub window: u32,
    /// One bit a number, lowest first, from the word that holds the window's lowest number.
    pub accepted: Vec<u64>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// RFC 4303 s3.4.3 in its own words: a set of numbers and the highest of them.
    struct Oracle {
        accepted: BTreeSet<u64>,
        size: u64,
    }

    impl Oracle {
        fn offer(&mut self, number: u64) -> Result<(), ReplayError> {
            let highest = self.accepted.last().copied().unwrap_or(0);
            if number == 0 || number + self.size <= highest {
                return Err(ReplayError::Old);
            }
            if !self.accepted.insert(number) {
                return Err(ReplayError::Duplicate);
            }
            Ok(())
        }
    }

    fn offer(window: &mut ReplayWindow, number: u64) -> Result<(), ReplayError> {
        window.check(Sequence(number))?;
        window.mark(Authentic::for_test(Sequence(number)));
        Ok(())
    }

    fn reload(window: &ReplayWindow, size: u32) -> ReplayWindow {
        let mut state = ReplayState::default();
        window.snapshot(&mut state);
        ReplayWindow::restore(size, &state).expect("a snapshot restores")
    }

    #[test]
    fn windows_out_of_bounds_are_refused() {
        for window in [0, 1, 63, 65, 100, 8193, 8256, u32::MAX] {
            assert_eq!(
                ReplayWindow::new(window).map(|w| w.size()),
                Err(SaError::ReplayWindow { window })
            );
        }
        for size in (64..=8192).step_by(64) {
            assert!(ReplayWindow::new(size).is_ok());
        }
    }

    #[test]
    fn the_edge_of_the_window_is_exact() {
        for size in [64, 128, 192, 1024, 8192] {
            let mut window = ReplayWindow::new(size).unwrap();
            offer(&mut window, 100_000).unwrap();
            let lowest = 100_000 - u64::from(size) + 1;
            assert_eq!(offer(&mut window, lowest - 1), Err(ReplayError::Old));
            assert_eq!(offer(&mut window, lowest), Ok(()));
            assert_eq!(offer(&mut window, lowest), Err(ReplayError::Duplicate));
        }
    }

    #[test]
    fn a_jump_over_the_whole_ring_leaves_no_stale_mark() {
        let mut window = ReplayWindow::new(64).unwrap();
        (1..=64).for_each(|number| offer(&mut window, number).unwrap());
        offer(&mut window, 1 << 40).unwrap();
        let top = 1_u64 << 40;
        (top - 63..top).for_each(|number| offer(&mut window, number).unwrap());
    }

    #[test]
    fn a_window_restored_wider_takes_the_unknown_as_accepted() {
        let mut window = ReplayWindow::new(64).unwrap();
        offer(&mut window, 1000).unwrap();
        let mut wider = reload(&window, 128);
        assert_eq!(offer(&mut wider, 1000 - 63), Ok(()));
        assert_eq!(offer(&mut wider, 1000 - 64), Err(ReplayError::Duplicate));
    }

    #[test]
    fn damaged_state_is_refused() {
        let state = ReplayState { highest: 1000, window: 64, accepted: vec![0; 5] };
        assert!(matches!(ReplayWindow::restore(64, &state), Err(SaError::StateDamaged { .. })));
        let state = ReplayState { highest: 1000, window: 63, accepted: vec![0; 2] };
        assert!(matches!(ReplayWindow::restore(64, &state), Err(SaError::ReplayWindow { .. })));
    }

    proptest! {
        #[test]
        fn window_agrees_with_a_set_of_numbers(
            size in (1_u32..=128).prop_map(|words| words * 64),
            start in prop_oneof![Just(0_u64), 0..1_u64 << 40],
            steps in prop::collection::vec((any::<bool>(), 0_u64..12_000, 0_u8..200), 1..400),
        ) {
            let mut window = ReplayWindow::new(size).unwrap();
            let mut oracle = Oracle { accepted: BTreeSet::new(), size: size.into() };
            for (forward, distance, restart) in steps {
                let highest = oracle.accepted.last().copied().unwrap_or(start);
                let number = if forward {
                    highest + distance % 200
                } else {
                    highest.saturating_sub(distance)
                };
                prop_assert_eq!(offer(&mut window, number), oracle.offer(number));
                if restart == 0 {
                    window = reload(&window, size);
                }
            }
        }

        /// A sender's true 64-bit number is found from its low half wherever it lies within the
        /// window's reach.
        #[test]
        fn the_high_half_is_recovered(
            size in (1_u32..=128).prop_map(|words| words * 64),
            top in prop_oneof![
                1_u64..1 << 36,
                (0_u64..8, 0_u64..20_000).prop_map(|(high, low)| (high << 32) + low),
                (1_u64..8, 0_u64..20_000).prop_map(|(high, low)| (high << 32) - low),
            ],
            offset in prop_oneof![-8191_i64..8192, -8191_i64..0xffff_0000],
        ) {
            let top = top.max(1);
            let mut window = ReplayWindow::new(size).unwrap();
            offer(&mut window, top).unwrap();
            let Some(sent) = top.checked_add_signed(offset) else { return Ok(()) };
            prop_assume!(sent > 0 && offset > -i64::from(size));
            prop_assume!(offset <= (1 << 32) - i64::from(size));
            prop_assert_eq!(window.recover(sent as u32), Ok(Sequence(sent)));
        }
    }
}
