//! Whether a packet's number is one that its receiver could be waiting for (IBTA Vol 1 s9.7.1: the
//! numbers of a reliable connection are expected, behind, or of nobody).
//!
//! ```text
//!    <-- behind: sent again --|-- ahead: some were lost before us -->
//!   ...------[ 65,535 and the longest READ ]--next--[ 65,535 ]------...
//!      out of the window                               out of the window
//! ```
//!
//! Who injects into a queue pair (ReDMArk A1) does not know its numbers and sweeps them: nearly all
//! of its packets are out of the window, and the receiver says nothing about them. A window is four
//! bytes beside what is kept of a direction; it begins with the first packet, or where connection
//! managers said. It moves by requests in order, and by answers as far as requests came: who hits
//! it by chance does not take it along. Where no answers are seen, it has to follow gaps too.
//!
//! A queue pair that is set up again has other numbers. Such requests pass beside a window that was
//! silent or never answered, one stream of them at a time, and take its place once the receiver
//! answers them. Until then the window keeps its own, also while its direction rests and leaves the
//! meter: nobody shuts its owner out by a packet in the owner's name (docs/adr/0307).

use weir_wire::bth::{Psn, Service};
use weir_wire::ext;
use weir_wire::frame::Time;
use weir_wire::parse::Rdma;

use super::direction::Place;
use crate::meter::Observation;
use crate::rdma::StageData;
use crate::rdma::psn::JUMP_PSNS;

/// After so many units of silence a stream may begin anywhere: 13 to 17 s, as an owner yields.
const SILENT_UNITS: u32 = 4;
/// A unit of time is 2^32 ns.
const UNIT_BITS: u32 = 32;
/// Units are counted from 1 to this; 0 is a window that has not begun.
const UNITS: u32 = 15;
/// READs of more than 2^16 packets are told from each other, in steps of four times as many.
const SPAN_BASE: u32 = 16;
const SPAN_STEP: u32 = 2;
/// Bytes of the smallest and of the largest path MTU, where none is known.
const PATH_MTU_MIN: u32 = 256;
const PATH_MTU_MAX: u32 = 4096;
/// After 13 s others may be heard in the place of those far from the window.
const OTHER_SILENT_STEPS: u32 = 130;
const OTHER_STEP_NS: u64 = 100_000_000;

/// So many packets out of their windows in a second are an attack.
const ATTACK_PACKETS: u32 = 64;
/// An attack is over after so long without any.
const ATTACK_OVER_NS: u64 = 60_000_000_000;
const NS_PER_S: u64 = 1_000_000_000;

/// What happens to packets out of their window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PsnCheck {
    /// Nobody looks.
    Off,
    /// They are counted, and pass.
    #[default]
    Count,
    /// They are dropped while there are many: from [`ATTACK_PACKETS`] in a second on, until a
    /// minute passed without any. Lee and Kim's filter that wakes up under attack.
    UnderAttack,
    /// They are dropped.
    Drop,
}

impl PsnCheck {
    /// Its name in configuration and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            PsnCheck::Off => "off",
            PsnCheck::Count => "count",
            PsnCheck::UnderAttack => "under_attack",
            PsnCheck::Drop => "drop",
        }
    }
}

/// The requests' numbers of one direction: the next (24 bits), when one came last (4), whether any
/// was answered (1), whether there is more in [`Beside`] (1), how many the longest READ used (2, in
/// steps); above those 32, whether connection managers agreed on them (1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Window(u64);

/// Bits of a window.
pub(super) const WINDOW_BITS: u32 = 40;

/// What a window has no room for; most have none of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Beside {
    /// Requests came up to here, but not in order: as far as answers may take the window. Numbers
    /// begin at 1 here; 0: there are none.
    ahead: u32,
    /// Requests far from the window; unseen: there are none.
    other: Other,
}

impl Beside {
    fn ahead(&self) -> Option<Psn> {
        self.ahead.checked_sub(1).map(Psn::new)
    }

    fn other(&self) -> Option<Other> {
        (self.other.seen != 0).then_some(self.other)
    }
}

/// Requests that are not the window's, and pass for all that: of the same queue pair set up again,
/// or of somebody who uses its name. The receiver's answer tells.
#[derive(Clone, Copy, Debug, Default)]
struct Other {
    first: Psn,
    /// Behind the last.
    next: Psn,
    /// When, in steps of [`OTHER_STEP_NS`] from 1 on.
    seen: u32,
}

impl Other {
    fn step(now: Time) -> u32 {
        (now.0 / OTHER_STEP_NS) as u32 | 1 << 31
    }

    fn is_silent(&self, now: Time) -> bool {
        Self::step(now).wrapping_sub(self.seen) << 1 >= OTHER_SILENT_STEPS << 1
    }

    fn holds(&self, psn: Psn) -> bool {
        (-JUMP_PSNS..=JUMP_PSNS).contains(&psn.distance(self.next))
    }

    /// Whether that number was asked with.
    fn has(&self, psn: Psn) -> bool {
        psn.distance(self.first) >= 0 && psn.distance(self.next) < 0
    }
}

/// How many numbers a request uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Count {
    least: u32,
    most: u32,
}

impl Window {
    const AGREED: u64 = 1 << 32;
    const NEXT: u64 = 0xffff_ff00;
    const UNIT: u64 = 0xf0;
    const ANSWERED: u64 = StageData::LASTS as u64;
    const BESIDE: u64 = 4;
    const SPAN: u64 = 3;

    fn new(next: Psn, now: Time) -> Self {
        Self(u64::from(next.value() << 8 | unit(now) << 4))
    }

    /// One that begins with `psn`, as connection managers agreed.
    pub(super) fn agreed(psn: Psn, now: Time) -> Self {
        Self(Self::new(psn, now).0 | Self::AGREED)
    }

    #[inline]
    pub(super) fn bits(self) -> u64 {
        self.0
    }

    /// The inverse of [`Window::bits`].
    #[inline]
    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// One that was kept while its direction rested: nothing is beside it, and it has been silent.
    pub(super) fn resting(self, now: Time) -> Self {
        let mut rests = Self(self.0 & !Self::BESIDE);
        rests.rest(now);
        rests
    }

    fn next(self) -> Psn {
        Psn::new((self.0 >> 8) as u32)
    }

    fn move_to(&mut self, next: Psn) {
        self.0 = self.0 & !Self::NEXT | u64::from(next.value()) << 8;
    }

    fn is_answered(self) -> bool {
        self.0 & Self::ANSWERED != 0
    }

    pub(super) fn has_begun(self) -> bool {
        self.0 & Self::UNIT != 0
    }

    /// Whether somebody said that its numbers are right.
    fn is_confirmed(self) -> bool {
        self.0 & (Self::ANSWERED | Self::AGREED) != 0
    }

    fn is_silent(self, now: Time) -> bool {
        let heard = ((self.0 & Self::UNIT) >> 4) as u32;
        (unit(now) + UNITS - heard) % UNITS >= SILENT_UNITS
    }

    fn is_heard(&mut self, now: Time) {
        self.heard_in(unit(now));
    }

    /// It stays as silent as it is, however long others are heard.
    fn rest(&mut self, now: Time) {
        self.heard_in((unit(now) - 1 + UNITS - SILENT_UNITS) % UNITS + 1);
    }

    fn heard_in(&mut self, unit: u32) {
        self.0 = self.0 & !Self::UNIT | u64::from(unit) << 4;
    }

    /// Numbers behind the next that may come again.
    fn behind(self) -> i32 {
        match (self.0 & Self::SPAN) as u32 {
            0 => JUMP_PSNS,
            span => JUMP_PSNS + (1 << (SPAN_BASE + SPAN_STEP * span)),
        }
    }

    /// Whether a request numbered `psn` may come, or an answer to one.
    fn holds(self, psn: Psn, place: &mut Place<'_>) -> bool {
        let distance = psn.distance(self.next());
        let is_near = (-self.behind()..=JUMP_PSNS).contains(&distance);
        // A READ may have used so many.
        is_near || (distance > 0 && self.ahead(place).is_some_and(|it| psn.distance(it) <= 0))
    }

    fn ahead(self, place: &mut Place<'_>) -> Option<Psn> {
        let ahead = (self.0 & Self::BESIDE != 0).then(|| place.beside().ahead())?;
        ahead.filter(|it| it.distance(self.next()) > 0)
    }

    /// What is beside it, to change.
    fn beside<'a>(&mut self, place: &'a mut Place<'_>) -> &'a mut Beside {
        let beside = place.beside();
        if self.0 & Self::BESIDE == 0 {
            *beside = Beside::default();
            self.0 |= Self::BESIDE;
        }
        beside
    }

    /// A request from `psn` on, which is within it.
    fn request(&mut self, psn: Psn, count: Count, place: &mut Place<'_>, now: Time) {
        self.is_heard(now);
        let (distance, reach) = (psn.distance(self.next()), psn.add(count.least));
        if distance == 0 || (!self.is_answered() && reach.distance(self.next()) > 0) {
            self.move_to(reach);
            self.widen(count.most);
            if count.most > count.least {
                self.comes_to(psn.add(count.most), place);
            }
        } else if distance > 0 {
            self.comes_to(psn.add(1), place);
        }
        if self.0 & Self::BESIDE != 0 {
            self.tidy(place);
        }
    }

    /// The longest READ so far used so many numbers.
    fn widen(&mut self, count: u32) {
        if count > 1 << SPAN_BASE {
            let power = u32::BITS - (count - 1).leading_zeros();
            let span = u64::from((power - SPAN_BASE).div_ceil(SPAN_STEP)).min(Self::SPAN);
            self.0 = self.0 & !Self::SPAN | span.max(self.0 & Self::SPAN);
        }
    }

    /// Requests came up to `ahead`.
    fn comes_to(&mut self, ahead: Psn, place: &mut Place<'_>) {
        let beside = self.beside(place);
        if beside.ahead().is_none_or(|it| ahead.distance(it) > 0) {
            beside.ahead = ahead.value() + 1;
        }
    }

    /// What it has caught up with is not ahead.
    fn tidy(&mut self, place: &mut Place<'_>) {
        let next = self.next();
        let beside = self.beside(place);
        if beside.ahead().is_some_and(|it| it.distance(next) <= 0) {
            beside.ahead = 0;
        }
        if beside.ahead == 0 && beside.other().is_none() {
            self.0 &= !Self::BESIDE;
        }
    }

    /// An answer to `psn`, which is within it. What nobody asked takes it nowhere.
    fn answer(&mut self, psn: Psn, place: &mut Place<'_>, now: Time) {
        self.is_heard(now);
        self.0 |= Self::ANSWERED;
        let reach = psn.add(1);
        if reach.distance(self.next()) <= 0 {
            return;
        }
        let Some(ahead) = self.ahead(place) else { return };
        self.move_to(if reach.distance(ahead) > 0 { ahead } else { reach });
        self.tidy(place);
    }

    /// Whether other requests are looked at beside those within it, and `psn` is or begins such.
    fn follows_other(self, psn: Psn, place: &mut Place<'_>, now: Time) -> bool {
        self.other(place).is_none_or(|it| it.holds(psn) || it.is_silent(now))
    }

    fn other(self, place: &mut Place<'_>) -> Option<Other> {
        (self.0 & Self::BESIDE != 0).then(|| place.beside().other())?
    }

    /// A request that is one of the others.
    fn other_request(&mut self, psn: Psn, count: Count, place: &mut Place<'_>, now: Time) {
        if !self.follows_other(psn, place, now) {
            return;
        }
        // A READ that claims to be long would be answered by any number.
        let reach = psn.add(count.most.min(JUMP_PSNS as u32));
        let before = self.other(place).filter(|it| it.holds(psn));
        let mut other = before.unwrap_or(Other { first: psn, next: reach, seen: 0 });
        if psn.distance(other.first) < 0 {
            other.first = psn;
        }
        if reach.distance(other.next) > 0 {
            other.next = reach;
        }
        self.beside(place).other = Other { seen: Other::step(now), ..other };
    }

    /// An answer that is none to requests within it: those to others make theirs the window.
    fn other_answer(&mut self, psn: Psn, place: &mut Place<'_>, now: Time) -> bool {
        let Some(other) = self.other(place).filter(|it| it.has(psn)) else { return false };
        *self = Self::new(other.next, now);
        self.0 |= Self::ANSWERED;
        true
    }
}

fn unit(now: Time) -> u32 {
    ((now.0 >> UNIT_BITS) % u64::from(UNITS)) as u32 + 1
}

/// Packets out of their windows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Windows {
    /// So far.
    pub(super) outside: u64,
    /// In the second that began then.
    recent: u32,
    second: Time,
    /// Until when they are dropped, where that depends.
    attack_until: Time,
}

impl Windows {
    /// Takes in a request; says whether it may pass.
    pub(super) fn request(
        &mut self,
        check: PsnCheck,
        window: &mut Window,
        place: &mut Place<'_>,
        (psn, count): (Psn, Count),
        now: Time,
    ) -> bool {
        let is_silent = window.has_begun() && window.is_silent(now);
        let gives_way = is_silent && !window.is_answered() && !window.holds(psn, place);
        if !window.has_begun() || gives_way {
            *window = Window::new(psn, now);
        }
        if window.holds(psn, place) {
            window.request(psn, count, place, now);
            return true;
        }
        // Who was silent, or whose numbers nobody has confirmed, has no claim against others.
        let is_open = is_silent || !window.is_confirmed();
        let is_taken = is_open && window.follows_other(psn, place, now);
        if is_silent {
            window.rest(now);
        }
        let goes_on = window.other(place).is_some_and(|it| it.holds(psn));
        let passes = match () {
            () if goes_on && (is_open || !self.drops(check, now)) => true,
            () if is_silent && is_taken => true,
            () => self.passes(check, now) || is_taken,
        };
        if passes {
            window.other_request(psn, count, place, now);
        }
        passes
    }

    /// Takes in a response; says whether it may pass, to the requests that `window` is of.
    pub(super) fn response(
        &mut self,
        check: PsnCheck,
        window: &mut Window,
        place: &mut Place<'_>,
        psn: Psn,
        now: Time,
    ) -> bool {
        if !window.has_begun() {
            return true;
        }
        if window.holds(psn, place) {
            window.answer(psn, place, now);
            return true;
        }
        window.other_answer(psn, place, now) || window.is_silent(now) || self.passes(check, now)
    }

    /// Counts a packet out of its window; says whether it passes for all that.
    #[cold]
    fn passes(&mut self, check: PsnCheck, now: Time) -> bool {
        self.outside += 1;
        if now.since_ns(self.second) >= NS_PER_S || now < self.second {
            (self.second, self.recent) = (now, 0);
        }
        self.recent = self.recent.saturating_add(1);
        if self.recent >= ATTACK_PACKETS || now < self.attack_until {
            self.attack_until = now.plus_ns(ATTACK_OVER_NS);
        }
        !self.drops(check, now)
    }

    /// Whether such packets are dropped now.
    fn drops(&self, check: PsnCheck, now: Time) -> bool {
        match check {
            PsnCheck::Off | PsnCheck::Count => false,
            PsnCheck::UnderAttack => now < self.attack_until,
            PsnCheck::Drop => true,
        }
    }
}

/// The numbers that a request uses, where a full packet carries `path_mtu` bytes (0: unknown).
pub(super) fn numbers(packet: &Observation<'_>, rdma: &Rdma, path_mtu: u16) -> (Psn, Count) {
    let reth = ext::reth(packet.bytes, rdma).filter(|_| is_read(rdma));
    let by = |mtu: u32| reth.map_or(1, |it| it.dma_length.get().div_ceil(mtu).clamp(1, 1 << 22));
    let count = match path_mtu {
        0 => Count { least: by(PATH_MTU_MAX), most: by(PATH_MTU_MIN) },
        mtu => Count { least: by(mtu.into()), most: by(mtu.into()) },
    };
    (rdma.psn, count)
}

fn is_read(rdma: &Rdma) -> bool {
    rdma.opcode.operation() == weir_wire::bth::Operation::ReadRequest
}

/// Whether a packet's number means anything to its receiver: on UC the next message may have any,
/// datagrams are not in order.
#[inline]
pub(super) fn are_for(rdma: &Rdma) -> bool {
    matches!(
        rdma.opcode.service(),
        Service::ReliableConnection | Service::ExtendedReliableConnection
    )
}

#[cfg(test)]
mod tests;
