//! The invariant CRC of RDMA packets (IBTA Vol 1 s7.8.1; Annexes A16, A17) and native
//! InfiniBand's variant CRC (s7.8.2).
//!
//! The ICRC covers everything from the network header to the padding, with the fields that
//! routers change taken as ones. It is told where to begin by [`Parsed`]; the bytes behind the
//! BTH may come in pieces, so that a packet that lies scattered is never copied together.

use crate::bth::Bth;
use crate::grh::Grh;
use crate::ip::{Ipv4Header, Ipv6Header};
use crate::lrh::Lrh;
use crate::parse::{Encapsulation, Network, Parsed, Rdma};
use crate::udp::UdpHeader;

/// Bytes of an ICRC.
pub const ICRC_LEN: usize = 4;
/// Bytes of a VCRC.
pub const VCRC_LEN: usize = 2;

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IcrcStatus {
    /// The packet holds the right ICRC.
    Valid,
    /// It holds another.
    Invalid,
    /// Not an RDMA packet, a fragment, or a capture cut short: nothing to compare.
    Unchecked,
}

/// An ICRC under way: headers masked and taken in, the rest still to come.
#[derive(Clone, Debug)]
pub struct Icrc(crc32fast::Hasher);

impl Icrc {
    /// Takes in the headers of `bytes` through the BTH; give [`Icrc::update`] what follows, from
    /// [`Icrc::body_offset`] to the ICRC. `None` when `parsed` is not RDMA, or a fragment.
    #[inline]
    pub fn begin(bytes: &[u8], parsed: &Parsed) -> Option<Self> {
        let rdma = parsed.rdma.as_ref()?;
        if parsed.fragment.is_some() {
            return None;
        }
        let mut headers = Headers::new();
        match (rdma.encapsulation, parsed.network) {
            (Encapsulation::RoceV2, _) => headers.take_roce_v2(bytes, parsed)?,
            (_, Network::Grh) => headers.take_global(bytes, parsed)?,
            _ => headers.take_local(bytes)?,
        }
        headers.take_bth(bytes, rdma)?;
        Some(Self(headers.finish()))
    }

    /// Offset of the first byte that [`Icrc::update`] wants: behind the BTH.
    #[inline]
    pub fn body_offset(rdma: &Rdma) -> usize {
        usize::from(rdma.bth_offset) + Bth::LEN
    }

    /// Takes in the next bytes.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The ICRC in wire order.
    #[inline]
    pub fn finish(self) -> [u8; ICRC_LEN] {
        self.0.finalize().to_le_bytes()
    }
}

/// The ICRC that `bytes` should hold, in wire order; `None` where there is nothing to compare.
#[inline]
pub fn computed(bytes: &[u8], parsed: &Parsed) -> Option<[u8; ICRC_LEN]> {
    let rdma = parsed.rdma.as_ref()?;
    let body = bytes.get(Icrc::body_offset(rdma)..usize::from(rdma.icrc_offset?))?;
    let mut icrc = Icrc::begin(bytes, parsed)?;
    icrc.update(body);
    Some(icrc.finish())
}

/// The ICRC that `bytes` holds, in wire order.
#[inline]
pub fn present(bytes: &[u8], parsed: &Parsed) -> Option<[u8; ICRC_LEN]> {
    let offset = usize::from(parsed.rdma.as_ref()?.icrc_offset?);
    bytes.get(offset..)?.first_chunk().copied()
}

/// Compares the ICRC of a packet with its bytes.
#[inline]
pub fn check(bytes: &[u8], parsed: &Parsed) -> IcrcStatus {
    match (computed(bytes, parsed), present(bytes, parsed)) {
        (Some(computed), Some(present)) if computed == present => IcrcStatus::Valid,
        (Some(_), Some(_)) => IcrcStatus::Invalid,
        _ => IcrcStatus::Unchecked,
    }
}

/// Writes the right ICRC into a packet whose covered bytes changed; says whether there was one to
/// write.
pub fn write(bytes: &mut [u8], parsed: &Parsed) -> bool {
    let Some(icrc) = computed(bytes, parsed) else { return false };
    let Some(offset) = parsed.rdma.and_then(|rdma| rdma.icrc_offset) else { return false };
    match bytes.get_mut(usize::from(offset)..).and_then(|rest| rest.first_chunk_mut()) {
        Some(field) => {
            *field = icrc;
            true
        }
        None => false,
    }
}

/// The variant CRC of a native packet (LRH through ICRC), in wire order.
///
/// CRC-16 with polynomial 0x100B, reflected, all ones at start and end. Rarely needed, so table
/// and speed are plain.
pub fn variant_crc(packet: &[u8]) -> [u8; VCRC_LEN] {
    let mut crc = 0xffff_u16;
    for byte in packet {
        crc = (crc >> 8) ^ VCRC_TABLE[usize::from((crc as u8) ^ byte)];
    }
    (!crc).to_le_bytes()
}

/// Compares the VCRC of a native packet with its bytes.
pub fn check_variant(bytes: &[u8], parsed: &Parsed) -> IcrcStatus {
    let is_native = matches!(
        parsed.rdma,
        Some(Rdma { encapsulation: Encapsulation::InfiniBand, icrc_offset: Some(_), .. })
    );
    match bytes.split_at_checked(parsed.end as usize) {
        Some((packet, [first, second, ..])) if is_native => {
            if variant_crc(packet) == [*first, *second] {
                IcrcStatus::Valid
            } else {
                IcrcStatus::Invalid
            }
        }
        _ => IcrcStatus::Unchecked,
    }
}

const VCRC_TABLE: [u16; 256] = {
    const POLYNOMIAL_REFLECTED: u16 = 0x100b_u16.reverse_bits();
    let mut table = [0; 256];
    let mut index = 0;
    while index < table.len() {
        let mut value = index as u16;
        let mut bit = 0;
        while bit < 8 {
            value = (value >> 1) ^ (if value & 1 != 0 { POLYNOMIAL_REFLECTED } else { 0 });
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
};

/// Network headers through BTH with their variant fields as ones, gathered so that the CRC runs
/// over them in one go: it costs less than four runs over a few bytes each.
struct Headers {
    bytes: [u8; Headers::CAPACITY],
    len: usize,
    crc: crc32fast::Hasher,
}

impl Headers {
    /// An LRH's place, a GRH or IPv6 header, UDP, BTH.
    const CAPACITY: usize = Lrh::LEN + Ipv6Header::LEN + UdpHeader::LEN + Bth::LEN;

    #[inline]
    fn new() -> Self {
        Self { bytes: [0xff; Self::CAPACITY], len: 0, crc: crc32fast::Hasher::new() }
    }

    /// Appends `N` bytes and gives them to be masked.
    #[inline]
    fn push<const N: usize>(&mut self, bytes: &[u8], offset: usize) -> Option<&mut [u8; N]> {
        let source = bytes.get(offset..)?.first_chunk::<N>()?;
        let place = self.bytes.get_mut(self.len..)?.first_chunk_mut::<N>()?;
        *place = *source;
        self.len += N;
        Some(place)
    }

    /// An LRH's place filled with ones: what stands before a network header that routers change.
    #[inline]
    fn push_ones(&mut self) {
        self.len += Lrh::LEN;
    }

    #[inline]
    fn take_roce_v2(&mut self, bytes: &[u8], parsed: &Parsed) -> Option<()> {
        let network = usize::from(parsed.network_offset);
        let transport = usize::from(parsed.transport_offset);
        self.push_ones();
        let behind = if parsed.network == Network::Ipv4 {
            let ip: &mut [u8; Ipv4Header::LEN] = self.push(bytes, network)?;
            ip[1] = 0xff; // DSCP and ECN
            ip[8] = 0xff; // TTL
            ip[10..12].fill(0xff); // header checksum
            network + Ipv4Header::LEN
        } else {
            mask_flow(self.push(bytes, network)?);
            network + Ipv6Header::LEN
        };
        // Options and extension headers: as they are, however long.
        let options = bytes.get(behind..transport)?;
        if !options.is_empty() {
            self.crc.update(&self.bytes[..self.len]);
            self.crc.update(options);
            self.len = 0;
        }
        let udp: &mut [u8; UdpHeader::LEN] = self.push(bytes, transport)?;
        udp[6..8].fill(0xff); // checksum
        Some(())
    }

    /// A GRH; an LRH before it counts as ones, as does its absence in RoCE v1.
    #[inline]
    fn take_global(&mut self, bytes: &[u8], parsed: &Parsed) -> Option<()> {
        self.push_ones();
        mask_flow(self.push(bytes, usize::from(parsed.network_offset))?);
        Some(())
    }

    #[inline]
    fn take_local(&mut self, bytes: &[u8]) -> Option<()> {
        let lrh: &mut [u8; Lrh::LEN] = self.push(bytes, 0)?;
        lrh[0] |= 0xf0; // virtual lane
        Some(())
    }

    #[inline]
    fn take_bth(&mut self, bytes: &[u8], rdma: &Rdma) -> Option<()> {
        let bth: &mut [u8; Bth::LEN] = self.push(bytes, usize::from(rdma.bth_offset))?;
        bth[4] = 0xff; // FECN, BECN, reserved
        Some(())
    }

    #[inline]
    fn finish(mut self) -> crc32fast::Hasher {
        self.crc.update(&self.bytes[..self.len]);
        self.crc
    }
}

/// Traffic class, flow label and hop limit of a GRH or IPv6 header as ones.
#[inline]
fn mask_flow(header: &mut [u8; Grh::LEN]) {
    header[0] |= 0x0f;
    header[1..4].fill(0xff);
    header[7] = 0xff;
}
