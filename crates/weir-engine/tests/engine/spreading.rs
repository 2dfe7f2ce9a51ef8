//! What a fabric sees of flows inside: source ports and flow labels that spread over its paths
//! and keep each flow's order; DSCP, ECN and VLAN priority outside.

use std::collections::HashSet;
use std::net::IpAddr;

use weir_engine::esp::open::OpeningSa;
use weir_engine::esp::sa::{SaParameters, Spi};
use weir_engine::esp::seal::SealingSa;
use weir_engine::meter::{Meter, MeterLimits};
use weir_engine::pipeline::{Associations, Engine};
use weir_engine::policy::{
    Action, Encapsulation, FrameActions, Mode, OwnAddress, Peer, Policy, Prefix, Sealing,
};
use weir_engine::verdict::{Side, Verdict};
use weir_wire::frame::{Frame, Link, Meta, Time};
use weir_wire::parse::{MacAddress, parse};

const MAC: [[u8; 6]; 2] = [[2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 1, 2]];
const HOST: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
const IPV4_BEFORE_ESP: usize = 14 + 20;
const QUEUE_PAIRS: u32 = 64;

fn parameters(spi: u32) -> SaParameters {
    SaParameters::new(Spi::new(spi).unwrap(), &[spi as u8; 36]).unwrap()
}

fn outer(last: u8, v6: bool) -> IpAddr {
    if v6 {
        return IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(last)]);
    }
    IpAddr::from([192, 0, 2, last])
}

/// The gateway of `side`, 0 or 1, which knows where the other is.
fn gateway(side: usize, mode: Mode, encapsulation: Encapsulation, v6: bool) -> Engine {
    let (here, there) = (side as u8 + 1, 2 - side as u8);
    let mut policy = Policy::watch(1, 1500);
    policy.default = Action::Drop;
    policy.frames = FrameActions::sealing();
    let has_own = mode != Mode::Transport;
    policy.own = has_own.then(|| OwnAddress {
        mac: MacAddress(MAC[side]),
        addresses: vec![(outer(here, v6), if v6 { 64 } else { 24 })],
        ..OwnAddress::default()
    });
    let spi = |last: u8| 0x1000 + u32::from(last);
    let policy = policy.with_peers(vec![Peer {
        name: "peer".into(),
        mode,
        encapsulation,
        sealing: Sealing::Require,
        endpoint: has_own.then(|| outer(there, v6)),
        protects: vec![Prefix::ALL],
        everything: mode == Mode::Ethernet,
        seal_spi: Some(spi(here)),
        open_spis: vec![spi(there)],
        agreed: None,
        kernel: None,
        rate_limit: None,
        reaches: Vec::new(),
    }]);
    let mut sealing = SealingSa::new(&parameters(spi(here)), None).unwrap();
    let reservation = sealing.reservation_needed().unwrap();
    sealing.extend_reservation(&reservation);
    let opening = OpeningSa::new(&parameters(spi(there)), None).unwrap();
    let associations =
        Associations { sealing: vec![sealing], opening: vec![opening], ..Associations::default() };
    let meter = Meter::new(MeterLimits::default(), 7);
    let mut engine = Engine::new(policy, associations, meter).unwrap();
    if has_own {
        engine.tick(Time(1));
        give(&mut engine, Side::Wire, &hello(side, v6));
        engine.tick(Time(2));
        give(&mut engine, Side::Host, &roce(&HOST[side], &HOST[1 - side], 1 + side as u8, 9, 0));
    }
    engine
}

/// The other gateway answers for its address.
fn hello(side: usize, v6: bool) -> Vec<u8> {
    let other = 1 - side;
    let last = [side as u8 + 1, other as u8 + 1];
    if !v6 {
        let arp = [0, 1, 8, 0, 6, 4, 0, 2];
        let (from, to) = ([192, 0, 2, last[1]], [192, 0, 2, last[0]]);
        return [&MAC[side][..], &MAC[other], &[8, 6], &arp, &MAC[other], &from, &MAC[side], &to]
            .concat();
    }
    let address = |last: u8| -> [u8; 16] {
        let IpAddr::V6(address) = outer(last, true) else { unreachable!() };
        address.octets()
    };
    let mut icmp = vec![136, 0, 0, 0, 0x60, 0, 0, 0];
    icmp.extend(address(last[1]));
    icmp.extend([2, 1]);
    icmp.extend(MAC[other]);
    let (from, to) = (address(last[1]), address(last[0]));
    let sum = weir_wire::checksum::pseudo_header_v6(&from, &to, 58, icmp.len() as u32).with(&icmp);
    icmp[2..4].copy_from_slice(&sum.checksum().to_be_bytes());
    let header = [0x60, 0, 0, 0, 0, icmp.len() as u8, 58, 255];
    [&MAC[side][..], &MAC[other], &[0x86, 0xdd], &header, &from, &to, &icmp].concat()
}

/// A RoCE v2 packet to one queue pair, from the one source port that a simple sender has for all.
fn roce(from: &[u8; 6], to: &[u8; 6], last: u8, queue_pair: u32, traffic_class: u8) -> Vec<u8> {
    let bth = [&[4, 0, 0xff, 0xff, 0][..], &queue_pair.to_be_bytes()[1..], &[0; 4]].concat();
    let payload = [&bth[..], &[7; 64], &[0; 4]].concat();
    let udp_len = 8 + payload.len() as u16;
    let udp = [&[0xc0, 0, 0x12, 0xb7][..], &udp_len.to_be_bytes(), &[0, 0]].concat();
    let mut ip = vec![0x45, traffic_class, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0];
    ip.extend([10, 0, 0, last, 10, 0, 0, 3 - last]);
    ip[2..4].copy_from_slice(&(20 + udp_len).to_be_bytes());
    let sum = weir_wire::checksum::ipv4_header(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    [&to[..], from, &[8, 0], &ip, &udp, &payload].concat()
}

fn give(engine: &mut Engine, side: Side, bytes: &[u8]) -> (Verdict, Vec<Vec<u8>>) {
    let mut buffer = [&[0; 192][..], bytes, &[0; 64]].concat();
    let end = buffer.len() - 64;
    let meta = Meta { original_len: bytes.len() as u32, link: Link::Ethernet, ..Meta::default() };
    let mut frames = [Frame::new(&mut buffer, 192, end, meta)];
    engine.process(Time(3), side, &mut frames);
    let output = engine.output();
    let whole = |packet: &weir_engine::output::Packet| {
        let parts = &output.parts[packet.parts.start as usize..packet.parts.end as usize];
        parts.iter().flat_map(|part| output.resolve(part, &frames).to_vec()).collect()
    };
    (output.verdicts[0], output.packets.iter().map(whole).collect())
}

#[track_caller]
fn sealed(engine: &mut Engine, bytes: &[u8]) -> Vec<u8> {
    let (verdict, mut packets) = give(engine, Side::Host, bytes);
    assert_eq!((verdict, packets.len()), (Verdict::Sealed, 1));
    packets.remove(0)
}

fn source_port(packet: &[u8]) -> u16 {
    u16::from_be_bytes([packet[IPV4_BEFORE_ESP], packet[IPV4_BEFORE_ESP + 1]])
}

fn flow_label(packet: &[u8]) -> u32 {
    u32::from_be_bytes(packet[14..18].try_into().unwrap()) & 0xf_ffff
}

/// What a fabric hashes of 64 queue pairs, each of which sends three packets.
fn marks(engine: &mut Engine, mark: impl Fn(&[u8]) -> u32) -> Vec<u32> {
    let of = |queue_pair| {
        let packet = roce(&HOST[0], &HOST[1], 1, queue_pair, 0);
        let three = [0; 3].map(|_| mark(&sealed(engine, &packet)));
        assert!(three.iter().all(|it| *it == three[0]), "one queue pair, one path");
        three[0]
    };
    (0x11..0x11 + QUEUE_PAIRS).map(of).collect()
}

#[test]
fn sixty_four_queue_pairs_have_nearly_as_many_source_ports_in_every_mode() {
    for mode in [Mode::Ethernet, Mode::Tunnel, Mode::Transport] {
        let mut a = gateway(0, mode, Encapsulation::UdpSpread, false);
        let ports = marks(&mut a, |packet| source_port(packet).into());
        assert!(ports.iter().all(|port| (0xc000..=0xffff).contains(port)), "RFC 6335 s6");
        let distinct: HashSet<_> = ports.iter().collect();
        assert!(distinct.len() >= 60, "{mode:?}: {}", distinct.len());
        // Four equal paths by the last bits, as a simple switch may choose.
        let mut paths = [0; 4];
        ports.iter().for_each(|port| paths[*port as usize % 4] += 1);
        assert!(paths.iter().all(|share| (4..=32).contains(share)), "{mode:?}: {paths:?}");
    }
}

#[test]
fn sixty_four_queue_pairs_have_nearly_as_many_flow_labels() {
    for (mode, encapsulation) in [
        (Mode::Ethernet, Encapsulation::Esp),
        (Mode::Tunnel, Encapsulation::Esp),
        (Mode::Tunnel, Encapsulation::Udp),
        (Mode::Ethernet, Encapsulation::UdpSpread),
    ] {
        let mut a = gateway(0, mode, encapsulation, true);
        let labels = marks(&mut a, flow_label);
        let distinct: HashSet<_> = labels.iter().collect();
        assert!(distinct.len() >= 60, "{mode:?} {encapsulation:?}: {}", distinct.len());
    }
}

#[test]
fn without_spreading_the_source_port_is_4500() {
    let mut a = gateway(0, Mode::Tunnel, Encapsulation::Udp, false);
    assert!(marks(&mut a, |packet| source_port(packet).into()).iter().all(|port| *port == 4500));
}

#[test]
fn who_opens_takes_any_source_port_and_does_not_call_it_a_move() {
    for (theirs, ours) in [
        (Encapsulation::UdpSpread, Encapsulation::UdpSpread),
        (Encapsulation::UdpSpread, Encapsulation::Udp),
        (Encapsulation::Udp, Encapsulation::UdpSpread),
    ] {
        let mut a = gateway(0, Mode::Tunnel, theirs, false);
        let mut b = gateway(1, Mode::Tunnel, ours, false);
        for queue_pair in 0x11..0x11 + QUEUE_PAIRS {
            let packet = roce(&HOST[0], &HOST[1], 1, queue_pair, 0);
            let wire = sealed(&mut a, &packet);
            let (verdict, out) = give(&mut b, Side::Wire, &wire);
            assert_eq!((verdict, &out[0][14..]), (Verdict::Opened, &packet[14..]));
        }
        assert_eq!(b.counters().peers_moved, 0);
        let answer = sealed(&mut b, &roce(&HOST[1], &HOST[0], 2, 5, 0));
        let port = [answer[IPV4_BEFORE_ESP + 2], answer[IPV4_BEFORE_ESP + 3]];
        assert_eq!(
            u16::from_be_bytes(port),
            4500,
            "answers go to the port of ESP, not to a flow's"
        );
    }
}

#[test]
fn dscp_and_ecn_stand_outside_and_a_mark_met_on_the_way_comes_back_in() {
    const EXPEDITED: u8 = 46 << 2;
    for mode in [Mode::Ethernet, Mode::Tunnel, Mode::Transport] {
        for ecn in 0..3 {
            let mut a = gateway(0, mode, Encapsulation::Esp, false);
            let mut b = gateway(1, mode, Encapsulation::Esp, false);
            let packet = roce(&HOST[0], &HOST[1], 1, 17, EXPEDITED | ecn);
            let mut wire = sealed(&mut a, &packet);
            assert_eq!(wire[15], EXPEDITED | ecn, "{mode:?}");
            wire[15] |= 3;
            let sum = weir_wire::checksum::updated(
                u16::from_be_bytes([wire[24], wire[25]]),
                u16::from_be_bytes([0x45, EXPEDITED | ecn]),
                u16::from_be_bytes([0x45, EXPEDITED | 3]),
            );
            wire[24..26].copy_from_slice(&sum.to_be_bytes());
            let (verdict, out) = give(&mut b, Side::Wire, &wire);
            if ecn == 0 && mode != Mode::Transport {
                assert!(matches!(verdict, Verdict::Drop(_)), "RFC 6040: its sender cannot hear it");
                continue;
            }
            let inner = parse(&out[0], Link::Ethernet, out[0].len() as u32);
            assert_eq!(inner.traffic_class, EXPEDITED | 3, "{mode:?} {ecn}");
        }
    }
}
