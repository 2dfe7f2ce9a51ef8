//! Judges that know nothing of this crate: recorded packets and their CRCs, tshark, scapy.
//!
//! A missing judge is said loudly ("SKIPPED: ...") and passes.

mod captures;
mod cm;
mod icrc;
mod properties;
mod scapy;
mod tshark;
