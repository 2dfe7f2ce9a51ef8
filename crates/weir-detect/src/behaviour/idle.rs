//! Connections that were completed and that nobody uses: who asks for one after another takes the
//! queue pairs of a responder without a mark of `qp_exhaustion`, which an RTU takes away (ReDMArk
//! A4).
//!
//! ```text
//!   REQ, REP                   -> Asked: the queue pairs of both sides
//!   RTU                        -> Unused, one for each direction; awaited for IDLE_NS
//!   a request, DREQ            -> no more
//!   IDLE_NS later still unused -> idle: a mark of the requester, until it is used or ends
//! ```

use std::collections::VecDeque;

use weir_wire::cm;
use weir_wire::frame::Time;

use super::NS_PER_S;
use super::table::Table;

/// Connections of one worker, of each kind.
const ENTRIES_MAX: usize = 1 << 15;
/// A connection that was not used for so long is idle.
const IDLE_NS: u64 = 60 * NS_PER_S;
/// Connections that may become idle with one message: more than one message completes.
const AT_ONCE: usize = 4;

/// One direction of a connection: from whom, to whom, and to which queue pair.
type Direction = (u128, u128, u32);

/// A connection that was asked for: the queue pairs of requester and responder, once known, and how
/// the responder calls it.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    queue_pairs: [Option<u32>; 2],
    responders_name: u32,
}

/// A connection that nobody has used, by one of its directions.
#[derive(Clone, Copy, Debug, Default)]
struct Unused {
    /// What stands for its requester's direction in the table; 0: it is used, or has ended.
    first: u64,
    requester: u128,
    since: Time,
    is_idle: bool,
    /// How who sends in that direction calls the connection, and how the other end does.
    names: [u32; 2],
}

/// The connections that were completed and not used.
#[derive(Debug)]
pub(super) struct Idle {
    asked: Table<Asked>,
    unused: Table<Unused>,
    /// By their requester's direction, in the order of their RTUs.
    awaited: VecDeque<(Time, u64)>,
}

/// Whose number of idle connections changed, and whether it grew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) requester: u128,
    pub(super) is_more: bool,
}

impl Idle {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            asked: Table::new(ENTRIES_MAX, seed),
            unused: Table::new(2 * ENTRIES_MAX, seed ^ 1),
            awaited: VecDeque::new(),
        }
    }

    /// Takes a message of connection management in; whose connection it ends that was idle.
    pub(super) fn manage(
        &mut self,
        now: Time,
        (from, to): (u128, u128),
        message: &cm::Message<'_>,
    ) -> Option<Change> {
        match message {
            cm::Message::Request(it) => {
                let asked = self.asked.enter(now, (from, to, it.local_comm_id.get())).0;
                asked.queue_pairs = [Some(it.local_qpn().value()), None];
                asked.responders_name = 0;
            }
            cm::Message::Reply(it) => {
                let asked = self.asked.get((to, from, it.remote_comm_id.get()))?;
                asked.queue_pairs[1] = Some(it.local_qpn().value());
                asked.responders_name = it.local_comm_id.get();
            }
            cm::Message::Ready(it) => {
                let asked = self.asked.get((from, to, it.local_comm_id.get()))?;
                // One that names another completes nothing; and it may come twice.
                let names = [it.local_comm_id.get(), it.remote_comm_id.get()];
                let [Some(own), Some(other)] = asked.queue_pairs else { return None };
                if asked.responders_name != names[1] {
                    return None;
                }
                *asked = Asked::default();
                self.complete(now, (from, to, other), (to, from, own), names);
            }
            // Its receiver finds the connection by its names.
            cm::Message::DisconnectRequest(it) => {
                let direction = (from, to, it.remote_qpn().value());
                let names = [it.local_comm_id.get(), it.remote_comm_id.get()];
                let is_of = self.unused.get(direction).is_some_and(|it| it.names == names);
                return if is_of { self.used(direction) } else { None };
            }
            _ => {}
        }
        None
    }

    /// A connection is complete, of these two directions.
    fn complete(&mut self, now: Time, requester: Direction, responder: Direction, names: [u32; 2]) {
        if self.awaited.len() == ENTRIES_MAX && !self.forget_used() {
            return;
        }
        let first = self.unused.key(requester);
        let unused = Unused { first, requester: requester.0, since: now, is_idle: false, names };
        *self.unused.enter(now, requester).0 = unused;
        let [own, other] = names;
        *self.unused.enter(now, responder).0 = Unused { names: [other, own], ..unused };
        self.awaited.push_back((now, first));
    }

    /// Lets the oldest ones go that were used or ended since, up to the first that was not; whether
    /// there is room then.
    fn forget_used(&mut self) -> bool {
        let Self { awaited, unused, .. } = self;
        while let Some((since, first)) = awaited.front().copied() {
            let known = unused.get_key(first);
            if known.is_some_and(|it| it.first == first && it.since == since) {
                break;
            }
            awaited.pop_front();
        }
        awaited.len() < ENTRIES_MAX
    }

    /// A connection is used in that direction, or ends; whose it is, if it was idle.
    pub(super) fn used(&mut self, direction: Direction) -> Option<Change> {
        let own = std::mem::take(self.unused.get(direction)?);
        let first = self.unused.get_key(own.first).filter(|it| it.since == own.since);
        let first = first.map(std::mem::take).unwrap_or_default();
        let is_idle = own.is_idle || first.is_idle;
        is_idle.then_some(Change { requester: own.requester, is_more: false })
    }

    /// Of which requesters another connection became idle, a few at most each time.
    pub(super) fn ripen(&mut self, now: Time) -> [Option<Change>; AT_ONCE] {
        let mut ripe = [None; AT_ONCE];
        for place in &mut ripe {
            let due = self.awaited.pop_front_if(|it| now.since_ns(it.0) >= IDLE_NS);
            let Some((since, first)) = due else { break };
            let unused = self.unused.get_key(first);
            let Some(unused) = unused.filter(|it| it.first == first && it.since == since) else {
                continue;
            };
            unused.is_idle = true;
            *place = Some(Change { requester: unused.requester, is_more: true });
        }
        ripe
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    const REQUESTER: u128 = 1;
    const RESPONDER: u128 = 2;
    /// What is added to the number of a connection: the responder's queue pair.
    const OTHER: u32 = 0x1_0000;

    /// Connections between two hosts, each by its number, and how many of them are idle.
    struct Given {
        idle: Idle,
        now: Time,
        idle_count: i32,
    }

    impl Given {
        fn new() -> Self {
            Self { idle: Idle::new(7), now: Time(1_000 * NS_PER_S), idle_count: 0 }
        }

        fn note(&mut self, change: Option<Change>) {
            let Some(change) = change else { return };
            assert_eq!(change.requester, REQUESTER);
            self.idle_count += if change.is_more { 1 } else { -1 };
        }

        fn manage(&mut self, from: u128, message: &cm::Message<'_>) {
            let hosts = (from, REQUESTER + RESPONDER - from);
            let change = self.idle.manage(self.now, hosts, message);
            self.note(change);
        }

        fn ask(&mut self, number: u32) {
            let mut request = cm::ConnectRequest::new_zeroed();
            request.local_comm_id.set(number);
            request.local_qpn_and_resources.set(number << 8);
            self.manage(REQUESTER, &cm::Message::Request(&request));
            let mut reply = cm::ConnectReply::new_zeroed();
            reply.remote_comm_id.set(number);
            reply.local_qpn.set((OTHER + number) << 8);
            reply.local_comm_id.set(OTHER + number);
            self.manage(RESPONDER, &cm::Message::Reply(&reply));
        }

        fn complete(&mut self, number: u32) {
            let mut ready = cm::Plain::new_zeroed();
            ready.local_comm_id.set(number);
            ready.remote_comm_id.set(OTHER + number);
            self.manage(REQUESTER, &cm::Message::Ready(&ready));
        }

        fn connect(&mut self, number: u32) {
            self.ask(number);
            self.complete(number);
        }

        fn disconnect(&mut self, number: u32) {
            let mut end = cm::DisconnectRequest::new_zeroed();
            end.remote_qpn.set((OTHER + number) << 8);
            (end.local_comm_id, end.remote_comm_id) = (number.into(), (OTHER + number).into());
            self.manage(REQUESTER, &cm::Message::DisconnectRequest(&end));
        }

        fn send(&mut self, number: u32) {
            let change = self.idle.used((REQUESTER, RESPONDER, OTHER + number));
            self.note(change);
        }

        fn answer(&mut self, number: u32) {
            let change = self.idle.used((RESPONDER, REQUESTER, number));
            self.note(change);
        }

        /// How many are idle so many seconds later.
        fn after(&mut self, seconds: u64) -> i32 {
            self.now = self.now.plus_ns(seconds * NS_PER_S);
            loop {
                let ripe = self.idle.ripen(self.now);
                ripe.into_iter().for_each(|it| self.note(it));
                if ripe == [None; AT_ONCE] {
                    return self.idle_count;
                }
            }
        }
    }

    #[test]
    fn connections_that_nobody_uses_are_idle_a_minute_after_they_were_completed() {
        let mut given = Given::new();
        (1..=10).for_each(|number| given.connect(number));
        assert_eq!(given.after(59), 0);
        assert_eq!(given.after(1), 10);
        assert_eq!(given.after(600), 10, "each once");
    }

    #[test]
    fn a_connection_that_is_used_by_either_side_or_ends_is_not_idle_then_or_any_more() {
        let mut given = Given::new();
        (1..=6).for_each(|number| given.connect(number));
        given.send(1);
        given.answer(2);
        given.disconnect(3);
        assert_eq!(given.after(60), 3);
        given.send(4);
        given.answer(5);
        given.disconnect(6);
        assert_eq!(given.after(60), 0);
        (1..=6).for_each(|number| given.send(number));
        assert_eq!(given.after(60), 0, "taken back once");
    }

    #[test]
    fn what_was_not_completed_is_not_idle_and_what_was_completed_twice_is_it_once() {
        let mut given = Given::new();
        given.ask(1);
        given.connect(2);
        given.complete(2);
        given.complete(3);
        assert_eq!(given.after(60), 1);
    }

    #[test]
    fn a_queue_pair_that_is_connected_again_is_awaited_again() {
        let mut given = Given::new();
        given.connect(1);
        given.send(1);
        assert_eq!(given.after(30), 0);
        given.connect(1);
        assert_eq!(given.after(30), 0, "a minute after the first");
        assert_eq!(given.after(30), 1);
    }

    #[test]
    fn no_more_are_awaited_than_there_is_room_for() {
        let mut given = Given::new();
        (0..ENTRIES_MAX as u32 + 10).for_each(|number| given.connect(number));
        assert_eq!(given.idle.awaited.len(), ENTRIES_MAX);
    }
}
