//! Connections whose client turns out to be the end that was heard of second.

use super::{Flow, Tcp};
use crate::conversation::Conversation;

impl Flow {
    /// Takes its ends for one another, if it is a connection that began before anybody looked and
    /// nothing was said in it yet; whether it did.
    pub(crate) fn turn(&mut self) -> bool {
        let is_silent = self.conversation.as_deref().is_none_or(Conversation::is_silent);
        if !self.is_midstream() || self.tcp != Tcp::Unknown || !is_silent || self.is_dropped() {
            return false;
        }
        std::mem::swap(&mut self.initiator, &mut self.responder);
        self.packets.reverse();
        self.bytes.reverse();
        self.timestamps.reverse();
        self.first_timestamp = None;
        self.is_looked_at.reverse();
        self.is_drop_told.reverse();
        self.has_other_rules.reverse();
        self.conversation = None;
        let told = &mut self.told;
        told.tcp_flags.reverse();
        told.tcp_passed.reverse();
        told.hop_limits.reverse();
        told.port = told.port.map(|it| 1 - it);
        told.has_answered = self.packets[1] > 0;
        true
    }
}
