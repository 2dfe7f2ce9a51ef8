//! Segments in the place of others that came before.

use super::Conversation;
use crate::detector::{AsSuricata, Limits};
use crate::sequence::before;

impl Conversation {
    /// What a segment says where other bytes came before in its place: those, and its own where
    /// nothing did, and whether that is to be told, and once more; `None`: it says
    /// nothing else, or its receiver has all of it and more.
    pub(crate) fn as_known(
        &self,
        side: usize,
        sequence: u32,
        bytes: &[u8],
    ) -> Option<(Vec<u8>, [bool; 2])> {
        let stream = &self.streams[side];
        let end = sequence.wrapping_add(bytes.len() as u32);
        if stream.acknowledged().1.is_some_and(|it| before(end, it)) {
            return None;
        }
        let known = stream.as_known(sequence, bytes)?;
        let is_told = stream.tells_conflict(sequence, bytes.len(), false);
        Some((known, [is_told, is_told && !stream.repeats(sequence, bytes.len())]))
    }

    /// Whether it is told of a segment if it has other bytes than came before in its place.
    pub(super) fn tells_conflict(
        &self,
        side: usize,
        (first, length): (u32, usize),
        limits: &Limits,
    ) -> bool {
        let AsSuricata { tells_fewer_conflicts, only_tells, .. } = limits.as_suricata;
        !tells_fewer_conflicts || self.streams[side].tells_conflict(first, length, only_tells)
    }
}
