//! The life of the gateway and who may ask or command it: `supervisor`, `socket`, and what they
//! need.

pub mod alert_files;
pub(super) mod blocks;
pub mod history;
pub mod lock;
pub mod notify;
pub mod openvpn;
pub mod preflight;
pub mod recorder;
pub mod show;
pub mod socket;
pub mod status_socket;
pub mod supervisor;
