//! WireGuard's data messages. They are made and opened as ESP is ([`super::esp`]), by associations
//! of another form (docs/adr/0052); only what such a peer needs differs.

use super::rows::{Given, Row};

/// Another concentrator, whose client this gateway is.
pub(super) const ROW: Row = Row {
    name: "mode = \"wireguard\"",
    what: "IP packets in WireGuard's data messages",
    cannot: &[
        (Given::KeysInFiles, "its `public_key`: WireGuard knows no other keys"),
        (Given::NoAddress, "an `address` of the pair to speak from"),
        (Given::MayBeClear, "no `sealing`"),
        (Given::Offload, "no `offload`: its packets are no ESP"),
        (Given::MlKem, "no `ml_kem`, of which standard WireGuard knows nothing"),
    ],
    like: None,
};
