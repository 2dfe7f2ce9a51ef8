//! What is done with connections that cannot be looked at as they should be.

/// What is done with a flow that cannot be looked at as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exception {
    /// The rest of it is dropped.
    DropFlow,
    /// The packet is dropped.
    DropPacket,
    /// The rest of it passes.
    PassFlow,
}

impl Exception {
    /// By its name in suricata.yaml; `None` for one that does nothing, or is not known.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "drop-flow" => Self::DropFlow,
            "drop-packet" => Self::DropPacket,
            "pass-flow" | "bypass" => Self::PassFlow,
            _ => return None,
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::DropFlow => "drop_flow",
            Self::DropPacket => "drop_packet",
            Self::PassFlow => "pass_flow",
        }
    }
}

/// Why an exception is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// A connection's beginning was not seen.
    Midstream,
    /// An application said what cannot be read.
    Application,
}

impl Cause {
    /// As EVE's `flow.exception_policy` spells it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Midstream => "stream_midstream",
            Self::Application => "app_layer_error",
        }
    }

    /// As `stats.exception_policy` spells it.
    pub(super) fn counted(self) -> &'static str {
        match self {
            Self::Midstream => "tcp.midstream",
            Self::Application => "app_layer.error",
        }
    }

    /// As `drop.reason` spells it.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Midstream => "stream midstream",
            Self::Application => "applayer error",
        }
    }
}
