//! A router between the gateways, whose link to one of them is narrower than the wires.

use weir_lab::topology::{GATEWAY_V4, WIRE_END_B};
use weir_lab::traffic::tcp;

use super::keying::keyed;
use super::mtu::largest;
use super::*;

/// The router's link to gateway B, bytes of an IP packet.
const NARROW: u64 = 1500;

/// The wire's namespace becomes a router that answers for both gateways' addresses.
fn route(lab: &Lab) {
    let wire = lab.wire();
    for (end, gateway) in [(WIRE_END_A, GATEWAY_V4[0]), (WIRE_END_B, GATEWAY_V4[1])] {
        wire.run(&format!("tc qdisc del dev {end} clsact")).unwrap();
        wire.set(&[(&format!("net.ipv4.conf.{end}.proxy_arp"), "1")]).unwrap();
        wire.ip(&format!("route add {gateway}/32 dev {end}\n")).unwrap();
    }
    wire.set(&[("net.ipv4.ip_forward", "1")]).unwrap();
    wire.ip("addr add 198.51.100.1/32 dev lo\nlink set lo up\n").unwrap();
}

fn set_width(lab: &Lab, bytes: u64) {
    lab.wire().ip(&format!("link set {WIRE_END_B} mtu {bytes}\n")).unwrap();
    lab.gateway(Side::B).ip("link set p0 mtu 9000\n").unwrap();
}

fn is_found(bytes: u64) -> impl Fn(&Value) -> bool {
    move |status| {
        let found = &status["pairs"][0]["peers"][0]["keying"]["path_mtu"];
        found["state"] == "found" && found["bytes"] == bytes
    }
}

/// Where the first probes are lost, what is found at first is asked for more after half a minute.
fn wait_until_wide(gateways: &Gateways) {
    wait_status_within(gateways, Side::A, 90, is_found(9000));
}

#[test]
fn a_narrow_link_behind_a_router_is_found_shown_and_obeyed() {
    let Some(Stand { _turn, lab }) = stand("a_narrow_link_is_found") else { return };
    route(&lab);
    set_width(&lab, NARROW);
    let gateways = sealing_gateways(&lab, &keyed(Protection::Sealed, "", ""));
    wait_status(&gateways, Side::A, is_found(NARROW));
    let text = gateways.status_text(Side::A).unwrap();
    assert!(text.contains("path MTU 1500"), "{text}");
    assert_eq!(tcp::transfer(&lab, 4 << 20).unwrap(), 4 << 20);
    let target = lab.host_v4(Side::B).to_string();
    let (words, mtu) = largest(&lab, &target, 4000);
    let mtu = mtu.unwrap_or_else(|| panic!("no MTU in: {words}"));
    assert!((1400..1500).contains(&mtu), "{words}");
    let fits = ping_all(lab.host(Side::A), &target, 3, mtu - 28).unwrap();
    assert_eq!(fits.answered, fits.sent);
    let status = gateways.status(Side::A).unwrap();
    assert!(number(&status, "/pairs/0/host/dropped_by_reason/too_big") >= 1, "{status:#}");
}

#[test]
fn a_link_that_narrows_without_a_word_is_met_by_a_new_search() {
    let Some(Stand { _turn, lab }) = stand("a_black_hole_is_met") else { return };
    route(&lab);
    let gateways = sealing_gateways(&lab, &keyed(Protection::Sealed, "", ""));
    wait_until_wide(&gateways);
    // The router's ICMP is lost on its way.
    lab.wire().run(&format!("tc qdisc add dev {WIRE_END_A} clsact")).unwrap();
    let mute = "egress protocol ip prio 1 u32 match ip protocol 1 0xff \
                action mirred egress redirect dev lo";
    lab.wire().run(&format!("tc filter add dev {WIRE_END_A} {mute}")).unwrap();
    set_width(&lab, NARROW);
    under_traffic(&lab, || {
        let status = wait_status_within(&gateways, Side::A, 90, is_found(NARROW));
        let path = "/pairs/0/peers/0/keying/path_mtu/black_holes";
        assert_eq!(number(&status, path), 1);
        assert_eq!(number(&status, "/pairs/0/keying/too_large_heard"), 0);
    });
}

#[test]
fn a_routers_icmp_makes_the_gateway_ask_and_the_answer_counts() {
    let Some(Stand { _turn, lab }) = stand("a_routers_icmp_makes_it_ask") else { return };
    route(&lab);
    let gateways = sealing_gateways(&lab, &keyed(Protection::Sealed, "", ""));
    wait_until_wide(&gateways);
    set_width(&lab, NARROW);
    let target = lab.host_v4(Side::B).to_string();
    let lost = ping(lab.host(Side::A), &target, 5, 4000).unwrap();
    assert_eq!(lost.answered, 0);
    let status = wait_status(&gateways, Side::A, is_found(NARROW));
    assert!(number(&status, "/pairs/0/keying/too_large_heard") > 0, "{status:#}");
}
