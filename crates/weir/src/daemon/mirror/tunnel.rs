//! The outer headers of a copy: VXLAN (RFC 7348), ERSPAN type II and III (draft-foschiano-erspan).

use arrayvec::ArrayVec;
use weir_port::mirror::VXLAN_OUTER_LEN;
use weir_wire::checksum;
use weir_wire::frame::{Offload, PartialChecksum, SegmentKind, Segmentation, Time};

use crate::config::settings::{MirrorTunnel, TunnelForm};

/// The longest outer header: Ethernet, IPv4, GRE with a sequence number, ERSPAN type III.
pub(super) const OUTER_LEN_MAX: usize = 14 + 20 + 8 + 12;

/// What is before each segment of a bundle.
const VXLAN_LEN: usize = 8;
/// What one outer super-packet may hold behind its UDP header: IPv4's limit.
const BUNDLE_LEN_MAX: usize = 0xffff - IPV4_LEN - UDP_LEN;

const IPV4_LEN: usize = 20;
const UDP_LEN: usize = 8;
const ETHERNET_LEN: usize = 14;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_GRE: u8 = 47;
const VXLAN_PORT: u16 = 4789;
/// Any: one flow, so that the analyser sees the copies in their order.
const VXLAN_SOURCE_PORT: u16 = 49_152;
const ETHERTYPE_ERSPAN_2: u16 = 0x88be;
const ETHERTYPE_ERSPAN_3: u16 = 0x22eb;
/// GRE: a sequence number follows (RFC 2890).
const GRE_SEQUENCE: u16 = 0x1000;

/// Makes outer headers.
pub(super) struct Tunnel {
    settings: MirrorTunnel,
    local_mac: [u8; 6],
    sequence: u32,
}

impl Tunnel {
    pub(super) fn new(settings: MirrorTunnel, local_mac: [u8; 6]) -> Self {
        Self { settings, local_mac, sequence: 0 }
    }

    pub(super) fn header_len(&self) -> usize {
        ETHERNET_LEN
            + IPV4_LEN
            + match self.settings.form {
                TunnelForm::Vxlan | TunnelForm::Erspan2 => 16,
                TunnelForm::Erspan3 => 20,
            }
    }

    /// How many segments of at most `longest` bytes may go together: one, where the outer packets
    /// are not UDP, which alone the kernel cuts so.
    pub(super) fn bundle_size(&self, longest: usize) -> usize {
        match self.settings.form {
            TunnelForm::Vxlan => (BUNDLE_LEN_MAX / (VXLAN_LEN + longest)).max(1),
            TunnelForm::Erspan2 | TunnelForm::Erspan3 => 1,
        }
    }

    /// The outer headers of a bundle, up to UDP's, and what they leave to the kernel. `lens`: of
    /// its segments, VXLAN header included; all equal but the last, which may be shorter.
    pub(super) fn bundle(&self, lens: &[usize]) -> (ArrayVec<u8, OUTER_LEN_MAX>, Offload) {
        let len = UDP_LEN + lens.iter().sum::<usize>();
        let mut header = self.network_header(len);
        let MirrorTunnel { local, remote, .. } = self.settings;
        let pseudo =
            checksum::pseudo_header_v4(local.octets(), remote.octets(), PROTOCOL_UDP, len as u16);
        put(&mut header, &udp_header(len, pseudo.folded()));
        let start = (ETHERNET_LEN + IPV4_LEN) as u16;
        let offload = Offload {
            checksum: Some(PartialChecksum { start, field: start + 6 }),
            segmentation: Some(Segmentation {
                kind: SegmentKind::Udp,
                segment_len: lens.first().copied().unwrap_or_default() as u16,
                header_len: start + UDP_LEN as u16,
                ecn: false,
            }),
            ..Offload::default()
        };
        (header, offload)
    }

    /// The outer headers of VXLAN, without lengths and IPv4's checksum: the kernel fills these in.
    pub(super) fn vxlan_outer(&self) -> [u8; VXLAN_OUTER_LEN] {
        let mut outer = [0; VXLAN_OUTER_LEN];
        let (network, rest) = outer.split_at_mut(ETHERNET_LEN + IPV4_LEN);
        network.copy_from_slice(&self.network_header(0));
        for field in [2, 10] {
            network[ETHERNET_LEN + field..][..2].fill(0);
        }
        rest[..UDP_LEN].copy_from_slice(&udp_header(0, 0));
        rest[UDP_LEN..].copy_from_slice(&self.vxlan_header());
        outer
    }

    /// VXLAN's own header: the flag that says that there is a number, and the number.
    pub(super) fn vxlan_header(&self) -> [u8; VXLAN_LEN] {
        let id = (self.settings.id << 8).to_be_bytes();
        [0x08, 0, 0, 0, id[0], id[1], id[2], id[3]]
    }

    /// Ethernet and IPv4 before `len` bytes.
    fn network_header(&self, len: usize) -> ArrayVec<u8, OUTER_LEN_MAX> {
        let MirrorTunnel { form, local, remote, remote_mac, .. } = self.settings;
        let mut header = ArrayVec::new();
        put(&mut header, &remote_mac);
        put(&mut header, &self.local_mac);
        put(&mut header, &0x0800u16.to_be_bytes());
        let mut ip = [0; IPV4_LEN];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&((IPV4_LEN + len) as u16).to_be_bytes());
        // Never in pieces: don't fragment.
        ip[6] = 0x40;
        ip[8] = 64;
        ip[9] = if form == TunnelForm::Vxlan { PROTOCOL_UDP } else { PROTOCOL_GRE };
        ip[12..16].copy_from_slice(&local.octets());
        ip[16..20].copy_from_slice(&remote.octets());
        let sum = checksum::ipv4_header(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        put(&mut header, &ip);
        header
    }

    /// The header of the next copy: a frame of `len` bytes.
    pub(super) fn header(
        &mut self,
        len: usize,
        is_cut: bool,
        time: Time,
    ) -> ArrayVec<u8, OUTER_LEN_MAX> {
        let MirrorTunnel { form, id, .. } = self.settings;
        let behind = self.header_len() - ETHERNET_LEN - IPV4_LEN + len;
        let mut header = self.network_header(behind);
        let session = (id & 0x3ff) as u16;
        let cut = if is_cut { 1u16 << 10 } else { 0 };
        match form {
            TunnelForm::Vxlan => {
                // No checksum (RFC 7348 section 5).
                put(&mut header, &udp_header(behind, 0));
                put(&mut header, &self.vxlan_header());
            }
            TunnelForm::Erspan2 => {
                put(&mut header, &self.gre_header(ETHERTYPE_ERSPAN_2));
                // Version 1, no VLAN, class 0, trunk bits of a frame with its tag in place.
                put(&mut header, &(1u16 << 12).to_be_bytes());
                put(&mut header, &(0b11 << 11 | cut | session).to_be_bytes());
                put(&mut header, &[0; 4]);
            }
            TunnelForm::Erspan3 => {
                put(&mut header, &self.gre_header(ETHERTYPE_ERSPAN_3));
                put(&mut header, &(2u16 << 12).to_be_bytes());
                put(&mut header, &(cut | session).to_be_bytes());
                // Units of 100 microseconds (granularity 0), which wrap in five days.
                put(&mut header, &((time.0 / 100_000) as u32).to_be_bytes());
                // No security group; an Ethernet frame, no platform header.
                put(&mut header, &[0; 4]);
            }
        }
        header
    }

    fn gre_header(&mut self, protocol: u16) -> [u8; 8] {
        let [flags, protocol] = [GRE_SEQUENCE, protocol].map(u16::to_be_bytes);
        let sequence = self.sequence.to_be_bytes();
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = [0; 8];
        header[..2].copy_from_slice(&flags);
        header[2..4].copy_from_slice(&protocol);
        header[4..].copy_from_slice(&sequence);
        header
    }
}

/// Every form fits.
fn put(header: &mut ArrayVec<u8, OUTER_LEN_MAX>, bytes: &[u8]) {
    let _ = header.try_extend_from_slice(bytes);
}

/// UDP's header; `len` counts it too.
fn udp_header(len: usize, sum: u16) -> [u8; UDP_LEN] {
    let fields = [VXLAN_SOURCE_PORT, VXLAN_PORT, len as u16, sum].map(u16::to_be_bytes);
    let mut header = [0; UDP_LEN];
    header.as_chunks_mut().0.copy_from_slice(&fields);
    header
}

/// What is left to do of a frame behind an outer header: its checksum.
pub(super) fn behind(header_len: usize, offload: Offload) -> Offload {
    let shift = header_len as u16;
    let moved = |it: PartialChecksum| PartialChecksum {
        start: it.start.saturating_add(shift),
        field: it.field.saturating_add(shift),
    };
    Offload { checksum: offload.checksum.map(moved), segmentation: None, ..offload }
}
