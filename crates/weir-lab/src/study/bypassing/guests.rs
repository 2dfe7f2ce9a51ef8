//! The same between two guests, whose kernels have ESP of their own: what a raw sender hands to the
//! adapter, and what the kernel's policies make of it.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{Observe, SNAP_LEN, Traffic};
use crate::observe::{Capture, ESP};
use crate::study::steps::Stage;
use crate::topology::{HOST_V4, Side, WIRE_END_A};
use crate::traffic::frames::planned;

/// An emulated machine takes long to start a program.
const PATIENCE: Duration = Duration::from_secs(120);

/// Sends the frames of a file past the kernel's queues, where its own taps listen.
const SENDER: &str = "\
import socket, sys, time
port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
port.setsockopt(263, 20, 1)
port.bind(('eth0', 0))
sent = 0
for line in open('/run/jobs/frames'):
    port.send(bytes.fromhex(line))
    sent += 1
    time.sleep(0.001)
print('sent', sent)
";

/// Frames or echo requests from guest A to guest B.
pub(super) fn run(step: &Observe, stage: &mut Stage<'_>) -> Result<()> {
    let raw = stage.raw.to_owned();
    let wire_file = raw.join("wire.pcap");
    let lab = stage.lab()?;
    let wire = Capture::start(lab.wire(), WIRE_END_A, &wire_file, 65_535)?;
    let is_ping = step.traffic == Traffic::Ping;
    let wanted = if is_ping { step.frames.min(super::PINGS_MAX) } else { step.frames };
    let kind = step.traffic.kind();
    let mut sent = BTreeSet::new();
    let mut text = String::new();
    let mut count = u64::from(wanted);
    if !is_ping {
        let frames = planned(kind, wanted as usize)?;
        let of_a: Vec<_> = frames.iter().filter(|frame| frame.from == Side::A).collect();
        count = of_a.len() as u64;
        for frame in of_a {
            let hex: String = frame.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let _ = writeln!(text, "{hex}");
            sent.insert(frame.bytes.clone());
        }
    }
    let guest = &mut stage.guests()?[0];
    guest.put("frames", &text)?;
    guest.put("send.py", SENDER)?;
    let tcpdump = guest
        .start(&format!("tcpdump -i eth0 -n -U -Z root -s {SNAP_LEN} -w /run/jobs/host.pcap"))?;
    tcpdump.wait_for("listening on", PATIENCE)?;
    let line = match is_ping {
        true => format!("ping -n -i 0.2 -W 2 -c {wanted} {}", HOST_V4[1]),
        false => "python3 /run/jobs/send.py".to_owned(),
    };
    let said = guest.run(&line, PATIENCE)?.success().context("the guest's sender")?;
    // What is on its way to tcpdump arrives.
    guest.run("sleep 2; busybox killall -INT tcpdump", PATIENCE)?;
    let words = tcpdump.finish(PATIENCE)?.output;
    let host_file = raw.join("host-a.pcap");
    fs::copy(guest.shared("host.pcap"), &host_file).context("the guest's tcpdump wrote nothing")?;
    fs::write(raw.join("guest.txt"), format!("{said}\n{words}"))?;
    ensure!(words.contains("0 packets dropped by kernel"), "the guest's tcpdump lost: {words}");
    let wire = wire.stop()?;
    ensure!(wire.dropped_by_kernel == 0, "tcpdump on the wire missed frames");
    let clear = format!("({}) and not ({ESP})", kind.capture_filter());
    let saw = crate::observe::count_in(&host_file, &clear)?;
    // Echo replies are frames of the kind as well.
    let both = if is_ping { 2 * count } else { count };
    let intact = match is_ping {
        true => answered(&said)?,
        false => wire.frames()?.iter().filter(|frame| sent.contains(*frame)).count() as u64,
    };
    let (in_clear, sealed) = (wire.count(&clear)?, wire.count(ESP)?);
    let counts = json!({
        "sent": count, "intact": intact, "host_a_tcpdump": saw, "wire_in_clear": in_clear,
        "wire_sealed": sealed,
    });
    fs::write(raw.join("counts.json"), format!("{counts:#}\n"))?;
    let shares = [
        ("arrived", intact.min(count), count),
        ("host_tcpdump", saw.min(both), both),
        ("weir", 0, count),
        ("wire_clear", in_clear.min(both), both),
        ("wire_sealed", sealed.min(both), both),
    ];
    ensure!(count > 0, "nothing was sent");
    for (name, part, whole) in shares {
        let percent = 100.0 * part as f64 / whole as f64;
        stage.measured.values.insert(name.to_owned(), percent);
    }
    Ok(())
}

/// Replies that ping counts.
fn answered(said: &str) -> Result<u64> {
    let line = said.lines().find(|line| line.contains("packets transmitted"));
    let line = line.with_context(|| format!("ping reports nothing: {said}"))?;
    let word = line.split(", ").nth(1).and_then(|it| it.split_whitespace().next());
    word.and_then(|it| it.parse().ok()).with_context(|| format!("ping says {line}"))
}
