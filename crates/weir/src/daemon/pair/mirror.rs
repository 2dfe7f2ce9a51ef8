//! Copies of chosen packets, in clear, to an analyser: out of a port as they are, or in VXLAN or
//! ERSPAN to a remote one.
//!
//! Nothing is copied in memory: the kernel gathers outer header and frame. A super-packet goes to a
//! port whole. No outer packet can hold it, so that encapsulated it is cut into the segments that
//! its sender would have sent; in VXLAN, whose outer packets are UDP of one length, these are given
//! to the kernel together (UDP segmentation offload, Linux 6.2). A copy that the port does not take
//! at once is dropped and counted: it never holds up the packet itself.
//!
//! ```text
//! super-packet  | headers | payload 0 | payload 1 | ...
//! a bundle      | outer UDP | VXLAN | headers 0 | payload 0 | VXLAN | headers 1 | payload 1 | ...
//!                           |<------- segment_len --------->|
//! ```
//!
//! No copy leaves by a port that it must keep off (`egress`).
//!
//! A mirror of whole packets, all or a filter's, is left to the kernel where it can be
//! (docs/adr/0029); then the packets do not come by here.

mod control;
pub mod egress;
mod kernel;
mod tunnel;

use std::io::IoSlice;
use std::ops::AddAssign;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, bail};
use arrayvec::ArrayVec;
use weir_engine::offload::segment::{Cut, HEADERS_LEN_MAX};
use weir_port::{
    BATCH, FrameFilter, GUARD_MARK, Interface, KernelFilter, Outgoing, PacketOptions, PacketPort,
    Port, PortCounters, Transmitted,
};
use weir_wire::bth::Qpn;
use weir_wire::frame::{Frame, Offload};
use weir_wire::parse::parse_frame;

use crate::capture::Selection;
pub use crate::config::settings::Mirror as Settings;
use crate::config::settings::MirrorDirection;
use crate::machine::Machine;
pub use control::MirrorControl;
use control::Shared;
use tunnel::{OUTER_LEN_MAX, Tunnel};

const ETHERNET_LEN: usize = 14;

/// What became of copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorCounters {
    /// Packets that were chosen; of an encapsulated super-packet its segments.
    pub chosen: u64,
    /// Copies that the port took.
    pub mirrored: u64,
    /// Of those, cut short: by the snap length, or because they fit no outer packet.
    pub truncated: u64,
    /// Copies that the port did not take.
    pub dropped: u64,
    /// Of those: its queue was full.
    pub queue_full: u64,
    /// Of those: larger than it takes.
    pub too_large: u64,
    /// Of those: it is down or gone.
    pub port_down: u64,
}

impl AddAssign for MirrorCounters {
    fn add_assign(&mut self, other: Self) {
        self.chosen += other.chosen;
        self.mirrored += other.mirrored;
        self.truncated += other.truncated;
        self.dropped += other.dropped;
        self.queue_full += other.queue_full;
        self.too_large += other.too_large;
        self.port_down += other.port_down;
    }
}

/// Copies on their way to the port.
#[derive(Default)]
struct Copies<'f> {
    /// What goes before each body.
    headers: ArrayVec<Header, BATCH>,
    bodies: ArrayVec<Body<'f>, BATCH>,
}

type Header = ArrayVec<u8, { OUTER_LEN_MAX + HEADERS_LEN_MAX }>;

struct Body<'f> {
    bytes: &'f [u8],
    offload: Offload,
    is_cut: bool,
}

/// One mirror, as one worker has it. Its pair's control thread has a [`MirrorControl`] beside it.
pub struct Mirror {
    settings: Settings,
    filter: Option<FrameFilter>,
    selection: Selection,
    tunnel: Option<Tunnel>,
    /// Absent while the device is gone.
    port: Option<PacketPort>,
    mtu: usize,
    shared: Arc<Shared>,
    worker: usize,
    /// Of the port that it has.
    generation: u64,
    /// Whether several frames go out as one bundle: until the kernel refuses a bundle and takes
    /// its frames one by one.
    bundles: bool,
    counters: MirrorCounters,
}

impl Mirror {
    /// Opens the port for each of so many workers: whichever of them has a packet copies it.
    ///
    /// # Errors
    /// It cannot be opened, leads to where no copy may go, or the filter is wrong.
    pub fn open(settings: &Settings, workers: usize) -> Result<(MirrorControl, Vec<Self>)> {
        let shared = Arc::new(Shared::default());
        let filter = || settings.filter.as_deref().map(FrameFilter::compile).transpose();
        let queue_pairs: Vec<Qpn> =
            settings.queue_pairs.iter().map(|number| Qpn::new(*number)).collect();
        let mut opened = Vec::new();
        let (mut device, mut outer) = ((0, 0), None);
        for worker in 0..workers {
            let Opened { port, index, mtu, mac } = open_port(settings)?;
            (device, outer) = ((index, mtu), Some(mac));
            opened.push(Self {
                filter: filter()?,
                selection: Selection { queue_pairs: queue_pairs.clone(), ..Selection::default() },
                tunnel: settings.tunnel.map(|it| Tunnel::new(it, mac)),
                settings: settings.clone(),
                port: Some(port),
                mtu,
                shared: Arc::clone(&shared),
                worker,
                generation: 0,
                bundles: true,
                counters: MirrorCounters::default(),
            });
        }
        let tunnel = settings.tunnel.zip(outer).map(|(it, mac)| Tunnel::new(it, mac));
        let control = MirrorControl::new(settings, filter()?, tunnel, (shared, workers), device);
        Ok((control, opened))
    }

    /// What it was made from.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What became of the copies that the worker made.
    pub fn counters(&self) -> MirrorCounters {
        self.counters
    }

    /// Whether the kernel makes the copies.
    pub fn is_by_kernel(&self) -> bool {
        self.shared.by_kernel.load(Ordering::Relaxed)
    }

    /// Whether it needs to see what goes to the host.
    pub fn shows_kernel_what_the_host_hears(&self) -> bool {
        self.is_by_kernel() && control::needs_what_the_host_hears(&self.settings)
    }

    /// Copies those of `frames` that are wanted and of which `passed` says so.
    pub fn copy(&mut self, from_host: bool, frames: &[Frame<'_>], passed: impl Fn(usize) -> bool) {
        let skipped = match self.settings.direction {
            MirrorDirection::Both => false,
            MirrorDirection::FromHost => !from_host,
            MirrorDirection::ToHost => from_host,
        };
        if skipped || self.is_by_kernel() {
            return;
        }
        let wanted: ArrayVec<&Frame<'_>, BATCH> = frames
            .iter()
            .enumerate()
            .filter(|(index, frame)| passed(*index) && self.wants(frame))
            .map(|(_, frame)| frame)
            .take(BATCH)
            .collect();
        if !wanted.is_empty() {
            self.send(&wanted);
        }
    }

    /// Takes the port that the control thread opened again, or learns that it is gone. Call it ten
    /// times a second.
    pub fn tick(&mut self) {
        let generation = self.shared.generation.load(Ordering::Acquire);
        if generation == self.generation {
            return;
        }
        self.generation = generation;
        self.port = self.shared.take_port(self.worker).map(|opened| {
            self.tunnel = self.settings.tunnel.map(|it| Tunnel::new(it, opened.mac));
            (self.mtu, self.bundles) = (opened.mtu, true);
            opened.port
        });
    }

    fn wants(&self, frame: &Frame<'_>) -> bool {
        let filter = self.filter.as_ref();
        filter.is_none_or(|it| it.takes(frame.bytes(), frame.meta.original_len))
            && self.selection.takes(frame)
    }

    fn send(&mut self, frames: &[&Frame<'_>]) {
        let mut copies = Copies::default();
        for frame in frames {
            let is_large = self.tunnel.is_some() && frame.meta.offload.segmentation.is_some();
            let plan = if is_large { Cut::new(frame, &parse_frame(frame)) } else { None };
            // One whose headers contradict its offload goes as one packet, cut short.
            if let Some(Ok(plan)) = plan {
                self.transmit(&mut copies);
                self.send_segments(frame, &plan);
            } else {
                self.add_frame(frame, &mut copies);
            }
            if copies.bodies.is_full() {
                self.transmit(&mut copies);
            }
        }
        self.transmit(&mut copies);
    }

    /// Sends a super-packet's segments: in bundles where that can be, else each by itself.
    fn send_segments(&mut self, frame: &Frame<'_>, plan: &Cut) {
        let longest = plan.longest().min(self.room());
        let bundle_size = self.tunnel.as_ref().map_or(1, |it| it.bundle_size(longest));
        let mut next = 0;
        while next < plan.count() {
            let is_bundle = self.bundles && bundle_size > 1 && next + 1 < plan.count();
            let together = if is_bundle { bundle_size.min(BATCH) } else { BATCH };
            let segments = next..plan.count().min(next + together);
            next = segments.end;
            if is_bundle && self.send_bundle(frame, plan, segments.clone()) {
                continue;
            }
            let mut copies = Copies::default();
            for index in segments {
                self.add_segment(frame, plan, index, false, &mut copies);
            }
            let sent = self.transmit(&mut copies);
            // Refused together, taken one by one: a kernel before Linux 6.2.
            self.bundles &= !(is_bundle && sent > 0);
        }
    }

    /// Sends segments as one outer super-packet. `false`: refused, and nothing was counted.
    fn send_bundle(&mut self, frame: &Frame<'_>, plan: &Cut, segments: Range<usize>) -> bool {
        let mut copies = Copies::default();
        for index in segments {
            self.add_segment(frame, plan, index, true, &mut copies);
        }
        let lens =
            copies.headers.iter().zip(&copies.bodies).map(|it| it.0.len() + it.1.bytes.len());
        let lens: ArrayVec<usize, BATCH> = lens.collect();
        let (Some(tunnel), Some(port)) = (&self.tunnel, &mut self.port) else { return false };
        let (outer, offload) = tunnel.bundle(&lens);
        let mut parts: ArrayVec<IoSlice<'_>, { 1 + 2 * BATCH }> = ArrayVec::new();
        parts.push(IoSlice::new(&outer));
        for (header, body) in copies.headers.iter().zip(&copies.bodies) {
            parts.push(IoSlice::new(header));
            parts.push(IoSlice::new(body.bytes));
        }
        let before = *port.counts();
        let done = port.transmit(&[Outgoing { parts: &parts, offload }]);
        if port.counts().send_refused > before.send_refused {
            return false;
        }
        self.count(&copies.bodies, lens.len() as u64, &before, done);
        true
    }

    /// Bytes of a copy, at most.
    fn room(&self) -> usize {
        let snap = self.settings.snap_bytes.map_or(usize::MAX, |bytes| bytes as usize);
        let room = match &self.tunnel {
            // The device cuts a super-packet.
            None => usize::MAX,
            Some(tunnel) => (self.mtu + ETHERNET_LEN).saturating_sub(tunnel.header_len()),
        };
        snap.min(room)
    }

    fn add_frame<'f>(&mut self, frame: &'f Frame<'_>, copies: &mut Copies<'f>) {
        let bytes = &frame.bytes()[..frame.len().min(self.room())];
        let is_cut = bytes.len() < frame.len();
        let mut offload = if is_cut { Offload::default() } else { frame.meta.offload };
        let mut header = Header::new();
        if let Some(tunnel) = &mut self.tunnel {
            let outer = tunnel.header(bytes.len(), is_cut, frame.meta.time);
            header.extend(outer);
            offload = tunnel::behind(header.len(), offload);
        }
        copies.headers.push(header);
        copies.bodies.push(Body { bytes, offload, is_cut });
    }

    /// Adds one segment; of a bundle, with the inner part of the outer headers alone.
    fn add_segment<'f>(
        &mut self,
        frame: &'f Frame<'_>,
        plan: &Cut,
        index: usize,
        is_bundled: bool,
        copies: &mut Copies<'f>,
    ) {
        let payload = frame.bytes().get(plan.payload(index)).unwrap_or_default();
        let mut inner = [0; HEADERS_LEN_MAX];
        let inner = &mut inner[..plan.header_len()];
        plan.write_headers(index, payload, inner);
        let room = self.room();
        let inner_len = inner.len().min(room);
        let bytes = &payload[..payload.len().min(room - inner_len)];
        let len = inner_len + bytes.len();
        let is_cut = len < inner.len() + payload.len();
        let mut header = Header::new();
        match &mut self.tunnel {
            Some(tunnel) if is_bundled => header.extend(tunnel.vxlan_header()),
            Some(tunnel) => header.extend(tunnel.header(len, is_cut, frame.meta.time)),
            None => {}
        }
        header.extend(inner[..inner_len].iter().copied());
        copies.headers.push(header);
        copies.bodies.push(Body { bytes, offload: Offload::default(), is_cut });
    }

    /// Sends copies, each a frame, and takes them out. Returns how many the port took.
    fn transmit(&mut self, copies: &mut Copies<'_>) -> u64 {
        let count = copies.bodies.len() as u64;
        if count == 0 {
            return 0;
        }
        let sent = if let Some(port) = &mut self.port {
            let headers = copies.headers.iter().map(ArrayVec::as_slice);
            let pieces: ArrayVec<[IoSlice<'_>; 2], BATCH> = headers
                .zip(&copies.bodies)
                .map(|(header, body)| [IoSlice::new(header), IoSlice::new(body.bytes)])
                .collect();
            let first = usize::from(self.tunnel.is_none());
            let outgoing: ArrayVec<Outgoing<'_>, BATCH> = pieces
                .iter()
                .zip(&copies.bodies)
                .map(|(parts, body)| Outgoing { parts: &parts[first..], offload: body.offload })
                .collect();
            let before = *port.counts();
            let done = port.transmit(&outgoing);
            self.count(&copies.bodies, 1, &before, done);
            done.sent
        } else {
            self.counters.chosen += count;
            self.counters.dropped += count;
            self.counters.port_down += count;
            0
        };
        copies.headers.clear();
        copies.bodies.clear();
        sent
    }

    /// Counts copies that went to the port in frames of `each`; `before` is what it had lost then.
    fn count(&mut self, bodies: &[Body<'_>], each: u64, before: &PortCounters, done: Transmitted) {
        let Self { counters, port: Some(port), .. } = self else { return };
        let now = port.counts();
        let truncated = bodies.iter().filter(|body| body.is_cut).count() as u64;
        counters.chosen += bodies.len() as u64;
        counters.mirrored += each * done.sent;
        counters.truncated += truncated.min(each * done.sent);
        counters.dropped += each * done.dropped;
        counters.queue_full += each * (now.send_queue_full - before.send_queue_full);
        counters.too_large += each * (now.send_too_large - before.send_too_large);
        counters.port_down += each * (now.send_refused - before.send_refused);
        self.shared.note(&self.settings, done.sent > 0, done.dropped > 0);
    }
}

struct Opened {
    port: PacketPort,
    index: i32,
    mtu: usize,
    mac: [u8; 6],
}

/// Copies must keep off what the port leads to.
#[derive(Debug, thiserror::Error)]
#[error("{0}; name another `port`")]
struct Refused(String);

/// Opens the port. It sends through tc, so that a guard on the same interface sees the copies and
/// drops those without its mark.
fn open_port(settings: &Settings) -> Result<Opened> {
    let name = &settings.port;
    let interface = Interface::find(name).with_context(|| format!("no interface {name}"))?;
    let options = PacketOptions {
        ring_slots: 1,
        promiscuous: false,
        filter: Some(KernelFilter::nothing()),
        send_attempts: 1,
        qdisc_bypass: false,
        queued_mark: settings.passes_guards.then_some(GUARD_MARK),
        ..PacketOptions::default()
    };
    let port = PacketPort::open(name, options)?;
    let (index, mtu, mac) = (interface.index()?, interface.mtu()? as usize, interface.mac()?);
    // The socket keeps to its device: what is asked now is asked of that one.
    let machine = Machine::read_links().context("cannot read the machine's interfaces")?;
    if machine.link(name).is_none_or(|link| link.index != index as u32) {
        bail!("{name} came and went");
    }
    match egress::refusal(settings, &machine) {
        None => Ok(Opened { port, index, mtu, mac }),
        Some(why) => Err(Refused(why).into()),
    }
}
