//! A NIC beneath the kernel's ESP (docs/adr/0034, 0035). Its packets go the kernel's way
//! ([`super::kernel`]); only what such a peer needs differs.

use super::kernel;
use super::rows::{Cannot, Given, Row};

/// Of a key in a file no nonce may come twice, over restarts too, and a driver makes its own.
const AGREED: Cannot = (Given::KeysInFiles, "keys from handshakes (`public_key`)");

/// The NIC does the cipher.
pub(super) const CRYPTO: Row = Row {
    name: "offload = \"crypto\"",
    what: "the NIC does the AES-GCM of ESP, and the kernel does the rest",
    cannot: &[AGREED],
    like: Some(&kernel::ROW),
};

/// The NIC does all of it.
pub(super) const PACKET: Row = Row {
    name: "offload = \"packet\"",
    what: "the NIC does all of ESP, and the kernel only keeps its associations",
    cannot: &[
        AGREED,
        (
            Given::EndpointInside,
            "`protects` with networks of the endpoint's family, and none that contains the \
             endpoint, because the NIC would seal handshakes too",
        ),
        (Given::WindowOverNic, "a replay_window of at most 256 packets"),
        (Given::DefaultSeal, "a pair without default = \"seal\""),
    ],
    like: Some(&kernel::ROW),
};
