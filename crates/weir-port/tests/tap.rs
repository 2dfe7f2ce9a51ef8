//! The TAP port: the gateway's own kernel at the other end.

mod lab;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use lab::{Lab, frame, receive, send};
use weir_port::{Guard, GuardMode, PacketOptions, PacketPort, Port, TapOptions, TapPort};

/// The kernel of the middle namespace, 10.77.0.9, behind a TAP.
fn kernel_end(lab: &Lab) -> TapPort {
    let options = TapOptions {
        mtu: 9000,
        mac: Some([2, 0, 0, 0, 0, 9]),
        addresses: vec![(IpAddr::V4(Ipv4Addr::new(10, 77, 0, 9)), 24)],
        ..TapOptions::default()
    };
    lab.middle.within(|| TapPort::open("weir%d", &options).expect("root opens it"))
}

#[test]
fn own_kernel_speaks_by_the_tap_while_the_guard_keeps_the_ports_shut() {
    if !lab::possible() {
        return;
    }
    const LEN: usize = 32 << 20;
    let lab = Lab::new(9000);
    let _guard =
        lab.middle.within(|| Guard::attach("pl", "pr", GuardMode::Closed).expect("a guard"));
    let mut port = lab.middle.within(|| PacketPort::open("pl", PacketOptions::default()).unwrap());
    let mut tap = kernel_end(&lab);
    assert_eq!(tap.name(), "weir0");
    let done = AtomicBool::new(false);
    let (inward, outward) = thread::scope(|scope| {
        let carrying = scope.spawn(|| lab::carry(&mut port, &mut tap, &done));
        let listener = lab.middle.within(|| TcpListener::bind("10.77.0.9:5000").unwrap());
        let host = lab.left.within(|| TcpStream::connect("10.77.0.9:5000").unwrap());
        let (mut host, mut kernel) =
            (lab::impatient(host), lab::impatient(listener.accept().unwrap().0));
        // An echo: super-packets both ways.
        scope.spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(count @ 1..) = kernel.read(&mut buffer) {
                kernel.write_all(&buffer[..count]).unwrap();
            }
        });
        let mut writer = host.try_clone().unwrap();
        let bytes: Vec<u8> = (0..LEN).map(|at| (at / 7) as u8).collect();
        let sent = bytes.clone();
        scope.spawn(move || {
            writer.write_all(&sent).unwrap();
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut back = Vec::new();
        host.read_to_end(&mut back).unwrap();
        done.store(true, Ordering::Relaxed);
        assert!(back == bytes);
        carrying.join().unwrap()
    });
    assert!(inward > 9014 && outward > 9014, "longest frames {inward} in, {outward} out");
    assert_eq!((tap.counters().send_refused, tap.counters().lost_truncated), (0, 0));
}

#[test]
fn vlan_tags_and_frames_for_others_are_kept() {
    if !lab::possible() {
        return;
    }
    let lab = Lab::new(9000);
    let mut tap = kernel_end(&lab);
    let mut stack = lab.middle.within(|| {
        PacketPort::open("weir0", PacketOptions::default()).expect("a TAP is an interface")
    });
    for len in [60, 61, 1514, 9014] {
        let mut tagged = frame(len, 1);
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        assert_eq!(send(&mut tap, &tagged).sent, 1);
        let seen = receive(&mut stack, |seen| !seen.is_empty());
        assert!(seen.iter().eq([&tagged]), "{len} in");
        send(&mut stack, &tagged);
        let seen = receive(&mut tap, |seen| !seen.is_empty());
        assert!(seen.iter().eq([&tagged]), "{len} out");
    }
}

#[test]
fn what_the_queue_cannot_hold_is_counted_as_lost() {
    if !lab::possible() {
        return;
    }
    let lab = Lab::new(1500);
    let options = TapOptions { queue_frames: 16, ..TapOptions::default() };
    let mut tap = lab.middle.within(|| TapPort::open("weir%d", &options).unwrap());
    let mut stack =
        lab.middle.within(|| PacketPort::open("weir0", PacketOptions::default()).unwrap());
    let mut refused = 0;
    for number in 0..100 {
        refused += send(&mut stack, &frame(100, number)).dropped;
    }
    let received = receive(&mut tap, |_| false).len() as u64;
    let lost = tap.counters().lost_ring_full;
    assert!(lost > 0);
    // The sender hears of it too, and tries each frame several times.
    assert_eq!(received, 100 - refused);
}

#[test]
fn tap_goes_with_its_port() {
    if !lab::possible() {
        return;
    }
    let lab = Lab::new(1500);
    let tap = kernel_end(&lab);
    drop(tap);
    let show = lab.middle.command("ip", &["link", "show", "weir0"]);
    assert!(!show.status.success());
}
