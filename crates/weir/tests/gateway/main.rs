//! Two gateways as their operator runs them: the real program in a lab of five namespaces, driven
//! by its command line and by signals. Judges are strangers: tcpdump and tshark on the wire and in
//! the hosts, ping, the hosts' TCP, bytes compared on arrival.
//!
//! Needs root; says so and passes where there is none. A few labs stand side by side.

#![expect(clippy::disallowed_methods, reason = "tests measure and wait from outside")]

mod access;
mod access_guests;
mod addresses;
mod attacks_guests;
mod bump;
mod cloned;
mod decoys;
mod detect;
mod evidence;
mod exceptions;
mod export;
mod fail_closed;
mod fastpath;
mod flood;
mod guard;
mod health;
mod joined;
mod keying;
mod marking;
mod mirror;
mod mirror_way;
mod mtu;
mod offload;
mod openvpn;
mod pairs;
mod path_mtu;
mod ports;
mod reload;
mod replace;
mod restart;
mod rollout;
mod secrets;
mod serve;
mod serve_judges;
mod status;
mod tagged;
mod tagged_guests;
mod trial;
mod vpn;
mod vpn_judges;
mod vpn_names;
mod vpn_sessions;
mod wiped;
mod witness;
mod workers;

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use weir_lab::gateways::{Gateways, Protection, Setup, configure};
use weir_lab::interrupt;
use weir_lab::observe::{Capture, Captured, ESP, gateways_neighbour};
use weir_lab::process::{self, Running};
use weir_lab::topology::{HOST_V6, Lab, Plan, Side, WIRE_END_A};
use weir_lab::traffic::bypass::blast;
use weir_lab::traffic::frames::RoceStream;
use weir_lab::traffic::ping::{ping, ping_all};
use weir_lab::turn::{Turn, Turns};

const WEIR: &str = env!("CARGO_BIN_EXE_weir");
/// What a healthy gateway does, it has done by then.
const PATIENCE: Duration = Duration::from_secs(30);
/// What ping fills its packets with, as ping wants it and as bytes.
const PING_PATTERN: &str = "574549522d4d41524b";
const PING_MARK: &[u8] = b"WEIR-MARK";
/// A piece of a RoCE stream's payload, which counts up.
const ROCE_MARK: [u8; 12] = [64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75];
const TOOLS: [&str; 7] = ["ip", "tc", "ethtool", "setpriv", "ping", "tcpdump", "tshark"];

/// Labs that stand at a time: each waits more than it works.
static TURNS: Turns = Turns::new(4);

/// A lab, and the turn to use the machine.
struct Stand {
    lab: Lab,
    _turn: Turn,
}

/// A lab with jumbo frames for `test`, or word that there is none.
fn stand(test: &str) -> Option<Stand> {
    stand_with(test, Plan::default())
}

fn stand_with(test: &str, plan: Plan) -> Option<Stand> {
    let turn = TURNS.take();
    let privileged = Command::new("unshare").args(["-n", "true"]).output();
    if !privileged.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: {test} needs root (unshare -n)");
        return None;
    }
    if let Err(missing) = process::require(&TOOLS) {
        eprintln!("SKIPPED: {test}: {missing}");
        return None;
    }
    Some(Stand { lab: Lab::build(plan).unwrap(), _turn: turn })
}

fn sealed() -> Setup {
    Setup::new(WEIR, Protection::Sealed)
}

/// Sealing gateways that found each other: a ping passes.
fn sealing_gateways(lab: &Lab, setup: &Setup) -> Gateways {
    let gateways = Gateways::start(lab, setup).unwrap();
    wait_until_it_flows(lab);
    gateways
}

#[track_caller]
fn wait_until_it_flows(lab: &Lab) {
    let target = lab.host_v4(Side::B).to_string();
    let answered = || Ok(ping(lab.host(Side::A), &target, 2, 56)?.answered > 0);
    interrupt::until("answer through the gateways", PATIENCE, answered).unwrap();
}

/// The first status that `wanted` takes.
#[track_caller]
fn wait_status(gateways: &Gateways, side: Side, wanted: impl Fn(&Value) -> bool) -> Value {
    wait_status_within(gateways, side, PATIENCE.as_secs(), wanted)
}

/// The same for what takes its time.
#[track_caller]
fn wait_status_within(
    gateways: &Gateways,
    side: Side,
    seconds: u64,
    wanted: impl Fn(&Value) -> bool,
) -> Value {
    let (mut last, mut failed) = (Value::Null, None);
    let waited = interrupt::until("status as wanted", Duration::from_secs(seconds), || {
        // A gateway whose threads do not answer in time says so, and is asked again.
        match gateways.status(side) {
            Ok(status) => last = status,
            Err(error) => {
                failed = Some(error);
                return Ok(false);
            }
        }
        Ok(wanted(&last))
    });
    if let Err(error) = waited {
        panic!("{error:#}: {last:#} {failed:?}\n{}", gateways.log(side));
    }
    last
}

/// Both statuses, once nothing moves any more. Where keys are agreed, handshakes always move on the
/// wire: there the hosts' ports must rest.
fn at_rest(gateways: &Gateways) -> [Value; 2] {
    let read = || Side::BOTH.map(|side| gateways.status(side).unwrap());
    let moved = |statuses: &[Value; 2]| {
        statuses.each_ref().map(|status| {
            let is_keyed = status.pointer("/pairs/0/keying").is_some_and(|it| !it.is_null());
            let ports: &[&str] = if is_keyed { &["host"] } else { &["host", "wire"] };
            let counts = ports.iter().map(|port| {
                let count = |name| number(status, &format!("/pairs/0/{port}/port/{name}"));
                [count("received_frames"), count("sent_frames")]
            });
            counts.collect::<Vec<_>>()
        })
    };
    let mut last = read();
    interrupt::until("rest", PATIENCE, || {
        pause(400);
        let now = read();
        let rests = moved(&now) == moved(&last);
        last = now;
        Ok(rests)
    })
    .unwrap();
    last
}

/// Has both gateways read `texts` again, with more `lines` in their pairs; it is policy `epoch`.
#[track_caller]
fn reload(lab: &Lab, gateways: &mut Gateways, texts: &[String; 2], lines: &str, epoch: u64) {
    for side in Side::BOTH {
        let text = texts[side.index()].replace("[[pair]]", &format!("[[pair]]\n{lines}"));
        configure(lab, side, &text).unwrap();
        gateways.daemon(side).signal(Signal::HUP).unwrap();
    }
    for side in Side::BOTH {
        wait_status(gateways, side, |it| it["pairs"][0]["policy_epoch"] == epoch);
    }
}

fn number(status: &Value, path: &str) -> u64 {
    status.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} of {status:#}"))
}

fn pause(milliseconds: u64) {
    interrupt::sleep(Duration::from_millis(milliseconds)).unwrap();
}

/// tcpdump on the wire.
fn listen(lab: &Lab, snap_len: u32) -> Capture {
    let file = lab.folder().join("wire.pcap");
    Capture::start(lab.wire(), WIRE_END_A, &file, snap_len).unwrap()
}

/// The wire carried ESP and the gateways' own address resolution, and nothing that a host said.
#[track_caller]
fn assert_sealed(wire: &Captured) {
    assert_eq!(wire.dropped_by_kernel, 0, "tcpdump saw all of it");
    let clear = format!("not ({ESP}) and not ({})", gateways_neighbour());
    assert_eq!(wire.count(&clear).unwrap(), 0, "frames in clear");
    for mark in [PING_MARK, &ROCE_MARK] {
        assert!(!wire.contains(mark).unwrap(), "plaintext {mark:?}");
    }
}

/// Does `work` while host A sends without a pause: marked pings over IPv4 and IPv6, and RoCE past
/// its kernel.
fn under_traffic<T>(lab: &Lab, work: impl FnOnce() -> T) -> T {
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stopped = AtomicBool::new(false);
    let targets = [lab.host_v4(Side::B).to_string(), HOST_V6[1].to_string()];
    let _pings = targets.map(|target| {
        let mut command = lab.host(Side::A).command("ping");
        command.args(["-q", "-n", "-i", "0.01", "-s", "200", "-p", PING_PATTERN, &target]);
        Running::start(&mut command).unwrap()
    });
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = RoceStream::new(1024).unwrap();
            while !stopped.load(Ordering::Relaxed) {
                blast(lab, &mut stream, 100, 500).unwrap();
            }
        });
        let _stop = Stop(&stopped);
        work()
    })
}
