//! How far a TCP connection has come, by flags alone (RFC 9293 s3.5).

use weir_wire::tcp::flags;

use crate::detector::Direction;

/// How far a TCP connection has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tcp {
    /// No SYN was seen.
    #[default]
    Unknown,
    /// The initiator's SYN was seen.
    Syn,
    /// And the responder goes on as if nothing had begun: in a connection that is older (RFC 5961
    /// s4).
    Challenged,
    /// And one of the responder's that answers nothing (RFC 9293 s3.5, figure 7).
    Crossed,
    /// And the initiator's answer to that.
    Answered,
    /// And the responder's answer to it.
    SynAck,
    /// And the initiator's acknowledgment.
    Established,
}

impl Tcp {
    /// How far it is with a segment that has these flags.
    pub(super) fn after(self, direction: Direction, seen: u8) -> Self {
        let is_syn = seen & flags::SYN != 0;
        let is_ack = seen & flags::ACK != 0;
        match (self, direction) {
            _ if seen & flags::RST != 0 => self,
            (Self::Unknown, Direction::Initiator) if is_syn && !is_ack => Self::Syn,
            (Self::Syn | Self::Challenged | Self::Crossed, Direction::Responder)
                if is_syn && is_ack =>
            {
                Self::SynAck
            }
            (Self::Syn | Self::Challenged, Direction::Responder) if is_syn => Self::Crossed,
            (Self::Syn, Direction::Responder) if is_ack => Self::Challenged,
            (Self::Crossed, Direction::Initiator) if is_syn && is_ack => Self::Answered,
            (Self::Answered, Direction::Responder) if is_ack => Self::Established,
            (Self::SynAck, Direction::Initiator) if is_ack && !is_syn => Self::Established,
            (state, _) => state,
        }
    }
}
