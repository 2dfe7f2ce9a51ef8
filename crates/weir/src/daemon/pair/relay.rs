//! Port to engine to port. One round moves at most a batch each way, on the calling thread, without
//! an allocation or a lock.

use std::io::{self, IoSlice};
use std::os::fd::RawFd;
use std::time::Duration;

use arrayvec::ArrayVec;
use weir_engine::offload::datagrams::{Datagrams, Joined};
use weir_engine::output::{Destination, Output, Packet};
use weir_engine::pipeline::{Engine, Onward, Reassembled};
use weir_engine::proof::WireProof;
use weir_engine::rdma::LossWay;
use weir_engine::verdict::{DropReason, Side};
use weir_port::{BATCH, Outgoing, Port, PortCounters};
use weir_wire::frame::{Frame, Offload, Time};

use crate::config::offload::KERNEL_PEERS_MAX;
use crate::daemon::pair::bystanders::Bystanders;

/// Pieces in one call of [`Port::transmit`]: a batch of super-packets of as many segments as a
/// batch has frames would be 4096; a call is ended early instead.
const PIECES: usize = 512;

/// Packets for the port that is being received from (ICMP answers), at most, in one round; they are
/// limited by the engine to 100 a second.
const RETURNED_MAX: usize = 64;

/// Rounds between two looks at what the gateway's own kernel sends: a look is a system call, and a
/// round without frames takes a tenth of a microsecond.
const OWN_ROUNDS: u32 = 16;

/// Full batches from a port between two looks at what its ring lost: fewer frames than a full ring
/// holds, so that a loss is known before the gap that it makes is seen.
const FULL_BATCHES: u32 = 16;

/// The ports of one pair.
pub struct Ports {
    /// Towards the host.
    pub host: Box<dyn Port + Send>,
    /// Towards the fabric.
    pub wire: Box<dyn Port + Send>,
    /// Towards the gateway's own kernel; a bump in the wire has none.
    pub own: Option<Box<dyn Port + Send>>,
    /// Towards the kernel's ESP, an xfrm interface a peer.
    pub kernel: Vec<Box<dyn Port + Send>>,
}

/// What the ports count.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortsCounters {
    /// Towards the host.
    pub host: PortCounters,
    /// Towards the fabric.
    pub wire: PortCounters,
    /// Towards the kernel's ESP, together.
    pub kernel: PortCounters,
}

/// Frames moved in one round, by the port they came in by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// From the host.
    pub host: usize,
    /// From the fabric.
    pub wire: usize,
    /// From the gateway's own kernel.
    pub own: usize,
    /// Opened by the kernel's ESP.
    pub kernel: usize,
}

impl Moved {
    /// All of them.
    pub fn total(&self) -> usize {
        self.host + self.wire + self.own + self.kernel
    }
}

/// One pair's ports and engine.
pub struct Relay {
    ports: Ports,
    engine: Engine,
    bystanders: Bystanders,
    /// Asked about every frame for the wire, last of all.
    proof: WireProof,
    datagrams: Datagrams,
    returned: Vec<(Vec<u8>, Offload)>,
    withheld: u64,
    rounds: u32,
    /// By side: full batches since the last look, and what the ring had lost then.
    rings: [(u32, u64); 2],
}

impl Relay {
    /// A relay between `ports`, decided by `engine`, watched by `bystanders`.
    pub fn new(ports: Ports, engine: Engine, bystanders: Bystanders) -> Self {
        let proof = WireProof::new(engine.policy());
        let returned = Vec::with_capacity(RETURNED_MAX);
        let rings = Default::default();
        let datagrams = Datagrams::default();
        Self {
            ports,
            engine,
            bystanders,
            proof,
            datagrams,
            returned,
            withheld: 0,
            rounds: 0,
            rings,
        }
    }

    /// Moves what waits, at most a batch from each port, and returns how many frames those were.
    ///
    /// `keep` is called when packets were opened and before they are delivered: it writes the
    /// replay state. When it returns false they are withheld, since a restart would accept them
    /// again.
    ///
    /// # Errors
    /// A port is lost.
    pub fn round(&mut self, keep: &mut dyn FnMut(&mut Engine) -> bool) -> io::Result<Moved> {
        self.rounds = self.rounds.wrapping_add(1);
        let own_is_due = self.rounds.is_multiple_of(OWN_ROUNDS);
        let (host, wire) = (self.move_host()?, self.move_wire(keep)?);
        let mut moved = Moved { host, wire, own: 0, kernel: self.move_opened()? };
        let Self { ports: Ports { wire, own, .. }, engine, proof, .. } = self;
        if let Some(own) = own.as_mut().filter(|_| own_is_due) {
            moved.own = own.receive(&mut |frames| {
                let output = engine.process_own(frames);
                deliver_to_wire(output, frames, proof, wire.as_mut());
            })?;
        }
        Ok(moved)
    }

    /// Moves what the kernel's ESP opened. Its replay state is the kernel's.
    fn move_opened(&mut self) -> io::Result<usize> {
        let Self { ports, engine, bystanders, .. } = self;
        let Ports { host, kernel, .. } = ports;
        let mut moved = 0;
        for (port, place) in kernel.iter_mut().zip(0..) {
            moved += port.receive(&mut |frames| {
                let now = frames[0].meta.time;
                engine.process_opened(now, place, frames);
                let output = engine.output();
                bystanders.from_wire(frames, &output.verdicts, true);
                let lost = deliver(output, frames, Destination::Host, host.as_mut(), |_| true);
                if lost > 0 {
                    engine.note_own_loss(LossWay::Out, Side::Host, lost, now);
                }
            })?;
        }
        Ok(moved)
    }

    /// Moves what waits at one side, at most a batch, where nothing is opened; the other side
    /// waits.
    ///
    /// # Errors
    /// A port is lost.
    pub fn half_round(&mut self, side: Side) -> io::Result<usize> {
        match side {
            Side::Host => self.move_host(),
            Side::Wire => self.move_wire(&mut |_| true),
        }
    }

    fn move_host(&mut self) -> io::Result<usize> {
        let Self { ports, engine, bystanders, proof, datagrams, returned, .. } = self;
        let Ports { host, wire, kernel, .. } = ports;
        let looks = engine.policy().rules.is_some();
        let joined = if looks { Joined::All } else { Joined::None };
        let mut handle = |frames: &mut [Frame<'_>]| {
            let now = frames[0].meta.time;
            bystanders.from_host(frames);
            let output = engine.process(now, Side::Host, frames);
            bystanders.decided(&output.verdicts);
            let mut lost = deliver_to_wire(output, frames, proof, wire.as_mut());
            for (port, place) in kernel.iter_mut().zip(0..) {
                let destination = Destination::Kernel(place);
                lost += deliver(output, frames, destination, port.as_mut(), |_| true);
            }
            hold_back(output, frames, Destination::Host, returned);
            if lost > 0 {
                engine.note_own_loss(LossWay::Out, Side::Wire, lost, now);
            }
        };
        let moved =
            host.receive(&mut |frames| datagrams.each_batch(frames, joined, &mut handle))?;
        self.look_at_ring(Side::Host, moved);
        let Self { ports: Ports { host, .. }, returned, .. } = self;
        for (bytes, offload) in returned.drain(..) {
            host.transmit(&[Outgoing { parts: &[IoSlice::new(&bytes)], offload }]);
        }
        Ok(moved)
    }

    fn move_wire(&mut self, keep: &mut dyn FnMut(&mut Engine) -> bool) -> io::Result<usize> {
        let Self { ports, engine, bystanders, datagrams, withheld, returned, .. } = self;
        let Ports { host, wire, own, kernel } = ports;
        let looks = engine.policy().rules.is_some();
        let joined = if looks { Joined::All } else { Joined::Sealed };
        let mut handle = |frames: &mut [Frame<'_>]| {
            let now = frames[0].meta.time;
            engine.process(now, Side::Wire, frames);
            let kept = keep(engine);
            let held_back = if kept { 0 } else { engine.withhold_reassembled() };
            let output = engine.output();
            bystanders.from_wire(frames, &output.verdicts, kept);
            let lost = if kept {
                deliver(output, frames, Destination::Host, host.as_mut(), |_| true)
            } else {
                let for_host = |packet: &&Packet| packet.destination == Destination::Host;
                held_back + output.packets.iter().filter(for_host).count() as u64
            };
            *withheld += if kept { 0 } else { lost };
            if let Some(own) = own {
                deliver(output, frames, Destination::Punt, own.as_mut(), |_| true);
            }
            for (port, place) in kernel.iter_mut().zip(0..) {
                deliver(output, frames, Destination::Kernel(place), port.as_mut(), |_| true);
            }
            hold_back(output, frames, Destination::Wire, returned);
            if lost > 0 {
                engine.note_own_loss(LossWay::Out, Side::Host, lost, now);
            }
        };
        let moved =
            wire.receive(&mut |frames| datagrams.each_batch(frames, joined, &mut handle))?;
        self.look_at_ring(Side::Wire, moved);
        let Self { ports: Ports { wire, .. }, proof, returned, .. } = self;
        for (bytes, offload) in returned.drain(..) {
            if proof.admit(&bytes, bytes.len()) {
                wire.transmit(&[Outgoing { parts: &[IoSlice::new(&bytes)], offload }]);
            }
        }
        Ok(moved)
    }

    /// Tells the engine what a port's ring lost: the gaps that follow are the gateway's. Looks only
    /// when frames pile up.
    fn look_at_ring(&mut self, side: Side, moved: usize) {
        if moved < BATCH {
            return;
        }
        self.rings[side as usize].0 += 1;
        if self.rings[side as usize].0 >= FULL_BATCHES {
            let now = self.engine.now();
            self.tell_losses(side, now);
        }
    }

    fn tell_losses(&mut self, side: Side, now: Time) {
        let port = if side == Side::Host { &mut self.ports.host } else { &mut self.ports.wire };
        let lost = port.lost_on_arrival();
        let (batches, before) = &mut self.rings[side as usize];
        *batches = 0;
        let more = lost.saturating_sub(std::mem::replace(before, lost));
        if more > 0 {
            self.engine.note_own_loss(LossWay::In, side, more, now);
        }
    }

    /// Frames that `side` received so far, lost ones included; all of them were dealt with.
    pub fn arrived_frames(&mut self, side: Side) -> Option<u64> {
        self.port(side).arrived_frames()
    }

    /// Memory of frames sent at `side` that have not left this machine's queues.
    pub fn unsent_bytes(&mut self, side: Side) -> Option<u64> {
        self.port(side).unsent_bytes()
    }

    fn port(&mut self, side: Side) -> &mut dyn Port {
        match side {
            Side::Host => self.ports.host.as_mut(),
            Side::Wire => self.ports.wire.as_mut(),
        }
    }

    /// Sends what the gateway itself has to say, and looks after the bystanders. Call it ten times
    /// a second.
    pub fn tick(&mut self, now: Time) {
        self.bystanders.tick();
        self.hear_complaints();
        self.tell_losses(Side::Host, now);
        self.tell_losses(Side::Wire, now);
        let output = self.engine.tick(now);
        deliver_to_wire(output, &[], &mut self.proof, self.ports.wire.as_mut());
    }

    /// Asks the ports what they have to complain of: one that is not asked would wake us for ever.
    fn hear_complaints(&mut self) {
        let Ports { host, wire, kernel, .. } = &mut self.ports;
        for port in [host, wire].into_iter().chain(kernel) {
            if let Some(error) = port.take_error() {
                tracing::warn!(port = port.name(), %error, "a port complains");
            }
        }
    }

    /// Judges a datagram that another worker made whole, and sends the answer to one that is
    /// rejected.
    ///
    /// # Errors
    /// Why its last piece is to be dropped.
    pub fn judge(&mut self, now: Time, reassembled: &Reassembled) -> Result<(), DropReason> {
        let judged = self.engine.judge_reassembled(now, reassembled);
        let Self { ports: Ports { host, wire, .. }, engine, proof, .. } = self;
        deliver_to_wire(engine.output(), &[], proof, wire.as_mut());
        deliver(engine.output(), &[], Destination::Host, host.as_mut(), |_| true);
        judged
    }

    /// Sends on what waited for other pieces, where this worker is alone.
    pub fn release(&mut self, now: Time) {
        while let Some(mut reassembled) = self.engine.take_reassembled() {
            self.go_on(now, &mut reassembled);
        }
    }

    /// Sends the pieces on whose datagram passed.
    pub fn go_on(&mut self, now: Time, reassembled: &mut Reassembled) {
        let side = reassembled.side();
        let (mut pieces, onward) = reassembled.pieces();
        if let Some(misfit) = self.engine.drop_but_misfit(&onward, &pieces) {
            // Its sender is told.
            let alone = misfit..=misfit;
            return self.send_on(now, side, &mut pieces[alone.clone()], &onward[alone]);
        }
        for (frames, onward) in pieces.chunks_mut(BATCH).zip(onward.chunks(BATCH)) {
            self.send_on(now, side, frames, onward);
        }
    }

    fn send_on(&mut self, now: Time, side: Side, frames: &mut [Frame<'_>], onward: &[Onward]) {
        let Self { ports, engine, bystanders, proof, .. } = self;
        let Ports { host, wire, own, kernel } = ports;
        let output = engine.go_on(now, onward, frames);
        if side == Side::Wire {
            bystanders.from_wire(frames, &output.verdicts, true);
        }
        if let Some(own) = own {
            deliver(output, frames, Destination::Punt, own.as_mut(), |_| true);
        }
        let mut lost_at_wire = deliver_to_wire(output, frames, proof, wire.as_mut());
        for (port, place) in kernel.iter_mut().zip(0..) {
            let destination = Destination::Kernel(place);
            lost_at_wire += deliver(output, frames, destination, port.as_mut(), |_| true);
        }
        let lost_at_host = deliver(output, frames, Destination::Host, host.as_mut(), |_| true);
        for (side, lost) in [(Side::Wire, lost_at_wire), (Side::Host, lost_at_host)] {
            if lost > 0 {
                engine.note_own_loss(LossWay::Out, side, lost, now);
            }
        }
    }

    /// Sends what the engine was told to send since [`Engine::begin`], on the wire or sealed by the
    /// kernel.
    pub fn send_own(&mut self) {
        let output = self.engine.output();
        deliver_to_wire(output, &[], &mut self.proof, self.ports.wire.as_mut());
        for (port, place) in self.ports.kernel.iter_mut().zip(0..) {
            deliver(output, &[], Destination::Kernel(place), port.as_mut(), |_| true);
        }
    }

    /// Sleeps until a frame waits, or `bell` is rung, at most `timeout`.
    ///
    /// # Errors
    /// The system's own.
    pub fn wait(&self, bell: Option<RawFd>, timeout: Duration) -> io::Result<()> {
        let Ports { host, wire, own, kernel } = &self.ports;
        let ports = [host, wire].into_iter().chain(own).chain(kernel);
        let descriptors: ArrayVec<RawFd, { 4 + KERNEL_PEERS_MAX }> =
            ports.filter_map(|port| port.poll_fd()).chain(bell).collect();
        weir_port::wait(&descriptors, timeout).map(drop)
    }

    /// Whether kernel programs at the host's port see what is sent there.
    pub fn show_kernel_what_the_host_hears(&mut self, shown: bool) {
        self.ports.host.set_through_discipline(shown);
    }

    /// Who watches.
    pub fn bystanders(&mut self) -> &mut Bystanders {
        &mut self.bystanders
    }

    /// Sleeps until a frame waits at one side, at most `timeout`.
    ///
    /// # Errors
    /// The system's own.
    pub fn wait_for(&self, side: Side, timeout: Duration) -> io::Result<()> {
        let port = if side == Side::Host { &self.ports.host } else { &self.ports.wire };
        let descriptors: ArrayVec<RawFd, 1> = port.poll_fd().into_iter().collect();
        weir_port::wait(&descriptors, timeout).map(drop)
    }

    /// The engine.
    pub fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// The check before the wire. Renew it when the engine's policy was swapped.
    pub fn proof(&mut self) -> &mut WireProof {
        &mut self.proof
    }

    /// Has the check before the wire go by the engine's policy.
    pub fn renew_proof(&mut self) {
        self.proof.renew(self.engine.policy());
    }

    /// What the ports count, but for what their devices lost: that the control thread asks.
    pub fn port_counters(&mut self) -> PortsCounters {
        PortsCounters {
            host: self.ports.host.own_counters(),
            wire: self.ports.wire.own_counters(),
            kernel: sum(self.ports.kernel.iter_mut().map(|port| port.own_counters())),
        }
    }

    /// Whether somebody else does the ESP of some peer: the kernel, or a daemon with a tunnel.
    pub fn has_kernel_ports(&self) -> bool {
        !self.ports.kernel.is_empty()
    }

    /// Packets for the host that were withheld because their replay state could not be kept.
    pub fn withheld(&self) -> u64 {
        self.withheld
    }
}

/// [`deliver`] to the wire, as far as `proof` lets them; returns how many the port lost.
fn deliver_to_wire(
    output: &Output,
    frames: &[Frame<'_>],
    proof: &mut WireProof,
    port: &mut dyn Port,
) -> u64 {
    deliver(output, frames, Destination::Wire, port, |pieces| {
        let len = pieces.iter().map(|piece| piece.len()).sum();
        proof.admit(pieces.first().map_or(&[], |piece| piece), len)
    })
}

/// Sends the packets of `output` for `destination` by `port`, which counts what it loses; returns
/// how many that are. `admit` sees the bytes as the port will, and has the last word.
fn deliver(
    output: &Output,
    frames: &[Frame<'_>],
    destination: Destination,
    port: &mut dyn Port,
    mut admit: impl FnMut(&[IoSlice<'_>]) -> bool,
) -> u64 {
    let mut lost = 0;
    let mut packets = output.packets.iter().filter(|p| p.destination == destination).peekable();
    while packets.peek().is_some() {
        let mut pieces = ArrayVec::<IoSlice<'_>, PIECES>::new();
        let mut ends = ArrayVec::<(usize, Offload), BATCH>::new();
        while let Some(packet) =
            packets.next_if(|packet| !ends.is_full() && fits(packet, pieces.remaining_capacity()))
        {
            let parts = &output.parts[packet.parts.start as usize..packet.parts.end as usize];
            let first = pieces.len();
            pieces.extend(parts.iter().map(|part| IoSlice::new(output.resolve(part, frames))));
            if admit(&pieces[first..]) {
                ends.push((pieces.len(), packet.offload));
            } else {
                pieces.truncate(first);
            }
        }
        let mut start = 0;
        let outgoing: ArrayVec<Outgoing<'_>, BATCH> = ends
            .iter()
            .map(|(end, offload)| {
                let parts = &pieces[start..*end];
                start = *end;
                Outgoing { parts, offload: *offload }
            })
            .collect();
        lost += port.transmit(&outgoing).dropped;
    }
    lost
}

fn sum(ports: impl Iterator<Item = PortCounters>) -> PortCounters {
    ports.fold(PortCounters::default(), |sum, port| PortCounters {
        received_frames: sum.received_frames + port.received_frames,
        received_bytes: sum.received_bytes + port.received_bytes,
        sent_frames: sum.sent_frames + port.sent_frames,
        sent_bytes: sum.sent_bytes + port.sent_bytes,
        lost_ring_full: sum.lost_ring_full + port.lost_ring_full,
        lost_truncated: sum.lost_truncated + port.lost_truncated,
        send_queue_full: sum.send_queue_full + port.send_queue_full,
        send_too_large: sum.send_too_large + port.send_too_large,
        send_refused: sum.send_refused + port.send_refused,
        device_dropped: sum.device_dropped + port.device_dropped,
        refused_by_device: sum.refused_by_device + port.refused_by_device,
    })
}

/// A gathered super-packet has at most a batch of pieces, so an empty call takes any packet.
fn fits(packet: &Packet, free: usize) -> bool {
    packet.parts.len() <= free
}

/// Copies what must leave by the port that is being received from.
fn hold_back(
    output: &Output,
    frames: &[Frame<'_>],
    destination: Destination,
    returned: &mut Vec<(Vec<u8>, Offload)>,
) {
    for packet in output.packets.iter().filter(|p| p.destination == destination) {
        if returned.len() == RETURNED_MAX {
            return;
        }
        let parts = &output.parts[packet.parts.start as usize..packet.parts.end as usize];
        let bytes = parts.iter().flat_map(|part| output.resolve(part, frames)).copied().collect();
        returned.push((bytes, packet.offload));
    }
}
