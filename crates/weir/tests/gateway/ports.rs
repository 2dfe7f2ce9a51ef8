//! Ports that are late, go down, are made anew under their names, or lose their guard; a gateway's
//! own kernel that would speak there; and a stranger's tcpdump on the wire.

use std::fs;

use rustix::process::Signal;
use weir_lab::gateways::configurations;
use weir_lab::topology::{GATEWAY_MAC, GATEWAY_V4, HOST_PORT, WIRE_END_B, WIRE_PORT, text_mac};

use super::*;

/// The wire's next end at gateway A.
const NEXT_WIRE_END: &str = "wireC";

/// A new cable, the wire's side of which hears and passes on already; gateway A's end is still a
/// stranger's.
fn lay_cable(lab: &Lab) {
    let wire = lab.wire();
    let mac = text_mac(GATEWAY_MAC[0]);
    wire.ip(&format!(
        "link add {NEXT_WIRE_END} mtu 9000 type veth peer name fresh0 mtu 9000 address {mac}\n\
         link set {NEXT_WIRE_END} up\n"
    ))
    .unwrap();
    wire.set(&[(&format!("net.ipv6.conf.{NEXT_WIRE_END}.disable_ipv6"), "1")]).unwrap();
    wire.run(&format!("tc qdisc add dev {NEXT_WIRE_END} clsact")).unwrap();
    wire.run(&format!("tc filter del dev {WIRE_END_B} ingress")).unwrap();
    for (from, to) in [(NEXT_WIRE_END, WIRE_END_B), (WIRE_END_B, NEXT_WIRE_END)] {
        wire.run(&format!(
            "tc filter add dev {from} ingress protocol all prio 1 u32 match u32 0 0 action mirred \
             egress redirect dev {to}"
        ))
        .unwrap();
    }
}

/// Has the gateway's own kernel speak on its wire port for a while, in clear if it may, once the
/// gateway says that it shut the port.
fn kernel_speaks(lab: &Lab, gateways: &Gateways) {
    let is_shut = || Ok(gateways.log(Side::A).contains("it is shut"));
    interrupt::until("word that the port is shut", PATIENCE, is_shut).unwrap();
    let gateway = lab.gateway(Side::A);
    gateway
        .ip(&format!(
            "addr replace 192.168.99.1/24 dev {WIRE_PORT}\n\
             neigh replace 192.168.99.2 lladdr 02:00:00:00:00:99 dev {WIRE_PORT}\n"
        ))
        .unwrap();
    let mut command = gateway.command("ping");
    command.args(["-q", "-n", "-c", "20", "-i", "0.05", "-w", "2", "-p", PING_PATTERN]);
    let spoken = Running::start(command.arg("192.168.99.2")).unwrap().finish(PATIENCE).unwrap();
    assert!(spoken.stdout.contains("packets transmitted"), "{}", spoken.stderr);
}

#[test]
fn a_wire_port_made_anew_under_its_name_is_shut_and_the_gateway_carries_again() {
    let Some(Stand { _turn, lab }) = stand("a_wire_port_made_anew") else { return };
    let gateways = sealing_gateways(&lab, &sealed());
    lay_cable(&lab);
    let file = lab.folder().join("next-wire.pcap");
    let wire = Capture::start(lab.wire(), NEXT_WIRE_END, &file, 256).unwrap();
    under_traffic(&lab, || {
        let gateway = lab.gateway(Side::A);
        gateway.ip(&format!("link del {WIRE_PORT}")).unwrap();
        pause(300);
        // Named and switched on at one stroke.
        let name = gateway.name();
        lab.wire().ip(&format!("link set fresh0 netns {name} name {WIRE_PORT} up\n")).unwrap();
        kernel_speaks(&lab, &gateways);
        wait_until_it_flows(&lab);
    });
    let wire = wire.stop().unwrap();
    assert_sealed(&wire);
    assert!(wire.count(ESP).unwrap() > 100, "traffic is sealed again");
    let log = gateways.log(Side::A);
    assert!(log.contains("p0 is another interface than before"), "{log}");
    assert_eq!(log.matches("all is opened anew").count(), 1, "{log}");
    assert_eq!(gateways.status(Side::A).unwrap()["adds_up"], true);
}

#[test]
fn a_port_that_lost_its_guard_is_shut_again_and_carries_on() {
    let Some(Stand { _turn, lab }) = stand("a_port_that_lost_its_guard") else { return };
    let gateways = sealing_gateways(&lab, &sealed());
    let wire = listen(&lab, 256);
    under_traffic(&lab, || {
        lab.gateway(Side::A).run(&format!("tc qdisc del dev {WIRE_PORT} clsact")).unwrap();
        kernel_speaks(&lab, &gateways);
        wait_until_it_flows(&lab);
    });
    let wire = wire.stop().unwrap();
    // Until the port is shut, the gateway's own kernel meets ESP to its address, and says so.
    let own = format!("icmp and src host {} and icmp[0] == 3", GATEWAY_V4[0]);
    let clear = format!("not ({ESP}) and not ({}) and not ({own})", gateways_neighbour());
    assert_eq!(wire.count(&clear).unwrap(), 0, "frames in clear");
    for mark in [PING_MARK, &ROCE_MARK] {
        assert!(!wire.contains(mark).unwrap(), "plaintext {mark:?}");
    }
    let log = gateways.log(Side::A);
    assert!(log.contains("somebody took the guard from p0"), "{log}");
    assert_eq!(guard::guard(&lab, Side::A, &["show"]).status.code(), Some(0));
}

#[test]
fn a_port_that_was_down_and_is_up_again_leaves_the_gateway_idle() {
    const MEASURED_MS: u64 = 2000;
    let Some(Stand { _turn, lab }) = stand("a_port_that_was_down") else { return };
    let gateways = sealing_gateways(&lab, &sealed());
    for port in [HOST_PORT, WIRE_PORT] {
        lab.gateway(Side::A).ip(&format!("link set {port} down\nlink set {port} up\n")).unwrap();
    }
    wait_until_it_flows(&lab);
    let ticks = || {
        let stat = format!("/proc/{}/stat", gateways.process_ids()[0]);
        let stat = fs::read_to_string(stat).unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        let fields: Vec<u64> = fields.split(' ').map(|it| it.parse().unwrap_or(0)).collect();
        // utime and stime, of all threads, in hundredths of a second.
        fields[11] + fields[12]
    };
    let before = ticks();
    pause(MEASURED_MS);
    let used_ms = (ticks() - before) * 10;
    assert!(used_ms * 100 < MEASURED_MS * 30, "{used_ms} of {MEASURED_MS} ms without traffic");
}

#[test]
fn ports_that_come_late_are_waited_for_each_by_its_name() {
    let Some(Stand { _turn, lab }) = stand("ports_that_come_late") else { return };
    let [text, _] = configurations(&lab, &Setup::new(WEIR, Protection::Plain)).unwrap();
    let late = text.replace(HOST_PORT, "late0").replace(WIRE_PORT, "late1");
    let file = configure(&lab, Side::A, &late).unwrap();
    let weir = |words: &[&str]| {
        let mut command = lab.gateway(Side::A).command(WEIR);
        Running::start(command.args(words).arg(&file)).unwrap()
    };
    let checked = weir(&["check"]).finish(PATIENCE).unwrap();
    assert_eq!(checked.status.code(), Some(0), "{}", checked.stderr);
    assert!(checked.stderr.contains("warning: interface `late1` is not there"));
    let refused = weir(&["up", "--wait", "0"]).finish(PATIENCE).unwrap();
    // Not 2, which a service manager takes for a file that no new start mends.
    assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);

    let mut waiting = weir(&["up", "--wait", "60"]);
    for port in ["late0", "late1"] {
        waiting.wait_for(&format!("interface `{port}` is not there"), PATIENCE).unwrap();
    }
    lab.gateway(Side::A).ip("link add late0 type veth peer name late1\n").unwrap();
    waiting.wait_for("interface `late0` is down", PATIENCE).unwrap();
    lab.gateway(Side::A).ip("link set late0 up\nlink set late1 up\n").unwrap();
    waiting.wait_for("ready", PATIENCE).unwrap();
    assert!(waiting.stop(Signal::TERM).unwrap().status.success());
}
