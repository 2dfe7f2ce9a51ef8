//! Two gateways that agree on keys, engines and all, on a wire that a test controls: what is lost,
//! repeated, forged and restarted there, and by what clocks.

mod floods;
mod nonces;
mod path_mtu;
mod simulation;
mod states;
mod workers;
mod world;
