//! Senders and receivers past the hosts' kernels, as an RDMA adapter goes past them.
//!
//! Frames are exchanged by AF_XDP sockets on both sides: sent past the queueing discipline,
//! received by an XDP program that hands them over before the kernel makes a packet of them. The
//! hosts' own tcpdump, firewall and IPsec never see them. All other frames go to the hosts' stacks,
//! unless what is sent could be anything: then they hear nothing meanwhile.
//!
//! The one-way stream for rate measurements leaves by a packet socket that skips the queueing
//! discipline, which sends faster here.

use std::collections::HashMap;
use std::io::{ErrorKind, IoSlice};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;
use weir_port::{
    BATCH, Outgoing, PacketOptions, PacketPort, Port, Selection, Transmitted, XdpOpenError,
    XdpOptions, XdpPort,
};
use weir_wire::frame::{Link, Offload};
use weir_wire::parse::parse;

use crate::interrupt;
use crate::netns::Namespace;
use crate::process;
use crate::topology::{HOST_DEVICE, Lab, Side};
use crate::traffic::frames::{PREBUILT_TCP_PORTS, Planned, RoceStream};

/// No frame is on its way for longer than this, on a machine whose processors others want too.
const QUIET: Duration = Duration::from_secs(3);
/// How long an answer waits for what it answers; what is dropped on the way never comes.
const ANSWER_PATIENCE: Duration = Duration::from_millis(20);
/// Frames of a compared stream under way at most: fewer than any ring between the hosts holds, so
/// that nothing is lost because somebody had to wait for a processor.
const WINDOW: u64 = 1000;
/// A window that does not move for so long has lost frames.
const WINDOW_PATIENCE: Duration = Duration::from_secs(30);
/// Who closed a port's queue before does not keep it for longer.
const QUEUE_PATIENCE: Duration = Duration::from_secs(10);

/// What became of planned frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Exchange {
    /// Frames that the sending sockets took.
    pub sent: u64,
    /// Frames that a sending socket refused.
    pub refused: u64,
    /// Frames that arrived byte for byte as sent, each counted as often as it was sent at most.
    pub intact: u64,
    /// Frames of these kinds that arrived but were never sent so, or more often than sent.
    pub altered: u64,
}

impl Exchange {
    /// Whether every frame arrived, and nothing else did.
    pub fn is_exact(&self) -> bool {
        self.intact == self.sent && self.refused == 0 && self.altered == 0
    }
}

/// Sends `frames` in their order, each from its host, at most `rate_per_second`, and compares what
/// the hosts receive byte by byte. A host speaks when it has heard what the other said before.
///
/// # Errors
/// A port cannot be opened or read, or a signal came.
pub fn exchange(lab: &Lab, frames: &[Planned], rate_per_second: u32) -> Result<Exchange> {
    let selection = selection_of(frames);
    on_own_thread(|| {
        let mut ports = Side::BOTH
            .iter()
            .map(|side| {
                lab.host(*side).enter()?;
                open_past_kernel(&selection)
            })
            .collect::<Result<Vec<XdpPort>>>()?;
        let mut ledger = Ledger::new(frames);
        let mut pace = Pace::new(rate_per_second);
        let mut report = Exchange::default();
        let (mut speaker, mut missing) = (None, 0);
        for run in frames.chunk_by(|a, b| a.from == b.from).flat_map(|run| run.chunks(BATCH / 4)) {
            if speaker.replace(run[0].from).is_some_and(|before| before != run[0].from) {
                missing = ledger.hear_out(&mut ports, report.sent, missing)?;
            }
            pace.wait(run.len())?;
            let pieces: Vec<[IoSlice<'_>; 1]> =
                run.iter().map(|frame| [IoSlice::new(&frame.bytes)]).collect();
            let done = transmit(&mut ports[run[0].from.index()], &pieces);
            report.sent += done.sent;
            report.refused += done.dropped;
            ledger.receive(&mut ports)?;
        }
        let mut last = Instant::now();
        while !ledger.complete() && last.elapsed() < QUIET {
            interrupt::check()?;
            if ledger.receive(&mut ports)? > 0 {
                last = Instant::now();
            } else {
                thread::sleep(Duration::from_millis(1));
            }
        }
        // What else comes when nothing is awaited would be a duplicate.
        thread::sleep(Duration::from_millis(50));
        ledger.receive(&mut ports)?;
        report.intact = ledger.intact;
        report.altered = ledger.altered;
        Ok(report)
    })
}

/// A host's port for what is selected, opened from within the host.
fn open_past_kernel(selection: &Selection) -> Result<XdpPort> {
    let options = XdpOptions { selection: selection.clone(), ..XdpOptions::default() };
    let mut port = None;
    // The kernel gives a closed socket's queue and program's place free somewhat later.
    interrupt::until("free queue of a host's port", QUEUE_PATIENCE, || {
        match XdpPort::open(HOST_DEVICE, &options) {
            Ok(opened) => port = Some(opened),
            Err(XdpOpenError::System { source, .. })
                if source.kind() == ErrorKind::ResourceBusy => {}
            Err(XdpOpenError::Program { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(port.is_some())
    })?;
    port.context("an open port")
}

/// What a stream's sender did.
#[derive(Clone, Copy, Debug)]
pub struct Blast {
    /// Frames that the sending socket took.
    pub sent: u64,
    /// Frames that it refused.
    pub refused: u64,
    /// How long it took, seconds.
    pub seconds: f64,
}

/// Sends `count` frames of a RoCE stream from host A, `rate_per_second` of them, and receives
/// nothing: who counts them is the caller's choice.
///
/// # Errors
/// The port cannot be opened, or a signal came.
pub fn blast(
    lab: &Lab,
    stream: &mut RoceStream,
    count: u64,
    rate_per_second: u32,
) -> Result<Blast> {
    blast_while(lab, stream, rate_per_second, |done| Ok(done < count))
}

/// Sends `frames` in their order from a device of a host, past its kernel, and receives nothing.
///
/// # Errors
/// The port cannot be opened, or a signal came.
pub fn pour(
    lab: &Lab,
    from: Side,
    device: &str,
    frames: &[Planned],
    rate_per_second: u32,
) -> Result<Blast> {
    on_own_thread(|| {
        as_an_adapter()?;
        lab.host(from).enter()?;
        let options = PacketOptions { ring_slots: 64, ..PacketOptions::default() };
        let mut port = PacketPort::open(device, options)?;
        let burst = (rate_per_second / 2000).clamp(1, BATCH as u32) as usize;
        let mut pace = Pace::new(rate_per_second);
        let mut blast = Blast { sent: 0, refused: 0, seconds: 0.0 };
        let begin = Instant::now();
        for run in frames.chunks(burst) {
            pace.wait(run.len())?;
            let pieces: Vec<[IoSlice<'_>; 1]> =
                run.iter().map(|frame| [IoSlice::new(&frame.bytes)]).collect();
            let done = transmit(&mut port, &pieces);
            blast.sent += done.sent;
            blast.refused += done.dropped;
        }
        blast.seconds = begin.elapsed().as_secs_f64();
        Ok(blast)
    })
}

/// A RoCE stream from host A as long as `goes_on` says so, which hears how many frames were tried
/// and may hold the sender up.
fn blast_while(
    lab: &Lab,
    stream: &mut RoceStream,
    rate_per_second: u32,
    mut goes_on: impl FnMut(u64) -> Result<bool> + Send,
) -> Result<Blast> {
    on_own_thread(|| {
        as_an_adapter()?;
        lab.host(Side::A).enter()?;
        let options = PacketOptions { ring_slots: 64, ..PacketOptions::default() };
        let mut port = PacketPort::open(HOST_DEVICE, options)?;
        // One call of the kernel at a time, and no more than half a millisecond's worth.
        let burst = (rate_per_second / 2000).clamp(1, BATCH as u32) as usize;
        let mut buffers = vec![stream.first().bytes.clone(); burst];
        let mut pace = Pace::new(rate_per_second);
        let mut blast = Blast { sent: 0, refused: 0, seconds: 0.0 };
        let begin = Instant::now();
        while goes_on(blast.sent + blast.refused)? {
            for buffer in &mut buffers {
                stream.make_next(buffer);
            }
            pace.wait(burst)?;
            let pieces: Vec<[IoSlice<'_>; 1]> =
                buffers.iter().map(|buffer| [IoSlice::new(buffer)]).collect();
            let done = transmit(&mut port, &pieces);
            blast.sent += done.sent;
            blast.refused += done.dropped;
        }
        blast.seconds = begin.elapsed().as_secs_f64();
        Ok(blast)
    })
}

/// What arrived of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streamed {
    /// Frames that the sending socket took.
    pub sent: u64,
    /// Frames that it refused.
    pub refused: u64,
    /// Frames that arrived byte for byte, each after the one sent before it.
    pub in_order: u64,
    /// RDMA frames that arrived otherwise: altered, late or twice.
    pub others: u64,
}

impl Streamed {
    /// Whether every frame arrived, in order, and nothing else did.
    pub fn is_exact(&self) -> bool {
        self.in_order == self.sent && self.refused == 0 && self.others == 0
    }
}

/// Sends `count` frames of a RoCE stream from host A, at most `rate_per_second`, while host B
/// compares each with the one that is next. No more than `WINDOW` are under way.
///
/// # Errors
/// A port cannot be opened or read, or a signal came.
pub fn stream(
    lab: &Lab,
    stream: &RoceStream,
    count: u64,
    rate_per_second: u32,
) -> Result<Streamed> {
    compared(lab, stream, rate_per_second, |sent| sent < count)
}

/// The same for as long as `work` takes; what that returns comes beside.
///
/// # Errors
/// As of [`stream`].
pub fn stream_while<T>(
    lab: &Lab,
    stream: &RoceStream,
    rate_per_second: u32,
    work: impl FnOnce() -> T,
) -> Result<(Streamed, T)> {
    /// Ends the stream after work that panics too.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let (is_over, flows) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let streaming = scope.spawn(|| {
            compared(lab, stream, rate_per_second, |sent| {
                flows.store(sent > 0, Ordering::Relaxed);
                !is_over.load(Ordering::Relaxed)
            })
        });
        let over = Over(&is_over);
        while !flows.load(Ordering::Relaxed) && !streaming.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
        let done = work();
        drop(over);
        let streamed = streaming.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((streamed, done))
    })
}

fn compared(
    lab: &Lab,
    stream: &RoceStream,
    rate_per_second: u32,
    goes_on: impl Fn(u64) -> bool + Send + Sync,
) -> Result<Streamed> {
    let mut expected = stream.clone();
    let mut sending = stream.clone();
    // How many came in order, and how many there will be once that is known.
    let (in_order, total) = (&AtomicU64::new(0), &AtomicU64::new(u64::MAX));
    thread::scope(|scope| {
        let (ready, opened) = std::sync::mpsc::channel();
        let receiving = scope.spawn(move || -> Result<u64> {
            lab.host(Side::B).enter()?;
            let mut port = open_past_kernel(&bypass_traffic())?;
            let _ = ready.send(());
            receive_in_order(&mut port, &mut expected, in_order, total)
        });
        let windowed = |done: u64| -> Result<bool> {
            let begun = Instant::now();
            while goes_on(done) && done > in_order.load(Ordering::Relaxed) + WINDOW {
                if begun.elapsed() > WINDOW_PATIENCE {
                    return Ok(false);
                }
                interrupt::check()?;
                thread::sleep(Duration::from_micros(200));
            }
            Ok(goes_on(done))
        };
        // An error of the receiver shows when it is joined.
        let blast = match opened.recv() {
            Ok(()) => blast_while(lab, &mut sending, rate_per_second, windowed),
            Err(_) => Ok(Blast { sent: 0, refused: 0, seconds: 0.0 }),
        };
        total.store(blast.as_ref().map_or(0, |it| it.sent), Ordering::Relaxed);
        let others = receiving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let Blast { sent, refused, .. } = blast?;
        Ok(Streamed { sent, refused, in_order: in_order.load(Ordering::Relaxed), others })
    })
}

/// Counts the frames of `expected` that come in its order, until there are `total` or all were sent
/// and nothing comes any more; returns how many others came.
fn receive_in_order(
    port: &mut XdpPort,
    expected: &mut RoceStream,
    in_order: &AtomicU64,
    total: &AtomicU64,
) -> Result<u64> {
    let mut others = 0;
    let mut next = expected.next_frame().to_vec();
    let mut last = Instant::now();
    loop {
        interrupt::check()?;
        let total = total.load(Ordering::Relaxed);
        let is_done = in_order.load(Ordering::Relaxed) >= total;
        if is_done || (total < u64::MAX && last.elapsed() > QUIET) {
            return Ok(others);
        }
        let came = port.receive(&mut |batch| {
            for frame in batch.iter() {
                if frame.bytes() == next {
                    in_order.fetch_add(1, Ordering::Relaxed);
                    next.copy_from_slice(expected.next_frame());
                } else {
                    others += u64::from(is_bypass_traffic(frame.bytes()));
                }
            }
        });
        let came = came.context("host B cannot receive")?;
        if came > 0 || total == u64::MAX {
            last = Instant::now();
        }
        if came == 0 {
            thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Sends `frames` out of `port` inside `namespace` as they are, in their order.
///
/// # Errors
/// The port cannot be opened, refuses a frame, or a signal came.
pub fn send_frames(
    namespace: &Namespace,
    port: &str,
    frames: &[Vec<u8>],
    rate_per_second: u32,
) -> Result<()> {
    on_own_thread(|| {
        namespace.enter()?;
        let options = PacketOptions { ring_slots: 64, ..PacketOptions::default() };
        let mut port = PacketPort::open(port, options)?;
        let mut pace = Pace::new(rate_per_second);
        for chunk in frames.chunks(BATCH / 4) {
            pace.wait(chunk.len())?;
            let pieces: Vec<[IoSlice<'_>; 1]> =
                chunk.iter().map(|frame| [IoSlice::new(frame)]).collect();
            let done = transmit(&mut port, &pieces);
            anyhow::ensure!(done.dropped == 0, "{} refused {} frames", port.name(), done.dropped);
        }
        Ok(())
    })
}

/// What an RDMA adapter would take from its host's kernel, and the port of the prebuilt frames.
fn bypass_traffic() -> Selection {
    let [_, _, high, low] = PREBUILT_TCP_PORTS;
    Selection::Some {
        ethertypes: vec![0x8915],
        udp_ports: vec![4791],
        tcp_ports: vec![u16::from_be_bytes([high, low])],
    }
}

/// What the receivers of `frames` take from their kernels. Floods and scans are of more ports and
/// protocols than a selection has room for: of them all is taken, or a kernel would swallow some.
fn selection_of(frames: &[Planned]) -> Selection {
    match frames.iter().all(|it| is_bypass_traffic(&it.bytes)) {
        true => bypass_traffic(),
        false => Selection::All,
    }
}

/// Runs `work` on a thread that may move between namespaces and ends with it.
pub(crate) fn on_own_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// An adapter is not held up by whoever else wants a processor, nor bursts to catch up: real-time
/// priority on one processor for the calling thread.
fn as_an_adapter() -> Result<()> {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let mut chrt = Command::new("chrt");
    process::run(chrt.args(["--fifo", "--pid", "50", &thread]), Duration::from_secs(10))?;
    // Nor does it wander: where it goes, whoever runs there would have to go too.
    let allowed = sched_getaffinity(None)?;
    let mut one = CpuSet::new();
    (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).into_iter().for_each(|cpu| one.set(cpu));
    sched_setaffinity(None, &one)?;
    Ok(())
}

fn transmit(port: &mut impl Port, pieces: &[[IoSlice<'_>; 1]]) -> Transmitted {
    let outgoing: Vec<Outgoing<'_>> =
        pieces.iter().map(|parts| Outgoing { parts, offload: Offload::default() }).collect();
    port.transmit(&outgoing)
}

/// Frames still awaited, and what came.
struct Ledger<'a> {
    /// By the side that receives them: how often each frame is still to come.
    awaited: [HashMap<&'a [u8], u64>; 2],
    left: u64,
    intact: u64,
    altered: u64,
}

impl<'a> Ledger<'a> {
    fn new(frames: &'a [Planned]) -> Self {
        let mut awaited = [HashMap::new(), HashMap::new()];
        for Planned { from, bytes } in frames {
            *awaited[from.other().index()].entry(bytes.as_slice()).or_default() += 1;
        }
        Self { awaited, left: frames.len() as u64, intact: 0, altered: 0 }
    }

    fn complete(&self) -> bool {
        self.left == 0
    }

    /// Receives until no more than `missing` of the `sent` frames are under way, or patience ends;
    /// returns how many are missing then.
    fn hear_out(&mut self, ports: &mut [XdpPort], sent: u64, missing: u64) -> Result<u64> {
        let began = Instant::now();
        loop {
            self.receive(ports)?;
            let under_way = sent.saturating_sub(self.intact);
            if under_way <= missing || began.elapsed() > ANSWER_PATIENCE {
                return Ok(under_way);
            }
            thread::sleep(Duration::from_micros(50));
        }
    }

    /// Takes in all that waits at both hosts; returns how many frames that were.
    fn receive(&mut self, ports: &mut [XdpPort]) -> Result<usize> {
        let mut total = 0;
        for (index, port) in ports.iter_mut().enumerate() {
            loop {
                let count = port.receive(&mut |batch| {
                    batch.iter().for_each(|frame| self.take(index, frame.bytes()));
                });
                match count.with_context(|| format!("{}: cannot receive", port.name()))? {
                    0 => break,
                    count => total += count,
                }
            }
        }
        Ok(total)
    }

    fn take(&mut self, receiver: usize, bytes: &[u8]) {
        match self.awaited[receiver].get_mut(bytes) {
            Some(count @ 1..) => {
                *count -= 1;
                self.left -= 1;
                self.intact += 1;
            }
            // What the hosts' kernels say to each other besides is none of ours.
            _ => self.altered += u64::from(is_bypass_traffic(bytes)),
        }
    }
}

fn is_bypass_traffic(bytes: &[u8]) -> bool {
    let parsed = parse(bytes, Link::Ethernet, bytes.len() as u32);
    // By its bytes: the TCP header is no legal one, so that the walk does not name its ports.
    let ports = bytes.get(usize::from(parsed.transport_offset)..).and_then(|it| it.first_chunk());
    let is_prebuilt_tcp = parsed.protocol == 6 && ports == Some(&PREBUILT_TCP_PORTS);
    parsed.rdma.is_some() || is_prebuilt_tcp
}

/// Holds a sender to its rate. What it falls behind it may catch up.
struct Pace {
    begin: Instant,
    rate_per_second: f64,
    released: f64,
}

impl Pace {
    fn new(rate_per_second: u32) -> Self {
        Self {
            begin: Instant::now(),
            rate_per_second: f64::from(rate_per_second.max(1)),
            released: 0.0,
        }
    }

    /// Returns when `count` more frames are due.
    fn wait(&mut self, count: usize) -> Result<()> {
        interrupt::check()?;
        let due = Duration::from_secs_f64(self.released / self.rate_per_second);
        if let Some(early) = due.checked_sub(self.begin.elapsed()) {
            thread::sleep(early);
        }
        self.released += count as f64;
        Ok(())
    }
}
