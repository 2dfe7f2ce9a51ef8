//! What the kernel carried beside the engine ([`crate::fastpath`]).

use weir_wire::fastpath::{Event, Slot};
use weir_wire::frame::{Link, Time};
use weir_wire::parse::{Parsed, parse_into};

use super::Engine;
use crate::classify::frame_class;
use crate::fastpath::{Clocks, FastPath, Folded};
use crate::meter::{Icrc, Notice, Observation};
use crate::route::route;

impl Engine {
    /// Lets the kernel carry flows, as `fast_path` says; `None`: no more. Whoever has kernel maps
    /// does what [`FastPath::next_command`] says and hands back what was counted.
    pub fn set_fast_path(&mut self, fast_path: Option<FastPath>) {
        self.fast_path = fast_path.map(Box::new);
    }

    /// The fast path's table, when there is one.
    pub fn fast_path(&mut self) -> Option<&mut FastPath> {
        self.fast_path.as_deref_mut()
    }

    /// Has the kernel carry flows no longer that rules look at again.
    #[inline]
    pub(crate) fn bring_back(&mut self) {
        let Self { fast_path, plain, .. } = self;
        let Some(detection) = plain.detection_mut() else { return };
        for ends in detection.take_returned() {
            if let Some(fast_path) = fast_path {
                fast_path.bring_back(ends);
            }
        }
    }

    /// Takes in what the kernel counts in slot `number` now.
    pub fn fold(&mut self, number: u32, slot: &Slot, clocks: Clocks) -> Folded {
        let Self { fast_path: Some(fast_path), plain, counters, .. } = self else {
            return Folded::default();
        };
        fast_path.fold(number, slot, clocks, &mut plain.meter, counters)
    }

    /// Takes in the packets that the kernel carried since the last call, by opcode byte.
    pub fn fold_opcodes(&mut self, packets: &[u64; 256]) {
        self.plain.meter.fold_opcodes(packets);
    }

    /// Takes in a copy of a carried packet, and decides about it as if it had not been carried: a
    /// flow whose packets would have another fate is carried no longer.
    pub fn notice(&mut self, event: &Event, clocks: Clocks) {
        let Self { fast_path: Some(fast_path), plain, policy, .. } = self else { return };
        let Some(carried) = fast_path.notice(event.slot) else { return };
        let mut parsed = Parsed::default();
        let bytes = event.captured();
        parse_into(&mut parsed, bytes, Link::Ethernet, event.wire_len);
        carried.put_vlans_back(&mut parsed);
        let class = frame_class(&parsed);
        let side = carried.side();
        let fate = route(policy, class, side, &parsed);
        if !matches!(fate, Ok(None)) {
            fast_path.end(event.slot);
        }
        let age_ns = clocks.monotonic_ns.saturating_sub(event.now_ns);
        plain.meter.notice(&Notice {
            kinds: event.kinds,
            expected: event.expected,
            queue_pair: carried.queue_pair,
            packet: &Observation {
                now: Time(clocks.now.0.saturating_sub(age_ns)),
                side: Some(side),
                bytes,
                parsed: &parsed,
                original_len: event.wire_len,
                segments: event.segments,
                icrc: Icrc::Skip,
            },
        });
    }

    /// Forgets all flows that the kernel carries; the kernel was told before. Fold their last
    /// counts first.
    pub fn void_fast_path(&mut self) {
        if let Some(fast_path) = self.fast_path() {
            fast_path.void();
        }
    }
}
