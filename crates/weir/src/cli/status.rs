//! `weir status`: what a running gateway says of itself.

mod peers;

use std::fmt::Write as _;
use std::fs::TryLockError;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use self::peers::peer_line;
use super::args::StatusCommandArgs;
use super::{health, print_json, watch};
use crate::api::dto::{
    KeyingSnapshot, LossSnapshot, PairSnapshot, RdmaSnapshot, Request, Response, SideSnapshot,
    Snapshot,
};
use crate::daemon::control::socket;

/// Runs `weir status`.
///
/// # Errors
/// No gateway answers.
pub fn run(args: &StatusCommandArgs) -> Result<ExitCode> {
    if args.watch {
        return watch::run(&args.status);
    }
    let snapshot = ask_status(&args.status.run_dir, args.status.name.as_deref())?;
    let mut findings = health::findings(&snapshot);
    if args.check {
        findings.extend(health::unreached(&snapshot));
        findings.extend(health::unwatched(&snapshot));
        findings.extend(health::unwritten(&snapshot));
        findings.extend(taken_back(&snapshot));
        findings.extend(not_stored(&snapshot));
        let of_rules = snapshot.configuration.rules_warnings.iter();
        let of_rules = of_rules.map(|it| format!("{}: {it}", snapshot.name));
        let warnings = health::losses(&snapshot).into_iter().chain(of_rules);
        warnings.for_each(|it| eprintln!("weir: warning: {it}"));
    }
    match (args.check, args.status.json) {
        (false, true) => print_json(&snapshot)?,
        (false, false) => print!("{}", table(&snapshot)),
        (true, true) => print_json(&findings)?,
        (true, false) => findings.iter().for_each(|finding| println!("{finding}")),
    }
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A configuration that was taken back, a sentence; not a fault of the gateway's.
fn taken_back(snapshot: &Snapshot) -> Option<String> {
    let why = snapshot.configuration.rolled_back_because.as_ref()?;
    Some(format!("{}: {why}", snapshot.name))
}

/// A store that fails, a sentence; the gateway itself goes on as it should.
fn not_stored(snapshot: &Snapshot) -> Option<String> {
    let failure = snapshot.store.as_ref()?.failure.as_ref()?;
    Some(format!("{}: nothing is stored: {failure}", snapshot.name))
}

/// What the gateway called `name`, or the only one, says of itself.
pub(super) fn ask_status(run_dir: &Path, name: Option<&str>) -> Result<Snapshot> {
    let socket = find_socket(run_dir, name)?;
    let response = socket::ask(&socket, &Request::Status).with_context(|| {
        format!("no gateway answers at {}; is it running, and are you root?", socket.display())
    })?;
    match response {
        Response::Status(snapshot) => Ok(*snapshot),
        Response::Error(error) => bail!("the gateway says: {error}"),
        _ => bail!("the gateway answers another question"),
    }
}

pub(super) fn find_socket(run_dir: &Path, name: Option<&str>) -> Result<PathBuf> {
    if let Some(name) = name {
        if name.contains('/') {
            bail!("`{name}` is a file: what is asked for is the gateway's `name` in [gateway]");
        }
        let socket = run_dir.join(format!("{name}.sock"));
        let others = sockets(run_dir).unwrap_or_default();
        if !socket.exists() && !others.is_empty() {
            bail!("no gateway `{name}` runs here, but: {}", names(&others));
        }
        return Ok(socket);
    }
    let sockets = sockets(run_dir).with_context(|| {
        format!("no gateway runs here: cannot read {} (--run-dir)", run_dir.display())
    })?;
    let running: Vec<PathBuf> = sockets.iter().filter(|it| is_running(it)).cloned().collect();
    match if running.is_empty() { &sockets[..] } else { &running[..] } {
        [one] => Ok(one.clone()),
        [] => bail!("no gateway runs here: no socket in {} (--run-dir)", run_dir.display()),
        several => bail!("several gateways run here; name one of: {}", names(several)),
    }
}

/// Whether a socket is that of a gateway that runs, which holds a lock beside it: others leave
/// sockets in its directory, and so does one that was killed.
fn is_running(socket: &Path) -> bool {
    let Ok(lock) = std::fs::File::open(socket.with_extension("lock")) else { return false };
    matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// The control sockets of a directory, in the order of their names.
fn sockets(run_dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(run_dir)?;
    let mut sockets: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|it| it == "sock"))
        .collect();
    sockets.sort();
    Ok(sockets)
}

/// Whose sockets they are.
fn names(sockets: &[PathBuf]) -> String {
    let names: Vec<_> = sockets.iter().filter_map(|path| path.file_stem()?.to_str()).collect();
    names.join(", ")
}

pub(super) fn table(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    let sums = if snapshot.adds_up { "the counters add up" } else { "THE COUNTERS DO NOT ADD UP" };
    let _ = writeln!(
        text,
        "{} (weir {}, pid {}): up {}, fails {}; {sums}",
        snapshot.name,
        snapshot.version,
        snapshot.pid,
        duration(snapshot.uptime_seconds),
        snapshot.on_failure,
    );
    configuration_lines(&mut text, snapshot);
    if snapshot.reloads_refused > 0 {
        let _ = writeln!(text, "configurations refused since: {}", snapshot.reloads_refused);
    }
    for pair in &snapshot.pairs {
        pair_table(&mut text, pair);
    }
    if let Some(store) = &snapshot.store {
        let state = store.failure.as_ref().map_or("written".into(), |it| format!("FAILS: {it}"));
        let (written, lost) = (store.written, store.overflowed);
        let _ = writeln!(text, "store: {state}; {written} records, {lost} overflowed");
    }
    if let Some(alerts) = &snapshot.alerts {
        text.push_str(&alerts.lines());
    }
    for export in &snapshot.exports {
        let state = if export.is_connected { "connected" } else { "not connected" };
        let _ = writeln!(
            text,
            "export {}: {state}; {} records as {} data records in {} messages; {} messages wait, \
             {} records overflowed, {} data records lost",
            export.collector,
            export.records,
            export.data_records,
            export.messages_sent,
            export.messages_waiting,
            export.overflowed,
            export.data_records_lost,
        );
    }
    text
}

/// How the configuration stands, where that is more than "it is in force".
fn configuration_lines(text: &mut String, snapshot: &Snapshot) {
    let configuration = &snapshot.configuration;
    if let Some(seconds) = configuration.seconds_left {
        let _ = writeln!(
            text,
            "CONFIGURATION {} IS UNCONFIRMED: it is taken back in {seconds:.0} s unless `weir \
             confirm {}` is said",
            configuration.epoch, snapshot.name,
        );
    }
    for warning in &configuration.rules_warnings {
        let _ = writeln!(text, "rules: WARNING: {warning}");
    }
    if let Some(why) = &configuration.rolled_back_because {
        let _ = writeln!(text, "TAKEN BACK: {why}; in force: {}", configuration.path.display());
    }
}

fn pair_table(text: &mut String, pair: &PairSnapshot) {
    let _ = writeln!(
        text,
        "\npair {} ({}), policy {}\n  {:<22} {:>16} {:>16}",
        pair.name,
        pair.driver,
        pair.policy_epoch,
        "",
        format!("host {}", pair.host.interface),
        format!("wire {}", pair.wire.interface),
    );
    type Column = fn(&SideSnapshot) -> u64;
    let rows: [(&str, Column); 19] = [
        ("received", |side| side.received),
        ("  forwarded", |side| side.forwarded),
        ("    by the fast path", |side| side.fast),
        ("  sealed", |side| side.sealed),
        ("  opened", |side| side.opened),
        ("  tagged", |side| side.tagged),
        ("  to the kernel's ESP", |side| side.handed),
        ("  clear", |side| side.clear),
        ("  in clear to peers", |side| side.unsealed),
        ("  punted", |side| side.punted),
        ("  consumed", |side| side.consumed),
        ("  dropped", |side| side.dropped),
        ("received bytes", |side| side.received_bytes),
        ("sent", |side| side.port.sent_frames),
        ("sent bytes", |side| side.port.sent_bytes),
        ("lost before us", |side| {
            side.port.lost_ring_full + side.port.lost_truncated + side.port.device_dropped
        }),
        ("not sent", |side| {
            side.port.send_queue_full + side.port.send_too_large + side.port.send_refused
        }),
        ("guard dropped", |side| side.guard_dropped),
        ("kernel copies removed", |side| side.kernel_copies),
    ];
    for (name, column) in rows {
        let _ =
            writeln!(text, "  {name:<22} {:>16} {:>16}", column(&pair.host), column(&pair.wire));
    }
    worker_lines(text, pair);
    side_lines(text, pair);
    fast_path_lines(text, pair);
    wire_proof_lines(text, pair);
    marking_lines(text, pair);
    for peer in &pair.peers {
        peer_line(text, peer);
    }
    if let Some(keying) = &pair.keying {
        handshake_lines(text, keying);
    }
    if let Some(detection) = &pair.detection {
        text.push_str(&detection.line());
    }
    text.push_str(&pair.inside.line());
    bystander_lines(text, pair);
    rdma_line(text, &pair.rdma);
}

/// How several workers share the work.
fn worker_lines(text: &mut String, pair: &PairSnapshot) {
    for worker in &pair.workers {
        let _ = writeln!(
            text,
            "  worker {}: {} from the host ({} sealed), {} from the wire ({} opened), {} dropped, \
             {} lost by its rings; {} flows",
            worker.number,
            worker.host_received,
            worker.sealed,
            worker.wire_received,
            worker.opened,
            worker.dropped,
            worker.lost_ring_full,
            worker.flows,
        );
    }
}

/// What the fabric is shown instead of the packets' own classes of traffic.
fn marking_lines(text: &mut String, pair: &PairSnapshot) {
    for (kind, map) in [("DSCP", &pair.dscp_map), ("VLAN priority", &pair.pcp_map)] {
        if !map.is_empty() {
            let changes: Vec<_> = map.iter().map(|(a, b)| format!("{a} as {b}")).collect();
            let _ = writeln!(text, "  {kind} outside: {}; the rest as inside", changes.join(", "));
        }
    }
}

fn rdma_line(text: &mut String, rdma: &RdmaSnapshot) {
    if rdma.packets > 0 {
        let _ = writeln!(
            text,
            "  rdma: {} packets ({} v2, {} v1), {} queue pairs; ICRC {} ok, {} bad, {} unchecked; \
             {} retransmissions, {} CNP",
            rdma.packets,
            rdma.roce_v2,
            rdma.roce_v1,
            rdma.queue_pairs,
            rdma.icrc_ok,
            rdma.icrc_bad,
            rdma.icrc_unchecked,
            rdma.retransmissions,
            rdma.cnp,
        );
        let opcodes = rdma.opcodes.iter().map(|(name, count)| format!("{name} {count}"));
        let opcodes: Vec<String> = opcodes.collect();
        if !opcodes.is_empty() {
            let _ = writeln!(text, "  rdma opcodes: {}", opcodes.join(", "));
        }
        loss_line(text, &rdma.losses);
    }
}

fn side_lines(text: &mut String, pair: &PairSnapshot) {
    for side in [&pair.host, &pair.wire] {
        for (kind, count) in &side.clear_by_kind {
            let _ = writeln!(text, "  clear from {}: {count} {kind}", side.interface);
        }
        for (name, count) in &side.pause {
            let _ = writeln!(text, "  {} (NIC): {count} {name}", side.interface);
        }
    }
}

fn loss_line(text: &mut String, losses: &LossSnapshot) {
    if *losses == LossSnapshot::default() {
        return;
    }
    let _ = writeln!(
        text,
        "  rdma losses: {} on the host's side, {} in the gateway, {} beyond the wire; overtaken: \
         {} from the host, {} from the wire",
        losses.host_side,
        losses.gateway,
        losses.wire_side,
        losses.host_side_overtaken,
        losses.wire_side_overtaken,
    );
}

fn bystander_lines(text: &mut String, pair: &PairSnapshot) {
    if let Some(ring) = &pair.evidence {
        let _ = write!(text, "  evidence: {}", super::evidence::describe(ring));
        let _ = match pair.fast_path.heads_lost {
            0 => writeln!(text),
            lost => writeln!(text, "; MISSING: {lost} frames of the fast path"),
        };
        if let Some(disk) = &ring.disk {
            let _ = writeln!(text, "    {}", super::evidence::describe_disk(disk));
        }
    }
    for mirror in &pair.mirrors {
        let _ = writeln!(
            text,
            "  mirror {} to {}{}: {} chosen, {} mirrored, {} of them cut short, {} dropped",
            mirror.name,
            mirror.port,
            if mirror.by_kernel { " by the kernel" } else { "" },
            mirror.chosen,
            mirror.mirrored,
            mirror.truncated,
            mirror.dropped,
        );
        for (count, why) in [
            (mirror.dropped_queue_full, "its queue was full"),
            (mirror.dropped_too_large, "too large for it"),
            (mirror.dropped_port_down, "the port was down or gone"),
        ] {
            if count > 0 {
                let _ = writeln!(text, "    {count:>12} dropped: {why}");
            }
        }
    }
}

fn fast_path_lines(text: &mut String, pair: &PairSnapshot) {
    let fast = &pair.fast_path;
    let _ = write!(text, "  fast path ({}): {}", fast.setting, fast.state);
    if let Some(share) = fast.share_frames.filter(|_| fast.flows_max > 0) {
        let _ = write!(
            text,
            "; {:.1} % of frames, {:.1} % of bytes; {} of {} flows; {} copies up, {} lost",
            share * 100.0,
            fast.share_bytes.unwrap_or_default() * 100.0,
            fast.flows,
            fast.flows_max,
            fast.events,
            fast.events_lost,
        );
    }
    if fast.refused_packets > 0 {
        let _ = write!(text, "; {} packets found its table full", fast.refused_packets);
    }
    let _ = writeln!(text);
    for rule in fast.rules.iter().filter(|_| fast.flows_max > 0) {
        let _ = writeln!(
            text,
            "  rule {} {} {}: {}",
            rule.interface, rule.direction, rule.program, rule.placement
        );
    }
}

fn wire_proof_lines(text: &mut String, pair: &PairSnapshot) {
    let proof = &pair.wire_proof;
    if proof.checked == 0 && pair.peers.is_empty() {
        return;
    }
    let clear = proof.clear_by_kind.values().sum::<u64>() + proof.clear_by_policy;
    let _ = writeln!(
        text,
        "  plaintext on the wire that must be sealed: {}{}; in clear as configured: {clear} ({} \
         frames checked: {} ESP, {} tagged, {} keying, {} own)",
        proof.plaintext - proof.plaintext_dropped,
        match proof.plaintext_dropped {
            0 => String::new(),
            dropped => format!("; KEPT FROM IT AT THE LAST MOMENT: {dropped}"),
        },
        proof.checked,
        proof.esp,
        proof.tagged,
        proof.keying,
        proof.own,
    );
    if let Some(last) = &proof.plaintext_last {
        let _ = writeln!(text, "  LAST PLAINTEXT: {last}");
    }
}

fn handshake_lines(text: &mut String, keying: &KeyingSnapshot) {
    let _ = writeln!(
        text,
        "  handshakes: {} done; {} datagrams sent and {} received in clear; {} replayed, {} forged \
         or late, {} of strangers, {} mismatched, {} refused, {} lost; {} cookies sent{}",
        keying.handshakes,
        keying.frames_sent,
        keying.frames_received,
        keying.replayed,
        keying.not_authentic + keying.mac1_wrong + keying.malformed,
        keying.unknown_peer,
        keying.mismatched,
        keying.refused,
        keying.overflowed,
        keying.cookies_sent,
        if keying.is_loaded { "; UNDER LOAD" } else { "" },
    );
}

fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::dto::{AlertsSnapshot, DetectionSnapshot};

    #[test]
    fn plaintext_at_the_wire_is_a_finding_and_no_other_frame_is() {
        let mut snapshot =
            Snapshot { adds_up: true, pairs: vec![PairSnapshot::default()], ..Default::default() };
        snapshot.pairs[0].wire_proof.esp = 9;
        assert!(health::findings(&snapshot).is_empty());
        assert!(table(&snapshot).find("plaintext on the wire").is_none(), "it seals nothing");
        let proof = &mut snapshot.pairs[0].wire_proof;
        (proof.checked, proof.plaintext, proof.plaintext_dropped) = (12, 3, 2);
        assert!(health::findings(&snapshot)[0].contains("3 frames in plaintext"));
        assert!(health::findings(&snapshot)[0].contains("1 of them left"));
        let text = table(&snapshot);
        assert!(text.contains("that must be sealed: 1; KEPT FROM IT"), "{text}");
    }

    #[test]
    fn a_configuration_that_is_unconfirmed_or_was_taken_back_is_told_in_capitals() {
        let mut snapshot = Snapshot { adds_up: true, ..Default::default() };
        snapshot.configuration.seconds_left = Some(41.6);
        assert!(taken_back(&snapshot).is_none(), "a trial is no fault");
        let text = table(&snapshot);
        assert!(text.contains("IS UNCONFIRMED: it is taken back in 42 s"), "{text}");
        snapshot.configuration.seconds_left = None;
        snapshot.configuration.rolled_back_because = Some("configuration 2: nobody".into());
        assert!(taken_back(&snapshot).unwrap().contains("configuration 2: nobody"));
        assert!(table(&snapshot).contains("TAKEN BACK: configuration 2: nobody"));
    }

    #[test]
    fn rules_of_a_pair_are_told_and_that_none_runs() {
        let rules = |rules, mode: &str| DetectionSnapshot {
            rules,
            mode: mode.into(),
            ..DetectionSnapshot::default()
        };
        let table = |detection| {
            let pair = PairSnapshot { detection: Some(detection), ..PairSnapshot::default() };
            table(&Snapshot { pairs: vec![pair], ..Snapshot::default() })
        };
        assert!(table(rules(7, "enforce")).contains("  rules: 7 run and enforce; 0 packets"));
        assert!(table(rules(7, "watch")).contains("  rules: 7 run and only watch; 0 packets"));
        assert!(table(rules(0, "enforce")).contains("  rules: NONE RUNS: nothing is looked for\n"));
        let full = DetectionSnapshot { flows_evicted: 4, ..rules(7, "enforce") };
        assert!(table(full).contains("  rules: 4 flows forgotten before their time, 0 looks"));
    }

    #[test]
    fn lost_alerts_and_records_are_told() {
        let alerts = AlertsSnapshot { lost: 1, records: 9, records_lost: 2, ..Default::default() };
        let text = table(&Snapshot { alerts: Some(alerts), ..Snapshot::default() });
        assert!(text.contains(" 1 lost; 9 records, of them 2 lost\n"), "{text}");
    }

    #[test]
    fn several_gateways_must_be_named() {
        let directory = tempfile::tempdir().unwrap();
        let find = || find_socket(directory.path(), None);
        assert!(find().unwrap_err().to_string().contains("no gateway runs here"));
        std::fs::write(directory.path().join("a.sock"), "").unwrap();
        assert!(find().unwrap().ends_with("a.sock"));
        std::fs::write(directory.path().join("b.sock"), "").unwrap();
        assert!(find().unwrap_err().to_string().contains("a, b"));
        // One that runs holds its lock, and others are left from before.
        let lock = std::fs::File::create(directory.path().join("b.lock")).unwrap();
        assert!(find().is_err());
        lock.lock().unwrap();
        assert!(find().unwrap().ends_with("b.sock"));
        let of_file = find_socket(directory.path(), Some("/etc/weir/a.toml"));
        assert!(of_file.unwrap_err().to_string().contains("the gateway's `name`"));
    }
}
