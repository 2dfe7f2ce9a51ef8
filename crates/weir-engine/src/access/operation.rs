//! What a packet asks, by its opcode and where it goes.

use weir_wire::bth::{self, Extension, Opcode, Qpn, Service};
use weir_wire::parse::{Parsed, Rdma};

use super::lines::Operation;

/// What a packet asks; `None`: nothing, it answers or is of the fabric.
pub fn asked(parsed: &Parsed, rdma: &Rdma) -> Option<Operation> {
    operation(parsed, rdma)
}

/// [`asked`].
#[inline]
pub(super) fn operation(parsed: &Parsed, rdma: &Rdma) -> Option<Operation> {
    let opcode = rdma.opcode;
    Some(match opcode.operation() {
        bth::Operation::Send if opcode.service() == Service::UnreliableDatagram => {
            datagram(parsed, rdma)
        }
        bth::Operation::Send if opcode.carries(Extension::ImmDt) => Operation::SendImmediate,
        bth::Operation::Send => Operation::Send,
        bth::Operation::Write | bth::Operation::AtomicWrite | bth::Operation::Flush => {
            Operation::Write
        }
        bth::Operation::ReadRequest => Operation::Read,
        bth::Operation::Atomic => Operation::Atomic,
        bth::Operation::Resync | bth::Operation::Reserved => Operation::Other,
        bth::Operation::ReadResponse
        | bth::Operation::Acknowledge
        | bth::Operation::AtomicAcknowledge
        | bth::Operation::CongestionNotification => return None,
    })
}

/// Whether it asks for nothing.
#[inline]
pub(super) fn is_answer(opcode: Opcode) -> bool {
    opcode.is_response() || opcode.operation() == bth::Operation::CongestionNotification
}

fn datagram(parsed: &Parsed, rdma: &Rdma) -> Operation {
    if rdma.destination_qp == Qpn::GENERAL_SERVICES {
        Operation::Connect
    } else if rdma.destination_qp == Qpn::MULTICAST || is_group(&parsed.destination) {
        Operation::Multicast
    } else if rdma.opcode.carries(Extension::ImmDt) {
        Operation::SendImmediate
    } else {
        Operation::Send
    }
}

/// Whether an address, in the form of `Parsed`, is a group's.
pub fn is_group(address: &[u8; 16]) -> bool {
    let is_v4 = address[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    address[0] == 0xff || (is_v4 && address[12] & 0xf0 == 0xe0)
}
