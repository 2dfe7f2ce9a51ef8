//! Copies of chosen packets, in clear, to an analyser: out of a port as they are, or in VXLAN or
//! ERSPAN to a remote one.
//!
//! Nothing is copied in memory: the kernel gathers outer header and frame. A copy that the port
//! does not take at once is dropped and counted: it never holds up the packet itself.

mod tunnel;

use std::io::IoSlice;

use anyhow::{Context, Result};
use arrayvec::ArrayVec;
use weir_port::{
    BATCH, FrameFilter, Interface, KernelFilter, Outgoing, PacketOptions, PacketPort, Port,
};
use weir_wire::bth::Qpn;
use weir_wire::frame::{Frame, Offload};

use crate::capture::Selection;
pub use crate::config::settings::Mirror as Settings;
use crate::config::settings::MirrorDirection;
use tunnel::{OUTER_LEN_MAX, Tunnel};

/// A device is looked for again so many ticks (of 100 ms) after it was lost.
const RETRY_TICKS: u32 = 10;
const ETHERNET_LEN: usize = 14;

/// What became of copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorCounters {
    /// Packets that were chosen.
    pub chosen: u64,
    /// Copies that the port took.
    pub mirrored: u64,
    /// Of those, cut: by the snap length, or a super-packet that fits no outer packet.
    pub truncated: u64,
    /// Copies that the port did not take: its queue was full, it is down or gone.
    pub dropped: u64,
}

/// One mirror at work.
pub struct Mirror {
    settings: Settings,
    filter: Option<FrameFilter>,
    selection: Selection,
    tunnel: Option<Tunnel>,
    /// Absent while the device is gone.
    port: Option<PacketPort>,
    index: i32,
    mtu: usize,
    ticks_to_retry: u32,
    /// Nothing of the last batch got out: is the device still there?
    suspect: bool,
    /// It was said that copies do not get out.
    complained: bool,
    counters: MirrorCounters,
}

impl Mirror {
    /// Opens the port.
    ///
    /// # Errors
    /// It cannot be opened, or the filter is wrong.
    pub fn open(settings: &Settings) -> Result<Self> {
        let filter = settings.filter.as_deref().map(FrameFilter::compile).transpose()?;
        let queue_pairs = settings.queue_pairs.iter().map(|number| Qpn::new(*number)).collect();
        let Opened { port, index, mtu, mac } = open_port(&settings.port)?;
        Ok(Self {
            filter,
            selection: Selection { queue_pairs, ..Selection::default() },
            tunnel: settings.tunnel.map(|it| Tunnel::new(it, mac)),
            settings: settings.clone(),
            port: Some(port),
            index,
            mtu,
            ticks_to_retry: 0,
            suspect: false,
            complained: false,
            counters: MirrorCounters::default(),
        })
    }

    /// What it was made from.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What became of copies.
    pub fn counters(&self) -> MirrorCounters {
        self.counters
    }

    /// Copies those of `frames` that are wanted and of which `passed` says so.
    pub fn copy(&mut self, from_host: bool, frames: &[Frame<'_>], passed: impl Fn(usize) -> bool) {
        let skipped = match self.settings.direction {
            MirrorDirection::Both => false,
            MirrorDirection::FromHost => !from_host,
            MirrorDirection::ToHost => from_host,
        };
        if skipped {
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

    /// Looks after a port that was lost. Call it ten times a second.
    pub fn tick(&mut self) {
        if std::mem::take(&mut self.suspect) {
            let index = Interface::find(&self.settings.port).and_then(|it| it.index());
            if !index.is_ok_and(|index| index == self.index) {
                self.port = None;
            }
        }
        if self.port.is_some() {
            return;
        }
        self.ticks_to_retry = self.ticks_to_retry.saturating_sub(1);
        if self.ticks_to_retry > 0 {
            return;
        }
        self.ticks_to_retry = RETRY_TICKS;
        if let Ok(Opened { port, index, mtu, mac }) = open_port(&self.settings.port) {
            self.tunnel = self.settings.tunnel.map(|it| Tunnel::new(it, mac));
            (self.port, self.index, self.mtu) = (Some(port), index, mtu);
        }
    }

    fn wants(&self, frame: &Frame<'_>) -> bool {
        let filter = self.filter.as_ref();
        filter.is_none_or(|it| it.takes(frame.bytes(), frame.meta.original_len))
            && self.selection.takes(frame)
    }

    fn send(&mut self, frames: &[&Frame<'_>]) {
        self.counters.chosen += frames.len() as u64;
        let Some(port) = &mut self.port else {
            self.counters.dropped += frames.len() as u64;
            return;
        };
        let snap = self.settings.snap_bytes.map_or(usize::MAX, |bytes| bytes as usize);
        let mut headers = ArrayVec::<ArrayVec<u8, OUTER_LEN_MAX>, BATCH>::new();
        let mut copies = ArrayVec::<(&[u8], Offload), BATCH>::new();
        let mut truncated = 0;
        for frame in frames {
            let room = match &self.tunnel {
                // The device cuts a super-packet.
                None => usize::MAX,
                Some(tunnel) => self.mtu + ETHERNET_LEN - tunnel.header_len(),
            };
            let bytes = &frame.bytes()[..frame.len().min(snap).min(room)];
            let is_cut = bytes.len() < frame.len();
            truncated += u64::from(is_cut);
            let offload = if is_cut { Offload::default() } else { frame.meta.offload };
            match &mut self.tunnel {
                None => copies.push((bytes, offload)),
                Some(tunnel) => {
                    let header = tunnel.header(bytes.len(), is_cut, frame.meta.time);
                    let offload = tunnel::behind(header.len(), offload);
                    headers.push(header);
                    copies.push((bytes, offload));
                }
            }
        }
        let pieces: ArrayVec<[IoSlice<'_>; 2], BATCH> = copies
            .iter()
            .enumerate()
            .map(|(index, (bytes, _))| {
                let header = headers.get(index).map(ArrayVec::as_slice).unwrap_or_default();
                [IoSlice::new(header), IoSlice::new(bytes)]
            })
            .collect();
        let first = usize::from(self.tunnel.is_none());
        let outgoing: ArrayVec<Outgoing<'_>, BATCH> = pieces
            .iter()
            .zip(&copies)
            .map(|(parts, (_, offload))| Outgoing { parts: &parts[first..], offload: *offload })
            .collect();
        let done = port.transmit(&outgoing);
        self.counters.mirrored += done.sent;
        self.counters.dropped += done.dropped;
        self.counters.truncated += truncated.min(done.sent);
        self.look_after(done.sent > 0, done.dropped > 0);
    }

    /// Says once that copies do not get out, and once that they do again.
    fn look_after(&mut self, sent: bool, dropped: bool) {
        let name = &self.settings.name;
        if dropped && !self.complained {
            self.complained = true;
            let port = &self.settings.port;
            tracing::warn!(mirror = name, port, "copies are dropped: the port is full or down");
        } else if sent && !dropped && self.complained {
            self.complained = false;
            tracing::info!(mirror = name, "copies get out again");
        }
        self.suspect |= dropped && !sent;
    }
}

struct Opened {
    port: PacketPort,
    index: i32,
    mtu: usize,
    mac: [u8; 6],
}

fn open_port(name: &str) -> Result<Opened> {
    let interface = Interface::find(name).with_context(|| format!("no interface {name}"))?;
    let options = PacketOptions {
        ring_slots: 1,
        promiscuous: false,
        filter: Some(KernelFilter::nothing()),
        send_attempts: 1,
        ..PacketOptions::default()
    };
    let port = PacketPort::open(name, options)?;
    let (index, mtu, mac) = (interface.index()?, interface.mtu()? as usize, interface.mac()?);
    Ok(Opened { port, index, mtu, mac })
}
