//! The outer headers of a copy: VXLAN (RFC 7348), ERSPAN types I to III (draft-foschiano-erspan).

use arrayvec::ArrayVec;
use weir_port::mirror::{GRE_LEN, VXLAN_LEN as VXLAN_OUTER_LEN};
use weir_port::{Outer, OuterHeaders};
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
/// Of types I and II.
const ETHERTYPE_ERSPAN_2: u16 = 0x88be;
const ETHERTYPE_ERSPAN_3: u16 = 0x22eb;
/// GRE: a sequence number follows (RFC 2890).
const GRE_SEQUENCE: u16 = 0x1000;

// What differs from packet to packet.
const UDP_LEN_AT: usize = ETHERNET_LEN + IPV4_LEN + 4;
const SEQUENCE_AT: usize = ETHERNET_LEN + IPV4_LEN + 4;
const ERSPAN_AT: usize = SEQUENCE_AT + 4;
/// The byte with the bit that says that a copy was cut short, and the bit.
const TRUNCATED_AT: usize = ERSPAN_AT + 2;
const TRUNCATED: u8 = 1 << 2;
const TIME_AT: usize = ERSPAN_AT + 4;

/// Makes outer headers.
pub(super) struct Tunnel {
    settings: MirrorTunnel,
    /// The outer headers, with 0 for what differs from packet to packet.
    template: ArrayVec<u8, OUTER_LEN_MAX>,
    sequence: u32,
}

impl Tunnel {
    pub(super) fn new(settings: MirrorTunnel, local_mac: [u8; 6]) -> Self {
        Self { settings, template: template(&settings, local_mac), sequence: 0 }
    }

    pub(super) fn header_len(&self) -> usize {
        self.template.len()
    }

    /// How many segments of at most `longest` bytes may go together: one, where the outer packets
    /// are not UDP, which alone the kernel cuts so.
    pub(super) fn bundle_size(&self, longest: usize) -> usize {
        match self.settings.form {
            TunnelForm::Vxlan => (BUNDLE_LEN_MAX / (VXLAN_LEN + longest)).max(1),
            TunnelForm::Erspan1 | TunnelForm::Erspan2 | TunnelForm::Erspan3 => 1,
        }
    }

    /// The outer headers of a bundle, up to UDP's, and what they leave to the kernel. `lens`: of
    /// its segments, VXLAN header included; all equal but the last, which may be shorter.
    pub(super) fn bundle(&self, lens: &[usize]) -> (ArrayVec<u8, OUTER_LEN_MAX>, Offload) {
        let len = UDP_LEN + lens.iter().sum::<usize>();
        let mut header = self.template.clone();
        header.truncate(ETHERNET_LEN + IPV4_LEN);
        finish_ipv4(&mut header, len);
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

    /// What the kernel puts around copies, in frames of at most `len_max` bytes. `None`: they are
    /// numbered, and the kernel would give all segments of a super-packet the same number.
    pub(super) fn outer(&self, len_max: u32) -> Option<Outer> {
        let headers = match self.settings.form {
            TunnelForm::Vxlan => {
                OuterHeaders::Vxlan(*self.template.first_chunk::<VXLAN_OUTER_LEN>()?)
            }
            TunnelForm::Erspan1 => OuterHeaders::Gre(*self.template.first_chunk::<GRE_LEN>()?),
            TunnelForm::Erspan2 | TunnelForm::Erspan3 => return None,
        };
        Some(Outer { headers, len_max })
    }

    /// VXLAN's own header.
    pub(super) fn vxlan_header(&self) -> [u8; VXLAN_LEN] {
        vxlan_header(self.settings.id)
    }

    /// The header of the next copy: a frame of `len` bytes.
    pub(super) fn header(
        &mut self,
        len: usize,
        is_cut: bool,
        time: Time,
    ) -> ArrayVec<u8, OUTER_LEN_MAX> {
        let behind = self.header_len() - ETHERNET_LEN - IPV4_LEN + len;
        let mut header = self.template.clone();
        finish_ipv4(&mut header, behind);
        match self.settings.form {
            TunnelForm::Vxlan => {
                header[UDP_LEN_AT..][..2].copy_from_slice(&(behind as u16).to_be_bytes());
                return header;
            }
            TunnelForm::Erspan1 => return header,
            TunnelForm::Erspan2 | TunnelForm::Erspan3 => {}
        }
        header[SEQUENCE_AT..][..4].copy_from_slice(&self.sequence.to_be_bytes());
        self.sequence = self.sequence.wrapping_add(1);
        if is_cut {
            header[TRUNCATED_AT] |= TRUNCATED;
        }
        if self.settings.form == TunnelForm::Erspan3 {
            // Units of 100 microseconds (granularity 0), which wrap in five days.
            let time = (time.0 / 100_000) as u32;
            header[TIME_AT..][..4].copy_from_slice(&time.to_be_bytes());
        }
        header
    }
}

/// The outer headers of `settings`, from a port with `local_mac`.
fn template(settings: &MirrorTunnel, local_mac: [u8; 6]) -> ArrayVec<u8, OUTER_LEN_MAX> {
    let MirrorTunnel { form, local, remote, remote_mac, id } = *settings;
    let mut header = ArrayVec::new();
    put(&mut header, &remote_mac);
    put(&mut header, &local_mac);
    put(&mut header, &0x0800u16.to_be_bytes());
    let mut ip = [0; IPV4_LEN];
    ip[0] = 0x45;
    // Never in pieces: don't fragment.
    ip[6] = 0x40;
    ip[8] = 64;
    ip[9] = if form == TunnelForm::Vxlan { PROTOCOL_UDP } else { PROTOCOL_GRE };
    ip[12..16].copy_from_slice(&local.octets());
    ip[16..20].copy_from_slice(&remote.octets());
    put(&mut header, &ip);
    let session = (id & 0x3ff) as u16;
    let words = |header: &mut _, words: &[u16]| {
        words.iter().for_each(|it| put(header, &it.to_be_bytes()));
    };
    match form {
        TunnelForm::Vxlan => {
            // No checksum (RFC 7348 section 5).
            put(&mut header, &udp_header(0, 0));
            put(&mut header, &vxlan_header(id));
        }
        // No number, so that there is nothing behind (section 4.1).
        TunnelForm::Erspan1 => words(&mut header, &[0, ETHERTYPE_ERSPAN_2]),
        TunnelForm::Erspan2 => {
            words(&mut header, &[GRE_SEQUENCE, ETHERTYPE_ERSPAN_2, 0, 0]);
            // Version 1, no VLAN, class 0, trunk bits of a frame with its tag in place.
            words(&mut header, &[1 << 12, 0b11 << 11 | session, 0, 0]);
        }
        TunnelForm::Erspan3 => {
            words(&mut header, &[GRE_SEQUENCE, ETHERTYPE_ERSPAN_3, 0, 0]);
            // Version 2; time; no security group; an Ethernet frame, no platform header.
            words(&mut header, &[2 << 12, session, 0, 0, 0, 0]);
        }
    }
    header
}

/// Fills in length and checksum of the outer IPv4 header, before `len` bytes.
fn finish_ipv4(header: &mut [u8], len: usize) {
    let ip = &mut header[ETHERNET_LEN..][..IPV4_LEN];
    ip[2..4].copy_from_slice(&((IPV4_LEN + len) as u16).to_be_bytes());
    let sum = checksum::ipv4_header(ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// VXLAN's own header: the flag that says that there is a number, and the number.
fn vxlan_header(id: u32) -> [u8; VXLAN_LEN] {
    let id = (id << 8).to_be_bytes();
    [0x08, 0, 0, 0, id[0], id[1], id[2], id[3]]
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
