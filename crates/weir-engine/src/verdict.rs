//! What happens to a packet, with its reason. Each [`DropReason`] is one counter, one metric and
//! one line of `weir drops`.

use crate::policy::FrameClass;

/// Which side of the gateway a frame came in by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// From the host (`pf0hpf`): plaintext.
    Host,
    /// From the fabric (`p0`).
    Wire,
}

impl Side {
    /// The other one.
    pub const fn opposite(self) -> Self {
        match self {
            Self::Host => Self::Wire,
            Self::Wire => Self::Host,
        }
    }
}

/// A packet's fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Passed on as it is; the policy asks for no seal.
    Forward,
    /// Sealed and passed on.
    Sealed,
    /// Opened and passed on.
    Opened,
    /// Passed on in clear although the policy seals, as its list of exceptions says.
    Clear(FrameClass),
    /// Passed on in clear, to or from a peer whose traffic need not be sealed yet, or not all of
    /// it.
    Unsealed,
    /// Passed on, from the host with a tag in the place of its ICRC, from the wire with its ICRC
    /// put back.
    Tagged,
    /// Handed to the kernel's ESP: from the host to be sealed, from the wire to be opened.
    Handed,
    /// Handed to the gateway's own kernel.
    Punt,
    /// Taken in by the engine itself (a neighbour's answer).
    Consumed,
    /// Waits until its datagram is whole and was judged. Counted when it goes on.
    Held,
    /// Dropped.
    Drop(DropReason),
}

impl Verdict {
    /// Two bytes that stand for it, for records in memory.
    pub fn code(self) -> [u8; 2] {
        match self {
            Verdict::Forward => [0, 0],
            Verdict::Sealed => [1, 0],
            Verdict::Opened => [2, 0],
            Verdict::Clear(class) => [3, class as u8],
            Verdict::Punt => [4, 0],
            Verdict::Consumed => [5, 0],
            Verdict::Drop(reason) => [6, reason as u8],
            Verdict::Unsealed => [7, 0],
            Verdict::Tagged => [8, 0],
            Verdict::Handed => [9, 0],
            Verdict::Held => [10, 0],
        }
    }

    /// The inverse of [`Verdict::code`].
    pub fn of_code(code: [u8; 2]) -> Option<Self> {
        let index = usize::from(code[1]);
        Some(match code[0] {
            0 => Verdict::Forward,
            1 => Verdict::Sealed,
            2 => Verdict::Opened,
            3 => Verdict::Clear(*FrameClass::ALL.get(index)?),
            4 => Verdict::Punt,
            5 => Verdict::Consumed,
            6 => Verdict::Drop(*DropReason::ALL.get(index)?),
            7 => Verdict::Unsealed,
            8 => Verdict::Tagged,
            9 => Verdict::Handed,
            10 => Verdict::Held,
            _ => return None,
        })
    }
}

macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// Why a packet was dropped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum DropReason { $($(#[doc = $doc])+ $name,)+ }

        impl DropReason {
            /// All reasons, in counter order.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$name,)+];

            /// The name in counters, JSON and metrics.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$name => $text,)+ }
            }

            /// What it means, in one sentence, as the documentation shows it.
            pub const fn meaning(self) -> &'static str {
                match self { $(DropReason::$name => concat!($($doc),+),)+ }
            }
        }
    };
}

impl DropReason {
    /// Whether it says why packets were not looked into, of which nothing else tells.
    pub(crate) const fn is_unseen_inside(self) -> bool {
        matches!(
            self,
            Self::TunnelTooDeep
                | Self::FragmentsFull
                | Self::FragmentsLate
                | Self::FragmentConflict
                | Self::FlowQueueFull
        )
    }

    /// Whether a sealed packet that was dropped so may be one whose number is then missing: the
    /// gap is ours.
    pub(crate) const fn may_hide_a_packet(self) -> bool {
        matches!(
            self,
            Self::ReplayOld
                | Self::NeighbourUnknown
                | Self::ArenaFull
                | Self::NoRoom
                | Self::CongestionUnheard
                | Self::RateLimit
                | Self::PeerReach
        )
    }
}

drop_reasons! {
    /// A header contradicts itself or the packet's length.
    Malformed = "malformed",
    /// From the wire, not sealed, though the policy demands it.
    NotSealed = "not_sealed",
    /// No rule of the policy says where it belongs.
    NoPolicy = "no_policy",
    /// A link-local protocol (LLDP, LACP, 802.1X, PTP, pause) that the policy keeps back.
    LinkProtocol = "link_protocol",
    /// Multicast or broadcast that the policy keeps back.
    Multicast = "multicast",
    /// ESP with an SPI that no association has.
    UnknownSpi = "unknown_spi",
    /// ESP too short, or a length that is no whole number of blocks.
    EspMalformed = "esp_malformed",
    /// Left of the anti-replay window.
    ReplayOld = "replay_old",
    /// Already received.
    ReplayDuplicate = "replay_duplicate",
    /// The integrity check failed.
    Authentication = "authentication",
    /// Padding or next header inside ESP is wrong.
    EspTrailer = "esp_trailer",
    /// The decrypted packet is outside what its association protects.
    SelectorMismatch = "selector_mismatch",
    /// The association's sequence numbers are used up.
    SequenceExhausted = "sequence_exhausted",
    /// The reserve of sequence numbers on disk could not be extended in time.
    SequenceNotReserved = "sequence_not_reserved",
    /// Sealed it would not fit the wire; the sender was told (ICMP) where that is possible.
    TooBig = "too_big",
    /// No neighbour answers for the peer's address or its next hop.
    NeighbourUnknown = "neighbour_unknown",
    /// An IP fragment where a whole packet is needed.
    Fragment = "fragment",
    /// The batch's working memory was full.
    ArenaFull = "arena_full",
    /// No head or tail room to seal in.
    NoRoom = "no_room",
    /// For another station; seen because the port is promiscuous.
    NotForUs = "not_for_us",
    /// The gateway holds no association for the peer.
    NoAssociation = "no_association",
    /// Handshakes came faster than they can be worked on.
    KeyingBusy = "keying_busy",
    /// The cipher library refused to seal: its build or the machine is broken.
    CipherRefused = "cipher_refused",
    /// Congestion was marked on a packet whose sender cannot hear of it (RFC 6040 s4.2).
    CongestionUnheard = "congestion_unheard",
    /// From the host, to be tagged: its ICRC was wrong, and a tag would vouch for damage.
    IcrcBad = "icrc_bad",
    /// Of a peer whose packets carry tags, and without a place for one: not RoCE, or cut short.
    TagNotRoce = "tag_not_roce",
    /// From the wire with an ordinary ICRC, where there should be a tag: its sender knows of none.
    TagForeign = "tag_foreign",
    /// From the wire with a wrong tag: forged, damaged, or of another key.
    TagForged = "tag_forged",
    /// From the wire with the tag of another epoch: a late replay, or the gateways' clocks differ.
    TagOldEpoch = "tag_old_epoch",
    /// From the wire, for a queue pair that too many wrong tags came for: not looked at.
    TagFailureLimit = "tag_failure_limit",
    /// The kernel, which does the peer's ESP, has lost its associations: restart the gateway.
    KernelEsp = "kernel_esp",
    /// A line of access denies the operation: `weir access hits` names it.
    AccessDenied = "access_denied",
    /// RDMA by its port or EtherType that cannot be read (damaged, or a fragment), where lines of
    /// access judge.
    AccessUnreadable = "access_unreadable",
    /// A rule of detection drops it, or its flow: `weir drops` names the rule.
    Rule = "rule",
    /// Its queue pair belongs to another address, or to a host behind the other port.
    QpForged = "qp_forged",
    /// No connection managers agreed on its queue pair, and the pair's access_state is strict.
    AccessNoConnection = "access_no_connection",
    /// A connection for which the table of connections has no room.
    AccessTableFull = "access_table_full",
    /// More than a line of access allows in this time.
    AccessLimit = "access_limit",
    /// Its number is none that its receiver could be waiting for, and the pair's access_psn says
    /// to drop it.
    AccessPsn = "access_psn",
    /// Its source is blocked: `weir block list` says why and for how long.
    Blocked = "blocked",
    /// More than its peer may send or be sent in this time: `weir vpn show` has the limit.
    RateLimit = "rate_limit",
    /// From a VPN client, to where its list of access does not lead: `weir vpn show` has the list.
    PeerReach = "peer_reach",
    /// From a client that is masqueraded, and neither TCP, UDP nor ICMP echo: its sender stays
    /// unknown to the host.
    NatProtocol = "nat_protocol",
    /// A new flow of a client that is masqueraded, and no outer port is free for it.
    NatFull = "nat_full",
    /// From the host to the masquerade's address, and no client waits for it.
    NatNoMapping = "nat_no_mapping",
    /// More packets within each other than rules and lines look at (16), or more VLAN tags (2).
    TunnelTooDeep = "tunnel_too_deep",
    /// A piece of a datagram that could not be put together, for there was no room.
    FragmentsFull = "fragments_full",
    /// A piece of a datagram whose other pieces did not come within 2 seconds.
    FragmentsLate = "fragments_late",
    /// A piece of a datagram that another worker was to judge, and that had to wait for one with
    /// too many others.
    FlowQueueFull = "flow_queue_full",
    /// Of a TCP connection whose beginning was not seen, where [rules.exceptions] drops those.
    StreamUnseen = "stream_unseen",
    /// More waits behind a gap in its TCP stream than is kept, where [rules.exceptions] drops it.
    StreamGap = "stream_gap",
    /// Nobody knows what the receiver takes of it: in its TCP stream other bytes came before in the
    /// same place, it lies beyond the window, acknowledges what was not sent, has an old timestamp,
    /// or urgent data; or it begins one more RDMA operation than rules look at together.
    StreamConflict = "stream_conflict",
    /// The parser of its application has given up, with it or an earlier packet of its flow, where
    /// [rules.exceptions] drops that.
    ParserError = "parser_error",
    /// A piece of a datagram that another one overlaps, that goes to another hardware address or
    /// has other hops left than the others, has IPv4 options, no bytes or fewer than it says, lacks
    /// headers, or is of a length that no piece but the last has: receivers put such datagrams
    /// together in several ways.
    FragmentConflict = "fragment_conflict",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verdict_survives_its_code() {
        let simple = [
            Verdict::Forward,
            Verdict::Sealed,
            Verdict::Opened,
            Verdict::Punt,
            Verdict::Consumed,
            Verdict::Tagged,
            Verdict::Handed,
            Verdict::Held,
        ];
        let clear = FrameClass::ALL.into_iter().map(Verdict::Clear);
        let dropped = DropReason::ALL.iter().copied().map(Verdict::Drop);
        for verdict in simple.into_iter().chain(clear).chain(dropped) {
            assert_eq!(Verdict::of_code(verdict.code()), Some(verdict));
        }
        assert_eq!(Verdict::of_code([u8::MAX; 2]), None);
    }
}
