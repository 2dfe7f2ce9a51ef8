//! The AF_PACKET port on real veth pairs.

mod lab;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lab::{Lab, frame, receive, send};
use weir_port::{PacketOptions, PacketPort, Port};
use weir_wire::frame::Offload;

fn open(namespace: &lab::Namespace, name: &str) -> PacketPort {
    open_with(namespace, name, PacketOptions::default())
}

fn open_with(namespace: &lab::Namespace, name: &str, options: PacketOptions) -> PacketPort {
    namespace.within(|| PacketPort::open(name, options).expect("root opens it"))
}

#[test]
fn every_frame_size_arrives_byte_exact_both_ways() {
    if !lab::possible() {
        return;
    }
    let lab = Lab::new(9000);
    for bypass in [true, false] {
        let options = || PacketOptions { qdisc_bypass: bypass, ..PacketOptions::default() };
        let mut near = open_with(&lab.left, "l0", options());
        let mut far = open_with(&lab.middle, "pl", options());
        for len in 60..=9014 {
            let bytes = frame(len, len as u8);
            assert_eq!(send(&mut near, &bytes).sent, 1);
            let seen = receive(&mut far, |seen| !seen.is_empty());
            assert!(seen.iter().eq([&bytes]), "{len} out");
            assert_eq!(send(&mut far, &bytes).sent, 1);
            assert_eq!(receive(&mut near, |seen| !seen.is_empty()), [bytes], "{len} back");
        }
        let counted = far.counters();
        assert_eq!((counted.received_frames, counted.sent_frames), (8955, 8955));
        assert_eq!((counted.lost_ring_full, counted.lost_truncated), (0, 0));
    }
}

#[test]
fn frames_larger_than_a_slot_are_taken_whole_from_the_queue() {
    if !lab::possible() {
        return;
    }
    let lab = Lab::new(9000);
    let mut near = open(&lab.left, "l0");
    let small = PacketOptions { slot_frame_len: Some(1514), ..PacketOptions::default() };
    let mut far = open_with(&lab.middle, "pl", small);
    // Around the slot's end, where tailroom runs out before the slot does.
    let sizes: Vec<_> = (1400..1800).chain([4000, 9014]).collect();
    for len in sizes {
        let bytes = frame(len, 3);
        send(&mut near, &bytes);
        assert_eq!(receive(&mut far, |seen| !seen.is_empty()), [bytes], "{len}");
    }
    assert_eq!(far.counters().lost_truncated, 0);
}

#[test]
fn vlan_tags_are_kept() {
    if !lab::possible() {
        return;
    }
    let lab = Lab::new(9000);
    let mut near = open(&lab.left, "l0");
    let mut far = open(&lab.middle, "pl");
    // Packet sockets allow 802.1Q frames four bytes more than the MTU, 802.1ad ones not.
    for (protocol, longest) in [([0x81, 0x00], 9018), ([0x88, 0xa8], 9014)] {
        for len in [60, 1518, longest] {
            let mut tagged = frame(len - 4, 9);
            tagged.splice(12..12, [protocol[0], protocol[1], 0x60, 0x05]);
            assert_eq!(send(&mut near, &tagged).sent, 1, "{protocol:x?} {len}");
            assert_eq!(receive(&mut far, |seen| !seen.is_empty()), [tagged], "{len}");
        }
    }
    let mut double = frame(100, 1);
    double.splice(12..12, [0x88, 0xa8, 0, 7, 0x81, 0, 0, 5]);
    send(&mut near, &double);
    assert_eq!(receive(&mut far, |seen| !seen.is_empty()), [double]);
}

#[test]
fn own_frames_do_not_come_back() {
    if !lab::possible() {
        return;
    }
    let lab = Lab::new(1500);
    for qdisc_bypass in [true, false] {
        let options = PacketOptions { qdisc_bypass, ..PacketOptions::default() };
        let mut port = open_with(&lab.middle, "pl", options);
        send(&mut port, &frame(100, 0));
        thread::sleep(Duration::from_millis(20));
        assert_eq!(port.receive(&mut |_| panic!("our own frame")).unwrap(), 0);
    }
}

#[test]
fn tcp_super_packets_cross_whole_and_the_stream_is_intact() {
    if !lab::possible() {
        return;
    }
    const LEN: usize = 64 << 20;
    let lab = Lab::new(9000);
    let mut left = open(&lab.middle, "pl");
    let mut right = open(&lab.middle, "pr");
    let byte_at = |at: usize| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0];
    let done = AtomicBool::new(false);
    let (longest, _) = thread::scope(|scope| {
        let carrying = scope.spawn(|| lab::carry(&mut left, &mut right, &done));
        let listener = lab.right.within(|| TcpListener::bind("10.77.0.2:5000").unwrap());
        let sender = lab.left.within(|| TcpStream::connect("10.77.0.2:5000").unwrap());
        let (mut sender, mut receiver) =
            (lab::impatient(sender), lab::impatient(listener.accept().unwrap().0));
        scope.spawn(move || {
            let bytes: Vec<u8> = (0..LEN).map(byte_at).collect();
            sender.write_all(&bytes).unwrap();
        });
        let mut bytes = Vec::new();
        receiver.read_to_end(&mut bytes).unwrap();
        done.store(true, Ordering::Relaxed);
        assert_eq!(bytes.len(), LEN);
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == byte_at(at)));
        carrying.join().unwrap()
    });
    assert!(longest > 9014, "the longest frame had {longest} bytes");
    assert_eq!((left.counters().lost_truncated, right.counters().lost_truncated), (0, 0));
    assert_eq!((left.counters().send_refused, right.counters().send_refused), (0, 0));
}

#[test]
fn every_frame_is_received_or_counted_when_the_ring_overflows() {
    if !lab::possible() {
        return;
    }
    let lab = Lab::new(1500);
    // Whoever drops a frame that no protocol wants would count it as the device's loss.
    let _guard = lab.middle.within(|| {
        weir_port::Guard::attach("pl", "pr", weir_port::GuardMode::Closed).expect("a guard")
    });
    let mut near = open(&lab.left, "l0");
    let small = PacketOptions { ring_slots: 64, ..PacketOptions::default() };
    let mut far = open_with(&lab.middle, "pl", small);
    let mut sent = 0;
    for number in 0..20_000 {
        sent += send(&mut near, &frame(200, number as u8)).sent;
    }
    let received = receive(&mut far, |_| false).len() as u64;
    let counted = far.counters();
    assert!(counted.lost_ring_full > 0);
    assert_eq!(sent + near.counters().send_queue_full, 20_000);
    assert_eq!(counted.received_frames, received);
    assert_eq!(sent, received + counted.lost_ring_full + counted.device_dropped, "{counted:?}");
}

#[test]
fn refused_frames_are_counted_by_reason_and_do_not_stop_the_rest() {
    if !lab::possible() {
        return;
    }
    let lab = Lab::new(1500);
    let mut near = open(&lab.left, "l0");
    let mut far = open(&lab.middle, "pl");
    let frames = [frame(100, 1), frame(4000, 2), frame(100, 3)];
    let parts: Vec<_> = frames.iter().map(|frame| [std::io::IoSlice::new(frame)]).collect();
    let batch: Vec<_> = parts
        .iter()
        .map(|parts| weir_port::Outgoing { parts, offload: Default::default() })
        .collect();
    let done = near.transmit(&batch);
    assert_eq!((done.sent, done.dropped), (2, 1));
    assert_eq!(near.counters().send_too_large, 1);
    assert_eq!(receive(&mut far, |seen| seen.len() == 2), [frames[0].clone(), frames[2].clone()]);

    lab.left.ip("link set l0 down");
    let done = near.transmit(&batch[..1]);
    assert_eq!((done.sent, done.dropped), (0, 1));
    assert_eq!(near.counters().send_refused, 1);
}

#[test]
fn missing_interface_is_named_with_a_remedy() {
    let error = PacketPort::open("nosuchport0", PacketOptions::default()).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("nosuchport0: cannot find it") && text.contains("ip link"), "{text}");
}

/// A UDP datagram from 10.77.0.1 to 10.77.0.9, port 4500, as the engine seals them: no checksum.
fn datagram(payload: &[u8]) -> Vec<u8> {
    let len = (8 + payload.len()) as u16;
    let mut bytes = vec![0xff; 6];
    bytes.extend([2, 0, 0, 0, 0, 1, 8, 0]);
    let mut header = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 77, 0, 1, 10, 77, 0, 9];
    header[2..4].copy_from_slice(&(len + 20).to_be_bytes());
    let sum = weir_wire::checksum::ipv4_header(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(header);
    bytes.extend(50_000_u16.to_be_bytes());
    bytes.extend(4500_u16.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(payload);
    bytes
}

#[test]
fn joined_datagrams_are_what_a_kernel_receives_one_by_one() {
    if !lab::possible() {
        return;
    }
    let lab = Lab::new(9000);
    lab.middle.ip("addr add 10.77.0.9/24 dev pl");
    let receiver = lab.middle.within(|| UdpSocket::bind("10.77.0.9:4500").unwrap());
    receiver.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    // The last of a run is shorter; what is longer begins another.
    let lens = [1200, 1200, 1200, 700, 1200, 8900, 8900, 8900, 8900, 8900, 8900, 8900, 8900, 64];
    let payloads: Vec<Vec<u8>> =
        lens.iter().zip(0..).map(|(len, seed)| frame(*len, seed)[14..].to_vec()).collect();
    let frames: Vec<Vec<u8>> = payloads.iter().map(|payload| datagram(payload)).collect();
    let parts: Vec<_> = frames.iter().map(|frame| [std::io::IoSlice::new(frame)]).collect();
    let offload = Offload { joinable: Some(42), ..Offload::default() };
    let batch: Vec<_> = parts.iter().map(|parts| weir_port::Outgoing { parts, offload }).collect();
    // With every checksum made by the kernel and checked by the receiver; cut before the cable, and
    // behind it.
    for offloads in [["tx", "off"], ["tx", "on"], ["tx-udp-segmentation", "on"]] {
        lab.left.command("ethtool", &["-K", "l0", "tx-udp-segmentation", "off"]);
        lab.left.command("ethtool", &[&["-K", "l0"][..], &offloads].concat());
        let mut near = open(&lab.left, "l0");
        let mut watching = open(&lab.middle, "pl");
        let done = near.transmit(&batch);
        assert_eq!((done.sent, done.dropped), (14, 0), "{offloads:?}");
        assert_eq!(near.counters().sent_frames, 14);
        let mut buffer = [0; 10_000];
        for payload in &payloads {
            let (len, from) = receiver.recv_from(&mut buffer).expect("a datagram");
            assert_eq!(from.port(), 50_000);
            assert_eq!(buffer[..len], payload[..], "{offloads:?}");
        }
        // 1200 three times and 700; 1200 alone; 8900 seven times; 8900 and 64.
        let whole = offloads[0] == "tx-udp-segmentation";
        let seen = receive(&mut watching, |seen| seen.len() == 14);
        assert_eq!(seen.len(), if whole { 4 } else { 14 }, "{offloads:?}");
        let bytes: usize = frames.iter().map(Vec::len).sum();
        assert_eq!(near.counters().sent_bytes, bytes as u64);
    }
}
