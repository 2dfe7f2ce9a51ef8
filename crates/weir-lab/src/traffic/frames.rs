//! The frames of kernel-bypass traffic, ready to send: real RoCE v2 captures under the lab's
//! addresses, the same packets as RoCE v1, Mireles's prebuilt frame, and an endless RoCE stream.

use std::io::Cursor;

use anyhow::{Context, Result};
use weir_port::capture::CaptureReader;
use weir_port::stream::StreamFrame;
use weir_wire::frame::Link;
use weir_wire::parse::{Encapsulation, Network, Parsed, Rdma, parse};
use weir_wire::{checksum, icrc};

use crate::topology::{HOST_MAC, HOST_V4, HOST_V6, Side};
use crate::traffic::{Kind, attack, memory};

/// Captures whose RDMA packets the demo sends (see testdata/roce/README.md).
const CAPTURES: [(&str, &[u8]); 4] = [
    ("rc-write-rdmacm.pcap", include_bytes!("../../../../testdata/roce/rc-write-rdmacm.pcap")),
    ("rc-fetch-add.pcap", include_bytes!("../../../../testdata/roce/rc-fetch-add.pcap")),
    ("ud-send.pcap", include_bytes!("../../../../testdata/roce/ud-send.pcap")),
    ("rping-ipv6-cm.pcap", include_bytes!("../../../../testdata/roce/rping-ipv6-cm.pcap")),
];

/// What follows the IPv4 header in Mireles's frames (2020, Figure 4): 64 bytes that claim to be
/// TCP, from port 2048 to port 22992. They are an ICMP echo request under protocol number 6, so the
/// TCP header is no legal one (its data offset is 0); a gateway must carry it all the same.
const MIRELES_PAYLOAD: [u8; 64] = {
    let head = [
        0x08, 0x00, 0x59, 0xd0, 0x88, 0x2c, 0x00, 0x09, 0x52, 0xae, 0x96, 0x57, 0x00, 0x00, 0x00,
        0x00, 0x62, 0x21, 0x0c, 0x00, 0x00, 0x00, 0x00, 0x00,
    ];
    let mut bytes = [0; 64];
    let mut index = 0;
    while index < 64 {
        bytes[index] = if index < head.len() { head[index] } else { (index - 8) as u8 };
        index += 1;
    }
    bytes
};

/// Source port 2048 and destination port 22992, as they stand in his frames.
pub const PREBUILT_TCP_PORTS: [u8; 4] = [0x08, 0x00, 0x59, 0xd0];

const ETHERTYPE_ROCE_V1: u16 = 0x8915;
/// The GRH's next header when a BTH follows (IBTA Vol 1 s8.3.3).
const GRH_NEXT_BTH: u8 = 0x1b;
const GRH_LEN: usize = 40;
const ETHERNET_LEN: usize = 14;
const IPV4_LEN: usize = 20;
const UDP_LEN: usize = 8;
const BTH_LEN: usize = 12;
/// Of a stream's frames.
const QPN_OFFSET: usize = ETHERNET_LEN + IPV4_LEN + UDP_LEN + 5;
const PSN_OFFSET: usize = QPN_OFFSET + 4;

/// One frame and the host that sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The host that sends it; the other one receives it.
    pub from: Side,
    /// The whole Ethernet frame.
    pub bytes: Vec<u8>,
}

/// At least `count` frames of a kernel-bypass kind. Captures are repeated until there are enough,
/// whole ones only, so that every conversation is complete.
///
/// # Errors
/// The kind is none that bypasses the kernel.
pub fn planned(kind: Kind, count: usize) -> Result<Vec<Planned>> {
    let once: Vec<Planned> = match kind {
        Kind::RoceV2 => captured_roce_v2()?,
        Kind::RoceV1 => captured_roce_v2()?.iter().filter_map(as_roce_v1).collect(),
        Kind::TcpPrebuilt => vec![Planned { from: Side::A, bytes: prebuilt_tcp() }],
        Kind::RdmaRead => return Ok(by_messages(memory::read, 1, count)),
        Kind::RdmaWrite => return Ok(by_messages(memory::write, 3, count)),
        Kind::AttackTcp => return Ok(by_messages(attack::tcp, 1, count)),
        Kind::BenignTcp => return Ok(by_messages(attack::benign_tcp, 1, count)),
        Kind::AttackRdma => return Ok(by_messages(attack::rdma, 1, count)),
        Kind::Ping | Kind::Tcp => {
            anyhow::bail!("{} goes through the hosts' kernels: no frames to plan", kind.name())
        }
    };
    let rounds = count.div_ceil(once.len().max(1));
    Ok(once.iter().cycle().take(rounds * once.len()).cloned().collect())
}

/// At least `count` frames by whole messages, each of which takes `numbers` PSNs.
fn by_messages(message: impl Fn(u32) -> Vec<Planned>, numbers: u32, count: usize) -> Vec<Planned> {
    let mut planned = Vec::new();
    let mut psn = 0;
    while planned.len() < count {
        planned.extend(message(psn));
        psn += numbers;
    }
    planned
}

/// The RDMA packets of the captures, under the lab's addresses, in their order. The host that spoke
/// first becomes host A.
fn captured_roce_v2() -> Result<Vec<Planned>> {
    let mut planned = Vec::new();
    for (name, bytes) in CAPTURES {
        let mut reader = CaptureReader::from_source(name, Cursor::new(bytes))?;
        let mut first = None;
        let mut take = |bytes: &[u8]| {
            let parsed = parse(bytes, Link::Ethernet, bytes.len() as u32);
            if parsed.rdma.is_some_and(|rdma| rdma.encapsulation == Encapsulation::RoceV2) {
                let first = *first.get_or_insert(parsed.source);
                let from = if parsed.source == first { Side::A } else { Side::B };
                planned.push(Planned { from, bytes: readdressed(bytes, &parsed, from) });
            }
        };
        while reader.next_batch(&mut |frames| frames.iter().for_each(|it| take(it.bytes())))? > 0 {}
    }
    Ok(planned)
}

/// The packet under the lab's Ethernet and IP addresses, checksums and ICRC made anew.
fn readdressed(bytes: &[u8], parsed: &Parsed, from: Side) -> Vec<u8> {
    let mut frame = bytes[..parsed.end as usize].to_vec();
    address_ethernet(&mut frame, from);
    let header = usize::from(parsed.network_offset);
    let [source, destination] = [from.index(), from.other().index()];
    if parsed.network == Network::Ipv4 {
        let end = usize::from(parsed.transport_offset);
        frame[header + 12..header + 16].copy_from_slice(&HOST_V4[source].octets());
        frame[header + 16..header + 20].copy_from_slice(&HOST_V4[destination].octets());
        frame[header + 10..header + 12].fill(0);
        let sum = checksum::ipv4_header(&frame[header..end]);
        frame[header + 10..header + 12].copy_from_slice(&sum.to_be_bytes());
    } else {
        frame[header + 8..header + 24].copy_from_slice(&HOST_V6[source].octets());
        frame[header + 24..header + 40].copy_from_slice(&HOST_V6[destination].octets());
    }
    // No UDP checksum, as RoCE senders do: the ICRC protects the packet.
    let udp = usize::from(parsed.transport_offset);
    frame[udp + 6..udp + 8].fill(0);
    complete_icrc(&mut frame);
    frame
}

/// The same transport packet as RoCE v1 (IBTA Annex A16): GRH in place of IP and UDP, its GIDs the
/// IP addresses. `None` when it is no RoCE v2 packet.
fn as_roce_v1(planned: &Planned) -> Option<Planned> {
    let parsed = parse(&planned.bytes, Link::Ethernet, planned.bytes.len() as u32);
    let Rdma { bth_offset, icrc_offset, .. } = parsed.rdma?;
    let transport = planned.bytes.get(usize::from(bth_offset)..usize::from(icrc_offset?))?;
    let payload_len = (transport.len() + icrc::ICRC_LEN) as u16;
    let mut frame = vec![0; ETHERNET_LEN];
    address_ethernet(&mut frame, planned.from);
    frame[12..14].copy_from_slice(&ETHERTYPE_ROCE_V1.to_be_bytes());
    frame.extend([0x60, 0, 0, 0]);
    frame.extend(payload_len.to_be_bytes());
    frame.extend([GRH_NEXT_BTH, 64]);
    frame.extend(parsed.source);
    frame.extend(parsed.destination);
    debug_assert_eq!(frame.len(), ETHERNET_LEN + GRH_LEN);
    frame.extend(transport);
    frame.extend([0; icrc::ICRC_LEN]);
    complete_icrc(&mut frame);
    Some(Planned { from: planned.from, bytes: frame })
}

/// Mireles's frame from host A to host B: 98 bytes.
fn prebuilt_tcp() -> Vec<u8> {
    let mut frame = vec![0; ETHERNET_LEN];
    address_ethernet(&mut frame, Side::A);
    frame[12..14].copy_from_slice(&0x0800_u16.to_be_bytes());
    frame.extend(ipv4_header(Side::A, MIRELES_PAYLOAD.len(), 6));
    frame.extend(MIRELES_PAYLOAD);
    frame
}

/// A RoCE v2 stream from host A to host B: SEND Only packets of one queue pair, PSN advancing,
/// every ICRC valid. UC unless asked otherwise, since a one-way stream gets no acknowledgments.
#[derive(Clone, Debug)]
pub struct RoceStream {
    /// With packet sequence number 0.
    first: StreamFrame,
    icrc_of_first: u32,
    frame: Vec<u8>,
    psn: u32,
    among: Option<Among>,
}

/// The queue pairs that a stream goes to in turn.
#[derive(Clone, Debug)]
struct Among {
    count: u32,
    turn: u32,
    /// What is xor-ed to the ICRC for each value of what a number's three bytes differ by.
    icrc_changes: Box<[[u32; 256]; 3]>,
}

/// Those whose turns follow each other are so far apart: neighbours in time are none in tables.
const STRIDE: u32 = 7919;

impl RoceStream {
    /// Opcodes RC and UC SEND Only (IBTA Vol 1 s9.2.1).
    const RC_SEND_ONLY: u8 = 0x04;
    const UC_SEND_ONLY: u8 = 0x24;

    /// A stream of packets with `payload_len` bytes (a multiple of 4) behind the BTH.
    ///
    /// # Errors
    /// The length is none that a RoCE MTU allows.
    pub fn new(payload_len: usize) -> Result<Self> {
        Self::with(payload_len, Self::UC_SEND_ONLY, Self::QUEUE_PAIR)
    }

    /// The same of RC to that queue pair: who looks at queue pairs follows each of its packets.
    ///
    /// # Errors
    /// As [`RoceStream::new`].
    pub fn reliable(payload_len: usize, queue_pair: u32) -> Result<Self> {
        Self::with(payload_len, Self::RC_SEND_ONLY, queue_pair)
    }

    fn with(payload_len: usize, opcode: u8, queue_pair: u32) -> Result<Self> {
        anyhow::ensure!(
            payload_len.is_multiple_of(4) && payload_len <= 4096,
            "RoCE payloads here are multiples of 4 up to 4096 bytes, not {payload_len}"
        );
        let mut frame = vec![0; ETHERNET_LEN];
        address_ethernet(&mut frame, Side::A);
        frame[12..14].copy_from_slice(&0x0800_u16.to_be_bytes());
        let udp_len = UDP_LEN + BTH_LEN + payload_len + icrc::ICRC_LEN;
        frame.extend(ipv4_header(Side::A, udp_len, 17));
        frame.extend(0xc000_u16.to_be_bytes());
        frame.extend(4791_u16.to_be_bytes());
        frame.extend((udp_len as u16).to_be_bytes());
        frame.extend([0, 0]);
        frame.extend([opcode, 0, 0xff, 0xff]);
        frame.extend(queue_pair.to_be_bytes());
        frame.extend([0, 0, 0, 0]);
        frame.extend((0..payload_len).map(|index| index as u8));
        frame.extend([0; icrc::ICRC_LEN]);
        let parsed = parse(&frame, Link::Ethernet, frame.len() as u32);
        parsed.rdma.context("a RoCE frame parses as one")?;
        let icrc_offset = frame.len() - icrc::ICRC_LEN;
        let mut icrc_of = |psn: u32| {
            frame[PSN_OFFSET..PSN_OFFSET + 3].copy_from_slice(&psn.to_be_bytes()[1..]);
            icrc::write(&mut frame, &parsed);
            let icrc = &frame[icrc_offset..];
            icrc.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
        };
        let first = icrc_of(0);
        let changes = [16, 8, 0].map(|shift| {
            std::array::from_fn(|byte| (icrc_of((byte as u32) << shift) ^ first).to_le())
        });
        icrc_of(0);
        let icrc_changes = Box::new(changes);
        let stream =
            StreamFrame { bytes: frame.clone(), psn_offset: PSN_OFFSET, icrc_offset, icrc_changes };
        Ok(Self { first: stream, icrc_of_first: first, frame, psn: 0, among: None })
    }

    /// The number of the queue pair that the stream goes to, or the first that it goes to.
    pub const QUEUE_PAIR: u32 = 0x11;

    /// The same to `count` queue pairs in turn, each with numbers of its own; at most 2^23.
    pub fn among(mut self, count: u32) -> Self {
        let mut frame = self.first.bytes.clone();
        let parsed = parse(&frame, Link::Ethernet, frame.len() as u32);
        let (first, offset) = (self.icrc_of_first, self.first.icrc_offset);
        let mut icrc_of = |differs: u32| {
            let number = Self::QUEUE_PAIR ^ differs;
            frame[QPN_OFFSET..QPN_OFFSET + 3].copy_from_slice(&number.to_be_bytes()[1..]);
            icrc::write(&mut frame, &parsed);
            frame[offset..].iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
        };
        let changes = [16, 8, 0]
            .map(|shift| std::array::from_fn(|byte| icrc_of((byte as u32) << shift) ^ first));
        let icrc_changes = Box::new(changes);
        self.among = Some(Among { count: count.clamp(1, 1 << 23), turn: 0, icrc_changes });
        self
    }

    /// The stream's first frame and how to make the others of it: CRCs are linear.
    pub fn first(&self) -> &StreamFrame {
        &self.first
    }

    /// The next frame.
    pub fn next_frame(&mut self) -> &[u8] {
        let mut frame = std::mem::take(&mut self.frame);
        self.make_next(&mut frame);
        self.frame = frame;
        &self.frame
    }

    /// Makes the next frame of `frame`, which is any frame of this stream.
    pub fn make_next(&mut self, frame: &mut [u8]) {
        let [_, high, middle, low] = self.psn.to_be_bytes();
        let mut of_queue_pair = 0;
        if let Some(Among { count, turn, icrc_changes }) = &mut self.among {
            let place = (u64::from(*turn) * u64::from(STRIDE) % u64::from(*count)) as u32;
            let number = Self::QUEUE_PAIR + place;
            frame[QPN_OFFSET..QPN_OFFSET + 3].copy_from_slice(&number.to_be_bytes()[1..]);
            let differs = (number ^ Self::QUEUE_PAIR).to_be_bytes();
            let changes = icrc_changes.iter().zip(&differs[1..]);
            of_queue_pair = changes.fold(0, |sum, (table, byte)| sum ^ table[usize::from(*byte)]);
            *turn = (*turn + 1) % *count;
            self.psn = (self.psn + u32::from(*turn == 0)) & 0xff_ffff;
        } else {
            self.psn = (self.psn + 1) & 0xff_ffff;
        }
        let [of_high, of_middle, of_low] = &*self.first.icrc_changes;
        let change =
            of_high[usize::from(high)] ^ of_middle[usize::from(middle)] ^ of_low[usize::from(low)];
        let icrc = self.icrc_of_first ^ u32::from_le(change) ^ of_queue_pair;
        frame[PSN_OFFSET..PSN_OFFSET + 3].copy_from_slice(&[high, middle, low]);
        frame[self.first.icrc_offset..].copy_from_slice(&icrc.to_le_bytes());
    }
}

pub(super) fn address_ethernet(frame: &mut [u8], from: Side) {
    frame[..6].copy_from_slice(&HOST_MAC[from.other().index()]);
    frame[6..12].copy_from_slice(&HOST_MAC[from.index()]);
}

/// From one host to the other, don't fragment, TTL 64.
pub(super) fn ipv4_header(from: Side, payload_len: usize, protocol: u8) -> [u8; IPV4_LEN] {
    let mut header = [0; IPV4_LEN];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&((IPV4_LEN + payload_len) as u16).to_be_bytes());
    header[6] = 0x40;
    header[8] = 64;
    header[9] = protocol;
    header[12..16].copy_from_slice(&HOST_V4[from.index()].octets());
    header[16..20].copy_from_slice(&HOST_V4[from.other().index()].octets());
    let sum = checksum::ipv4_header(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

pub(super) fn complete_icrc(frame: &mut [u8]) {
    let parsed = parse(frame, Link::Ethernet, frame.len() as u32);
    icrc::write(frame, &parsed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bypass_kinds() -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(|kind| kind.bypasses_kernel())
    }

    #[test]
    fn every_planned_rdma_frame_has_a_valid_icrc_and_the_lab_s_addresses() {
        let addresses = |side: Side| {
            [HOST_V4[side.index()].to_ipv6_mapped().octets(), HOST_V6[side.index()].octets()]
        };
        for kind in [Kind::RoceV2, Kind::RoceV1, Kind::RdmaRead, Kind::RdmaWrite, Kind::AttackRdma]
        {
            for Planned { from, bytes } in planned(kind, 1).expect("it bypasses the kernel") {
                let parsed = parse(&bytes, Link::Ethernet, bytes.len() as u32);
                assert_eq!(icrc::check(&bytes, &parsed), icrc::IcrcStatus::Valid);
                assert!(addresses(from).contains(&parsed.source));
                assert!(addresses(from.other()).contains(&parsed.destination));
                assert_eq!(parsed.link.source.0, HOST_MAC[from.index()]);
            }
        }
    }

    #[test]
    fn plans_hold_at_least_what_was_asked_for_and_whole_captures() {
        for kind in bypass_kinds() {
            let once = planned(kind, 1).expect("planned").len();
            let more = planned(kind, 1000).expect("planned").len();
            assert!(more >= 1000 && more.is_multiple_of(once), "{}: {more}", kind.name());
        }
    }

    #[test]
    fn the_captures_hold_both_directions_and_ipv6() {
        let frames = planned(Kind::RoceV2, 1).expect("planned");
        let of = |side: Side| frames.iter().filter(|frame| frame.from == side).count();
        assert!(of(Side::A) > 100 && of(Side::B) > 50, "{} and {}", of(Side::A), of(Side::B));
        assert!(frames.iter().any(|frame| frame.bytes[12..14] == [0x86, 0xdd]), "no IPv6");
        assert_eq!(frames.len(), planned(Kind::RoceV1, 1).expect("planned").len());
    }

    #[test]
    fn mireles_s_frame_is_the_one_of_his_figure_4() {
        let frame = &planned(Kind::TcpPrebuilt, 1).expect("planned")[0].bytes;
        assert_eq!(frame.len(), 98);
        assert_eq!(frame[ETHERNET_LEN..ETHERNET_LEN + 4], [0x45, 0, 0, 0x54]);
        assert_eq!(frame[0x22..0x26], [0x08, 0x00, 0x59, 0xd0], "ports 2048 and 22992");
        assert_eq!(frame[0x60..], [0x36, 0x37], "its last bytes");
    }

    #[test]
    fn the_kernel_s_stream_is_the_same_stream() {
        let mut stream = RoceStream::new(68).expect("a multiple of 4");
        let StreamFrame { bytes, psn_offset, icrc_offset, icrc_changes } = stream.first().clone();
        let word = |at: usize| u32::from_ne_bytes(*bytes[at..].first_chunk().expect("4 bytes"));
        for psn in [0, 1, 0x12_3456, 0xff_ffff] {
            stream.psn = psn;
            let expected = stream.next_frame();
            let [_, high, middle, low] = psn.to_be_bytes().map(usize::from);
            let [one, two, three] = &*icrc_changes;
            let icrc = word(icrc_offset) ^ one[high] ^ two[middle] ^ three[low];
            assert_eq!(expected[icrc_offset..], icrc.to_ne_bytes(), "{psn:#x}");
            assert_eq!(expected[psn_offset..psn_offset + 3], psn.to_be_bytes()[1..]);
        }
    }

    #[test]
    fn a_stream_among_queue_pairs_goes_to_each_under_the_next_number_of_it() {
        const COUNT: u32 = 70_000;
        let mut stream = RoceStream::new(68).expect("a multiple of 4").among(COUNT);
        let mut seen = vec![0u32; COUNT as usize];
        for turn in 0..2 * COUNT {
            let bytes = stream.next_frame();
            let parsed = parse(bytes, Link::Ethernet, bytes.len() as u32);
            let rdma = parsed.rdma.expect("RDMA");
            let place = rdma.destination_qp.value() - RoceStream::QUEUE_PAIR;
            assert_eq!(rdma.psn.value(), seen[place as usize], "{turn}");
            seen[place as usize] += 1;
            if turn % 997 == 0 {
                assert_eq!(icrc::check(bytes, &parsed), icrc::IcrcStatus::Valid, "{turn}");
            }
        }
        assert!(seen.iter().all(|it| *it == 2));
    }

    #[test]
    fn a_stream_s_psn_advances_and_its_icrc_follows() {
        let mut stream = RoceStream::new(1024).expect("a RoCE MTU");
        for psn in [0, 1, 0x12_3456, 0xff_ffff] {
            stream.psn = psn;
            let bytes = stream.next_frame();
            let parsed = parse(bytes, Link::Ethernet, bytes.len() as u32);
            assert_eq!(parsed.rdma.expect("RDMA").psn.value(), psn);
            assert_eq!(icrc::check(bytes, &parsed), icrc::IcrcStatus::Valid);
            assert_eq!(bytes.len(), 14 + 20 + 8 + 12 + 1024 + 4);
        }
        assert_eq!(stream.psn, 0, "it wraps");
        assert!(RoceStream::new(4100).is_err());
    }
}
