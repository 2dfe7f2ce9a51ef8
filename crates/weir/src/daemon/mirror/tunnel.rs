//! The outer headers of a copy: VXLAN (RFC 7348), ERSPAN type II and III (draft-foschiano-erspan).

use arrayvec::ArrayVec;
use weir_wire::checksum;
use weir_wire::frame::{Offload, PartialChecksum, Time};

use crate::config::settings::{MirrorTunnel, TunnelForm};

/// The longest outer header: Ethernet, IPv4, GRE with a sequence number, ERSPAN type III.
pub(super) const OUTER_LEN_MAX: usize = 14 + 20 + 8 + 12;

const IPV4_LEN: usize = 20;
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

    /// The header of the next copy: a frame of `len` bytes.
    pub(super) fn header(
        &mut self,
        len: usize,
        is_cut: bool,
        time: Time,
    ) -> ArrayVec<u8, OUTER_LEN_MAX> {
        let MirrorTunnel { form, local, remote, remote_mac, id } = self.settings;
        let mut header = ArrayVec::new();
        let mut put = |bytes: &[u8]| {
            // Its longest form fits.
            let _ = header.try_extend_from_slice(bytes);
        };
        put(&remote_mac);
        put(&self.local_mac);
        put(&0x0800u16.to_be_bytes());
        let behind = self.header_len() - ETHERNET_LEN - IPV4_LEN + len;
        let mut ip = [0; IPV4_LEN];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&((IPV4_LEN + behind) as u16).to_be_bytes());
        // Never in pieces: don't fragment.
        ip[6] = 0x40;
        ip[8] = 64;
        ip[9] = if form == TunnelForm::Vxlan { PROTOCOL_UDP } else { PROTOCOL_GRE };
        ip[12..16].copy_from_slice(&local.octets());
        ip[16..20].copy_from_slice(&remote.octets());
        let sum = checksum::ipv4_header(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        put(&ip);
        let session = (id & 0x3ff) as u16;
        let cut = if is_cut { 1u16 << 10 } else { 0 };
        match form {
            TunnelForm::Vxlan => {
                put(&VXLAN_SOURCE_PORT.to_be_bytes());
                put(&VXLAN_PORT.to_be_bytes());
                put(&(behind as u16).to_be_bytes());
                // No checksum (RFC 7348 section 5), and the flag that says that there is a number.
                put(&[0, 0, 0x08, 0, 0, 0]);
                put(&(id << 8).to_be_bytes());
            }
            TunnelForm::Erspan2 => {
                self.put_gre(ETHERTYPE_ERSPAN_2, &mut put);
                // Version 1, no VLAN, class 0, trunk bits of a frame with its tag in place.
                put(&(1u16 << 12).to_be_bytes());
                put(&(0b11 << 11 | cut | session).to_be_bytes());
                put(&[0; 4]);
            }
            TunnelForm::Erspan3 => {
                self.put_gre(ETHERTYPE_ERSPAN_3, &mut put);
                put(&(2u16 << 12).to_be_bytes());
                put(&(cut | session).to_be_bytes());
                // Units of 100 microseconds (granularity 0), which wrap in five days.
                put(&((time.0 / 100_000) as u32).to_be_bytes());
                // No security group; an Ethernet frame, no platform header.
                put(&[0; 4]);
            }
        }
        header
    }

    fn put_gre(&mut self, protocol: u16, put: &mut impl FnMut(&[u8])) {
        put(&GRE_SEQUENCE.to_be_bytes());
        put(&protocol.to_be_bytes());
        put(&self.sequence.to_be_bytes());
        self.sequence = self.sequence.wrapping_add(1);
    }
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
