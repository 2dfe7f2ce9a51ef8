//! Room beside a direction's counters for the data of a later stage.
//!
//! A stage that judges packets reads its data about a queue pair with each of them. A table of its
//! own would cost a cache miss a packet; here the data lies in the cache line by which the
//! direction was found (docs/adr/0250). Nothing here reads it.

/// Ten bytes, which fit where a direction has room. All zero: nobody wrote to it since the
/// direction began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct StageData {
    /// What the stage keeps.
    pub(crate) words: [u16; 4],
    /// What is valid together: see [`Rounds`].
    pub(crate) round: u16,
}

impl StageData {
    /// The stage's mark, in the first word, of data that is kept when the conversation leaves.
    pub(crate) const LASTS: u16 = 1 << 3;

    pub(super) fn lasts(&self) -> bool {
        self.words[0] & Self::LASTS != 0
    }
}

/// Numbers that tell which stage data is valid, so that all of it can be made void at once. They
/// are given out for the life of the table, whichever stage writes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rounds(u16);

impl Rounds {
    /// The next number, and whether all stage data must be emptied first, because numbers begin
    /// anew.
    pub(super) fn next(&mut self) -> (u16, bool) {
        self.0 = self.0.wrapping_add(1);
        let begins_anew = self.0 == 0;
        self.0 = self.0.max(1);
        (self.0, begins_anew)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_never_are_that_of_empty_data_and_all_is_emptied_when_they_begin_anew() {
        let mut rounds = Rounds::default();
        let all: Vec<_> = (0..70_000).map(|_| rounds.next()).collect();
        assert!(all.iter().all(|(round, _)| *round != StageData::default().round));
        let anew: Vec<_> = (0..all.len()).filter(|at| all[*at].1).collect();
        assert_eq!(anew, [65_535]);
        assert_eq!(all[65_535].0, 1);
    }
}
