//! The recorded packets' own CRCs judge ours.

use crate::captures;

use weir_wire::icrc::{self, IcrcStatus};
use weir_wire::parse::Encapsulation;

#[test]
fn every_recorded_icrc_and_vcrc_is_valid() {
    for file in captures::files() {
        let mut checked = 0;
        for (index, packet) in captures::packets(&file).iter().enumerate() {
            let parsed = packet.parsed();
            assert_eq!(parsed.fault, None, "{file:?} packet {}", index + 1);
            let Some(rdma) = parsed.rdma else { continue };
            let status = icrc::check(&packet.bytes, &parsed);
            assert_eq!(status, IcrcStatus::Valid, "{file:?} packet {}: {rdma:?}", index + 1);
            if rdma.encapsulation == Encapsulation::InfiniBand {
                let status = icrc::check_variant(&packet.bytes, &parsed);
                assert_eq!(status, IcrcStatus::Valid, "{file:?} packet {}: VCRC", index + 1);
            }
            checked += 1;
        }
        assert!(checked > 0, "{file:?} holds RDMA packets");
    }
}
