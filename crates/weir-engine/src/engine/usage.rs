//! What associations did, as front ends of the kernel's interface ask for it.

use crate::esp::sa::Spi;

/// What one association did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Which; a sealing and an opening one may have the same.
    pub spi: Spi,
    /// Packets sealed or opened.
    pub packets: u64,
    /// Bytes of plaintext in them.
    pub bytes: u64,
    /// The last number used, or the highest accepted.
    pub sequence: u64,
    /// Whether it seals or opens.
    pub direction: UsageDirection,
}

/// What only one of both directions knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageDirection {
    /// To the peer.
    Sealing,
    /// From the peer.
    Opening {
        /// ESP in UDP: address and port that the last authentic packet came from.
        came_from: Option<([u8; 16], u16)>,
    },
}
