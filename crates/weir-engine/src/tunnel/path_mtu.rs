//! The largest packet that the path to one peer carries, searched by probes (RFC 8899).
//!
//! ```text
//!   keys agreed --> max alone --answered-----------------------------> found
//!                       | not                                            | every 30 s of traffic:
//!                       v                                                | is it still carried?
//!                   well-known sizes --> eight between --> ... --------> found
//!                       | nothing answered                               | not: a black hole
//!                       v                                                v
//!                   unknown: `max` holds, again in 30 s              BASE holds, search below it
//! ```
//!
//! A probe is a packet that holds nothing for a host, padded to size, that must not be fragmented;
//! the peer answers it by another one. Both are sealed: nobody on the path can forge an answer, or
//! tell a probe from a sign of life. What ICMP says of the path is never believed (RFC 8899 s4.6):
//! it makes us ask at once whether the size in force is still carried.

use arrayvec::ArrayVec;

const MS: u64 = 1_000_000;

/// Between two tries of the same sizes. Reports and orders pass four times each 100 ms at most.
const TRY_NS: u64 = 600 * MS;
/// Tries before a size counts as too large (RFC 8899 s5.1.2, MAX_PROBES).
const TRIES: u8 = 3;
/// Tries of the configured maximum alone, before smaller sizes are tried beside it.
const TRIES_ALONE: u8 = 2;
/// Sizes of one try, at most.
const RUNGS_MAX: usize = 8;
/// Sealed packets are a multiple of four bytes long (RFC 4303 s2.4), and so are probes.
const ALIGNED: u16 = !3;
/// The search ends when it knows the size to so many bytes.
const CLOSE_ENOUGH: u16 = 4;
/// The least size that is asked for: every IPv4 path carries it.
const SIZE_MIN: u16 = 576;
/// What holds after a black hole until more is known (RFC 8899 s5.1.2, BASE_PLPMTU).
const BASE: u16 = 1200;
/// Sizes that links and tunnels have, besides the maximum.
const WELL_KNOWN: [u16; 7] = [576, 1200, 1280, 1400, 1500, 4352, 9000];
/// Between two questions whether the size in force is still carried, while packets are sealed.
const CONFIRM_NS: u64 = 30_000 * MS;
/// After that long, a path that was narrow is asked for more, the first time: probes may have been
/// lost by chance. Then after twice as long, and again, up to `RAISE_NS`.
const RAISE_FIRST_NS: u64 = 30_000 * MS;
/// The longest time until a narrow path is asked for more (RFC 8899 s5.1.1, PMTU_RAISE_TIMER).
const RAISE_NS: u64 = 600_000 * MS;
/// A peer that answers no probe is asked again after that long.
const SILENT_NS: u64 = 30_000 * MS;
/// Between two questions that ICMP caused: anyone can send ICMP.
const HINT_NS: u64 = 5_000 * MS;

/// A question by size, or its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Tells the answers of one try from those of another.
    pub round: u32,
    /// Bytes of the whole outer IP packet.
    pub size_bytes: u16,
}

/// What a dummy packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeMessage {
    /// Answer when this arrives.
    Ask(Probe),
    /// The largest that arrived.
    Answer(Probe),
}

/// Bytes of a [`ProbeMessage`] in front of a dummy packet's payload.
pub const PROBE_MESSAGE_LEN: usize = 12;

/// What is no traffic-flow confidentiality begins so.
const MARK: [u8; 5] = *b"pmtu1";
const ASK: u8 = 1;
const ANSWER: u8 = 2;

impl ProbeMessage {
    /// As bytes.
    pub fn bytes(self) -> [u8; PROBE_MESSAGE_LEN] {
        let (kind, probe) = match self {
            Self::Ask(probe) => (ASK, probe),
            Self::Answer(probe) => (ANSWER, probe),
        };
        let mut bytes = [0; PROBE_MESSAGE_LEN];
        bytes[..5].copy_from_slice(&MARK);
        bytes[5] = kind;
        bytes[6..10].copy_from_slice(&probe.round.to_be_bytes());
        bytes[10..].copy_from_slice(&probe.size_bytes.to_be_bytes());
        bytes
    }

    /// What the payload of an authentic dummy packet says; `None`: nothing.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let bytes: &[u8; PROBE_MESSAGE_LEN] = payload.first_chunk()?;
        let [mark @ .., _, _, _, _, _, _, _] = bytes;
        let round = u32::from_be_bytes([bytes[6], bytes[7], bytes[8], bytes[9]]);
        let probe = Probe { round, size_bytes: u16::from_be_bytes([bytes[10], bytes[11]]) };
        match (*mark == MARK, bytes[5]) {
            (true, ASK) => Some(Self::Ask(probe)),
            (true, ANSWER) => Some(Self::Answer(probe)),
            _ => None,
        }
    }
}

/// What is known of a path's MTU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathMtuState {
    /// Nobody asks: the configured maximum holds.
    #[default]
    Off,
    /// Probes are under way.
    Searching,
    /// The peer answers probes of this size and of no larger one.
    Found,
    /// The peer answers no probe at all: the configured maximum holds.
    Unanswered,
}

impl PathMtuState {
    /// The name in the status and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Searching => "searching",
            Self::Found => "found",
            Self::Unanswered => "unanswered",
        }
    }
}

/// A path's MTU at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathMtuStatus {
    /// The largest outer IP packet that is sent, bytes.
    pub in_force_bytes: u16,
    /// Why.
    pub state: PathMtuState,
    /// How often the size in force was no longer carried.
    pub black_holes: u64,
}

/// The search for one peer.
#[derive(Debug, Default)]
pub(super) struct PathMtu {
    /// Of the wire port; 0: nobody asks.
    max: u16,
    in_force: u16,
    state: PathMtuState,
    /// Known to be carried, and known not to be; the search is between.
    low: u16,
    high: u16,
    rungs: ArrayVec<u16, RUNGS_MAX>,
    round: u32,
    tries: u8,
    tries_max: u8,
    /// Whether the present rungs only ask if the size in force is still carried.
    confirms: bool,
    /// Beside them goes a small one, which tells a black hole from a dead peer.
    small_came: bool,
    due_ns: Option<u64>,
    raise_ns: u64,
    raise_after_ns: u64,
    hinted_ns: Option<u64>,
    /// Bytes sealed when it was last confirmed.
    confirmed_at_bytes: u64,
    black_holes: u64,
}

impl PathMtu {
    /// Another maximum: everything begins anew with the next keys. True when it is another.
    pub(super) fn set_max(&mut self, max: u16) -> bool {
        let max = max & ALIGNED;
        if self.max == max {
            return false;
        }
        *self = Self { max, in_force: max, black_holes: self.black_holes, ..Self::default() };
        true
    }

    /// There are keys. A search that is under way or done goes on.
    pub(super) fn begin(&mut self, now_ns: u64) {
        if self.max >= SIZE_MIN && self.state == PathMtuState::Off {
            self.search(now_ns);
        }
    }

    /// The peer is somewhere else, or gone: what is known is worth nothing. The maximum holds.
    pub(super) fn forget(&mut self) {
        let (max, black_holes) = (self.max, self.black_holes);
        *self = Self { max, in_force: max, round: self.round, black_holes, ..Self::default() };
    }

    /// When to call [`PathMtu::serve`].
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// The largest packet to be sent.
    pub(super) fn in_force(&self) -> u16 {
        self.in_force
    }

    pub(super) fn status(&self) -> PathMtuStatus {
        PathMtuStatus {
            in_force_bytes: self.in_force,
            state: self.state,
            black_holes: self.black_holes,
        }
    }

    /// Goes on where it is due; hands over the probes to send. `sealed_bytes` grows when packets
    /// are sealed.
    pub(super) fn serve(&mut self, now_ns: u64, sealed_bytes: u64, mut send: impl FnMut(Probe)) {
        if self.due_ns.is_none_or(|at| at > now_ns) {
            return;
        }
        if self.rungs.is_empty() && self.state == PathMtuState::Found {
            self.ask_again(now_ns, sealed_bytes);
        } else if self.rungs.is_empty() {
            self.search(now_ns);
        }
        if self.tries >= self.tries_max && !self.rungs.is_empty() {
            self.conclude(now_ns);
        }
        if self.rungs.is_empty() {
            return;
        }
        self.tries += 1;
        self.due_ns = Some(now_ns + TRY_NS);
        let Self { rungs, low, round, confirms, .. } = self;
        for size in rungs.iter().filter(|size| *confirms || **size > *low) {
            send(Probe { round: *round, size_bytes: *size });
        }
    }

    /// An answer came.
    pub(super) fn answered(&mut self, now_ns: u64, probe: Probe, sealed_bytes: u64) {
        let size = probe.size_bytes;
        if probe.round != self.round || !self.rungs.contains(&size) {
            return;
        }
        if self.confirms {
            if size < self.in_force {
                self.small_came = true;
                return;
            }
            self.confirmed_at_bytes = sealed_bytes;
            return self.rest(now_ns);
        }
        self.low = self.low.max(size);
        if self.rungs.iter().all(|rung| *rung <= self.low) {
            self.conclude(now_ns);
            self.due_ns = self.due_ns.map(|at| at.min(now_ns.max(1)));
            if self.rungs.is_empty() {
                self.rest(now_ns);
            }
        }
    }

    /// ICMP said that a packet was too large for the path.
    pub(super) fn hinted(&mut self, now_ns: u64) {
        let soon = self.hinted_ns.is_some_and(|at| now_ns.saturating_sub(at) < HINT_NS);
        // What asks for more may be what a router complains of.
        if self.state != PathMtuState::Found || !self.rungs.is_empty() || soon {
            return;
        }
        self.hinted_ns = Some(now_ns);
        self.confirm(now_ns);
    }

    fn search(&mut self, now_ns: u64) {
        self.state = PathMtuState::Searching;
        (self.low, self.high) = (0, self.max.saturating_add(1));
        self.raise_after(now_ns, RAISE_FIRST_NS);
        let alone = ArrayVec::from_iter([self.max]);
        self.ask(now_ns, alone, TRIES_ALONE, false);
    }

    fn raise_after(&mut self, now_ns: u64, after_ns: u64) {
        (self.raise_after_ns, self.raise_ns) = (after_ns, now_ns + after_ns);
    }

    fn ask(&mut self, now_ns: u64, rungs: ArrayVec<u16, RUNGS_MAX>, tries_max: u8, confirms: bool) {
        self.rungs = rungs;
        self.round = self.round.wrapping_add(1);
        (self.tries, self.tries_max, self.confirms) = (0, tries_max, confirms);
        self.due_ns = Some(now_ns);
    }

    fn confirm(&mut self, now_ns: u64) {
        self.small_came = false;
        self.ask(now_ns, ArrayVec::from_iter([SIZE_MIN, self.in_force]), TRIES, true);
    }

    /// The size is found: is it still carried, and is there more?
    fn ask_again(&mut self, now_ns: u64, sealed_bytes: u64) {
        if self.in_force < self.max && now_ns >= self.raise_ns {
            self.raise_after(now_ns, RAISE_NS.min(2 * self.raise_after_ns));
            (self.low, self.high) = (self.in_force, self.max.saturating_add(1));
            self.ask(now_ns, ArrayVec::from_iter([self.max]), TRIES_ALONE, false);
        } else if sealed_bytes != self.confirmed_at_bytes {
            self.confirm(now_ns);
        } else {
            self.rest(now_ns);
        }
    }

    fn rest(&mut self, now_ns: u64) {
        self.rungs.clear();
        self.confirms = false;
        self.due_ns = Some(now_ns + CONFIRM_NS);
    }

    /// The rungs above `low` were not answered.
    fn conclude(&mut self, now_ns: u64) {
        if self.confirms {
            // A dead peer answers nothing, and says nothing about its path.
            if !self.small_came {
                return self.rest(now_ns);
            }
            self.black_holes += 1;
            let lost = self.in_force;
            self.in_force = BASE.min(self.in_force);
            self.state = PathMtuState::Searching;
            self.raise_after(now_ns, RAISE_FIRST_NS);
            (self.low, self.high) = (0, lost);
        } else if let Some(lost) = self.rungs.iter().filter(|size| **size > self.low).min() {
            self.high = self.high.min(*lost);
        }
        if self.low > 0 && self.high - self.low <= CLOSE_ENOUGH || self.low == self.max {
            (self.in_force, self.state) = (self.low, PathMtuState::Found);
            return self.rest(now_ns);
        }
        let rungs = self.ladder();
        if rungs.is_empty() {
            // Nothing at all is answered.
            self.state = PathMtuState::Unanswered;
            self.rest(now_ns);
            self.due_ns = Some(now_ns + SILENT_NS);
            return;
        }
        self.ask(now_ns, rungs, TRIES, false);
    }

    /// Sizes between `low` and `high`: the well-known ones first, then evenly spaced.
    fn ladder(&self) -> ArrayVec<u16, RUNGS_MAX> {
        let between = |size: &u16| (self.low + 1..self.high).contains(size);
        if self.low == 0 {
            return WELL_KNOWN.into_iter().filter(between).collect();
        }
        let gap = u32::from(self.high - self.low);
        let steps = RUNGS_MAX as u32 + 1;
        let rung = |step: u32| (self.low + (gap * step / steps) as u16) & ALIGNED;
        let mut rungs: ArrayVec<u16, RUNGS_MAX> = ArrayVec::new();
        for size in (1..steps).map(rung).filter(between) {
            if rungs.last() != Some(&size) {
                rungs.push(size);
            }
        }
        if rungs.is_empty() {
            rungs.push((self.low + CLOSE_ENOUGH) & ALIGNED);
        }
        rungs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1000 * MS;

    /// A path that carries `carried` bytes, and a peer that answers what arrives while it lives.
    struct Stretch {
        search: PathMtu,
        now_ns: u64,
        carried: u16,
        alive: bool,
        sealed: u64,
        probes: u64,
        /// A router says so of what is too large.
        complains: bool,
    }

    impl Stretch {
        fn new(max: u16, carried: u16) -> Self {
            let mut search = PathMtu::default();
            search.set_max(max);
            search.begin(SECOND);
            let (alive, complains) = (true, false);
            Self { search, now_ns: SECOND, carried, alive, sealed: 0, probes: 0, complains }
        }

        fn run(&mut self, seconds: u64) {
            self.run_ms(1000 * seconds);
        }

        fn run_ms(&mut self, milliseconds: u64) {
            for _ in 0..milliseconds / 100 {
                self.now_ns += 100 * MS;
                self.sealed += 1;
                let mut sent = Vec::new();
                self.search.serve(self.now_ns, self.sealed, |probe| sent.push(probe));
                self.probes += sent.len() as u64;
                if self.complains && sent.iter().any(|probe| probe.size_bytes > self.carried) {
                    self.search.hinted(self.now_ns);
                }
                sent.retain(|probe| self.alive && probe.size_bytes <= self.carried);
                if let Some(largest) = sent.into_iter().max_by_key(|probe| probe.size_bytes) {
                    self.search.answered(self.now_ns, largest, self.sealed);
                }
            }
        }

        #[track_caller]
        fn is_found(&self) -> u16 {
            assert_eq!(self.search.state, PathMtuState::Found, "{:?}", self.search);
            self.search.in_force()
        }
    }

    #[test]
    fn a_path_as_wide_as_the_wire_takes_one_probe() {
        let mut path = Stretch::new(9000, 9000);
        path.run(1);
        assert_eq!((path.is_found(), path.probes), (9000, 1));
    }

    #[test]
    fn every_width_is_found_to_four_bytes_within_fifteen_seconds() {
        for carried in (SIZE_MIN..9000).step_by(37).chain([577, 1199, 1499, 1500, 1501, 8999, 9000])
        {
            let mut path = Stretch::new(9000, carried);
            path.run(15);
            let found = path.is_found();
            assert!(
                (carried.saturating_sub(CLOSE_ENOUGH) + 1..=carried).contains(&found),
                "{carried}: {found}"
            );
        }
    }

    #[test]
    fn well_known_widths_are_found_whatever_the_maximum() {
        for max in [1500, 1600, 4096, 9000, 9216] {
            for carried in WELL_KNOWN.into_iter().filter(|size| *size <= max) {
                let mut path = Stretch::new(max, carried);
                path.run(15);
                assert_eq!(path.is_found(), carried, "of {max}");
            }
        }
    }

    #[test]
    fn probes_lost_by_chance_narrow_a_path_for_a_minute_at_most() {
        for lost_ms in [1300, 2500, 4500] {
            let mut path = Stretch::new(9000, 9000);
            path.alive = false;
            path.run_ms(lost_ms);
            path.alive = true;
            path.run(70);
            assert_eq!(path.is_found(), 9000, "{lost_ms} ms without an answer");
        }
    }

    #[test]
    fn a_path_that_stays_narrow_is_asked_for_more_ever_less_often() {
        let mut path = Stretch::new(9000, 1500);
        path.run(10 * RAISE_NS / SECOND);
        let before = path.probes;
        path.run(20 * RAISE_NS / SECOND);
        assert_eq!(path.is_found(), 1500);
        // Two every 30 s ask whether 1500 is still carried. A search takes less than 100.
        let confirming = 2 * 20 * RAISE_NS / CONFIRM_NS;
        let searching = path.probes - before - confirming;
        assert!(searching < 20 * 100, "{searching} probes in 20 times ten minutes");
    }

    #[test]
    fn a_peer_that_answers_no_probe_leaves_the_maximum_and_is_asked_again() {
        let mut path = Stretch::new(9000, 0);
        path.run(10);
        assert_eq!(path.search.state, PathMtuState::Unanswered);
        assert_eq!(path.search.in_force(), 9000);
        path.carried = 1500;
        path.run(60);
        assert_eq!(path.is_found(), 1500);
    }

    #[test]
    fn a_black_hole_is_met_by_the_base_and_a_new_search() {
        let mut path = Stretch::new(9000, 9000);
        path.run(5);
        assert_eq!(path.is_found(), 9000);
        path.carried = 1400;
        path.run(60);
        assert_eq!(path.is_found(), 1400);
        assert_eq!(path.search.status().black_holes, 1);
        path.carried = 9000;
        path.run(2 * RAISE_NS / SECOND);
        assert_eq!(path.is_found(), 9000, "a wider path is found by the raise timer");
    }

    #[test]
    fn a_dead_peer_is_no_black_hole() {
        let mut path = Stretch::new(9000, 9000);
        path.run(5);
        path.alive = false;
        path.run(120);
        assert_eq!((path.is_found(), path.search.status().black_holes), (9000, 0));
    }

    #[test]
    fn icmp_is_not_believed_but_makes_us_ask() {
        let mut path = Stretch::new(9000, 9000);
        path.run(5);
        let before = path.probes;
        path.search.hinted(path.now_ns);
        path.search.hinted(path.now_ns);
        path.run(1);
        assert_eq!((path.is_found(), path.probes), (9000, before + 2), "one question, no change");
        path.carried = 1500;
        path.now_ns += HINT_NS;
        path.search.hinted(path.now_ns);
        path.run(10);
        assert_eq!(path.is_found(), 1500, "long before the next regular question");
    }

    #[test]
    fn icmp_about_what_asks_for_more_does_not_end_it() {
        let mut path = Stretch::new(9000, 1500);
        path.complains = true;
        path.run(15);
        assert_eq!(path.is_found(), 1500);
        path.carried = 4352;
        path.run(2 * RAISE_NS / SECOND);
        assert_eq!(path.is_found(), 4352);
    }

    #[test]
    fn answers_nobody_asked_for_change_nothing() {
        let mut path = Stretch::new(9000, 1500);
        path.run(15);
        for round in 0..200 {
            path.search.answered(path.now_ns, Probe { round, size_bytes: 9000 }, path.sealed);
        }
        path.run(1);
        assert_eq!(path.is_found(), 1500);
    }

    #[test]
    fn messages_are_told_from_padding() {
        let probe = Probe { round: 7, size_bytes: 9000 };
        for message in [ProbeMessage::Ask(probe), ProbeMessage::Answer(probe)] {
            let bytes = message.bytes();
            assert_eq!(ProbeMessage::parse(&[&bytes[..], &[0; 99]].concat()), Some(message));
            assert_eq!(ProbeMessage::parse(&bytes[..11]), None);
        }
        for padding in [&[0; 64][..], b"pmtu1\x03.......", &[]] {
            assert_eq!(ProbeMessage::parse(padding), None);
        }
    }
}
