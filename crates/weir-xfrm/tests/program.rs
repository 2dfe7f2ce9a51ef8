//! What we write for a kernel is what iproute2 6.1 writes, byte for byte: its requests are kept in
//! the fuzz target's corpus.

use std::path::Path;

use weir_xfrm::program::{
    self, Association, Bound, Installed, OFFLOAD_INBOUND, OFFLOAD_PACKET, PolicyRequest, offloaded,
};
use weir_xfrm::uapi::{DIRECTION_OUT, MODE_TUNNEL, Offload};

/// The kept request of this place, and its sequence number.
fn kept(name: &str, place: usize) -> (Vec<u8>, u32) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/xfrm");
    let bytes = std::fs::read(folder.join(name)).unwrap();
    let mut rest = &bytes[..];
    for _ in 0..place {
        rest = &rest[2 + usize::from(u16::from_ne_bytes([rest[0], rest[1]]))..];
    }
    let datagram = &rest[2..][..u16::from_ne_bytes([rest[0], rest[1]]).into()];
    (datagram.to_vec(), u32::from_ne_bytes(datagram[8..12].try_into().unwrap()))
}

fn association<'a>(ends: [&str; 2], spi: u32, keying_material: &'a [u8]) -> Association<'a> {
    Association {
        ends: ends.map(|it| it.parse().unwrap()),
        spi,
        request: 1,
        mode: MODE_TUNNEL,
        keying_material,
        extended_window: None,
        offload: None,
        bound: None,
    }
}

const A: &str = "192.0.2.1";
const B: &str = "192.0.2.2";

#[test]
fn an_association_is_written_as_ip_xfrm_writes_it() {
    let (written, sequence) = kept("tunnel", 0);
    assert_eq!(association([A, B], 0x2001, &[0x11; 20]).install(sequence), written);
    let (written, sequence) = kept("tunnel", 1);
    let extended =
        Association { extended_window: Some(64), ..association([B, A], 0x2002, &[0x22; 36]) };
    assert_eq!(extended.install(sequence), written);
}

#[test]
fn an_offloaded_association_is_written_as_ip_xfrm_offload_dev_writes_it() {
    let (written, sequence) = kept("refused", 7);
    let offload = Offload { interface: 1, ..Offload::default() };
    let wanted = Association { offload: Some(offload), ..association([A, B], 0x6004, &[0x11; 20]) };
    let ours = wanted.install(sequence);
    let sorted = |bytes: &[u8]| {
        let mut all: Vec<_> = weir_xfrm::netlink::attributes(&bytes[240..])
            .map(|(kind, value)| (kind, value.to_vec()))
            .collect();
        all.sort();
        all
    };
    assert_eq!(ours[..240], written[..240], "the head");
    assert_eq!(sorted(&ours), sorted(&written), "the attributes");
    assert_eq!(ours, written, "and their order");
}

#[test]
fn a_policy_is_written_as_ip_xfrm_writes_it() {
    let (written, sequence) = kept("tunnel", 2);
    let policy = PolicyRequest {
        networks: [("10.0.0.0".parse().unwrap(), 24), ("10.0.1.0".parse().unwrap(), 24)],
        direction: DIRECTION_OUT,
        ends: [A.parse().unwrap(), B.parse().unwrap()],
        request: 1,
        spi: None,
        mode: MODE_TUNNEL,
        offload: None,
        interface: None,
    };
    assert_eq!(policy.install(sequence), written);
}

#[test]
fn listed_policies_of_an_xfrm_interface_are_removed_by_what_names_them() {
    let policy = PolicyRequest {
        networks: [("0.0.0.0".parse().unwrap(), 0), ("10.2.0.0".parse().unwrap(), 24)],
        direction: DIRECTION_OUT,
        ends: [A.parse().unwrap(), B.parse().unwrap()],
        request: 7,
        spi: None,
        mode: MODE_TUNNEL,
        offload: Some(Offload { interface: 3, flags: OFFLOAD_PACKET, ..Offload::default() }),
        interface: Some(7),
    };
    let listed = policy.install(1)[16..].to_vec();
    assert_eq!(program::remove_listed_policy(&listed, 7, 9), Some(policy.remove(9)));
    assert_eq!(program::remove_listed_policy(&listed, 8, 9), None, "another interface's");
    let of_nobody = PolicyRequest { interface: None, ..policy }.install(1)[16..].to_vec();
    assert_eq!(program::remove_listed_policy(&of_nobody, 7, 9), None);
    assert_eq!(program::remove_listed_policy(&listed[..40], 7, 9), None, "cut off");
}

#[test]
fn what_a_kernel_offloaded_is_read_from_its_answer_alone() {
    for flags in [0, OFFLOAD_INBOUND, OFFLOAD_PACKET, OFFLOAD_PACKET | OFFLOAD_INBOUND] {
        let offload = Some(Offload { interface: 7, flags, ..Offload::default() });
        let told = Association { offload, ..association([A, B], 0x2001, &[1; 20]) }.install(1);
        assert_eq!(offloaded(&told), offload);
    }
    assert_eq!(offloaded(&association([A, B], 0x2001, &[1; 20]).install(1)), None);
    assert_eq!(offloaded(&[0; 20]), None);
}

#[test]
fn listed_associations_are_told_apart_and_removed_by_what_names_them() {
    let ours = Association { request: 0x5765_6972, ..association([A, B], 0x7001, &[0x11; 20]) };
    let listed = |it: &Association<'_>| it.install(1)[16..].to_vec();
    let removal = program::remove_listed(&listed(&ours), 9).unwrap();
    let header: [u16; 2] = zerocopy::FromBytes::read_from_prefix(&removal[4..]).unwrap().0;
    assert_eq!(header, [weir_xfrm::uapi::kind::DEL_SA, 5], "to be acknowledged");
    assert_eq!((&removal[16..20], &removal[32..36]), (&[192, 0, 2, 2][..], &[0, 0, 0x70, 1][..]));
    assert_eq!(program::remove_listed(&[1; 100], 9), None, "cut off");
    let bound = Bound { interface: 0x5765_0001, sealed: 7 << 32 | 8, opened: 5, packets_max: 9 };
    let of_interface = Association { bound: Some(bound), extended_window: Some(64), ..ours };
    let told = Installed::read(&listed(&of_interface)).unwrap();
    assert_eq!((told.request, told.interface, told.spi), (0x5765_6972, 0x5765_0001, 0x7001));
    assert_eq!((told.sealed, told.opened), (7 << 32 | 8, 5));
    assert_eq!(program::keying_material(&listed(&of_interface)), Some(&[0x11; 20][..]));
    assert_eq!(Installed::read(&listed(&ours)).unwrap().interface, 0);
    assert_eq!(Installed::read(&[1; 100]), None, "cut off");
}
