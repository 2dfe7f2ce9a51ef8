//! What is noted of a flow for its record.

use weir_wire::frame::Time;
use weir_wire::parse::{Network, Transport};
use weir_wire::tcp::flags;

use super::{Flow, Tcp};
use crate::conversation::MessageUpdate;
use crate::packet::{View, Vlans};
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

impl Flow {
    /// Notes what the flow's record tells.
    pub(super) fn tell(&mut self, now: Time, side: usize, view: &View<'_>, midstream: bool) {
        let (is_dropped, is_unfollowed) = (self.is_dropped(), self.is_unfollowed());
        let told = &mut self.told;
        if self.packets == [0, 0] {
            (told.protocol, told.vlans) = (view.parsed.protocol, view.vlans);
            told.port = view.port.map(|it| if side == 0 { it } else { 1 - it });
            // It has addresses, and is no flow of anybody's.
            told.is_untold = view.parsed.network == Network::Arp;
        }
        told.last = now;
        told.has_answered |= side == 1 && view.parsed.protocol == told.protocol;
        let hops = view.parsed.hop_limit;
        let (least, greatest) = told.hop_limits[side].unwrap_or((hops, hops));
        told.hop_limits[side] = Some((least.min(hops), greatest.max(hops)));
        match view.parsed.transport {
            Transport::Tcp { .. } if view.is_spoiled || told.is_left => {}
            // It is to end what nobody follows.
            Transport::Tcp { flags: seen, .. }
                if midstream
                    && is_unfollowed
                    && seen & (flags::FIN | flags::SYN | flags::RST) == flags::FIN =>
            {
                told.is_midstream = true;
            }
            Transport::Tcp { flags: seen, .. } if view.is_refused => {
                told.tcp_flags[side] |= seen;
                told.is_midstream |= self.tcp == Tcp::Unknown && seen & flags::FIN != 0;
            }
            Transport::Tcp { flags: seen, .. } => {
                told.tcp_flags[side] |= seen;
                // What is dropped with its flow brings its connection no further.
                told.tcp_passed[side] |= if is_dropped { 0 } else { seen };
                let begins =
                    seen & (flags::SYN | flags::ACK) == flags::SYN || seen & flags::RST != 0;
                // A SYN that ends at once begins none.
                let is_none = seen & (flags::SYN | flags::FIN | flags::RST)
                    == flags::SYN | flags::FIN
                    && self.session.is_some()
                    && is_unfollowed;
                told.is_midstream |= (self.tcp == Tcp::Unknown && !begins) || is_none;
                told.is_followed |= seen & (flags::RST | flags::FIN) == 0 && (begins || midstream);
            }
            Transport::Icmp { kind, code } => _ = told.icmp[side].get_or_insert((kind, code)),
            Transport::Esp { spi, .. } => told.spi = Some(spi),
            _ => {}
        }
    }
}
