//! What the workers of a pair tell each other, by a bounded queue to each: where hosts and
//! neighbours are, counts that limits and thresholds use, and datagrams that came in fragments to
//! a worker that does not have their flow.
//!
//! When a queue is full, a place of a host is told later. Counts are sent once, since sent twice
//! they would count twice: a worker that stands still for seconds misses them. A fragment of a
//! datagram that finds no room is dropped and counted.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use anyhow::{Context, Result};
use weir_engine::pipeline::{Counted, Engine, Reassembled, Sighting};
use weir_engine::verdict::{DropReason, Side};
use weir_port::{FlowWorkers, SteeredSide};
use weir_wire::frame::Time;

use crate::daemon::pair::relay::Relay;

/// What waits for one worker, at most.
const QUEUE_MAX: usize = 1024;

/// Rounds of counts, ten a second of each other worker, that wait for one.
const ROUNDS_MAX: usize = 256;

/// What a worker takes in between two batches, at most.
const HEARD_A_ROUND: usize = 64;

/// Datagrams that wait for one worker, to be judged or for their pieces to go on, at most: 16 MiB
/// of the longest.
const JOURNEYS_MAX: usize = 256;

/// A datagram on its way to the worker of its flow, and back to where its pieces came.
#[derive(Debug)]
struct Journey {
    reassembled: Box<Reassembled>,
    from: usize,
    /// `None`: on its way there.
    judged: Option<Result<(), DropReason>>,
}

/// How to reach one worker.
#[derive(Clone, Debug)]
struct WorkerHandle {
    journeys: SyncSender<Journey>,
    /// Wakes it.
    bell: Arc<UnixStream>,
}

/// One worker's end.
#[derive(Debug)]
pub struct Exchange {
    number: usize,
    flows: Arc<FlowWorkers>,
    ways: Vec<WorkerHandle>,
    journeys: Receiver<Journey>,
    bell: UnixStream,
    others: Vec<SyncSender<Sighting>>,
    told: Receiver<Sighting>,
    counters: Vec<SyncSender<Arc<Counted>>>,
    counted: Receiver<Arc<Counted>>,
}

impl Exchange {
    /// The ends of so many workers; `flows` tells which of them has a packet's flow.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn of(workers: usize, flows: FlowWorkers) -> Result<Vec<Self>> {
        let (senders, receivers) = queues(workers, QUEUE_MAX);
        let (counters, counted) = queues(workers, ROUNDS_MAX);
        let flows = Arc::new(flows);
        let (mut ways, mut arrivals) = (Vec::new(), Vec::new());
        for _ in 0..workers {
            let (journeys, arrived) = sync_channel(JOURNEYS_MAX);
            let (bell, heard) = UnixStream::pair().context("no descriptors for workers")?;
            bell.set_nonblocking(true)?;
            heard.set_nonblocking(true)?;
            ways.push(WorkerHandle { journeys, bell: Arc::new(bell) });
            arrivals.push((arrived, heard));
        }
        let ends = receivers.into_iter().zip(counted).zip(arrivals).enumerate();
        let end = |(number, ((told, counted), (journeys, bell)))| Self {
            number,
            flows: Arc::clone(&flows),
            ways: ways.clone(),
            journeys,
            bell,
            others: all_but(number, &senders),
            told,
            counters: all_but(number, &counters),
            counted,
        };
        Ok(ends.map(end).collect())
    }

    /// What becomes readable when another worker has something that cannot wait.
    pub fn bell(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    /// Silences the bell: call it after each sleep.
    pub fn awake(&mut self) {
        // Nothing rang, or it was heard.
        let _ = self.bell.read(&mut [0; 64]);
    }

    /// Ten times a second: tells the others what was counted here.
    pub fn tell_counted(&self, engine: &mut Engine) {
        let Some(counted) = engine.take_counted().map(Arc::new) else { return };
        for other in &self.counters {
            // Full: it stands still, or has ended.
            let _ = other.try_send(Arc::clone(&counted));
        }
    }

    /// Tells the others what the engine of `relay` has learnt and it what they have; takes
    /// datagrams made whole to the worker of their flow.
    pub fn pass(&mut self, relay: &mut Relay, now: Time) {
        self.travel(relay, now);
        let engine = relay.engine();
        while let Some(sighting) = engine.take_sighting() {
            let is_full = |other: &SyncSender<Sighting>| {
                matches!(other.try_send(sighting), Err(TrySendError::Full(_)))
            };
            // Who has it already may hear it twice.
            if self.others.iter().any(is_full) {
                engine.keep_sighting(sighting);
                break;
            }
        }
        for told in self.told.try_iter().take(HEARD_A_ROUND) {
            engine.hear(told, now);
        }
        if let Ok(counted) = self.counted.try_recv() {
            engine.add_counted(&counted, now);
        }
    }
}

impl Exchange {
    /// Judges what others made whole, has pieces go on whose datagrams were judged, and sends what
    /// was made whole here on its way.
    fn travel(&self, relay: &mut Relay, now: Time) {
        for journey in self.journeys.try_iter().take(HEARD_A_ROUND) {
            self.arrived(relay, journey, now);
        }
        while let Some(mut reassembled) = relay.engine().take_reassembled() {
            let Some(datagram) = reassembled.datagram() else {
                relay.go_on(now, &mut reassembled);
                continue;
            };
            let worker = self.worker_of(reassembled.side(), datagram);
            let journey = Journey { reassembled, from: self.number, judged: None };
            match worker {
                own if own == self.number => self.arrived(relay, journey, now),
                other => self.send(relay.engine(), other, journey),
            }
        }
    }

    fn arrived(&self, relay: &mut Relay, journey: Journey, now: Time) {
        let Journey { mut reassembled, from, judged } = journey;
        let judged = judged.unwrap_or_else(|| relay.judge(now, &reassembled));
        if from != self.number {
            let journey = Journey { reassembled, from, judged: Some(judged) };
            return self.send(relay.engine(), from, journey);
        }
        match judged {
            Ok(()) => relay.go_on(now, &mut reassembled),
            Err(reason) => relay.engine().drop_reassembled(&reassembled, reason),
        }
    }

    fn send(&self, engine: &mut Engine, worker: usize, journey: Journey) {
        let WorkerHandle { journeys, bell } = &self.ways[worker];
        match journeys.try_send(journey) {
            Ok(()) => ring(bell),
            // Disconnected: it has ended, and the pair with it.
            Err(TrySendError::Full(it) | TrySendError::Disconnected(it)) => {
                engine.drop_reassembled(&it.reassembled, DropReason::FlowQueueFull);
            }
        }
    }

    /// The worker of a datagram's flow; this one where the kernel does not say.
    fn worker_of(&self, side: Side, datagram: &[u8]) -> usize {
        let side = match side {
            Side::Host => SteeredSide::Host,
            Side::Wire => SteeredSide::Wire,
        };
        let worker = self.flows.worker_of(side, datagram);
        worker.ok().filter(|it| *it < self.ways.len()).unwrap_or(self.number)
    }
}

/// Wakes a worker that sleeps; one that has not heard the bell before hears it still.
fn ring(mut bell: &UnixStream) {
    match bell.write(&[1]) {
        Err(error) if error.kind() != ErrorKind::WouldBlock => {
            tracing::debug!(%error, "a worker is not woken");
        }
        _ => {}
    }
}

fn queues<T>(workers: usize, room: usize) -> (Vec<SyncSender<T>>, Vec<Receiver<T>>) {
    (0..workers).map(|_| sync_channel(room)).unzip()
}

fn all_but<T>(number: usize, senders: &[SyncSender<T>]) -> Vec<SyncSender<T>> {
    let others = senders.iter().enumerate().filter(|(other, _)| *other != number);
    others.map(|(_, sender)| sender.clone()).collect()
}
