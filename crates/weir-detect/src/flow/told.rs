//! What is noted of a flow for its record.

use weir_wire::frame::Time;

use crate::conversation::MessageUpdate;
use crate::packet::Vlans;
use crate::rule::Protocol;

/// What is kept for the flow's record, beside what rules ask.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecordState {
    pub(crate) last: Time,
    pub(crate) protocol: u8,
    pub(crate) tcp_flags: [u8; 2],
    /// Those of packets before the flow was dropped, if it was.
    pub(crate) tcp_passed: [u8; 2],
    pub(crate) icmp: [Option<(u8, u8)>; 2],
    /// The responder said something of the flow's own protocol.
    pub(crate) has_answered: bool,
    pub(crate) spi: Option<u32>,
    pub(crate) vlans: Vlans,
    /// By which of two ports what the initiator sends comes.
    pub(crate) port: Option<u8>,
    pub(crate) is_alerted: bool,
    /// Nothing is told of it.
    pub(crate) is_untold: bool,
    /// Its connection is followed no further, nor what its datagrams say.
    pub(crate) is_left: bool,
    pub(crate) application: Option<&'static str>,
    /// Transactions that were looked at.
    pub(crate) transactions: u64,
    /// Those of what was spoken before both sides agreed on something else.
    pub(crate) transactions_before: u64,
    /// Its first segments were none of a connection's beginning.
    pub(crate) is_midstream: bool,
    /// Bytes of that side are missing for good.
    pub(crate) has_gap: [bool; 2],
    /// A connection of TCP is followed.
    pub(crate) is_followed: bool,
    /// The least and the greatest hop limit of each side's packets.
    pub(crate) hop_limits: [Option<(u8, u8)>; 2],
    /// It was looked for what is spoken, and it is nothing that is known.
    pub(crate) has_failed: bool,
}

impl RecordState {
    /// Counts the transaction that a message belongs to, unless it was counted with another.
    pub(crate) fn count(&mut self, message: &MessageUpdate) {
        let count = match message {
            MessageUpdate::Http(number) => number + 1,
            MessageUpdate::Unit(unit) => unit.number + 1,
            MessageUpdate::Dns(_) => self.transactions + 1,
            MessageUpdate::Tls | MessageUpdate::Ssh => 1,
            MessageUpdate::State | MessageUpdate::Odd(_) => 0,
        };
        self.transactions = self.transactions.max(count);
    }

    /// What is spoken, with transactions of its own; HTTP/2 that carries DNS is no other.
    pub(crate) fn speaks(&mut self, name: &'static str) {
        let is_other = self.application.is_some_and(|it| it != name);
        if is_other && name != Protocol::Doh2.name() {
            self.transactions_before = std::mem::take(&mut self.transactions);
        }
        self.application = Some(name);
    }

    /// Number of the transaction that was counted last.
    pub(crate) fn last_transaction(&self) -> u64 {
        self.transactions.saturating_sub(1)
    }
}
