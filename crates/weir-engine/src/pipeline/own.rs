//! What the gateway's own kernel says on the wire and hears there.

use weir_wire::frame::{Frame, Offload};
use weir_wire::parse::{Network, Parsed, Transport, parse_frame};

use super::{Engine, send_whole};
use crate::output::{Destination, Output};

impl Engine {
    /// Frames that the gateway's own kernel sends: only from the own addresses, and only what must
    /// be clear.
    pub fn process_own(&mut self, frames: &mut [Frame<'_>]) -> &Output {
        self.output.clear();
        for (index, frame) in frames.iter_mut().enumerate() {
            let parsed = parse_frame(frame);
            if !self.may_leave(&parsed) || !self.tag(frame) {
                self.counters.own_refused += 1;
                continue;
            }
            self.counters.own_sent += 1;
            send_whole(&mut self.output, Destination::Wire, index as u32, frame);
        }
        &self.output
    }

    /// What the kernel may say on the wire: address resolution, ICMP, IKE; from an own address.
    fn may_leave(&self, parsed: &Parsed) -> bool {
        let Some(own) = &self.policy.own else { return false };
        if parsed.link.source != own.mac || !own.holds(&parsed.source) {
            return false;
        }
        match parsed.transport {
            Transport::Icmp { .. } => true,
            Transport::Udp { source, .. } => matches!(source, 500 | 4500),
            _ => parsed.network == Network::Arp,
        }
    }

    fn tag(&self, frame: &mut Frame<'_>) -> bool {
        let Some(vlan) = self.policy.own.as_ref().and_then(|own| own.vlan) else { return true };
        let Some(bytes) = frame.prepend(4) else { return false };
        bytes.copy_within(4..16, 0);
        bytes[12..14].copy_from_slice(&0x8100u16.to_be_bytes());
        bytes[14..16].copy_from_slice(&vlan.to_be_bytes());
        frame.meta.offload.checksum = frame.meta.offload.checksum.map(|mut partial| {
            partial.start += 4;
            partial.field += 4;
            partial
        });
        true
    }

    pub(super) fn untag(&self, frame: &mut Frame<'_>) {
        let tagged = self.policy.own.as_ref().is_some_and(|own| own.vlan.is_some());
        if tagged && frame.len() >= 18 && frame.bytes()[12..14] == [0x81, 0] {
            frame.bytes_mut().copy_within(0..12, 4);
            frame.trim_front(4);
            frame.meta.offload = Offload::default();
        }
    }
}
