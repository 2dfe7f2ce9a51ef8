//! Connections that are asked for and never complete (ReDMArk A4), by the messages of connection
//! management.
//!
//! ```text
//!   REQ            -> open; a second later, if it still is, a mark
//!   RTU, REJ       -> complete, refused: no more, by the names that their receiver finds it by
//! ```

use weir_wire::cm;
use weir_wire::frame::Time;

use super::super::{NS_PER_S, Signs};
use super::{Attack, Attacks, ENTRIES_MAX, Hosts};

/// Why a requester rejects what it asked for itself: no answer came (IBTA Vol 1 s12.6.7.2).
pub(super) const TIMEOUT: u16 = 4;
/// A connection that is not complete so long after it was asked for may never be.
const OPEN_S: u32 = 1;
pub(super) const OPEN_NS: u64 = OPEN_S as u64 * NS_PER_S;
/// Who asks for so many times as many connections within that time as may stay open uses none.
const AT_ONCE: u32 = 8;

/// A connection that was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// The channel adapter and queue pair of who asked: a REQ that is sent again has the same.
    adapter: u64,
    queue_pair: u32,
    /// Who asked whom.
    hosts: Hosts,
    since: Time,
    /// It is neither complete nor refused.
    is_open: bool,
    /// It was open for long enough to leave marks.
    is_marked: bool,
    /// How its responder calls it, with the REP.
    answered: Option<u32>,
}

impl Asked {
    /// Whether a REJ of who asked ends it: as its responder finds it, by the name that it gave it,
    /// or where it gave none by the adapter whose time is over (IBTA Vol 1 s12.6.7.2).
    fn is_given_up(&self, reject: &cm::Reject) -> bool {
        let adapter = self.adapter.to_be_bytes();
        let is_timeout = reject.reason.get() == TIMEOUT && reject.information.starts_with(&adapter);
        self.answered == Some(reject.remote_comm_id.get()) || is_timeout
    }
}

impl Attacks {
    /// A message of connection management: only what belongs to one that was asked for completes
    /// it, refuses it, or begins its queue pairs anew.
    pub(super) fn connection(
        &mut self,
        now: Time,
        there: Hosts,
        message: &cm::Message<'_>,
    ) -> Signs {
        self.mark_open(now);
        let back = (there.1, there.0);
        match message {
            cm::Message::Request(it) => {
                self.pair(now, there).has_asked = true;
                let name = self.asked.key((there, it.local_comm_id.get()));
                let asked = self.asked.enter_key(now, name).0;
                let (adapter, queue_pair) = (it.local_ca_guid.get(), it.local_qpn().value());
                let is_again =
                    asked.is_open && (asked.adapter, asked.queue_pair) == (adapter, queue_pair);
                if !is_again {
                    let (hosts, since, is_open) = (there, now, true);
                    let new =
                        Asked { adapter, queue_pair, hosts, since, is_open, ..Asked::default() };
                    let before = std::mem::replace(asked, new);
                    // Its responder takes another adapter's for another, and nothing ends it here.
                    if before.is_open && !before.is_marked {
                        self.mark_asked(now, before.hosts);
                    }
                    if self.open.len() == ENTRIES_MAX {
                        self.mark_first_open(now);
                    }
                    self.open.push_back((now, name));
                }
                return self.asked_at_once(now, there.0, u32::from(!is_again))
                    | self.marked(now, Attack::QpExhaustion, (there.0, 0))
                    | self.marked(now, Attack::QpExhaustionOfHost, (0, there.1));
            }
            cm::Message::Reply(it) => {
                let asked = self.asked.get((back, it.remote_comm_id.get()));
                let asked = asked.filter(|it| it.is_open && it.answered.is_none());
                if let Some(asked) = asked {
                    asked.answered = Some(it.local_comm_id.get());
                    let queue_pair = asked.queue_pair;
                    self.renew(back, it.local_qpn().value());
                    self.renew(there, queue_pair);
                }
            }
            // It is used.
            cm::Message::Ready(it) => {
                let is_of = |asked: &Asked| asked.answered == Some(it.remote_comm_id.get());
                self.settle(now, (there, it.local_comm_id.get()), is_of);
            }
            cm::Message::Reject(it) => {
                let by_responder = |asked: &Asked| {
                    asked.answered.is_none_or(|name| name == it.local_comm_id.get())
                };
                self.settle(now, (back, it.remote_comm_id.get()), by_responder);
                self.settle(now, (there, it.local_comm_id.get()), |asked| asked.is_given_up(it));
            }
            _ => {}
        }
        0
    }

    /// A connection of that name is complete or refused, if `is_of` says that the message is of it.
    fn settle(&mut self, now: Time, name: (Hosts, u32), is_of: impl Fn(&Asked) -> bool) {
        let asked = self.asked.get(name).filter(|it| it.is_open && is_of(it));
        let Some(Asked { hosts, is_marked, .. }) = asked.map(std::mem::take) else { return };
        if !is_marked {
            return self.marks.take(now, (Attack::QpExhaustion, hosts.0), OPEN_S);
        }
        self.unmark(now, Attack::QpExhaustion, (hosts.0, 0));
        self.unmark(now, Attack::QpExhaustionOfHost, (0, hosts.1));
    }

    /// Counts connections that a source asks for and that are not complete, within a second: the
    /// bits of the watches for which it is many times as many as they allow.
    fn asked_at_once(&mut self, now: Time, source: u128, more: u32) -> Signs {
        let asked = self.marks.add(now, (Attack::QpExhaustion, source), more, OPEN_S);
        let watches = self.watches.iter().filter(|(_, it)| it.attack == Attack::QpExhaustion);
        let exceeded = watches.filter(|(_, it)| asked >= it.count.saturating_mul(AT_ONCE));
        exceeded.fold(0, |signs, (bit, _)| signs | 1 << bit)
    }

    /// Connections that were asked for a second ago and are still open leave their marks: who opens
    /// hundreds at once completes them.
    fn mark_open(&mut self, now: Time) {
        while self.open.front().is_some_and(|it| now.since_ns(it.0) >= OPEN_NS) {
            self.mark_first_open(now);
        }
    }

    /// Marks the connection that waits longest for it, if it is still open.
    fn mark_first_open(&mut self, now: Time) {
        let Some((since, name)) = self.open.pop_front() else { return };
        let asked = self.asked.get_key(name);
        if let Some(asked) = asked.filter(|it| it.is_open && it.since == since) {
            asked.is_marked = true;
            let hosts = asked.hosts;
            self.mark_asked(now, hosts);
        }
    }

    fn mark_asked(&mut self, now: Time, hosts: Hosts) {
        self.mark(now, Attack::QpExhaustion, (hosts.0, 0), 1);
        self.mark(now, Attack::QpExhaustionOfHost, (0, hosts.1), 1);
    }
}
