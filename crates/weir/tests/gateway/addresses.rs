//! Addresses decide what is sealed, and no MAC address says otherwise.

use weir_lab::topology::{HOST_DEVICE, HOST_MAC, HOST_V4};
use weir_lab::traffic::bypass::send_frames;

use super::*;

const GROUP_MAC: [u8; 6] = [0x01, 0x00, 0x5e, 0x00, 0x00, 0x42];
const FORGED: &[u8] = b"WEIR-FORGED-PLAINTEXT";
const COUNT: usize = 50;

/// A UDP packet from host B's address to host A's, behind so many VLAN tags, to a group's MAC.
fn forged(tags: usize) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0];
    packet[2..4].copy_from_slice(&(28 + FORGED.len() as u16).to_be_bytes());
    packet.extend([HOST_V4[1].octets(), HOST_V4[0].octets()].concat());
    let sum = weir_wire::checksum::ipv4_header(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend([0x30, 0x39, 0x30, 0x39]);
    packet.extend((8 + FORGED.len() as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(FORGED);
    let tags = [0x81, 0, 0, 0].repeat(tags);
    [&GROUP_MAC[..], &HOST_MAC[1], &tags, &[8, 0], &packet].concat()
}

/// What a forged ARP answer would bring about stands in host A's neighbour table: a group's MAC
/// address for host B.
#[test]
fn a_group_mac_puts_no_host_in_clear_and_lets_nobody_in() {
    let Some(Stand { _turn, lab }) = stand("a_group_mac_puts_no_host_in_clear") else { return };
    let lines = "frames.multicast = \"clear\"\nframes.broadcast = \"clear\"\n";
    let setup = Setup { pair_lines: lines.to_owned(), ..sealed() };
    let gateways = sealing_gateways(&lab, &setup);
    let (host, target) = (lab.host(Side::A), lab.host_v4(Side::B).to_string());

    let wire = listen(&lab, 512);
    let mac = weir_lab::topology::text_mac(GROUP_MAC);
    let mut neighbour = host.command("ip");
    neighbour.args(["neigh", "replace", &target, "lladdr", &mac, "dev", HOST_DEVICE]);
    process::run(&mut neighbour, PATIENCE).unwrap().success("ip neigh").unwrap();
    let before = number(&gateways.status(Side::A).unwrap(), "/pairs/0/host/sealed");
    let mut ping = host.command("ping");
    let count = COUNT.to_string();
    ping.args(["-q", "-n", "-i", "0.02", "-W", "1", "-s", "200", "-p", PING_PATTERN]);
    // Whether host B answers a packet in a group's frame is its own affair.
    process::run(ping.args(["-c", &count, &target]), PATIENCE).unwrap();
    let sealed = |it: &Value| number(it, "/pairs/0/host/sealed") >= before + COUNT as u64;
    wait_status(&gateways, Side::A, sealed);
    let wire = wire.stop().unwrap();
    assert_eq!(wire.dropped_by_kernel, 0);
    assert!(!wire.contains(PING_MARK).unwrap(), "in clear on the wire");
    assert!(wire.count(ESP).unwrap() >= COUNT as u64);

    let file = lab.folder().join("host.pcap");
    let arrived = Capture::start(host, HOST_DEVICE, &file, 512).unwrap();
    for (tags, reason) in [(0, "not_sealed"), (3, "malformed")] {
        let frames = vec![forged(tags); COUNT];
        send_frames(lab.wire(), WIRE_END_A, &frames, 1000).unwrap();
        let path = format!("/pairs/0/wire/dropped_by_reason/{reason}");
        let dropped =
            |it: &Value| it.pointer(&path).is_some_and(|it| it.as_u64() >= Some(COUNT as u64));
        wait_status(&gateways, Side::A, dropped);
    }
    let arrived = arrived.stop().unwrap();
    assert!(!arrived.contains(FORGED).unwrap(), "in clear at the host");
}
