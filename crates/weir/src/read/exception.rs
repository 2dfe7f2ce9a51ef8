//! What is done with connections that cannot be looked at as they should be.

/// What is done with a flow that cannot be looked at as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exception {
    /// The rest of it is dropped.
    DropFlow,
    /// The packet is dropped.
    DropPacket,
    /// The rest of it passes, and no rule looks at it.
    PassFlow,
    /// The packet passes, and no rule looks at it.
    PassPacket,
    /// The rest of it passes, and nobody looks at it.
    Bypass,
    /// The rest of it is dropped, and its sender told so; who only watches tells him.
    Reject,
}

impl Exception {
    /// By its name in suricata.yaml; `None` for one that does nothing, or is not known.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "drop-flow" => Self::DropFlow,
            "drop-packet" => Self::DropPacket,
            "pass-flow" => Self::PassFlow,
            "pass-packet" => Self::PassPacket,
            "bypass" => Self::Bypass,
            "reject" => Self::Reject,
            _ => return None,
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::DropFlow => "drop_flow",
            Self::DropPacket => "drop_packet",
            Self::PassFlow => "pass_flow",
            Self::PassPacket => "pass_packet",
            Self::Bypass => "bypass",
            Self::Reject => "reject",
        }
    }

    /// What `flow.action` says of a flow of which it is made.
    pub(super) fn action(self, is_inline: bool) -> Option<&'static str> {
        match self {
            Self::DropFlow => Some("drop"),
            Self::Reject => is_inline.then_some("drop"),
            Self::PassFlow | Self::Bypass => Some("pass"),
            Self::DropPacket | Self::PassPacket => None,
        }
    }
}

/// What an exception makes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is dropped, for that reason.
    Dropped(&'static str),
    /// It is dropped, and its sender told so.
    Rejected(&'static str),
    /// It passes, and is counted with its flow at most.
    Bypassed,
    /// It passes, whatever rules say.
    Unseen,
    /// Rules decide, and its sender is told that it is refused.
    Answered,
}

/// Why an exception is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// A connection's beginning was not seen.
    Midstream,
    /// An application said what cannot be read.
    Application,
    /// So much was said, or it is encrypted, that the rest is not looked at: none that is told.
    Settled,
}

impl Cause {
    /// As EVE's `flow.exception_policy` spells it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Midstream => "stream_midstream",
            Self::Application => "app_layer_error",
            Self::Settled => "stream_depth",
        }
    }

    /// As `stats.exception_policy` spells it.
    pub(super) fn counted(self) -> &'static str {
        match self {
            Self::Midstream => "tcp.midstream",
            Self::Application => "app_layer.error",
            Self::Settled => "tcp.depth",
        }
    }

    /// As `drop.reason` spells it.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Midstream => "stream midstream",
            Self::Application => "applayer error",
            Self::Settled => "stream depth",
        }
    }
}
