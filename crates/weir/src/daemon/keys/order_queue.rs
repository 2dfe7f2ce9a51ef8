//! The way from the keying thread to the workers of its pair: a bounded queue to each, and what
//! waits for room in it.
//!
//! Worker 0 installs new associations when all others have theirs: so whoever has a packet sealed
//! by its newest association, or the response that follows in its queue, knows that every worker
//! opens (docs/adr/0025). An order to worker 0 may therefore wait until the others have obeyed what
//! they were told before it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use crate::daemon::keys::keying::Order;

/// What waits for one worker, at most.
const QUEUE_MAX: usize = 1024;

/// The thread's end of the way to one worker.
#[derive(Debug)]
pub(in crate::daemon) struct OrderQueue {
    orders: SyncSender<Order>,
    backlog: VecDeque<Step>,
    /// Orders ever given, and how many the worker has obeyed.
    given: u64,
    obeyed: Arc<AtomicU64>,
}

/// An order, and what the other queues must have done before.
#[derive(Debug)]
struct Step {
    order: Order,
    after: Vec<u64>,
}

/// The worker's end.
#[derive(Debug)]
pub(in crate::daemon) struct Orders {
    orders: Receiver<Order>,
    obeyed: Arc<AtomicU64>,
}

/// All queues of a pair.
#[derive(Debug)]
pub(in crate::daemon) struct OrderQueues(Vec<OrderQueue>);

impl OrderQueues {
    /// A queue for each of so many workers, and the workers' ends.
    pub(in crate::daemon) fn of(workers: usize) -> (Self, Vec<Orders>) {
        let queue = |_| {
            let (sender, orders) = sync_channel(QUEUE_MAX);
            let obeyed = Arc::new(AtomicU64::new(0));
            let backlog = VecDeque::new();
            let queue =
                OrderQueue { orders: sender, backlog, given: 0, obeyed: Arc::clone(&obeyed) };
            (queue, Orders { orders, obeyed })
        };
        let (queues, ends) = (0..workers).map(queue).unzip();
        (Self(queues), ends)
    }

    /// Workers.
    pub(in crate::daemon) fn count(&self) -> usize {
        self.0.len()
    }

    /// Orders that wait for worker 0.
    pub(in crate::daemon) fn waiting(&self) -> usize {
        self.0[0].backlog.len()
    }

    /// Whether anything waits for anybody.
    pub(in crate::daemon) fn is_empty(&self) -> bool {
        self.0.iter().all(|queue| queue.backlog.is_empty())
    }

    /// Tells one worker.
    pub(in crate::daemon) fn tell(&mut self, worker: usize, order: Order) {
        let queue = &mut self.0[worker];
        queue.given += 1;
        queue.backlog.push_back(Step { order, after: Vec::new() });
    }

    /// Tells worker 0, once the others have obeyed what they were told so far.
    pub(in crate::daemon) fn tell_first_when_all_obeyed(&mut self, order: Order) {
        let after = self.0[1..].iter().map(|queue| queue.given).collect();
        let queue = &mut self.0[0];
        queue.given += 1;
        queue.backlog.push_back(Step { order, after });
    }

    /// Passes on what there is room for; `here` takes what is no worker's, in worker 0's turn.
    pub(in crate::daemon) fn pass(&mut self, mut here: impl FnMut(Order) -> Option<Order>) {
        let (first, others) = self.0.split_at_mut(1);
        for queue in others.iter_mut() {
            queue.pass(|_| true, &mut Some);
        }
        let have_obeyed = |after: &[u64]| {
            let mut queues = others.iter().zip(after);
            queues.all(|(queue, given)| queue.obeyed.load(Ordering::Acquire) >= *given)
        };
        first[0].pass(have_obeyed, &mut here);
    }
}

impl OrderQueue {
    fn pass(
        &mut self,
        may_go: impl Fn(&[u64]) -> bool,
        here: &mut dyn FnMut(Order) -> Option<Order>,
    ) {
        while let Some(step) = self.backlog.pop_front() {
            if !may_go(&step.after) {
                self.backlog.push_front(step);
                return;
            }
            let Some(order) = here(step.order) else { continue };
            if let Err(TrySendError::Full(order)) = self.orders.try_send(order) {
                self.backlog.push_front(Step { order, after: Vec::new() });
                return;
            }
        }
    }
}

impl Orders {
    /// The next order; count it by [`Orders::obeyed`] when it is carried out.
    pub(in crate::daemon) fn next(&self) -> Option<Order> {
        self.orders.try_recv().ok()
    }

    /// Tells the thread that so many more were carried out.
    pub(in crate::daemon) fn obeyed(&self, count: usize) {
        self.obeyed.fetch_add(count as u64, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_engine::tunnel::key::PublicKey;

    const PEER: PublicKey = PublicKey([7; 32]);

    fn orders(end: &Orders) -> usize {
        std::iter::from_fn(|| end.next()).count()
    }

    #[test]
    fn worker_0_is_told_when_all_others_have_obeyed() {
        let (mut queues, ends) = OrderQueues::of(3);
        for worker in [1, 2] {
            queues.tell(worker, Order::Close(PEER));
        }
        queues.tell_first_when_all_obeyed(Order::Close(PEER));
        queues.tell(0, Order::Close(PEER));
        queues.pass(Some);
        let counts: Vec<_> = ends.iter().map(orders).collect();
        assert_eq!(counts, [0, 1, 1], "and what follows keeps its place");
        ends[1].obeyed(1);
        queues.pass(Some);
        assert_eq!((orders(&ends[0]), queues.waiting()), (0, 2));
        ends[2].obeyed(1);
        queues.pass(Some);
        assert_eq!(orders(&ends[0]), 2);
        assert!(queues.is_empty());
    }

    #[test]
    fn what_finds_a_queue_full_waits_in_its_order() {
        let (mut queues, ends) = OrderQueues::of(1);
        for _ in 0..QUEUE_MAX + 5 {
            queues.tell_first_when_all_obeyed(Order::Keepalive(PEER));
        }
        queues.pass(Some);
        assert_eq!((orders(&ends[0]), queues.waiting()), (QUEUE_MAX, 5));
        queues.pass(Some);
        assert_eq!((orders(&ends[0]), queues.waiting()), (5, 0));
    }
}
