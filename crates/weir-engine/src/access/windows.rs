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
//! managers said, and begins anew after a silence. It moves by numbers in order, and by what the
//! receiver acknowledges: who hits it by chance does not take it along. Where no answers are seen,
//! it has to follow gaps too.

use weir_wire::bth::{Psn, Service};
use weir_wire::ext;
use weir_wire::frame::Time;
use weir_wire::parse::Rdma;

use crate::meter::Observation;
use crate::rdma::psn::JUMP_PSNS;

/// After so many units of silence a stream may begin anywhere: 13 to 17 s, as an owner yields.
const SILENT_UNITS: u32 = 4;
/// A unit of time is 2^32 ns.
const UNIT_BITS: u32 = 32;
/// Units are counted from 1 to this; 0 is a window that has not begun.
const UNITS: u32 = 15;
/// READs of more than 2^8 packets are told from each other, in steps of four times as many.
const SPAN_BASE: u32 = 8;
const SPAN_STEP: u32 = 2;
/// Bytes of the smallest path MTU, where none is known.
const PATH_MTU_MIN: u32 = 256;

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
/// was answered (1), and how many the longest READ used (3, in steps).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Window(u32);

impl Window {
    fn new(next: Psn, span: u32, is_answered: bool, now: Time) -> Self {
        Self(next.value() << 8 | unit(now) << 4 | u32::from(is_answered) << 3 | span)
    }

    /// One that begins with `psn`, as connection managers agreed.
    pub(super) fn agreed(psn: Psn, now: Time) -> Self {
        Self::new(psn, 0, false, now)
    }

    #[inline]
    pub(super) fn bits(self) -> u32 {
        self.0
    }

    /// The inverse of [`Window::bits`].
    #[inline]
    pub(super) fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    fn next(self) -> Psn {
        Psn::new(self.0 >> 8)
    }

    fn span(self) -> u32 {
        self.0 & 7
    }

    fn is_answered(self) -> bool {
        self.0 & 8 != 0
    }

    pub(super) fn has_begun(self) -> bool {
        self.0 & 0xf0 != 0
    }

    fn is_silent(self, now: Time) -> bool {
        (unit(now) + UNITS - (self.0 >> 4 & 15)) % UNITS >= SILENT_UNITS
    }

    /// Numbers behind the next that may come again.
    fn behind(self) -> i32 {
        let longest = if self.span() == 0 { 0 } else { 1 << (SPAN_BASE + SPAN_STEP * self.span()) };
        JUMP_PSNS + longest
    }

    /// Whether a request numbered `psn` may come, or an answer to one.
    fn holds(self, psn: Psn) -> bool {
        (-self.behind()..=JUMP_PSNS).contains(&psn.distance(self.next()))
    }

    /// After a request of `count` numbers from `psn` on, which is within it.
    fn after(self, psn: Psn, count: u32, now: Time) -> Self {
        let mut span = self.span();
        if count > 1 << SPAN_BASE {
            let power = u32::BITS - (count - 1).leading_zeros();
            span = span.max((power - SPAN_BASE).div_ceil(SPAN_STEP)).min(7);
        }
        let is_gap = psn.distance(self.next()) > 0;
        let reach = psn.add(count);
        let goes_on = reach.distance(self.next()) > 0 && !(is_gap && self.is_answered());
        let next = if goes_on { reach } else { self.next() };
        Self::new(next, span, self.is_answered(), now)
    }

    /// After an answer to `psn`, which is within it.
    fn answered(self, psn: Psn, now: Time) -> Self {
        let reach = psn.add(1);
        let next = if reach.distance(self.next()) > 0 { reach } else { self.next() };
        Self::new(next, self.span(), true, now)
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

/// What a packet is to a window.
pub(super) struct Numbered<'a> {
    pub(super) packet: &'a Observation<'a>,
    pub(super) rdma: &'a Rdma,
    /// Payload bytes of a full packet; 0: unknown.
    pub(super) path_mtu: u16,
}

impl Windows {
    /// Takes in a request; says whether it may pass.
    pub(super) fn request(
        &mut self,
        check: PsnCheck,
        window: &mut Window,
        it: &Numbered<'_>,
    ) -> bool {
        let (now, psn) = (it.packet.now, it.rdma.psn);
        let begins = !window.has_begun() || window.is_silent(now);
        let outside = !begins && !window.holds(psn);
        if outside && !self.passes(check, now) {
            return false;
        }
        let goes_on = window.has_begun() && window.holds(psn);
        let begun = if goes_on { *window } else { Window::new(psn, 0, false, now) };
        *window = begun.after(psn, numbers(it), now);
        true
    }

    /// Takes in a response; says whether it may pass, to the requests that `window` is of.
    pub(super) fn response(
        &mut self,
        check: PsnCheck,
        window: &mut Window,
        it: &Numbered<'_>,
    ) -> bool {
        let (now, psn) = (it.packet.now, it.rdma.psn);
        if !window.has_begun() {
            return true;
        }
        if window.holds(psn) {
            *window = window.answered(psn, now);
            return true;
        }
        window.is_silent(now) || self.passes(check, now)
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
        match check {
            PsnCheck::Off | PsnCheck::Count => true,
            PsnCheck::UnderAttack => now >= self.attack_until,
            PsnCheck::Drop => false,
        }
    }
}

/// How many numbers a request uses, at most.
fn numbers(it: &Numbered<'_>) -> u32 {
    let Some(reth) = ext::reth(it.packet.bytes, it.rdma).filter(|_| is_read(it.rdma)) else {
        return 1;
    };
    let mtu = if it.path_mtu == 0 { PATH_MTU_MIN } else { u32::from(it.path_mtu) };
    reth.dma_length.get().div_ceil(mtu).clamp(1, 1 << 22)
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
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time(1_700_000_000_000_000_000 + seconds * NS_PER_S)
    }

    #[test]
    fn a_window_holds_what_may_come_and_wraps() {
        let window = Window::new(Psn::new(5), 0, false, at(0));
        for (psn, holds) in [
            (5, true),
            (4, true),
            (0xff_fff0, true),
            (65_000, true),
            (70_000, false),
            (0xff_ffff - 70_000, false),
            (0x80_0000, false),
        ] {
            assert_eq!(window.holds(Psn::new(psn)), holds, "{psn:#x}");
        }
        let after_a_long_read = window.after(Psn::new(5), 1 << 20, at(0));
        assert_eq!(after_a_long_read.next(), Psn::new(5 + (1 << 20)));
        assert!(after_a_long_read.holds(Psn::new(6)), "the READ goes on where it was lost");
    }

    #[test]
    fn who_hits_a_window_by_chance_does_not_take_it_along() {
        let mut window = Window::new(Psn::new(5), 0, false, at(0)).after(Psn::new(5), 1, at(0));
        window = window.answered(Psn::new(5), at(0));
        let before = window.next();
        for psn in 60_000..200_000 {
            if window.holds(Psn::new(psn)) {
                window = window.after(Psn::new(psn), 1, at(0));
            }
        }
        assert_eq!(window.next(), before);
        // What was overtaken, and then acknowledged, has come.
        assert_eq!(window.answered(Psn::new(90), at(0)).next(), Psn::new(91));
    }

    #[test]
    fn a_window_yields_after_a_silence_and_not_before() {
        let window = Window::new(Psn::new(5), 0, false, at(0));
        assert!(window.has_begun() && !Window::default().has_begun());
        assert!((0..12).all(|seconds| !window.is_silent(at(seconds))));
        assert!((18..40).all(|seconds| window.is_silent(at(seconds))));
    }

    #[test]
    fn an_attack_wakes_the_filter_and_a_quiet_minute_ends_it() {
        let mut windows = Windows::default();
        let mut pass = |count: u32, seconds| {
            (0..count).filter(|_| windows.passes(PsnCheck::UnderAttack, at(seconds))).count()
        };
        assert_eq!([pass(63, 0), pass(63, 1), pass(100, 3)], [63, 63, 63]);
        assert_eq!([pass(1, 50), pass(1, 109)], [0, 0], "each prolongs it");
        assert_eq!([pass(1, 170), pass(63, 171)], [1, 63]);
    }
}
