//! How far a side has come in what it says, for rules that ask (`app-layer-state`, hooks).

/// The states that a side of a session came through, as rules count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    now: usize,
    /// From which state to which rules have looked at it last.
    shown: Option<(usize, usize)>,
}

impl Progress {
    /// It has come so far at least.
    pub(crate) fn reach(&mut self, state: usize) {
        self.now = self.now.max(state);
    }

    /// How far it has come.
    pub(crate) fn now(&self) -> usize {
        self.now
    }

    /// Whether it has come further since rules looked at it, who do so now.
    pub(crate) fn show(&mut self) -> bool {
        let from = match self.shown {
            Some((_, last)) if last == self.now => return false,
            shown => shown.map_or(0, |it| it.1),
        };
        self.shown = Some((from, self.now));
        true
    }

    /// The states that it came through before rules look at it: the first and the last of them.
    pub(crate) fn states(&self) -> (usize, usize) {
        self.shown.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_look_once_from_where_they_looked_before() {
        let mut progress = Progress::default();
        assert!(progress.show() && !progress.show(), "with its first bytes");
        assert_eq!(progress.states(), (0, 0));
        progress.reach(2);
        progress.reach(1);
        assert!(progress.show() && !progress.show());
        assert_eq!(progress.states(), (0, 2));
        progress.reach(3);
        assert!(progress.show());
        assert_eq!((progress.states(), progress.now()), ((2, 3), 3));
    }
}
