//! The command line, the configuration and the daemon, in one program: each file has its own
//! subject.

#![expect(clippy::disallowed_methods, reason = "tests measure and wait from outside")]

mod access;
mod anomalies;
mod applications;
mod buffers;
mod cli;
mod collect;
mod config;
mod config_reference;
mod daemon;
mod deploy;
mod detect;
mod driver_xdp;
mod fastpath_captures;
mod frames;
mod init;
mod ipoib;
mod judged;
mod judged_actions;
mod judged_contents;
mod judged_conversations;
mod judged_http;
mod judged_http2;
mod judged_midstream;
mod judged_nfs;
mod judged_overlaps;
mod judged_smb;
mod judged_states;
mod language;
mod modes;
mod packs;
mod read;
mod top;
mod verify;
mod verify_decoding;
mod verify_parties;
mod verify_settings;
mod verify_tagged;
mod verify_times;
mod verify_waits;
mod vpn;
