//! What a sender was known by of late.

/// So many that are told apart: a forger may take as many turns as there are others.
const KNOWN: usize = 8;

/// The last few different values of something that hardly ever changes, the last one first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lately<T> {
    known: [Option<T>; KNOWN],
}

impl<T: Copy + PartialEq> Lately<T> {
    /// Takes a value in; whether it is one of those before the last, so that two senders take
    /// turns.
    #[inline]
    pub(super) fn is_back(&mut self, value: T) -> bool {
        if self.known[0] == Some(value) {
            return false;
        }
        let place = self.known.iter().position(|it| *it == Some(value));
        let upto = place.unwrap_or(KNOWN - 1);
        self.known[..=upto].rotate_right(1);
        self.known[0] = Some(value);
        place.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_back_that_others_came_after() {
        let mut lately = Lately::default();
        assert!(![1, 1, 2, 2, 3].into_iter().any(|it| lately.is_back(it)));
        assert!(lately.is_back(1) && lately.is_back(3) && !lately.is_back(3));
        for other in 10..17 {
            assert!(!lately.is_back(other));
        }
        assert!(lately.is_back(3) && !lately.is_back(1), "forgotten");
    }
}
