//! Segments in the place of others that came before.

use super::Conversation;
use crate::detector::{AsSuricata, Limits};

impl Conversation {
    /// What a segment says where other bytes came before in its place: those, and its own where
    /// nothing did, and whether that is to be told inline, and by who only watches; `None`: it says
    /// nothing else.
    pub(crate) fn as_known(
        &self,
        side: usize,
        sequence: u32,
        bytes: &[u8],
    ) -> Option<(Vec<u8>, [bool; 2])> {
        let stream = &self.streams[side];
        let known = stream.as_known(sequence, bytes)?;
        let tells = |only_watches| stream.tells_conflict(sequence, bytes.len(), only_watches);
        Some((known, [false, true].map(tells)))
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
