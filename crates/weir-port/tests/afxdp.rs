//! The AF_XDP port on real veth pairs.

mod lab;

use std::net::UdpSocket;
use std::time::Duration;

use lab::{Lab, Namespace, frame, receive, send};
use weir_port::{PacketOptions, PacketPort, Port, Selection, XdpAttach, XdpOptions, XdpPort};

fn open(namespace: &Namespace, name: &str, attach: XdpAttach, selection: Selection) -> XdpPort {
    let options = XdpOptions { attach, selection, ..XdpOptions::default() };
    namespace.within(|| XdpPort::open(name, &options).expect("root opens it"))
}

#[test]
fn every_frame_size_arrives_byte_exact_both_ways() {
    if !lab::possible() {
        return;
    }
    for attach in [XdpAttach::Native, XdpAttach::Generic] {
        let lab = Lab::new(9000);
        let mut near =
            lab.left.within(|| PacketPort::open("l0", PacketOptions::default()).unwrap());
        let mut far = open(&lab.middle, "pl", attach, Selection::All);
        for len in 60..=9014 {
            let bytes = frame(len, len as u8);
            send(&mut near, &bytes);
            let seen = receive(&mut far, |seen| !seen.is_empty());
            assert!(seen.iter().eq([&bytes]), "{attach:?}: {len} in");
            assert_eq!(send(&mut far, &bytes).sent, 1);
            let seen = receive(&mut near, |seen| !seen.is_empty());
            assert!(seen.iter().eq([&bytes]), "{attach:?}: {len} out");
        }
        let counted = far.counters();
        assert_eq!((counted.received_frames, counted.sent_frames), (8955, 8955));
        assert_eq!((counted.lost_ring_full, counted.send_refused), (0, 0));
    }
}

#[test]
fn bypass_sender_and_bypass_receiver_exchange_large_batches() {
    if !lab::possible() {
        return;
    }
    let lab = Lab::new(9000);
    let mut near = open(&lab.left, "l0", XdpAttach::Native, Selection::All);
    let mut far = open(&lab.middle, "pl", XdpAttach::Native, Selection::All);
    for round in 0..200u32 {
        let frames: Vec<_> = (0..40).map(|number| frame(64 + number * 229, round as u8)).collect();
        let parts: Vec<_> = frames.iter().map(|bytes| [std::io::IoSlice::new(bytes)]).collect();
        let batch: Vec<_> = parts
            .iter()
            .map(|parts| weir_port::Outgoing { parts, offload: Default::default() })
            .collect();
        assert_eq!(near.transmit(&batch).sent, 40, "round {round}");
        let seen = receive(&mut far, |seen| seen.len() >= 40);
        assert!(seen == frames, "round {round}: {} frames", seen.len());
    }
}

#[test]
fn only_selected_frames_bypass_the_kernel() {
    if !lab::possible() {
        return;
    }
    let lab = Lab::new(1500);
    lab.middle.ip("addr add 10.77.0.9/24 dev pl");
    let mut port = open(&lab.middle, "pl", XdpAttach::Auto, Selection::rdma());
    let ping = lab.left.command("ping", &["-c", "1", "-W", "1", "10.77.0.9"]);
    assert!(ping.status.success(), "the kernel still answers");

    let kernel = lab.middle.within(|| UdpSocket::bind("10.77.0.9:4791").unwrap());
    kernel.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let host = lab.left.within(|| UdpSocket::bind("10.77.0.1:0").unwrap());
    host.send_to(b"past the kernel", "10.77.0.9:4791").unwrap();
    let seen = receive(&mut port, |seen| !seen.is_empty());
    assert!(seen[0].ends_with(b"past the kernel"));
    assert!(kernel.recv(&mut [0; 64]).is_err(), "the kernel's socket saw it too");

    let mut near = lab.left.within(|| PacketPort::open("l0", PacketOptions::default()).unwrap());
    let mut version_1 = frame(100, 1);
    version_1[12..14].copy_from_slice(&[0x89, 0x15]);
    send(&mut near, &frame(100, 2));
    send(&mut near, &version_1);
    let seen = receive(&mut port, |seen| !seen.is_empty());
    assert!(seen.iter().eq([&version_1]));
}

#[test]
fn partial_checksum_is_completed_before_the_kernel_bypass_sends_it() {
    if !lab::possible() {
        return;
    }
    let lab = Lab::new(1500);
    // A real host leaves the UDP checksum to its device; the packet port sees that, and the
    // kernel at the far end judges what AF_XDP made of it.
    let mut taken = lab.middle.within(|| PacketPort::open("pl", PacketOptions::default()).unwrap());
    let mut bypass = open(&lab.middle, "pr", XdpAttach::Auto, Selection::All);
    lab.left.ip("neigh add 10.77.0.2 lladdr ff:ff:ff:ff:ff:ff dev l0");
    let host = lab.left.within(|| UdpSocket::bind("10.77.0.1:0").unwrap());
    let judge = lab.right.within(|| UdpSocket::bind("10.77.0.2:9").unwrap());
    judge.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    host.set_broadcast(true).unwrap();
    host.send_to(b"odd", "10.77.0.2:9").unwrap();
    for _ in 0..100 {
        lab::forward(&mut taken, &mut bypass, &mut 0);
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut bytes = [0; 64];
    let result = judge.recv(&mut bytes);
    assert_eq!(result.ok().map(|len| &bytes[..len]), Some(&b"odd"[..]));
}

#[test]
fn unusable_options_are_refused_with_a_reason() {
    let ethertypes = vec![0x8915, 0x8914, 0x0800, 0x86dd, 0x0806];
    let selection = Selection::Some { ethertypes, udp_ports: vec![], tcp_ports: vec![] };
    let options = XdpOptions { selection, ..XdpOptions::default() };
    let error = XdpPort::open("lo", &options).unwrap_err();
    assert!(error.to_string().contains("4 are possible"), "{error}");
}
