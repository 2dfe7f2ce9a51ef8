//! The AF_XDP port on real veth pairs.

mod lab;

use std::net::UdpSocket;
use std::time::Duration;

use lab::{Lab, Namespace, frame, receive, send};
use weir_port::{
    PacketOptions, PacketPort, Port, Selection, SteeredSide, Steering, SteeringOptions, XdpAttach,
    XdpOptions, XdpPort,
};

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

/// A UDP packet of one of many flows, as long as asked for.
fn packet_of_flow(flow: u16, len: usize, fill: u8) -> Vec<u8> {
    let mut packet = frame(len, fill);
    packet[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17]);
    packet[16..18].copy_from_slice(&(len as u16 - 14).to_be_bytes());
    packet[26..34].copy_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2]);
    packet[34..36].copy_from_slice(&flow.to_be_bytes());
    packet[36..38].copy_from_slice(&53_u16.to_be_bytes());
    packet
}

#[test]
fn workers_share_a_queue_by_flow_and_none_takes_anothers_memory() {
    const WORKERS: usize = 3;
    const FLOWS: u16 = 24;
    if !lab::possible() {
        return;
    }
    for attach in [XdpAttach::Native, XdpAttach::Generic] {
        let lab = Lab::new(9000);
        let mut near =
            lab.left.within(|| PacketPort::open("l0", PacketOptions::default()).unwrap());
        let mut ports = lab.middle.within(|| {
            let options =
                SteeringOptions { workers: WORKERS, bypasses_kernel: true, ..Default::default() };
            let mut steering = Steering::load(&options).unwrap();
            let options = XdpOptions { attach, ..XdpOptions::default() };
            // The program outlives the steering's value: it goes with the ports.
            XdpPort::open_several("pl", &options, WORKERS, (&mut steering, SteeredSide::Host), None)
                .unwrap()
        });
        let mut owners = std::collections::BTreeMap::new();
        // Each round moves more chunks than a worker has, all in all; the frames are of one buffer
        // and of several.
        for round in 0..400_u32 {
            let flow = (round as u16) % FLOWS;
            let len = 64 + (round as usize * 229) % 8900;
            let sent: Vec<_> =
                (0..8).map(|_| packet_of_flow(1000 + flow, len, round as u8)).collect();
            sent.iter().for_each(|it| assert_eq!(send(&mut near, it).sent, 1));
            let mut got = Vec::new();
            let mut owner = None;
            for _ in 0..2000 {
                for (worker, port) in ports.iter_mut().enumerate() {
                    let count = port
                        .receive(&mut |frames| {
                            got.extend(frames.iter().map(|it| it.bytes().to_vec()));
                        })
                        .unwrap();
                    if count > 0 {
                        assert_eq!(*owner.get_or_insert(worker), worker, "one worker a flow");
                    }
                }
                if got.len() >= sent.len() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(got == sent, "{attach:?}, round {round}: {} frames", got.len());
            let owner = owner.unwrap();
            assert_eq!(*owners.entry(flow).or_insert(owner), owner, "always the same worker");
            // Back, by whoever has the flow.
            assert_eq!(send(&mut ports[owner], &sent[0]).sent, 1);
            let seen = receive(&mut near, |seen| !seen.is_empty());
            assert!(seen.iter().eq([&sent[0]]), "{attach:?}, round {round}: out");
        }
        let used: std::collections::BTreeSet<_> = owners.values().collect();
        assert_eq!(used.len(), WORKERS, "{owners:?}");
        for port in &mut ports {
            let counted = port.counters();
            assert_eq!((counted.lost_ring_full, counted.send_refused), (0, 0));
        }
    }
}

#[test]
fn workers_take_their_flows_from_every_queue() {
    const WORKERS: usize = 2;
    const FLOWS: u16 = 24;
    if !lab::possible() {
        return;
    }
    let lab = Lab::new(9000);
    for (namespace, name) in [(&lab.left, "l0"), (&lab.middle, "pl")] {
        let done = namespace.command("ethtool", &["-L", name, "rx", "2", "tx", "2"]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    let open = |namespace: &Namespace, name: &str, side| {
        namespace.within(|| {
            let options =
                SteeringOptions { workers: WORKERS, bypasses_kernel: true, ..Default::default() };
            let mut steering = Steering::load(&options).unwrap();
            let options = XdpOptions::default();
            XdpPort::open_several(name, &options, WORKERS, (&mut steering, side), None).unwrap()
        })
    };
    // Again as soon as they are closed: the queues are busy for a moment longer.
    for round in 0..3 {
        let mut near = open(&lab.left, "l0", SteeredSide::Host);
        let mut far = open(&lab.middle, "pl", SteeredSide::Wire);
        let mut received = [0; WORKERS];
        for flow in 0..FLOWS {
            let mut owner = None;
            // The first sender has queue 0, the second queue 1, and what they send comes by it.
            for sender in 0..near.len() {
                let sent = packet_of_flow(1000 + flow, 64 + usize::from(flow) * 300, round);
                assert_eq!(send(&mut near[sender], &sent).sent, 1);
                let (worker, seen) = next_of(&mut far);
                assert!(seen == sent, "round {round}, flow {flow}");
                assert_eq!(*owner.get_or_insert(worker), worker, "by either queue");
                received[worker] += 1;
                assert_eq!(send(&mut far[worker], &sent).sent, 1);
                assert!(next_of(&mut near).1 == sent, "and back");
            }
        }
        assert!(received.iter().all(|it| *it > 0), "{received:?}");
        for port in near.iter_mut().chain(&mut far) {
            let counted = port.counters();
            assert_eq!((counted.lost_ring_full, counted.send_refused), (0, 0));
        }
    }
}

/// The next frame that one of the ports receives, waiting for it by what the ports say to poll.
fn next_of(ports: &mut [XdpPort]) -> (usize, Vec<u8>) {
    let descriptors: Vec<_> = ports.iter().filter_map(|port| port.poll_fd()).collect();
    assert!(weir_port::wait(&descriptors, Duration::from_secs(2)).unwrap(), "nothing comes");
    for (worker, port) in ports.iter_mut().enumerate() {
        let mut got = Vec::new();
        port.receive(&mut |frames| got.extend(frames.iter().map(|it| it.bytes().to_vec())))
            .unwrap();
        if let Some(frame) = got.pop() {
            return (worker, frame);
        }
    }
    panic!("ready, and nothing there");
}

#[test]
fn workers_on_threads_of_their_own_give_every_chunk_back() {
    const WORKERS: usize = 2;
    const FRAMES: usize = 30_000;
    if !lab::possible() {
        return;
    }
    let lab = Lab::new(1500);
    let open = |namespace: &Namespace, name: &str, side| {
        namespace.within(|| {
            let options =
                SteeringOptions { workers: WORKERS, bypasses_kernel: true, ..Default::default() };
            let mut steering = Steering::load(&options).unwrap();
            let options = XdpOptions {
                receive_bytes: 1 << 17,
                transmit_bytes: 1 << 17,
                ..XdpOptions::default()
            };
            XdpPort::open_several(name, &options, WORKERS, (&mut steering, side), None).unwrap()
        })
    };
    let near = open(&lab.left, "l0", SteeredSide::Host);
    let far = open(&lab.middle, "pl", SteeredSide::Wire);
    // Two send while two receive, each pair by rings of a queue that it shares with the other: with
    // 64 chunks each, one that were lost in twenty frames would end it.
    let is_over = &std::sync::atomic::AtomicBool::new(false);
    let answers: Vec<_> = std::thread::scope(|scope| {
        let senders: Vec<_> = near
            .into_iter()
            .enumerate()
            .map(|(worker, mut port)| {
                scope.spawn(move || {
                    let mut sent = 0;
                    while sent < FRAMES {
                        let packet = packet_of_flow(1000 + (sent % 16) as u16, 200, worker as u8);
                        match send(&mut port, &packet).sent {
                            0 => std::thread::yield_now(),
                            count => sent += count as usize,
                        }
                    }
                    port
                })
            })
            .collect();
        let receivers: Vec<_> = far
            .into_iter()
            .map(|mut port| {
                scope.spawn(move || {
                    let mut got = 0;
                    loop {
                        let over = is_over.load(std::sync::atomic::Ordering::Acquire);
                        let count = port.receive(&mut |_| ()).unwrap();
                        got += count;
                        if count == 0 && over {
                            break;
                        }
                    }
                    got as u64 + port.counters().lost_ring_full
                })
            })
            .collect();
        let senders: Vec<_> = senders.into_iter().map(|it| it.join().unwrap()).collect();
        std::thread::sleep(Duration::from_millis(50));
        is_over.store(true, std::sync::atomic::Ordering::Release);
        let answers = receivers.into_iter().map(|it| it.join().unwrap()).collect();
        drop(senders);
        answers
    });
    assert!(answers.iter().all(|it| *it > 1000), "both worked: {answers:?}");
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
