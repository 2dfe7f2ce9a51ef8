//! Between the pair's control thread, which asks the kernel, and its worker, which has the packets
//! and the handshakes' orders: no packet waits for NETLINK_XFRM.
//!
//! ```text
//!   worker: ToKernel --orders, one at a time--> control thread: KernelControl
//!                    --where sealed packets go (atomics)-->
//!                    <--what associations did, "done"------
//! ```
//!
//! A handshake's response must leave behind the associations that it made: until the kernel has
//! them, the worker takes no further order of the keying thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use anyhow::Result;
use weir_engine::pipeline::Engine;
use weir_engine::tunnel::key::PublicKey;
use weir_engine::tunnel::state::{Install, PeerActivity};
use weir_port::Guard;

use super::KernelEsp;
use crate::api::dto::PeerSnapshot;
use crate::daemon::keys::state::{Reserved, Reserver};

/// Updates that wait for the worker, at least; the control thread waits for room.
const UPDATES_MIN: usize = 1024;
/// Set beside the address of a hop that is known.
const IS_KNOWN: u64 = 1 << 48;

/// What a handshake has the kernel do.
#[derive(Debug)]
pub enum KernelOrder {
    /// Put new associations in place.
    Install(Box<Install>),
    /// Remove the one that opens by this SPI.
    Forget(PublicKey, u32),
    /// Remove all of a peer.
    Close(PublicKey),
}

/// What the engine is to know of a peer whose ESP the kernel does.
#[derive(Debug)]
pub(super) struct Update {
    /// The peer's place among those.
    pub(super) place: u16,
    /// The SPIs that seal and open; `None`: they are in files and stay.
    pub(super) associations: Option<(Option<u32>, Vec<u32>)>,
    /// What they did since the last update.
    pub(super) used: PeerActivity,
    /// Nothing passes.
    pub(super) is_lost: bool,
}

#[derive(Debug)]
enum Answer {
    Update(Box<Update>),
    /// The order is carried out, or failed, which the updates before say.
    Done,
}

/// By place: the MAC address that sealed packets go to.
type Hops = Arc<[AtomicU64]>;

/// The control thread's way to the worker.
#[derive(Debug)]
pub(super) struct ToWorker {
    hops: Hops,
    answers: SyncSender<Answer>,
}

impl ToWorker {
    /// The address that the peer at `place` is sent to; `None`: nobody has answered yet.
    pub(super) fn hop(&self, place: u16) -> Option<[u8; 6]> {
        let known = self.hops.get(usize::from(place))?.load(Ordering::Relaxed);
        let [0, 1, mac @ ..] = known.to_be_bytes() else { return None };
        Some(mac)
    }

    /// Tells the engine, which may have ended.
    pub(super) fn tell(&self, update: Update) {
        let _ = self.answers.send(Answer::Update(Box::new(update)));
    }
}

/// The worker's way to the control thread.
pub struct ToKernel {
    hops: Hops,
    answers: Receiver<Answer>,
    /// Whose ESP the kernel does by agreed keys.
    identities: Vec<PublicKey>,
    /// Gives the order back where there is no room.
    pass: Box<dyn Fn(KernelOrder) -> Option<KernelOrder> + Send>,
    unsent: Option<KernelOrder>,
    is_waiting: bool,
}

impl ToKernel {
    /// Whether an order is not carried out yet.
    pub fn is_busy(&self) -> bool {
        self.is_waiting
    }

    /// Gives an order; one for a peer of others is dropped. Call it while none is under way.
    pub fn order(&mut self, engine: &Engine, order: KernelOrder) {
        let peer = match &order {
            KernelOrder::Install(install) => &install.peer,
            KernelOrder::Forget(peer, _) | KernelOrder::Close(peer) => peer,
        };
        if self.identities.contains(peer) {
            self.tell_hops(engine);
            self.is_waiting = true;
            self.unsent = (self.pass)(order);
        }
    }

    /// Says where sealed packets go.
    pub fn tell_hops(&self, engine: &Engine) {
        for (place, hop) in (0..).zip(self.hops.iter()) {
            let known = engine.kernel_hop(place).map_or(0, |mac| {
                let [a, b, c, d, e, f] = mac.0;
                IS_KNOWN | u64::from_be_bytes([0, 0, a, b, c, d, e, f])
            });
            hop.store(known, Ordering::Relaxed);
        }
    }

    /// Has the engine know what the kernel did. Never waits.
    pub fn take_updates(&mut self, engine: &mut Engine) {
        self.unsent = self.unsent.take().and_then(|order| (self.pass)(order));
        for answer in self.answers.try_iter() {
            let Answer::Update(update) = answer else {
                self.is_waiting = false;
                continue;
            };
            let Update { place, associations, used, is_lost } = *update;
            if let Some((seal, open)) = associations {
                engine.set_kernel_associations(place, seal, &open);
                if used != PeerActivity::default() {
                    engine.note_kernel_use(place, &used);
                }
            }
            engine.note_kernel(place, is_lost);
        }
    }
}

/// The kernel's ESP as the control thread has it.
pub struct KernelControl {
    esp: KernelEsp,
    worker: ToWorker,
    reserver: Reserver,
    answer: Sender<Reserved>,
    answers: Receiver<Reserved>,
}

impl KernelControl {
    /// Looks after `esp` from now on; the worker passes its orders by `pass`, which gives one back
    /// that finds no room.
    pub fn new(
        esp: KernelEsp,
        reserver: Reserver,
        pass: Box<dyn Fn(KernelOrder) -> Option<KernelOrder> + Send>,
    ) -> (Self, ToKernel) {
        let count = esp.peers.len();
        let hops: Hops = (0..count).map(|_| AtomicU64::new(0)).collect();
        let (updates, received) = sync_channel(UPDATES_MIN.max(4 * count));
        let identities = esp.identities().collect();
        let worker = ToWorker { hops: Arc::clone(&hops), answers: updates };
        let (answer, answers) = channel();
        let to_kernel =
            ToKernel { hops, answers: received, identities, pass, unsent: None, is_waiting: false };
        (Self { esp, worker, reserver, answer, answers }, to_kernel)
    }

    /// Carries an order out.
    pub fn obey(&mut self, guard: &mut Guard, order: KernelOrder) {
        let Self { esp, worker, .. } = self;
        match order {
            KernelOrder::Install(install) => esp.install(guard, worker, &install),
            KernelOrder::Forget(peer, spi) => esp.forget(guard, worker, &peer, spi),
            KernelOrder::Close(peer) => esp.close(guard, worker, &peer),
        }
        // Fails where the worker has ended.
        let _ = worker.answers.send(Answer::Done);
    }

    /// Looks after all. Call it ten times a second.
    pub fn tick(&mut self, guard: &mut Guard) {
        let Self { esp, worker, reserver, answer, answers } = self;
        for reserved in answers.try_iter() {
            match reserved {
                Reserved::Granted(state) => esp.reserved(state.fingerprint, Some(&state)),
                Reserved::Refused(key) => esp.reserved(key, None),
            }
        }
        esp.tick(guard, worker, reserver, answer);
    }

    /// What the kernel did, by peer: of each snapshot the numbers of associations and `kernel`
    /// count.
    pub fn show(&self) -> Vec<PeerSnapshot> {
        self.esp.show()
    }

    /// Shuts the guard, keeps what was accepted, and removes everything.
    ///
    /// # Errors
    /// Something stays in the kernel; the next start removes it.
    pub fn stop(self, guard: &mut Guard) -> Result<()> {
        self.esp.stop(guard)
    }
}
