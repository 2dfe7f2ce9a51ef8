//! Management datagrams (IBTA Vol 1 s13.4): UD SENDs of 256 bytes to queue pair 0 or 1.

use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bth::{Opcode, Qpn};
use crate::parse::{Parsed, Rdma};

/// Bytes of a management datagram.
pub const MAD_LEN: usize = 256;
/// The Q_Key of queue pair 1.
pub const GENERAL_SERVICES_QUEUE_KEY: u32 = 0x8001_0000;

/// Management classes.
pub mod class {
    /// Subnet management, routed by LID.
    pub const SUBNET_LID_ROUTED: u8 = 0x01;
    /// Subnet management, directed route.
    pub const SUBNET_DIRECTED_ROUTE: u8 = 0x81;
    /// Subnet administration.
    pub const SUBNET_ADMINISTRATION: u8 = 0x03;
    /// Performance management.
    pub const PERFORMANCE: u8 = 0x04;
    /// Device management.
    pub const DEVICE: u8 = 0x06;
    /// Communication management.
    pub const COMMUNICATION: u8 = 0x07;
}

/// The header that all management datagrams start with.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct MadHeader {
    /// Version of this header: 1.
    pub base_version: u8,
    /// [`class`].
    pub management_class: u8,
    /// Version of the class.
    pub class_version: u8,
    /// Response (bit 7), method (low seven bits).
    pub method: u8,
    /// Status of the operation (directed route: direction bit, status).
    pub status: U16,
    /// By class (directed route: hop pointer, hop count).
    pub class_specific: U16,
    /// Joins request and response.
    pub transaction_id: U64,
    /// What the datagram is about, by class.
    pub attribute_id: U16,
    /// Reserved.
    pub reserved: U16,
    /// Scope of the attribute.
    pub attribute_modifier: U32,
}

impl MadHeader {
    /// Its length in bytes.
    pub const LEN: usize = 24;

    /// Whether it answers another datagram.
    #[inline]
    pub fn is_response(&self) -> bool {
        self.method & 0x80 != 0
    }
}

const _: () = assert!(size_of::<MadHeader>() == MadHeader::LEN);

/// Offset of the packet's management datagram; `None` when it has none, or not whole.
#[inline]
pub fn offset(bytes: &[u8], parsed: &Parsed) -> Option<usize> {
    let rdma = parsed.rdma.as_ref()?;
    let is_mad = is_management(rdma) && usize::from(rdma.payload_len) >= MAD_LEN;
    let start = usize::from(rdma.payload_offset);
    (is_mad && bytes.len() >= start + MAD_LEN).then_some(start)
}

/// The header of the packet's management datagram, of one too that is shorter than it has to be:
/// Linux reads such a one as if it were whole.
#[inline]
pub fn header<'a>(bytes: &'a [u8], parsed: &Parsed) -> Option<&'a MadHeader> {
    let rdma = parsed.rdma.as_ref().filter(|it| is_management(it))?;
    let payload = rdma.payload(bytes);
    MadHeader::ref_from_prefix(payload).ok().map(|it| it.0)
}

/// The packet's management datagram as its receiver reads it: what one that is shorter than it has
/// to be does not have is 0.
pub fn padded(bytes: &[u8], parsed: &Parsed) -> Option<[u8; MAD_LEN]> {
    let rdma = parsed.rdma.as_ref().filter(|it| is_management(it))?;
    let payload = rdma.payload(bytes);
    let length = payload.len().min(MAD_LEN);
    let mut datagram = [0; MAD_LEN];
    datagram[..length].copy_from_slice(&payload[..length]);
    (length >= MadHeader::LEN).then_some(datagram)
}

/// The header of the packet's management datagram, and the 232 bytes behind it.
#[inline]
pub fn mad<'a>(bytes: &'a [u8], parsed: &Parsed) -> Option<(&'a MadHeader, &'a [u8])> {
    let start = offset(bytes, parsed)?;
    MadHeader::ref_from_prefix(bytes.get(start..start + MAD_LEN)?).ok()
}

/// Whether a packet goes to a management queue pair as management datagrams do; immediate data are
/// none of theirs, and nothing to who receives them.
#[inline]
pub fn is_management(rdma: &Rdma) -> bool {
    matches!(rdma.opcode, Opcode::UD_SEND_ONLY | Opcode::UD_SEND_ONLY_IMMEDIATE)
        && matches!(rdma.destination_qp, Qpn::SUBNET_MANAGEMENT | Qpn::GENERAL_SERVICES)
}
