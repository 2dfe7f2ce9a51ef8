//! Whether packets have numbers that their receivers could be waiting for: the windows of
//! directions, and where they are kept.

use weir_wire::bth::{self, Psn};
use weir_wire::frame::Time;
use weir_wire::parse::Rdma;

use super::Access;
use super::direction::{DirectionState, Place};
use super::windows::{self, Window};
use crate::meter::{Meter, Observation, Observed};
use crate::rdma::{ConversationHandle, QueuePairKey};
use crate::verdict::DropReason;

impl Access {
    /// Whether the request's number is one that its receiver could be waiting for.
    ///
    /// # Errors
    /// [`DropReason::AccessPsn`].
    #[inline]
    pub(super) fn check_request(
        &mut self,
        seen: &Observed,
        packet: &Observation<'_>,
        rdma: &Rdma,
        meter: &mut Meter,
    ) -> Result<(), DropReason> {
        let Some(handle) = seen.conversation else { return Ok(()) };
        let path_mtu = match rdma.opcode.operation() {
            bth::Operation::ReadRequest => {
                meter.conversations().entry(handle).map_or(0, |it| it.path_mtu)
            }
            _ => 0,
        };
        let Some(data) = meter.stage_data(handle, seen.direction) else { return Ok(()) };
        let (kept, round) = match DirectionState::since(data, self.first_round) {
            Some(kept) => (kept, data.round),
            None => (DirectionState::with_window(Window::default()), self.round),
        };
        let mut window = kept.window;
        if !window.has_begun() {
            window = self.window_before(handle, seen.direction, packet.now, meter);
        }
        let asked = windows::numbers(packet, rdma, path_mtu);
        let (aparts, direction) = (&mut self.aparts, seen.direction);
        let mut place = Place { aparts, conversation: handle, direction };
        let check = self.policy.psn();
        let passes = self.windows.request(check, &mut window, &mut place, asked, packet.now);
        if let Some(data) = meter.stage_data(handle, seen.direction) {
            *data = kept.with(window).stage_data(round);
        }
        if passes { Ok(()) } else { Err(DropReason::AccessPsn) }
    }

    /// The window that the direction had before it rested and left the meter.
    #[cold]
    fn window_before(
        &self,
        conversation: ConversationHandle,
        direction: u8,
        now: Time,
        meter: &Meter,
    ) -> Window {
        let conversations = meter.conversations();
        let entry = conversations.entry(conversation);
        let of_it = entry.and_then(|it| it.directions().nth(direction.into()));
        let kept = of_it.and_then(|it| conversations.departed(&it.key));
        let kept = kept.and_then(|it| DirectionState::since(&it, self.first_round));
        kept.map_or(Window::default(), |it| it.window.resting(now))
    }

    /// Whether the response answers a request that could be under way.
    ///
    /// # Errors
    /// [`DropReason::AccessPsn`].
    pub(super) fn check_response(
        &mut self,
        seen: &Observed,
        packet: &Observation<'_>,
        rdma: &Rdma,
        meter: &mut Meter,
    ) -> Result<(), DropReason> {
        let Some(handle) = seen.conversation else { return Ok(()) };
        let Some(data) = meter.stage_data(handle, seen.direction ^ 1) else { return Ok(()) };
        let Some(kept) = DirectionState::since(data, self.first_round) else { return Ok(()) };
        if !rdma.opcode.is_response() {
            return Ok(());
        }
        let mut window = kept.window;
        let (aparts, direction) = (&mut self.aparts, seen.direction ^ 1);
        let mut place = Place { aparts, conversation: handle, direction };
        let check = self.policy.psn();
        let passes = self.windows.response(check, &mut window, &mut place, rdma.psn, packet.now);
        *data = kept.with(window).stage_data(data.round);
        if passes { Ok(()) } else { Err(DropReason::AccessPsn) }
    }

    /// The numbers of the direction `key` begin with `psn`, whatever comes first.
    pub(super) fn begin_window(
        &mut self,
        key: &QueuePairKey,
        psn: Psn,
        now: Time,
        meter: &mut Meter,
    ) {
        meter.forget_departed(key);
        let conversations = meter.conversations();
        let Some(handle) = conversations.find(key) else { return };
        let Some(conversation) = conversations.entry(handle) else { return };
        let Some(direction) = conversation.directions().position(|it| it.key == *key) else {
            return;
        };
        if let Some(data) = meter.stage_data(handle, direction as u8) {
            // Its lines are found by its first packet.
            *data = DirectionState::with_window(Window::agreed(psn, now)).stage_data(self.round);
        }
    }
}
