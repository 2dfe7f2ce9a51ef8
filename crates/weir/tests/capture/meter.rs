//! `weir meter` on the same cable: what it counts without a file.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::cable::{Cable, Capture, troubled_frames, write_frames};
use super::{PATIENCE, WEIR};

/// `weir meter`, which has begun.
fn meter(cable: &Cable, args: &[&str]) -> Capture {
    let errors = cable.path("meter.err");
    let mut command = cable.inside(cable.receiver.id(), WEIR);
    command.args(["meter", "-i", "rx0", "--json"]).args(args);
    command.stdout(Stdio::piped()).stderr(File::create(&errors).unwrap());
    let meter = Capture { child: command.spawn().unwrap(), errors };
    let deadline = Instant::now() + PATIENCE;
    while !meter.errors().contains("metering") {
        assert!(Instant::now() < deadline, "not in time: {}", meter.errors());
        std::thread::sleep(Duration::from_millis(10));
    }
    meter
}

/// What it has counted.
fn metered(meter: Capture) -> Value {
    std::thread::sleep(Duration::from_millis(200));
    meter.signal("-INT");
    let output = meter.wait();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

fn counts_as_weir_read_does(driver: &str) {
    let Some(cable) = Cable::new() else { return };
    let frames = troubled_frames();
    write_frames(&cable.path("sent.pcap"), &frames);
    let meter = meter(&cable, &["--conversations", "--driver", driver]);
    cable.send("sent.pcap", "--pps 20000");
    let metered = metered(meter);
    let read = Command::new(WEIR)
        .args(["read", "--json", "--conversations"])
        .arg(cable.path("sent.pcap"))
        .output()
        .unwrap();
    let read: Value = serde_json::from_slice(&read.stdout).unwrap();
    assert_eq!(
        (&metered["heard"], &metered["lost_by_kernel"]),
        (&read["packets"], &Value::from(0))
    );
    for name in ["packets", "bytes", "malformed", "flows", "rdma"] {
        assert_eq!(metered[name], read[name], "{name}");
    }
    let conversations = |report: &Value| report["conversation_list"].as_array().unwrap().len();
    assert_eq!(conversations(&metered), conversations(&read));
}

#[test]
fn a_meter_counts_what_was_sent_as_weir_read_does() {
    counts_as_weir_read_does("packet");
}

#[test]
fn a_meter_by_af_xdp_counts_what_was_sent_as_weir_read_does() {
    counts_as_weir_read_does("xdp");
}

/// Answers to four pings, which the kernel behind `rx0` gives.
fn answers_to_pings(cable: &Cable) -> usize {
    let mut ping = cable.inside(cable.sender.id(), "ping");
    let output = ping.args(["-c", "4", "-i", "0.05", "-W", "1", "10.0.0.2"]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).matches("bytes from").count()
}

#[test]
fn a_meter_by_af_xdp_keeps_the_packets_from_the_host_until_it_ends_and_filters() {
    let Some(cable) = Cable::new() else { return };
    cable.sh(cable.sender.id(), "ip address add 10.0.0.1/24 dev tx0");
    cable.sh(cable.receiver.id(), "ip address add 10.0.0.2/24 dev rx0");
    assert_eq!(answers_to_pings(&cable), 4);
    let meter = meter(&cable, &["--driver", "xdp", "icmp"]);
    assert_eq!(answers_to_pings(&cable), 0);
    let metered = metered(meter);
    assert_eq!(metered["packets"], 4, "ARP is not counted: {metered}");
    assert_eq!(answers_to_pings(&cable), 4, "the host has its packets again");
}
