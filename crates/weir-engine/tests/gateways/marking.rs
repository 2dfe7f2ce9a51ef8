//! DSCP, VLAN priority and VLAN tags through a tunnel.

use super::*;

/// A packet with DSCP 26, ECT(0), behind `tags`.
fn marked(tags: &[u16]) -> Vec<u8> {
    let plain = ipv4(17, 26 << 2 | 2, &udp(100)[34..]);
    let tags: Vec<u8> =
        tags.iter().flat_map(|tci| [[0x81, 0], tci.to_be_bytes()].concat()).collect();
    [&plain[..12], &tags, &plain[12..]].concat()
}

#[test]
fn classes_of_traffic_are_copied_out_or_mapped_and_come_back_as_they_were() {
    let tagged = marked(&[3 << 13 | 77]);
    let cases = [
        // A tag of the wire's own, its outer header's priority as inside.
        (Some(100), [(marked(&[]), Some(100)), (tagged.clone(), Some(3 << 13 | 100))]),
        (Some(0), [(marked(&[]), Some(0)), (tagged.clone(), Some(3 << 13))]),
        (None, [(marked(&[]), None), (tagged.clone(), None)]),
    ];
    for (vlan, packets) in cases {
        for is_mapped in [false, true] {
            let (mut a, mut b) = marking_pair(vlan, is_mapped);
            for (packet, tci) in &packets {
                let wire = only(Destination::Wire, a.receive(Side::Host, from_ref(packet)));
                let outer = parse(&wire[0], Link::Ethernet, wire[0].len() as u32);
                let map = |tci: u16| if is_mapped && tci >> 13 == 3 { tci ^ 6 << 13 } else { tci };
                let dscp = if is_mapped { 34 } else { 26 };
                assert_eq!(outer.traffic_class, dscp << 2 | 2, "ECN is nobody's to map");
                let seen = (outer.link.vlan_count > 0).then(|| outer.link.vlan_tci[0]);
                assert_eq!(seen, tci.map(map), "vlan {vlan:?}, mapped {is_mapped}");
                let arrived = only(Destination::Host, b.receive(Side::Wire, &wire));
                assert_eq!(&arrived[0], packet, "the host's own classes are as they were");
            }
        }
    }
}

/// Two ends that know each other, in a VLAN of the wire's, with or without a map.
fn marking_pair(vlan: Option<u16>, is_mapped: bool) -> (Gateway, Gateway) {
    let (mut a, mut b) = pair(Mode::Ethernet, true);
    for end in [&mut a, &mut b] {
        let mut policy = end.engine.policy().clone();
        policy.epoch += 1;
        policy.own.as_mut().unwrap().vlan = vlan;
        if is_mapped {
            policy.marking.map_dscp(26, 34);
            policy.marking.map_pcp(3, 5);
        }
        end.engine.swap(policy, Associations::default()).unwrap();
        end.tick();
    }
    (a, b)
}

#[test]
fn a_tunnel_in_a_vlan_of_the_wires_ends_without_its_tag() {
    let (mut a, mut b) = pair(Mode::Tunnel, true);
    for end in [&mut a, &mut b] {
        let mut policy = end.engine.policy().clone();
        policy.epoch += 1;
        policy.own.as_mut().unwrap().vlan = Some(100);
        end.engine.swap(policy, Associations::default()).unwrap();
        end.tick();
    }
    let mut from_b = udp(1);
    from_b[..12].copy_from_slice(&[HOST_A, HOST_B].concat());
    from_b[26..34].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
    b.receive(Side::Host, &[from_b]);
    let wire = only(Destination::Wire, a.receive(Side::Host, &[udp(100)]));
    assert_eq!(wire[0][12..16], [0x81, 0, 0, 100]);
    let arrived = only(Destination::Host, b.receive(Side::Wire, &wire));
    assert_eq!(arrived[0][12..], udp(100)[12..], "the tag was the wire's");
}
