//! What happens now: gateways are looked at twice a second, rates are made of two looks, and
//! whoever listens is told.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::broadcast;
use utoipa::ToSchema;
use weir_store::clock;

use crate::dto::GatewayStatus;
use crate::gateways::{self, Places};
use crate::status::{Side, Status};

/// Between two looks: gateways publish once a second, so none is missed.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Points kept of a gateway: five minutes.
const POINTS_MAX: usize = 300;

/// Points kept of a gateway are no older than that, milliseconds by its clock: one that was set has
/// none of before.
const POINTS_MS: u64 = 2 * 1000 * POINTS_MAX as u64;

/// Seconds that the clock and the time since the start may go differently between two looks; more:
/// the clock was set.
const CLOCK_AGREES_S: f64 = 2.0;

/// Points that a listener may lag behind before it misses some.
const LAG_MAX: usize = 256;

/// A gateway whose socket is gone is shown as down for so long: past a night and a morning, so that
/// nobody misses one that ended; then it was taken down for good.
const REMEMBERED: Duration = Duration::from_secs(86_400);

/// Gateways that are known, at most; beyond, one whose socket is gone is forgotten at once.
const KNOWN_MAX: usize = 4 * gateways::GATEWAYS_MAX;

/// A gateway during one second. Rates are per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct Point {
    /// The gateway.
    pub gateway: String,
    /// When the second ended, milliseconds since 1970.
    pub time_ms: u64,
    /// Bits received from the host, plaintext.
    pub out_bits: f64,
    /// Bits received from the wire, as they were there.
    pub in_bits: f64,
    /// Frames from the host.
    pub out_packets: f64,
    /// Frames from the wire.
    pub in_packets: f64,
    /// Of the frames that went out, the share that was sealed or tagged: 0 to 1. Absent: none went.
    pub sealed_share: Option<f64>,
    /// Of all frames received, the share that the kernel's fast path carried: 0 to 1. Absent: none
    /// came.
    pub fast_share: Option<f64>,
    /// Frames received by all ports = accepted + dropped + bypassed.
    pub received: f64,
    /// Of them, passed on as the policy wants it.
    pub accepted: f64,
    /// Of them, dropped.
    pub dropped: f64,
    /// Of them, passed in clear where the gateway seals.
    pub bypassed: f64,
    /// Of `dropped`, by reason.
    pub reasons: BTreeMap<String, f64>,
    /// Flows in the tables.
    pub flows: u64,
    /// Queue pairs seen since the start.
    pub queue_pairs: u64,
    /// Peers that are up.
    pub peers_up: u64,
    /// Peers configured.
    pub peers: u64,
    /// Whether nothing is wrong.
    pub is_healthy: bool,
}

/// What is known of one gateway.
#[derive(Debug)]
enum Known {
    Up(Box<Status>),
    /// Why it does not answer; since when its socket is gone, if it is.
    Down(String, Option<Instant>),
}

/// What is known of all gateways; shared by those who look and those who ask.
#[derive(Debug)]
pub struct Board {
    known: Mutex<BTreeMap<String, Known>>,
    points: Mutex<BTreeMap<String, VecDeque<Point>>>,
    listeners: broadcast::Sender<Arc<Point>>,
}

impl Default for Board {
    fn default() -> Self {
        let (listeners, _) = broadcast::channel(LAG_MAX);
        Self { known: Mutex::default(), points: Mutex::default(), listeners }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Board {
    /// Looks at all gateways for ever.
    pub async fn watch(&self, places: &Places) {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            let sockets = places.sockets();
            let gone = |name: &String| !sockets.contains_key(name);
            let lost: Vec<String> =
                locked(&self.known).keys().filter(|it| gone(it)).cloned().collect();
            for name in lost {
                self.note_gone(&name, clock::now());
            }
            for (name, socket) in sockets {
                match gateways::ask(&socket).await {
                    Ok(status) => self.note(status),
                    Err(error) => self.note_down(&name, &error.to_string()),
                }
            }
        }
    }

    /// Takes in what a gateway says.
    pub fn note(&self, status: Status) {
        // Before its first second is over, a gateway has nothing to say.
        if status.taken_ns == 0 {
            return;
        }
        let name = status.name.clone();
        let before = locked(&self.known).insert(name.clone(), Known::Up(Box::new(status.clone())));
        let Some(Known::Up(before)) = before else { return };
        let Some(point) = point(&before, &status) else { return };
        let mut points = locked(&self.points);
        let own = points.entry(name).or_default();
        let lately = point.time_ms.saturating_sub(POINTS_MS)..point.time_ms;
        own.retain(|it| lately.contains(&it.time_ms));
        if own.len() == POINTS_MAX {
            own.pop_front();
        }
        own.push_back(point.clone());
        // Without a listener there is nobody to tell.
        let _ = self.listeners.send(Arc::new(point));
    }

    fn note_down(&self, name: &str, why: &str) {
        locked(&self.known).insert(name.to_owned(), Known::Down(why.to_owned(), None));
    }

    /// Its socket is not there: it is down, and forgotten after [`REMEMBERED`].
    fn note_gone(&self, name: &str, now: Instant) {
        let mut known = locked(&self.known);
        let since = match known.get(name) {
            Some(Known::Down(_, Some(since))) => *since,
            _ => now,
        };
        if now.duration_since(since) >= REMEMBERED || known.len() > KNOWN_MAX {
            known.remove(name);
            locked(&self.points).remove(name);
        } else {
            let why = "its socket is gone".to_owned();
            known.insert(name.to_owned(), Known::Down(why, Some(since)));
        }
    }

    /// The last status of each gateway that answers.
    pub fn statuses(&self) -> Vec<Status> {
        let known = locked(&self.known);
        let up = known.values().filter_map(|it| match it {
            Known::Up(status) => Some(status.as_ref().clone()),
            Known::Down(..) => None,
        });
        up.collect()
    }

    /// All gateways, for people.
    pub fn summaries(&self) -> Vec<GatewayStatus> {
        let known = locked(&self.known);
        let summary = |(name, it): (&String, &Known)| match it {
            Known::Up(status) => GatewayStatus::up(status),
            Known::Down(why, _) => GatewayStatus::down(name, why),
        };
        known.iter().map(summary).collect()
    }

    /// The points kept, by time, and those to come.
    pub fn listen(&self) -> (Vec<Point>, broadcast::Receiver<Arc<Point>>) {
        let points = locked(&self.points);
        let mut kept: Vec<Point> = points.values().flatten().cloned().collect();
        kept.sort_by_key(|point| point.time_ms);
        (kept, self.listeners.subscribe())
    }
}

/// What happened between two looks; `None`: nothing new, or the gateway began anew.
fn point(before: &Status, after: &Status) -> Option<Point> {
    if after.taken_ns == before.taken_ns {
        return None;
    }
    let ran_s = after.uptime_seconds.checked_sub(before.uptime_seconds)? as f64;
    let by_clock_s = (after.taken_ns as f64 - before.taken_ns as f64) / 1e9;
    let is_set = (by_clock_s - ran_s).abs() > CLOCK_AGREES_S || by_clock_s < 0.0;
    let elapsed_s = if is_set { ran_s.max(1.0) } else { by_clock_s };
    let rate = |count: u64| count as f64 / elapsed_s;
    let mut point = Point {
        gateway: after.name.clone(),
        time_ms: after.taken_ns / 1_000_000,
        is_healthy: GatewayStatus::up(after).is_healthy,
        ..Point::default()
    };
    let (mut sealed, mut in_clear, mut received, mut fast) = (0, 0, 0, 0);
    for pair in &after.pairs {
        let Some(old) = before.pairs.iter().find(|it| it.name == pair.name) else { continue };
        point.out_bits += rate(8 * grown(&old.host, &pair.host, |it| it.received_bytes));
        point.in_bits += rate(8 * grown(&old.wire, &pair.wire, |it| it.received_bytes));
        point.out_packets += rate(grown(&old.host, &pair.host, |it| it.received));
        point.in_packets += rate(grown(&old.wire, &pair.wire, |it| it.received));
        sealed += grown(&old.host, &pair.host, |it| it.sealed + it.tagged + it.handed);
        in_clear += grown(&old.host, &pair.host, |it| it.forwarded + it.clear + it.unsealed);
        for (old, side) in [(&old.host, &pair.host), (&old.wire, &pair.wire)] {
            point.received += rate(grown(old, side, |it| it.received));
            received += grown(old, side, |it| it.received);
            fast += grown(old, side, |it| it.fast);
            point.dropped += rate(grown(old, side, |it| it.dropped));
            point.bypassed += rate(grown(old, side, |it| it.clear + it.unsealed));
            for (reason, count) in &side.dropped_by_reason {
                let earlier = old.dropped_by_reason.get(reason).copied().unwrap_or(0);
                if *count > earlier {
                    *point.reasons.entry(reason.clone()).or_default() += rate(count - earlier);
                }
            }
        }
        point.flows += pair.flows;
        point.queue_pairs += pair.rdma.queue_pairs;
        point.peers += pair.peers.len() as u64;
        point.peers_up += pair.peers.iter().filter(|it| it.state() == "up").count() as u64;
    }
    point.accepted = (point.received - point.dropped - point.bypassed).max(0.0);
    let left = sealed + in_clear;
    point.sealed_share = (left > 0).then(|| sealed as f64 / left as f64);
    point.fast_share = (received > 0).then(|| fast as f64 / received as f64);
    Some(point)
}

fn grown(before: &Side, after: &Side, count: fn(&Side) -> u64) -> u64 {
    count(after).saturating_sub(count(before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Pair;

    fn status(taken_s: u64, sealed: u64, dropped: u64) -> Status {
        let host = Side {
            received: sealed + dropped,
            received_bytes: 1000 * (sealed + dropped),
            sealed,
            fast: sealed / 4,
            dropped,
            dropped_by_reason: BTreeMap::from([("no_policy".to_owned(), dropped)]),
            ..Side::default()
        };
        let pair = Pair { name: "p".into(), host, ..Pair::default() };
        Status {
            name: "gw".into(),
            taken_ns: taken_s * 1_000_000_000,
            uptime_seconds: taken_s,
            adds_up: true,
            pairs: vec![pair],
            ..Status::default()
        }
    }

    #[test]
    fn rates_are_what_grew_in_the_time_between() {
        let point = point(&status(10, 100, 0), &status(12, 300, 20)).unwrap();
        assert_eq!((point.out_packets, point.out_bits), (110.0, 880_000.0));
        assert_eq!((point.received, point.accepted, point.dropped), (110.0, 100.0, 10.0));
        assert_eq!(point.reasons, BTreeMap::from([("no_policy".to_owned(), 10.0)]));
        assert_eq!(point.sealed_share, Some(1.0));
        assert_eq!(point.fast_share, Some(50.0 / 220.0));
    }

    #[test]
    fn the_same_look_twice_and_a_restart_make_no_point() {
        assert_eq!(point(&status(10, 1, 0), &status(10, 1, 0)), None);
        let mut anew = status(20, 1, 0);
        anew.uptime_seconds = 0;
        assert_eq!(point(&status(10, 9, 0), &anew), None);
    }

    #[test]
    fn a_clock_that_is_set_changes_no_rate_and_leaves_no_points_of_another_time() {
        let board = Board::default();
        let at = |clock_s: u64, ran_s| Status {
            uptime_seconds: ran_s,
            ..status(clock_s, 100 * ran_s, 0)
        };
        for (ran_s, clock_s) in [(1, 1000), (2, 1001), (3, 9000), (4, 9001), (5, 500), (6, 501)] {
            board.note(at(clock_s, ran_s));
        }
        let points = board.listen().0;
        assert_eq!(points.iter().map(|it| it.time_ms).collect::<Vec<_>>(), [500_000, 501_000]);
        assert!(points.iter().all(|it| it.out_packets == 100.0), "{points:?}");
    }

    #[test]
    fn a_board_keeps_a_bounded_history_and_tells_listeners() {
        let board = Board::default();
        let (kept, mut listener) = board.listen();
        assert!(kept.is_empty());
        for second in 1..=(POINTS_MAX as u64 + 50) {
            board.note(status(second, second, 0));
            if second > 1 {
                let _ = listener.try_recv().unwrap();
            }
        }
        assert_eq!(board.listen().0.len(), POINTS_MAX);
    }

    #[test]
    fn a_gateway_that_ended_is_shown_as_down_for_a_day_and_one_that_came_back_begins_anew() {
        let (board, day) = (Board::default(), Duration::from_secs(86_400));
        let (start, minute) = (clock::now(), Duration::from_secs(60));
        let is_up = |board: &Board| {
            board.summaries().iter().map(|it| (it.name.clone(), it.is_up)).collect::<Vec<_>>()
        };
        board.note(status(1, 1, 0));
        board.note(status(2, 2, 0));
        board.note_gone("gw", start);
        board.note_gone("gw", start + day - minute);
        assert_eq!(is_up(&board), [("gw".to_owned(), false)]);
        board.note(status(3, 3, 0));
        board.note_gone("gw", start + day);
        board.note_gone("gw", start + 2 * day - minute);
        assert_eq!(is_up(&board), [("gw".to_owned(), false)], "a day since it ended again");
        board.note_gone("gw", start + 2 * day);
        assert_eq!((is_up(&board), board.listen().0), (vec![], vec![]));
    }

    #[test]
    fn gateways_of_ever_new_names_do_not_fill_the_board() {
        let (board, now) = (Board::default(), clock::now());
        for number in 0..2000 {
            let name = format!("gw{number}");
            board.note(Status { name: name.clone(), ..status(1, 1, 0) });
            board.note_gone(&name, now);
        }
        assert_eq!(board.summaries().len(), KNOWN_MAX);
    }
}
