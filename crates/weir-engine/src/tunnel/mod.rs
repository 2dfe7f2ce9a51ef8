//! Keys between gateways: one handshake, made anew before its keys wear out (ADR 0007).
//!
//! ```text
//!   datagrams, reports of the data path --> state::Tunnel --> datagrams, associations for `esp`
//!
//!   state.rs      peers and deadlines        handshake.rs  one handshake: Noise_IKpsk2, ML-KEM
//!   peer.rs       what is known of one       noise.rs      the library that does it
//!   rekey.rs      when keys are renewed      message.rs    bytes of the four messages
//!   cookie.rs     floods                     path.rs       where datagrams travel
//!   reach.rs      is it relied on at present   path_mtu.rs  how wide the path is
//! ```
//!
//! Neither clock nor socket nor source of randomness is in here: time, datagrams and entropy come
//! in as arguments, and what is to be done comes out as [`state::Effect`]s. Associations go from
//! here to `esp` and never back.
//!
//! **No nonce repeats.** A key is derived from a handshake that holds a fresh ephemeral key of each
//! end, and an [`state::Effect::Install`] hands it out once; the association made of it counts
//! packets up from 1 and cannot be cloned. Nothing of it is kept on disk, so a gateway that starts
//! again has no key to continue with and must shake hands. A property test argues it with crashes,
//! restarts and restored snapshots in any order.

mod effect;
pub mod state;

pub mod path_mtu;
mod peer;
pub mod reach;
pub mod rekey;

pub mod handshake;
mod message;
mod noise;

mod cookie;
pub mod key;
pub mod path;

#[cfg(test)]
mod judged;

pub use message::{MESSAGE_LEN_MAX, MESSAGE_LEN_MIN};
pub use peer::{PeerSettings, PeerState, PeerStatus};
