//! Flows that go past the rules: those were looked at for long enough, or a rule said so.

use weir_wire::tcp::flags;

use super::{Flow, Tcp};
use crate::detector::{Direction, Limits};
use crate::packet::View;

impl Flow {
    /// Counts a packet that nobody looks at.
    pub(crate) fn bypass(&mut self, direction: Direction, view: &View<'_>) {
        let [packets, bytes] = &mut **self.bypassed.get_or_insert_default();
        packets[direction.index()] += 1;
        bytes[direction.index()] += view.bytes.len() as u64;
    }

    /// Whether no rule looks at it any more, which passes, and its connection is established or
    /// was when it was first seen: a SYN is none that is sent again. Behind so much that was looked
    /// at, one that is begins another look, and no harm is done.
    pub(crate) fn is_let_go(&self, limits: &Limits) -> bool {
        let has_begun = matches!(self.tcp, Tcp::Established | Tcp::Unknown);
        self.is_settled(limits) || (has_begun && (self.is_passed || self.is_bypassed))
    }

    /// Whether it was looked at for so many bytes that nothing more is expected of it.
    pub(crate) fn is_settled(&self, limits: &Limits) -> bool {
        self.is_long(limits) && !self.is_dropped()
    }

    /// The same of a connection.
    pub(crate) fn goes_past(&self, limits: &Limits) -> bool {
        self.told.protocol == super::PROTOCOL_TCP && self.is_settled(limits)
    }

    /// Whether it has had so many bytes, dropped or not.
    pub(crate) fn is_long(&self, limits: &Limits) -> bool {
        limits.bypass_bytes.is_some_and(|bytes| self.bytes[0] + self.bytes[1] > bytes)
    }

    /// It begins where another is that went past the rules, and may go on for all that.
    pub(crate) fn succeed(&mut self) {
        self.is_successor = true;
    }

    /// Chooses what a segment of a successor is part of: until a SYN is answered the connection
    /// before may go on, and its streams are not where the SYN says.
    pub(super) fn choose_connection(&mut self, before: Tcp, seen: u8) {
        if !self.is_successor || seen & flags::RST != 0 {
            return;
        }
        let is_syn = seen & flags::SYN != 0;
        match before {
            Tcp::Syn if !is_syn && seen & flags::ACK != 0 => self.tcp = Tcp::Challenged,
            Tcp::Challenged if is_syn && self.tcp == Tcp::Challenged => self.tcp = Tcp::Syn,
            Tcp::Challenged if is_syn => {}
            _ if self.tcp == Tcp::Established => {
                (self.is_successor, self.other) = (false, None);
                return;
            }
            _ => return,
        }
        std::mem::swap(&mut self.conversation, &mut self.other);
    }

    /// Whether other rules run since the last packet of this side, which is asked once: those about
    /// its ends alone have to look at the next.
    pub(crate) fn take_other_rules(&mut self, direction: Direction) -> bool {
        std::mem::take(&mut self.has_other_rules[direction.index()])
    }
}
