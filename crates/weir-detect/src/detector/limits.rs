//! What bounds a detector.

#[cfg(doc)]
use super::{Decision, Packet};
use crate::application::ApplicationChoice;
use crate::buffers::http::{BODY_LEN, Look};
use crate::digest::FileDigests;

/// Bounds of a detector's memory, and what it does where it cannot look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Flows that have a slot. Packets of flows beyond are looked at one by one, and counted.
    pub flows: usize,
    /// Bits of hosts that are kept; a further one is not, and counted.
    pub host_bits: usize,
    /// Counts of thresholds; where one finds no room its rule alerts each time, which is counted.
    pub thresholds: usize,
    /// Rules looked at for one packet. Those beyond are not, and counted.
    pub candidates: usize,
    /// Whether a TCP connection is taken up where its beginning was not seen.
    pub midstream: bool,
    /// Whether what is spoken over TCP counts for packets behind the one that told it alone: who
    /// watches, and is not in the way, has not seen it received before.
    pub waits_for_acknowledgment: bool,
    /// Whether all that a side sends comes by here before the other acknowledges it, so that an
    /// acknowledgment of more is none; who reads a capture may have missed packets.
    pub sees_all: bool,
    /// Whether TCP segments with a wrong checksum, which no receiver takes, are no part of their
    /// connection either, unless they are [`Packet::is_verified`].
    pub checks_segments: bool,
    /// Keys the tables; any number that outsiders do not know.
    pub seed: u64,
    /// A flow of so many bytes, both ways together, is looked at no further; `None`: each is, to
    /// its end.
    pub bypass_bytes: Option<u64>,
    /// Bytes of each side of a TCP connection that are its stream; payloads behind them are looked
    /// at one by one (Suricata's `stream.reassembly.depth`). `None`: all.
    pub stream_depth: Option<u64>,
    /// Bytes of memory that flows may hold for what they say, together. Where they hold more, those
    /// that were silent longest are forgotten: see [`FlowTable`](crate::FlowTable).
    pub memory: usize,
    /// Whether rules look at payloads of TLS, and of SSH, although both sides encrypt (Suricata's
    /// `encryption-handling: full`). Otherwise its packets have none for them.
    pub looks_into_encrypted: [bool; 2],
    /// Whether a TCP packet is [`Decision::Unseen`] whose connection's beginning was not seen.
    pub refuses_midstream: bool,
    /// Whether a TCP packet is [`Decision::Unseen`] that finds no room behind a gap in its stream;
    /// otherwise the gap is given up.
    pub refuses_gaps: bool,
    /// Whether a TCP packet is [`Decision::Unseen`] that has other bytes than came before in the
    /// same place and were not acknowledged; otherwise those count that its receiver believes, as
    /// far as that is known.
    pub refuses_conflicts: bool,
    /// Whether the packet with which a parser of an application gives up is [`Decision::Unseen`],
    /// and with it the rest of its connection, of UDP that packet alone; otherwise rules go on
    /// looking at what they still can.
    pub refuses_parser_errors: bool,
    /// Whether TCP segments that have no place in their connection are no part of it: see
    /// [`Detector::is_refused`](super::Detector::is_refused).
    pub refuses_invalid: bool,
    /// Whether what is [`Decision::Unseen`] goes on nonetheless, so that its stream has it.
    pub only_watches: bool,
    /// What is odd about packets and waits to be taken; further ones are lost, and counted. With 0
    /// nothing is looked for but what rules ask.
    pub anomalies: usize,
    /// Digests of files that are told whether or not a rule asks for them.
    pub digests: FileDigests,
    /// Whether all messages of DHCP are told in full, and not what was lent to whom alone.
    pub dhcp_extended: bool,
    /// Whether packets are of one flow that differ by their VLANs alone.
    pub ignores_vlans: bool,
    /// Whether all headers of HTTP's requests are told, and of its responses.
    pub http_headers: [bool; 2],
    /// Where it does as Suricata does.
    pub as_suricata: AsSuricata,
}

/// What a detector does as Suricata, as far as a test says so (`weir verify`); a gateway has its
/// own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsSuricata {
    /// Whether sessions of TLS and SSH are told of when Suricata does: once nothing more of the
    /// handshake is awaited, where the server has a certificate or repeats its client's session;
    /// and with both banners. What comes later is not told of them.
    pub tells_early: [bool; 2],
    /// Whether rules look at each piece of a body as it comes; who drops would be late otherwise.
    /// Implied by [`Limits::sees_all`].
    pub looks_at_pieces: bool,
    /// Bytes of a stream before the end of each segment that rules look at again with it, whatever
    /// they have matched there (Suricata's IPS mode); 0: what matched once does not count again.
    pub looks_again: usize,
    /// Applications that are not looked for, or not taken apart.
    pub applications: ApplicationChoice,
    /// Bytes of a request's and of a response's body (HTTP) that are kept: no rule sees the rest.
    pub bodies: [usize; 2],
    /// Bytes of a request's and of a response's body (HTTP) before which rules do not look at it,
    /// unless it is whole or no more is kept (Suricata's `minimal-inspect-size`, where
    /// `http-body-inline` is off).
    pub bodies_from: Option<[u64; 2]>,
    /// Whether a rule of `<>` alerts for each of its directions where both are as it says.
    pub tells_both_ways: bool,
    /// Whether backslashes, `%2f` and `//` in paths of HTTP stay as they are.
    pub keeps_separators: bool,
    /// Whether files of HTTP are no longer than that.
    pub cuts_files: bool,
    /// Whether what rules drop goes on, and is told of to its end (Suricata's IDS mode).
    pub only_tells: bool,
    /// Whether a connection is taken apart no further once a parser has met what it cannot read.
    pub gives_up: bool,
    /// Whether a segment is its connection's although its IPv4 header's checksum is wrong.
    pub trusts_ip_headers: bool,
    /// Whether segments that have no place in their connection are no part of it, and go on.
    pub ignores_invalid: bool,
    /// Whether a server's side looks at what is odd about a request once it has answered that.
    pub answers_first: bool,
    /// Whether rules see a cookie of HTTP as soon as its line is there.
    pub cuts_heads: bool,
    /// Whether a flow of datagrams is cut off, too, once one of them cannot be read.
    pub cuts_datagrams: bool,
    /// Whether alerts about HTTP tell its bodies (Suricata's `http-body`).
    pub tells_bodies: bool,
    /// Whether rules see nothing of packets that Suricata does not take apart: what is in AH over
    /// IPv4, behind reserved labels and Teredo's authentication, payloads of datagrams that carry
    /// packets, and of protocols that it does not know.
    pub knows_no_more: bool,
    /// Whether segments that have other bytes than came before in their place are told of where
    /// Suricata does so alone: not where the receiver has all of them and more; nor, in IDS mode,
    /// where one has the very place of another and no third lies over it.
    pub tells_fewer_conflicts: bool,
    /// Whether TCP connections are followed from an answered SYN on alone, and what comes with a
    /// SYN is part of one only where TCP Fast Open is asked for.
    pub wants_handshakes: bool,
    /// Whether connections are followed of which one side alone is seen (Suricata's
    /// `stream.async-oneside`).
    pub follows_one_side: bool,
    /// Whether the segment that reaches a stream's depth is part of that, as far as it fits, what
    /// nobody has acknowledged then is not looked at, and what is spoken then stays unknown if it
    /// is.
    pub stops_at_depth: bool,
    /// How long flows may be silent, and fragments wait.
    pub timeouts: Timeouts,
}

/// Seconds that flows may be silent before they are over: those where one end alone has spoken, and
/// those where both have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Of connections that are not set up, that are, and that both ends have closed.
    pub tcp: [u64; 3],
    /// Of UDP.
    pub udp: [u64; 2],
    /// Of ICMP and ICMPv6.
    pub icmp: [u64; 2],
    /// Of any other protocol.
    pub other: [u64; 2],
    /// How long a datagram waits since its last piece; `None`: since its first, as receivers do.
    pub fragments: Option<u64>,
}

impl Default for Timeouts {
    fn default() -> Self {
        let [udp, icmp, other] = [[30, 300]; 3];
        Self { tcp: [600; 3], udp, icmp, other, fragments: None }
    }
}

impl Limits {
    /// Whether rules look at each piece of what is said as it comes.
    pub(crate) fn is_hasty(&self) -> bool {
        self.sees_all || self.as_suricata.looks_at_pieces
    }

    /// When rules look at bodies of HTTP.
    pub(crate) fn looks_at_bodies(&self, is_of_http2: bool) -> Look {
        match (self.as_suricata.bodies_from.filter(|_| !is_of_http2), self.is_hasty()) {
            (Some(from), _) => Look::From(from),
            (None, true) => Look::Always,
            (None, false) => Look::AtFirst,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            flows: 1 << 18,
            host_bits: 1 << 16,
            thresholds: 1 << 16,
            candidates: 1 << 14,
            midstream: false,
            waits_for_acknowledgment: false,
            sees_all: false,
            checks_segments: false,
            seed: 0,
            bypass_bytes: None,
            stream_depth: None,
            memory: 1 << 30,
            looks_into_encrypted: [false; 2],
            refuses_midstream: false,
            refuses_gaps: false,
            refuses_conflicts: false,
            refuses_parser_errors: false,
            refuses_invalid: false,
            only_watches: false,
            anomalies: 0,
            digests: FileDigests::default(),
            dhcp_extended: false,
            ignores_vlans: false,
            http_headers: [false; 2],
            as_suricata: AsSuricata::default(),
        }
    }
}

impl Default for AsSuricata {
    fn default() -> Self {
        Self {
            tells_early: [false; 2],
            looks_at_pieces: false,
            looks_again: 0,
            applications: ApplicationChoice::default(),
            bodies: [BODY_LEN; 2],
            bodies_from: None,
            tells_both_ways: false,
            keeps_separators: false,
            cuts_files: false,
            only_tells: false,
            trusts_ip_headers: false,
            ignores_invalid: false,
            answers_first: false,
            cuts_heads: false,
            cuts_datagrams: false,
            gives_up: false,
            tells_bodies: false,
            knows_no_more: false,
            tells_fewer_conflicts: false,
            wants_handshakes: false,
            follows_one_side: false,
            stops_at_depth: false,
            timeouts: Timeouts::default(),
        }
    }
}
