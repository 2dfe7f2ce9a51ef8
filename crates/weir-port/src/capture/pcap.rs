//! The classic pcap format: a 24-byte file header, then records (draft-ietf-opsawg-pcap).

use weir_wire::frame::{Meta, Offload, Time};

use super::link::LinkType;
use super::{ByteOrder, PACKET_LEN_MAX, Step, erf};

pub(super) const FILE_HEADER_LEN: usize = 24;
const RECORD_HEADER_LEN: usize = 16;
/// Old Linux tools add interface, protocol and packet type to each record.
const MODIFIED_RECORD_HEADER_LEN: usize = 24;

pub(super) const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
pub(super) const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const MAGIC_MODIFIED: u32 = 0xa1b2_cd34;

/// The link field's flag that says its top four bits give the frame check sequence's length.
const FCS_PRESENT: u32 = 1 << 26;

/// What the file header says of the records.
#[derive(Debug)]
pub(super) struct Pcap {
    order: ByteOrder,
    fraction_ns: u64,
    record_header_len: usize,
    link_type: LinkType,
    fcs_len: u32,
}

impl Pcap {
    /// Reads the file header at the front of `head`.
    pub(super) fn from_file_header(head: &[u8]) -> Result<Self, String> {
        if head.len() < FILE_HEADER_LEN {
            return Err(match head.len() {
                0 => "the file is empty: nothing was captured".to_owned(),
                len => format!("not a capture: {len} bytes, a file header has {FILE_HEADER_LEN}"),
            });
        }
        let (order, magic) = match head[..4] {
            [0xa1, 0xb2, ..] => (ByteOrder::Big, ByteOrder::Big.u32(head, 0)),
            _ => (ByteOrder::Little, ByteOrder::Little.u32(head, 0)),
        };
        let (fraction_ns, record_header_len) = match magic {
            MAGIC_MICROSECONDS => (1000, RECORD_HEADER_LEN),
            MAGIC_NANOSECONDS => (1, RECORD_HEADER_LEN),
            MAGIC_MODIFIED => (1000, MODIFIED_RECORD_HEADER_LEN),
            _ => return Err(not_a_capture(head)),
        };
        let network = order.u32(head, 20);
        let link_type = LinkType::from_number(network as u16);
        if link_type == LinkType::Unknown {
            return Err(format!(
                "link type {} is not supported (Ethernet 1, raw IP 12/14/101/228/229, PPP 9/50, \
                 BSD loopback 0/108, SLL 113, SLL2 276, IPoIB 242, InfiniBand 247 and ERF 197 \
                 are); capture on another interface",
                network as u16
            ));
        }
        let fcs_len = if network & FCS_PRESENT != 0 { (network >> 28) * 2 } else { 0 };
        Ok(Self { order, fraction_ns, record_header_len, link_type, fcs_len })
    }

    pub(super) fn step(&mut self, bytes: &[u8]) -> Result<Step, String> {
        let start = self.record_header_len;
        if bytes.len() < start {
            return Ok(Step::Need { len: start });
        }
        let captured_len = self.order.u32(bytes, 8) as usize;
        let original_len = self.order.u32(bytes, 12);
        if captured_len > PACKET_LEN_MAX {
            return Err(format!(
                "a record claims {captured_len} bytes, more than {PACKET_LEN_MAX}: the file is \
                 damaged here; what stands before was read (pcapfix may save the rest)"
            ));
        }
        let len = start + captured_len;
        if len > bytes.len() {
            return Ok(Step::Need { len });
        }
        let seconds = u64::from(self.order.u32(bytes, 0));
        let fraction = u64::from(self.order.u32(bytes, 4));
        let time = Time(seconds * 1_000_000_000 + fraction * self.fraction_ns);
        Ok(packet(self.link_type, bytes, start, captured_len, original_len, time, self.fcs_len))
    }
}

/// The packet of `captured_len` bytes at `start` of a pcap record, which ends behind it.
fn packet(
    link_type: LinkType,
    bytes: &[u8],
    start: usize,
    captured_len: usize,
    original_len: u32,
    time: Time,
    fcs_len: u32,
) -> Step {
    let len = start + captured_len;
    match locate(link_type, bytes, start, captured_len, original_len, time, fcs_len) {
        Some((start, end, meta)) => Step::Packet { len, start, end, meta },
        None => Step::Unread { len },
    }
}

/// Where a captured packet lies in its record, told by the interface's link type.
pub(super) fn locate(
    link_type: LinkType,
    bytes: &[u8],
    start: usize,
    captured_len: usize,
    original_len: u32,
    time: Time,
    fcs_len: u32,
) -> Option<(usize, usize, Meta)> {
    let offload = Offload::default();
    match link_type {
        LinkType::Plain(link) => {
            let original_len = original_len.max(captured_len as u32).saturating_sub(fcs_len);
            let end = start + captured_len.min(original_len as usize);
            Some((start, end, Meta { time, original_len, link, offload }))
        }
        LinkType::Erf => {
            let record = erf::read(bytes.get(start..start + captured_len)?)?;
            let erf::Record { time, link, original_len, .. } = record;
            let meta = Meta { time, original_len, link, offload };
            Some((start + record.start, start + record.end, meta))
        }
        LinkType::Unknown => None,
    }
}

/// Says what the file is instead, where its first bytes tell.
fn not_a_capture(head: &[u8]) -> String {
    let packer = match head {
        [0x1f, 0x8b, ..] => Some("gzip"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some("zstd"),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => Some("xz"),
        [b'B', b'Z', b'h', ..] => Some("bzip2"),
        _ => None,
    };
    match packer {
        Some(packer) => {
            format!("compressed by {packer}: unpack it, or pipe `{packer} -dc FILE` into `-`")
        }
        None => format!(
            "not a pcap or pcapng capture (it begins {:02x} {:02x} {:02x} {:02x}); convert it with \
             `editcap -F pcapng`",
            head[0], head[1], head[2], head[3]
        ),
    }
}
