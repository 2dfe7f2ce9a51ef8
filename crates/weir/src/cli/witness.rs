//! `weir witness`: a third party that listens on the wire between gateways and believes neither.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use weir_engine::policy::{self, FrameClass, mapped};
use weir_engine::proof::glance::readable;
use weir_engine::proof::witness::{EXAMPLES_MAX, Expectations, Witness};
use weir_port::{Interface, KernelFilter, PacketOptions, PacketPort, Port, wait};
use weir_store::clock;

use super::print_json;
use crate::config::address::Prefix;
use crate::config::keying::PORT_DEFAULT;

/// Bytes of each frame that are looked at: Ethernet with two tags, IPv6 with extension headers,
/// UDP, ESP.
const SNAP_BYTES: u32 = 192;
const RING_SLOTS: usize = 65_536;
const WAIT: Duration = Duration::from_millis(100);

const HELP: &str = "\
Listens only: on a mirror port, or on a port of any machine that the wire goes through. Both
directions of the port are looked at, the first bytes of each frame, and nothing is kept.

Without --sealed, everything must be sealed. With --between, ESP must travel between these addresses
(of gateways that have their own), which may send ARP, neighbour discovery, ICMP, IKE and handshakes
for themselves. Without it, ESP may travel between any, and address resolution needs --allow: so it
is for gateways that borrow the hosts' addresses.

With --tagged, RoCE packets of these addresses must not carry their ordinary ICRC. Whether what they
carry is a right tag takes the gateways' key: a witness cannot tell.

A sequence number that an SPI used already is a violation, too: a nonce used twice, or a frame that
somebody sent again. Listen where each frame passes once.

Examples:
  weir witness -i p0 --between 192.0.2.1 192.0.2.2 --seconds 60
  weir witness -i p0 --tagged 10.0.0.0/24
  weir witness -i mirror0 --sealed 10.0.0.0/8 --allow arp lldp --json

Exit codes:
  0  frames were seen, none was lost, and each was as it should be
  1  violations; or frames were lost, could not be judged, or none was seen, which proves nothing
  2  the command line is wrong";

/// Arguments of `weir witness`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct WitnessArgs {
    /// The interface
    #[arg(short, long, value_name = "PORT")]
    pub interface: String,
    /// The gateways' own addresses on the wire
    #[arg(long, value_name = "ADDRESS", num_args = 1..=64)]
    pub between: Vec<IpAddr>,
    /// Addresses whose RoCE packets must carry tags (mode = "icrc-tag"), none an ordinary ICRC
    #[arg(long, value_name = "PREFIX", num_args = 1..=64)]
    pub tagged: Vec<Prefix>,
    /// Addresses that must appear sealed only [default: everything; with --tagged: nothing]
    #[arg(long, value_name = "PREFIX", num_args = 1..=64)]
    pub sealed: Vec<Prefix>,
    /// Kinds of frames that may be clear, as in `[pair.frames]`: arp, lldp, pause, ...
    #[arg(long, value_name = "KIND", num_args = 1.., value_parser = class)]
    pub allow: Vec<FrameClass>,
    /// UDP port of the gateways' handshakes
    #[arg(long, value_name = "PORT", default_value_t = PORT_DEFAULT)]
    pub keying_port: u16,
    /// End after this many seconds; without it, Ctrl-C ends
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: Option<u32>,
    /// End at the first violation
    #[arg(long)]
    pub stop_at_violation: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

fn class(name: &str) -> Result<FrameClass, String> {
    FrameClass::ALL.into_iter().find(|it| it.name() == name).ok_or_else(|| {
        let names: Vec<_> = FrameClass::ALL.iter().map(|it| it.name()).collect();
        format!("no such kind; there are {}", names.join(", "))
    })
}

/// Bytes of each frame that are looked at where ICRCs are: all of a RoCE frame.
const SNAP_BYTES_ROCE: u32 = 4352;

/// Runs `weir witness`.
///
/// # Errors
/// The interface cannot be listened to.
pub fn run(args: &WitnessArgs) -> Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .context("cannot watch for signals")?;
    }
    let snap = if args.tagged.is_empty() { SNAP_BYTES } else { SNAP_BYTES_ROCE };
    let mut port = open(&args.interface, snap)?;
    eprintln!("weir: a witness listens on {}; Ctrl-C ends it", args.interface);
    let mut witness = Witness::new(expectations(args));
    let begin = clock::now();
    listen(args, &mut port, &mut witness, &stop, begin)?;
    let report = report(args, &mut port, &witness, begin.elapsed());
    if args.json {
        print_json(&report)?;
    } else {
        print!("{}", text(&report));
    }
    Ok(if report.is_proof { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn expectations(args: &WitnessArgs) -> Expectations {
    let prefix = |it: &Prefix| policy::Prefix::new(it.network(), it.length_bits());
    Expectations {
        sealed: args.sealed.iter().map(prefix).collect(),
        tagged: args.tagged.iter().map(prefix).collect(),
        gateways: args.between.iter().map(|it| mapped(*it)).collect(),
        allowed: args.allow.clone(),
        keying_port: args.keying_port,
    }
}

fn open(interface: &str, snap_bytes: u32) -> Result<PacketPort> {
    Interface::find(interface).with_context(|| format!("{interface}: no such interface"))?;
    let options = PacketOptions {
        ring_slots: RING_SLOTS * SNAP_BYTES as usize / snap_bytes as usize,
        slot_frame_len: Some(snap_bytes as usize),
        outgoing: true,
        filter: Some(KernelFilter::everything().with_snap_len(snap_bytes)),
        accept_cut: true,
        ..PacketOptions::default()
    };
    PacketPort::open(interface, options).with_context(|| format!("{interface}; are you root?"))
}

fn listen(
    args: &WitnessArgs,
    port: &mut PacketPort,
    witness: &mut Witness,
    stop: &AtomicBool,
    begin: Instant,
) -> Result<()> {
    let limit = args.seconds.map(|seconds| Duration::from_secs(seconds.into()));
    let mut told = 0;
    while !stop.load(Ordering::Relaxed) && limit.is_none_or(|limit| begin.elapsed() < limit) {
        let taken = look(port, witness)?;
        for example in &witness.examples()[told..] {
            let name = example.violation.name();
            eprintln!("weir: frame {}: {name}: {}", example.frame, example.glance);
        }
        told = witness.examples().len();
        if args.stop_at_violation && told > 0 {
            break;
        }
        if taken == 0 {
            let descriptors: Vec<_> = port.poll_fd().into_iter().collect();
            let ready = wait(&descriptors, WAIT).context("cannot wait for packets")?;
            if ready && port.take_error().is_some() && Interface::find(&args.interface).is_err() {
                bail!("{}: the interface is gone", args.interface);
            }
        }
    }
    // What came before the end is judged, however fast more comes.
    if port.stop_receiving().is_ok() {
        while look(port, witness)? > 0 {}
    }
    Ok(())
}

fn look(port: &mut PacketPort, witness: &mut Witness) -> Result<usize> {
    let taken = port.receive(&mut |frames| {
        for frame in frames.iter() {
            witness.see(frame.bytes(), frame.meta.original_len as usize);
        }
    });
    taken.context("cannot receive")
}

/// What `weir witness --json` prints.
#[derive(Debug, Serialize)]
struct WitnessReport {
    interface: String,
    seconds: f64,
    /// Frames were seen, none was lost, each could be judged, and was as it should be.
    is_proof: bool,
    frames: u64,
    esp: u64,
    /// RoCE without its ordinary ICRC; whether with a right tag cannot be told.
    tagged: u64,
    keying: u64,
    gateways_own: u64,
    clear_by_kind: BTreeMap<&'static str, u64>,
    outside: u64,
    violations: u64,
    plaintext: u64,
    untagged: u64,
    foreign_esp: u64,
    repeated_sequence: u64,
    late_sequence: u64,
    unwatched_esp: u64,
    /// Frames that the kernel or the device lost before they could be looked at.
    lost: u64,
    associations: Vec<AssociationReport>,
    examples: Vec<ExampleReport>,
}

#[derive(Debug, Serialize)]
struct AssociationReport {
    to: IpAddr,
    spi: u32,
    sequence_highest: u32,
}

#[derive(Debug, Serialize)]
struct ExampleReport {
    violation: &'static str,
    frame: u64,
    bytes: usize,
    headers: String,
}

fn report(
    args: &WitnessArgs,
    port: &mut PacketPort,
    witness: &Witness,
    elapsed: Duration,
) -> WitnessReport {
    let counters = witness.counters();
    let losses = port.counters();
    let lost = losses.lost_ring_full + losses.lost_truncated + losses.device_dropped;
    let kinds = FrameClass::ALL.iter().map(|it| (it.name(), counters.clear_by_class[*it as usize]));
    let associations = witness.associations().map(|(to, spi, sequence_highest)| {
        AssociationReport { to: readable(to), spi, sequence_highest }
    });
    let examples = witness.examples().iter().map(|example| ExampleReport {
        violation: example.violation.name(),
        frame: example.frame,
        bytes: example.len,
        headers: example.glance.to_string(),
    });
    WitnessReport {
        interface: args.interface.clone(),
        seconds: elapsed.as_secs_f64(),
        is_proof: counters.frames > 0
            && counters.violations() + counters.unjudged() == 0
            && lost == 0,
        frames: counters.frames,
        esp: counters.esp,
        tagged: counters.tagged,
        keying: counters.keying,
        gateways_own: counters.gateways,
        clear_by_kind: kinds.filter(|(_, count)| *count > 0).collect(),
        outside: counters.outside,
        violations: counters.violations(),
        plaintext: counters.plaintext,
        untagged: counters.untagged,
        foreign_esp: counters.foreign_esp,
        repeated_sequence: counters.repeated,
        late_sequence: counters.late,
        unwatched_esp: counters.unwatched,
        lost,
        associations: associations.collect(),
        examples: examples.collect(),
    }
}

fn text(report: &WitnessReport) -> String {
    let mut text = format!(
        "{:>12} frames on {} in {:.1} s\n{:>12} ESP, of {} associations\n{:>12} keying\n\
         {:>12} of the gateways' own\n",
        report.frames,
        report.interface,
        report.seconds,
        report.esp,
        report.associations.len(),
        report.keying,
        report.gateways_own,
    );
    for (kind, count) in &report.clear_by_kind {
        text += &format!("{count:>12} {kind}, allowed in clear\n");
    }
    let rest = [
        (report.tagged, "RoCE without its ordinary ICRC; that these are right tags cannot be told"),
        (report.outside, "outside of what must be sealed"),
        (report.late_sequence, "ESP too late to tell whether its sequence number was new"),
        (report.unwatched_esp, "ESP of more associations than can be watched"),
        (report.lost, "LOST before they were looked at: this proves nothing"),
        (report.plaintext, "VIOLATIONS: in plaintext"),
        (report.untagged, "VIOLATIONS: RoCE with its ordinary ICRC"),
        (report.foreign_esp, "VIOLATIONS: ESP of others"),
        (report.repeated_sequence, "VIOLATIONS: a sequence number used twice"),
    ];
    for (count, what) in rest.into_iter().filter(|(count, _)| *count > 0) {
        text += &format!("{count:>12} {what}\n");
    }
    if report.violations > EXAMPLES_MAX as u64 {
        text += &format!("the first {EXAMPLES_MAX} were named above\n");
    }
    text += match (report.frames, report.is_proof) {
        (0, _) => "no frame was seen: this proves nothing\n",
        (_, true) => "every frame was as it should be\n",
        (_, false) if report.violations == 0 => "not every frame was judged: this proves nothing\n",
        (_, false) => "NOT every frame was as it should be\n",
    };
    text
}
