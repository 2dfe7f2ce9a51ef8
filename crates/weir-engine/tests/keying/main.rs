//! Two gateways that agree on keys, engines and all, on a wire that a test controls: what is lost,
//! repeated, forged and restarted there, and by what clocks.

#![allow(clippy::disallowed_methods, reason = "only the engine itself does without these")]

mod floods;
mod nonces;
mod path_mtu;
mod refused;
mod simulation;
mod spis;
mod states;
mod translated;
mod workers;
mod world;
