//! Connections that are being set up are told what fits the wire once it is sealed.

use weir_wire::frame::Frame;
use weir_wire::parse::{Parsed, Transport};
use weir_wire::tcp;

use crate::counters::Counters;
use crate::mtu;
use crate::peer::PeerEntry;

/// The queue pair that connection management arrives at (IBTA Vol 1 s3.9.2).
const GENERAL_SERVICES_QP: u32 = 1;

/// Lowers what a connection that is being set up may send, in both directions.
#[inline]
pub(crate) fn clamp(
    entry: &PeerEntry,
    counters: &mut Counters,
    frame: &mut Frame<'_>,
    parsed: &Parsed,
) {
    match (parsed.transport, &parsed.rdma) {
        (Transport::Tcp { flags, .. }, _) if flags & tcp::flags::SYN != 0 => {
            let ip_mtu = entry.ip_mtu(parsed);
            let partial = frame.meta.offload.checksum.is_some();
            let clamped = mtu::clamp_mss(frame.bytes_mut(), parsed, ip_mtu, partial);
            counters.mss_clamped += u64::from(clamped);
        }
        (_, Some(rdma)) if rdma.destination_qp.value() == GENERAL_SERVICES_QP => {
            let ip_mtu = entry.ip_mtu(parsed);
            let clamped = mtu::clamp_path_mtu(frame.bytes_mut(), parsed, ip_mtu);
            counters.path_mtu_clamped += u64::from(clamped);
        }
        _ => {}
    }
}
