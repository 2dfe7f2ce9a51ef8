//! A place beside a direction's counters for what a later stage keeps of it.
//!
//! Who judges packets needs what it knows of a queue pair with each of them. In a table of its own
//! that is a miss of the cache more a packet; here it lies in the line that the direction was found
//! by (docs/adr/0250). What it says is that stage's business: nothing here reads it.

/// Ten bytes, which fit where a direction has room. All zero: nobody wrote to it since the
/// direction began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Seat {
    /// What the stage keeps.
    pub(crate) words: [u16; 4],
    /// What is valid together: see [`Rounds`].
    pub(crate) round: u16,
}

/// Numbers for what seats say, so that all of them may be made void at once. They are given out for
/// the life of the table, whoever writes to the seats.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rounds(u16);

impl Rounds {
    /// The next number, and whether all seats have to be emptied first: numbers begin anew.
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
    fn numbers_never_are_that_of_an_empty_seat_and_seats_are_emptied_when_they_begin_anew() {
        let mut rounds = Rounds::default();
        let all: Vec<_> = (0..70_000).map(|_| rounds.next()).collect();
        assert!(all.iter().all(|(round, _)| *round != Seat::default().round));
        let anew: Vec<_> = (0..all.len()).filter(|at| all[*at].1).collect();
        assert_eq!(anew, [65_535]);
        assert_eq!(all[65_535].0, 1);
    }
}
