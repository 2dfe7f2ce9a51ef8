//! Whether packets of a direction need no look any more, so that the kernel may carry them.

use weir_wire::frame::Time;
use weir_wire::mad::is_management;
use weir_wire::parse::{Parsed, Rdma};

use super::Access;
use super::lines::{AccessAction, LineNumber, Operation};
use super::policy::AccessPolicy;
use super::state::AccessState;
use super::terms::Asked;
use super::windows::PsnCheck;

impl Access {
    /// Whether whatever packets between these addresses could ask passes, and nobody counts, limits
    /// or tells of it: then packets like this one may go past. What the kernel carries is in no
    /// line's hits, and its numbers are nobody's window.
    pub(crate) fn settles(&self, parsed: &Parsed) -> bool {
        match &parsed.rdma {
            None => true,
            Some(rdma) => self.policy.settles(parsed, rdma),
        }
    }
}

impl AccessPolicy {
    fn settles(&self, parsed: &Parsed, rdma: &Rdma) -> bool {
        // What changes with time, owners, kinds or numbers is asked of each packet.
        let is_lasting = self.state() == AccessState::Off
            && matches!(self.psn(), PsnCheck::Off | PsnCheck::Count)
            && !self.names_terms()
            && !self.is_timed();
        is_lasting && !is_management(rdma) && {
            let asked = Asked::of(parsed, Time::default());
            let decisions = self.decide(&parsed.source, &parsed.destination, &asked);
            let mut operations = Operation::ALL.iter().filter(|it| **it != Operation::Connect);
            operations.all(|it| self.lets_past(decisions.of(*it)))
        }
    }

    /// Whether a line lets pass and does nothing else.
    pub(super) fn lets_past(&self, number: LineNumber) -> bool {
        self.action_of(number) == (AccessAction::Allow, false) && self.limits_of(number).is_none()
    }
}
