//! A peer's `offload`: who does its ESP. What the NIC says to it is for `daemon/offload.rs` to ask.

use serde::{Deserialize, Serialize};

/// Who does a peer's ESP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Offload {
    /// Weir, in this process.
    #[default]
    None,
    /// The NIC its AES-GCM, the kernel the rest; a gateway that cannot have it does not start.
    Crypto,
    /// The NIC all of it; likewise.
    Packet,
    /// The NIC as far as it can; else Weir, which says why.
    Auto,
}

impl Offload {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Crypto => "crypto",
            Self::Packet => "packet",
            Self::Auto => "auto",
        }
    }
}
