//! What one worker of a pair tells the others: where hosts and neighbours are, and what sources
//! have taken out of their limits. Bounded queues to each.
//!
//! Places that find a queue full wait with who wants to tell them. What was spent is told once, or
//! a limit would count it twice: a worker that stands still for seconds misses it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use weir_engine::access::Spent;
use weir_engine::pipeline::{Engine, Sighting};
use weir_wire::frame::Time;

/// What waits for one worker, at most.
const QUEUE_MAX: usize = 1024;

/// Rounds of limits, ten a second of each other worker, that wait for one.
const SPENT_MAX: usize = 256;

/// What a worker takes in between two batches, at most.
const HEARD_A_ROUND: usize = 64;

/// One worker's end.
#[derive(Debug)]
pub struct Exchange {
    others: Vec<SyncSender<Sighting>>,
    told: Receiver<Sighting>,
    spenders: Vec<SyncSender<Arc<[Spent]>>>,
    spent: Receiver<Arc<[Spent]>>,
}

impl Exchange {
    /// The ends of so many workers.
    pub fn of(workers: usize) -> Vec<Self> {
        let (senders, receivers) = queues(workers, QUEUE_MAX);
        let (spenders, spent) = queues(workers, SPENT_MAX);
        let ends = receivers.into_iter().zip(spent).enumerate();
        let end = |(number, (told, spent))| Self {
            others: all_but(number, &senders),
            told,
            spenders: all_but(number, &spenders),
            spent,
        };
        ends.map(end).collect()
    }

    /// Ten times a second: tells the others what sources have taken out of their limits here.
    pub fn tell_spent(&self, engine: &mut Engine) {
        let mut spent = Vec::new();
        engine.take_spent(|it| spent.push(it));
        if spent.is_empty() {
            return;
        }
        let spent: Arc<[Spent]> = spent.into();
        for other in &self.spenders {
            // Full: it stands still, or has ended.
            let _ = other.try_send(Arc::clone(&spent));
        }
    }

    /// Tells the others what `engine` has learnt, and it what they have.
    pub fn pass(&mut self, engine: &mut Engine, now: Time) {
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
        if let Ok(spent) = self.spent.try_recv() {
            spent.iter().for_each(|it| engine.note_spent(it, now));
        }
    }
}

fn queues<T>(workers: usize, room: usize) -> (Vec<SyncSender<T>>, Vec<Receiver<T>>) {
    (0..workers).map(|_| sync_channel(room)).unzip()
}

fn all_but<T>(number: usize, senders: &[SyncSender<T>]) -> Vec<SyncSender<T>> {
    let others = senders.iter().enumerate().filter(|(other, _)| *other != number);
    others.map(|(_, sender)| sender.clone()).collect()
}
