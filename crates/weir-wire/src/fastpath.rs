//! What the fast path's kernel program shares with the gateway: the keys and values of its maps.
//!
//! `weir-port/bpf/fastpath.h` says the same in C; a test has clang compare the two. All numbers are
//! in host byte order.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::bth::{Extension, Opcode, Qpn, Service};
use crate::parse::{Encapsulation, Network, Parsed, Rdma, Transport};
use crate::udp::{PORT_ESP, PORT_GENEVE, PORT_VXLAN};
use crate::{ext, ip::protocol};

/// Classes of opcodes that are counted apart.
pub const CLASSES: usize = 7;
/// Workers of a pair, at most.
pub const WORKERS_MAX: usize = 16;
/// Causes of a NAK that are counted apart; reserved ones share the last.
pub const NAK_CAUSES: usize = 6;
/// R_Keys that a slot holds between two readings.
pub const REMOTE_KEYS: usize = 4;
/// Bytes of a packet that an event holds, at most.
pub const EVENT_BYTES: usize = 160;
/// Bytes of a packet that a head holds, at most: all headers of an RDMA packet, and a connection
/// manager's datagram whole.
pub const HEAD_BYTES: usize = 384;
/// Set in a slot's sequence numbers once one was seen.
pub const STARTED: u32 = 1 << 31;
/// [`Slot::last_admitted`] before the first.
pub const NONE: u64 = u64::MAX;
/// The program carries nothing once the gateway has been silent for so long, in nanoseconds.
pub const LEASE_NS: u64 = 1_000_000_000;

/// Set in [`Key::source_qp`] where a datagram names its sender.
const HAS_SOURCE_QP: u32 = 1 << 24;

/// [`Key::kind`].
pub mod kind {
    /// TCP or UDP, told by its ports.
    pub const PORTS: u8 = 0;
    /// RoCE v1, told by its destination queue pair.
    pub const ROCE_V1: u8 = 1;
    /// RoCE v2, likewise: its UDP source port is no part of the key, so that all packets to a
    /// queue pair go one way.
    pub const ROCE_V2: u8 = 2;
}

/// What an event tells ([`Event::kinds`]).
pub mod event {
    /// A negative acknowledgment.
    pub const NAK: u32 = 1 << 0;
    /// A congestion notification.
    pub const CONGESTION: u32 = 1 << 1;
    /// A request that was not the next one.
    pub const REQUEST_PSN: u32 = 1 << 3;
    /// A READ or atomic response that was not the next one.
    pub const RESPONSE_PSN: u32 = 1 << 4;
    /// A UDP source port other than the queue pair's first packets had.
    pub const SOURCE_PORT: u32 = 1 << 5;
    /// A packet that shows the path MTU, which was not known.
    pub const PATH_MTU: u32 = 1 << 6;
}

/// What an opcode means to the program, beside lengths and places in the lower bits
/// (`weir_engine::fastpath::opcode_words`).
pub mod opcode_flag {
    /// A request with a number in the request stream.
    pub const REQUEST: u32 = 1 << 20;
    /// A READ or atomic response, with a number in the response stream.
    pub const RESPONSE: u32 = 1 << 21;
    /// The last packet of a request.
    pub const ENDS_MESSAGE: u32 = 1 << 22;
    /// An AETH comes first.
    pub const SYNDROME: u32 = 1 << 23;
    /// Its payload is as long as the path MTU.
    pub const FULL: u32 = 1 << 24;
    /// A DETH comes first.
    pub const DATAGRAM: u32 = 1 << 25;
    /// A READ request: it takes the numbers of all its responses.
    pub const READ: u32 = 1 << 26;
    /// Left to the gateway, whatever flow it belongs to.
    pub const SLOW: u32 = 1 << 27;
}

/// One direction of a flow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Key {
    /// As [`Parsed::source`].
    pub source: [u8; 16],
    /// As [`Parsed::destination`].
    pub destination: [u8; 16],
    /// Outer VLAN identifier in bits 12-23, inner in 0-11; zero where there is no tag.
    pub vlans: u32,
    /// RoCE: the queue pair it is for.
    pub destination_qp: u32,
    /// RoCE datagrams: the queue pair it is from, and a bit that says so.
    pub source_qp: u32,
    /// TCP and UDP: source port.
    pub source_port: u16,
    /// TCP and UDP: destination port.
    pub destination_port: u16,
    /// TCP and UDP: which, by its IP protocol number.
    pub protocol: u8,
    /// See [`kind`].
    pub kind: u8,
    /// The port it comes in by: 0 the host's, 1 the wire's.
    pub side: u8,
    /// Zero.
    pub zero: u8,
}

/// Packets and bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Volume {
    /// Packets.
    pub packets: u64,
    /// Bytes on the link.
    pub bytes: u64,
}

/// One direction's state and counters. Counters only grow while the slot is in use, but for those
/// that [`Slot`] says are taken.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Slot {
    /// The policy it was made under; void under any other.
    pub epoch: u32,
    /// Bytes of payload per packet; zero while it is not known.
    pub path_mtu: u32,
    /// RoCE v2: the UDP source port.
    pub source_port: u32,
    /// Not zero: its packets are carried.
    pub is_fast: u32,
    /// Before it is fast: the number of its latest frame among those that its port let up to the
    /// gateway ([`Control::admitted`]); [`NONE`] while no frame has met the slot.
    pub last_admitted: u64,
    /// When its latest packet came (CLOCK_MONOTONIC).
    pub last_ns: u64,
    /// Frames; a super-packet is one.
    pub frames: u64,
    /// Packets.
    pub packets: u64,
    /// Bytes on the link.
    pub bytes: u64,
    /// Packets marked Congestion Experienced in the IP header.
    pub ecn_marked: u64,
    /// RDMA packets marked there or by FECN.
    pub marked: u64,
    /// RoCE v2: of `packets`, those with another UDP source port.
    pub foreign_packets: u64,
    /// Their bytes.
    pub foreign_bytes: u64,
    /// RDMA payload bytes.
    pub payload_bytes: u64,
    /// Messages ended by packets that were the next in their stream.
    pub messages: u64,
    /// By class of opcode.
    pub classes: [Volume; CLASSES],
    /// By cause.
    pub naks: [u32; NAK_CAUSES],
    /// Receiver-not-ready answers.
    pub rnr_naks: u32,
    /// Congestion notifications.
    pub cnp: u32,
    /// R_Keys used since they were last taken.
    pub remote_keys: [u32; REMOTE_KEYS],
    /// How many of them; one more than there is room for: there were others. Taken.
    pub remote_key_count: u32,
    /// All TCP flags, or-ed. Taken.
    pub tcp_flags: u32,
    /// The next number of the request stream, with [`STARTED`].
    pub request_next: u32,
    /// The next number of the response stream, with [`STARTED`].
    pub response_next: u32,
    /// Q_Key of the latest datagram.
    pub queue_key: u32,
    /// Partition key of the latest packet.
    pub partition_key: u16,
    /// DSCP and ECN of the latest packet.
    pub traffic_class: u8,
    /// Zero.
    pub zero: u8,
}

/// What the gateway and the program tell each other about everything.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Control {
    /// When the gateway was last alive (CLOCK_MONOTONIC); see [`LEASE_NS`].
    pub lease_ns: u64,
    /// By side: of the frames admitted, this many have left, the first to the last of them.
    pub departed: [u64; 2],
    /// The policy in force; zero: nothing is carried.
    pub epoch: u32,
    /// Not zero: the [`Head`] of every carried frame is wanted.
    pub wants_heads: u32,
    /// Events that found no room.
    pub events_lost: u64,
    /// Heads that found no room.
    pub heads_lost: u64,
    /// Zero.
    pub apart: [u64; 2],
    /// By side: frames that the program let up to the gateway's socket.
    pub admitted: [Count; 2],
}

/// A counter on a cache line of its own: every frame on the slow path changes it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Count {
    /// Frames.
    pub frames: u64,
    /// Zero.
    pub apart: [u64; 7],
}

/// The headers of a carried packet that says more than counters can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Event {
    /// When it was carried (CLOCK_MONOTONIC).
    pub now_ns: u64,
    /// Its flow's slot.
    pub slot: u32,
    /// See [`event`].
    pub kinds: u32,
    /// The sequence number that was due, with [`STARTED`].
    pub expected: u32,
    /// Bytes of the frame on the link; `bytes` may lack a VLAN tag, which the flow's key has.
    pub wire_len: u32,
    /// Packets that it stands for.
    pub segments: u32,
    /// Bytes of it in `bytes`.
    pub captured_len: u32,
    /// The first of them.
    pub bytes: [u8; EVENT_BYTES],
}

/// The beginning of a carried frame, for the evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Head {
    /// When it was carried (CLOCK_MONOTONIC).
    pub now_ns: u64,
    /// Bytes of the frame on the link, a super-packet's all.
    pub wire_len: u32,
    /// Bytes of it in `bytes`.
    pub captured_len: u32,
    /// EtherType of the VLAN tag that `bytes` lacks; zero: it lacks none.
    pub vlan_protocol: u16,
    /// That tag's priority and identifier.
    pub vlan_tci: u16,
    /// The port it came in by: 0 the host's, 1 the wire's.
    pub side: u32,
    /// The first bytes of the frame.
    pub bytes: [u8; HEAD_BYTES],
}

impl Head {
    /// The frame's first bytes as on the link: with its VLAN tag, put back in `room`.
    pub fn frame<'a>(&'a self, room: &'a mut [u8; HEAD_BYTES + 4]) -> &'a [u8] {
        const MACS_LEN: usize = 12;
        let bytes = self.bytes.get(..self.captured_len as usize).unwrap_or(&self.bytes);
        if self.vlan_protocol == 0 || bytes.len() < MACS_LEN {
            return bytes;
        }
        let (macs, behind) = bytes.split_at(MACS_LEN);
        room[..MACS_LEN].copy_from_slice(macs);
        room[MACS_LEN..MACS_LEN + 2].copy_from_slice(&self.vlan_protocol.to_be_bytes());
        room[MACS_LEN + 2..MACS_LEN + 4].copy_from_slice(&self.vlan_tci.to_be_bytes());
        room[MACS_LEN + 4..bytes.len() + 4].copy_from_slice(behind);
        &room[..bytes.len() + 4]
    }
}

impl Event {
    /// The bytes that are there.
    pub fn captured(&self) -> &[u8] {
        self.bytes.get(..self.captured_len as usize).unwrap_or(&self.bytes)
    }
}

impl Key {
    /// The key of a frame that came in by `side` (0 host, 1 wire) and may be carried; `None` when
    /// the gateway itself has to look at each of its kind: groups, fragments, tunnels, connection
    /// management, anything but TCP, UDP and RoCE, and whatever contradicts itself. The kernel
    /// program decides alike.
    pub fn of(parsed: &Parsed, bytes: &[u8], side: u8) -> Option<Self> {
        let link = &parsed.link;
        let is_odd = parsed.fault.is_some() || parsed.fragment.is_some() || parsed.tunnel.is_some();
        if is_odd || link.destination.is_multicast() {
            return None;
        }
        let vlans = match link.vlan_count {
            0 => 0,
            1 => u32::from(link.vlan_tci[0] & 0xfff) << 12,
            _ => u32::from(link.vlan_tci[0] & 0xfff) << 12 | u32::from(link.vlan_tci[1] & 0xfff),
        };
        let (source, destination) = (parsed.source, parsed.destination);
        let key = Self { source, destination, vlans, side, ..Self::default() };
        match &parsed.rdma {
            Some(rdma) => key.with_queue_pair(parsed, rdma, bytes),
            None => key.with_ports(parsed, bytes),
        }
    }

    fn with_queue_pair(mut self, parsed: &Parsed, rdma: &Rdma, bytes: &[u8]) -> Option<Self> {
        const QP_SERVICES_MAX: u32 = 1;
        self.kind = match rdma.encapsulation {
            Encapsulation::RoceV1 => kind::ROCE_V1,
            Encapsulation::RoceV2 => kind::ROCE_V2,
            Encapsulation::InfiniBand => return None,
        };
        if self.kind == kind::ROCE_V2 && !is_direct(parsed, bytes) || is_slow(rdma.opcode) {
            return None;
        }
        if rdma.destination_qp.value() <= QP_SERVICES_MAX || rdma.destination_qp == Qpn::MULTICAST {
            return None;
        }
        self.destination_qp = rdma.destination_qp.value();
        if rdma.opcode.service() == Service::UnreliableDatagram {
            self.source_qp = ext::deth(bytes, rdma)?.source_qp().value() | HAS_SOURCE_QP;
        }
        Some(self)
    }

    fn with_ports(mut self, parsed: &Parsed, bytes: &[u8]) -> Option<Self> {
        (self.source_port, self.destination_port, self.protocol) = match parsed.transport {
            Transport::Tcp { source, destination, .. } => (source, destination, protocol::TCP),
            Transport::Udp { source, destination } => (source, destination, protocol::UDP),
            _ => return None,
        };
        let carries_more = self.protocol == protocol::UDP
            && (matches!(self.destination_port, PORT_VXLAN | PORT_GENEVE | PORT_ESP)
                || self.source_port == PORT_ESP);
        (is_direct(parsed, bytes) && !carries_more).then_some(self)
    }

    /// All of it, to be hashed.
    pub fn words(&self) -> [u64; size_of::<Key>().div_ceil(8)] {
        let mut words = [0; size_of::<Key>().div_ceil(8)];
        for (word, bytes) in words.iter_mut().zip(self.as_bytes().chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(whole);
        }
        words
    }

    /// The queue pair it is from, for datagrams.
    pub fn source_qp(&self) -> Option<Qpn> {
        (self.source_qp & HAS_SOURCE_QP != 0).then(|| Qpn::new(self.source_qp & 0xff_ffff))
    }
}

/// Whether the transport header stands right behind the IP header: no extension header, no AH.
fn is_direct(parsed: &Parsed, bytes: &[u8]) -> bool {
    let next_header = match parsed.network {
        Network::Ipv4 => 9,
        Network::Ipv6 => 6,
        _ => return false,
    };
    bytes.get(usize::from(parsed.network_offset) + next_header) == Some(&parsed.protocol)
}

/// Opcodes that are left to the gateway: reliable datagrams, and datagrams without their header.
pub const fn is_slow(opcode: Opcode) -> bool {
    match opcode.service() {
        Service::ReliableDatagram => true,
        Service::UnreliableDatagram => !opcode.carries(Extension::Deth),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_as_on_the_link_with_the_tag_that_the_kernel_took_out() {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..16].copy_from_slice(&[1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 8, 0, 0x45, 0]);
        let bare = Head {
            now_ns: 1,
            wire_len: 16,
            captured_len: 16,
            vlan_protocol: 0,
            vlan_tci: 0,
            side: 0,
            bytes,
        };
        let mut room = [0; HEAD_BYTES + 4];
        assert_eq!(bare.frame(&mut room), &bytes[..16]);
        let tagged = Head { vlan_protocol: 0x8100, vlan_tci: 0x6005, ..bare };
        let expected = [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0x81, 0, 0x60, 5, 8, 0, 0x45, 0];
        assert_eq!(tagged.frame(&mut room), expected);
        let longest = Head { captured_len: HEAD_BYTES as u32, ..tagged };
        assert_eq!(longest.frame(&mut room).len(), HEAD_BYTES + 4);
        let impossible = Head { captured_len: u32::MAX, ..tagged };
        assert_eq!(impossible.frame(&mut room).len(), HEAD_BYTES + 4);
    }
}
