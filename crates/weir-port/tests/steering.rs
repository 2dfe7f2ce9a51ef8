//! Which worker gets a frame: the steering programs on single frames, and a group of ports on a
//! real veth pair. Needs root; says so and passes where there is none.

mod lab;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use lab::{Lab, receive, send};
use weir_port::{
    Fanout, FanoutMode, KernelFilter, PacketOptions, PacketPort, Port, SteeredSide, Steering,
    SteeringOptions,
};

const UDP: u8 = 17;
const TCP: u8 = 6;
const ESP: u8 = 50;
const KEYING_PORT: u16 = 51840;
const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// An IP packet in Ethernet, from and to these addresses, with `payload` behind its header.
fn packet(source: IpAddr, destination: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            frame.extend([0x08, 0x00, 0x45, 0, 0, 20 + payload.len() as u8, 0, 0, 0x40, 0, 64]);
            frame.extend([protocol, 0, 0]);
            frame.extend(source.octets());
            frame.extend(destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, payload.len() as u8, protocol, 64]);
            frame.extend(source.octets());
            frame.extend(destination.octets());
        }
        _ => panic!("one family"),
    }
    frame.extend(payload);
    frame
}

fn ported(from: (IpAddr, u16), to: (IpAddr, u16), protocol: u8) -> Vec<u8> {
    let mut payload = [from.1.to_be_bytes(), to.1.to_be_bytes()].concat();
    payload.extend([0; 20]);
    packet(from.0, to.0, protocol, &payload)
}

fn v4(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 77, 0, last).into()
}

fn v6(last: u16) -> IpAddr {
    Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, last).into()
}

fn steering(workers: usize) -> Steering {
    loaded(workers, vec![OWN.into(), Ipv6Addr::LOCALHOST.into()])
}

fn loaded(workers: usize, own: Vec<IpAddr>) -> Steering {
    let keying_port = Some(KEYING_PORT);
    let options = SteeringOptions {
        workers,
        keying_port,
        own,
        has_front_ends: true,
        tunnel_ports: vec![4789, 8472],
        bypasses_kernel: false,
    };
    Steering::load(&options).expect("root loads it")
}

fn from_host(steering: &Steering, frame: &[u8]) -> usize {
    steering.trial(steering.host().unwrap(), frame).unwrap()
}

fn from_wire(steering: &Steering, frame: &[u8]) -> usize {
    steering.trial(steering.wire().unwrap(), frame).unwrap()
}

#[test]
fn both_directions_of_a_flow_meet_in_one_worker_and_flows_spread_over_all() {
    if !lab::possible() {
        return;
    }
    for workers in [2, 3, 16] {
        let steering = steering(workers);
        let mut flows_of = BTreeMap::<usize, u32>::new();
        for (protocol, port) in [TCP, UDP].into_iter().zip([443, 53]) {
            for (near, far) in [(v4(1), v4(2)), (v6(1), v6(2))] {
                for source in 0..400 {
                    let there = ported((near, 20_000 + source), (far, port), protocol);
                    let back = ported((far, port), (near, 20_000 + source), protocol);
                    let worker = from_host(&steering, &there);
                    assert_eq!(worker, from_host(&steering, &back), "at the other gateway");
                    assert_eq!(worker, from_wire(&steering, &back), "in clear, at this one");
                    *flows_of.entry(worker).or_default() += 1;
                }
            }
        }
        assert_eq!(flows_of.len(), workers, "{flows_of:?}");
        let fair = 1600 / workers as u32;
        assert!(flows_of.values().all(|it| (fair / 2..fair * 2).contains(it)), "{flows_of:?}");
    }
}

/// The same IPv6 packet with these extension headers between its header and its transport header.
fn with_headers(mut frame: Vec<u8>, headers: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let transport = std::mem::replace(&mut frame[20], headers[0].0);
    let next = headers.iter().skip(1).map(|it| it.0).chain([transport]);
    let chain: Vec<u8> =
        headers.iter().zip(next).flat_map(|(it, next)| [&[next], &it.1[..]].concat()).collect();
    frame.splice(54..54, chain);
    let length = (frame.len() - 54) as u16;
    frame[18..20].copy_from_slice(&length.to_be_bytes());
    frame
}

#[test]
fn extension_headers_take_no_packet_to_another_worker() {
    if !lab::possible() {
        return;
    }
    let (options, pad) = (60_u8, vec![0, 1, 4, 0, 0, 0, 0]);
    let routing = vec![0, 4, 0, 0, 0, 0, 0];
    let mut long = vec![2];
    long.extend([0; 22]);
    // An atomic fragment is a whole packet, whatever its reserved bits are (RFC 6946).
    let atomic = vec![0, 0, 6, 0, 0, 0, 9];
    let authentication = [&[4][..], &[0; 22]].concat();
    let chains = [
        vec![(options, pad.clone())],
        vec![(0, pad.clone()), (43, routing), (options, long)],
        vec![(44, atomic), (options, pad.clone())],
        vec![(51, authentication), (135, pad.clone()), (139, pad.clone()), (140, pad.clone())],
        vec![(options, pad.clone()); 170],
        vec![(options, pad); 400],
    ];
    let steering = steering(16);
    for (port, chain) in (20_000..20_040).flat_map(|port| chains.iter().map(move |it| (port, it))) {
        for protocol in [TCP, UDP] {
            let bare = ported((v6(1), port), (v6(2), 80), protocol);
            let chained = with_headers(bare.clone(), chain);
            let of_chain = |what: &str| format!("{what}, {protocol}, {} headers", chain.len());
            assert_eq!(
                from_host(&steering, &chained),
                from_host(&steering, &bare),
                "{}",
                of_chain("host")
            );
            assert_eq!(
                from_wire(&steering, &chained),
                from_wire(&steering, &bare),
                "{}",
                of_chain("wire")
            );
        }
    }
    // Put together from pieces, more than a program is shown.
    let flows = steering.flow_workers().unwrap();
    for port in 20_000..20_040 {
        let bare = ported((v6(1), port), (v6(2), 80), TCP);
        let mut chained =
            with_headers(bare.clone(), &vec![(options, vec![0, 1, 4, 0, 0, 0, 0]); 2000]);
        for _ in 0..2 {
            let worker = flows.worker_of(SteeredSide::Host, &chained).unwrap();
            assert_eq!(worker, from_host(&steering, &bare));
            chained.splice(12..12, [0x81, 0, 0, 7]);
        }
    }
    let piece = |port| {
        let bare = ported((v6(1), port), (v6(2), 80), TCP);
        with_headers(bare, &[(options, vec![0, 1, 4, 0, 0, 0, 0]), (44, vec![0, 0, 1, 0, 0, 0, 9])])
    };
    let worker = from_host(&steering, &piece(20_000));
    assert!((20_000..20_040).all(|port| from_host(&steering, &piece(port)) == worker));
}

#[test]
fn roce_is_shared_out_by_addresses_alone() {
    if !lab::possible() {
        return;
    }
    let steering = steering(4);
    let mut seen = BTreeMap::<usize, u32>::new();
    for host in 1..100 {
        let (near, far) = (v4(host), v4(200));
        let of = |source| ported((near, source), (far, 4791), UDP);
        let worker = from_host(&steering, &of(50_000));
        for source in 50_001..50_010 {
            assert_eq!(from_host(&steering, &of(source)), worker, "another queue pair");
        }
        let back = ported((far, 49_000), (near, 4791), UDP);
        assert_eq!(from_wire(&steering, &back), worker);
        *seen.entry(worker).or_default() += 1;

        // RoCE v1 under the same addresses: a GRH in place of IPv6.
        let (near, far) = (v6(host.into()), v6(200));
        let mut there = ported((near, 7), (far, 9), UDP);
        let mut back = ported((far, 11), (near, 13), UDP);
        for frame in [&mut there, &mut back] {
            frame[12..14].copy_from_slice(&[0x89, 0x15]);
        }
        assert_eq!(from_host(&steering, &there), from_wire(&steering, &back));
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
}

#[test]
fn esp_from_the_wire_goes_by_the_lowest_bits_of_its_spi() {
    if !lab::possible() {
        return;
    }
    let steering = steering(16);
    for worker in 0..16_u8 {
        let esp = [0x00, 0xab, 0xcd, 0xe0 | worker, 0, 0, 0, 1];
        let in_udp = [&[0x11, 0x94, 0x11, 0x94, 0, 16, 0, 0][..], &esp].concat();
        for (near, far) in [(OWN.into(), v4(9)), (Ipv6Addr::LOCALHOST.into(), v6(2))] {
            let plain = packet(far, near, ESP, &esp);
            let udp = packet(far, near, UDP, &in_udp);
            assert_eq!(from_wire(&steering, &plain), usize::from(worker));
            assert_eq!(from_wire(&steering, &udp), usize::from(worker));
        }
        let mut tagged = packet(v4(9), OWN.into(), ESP, &esp);
        tagged.splice(12..12, [0x81, 0, 0, 7, 0x81, 0, 0, 9]);
        // The kernel takes the outer tag off before it asks.
        tagged.drain(12..16);
        assert_eq!(from_wire(&steering, &tagged), usize::from(worker), "an inner tag");
        // Of no peer: a worker that there is.
        let few = loaded(3, Vec::new());
        let strange = packet(v4(9), v4(1), ESP, &esp);
        assert_eq!(from_wire(&few, &strange), usize::from(worker % 3));
    }
}

#[test]
fn in_udp_what_nobody_opens_goes_the_way_of_its_flow() {
    if !lab::possible() {
        return;
    }
    let in_udp = |spi: u8, near: IpAddr| {
        let esp = [0x00, 0xab, 0xcd, 0xe0 | spi, 0, 0, 0, 1];
        packet(v4(9), near, UDP, &[&[0x11, 0x94, 0x11, 0x94, 0, 16, 0, 0][..], &esp].concat())
    };
    let workers = |steering: &Steering, near: IpAddr| {
        let all = (0..16).map(|it| from_wire(steering, &in_udp(it, near)));
        all.collect::<std::collections::BTreeSet<_>>().len()
    };
    let mut with_address = steering(16);
    with_address.open_in_udp(true).unwrap();
    assert_eq!(workers(&with_address, v4(1)), 1, "for a host, in clear");
    assert_eq!(workers(&with_address, OWN.into()), 16, "for the gateway");
    let mut without = loaded(16, Vec::new());
    assert_eq!(workers(&without, v4(1)), 1, "no peers");
    without.open_in_udp(true).unwrap();
    assert_eq!(workers(&without, v4(1)), 16, "from a peer");
}

#[test]
fn an_spi_that_a_front_end_chose_goes_to_its_worker_until_it_is_forgotten() {
    if !lab::possible() {
        return;
    }
    let mut steering = steering(16);
    let esp = packet(v4(9), OWN.into(), ESP, &[0, 0, 0x10, 0x05, 0, 0, 0, 1]);
    let in_udp = [&[0x11, 0x94, 0x11, 0x94, 0, 16, 0, 0][..], &esp[34..]].concat();
    let in_udp = packet(v4(9), OWN.into(), UDP, &in_udp);
    for frame in [&esp, &in_udp] {
        assert_eq!(from_wire(&steering, frame), 5);
        steering.take_spi(0x1005, 0).unwrap();
        assert_eq!(from_wire(&steering, frame), 0);
        steering.forget_spi(0x1005).unwrap();
        steering.forget_spi(0x1005).expect("what is not there is gone");
        assert_eq!(from_wire(&steering, frame), 5);
    }
}

#[test]
fn what_is_the_gateways_own_or_nobodys_goes_to_the_first_worker() {
    if !lab::possible() {
        return;
    }
    let steering = steering(16);
    for source in 0..64 {
        let handshake = ported((v4(9), 3000 + source), (v4(1), KEYING_PORT), UDP);
        let to_us = ported((v4(9), 3000 + source), (OWN.into(), 22), TCP);
        let ike = ported((v4(9), 3000 + source), (OWN.into(), 4500), UDP);
        let group = Ipv4Addr::new(239, 1, 2, 3).into();
        let group = ported((v4(9), 3000 + source), (group, 443), UDP);
        let every = ported((v4(9), 3000 + source), (Ipv4Addr::BROADCAST.into(), 67), UDP);
        let group_v6 = "ff02::fb".parse::<Ipv6Addr>().unwrap().into();
        let group_v6 = ported((v6(9), 3000 + source), (group_v6, 5353), UDP);
        let arp = [&handshake[..12], &[0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 2][..]].concat();
        for frame in [handshake, to_us, ike, group, every, group_v6, arp] {
            assert_eq!(from_wire(&steering, &frame), 0);
        }
    }
}

#[test]
fn a_group_s_mac_address_takes_no_packet_from_its_flow() {
    if !lab::possible() {
        return;
    }
    let steering = steering(16);
    for source in 0..64 {
        for (near, far) in [(v4(1), v4(2)), (v6(1), v6(2))] {
            let plain = ported((near, 3000 + source), (far, 53), UDP);
            let mut to_all = plain.clone();
            to_all[..6].fill(0xff);
            assert_eq!(from_wire(&steering, &to_all), from_wire(&steering, &plain));
            assert_eq!(from_host(&steering, &to_all), from_host(&steering, &plain));
        }
    }
}

#[test]
fn tunnels_are_shared_out_by_addresses_alone() {
    if !lab::possible() {
        return;
    }
    let steering = steering(16);
    let there = |source, port| from_host(&steering, &ported((v4(1), source), (v4(2), port), UDP));
    let back = |source, port| from_wire(&steering, &ported((v4(2), source), (v4(1), port), UDP));
    for port in [4789, 8472] {
        let worker = there(50_000, port);
        assert!((50_000..50_020).all(|it| [there(it, port), back(it + 99, port)] == [worker; 2]));
    }
    assert!((50_000..50_020).any(|it| there(it, 8473) != there(50_000, 8473)), "another port");
}

#[test]
fn flows_behind_a_peer_stay_with_as_many_workers_as_it_has() {
    if !lab::possible() {
        return;
    }
    let mut steering = steering(4);
    let mapped = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    steering.share(mapped(v4(0)), 96 + 24, 1).unwrap();
    let workers = |steering: &Steering, far: IpAddr| {
        let of = |source| {
            let there = from_host(steering, &ported((v4(1), source), (far, 443), TCP));
            let back = ported((far, 443), (v4(1), source), TCP);
            assert_eq!(from_wire(steering, &back), there);
            there
        };
        (0..200).map(of).collect::<std::collections::BTreeSet<_>>().len()
    };
    let beyond = Ipv4Addr::new(10, 78, 0, 2).into();
    assert_eq!((workers(&steering, v4(2)), workers(&steering, beyond)), (1, 4));
    steering.share(mapped(v4(0)), 96 + 24, 2).unwrap();
    assert_eq!(workers(&steering, v4(2)), 2);
    steering.forget(mapped(v4(0)), 96 + 24).unwrap();
    steering.forget(mapped(v4(0)), 96 + 24).unwrap();
    assert_eq!(workers(&steering, v4(2)), 4);
}

/// Two ports of one group on `pl`, as a gateway opens them.
fn group(lab: &Lab, steering: &Steering) -> Vec<PacketPort> {
    lab.middle.within(|| {
        let fanout = Fanout { group: 7, mode: FanoutMode::Program };
        let options = || PacketOptions {
            fanout: Some(fanout),
            filter: Some(KernelFilter::nothing()),
            ..PacketOptions::default()
        };
        let mut ports: Vec<_> =
            (0..2).map(|_| PacketPort::open("pl", options()).expect("root opens it")).collect();
        ports[0].steer_by(steering.host().unwrap()).unwrap();
        ports.iter_mut().for_each(|port| port.start_receiving().unwrap());
        ports
    })
}

#[test]
fn each_frame_arrives_at_one_port_of_a_group_even_after_the_interface_was_down() {
    if !lab::possible() {
        return;
    }
    let lab = Lab::new(1500);
    let steering = steering(2);
    let mut ports = group(&lab, &steering);
    let mut near = lab
        .left
        .within(|| PacketPort::open("l0", PacketOptions::default()).expect("root opens it"));
    let frames: Vec<_> = (0..60).map(|it| ported((v4(1), 900 + it), (v4(2), 443), TCP)).collect();
    for round in 0..3 {
        for frame in &frames {
            assert_eq!(send(&mut near, frame).sent, 1);
        }
        // A group's member never hears what another one sends.
        let queued = PacketOptions { qdisc_bypass: false, ..PacketOptions::default() };
        let mut sender = lab.middle.within(|| PacketPort::open("pl", queued).unwrap());
        assert_eq!(send(&mut sender, &ported((v4(2), 443), (v4(1), 900), TCP)).sent, 1);
        for (worker, port) in ports.iter_mut().enumerate() {
            let is_its = |frame: &&Vec<u8>| from_host(&steering, frame) == worker;
            let expected: Vec<_> = frames.iter().filter(is_its).cloned().collect();
            assert!(expected.len() > 10, "{}", expected.len());
            let seen = receive(port, |seen| seen.len() > expected.len());
            assert_eq!(seen, expected, "worker {worker} in round {round}");
        }
        lab.middle.ip("link set pl down");
        lab.middle.ip("link set pl up");
        ports.iter_mut().for_each(|port| drop(port.take_error()));
    }
}
