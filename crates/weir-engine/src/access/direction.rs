//! What is kept of a direction of a queue pair between its packets.
//!
//! ```text
//!   stage data of the direction, in the meter's table (10 bytes, docs/adr/0250)
//!     window of its requests | number of a set | port, kind of queue pair | round
//!                                    |
//!                                    v
//!   sets: which line decides about each operation, shared by all directions that agree in it
//! ```
//!
//! A direction's lines are looked for once a round; each reload, and each line that begins or ends
//! to hold, begins another. What few policies ask for lies apart, in a table that only they touch.

use std::collections::HashMap;

use super::lines::{LineNumber, Operation, Operations};
use super::policy::Decisions;
use super::terms::QueuePairType;
use super::windows::{Beside, WINDOW_BITS, Window};
use crate::rdma::{ConversationHandle, StageData};
use crate::verdict::Side;

/// Sets at once. When there is no room for another all are forgotten, and all lines found anew.
pub(super) const SETS_MAX: usize = UNKNOWN as usize;

/// Instead of a set's number: the lines were not looked for yet.
const UNKNOWN: u16 = u16::MAX;

/// Bits of a [`Kind`]; above them lie those of the window for which two words have no room.
const KIND_BITS: u32 = 8;
const _: () = assert!(WINDOW_BITS <= 32 + u16::BITS - KIND_BITS);
/// Those that say the port.
const SIDE: u16 = 3;
const TYPE_SHIFT: u32 = 2;

/// By which port a direction comes, and what kind of queue pair its requests are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kind(u16);

impl Kind {
    #[inline]
    pub(super) fn new(side: Option<Side>, qp_type: Option<QueuePairType>) -> Self {
        let side = side.map_or(0, |it| it as u16 + 1);
        Self(side | qp_type.map_or(0, |it| it as u16 + 1) << TYPE_SHIFT)
    }

    /// Whether a packet of `other` is decided about as one of this; an answer says no kind.
    #[inline]
    pub(super) fn is(self, other: Self, says_kind: bool) -> bool {
        let compared = if says_kind { u16::MAX } else { SIDE };
        (self.0 ^ other.0) & compared == 0
    }
}

/// What the stage data of a direction says.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirectionState {
    /// The numbers of its requests.
    pub(super) window: Window,
    /// The set of what decides about it.
    set: u16,
    pub(super) kind: Kind,
}

impl DirectionState {
    /// Of a direction whose lines were not looked for.
    pub(super) fn with_window(window: Window) -> Self {
        Self { window, set: UNKNOWN, kind: Kind::default() }
    }

    /// What `data` says, unless it was written before round `first`.
    #[inline]
    pub(super) fn since(data: &StageData, first: u16) -> Option<Self> {
        if data.round < first {
            return None;
        }
        let [low, high, set, kind] = data.words;
        let [low, high, top] = [low, high, kind >> KIND_BITS].map(u64::from);
        let window = Window::from_bits(top << 32 | high << 16 | low);
        Some(Self { window, set, kind: Kind(kind & ((1 << KIND_BITS) - 1)) })
    }

    /// The same, whose requests' numbers are at `window`.
    #[inline]
    pub(super) fn with(self, window: Window) -> Self {
        Self { window, ..self }
    }

    /// The same, with `set` decided about.
    pub(super) fn decided(self, set: u16, kind: Kind) -> Self {
        Self { set, kind, ..self }
    }

    /// The number of its set, if that is known.
    #[inline]
    pub(super) fn set(self) -> Option<u16> {
        (self.set != UNKNOWN).then_some(self.set)
    }

    #[inline]
    pub(super) fn stage_data(self, round: u16) -> StageData {
        let window = self.window.bits();
        let last = ((window >> 32) as u16) << KIND_BITS | self.kind.0;
        StageData { words: [window as u16, (window >> 16) as u16, self.set, last], round }
    }
}

/// What decides about the directions that agree in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Set {
    decisions: Decisions,
    /// What passes with nothing else to do than to count it.
    plain: Operations,
}

impl Set {
    /// `is_plain` says which lines let pass and do nothing else.
    pub(super) fn new(decisions: Decisions, is_plain: impl Fn(LineNumber) -> bool) -> Self {
        let plain = Operation::ALL.into_iter().filter(|it| is_plain(decisions.of(*it)));
        Self { decisions, plain: Operations::of(plain) }
    }

    /// The line that decides about `operation`, and whether there is nothing else to do than to
    /// count it.
    #[inline]
    pub(super) fn of(&self, operation: Operation) -> (LineNumber, bool) {
        (self.decisions.of(operation), self.plain.contains(operation))
    }
}

/// All sets in use, by number.
#[derive(Debug, Default)]
pub(super) struct Sets {
    list: Vec<Set>,
    numbers: HashMap<Decisions, u16>,
}

impl Sets {
    /// The set of that number.
    #[inline]
    pub(super) fn at(&self, number: u16) -> Option<&Set> {
        self.list.get(usize::from(number))
    }

    /// The number of a set, which is kept from now on; `None`: there is no room.
    pub(super) fn number_of(&mut self, set: &Set) -> Option<u16> {
        if let Some(number) = self.numbers.get(&set.decisions) {
            return Some(*number);
        }
        if self.list.len() >= SETS_MAX {
            return None;
        }
        let number = self.list.len() as u16;
        self.list.push(*set);
        self.numbers.insert(set.decisions, number);
        Some(number)
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.numbers.clear();
    }
}

/// What few policies ask for of a direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Apart {
    /// Of its latest acknowledgment, where requests are rejected.
    pub(super) message_sequence: u32,
    /// A fingerprint of its packets' link and partition, where lines name such.
    pub(super) link: u32,
    /// What is known beside the window of its requests, where that says so.
    pub(super) beside: Beside,
}

/// Bytes of a direction's.
pub(super) const APART_BYTES: usize = size_of::<Apart>();

/// By place of the conversation, two directions each. Whoever reads it has found the direction's
/// stage data, or gets what another in that place had.
#[derive(Debug)]
pub(super) struct Aparts(Vec<[Apart; 2]>);

impl Aparts {
    /// Memory is reserved for so many conversations, and not touched.
    pub(super) fn new(conversations_max: usize) -> Self {
        Self(Vec::with_capacity(conversations_max))
    }

    #[inline]
    pub(super) fn at(&self, conversation: ConversationHandle, direction: u8) -> Apart {
        let both = self.0.get(conversation.place());
        both.map_or(Apart::default(), |both| both[usize::from(direction)])
    }

    /// The same, to change; room is made where there is none.
    pub(super) fn at_mut(&mut self, conversation: ConversationHandle, direction: u8) -> &mut Apart {
        if self.0.len() <= conversation.place() {
            self.0.resize(conversation.place() + 1, Default::default());
        }
        &mut self.0[conversation.place()][usize::from(direction)]
    }
}

/// Where a direction's lie.
pub(super) struct Place<'a> {
    pub(super) aparts: &'a mut Aparts,
    pub(super) conversation: ConversationHandle,
    pub(super) direction: u8,
}

impl Place<'_> {
    /// What is known beside the window of its requests.
    pub(super) fn beside(&mut self) -> &mut Beside {
        &mut self.aparts.at_mut(self.conversation, self.direction).beside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stage_data_says_what_was_written_to_it_until_its_round_is_of_another_life() {
        let window = Window::from_bits(0x76_fedc_ba98);
        let kind = Kind::new(Some(Side::Wire), Some(QueuePairType::Xrc));
        let data = DirectionState::with_window(window).decided(77, kind).stage_data(9);
        let kept = DirectionState::since(&data, 9).unwrap();
        assert_eq!((kept.window, kept.set(), kept.kind), (window, Some(77), kind));
        assert!(DirectionState::since(&data, 10).is_none());
        assert!(DirectionState::since(&StageData::default(), 1).is_none());
        let unknown =
            DirectionState::since(&DirectionState::with_window(window).stage_data(1), 1).unwrap();
        assert_eq!(unknown.set(), None);
    }

    #[test]
    fn a_request_is_of_its_kind_and_port_and_an_answer_of_its_port() {
        let kind = |side, qp_type| Kind::new(side, qp_type);
        let rc = kind(Some(Side::Host), Some(QueuePairType::Rc));
        assert!(rc.is(kind(Some(Side::Host), Some(QueuePairType::Rc)), true));
        assert!(!rc.is(kind(Some(Side::Host), Some(QueuePairType::Uc)), true));
        assert!(!rc.is(kind(Some(Side::Wire), Some(QueuePairType::Rc)), true));
        assert!(rc.is(kind(Some(Side::Host), None), false));
        assert!(!rc.is(kind(Some(Side::Wire), Some(QueuePairType::Rc)), false));
        assert!(!rc.is(kind(None, Some(QueuePairType::Rc)), false));
    }

    #[test]
    fn directions_that_agree_share_a_set_and_a_full_table_takes_no_more() {
        let decided = |line: u16| {
            let mut decisions = Decisions::default();
            decisions.decide(Operation::Read, LineNumber(line));
            Set::new(decisions, |number| number.index().is_some())
        };
        let mut sets = Sets::default();
        assert_eq!(sets.number_of(&decided(4)), Some(0));
        assert_eq!(sets.number_of(&decided(5)), Some(1));
        assert_eq!(sets.number_of(&decided(4)), Some(0));
        let set = sets.at(1).unwrap();
        assert_eq!(set.of(Operation::Read), (LineNumber(5), true));
        assert_eq!(set.of(Operation::Write), (LineNumber::DEFAULT, false));
        for low in 0..u16::MAX {
            let mut decisions = Decisions::default();
            decisions.decide(Operation::Write, LineNumber(low));
            sets.number_of(&Set::new(decisions, |_| false));
        }
        assert_eq!(sets.number_of(&decided(6)), None);
        assert_eq!(sets.number_of(&decided(5)), Some(1));
        sets.clear();
        assert_eq!(sets.number_of(&decided(6)), Some(0));
    }
}
