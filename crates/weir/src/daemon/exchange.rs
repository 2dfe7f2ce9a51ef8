//! What one worker of a pair tells the others: where hosts and neighbours are. Bounded queues from
//! each to each; what finds one full waits with who wants to tell it.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use weir_engine::pipeline::{Engine, Told};
use weir_wire::frame::Time;

/// What waits for one worker, at most.
const QUEUE_MAX: usize = 1024;

/// What a worker takes in between two batches, at most.
const HEARD_A_ROUND: usize = 64;

/// One worker's end.
#[derive(Debug)]
pub struct Exchange {
    others: Vec<SyncSender<Told>>,
    told: Receiver<Told>,
}

impl Exchange {
    /// The ends of so many workers.
    pub fn of(workers: usize) -> Vec<Self> {
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..workers).map(|_| sync_channel(QUEUE_MAX)).unzip();
        let end = |(number, told): (usize, Receiver<Told>)| {
            let others = senders.iter().enumerate().filter(|(other, _)| *other != number);
            Self { others: others.map(|(_, sender)| sender.clone()).collect(), told }
        };
        receivers.into_iter().enumerate().map(end).collect()
    }

    /// Tells the others what `engine` has learnt, and it what they have.
    pub fn pass(&mut self, engine: &mut Engine, now: Time) {
        while let Some(news) = engine.take_news() {
            let is_full = |other: &SyncSender<Told>| {
                matches!(other.try_send(news), Err(TrySendError::Full(_)))
            };
            // Who has it already may hear it twice.
            if self.others.iter().any(is_full) {
                engine.keep_news(news);
                break;
            }
        }
        for told in self.told.try_iter().take(HEARD_A_ROUND) {
            engine.hear(told, now);
        }
    }
}
