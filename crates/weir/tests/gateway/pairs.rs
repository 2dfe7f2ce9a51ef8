//! Several pairs of ports in one process, VLAN tags inside and outside.

use std::process::Command;

use weir_lab::gateways::{NAMES, configurations};
use weir_lab::observe::Capture;
use weir_lab::topology::{HOST_DEVICE, Side};
use weir_lab::traffic::bypass::{send_frames, stream};

use super::*;

const SHORT: Duration = Duration::from_secs(20);

#[test]
fn two_pairs_of_ports_in_one_process_both_seal() {
    let Some(Stand { _turn, lab }) = stand("two_pairs_of_ports") else { return };
    cable_second_pair(&lab);
    let setup = sealed();
    let texts = configurations(&lab, &setup).unwrap();
    let texts = with_second_pair(&lab, &texts);
    let gateways = Gateways::start_configured(&lab, &setup, &texts).unwrap();
    wait_until_it_flows(&lab);
    let first = listen(&lab, 256);
    let file = lab.folder().join("wire1.pcap");
    let second = Capture::start(lab.wire(), "wireA1", &file, 256).unwrap();
    let answered = || Ok(ping(lab.host(Side::A), "10.78.0.2", 2, 56)?.answered > 0);
    interrupt::until("answer through the second pair", PATIENCE, answered).unwrap();
    under_traffic(&lab, || {
        let report = ping_all(lab.host(Side::A), "10.78.0.2", 20, 4000).unwrap();
        assert_eq!(report.answered, report.sent);
    });
    let exchange = stream(&lab, &RoceStream::new(1024).unwrap(), 500, 2000).unwrap();
    assert!(exchange.is_exact(), "{exchange:?}");
    let second = second.stop().unwrap();
    assert!(second.count(ESP).unwrap() >= 40);
    let clear = format!("not ({ESP}) and not arp");
    assert_eq!(second.count(&clear).unwrap(), 0, "in clear on the second wire");
    assert_sealed(&first.stop().unwrap());
    for side in Side::BOTH {
        let status = gateways.status(side).unwrap();
        assert_eq!(status["pairs"].as_array().unwrap().len(), 2);
        for pair in ["0", "1"] {
            assert!(number(&status, &format!("/pairs/{pair}/host/sealed")) > 20);
            assert!(number(&status, &format!("/pairs/{pair}/wire/opened")) > 20);
        }
    }
}

/// A second port in each host and gateway, and a second wire, beside the first.
fn cable_second_pair(lab: &Lab) {
    for (side, end) in [(Side::A, "wireA1"), (Side::B, "wireB1")] {
        let (gateway, host) = (lab.gateway(side), lab.host(side));
        let own = 1 + side.index();
        let (host_name, wire_name) = (host.name(), lab.wire().name());
        gateway
            .ip(&format!(
                "link add name pf1hpf mtu 9000 \
                 type veth peer name eth1 netns {host_name} mtu 9000\n\
                 link add name p1 mtu 9000 type veth peer name {end} netns {wire_name} mtu 9000\n"
            ))
            .unwrap();
        gateway
            .set(&[
                ("net.ipv6.conf.pf1hpf.disable_ipv6", "1"),
                ("net.ipv6.conf.p1.disable_ipv6", "1"),
            ])
            .unwrap();
        gateway.ip("link set pf1hpf up\nlink set p1 up\n").unwrap();
        host.set(&[("net.ipv6.conf.eth1.disable_ipv6", "1")]).unwrap();
        host.ip(&format!("link set eth1 up\naddr add 10.78.0.{own}/24 dev eth1\n")).unwrap();
        lab.wire().set(&[(&format!("net.ipv6.conf.{end}.disable_ipv6"), "1")]).unwrap();
        lab.wire().ip(&format!("link set {end} up\n")).unwrap();
    }
    for (from, to) in [("wireA1", "wireB1"), ("wireB1", "wireA1")] {
        lab.wire().run(&format!("tc qdisc add dev {from} clsact")).unwrap();
        let filter = format!(
            "tc filter add dev {from} ingress protocol all prio 1 u32 match u32 0 0 \
             action mirred egress redirect dev {to}"
        );
        lab.wire().run(&filter).unwrap();
    }
}

/// `texts` with a pair of ports pf1hpf and p1, keys of its own.
fn with_second_pair(lab: &Lab, texts: &[String; 2]) -> [String; 2] {
    let folder = lab.folder().join("keys1");
    let mut command = Command::new(WEIR);
    command.args(["keys", "generate", NAMES[0], NAMES[1], "--directory"]).arg(&folder);
    process::run(&mut command, SHORT).unwrap();
    let key = |from: usize| {
        let file = folder.join(format!("{}-to-{}.key", NAMES[from], NAMES[1 - from]));
        format!("{{ spi = {}, key_file = \"{}\" }}", 70_000 + from, file.display())
    };
    [0, 1].map(|own| {
        let first = texts[own].replace("[[peer]]", "[[peer]]\npair = \"pf0hpf\"");
        format!(
            "{first}\n[[pair]]\nhost = \"pf1hpf\"\nwire = \"p1\"\naddress = \"192.168.78.{}/24\"\n\
             [[peer]]\npair = \"pf1hpf\"\nname = \"second\"\nendpoint = \"192.168.78.{}\"\n\
             mode = \"ethernet\"\nprotects = \"everything\"\nseal = {}\nopen = {}\n",
            1 + own,
            2 - own,
            key(own),
            key(1 - own)
        )
    })
}

#[test]
fn tagged_frames_of_hosts_arrive_with_their_tags() {
    let Some(Stand { _turn, lab }) = stand("tagged_frames_arrive_tagged") else { return };
    let gateways = sealing_gateways(&lab, &sealed());
    let mut frames = RoceStream::new(1024).unwrap();
    let tagged: Vec<Vec<u8>> = (0..50)
        .map(|_| {
            let mut frame = frames.next_frame().to_vec();
            frame.splice(12..12, [0x81, 0, 0x60, 42]);
            frame
        })
        .collect();
    let wire = listen(&lab, 256);
    let file = lab.folder().join("host-b.pcap");
    let host = Capture::start(lab.host(Side::B), HOST_DEVICE, &file, 65535).unwrap();
    send_frames(lab.host(Side::A), HOST_DEVICE, &tagged, 1000).unwrap();
    at_rest(&gateways);
    let host = host.stop().unwrap();
    let is_tagged = |frame: &Vec<u8>| frame[12..14] == [0x81, 0];
    let arrived: Vec<_> = host.frames().unwrap().into_iter().filter(is_tagged).collect();
    assert_eq!(arrived.len(), tagged.len());
    assert!(arrived == tagged, "byte for byte, in order");
    assert_sealed(&wire.stop().unwrap());
}

#[test]
fn the_outer_vlan_is_on_every_frame_of_the_wire() {
    let Some(Stand { _turn, lab }) = stand("the_outer_vlan") else { return };
    let wire = listen(&lab, 256);
    let setup = Setup { pair_lines: "vlan = 100\n".to_owned(), ..sealed() };
    let _gateways = sealing_gateways(&lab, &setup);
    let streamed = stream(&lab, &RoceStream::new(4096).unwrap(), 300, 1000).unwrap();
    assert!(streamed.is_exact(), "{streamed:?}");
    let wire = wire.stop().unwrap();
    assert_eq!(wire.count("not vlan").unwrap(), 0);
    assert!(wire.count("vlan 100 and ip proto 50").unwrap() >= 300);
    assert_eq!(wire.count("vlan 100 and not (ip proto 50 or arp)").unwrap(), 0);
}
