//! Gathering consecutive TCP segments of a batch into super-packets (what hosts call GRO), so that
//! kernel and host are called once for many. No payload byte moves: a super-packet is a list of
//! pieces, the first segment whole with its headers patched, and the payloads of the others.
//!
//! What goes to the wire is cut again by the adapter or the kernel (TSO), into the very segments
//! that came: so there identifications must count up, as the cutter's do.
//!
//! A packet stands in the output where its first segment stood, and a flow's chain is closed by
//! whatever of the flow cannot join it. So nothing of a flow overtakes anything of the same flow.

use std::ops::Range;

use arrayvec::ArrayVec;
use weir_wire::checksum::{self, Sum};
use weir_wire::frame::{Frame, Offload, PartialChecksum, SegmentKind, Segmentation};
use weir_wire::parse::{Network, Parsed, Transport};
use weir_wire::tcp::flags;

use super::checksum::{is_tcp_right, pseudo_header};
use crate::output::{Destination, Output, Packet, Part};

/// Frames of a batch that can take part; those beyond it pass alone.
const BATCH_MAX: usize = 64;

/// The largest IP packet.
const PACKET_LEN_MAX: usize = u16::MAX as usize;

/// TCP flags of a segment that may join a chain; those of the second group end it.
const JOINING: u8 = flags::ACK | flags::ECE;
const ENDING: u8 = flags::PSH | flags::FIN;

/// Gathers a batch. Reused from batch to batch.
#[derive(Debug, Default)]
pub struct Gather {
    chains: ArrayVec<Chain, BATCH_MAX>,
    pieces: ArrayVec<Piece, BATCH_MAX>,
}

/// Segments that follow each other.
#[derive(Clone, Debug)]
struct Chain {
    is_open: bool,
    parsed: Parsed,
    /// Frame number of the first segment.
    frame: u32,
    /// Whether the first segment's checksums were looked at and are right.
    is_checked: bool,
    /// Whether its TCP checksum was known to be right when it came.
    is_verified: bool,
    /// Segments so far.
    count: u16,
    segment_len: usize,
    next_sequence: u32,
    /// End of the IP packet, counted from the network header.
    len: usize,
    ending: u8,
    /// Its place in the output.
    packet: usize,
    /// The other segments, as a list through [`Gather::pieces`].
    first_piece: Option<usize>,
    last_piece: Option<usize>,
}

#[derive(Clone, Debug)]
struct Piece {
    frame: u32,
    payload: Range<u32>,
    next: Option<usize>,
}

/// A data segment that could stand in a chain.
struct Candidate<'a> {
    bytes: &'a [u8],
    parsed: &'a Parsed,
    sequence: u32,
    flags: u8,
    is_verified: bool,
}

impl Gather {
    /// A gatherer of batches of up to 64 frames.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a packet may join others, or part them: all else may be sent without
    /// [`Gather::push`].
    #[inline]
    pub fn concerns(parsed: &Parsed) -> bool {
        parsed.fragment.is_some() || matches!(parsed.transport, Transport::Tcp { .. })
    }

    /// Sends frame `index` of `frames`, alone or with those it continues. `parsed` describes its
    /// bytes as they are now. The packets are whole after [`Gather::finish`].
    pub fn push(
        &mut self,
        frames: &[Frame<'_>],
        index: u32,
        parsed: &Parsed,
        destination: Destination,
        output: &mut Output,
    ) {
        let frame = &frames[index as usize];
        let whole = Part::Frame { frame: index, range: 0..frame.len() as u32 };
        if parsed.fragment.is_some() {
            // It may belong to any flow between these hosts.
            self.chains.iter_mut().for_each(|chain| chain.is_open = false);
        }
        let candidate = Candidate::new(frame, parsed);
        let chain = self.chains.iter().rposition(|chain| {
            chain.is_open
                && chain.is_same_flow(parsed)
                && output.packets[chain.packet].destination == destination
        });
        if let (Some(chain), Some(candidate)) = (chain, &candidate)
            && self.join(chain, (frames, index), candidate, destination)
        {
            return;
        }
        if let Some(chain) = chain {
            self.chains[chain].is_open = false;
        }
        if let Some(candidate) = candidate
            && !self.chains.is_full()
        {
            self.chains.push(candidate.begin(index, output.packets.len()));
        }
        output.send(destination, frame.meta.offload, whole);
    }

    /// Appends `candidate` to a chain of its flow, where it continues it.
    fn join(
        &mut self,
        chain: usize,
        (frames, index): (&[Frame<'_>], u32),
        candidate: &Candidate<'_>,
        destination: Destination,
    ) -> bool {
        let chain = &mut self.chains[chain];
        let first = &frames[chain.frame as usize];
        let payload = candidate.payload();
        // The wire carries what the sender sent, to the bit.
        let is_exact = destination == Destination::Wire;
        let is_padded = |frame: &[u8], parsed: &Parsed| frame.len() > parsed.end as usize;
        let fits = !self.pieces.is_full()
            && payload.len() <= chain.segment_len
            && chain.len + payload.len() <= PACKET_LEN_MAX
            && candidate.sequence == chain.next_sequence
            && continues(first.bytes(), candidate.bytes, chain, is_exact)
            && !(is_exact && is_padded(first.bytes(), &chain.parsed))
            && !(is_exact && is_padded(candidate.bytes, candidate.parsed));
        if !fits || !is_right(candidate.bytes, candidate.parsed, candidate.is_verified) {
            return false;
        }
        if !chain.is_checked {
            if !is_right(first.bytes(), &chain.parsed, chain.is_verified) {
                return false;
            }
            chain.is_checked = true;
        }
        let piece = self.pieces.len();
        let range = payload.start as u32..payload.end as u32;
        self.pieces.push(Piece { frame: index, payload: range, next: None });
        if let Some(last) = chain.last_piece.replace(piece) {
            self.pieces[last].next = Some(piece);
        }
        chain.first_piece.get_or_insert(piece);
        chain.count += 1;
        chain.len += payload.len();
        chain.next_sequence = chain.next_sequence.wrapping_add(payload.len() as u32);
        chain.ending |= candidate.flags & ENDING;
        chain.is_open = payload.len() == chain.segment_len && chain.ending == 0;
        true
    }

    /// Ends the batch: patches the headers of super-packets and lists their pieces.
    pub fn finish(&mut self, frames: &mut [Frame<'_>], output: &mut Output) {
        for chain in &self.chains {
            if chain.first_piece.is_none() {
                continue;
            }
            let frame = &mut frames[chain.frame as usize];
            let offload = chain.patch(frame.bytes_mut());
            let start = output.parts.len() as u32;
            output.parts.push(Part::Frame { frame: chain.frame, range: 0..chain.parsed.end });
            let mut next = chain.first_piece;
            while let Some(piece) = next.map(|piece| &self.pieces[piece]) {
                output.parts.push(Part::Frame { frame: piece.frame, range: piece.payload.clone() });
                next = piece.next;
            }
            let Packet { offload: kept, parts, .. } = &mut output.packets[chain.packet];
            *kept = offload;
            *parts = start..output.parts.len() as u32;
        }
        self.chains.clear();
        self.pieces.clear();
    }
}

impl<'a> Candidate<'a> {
    /// `None` for everything that passes alone.
    #[inline]
    fn new(frame: &'a Frame<'_>, parsed: &'a Parsed) -> Option<Self> {
        let Transport::Tcp { sequence, flags, .. } = parsed.transport else { return None };
        let plain_len = match parsed.network {
            Network::Ipv4 => 20,
            Network::Ipv6 => 40,
            _ => return None,
        };
        let is_plain = parsed.transport_offset - parsed.network_offset == plain_len
            && parsed.fragment.is_none()
            && parsed.fault.is_none()
            && frame.meta.offload.segmentation.is_none();
        let has_payload = u32::from(parsed.payload_offset) < parsed.end;
        let is_data = flags & flags::ACK != 0 && flags & !(JOINING | ENDING) == 0;
        let offload = frame.meta.offload;
        (is_plain && has_payload && is_data).then(|| Self {
            bytes: frame.bytes(),
            parsed,
            sequence,
            flags,
            is_verified: offload.checksum_verified || offload.checksum.is_some(),
        })
    }

    fn payload(&self) -> Range<usize> {
        self.parsed.payload_offset.into()..self.parsed.end as usize
    }

    fn begin(&self, frame: u32, packet: usize) -> Chain {
        let segment_len = self.payload().len();
        Chain {
            is_open: self.flags & ENDING == 0,
            parsed: *self.parsed,
            frame,
            is_checked: false,
            is_verified: self.is_verified,
            count: 1,
            segment_len,
            next_sequence: self.sequence.wrapping_add(segment_len as u32),
            len: self.parsed.end as usize - usize::from(self.parsed.network_offset),
            ending: 0,
            packet,
            first_piece: None,
            last_piece: None,
        }
    }
}

impl Chain {
    #[inline]
    fn is_same_flow(&self, other: &Parsed) -> bool {
        let ports = |parsed: &Parsed| match parsed.transport {
            Transport::Tcp { source, destination, .. } => Some((source, destination)),
            _ => None,
        };
        ports(&self.parsed) == ports(other)
            && self.parsed.source == other.source
            && self.parsed.destination == other.destination
    }

    /// Makes the first segment's headers those of the super-packet.
    fn patch(&self, bytes: &mut [u8]) -> Offload {
        let network_offset = usize::from(self.parsed.network_offset);
        let transport_offset = usize::from(self.parsed.transport_offset);
        let (network, transport) = bytes.split_at_mut(transport_offset);
        let network = &mut network[network_offset..];
        let is_ipv6 = self.parsed.network == Network::Ipv6;
        if is_ipv6 {
            network[4..6].copy_from_slice(&((self.len - 40) as u16).to_be_bytes());
        } else {
            let old = u16::from_be_bytes([network[2], network[3]]);
            let sum = u16::from_be_bytes([network[10], network[11]]);
            let sum = checksum::updated(sum, old, self.len as u16);
            network[2..4].copy_from_slice(&(self.len as u16).to_be_bytes());
            network[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        transport[13] |= self.ending;
        let transport_len = self.len - (transport_offset - network_offset);
        let pseudo = pseudo_header(&self.parsed, self.parsed.protocol, transport_len as u32);
        transport[16..18].copy_from_slice(&pseudo.folded().to_be_bytes());
        let start = self.parsed.transport_offset;
        Offload {
            checksum: Some(PartialChecksum { start, field: start + 16 }),
            segmentation: Some(Segmentation {
                kind: if is_ipv6 { SegmentKind::TcpV6 } else { SegmentKind::TcpV4 },
                segment_len: self.segment_len as u16,
                header_len: self.parsed.payload_offset,
                ecn: false,
            }),
            checksum_verified: true,
            joinable: None,
        }
    }
}

/// Whether IPv4's header checksum is right, and TCP's, unless that is known.
fn is_right(bytes: &[u8], parsed: &Parsed, is_verified: bool) -> bool {
    let header = usize::from(parsed.network_offset)..usize::from(parsed.transport_offset);
    let header_is_right = parsed.network != Network::Ipv4
        || bytes.get(header).is_some_and(|header| Sum::new().with(header).checksum() == 0);
    header_is_right && (is_verified || is_tcp_right(bytes, parsed))
}

/// Whether all that segments of one super-packet share is equal in `first` and `other`, which comes
/// as many segments later as `chain` has. Addresses, ports and lengths were compared before;
/// `other` is known to have its headers where `first` has them only when this says so. `is_exact`:
/// identifications that nobody reads (RFC 6864: of packets that may not be fragmented) must be
/// such as come out when the super-packet is cut.
fn continues(first: &[u8], other: &[u8], chain: &Chain, is_exact: bool) -> bool {
    let Chain { parsed, count, .. } = chain;
    let network = usize::from(parsed.network_offset);
    let transport = usize::from(parsed.transport_offset);
    let payload = usize::from(parsed.payload_offset);
    let same = |range: Range<usize>| first.get(range.clone()) == other.get(range);
    let network_is_same = if parsed.network == Network::Ipv6 {
        // Version, class, label; next header and hop limit.
        same(0..network + 4) && same(network + 6..network + 8)
    } else {
        // Version, length, class; fragment bits, TTL, protocol.
        same(0..network + 2) && same(network + 6..network + 10) && {
            let id = |bytes: &[u8]| u16::from_be_bytes([bytes[network + 4], bytes[network + 5]]);
            let is_unread = first[network + 6] & 0x40 != 0 && !is_exact;
            let distance = id(other).wrapping_sub(id(first));
            distance == *count || is_unread && distance == 0
        }
    };
    // Acknowledgment and header length; ECE; window; urgent pointer and options.
    network_is_same
        && same(transport + 8..transport + 13)
        && (first[transport + 13] ^ other[transport + 13]) & flags::ECE == 0
        && same(transport + 14..transport + 16)
        && same(transport + 18..payload)
}
