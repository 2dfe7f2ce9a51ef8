//! The only answer of a gateway that holds secrets.

use serde::{Deserialize, Serialize};

/// Whose keys are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct KeysRequest {
    /// Of this pair; absent: of all.
    pub pair: Option<String>,
    /// Of this peer; absent: of all.
    pub peer: Option<String>,
}

/// An association with its secret. Nothing but [`super::dto::Response::Keys`] holds one.
#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct AssociationKey {
    /// The pair of ports.
    pub pair: String,
    /// The peer.
    pub peer: String,
    /// `seal` or `open`.
    pub direction: String,
    /// Its SPI.
    pub spi: u32,
    /// `aes-128-gcm` or `aes-256-gcm`.
    pub cipher: String,
    /// Whether sequence numbers have 64 bits.
    pub extended_sequence: bool,
    /// Key and salt, in hexadecimal.
    pub keying_material: String,
}

impl std::fmt::Debug for AssociationKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "AssociationKey({} {:#x}, ..)", self.peer, self.spi)
    }
}
