//! The guard on real ports: what passes while the gateway lives, and after it is gone.

mod lab;

use std::thread;
use std::time::Duration;

use lab::{Lab, Namespace, frame, receive, send};
use weir_port::{
    EspPackets, Guard, GuardMode, Interface, IvPrefix, NicPackets, PacketOptions, PacketPort, Port,
};

fn open(namespace: &Namespace, name: &str) -> PacketPort {
    namespace.within(|| PacketPort::open(name, PacketOptions::default()).expect("root opens it"))
}

fn attach(namespace: &Namespace, mode: GuardMode) -> Guard {
    namespace.within(|| Guard::attach("pl", "pr", mode).expect("root attaches it"))
}

/// A lab whose middle would pass everything if it could: a bridge over both ports.
fn bridged() -> Lab {
    let lab = Lab::new(1500);
    lab.middle.ip("link add br0 type bridge");
    lab.middle.ip("link set br0 up");
    for port in ["pl", "pr"] {
        lab.middle.ip(&format!("link set {port} master br0"));
    }
    lab
}

fn passes(lab: &Lab) -> bool {
    let ping = ["-c", "1", "-W", "1", "10.77.0.2"];
    lab.left.command("ping", &ping).status.success()
}

#[test]
fn closed_guard_stops_the_kernel_and_lets_the_gateway_receive_and_send() {
    if !lab::possible() {
        return;
    }
    let lab = bridged();
    assert!(passes(&lab), "the bridge passes without a guard");
    let guard = attach(&lab.middle, GuardMode::Closed);
    assert!(!passes(&lab));
    assert!(guard.counters().unwrap().host.ingress_dropped > 0);

    let (mut near, mut port) = (open(&lab.left, "l0"), open(&lab.middle, "pl"));
    let bytes = frame(300, 1);
    send(&mut near, &bytes);
    assert!(receive(&mut port, |seen| seen.contains(&bytes)).contains(&bytes));
    send(&mut port, &bytes);
    assert!(receive(&mut near, |seen| seen.contains(&bytes)).contains(&bytes));

    let shut = || lab.middle.within(|| ["pl", "pr"].map(|port| Guard::is_attached(port).unwrap()));
    assert_eq!(shut(), [true, true]);
    lab.middle.within(|| Guard::detach("pl", "pr")).unwrap();
    assert_eq!(shut(), [false, false]);
    assert!(passes(&lab), "detached");
}

#[test]
fn marked_frames_pass_where_the_queueing_discipline_is_not_bypassed() {
    if !lab::possible() {
        return;
    }
    let lab = Lab::new(1500);
    let guard = attach(&lab.middle, GuardMode::Closed);
    let queued = PacketOptions { qdisc_bypass: false, ..PacketOptions::default() };
    let mut port = lab.middle.within(|| PacketPort::open("pr", queued).unwrap());
    let mut far = open(&lab.right, "r0");
    let bytes = frame(300, 1);
    send(&mut port, &bytes);
    assert_eq!(receive(&mut far, |seen| !seen.is_empty()), [bytes]);
    assert_eq!(guard.counters().unwrap().wire.egress_own, 1);
}

#[test]
fn what_the_stack_would_send_is_dropped_and_counted_by_kind() {
    if !lab::possible() {
        return;
    }
    let lab = Lab::new(1500);
    let guard = attach(&lab.middle, GuardMode::Closed);
    let mut wire = open(&lab.right, "r0");
    lab.middle.ip("addr add 10.77.0.9/24 dev pr");
    lab.middle.command("ping", &["-c", "1", "-W", "1", "10.77.0.2"]);
    lab.middle.ip("neigh add 10.77.0.3 lladdr 02:00:00:00:00:03 dev pr");
    lab.middle.command("ping", &["-c", "1", "-W", "1", "10.77.0.3"]);
    lab.middle.command("sysctl", &["-qw", "net.ipv6.conf.pr.disable_ipv6=0"]);
    lab.middle.ip("link set pr down");
    lab.middle.ip("link set pr up");
    // The kernel's own words on its groups come some time after the port is up.
    for _ in 0..100 {
        thread::sleep(Duration::from_millis(100));
        if guard.counters().unwrap().wire.egress_ipv6_neighbour_dropped > 0 {
            break;
        }
    }
    let counted = guard.counters().unwrap().wire;
    assert!(counted.egress_arp_dropped > 0, "{counted:?}");
    assert!(counted.egress_other_dropped > 0, "{counted:?}");
    assert!(counted.egress_ipv6_neighbour_dropped > 0, "{counted:?}");
    assert_eq!(wire.receive(&mut |_| panic!("a frame left the port")).unwrap(), 0);
}

#[test]
fn guard_outlives_the_killed_process_that_attached_it() {
    if !lab::possible() {
        return;
    }
    let lab = bridged();
    // This test binary once more, in the middle, to be killed.
    let own = std::env::current_exe().unwrap();
    let arguments = ["--exact", "attach_and_wait", "--ignored", "--nocapture"];
    let mut gateway = lab.middle.spawn(own.to_str().unwrap(), &arguments);
    let attached = (0..600).any(|_| {
        thread::sleep(Duration::from_millis(50));
        let filters = lab.middle.command("tc", &["filter", "show", "dev", "pl", "egress"]);
        String::from_utf8_lossy(&filters.stdout).contains("weir_guard_out")
    });
    assert!(attached, "the gateway started");
    assert!(!passes(&lab));
    gateway.kill();
    thread::sleep(Duration::from_millis(1500));
    assert!(!passes(&lab), "after kill -9 nothing passes");
}

/// The process that the test above kills.
#[test]
#[ignore = "not a test: runs inside another one's namespace until killed"]
fn attach_and_wait() {
    let _guard = Guard::attach("pl", "pr", GuardMode::Closed).unwrap();
    thread::sleep(Duration::from_secs(30));
}

#[test]
fn attaching_again_replaces_without_a_gap() {
    if !lab::possible() {
        return;
    }
    let lab = bridged();
    let _first = attach(&lab.middle, GuardMode::Closed);
    let mut near = open(&lab.left, "l0");
    let mut far = open(&lab.right, "r0");
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            for number in 0..200_000u32 {
                send(&mut near, &frame(100, number as u8));
            }
        });
        let mut replaced = 0;
        while !sending.is_finished() {
            drop(attach(&lab.middle, GuardMode::Closed));
            replaced += 1;
        }
        assert!(replaced > 1);
    });
    assert_eq!(far.receive(&mut |_| panic!("a frame passed during a swap")).unwrap(), 0);
    let filters = lab.middle.command("tc", &["filter", "show", "dev", "pl", "ingress"]);
    let text = String::from_utf8_lossy(&filters.stdout).into_owned();
    assert_eq!(text.matches("direct-action").count(), 1, "{text}");
}

#[test]
fn open_on_failure_passes_only_while_no_heartbeat_comes() {
    if !lab::possible() {
        return;
    }
    let lab = Lab::new(9000);
    let mut guard = attach(&lab.middle, GuardMode::OpenOnFailure);
    assert!(!passes_while_beating(&lab, &mut guard), "a gateway lives");
    thread::sleep(Duration::from_millis(1100));
    assert!(passes(&lab), "no gateway for over a second");
    assert!(guard.counters().unwrap().host.ingress_passed_open > 0);
    assert!(!passes_while_beating(&lab, &mut guard), "the gateway is back");
}

/// Whether a ping passes while heartbeats come.
fn passes_while_beating(lab: &Lab, guard: &mut Guard) -> bool {
    guard.heartbeat().unwrap();
    thread::scope(|scope| {
        let pinging = scope.spawn(|| passes(lab));
        while !pinging.is_finished() {
            guard.heartbeat().unwrap();
            thread::sleep(Duration::from_millis(20));
        }
        pinging.join().unwrap()
    })
}

#[test]
fn guard_for_a_missing_port_is_refused_by_name() {
    let error = Guard::attach("nosuch0", "nosuch1", GuardMode::Closed).unwrap_err();
    assert!(error.to_string().starts_with("nosuch0: "), "{error}");
    assert!(Interface::find("nosuch0").is_err());
}

/// ESP over IPv4 in a frame, of number 1, with an IV that begins so.
fn esp(source: [u8; 4], destination: [u8; 4], spi: u32, iv: [u8; 2]) -> Vec<u8> {
    let mut bytes = vec![0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1, 8, 0];
    bytes.extend([0x45, 0, 0, 56, 0, 0, 0x40, 0, 64, 50, 0, 0]);
    bytes.extend([source, destination].concat());
    bytes.extend(spi.to_be_bytes());
    bytes.extend([0, 0, 0, 1]);
    bytes.extend([&iv[..], &[0; 26]].concat());
    bytes
}

/// Sends through the queueing discipline of `pr` in the middle, as the kernel does, with this mark.
fn send_marked(lab: &Lab, mark: u32, frame: &[u8]) {
    let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
    let script = format!(
        "import socket\ns = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n\
         s.setsockopt(socket.SOL_SOCKET, 36, {mark})\ns.bind(('pr', 0x800))\n\
         try: s.send(bytes.fromhex('{hex}'))\nexcept OSError: pass"
    );
    let said = lab.middle.command("python3", &["-c", &script]);
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}

const A: [u8; 4] = [192, 0, 2, 1];
const B: [u8; 4] = [192, 0, 2, 2];

#[test]
fn the_kernels_esp_leaves_by_its_mark_addresses_spi_and_iv_and_else_stays() {
    if !lab::possible() {
        return;
    }
    let lab = Lab::new(1500);
    let mut guard = attach(&lab.middle, GuardMode::Closed);
    let mut far = open(&lab.right, "r0");
    let mark = 0x5765_0001;
    let packets = EspPackets { source: A.into(), destination: B.into(), spi: 0x2001 };
    let good = esp(A, B, 0x2001, [7, 9]);
    send_marked(&lab, mark, &good);
    assert!(guard.learnt(packets).is_err(), "nothing is let out yet");
    guard.let_out(mark, packets).unwrap();
    assert_eq!(guard.learnt(packets).unwrap(), None);
    send_marked(&lab, mark, &esp(A, B, 0x2002, [1, 1]));
    assert_eq!(guard.learnt(packets).unwrap(), None, "another association's");
    send_marked(&lab, mark, &good);
    send_marked(&lab, mark, &good);
    assert_eq!(guard.learnt(packets).unwrap(), Some(IvPrefix([7, 9])));
    assert_eq!(guard.counters().unwrap().wire.egress_esp, 0, "nobody said that it may pass");
    guard.pass(packets).unwrap();
    let mut fragment = good.clone();
    fragment[20] = 0x20;
    let mut udp = good.clone();
    udp[23] = 17;
    for (mark, frame) in [
        (mark, esp(A, B, 0x2001, [7, 8])),
        (mark, esp(A, B, 0x2002, [7, 9])),
        (mark, esp(A, [192, 0, 2, 3], 0x2001, [7, 9])),
        (mark, esp([192, 0, 2, 3], B, 0x2001, [7, 9])),
        (mark + 1, good.clone()),
        (0, good.clone()),
        (mark, fragment),
        (mark, udp),
        (mark, good[..40].to_vec()),
    ] {
        send_marked(&lab, mark, &frame);
    }
    assert_eq!(guard.passed(packets).unwrap(), 0);
    send_marked(&lab, mark, &good);
    let arrived = receive(&mut far, |seen| !seen.is_empty());
    assert_eq!(arrived, std::slice::from_ref(&good), "and nothing else");
    assert_eq!((guard.passed(packets).unwrap(), guard.counters().unwrap().wire.egress_esp), (1, 1));
    guard.shut(packets).unwrap();
    send_marked(&lab, mark, &good);
    assert_eq!(far.receive(&mut |_| panic!("shut")).unwrap(), 0);
}

#[test]
fn packets_for_a_nic_to_seal_leave_by_their_mark_to_its_networks_and_else_stay() {
    if !lab::possible() {
        return;
    }
    let lab = Lab::new(1500);
    let attached = lab.middle.within(|| Guard::attach_with_xfrm("pl", "pr", &[], true));
    let mut guard = match attached {
        Ok(guard) => guard,
        Err(reason) => {
            eprintln!(
                "SKIPPED: packets for a NIC to seal: is there IPsec in this kernel? {reason}"
            );
            return;
        }
    };
    let mut far = open(&lab.right, "r0");
    let mark = 0x5765_0001;
    // The second lies in the first.
    let networks = [([10, 2, 0, 0], 24), ([10, 2, 0, 128], 25), (B, 32)];
    let networks = networks.map(|(address, len)| (address.into(), len)).to_vec();
    let packets = NicPackets { mark, networks };
    let inner = |destination: [u8; 4]| {
        let mut packet = esp(A, destination, 1, [0, 0]);
        packet[23] = 17;
        packet
    };
    send_marked(&lab, mark, &inner([10, 2, 0, 1]));
    guard.let_out_to_nic(&packets).unwrap();
    for (mark, destination) in [
        (mark, [10, 2, 1, 1]),
        (mark, [192, 0, 2, 3]),
        (mark + 1, [10, 2, 0, 1]),
        (0, [10, 2, 0, 1]),
    ] {
        send_marked(&lab, mark, &inner(destination));
    }
    assert_eq!(guard.left_to_nic(&packets).unwrap(), 0);
    let good = [inner([10, 2, 0, 0]), inner([10, 2, 0, 255]), inner(B)];
    good.iter().for_each(|it| send_marked(&lab, mark, it));
    let arrived = receive(&mut far, |seen| seen.len() == good.len());
    assert_eq!(arrived, good, "and nothing else");
    assert_eq!(guard.left_to_nic(&packets).unwrap(), 3);
    guard.let_out_to_nic(&packets).unwrap();
    assert_eq!(guard.left_to_nic(&packets).unwrap(), 3, "it goes on counting");
    guard.shut_to_nic(&packets).unwrap();
    send_marked(&lab, mark, &good[0]);
    assert_eq!(far.receive(&mut |_| panic!("shut")).unwrap(), 0);
}

#[test]
fn esp_of_known_associations_alone_is_left_to_the_kernels_stack() {
    if !lab::possible() {
        return;
    }
    let lab = Lab::new(1500);
    let mut guard = attach(&lab.middle, GuardMode::Closed);
    let mut far = open(&lab.right, "r0");
    let inward = EspPackets { source: B.into(), destination: A.into(), spi: 0x2002 };
    let good = esp(B, A, 0x2002, [0, 0]);
    send(&mut far, &good);
    guard.let_in(inward).unwrap();
    send(&mut far, &esp(B, A, 0x2003, [0, 0]));
    send(&mut far, &esp([192, 0, 2, 3], A, 0x2002, [0, 0]));
    send(&mut far, &esp(B, B, 0x2002, [0, 0]));
    thread::sleep(Duration::from_millis(100));
    let counted = guard.counters().unwrap().wire;
    assert_eq!((counted.ingress_esp, counted.ingress_dropped), (0, 4), "{counted:?}");
    send(&mut far, &good);
    thread::sleep(Duration::from_millis(100));
    let counted = guard.counters().unwrap().wire;
    assert_eq!((counted.ingress_esp, counted.ingress_dropped), (1, 4), "{counted:?}");
    guard.shut(inward).unwrap();
    send(&mut far, &good);
    thread::sleep(Duration::from_millis(100));
    assert_eq!(guard.counters().unwrap().wire.ingress_esp, 1);
}
