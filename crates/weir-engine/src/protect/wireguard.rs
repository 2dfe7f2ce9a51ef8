//! WireGuard's data messages. They are made and opened as ESP is ([`super::esp`]), by associations
//! of another form (docs/adr/0052); only what such a peer needs differs.

use super::rows::{Given, Row};

/// Another concentrator, whose client this gateway is.
pub(super) const ROW: Row = Row {
    name: "mode = \"wireguard\"",
    what: "Weir seals IP packets in WireGuard's data messages",
    cannot: &[
        (Given::KeysInFiles, "a `public_key`, because WireGuard has no other keys"),
        (Given::NoAddress, "a pair with an `address` to send from"),
        (Given::MayBeClear, "sealing = \"require\""),
        (Given::Offload, "offload = \"none\", because its packets are not ESP"),
        (Given::MlKem, "ml_kem = false, because standard WireGuard does not have it"),
    ],
    like: None,
};
