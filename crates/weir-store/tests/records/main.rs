//! What becomes of records, alerts and events, in one program: each file has its own subject.

#![expect(clippy::disallowed_methods, reason = "tests measure and wait from outside")]

mod biflow;
mod collect;
mod collectors;
mod columns;
mod encoders;
mod eve_file;
mod eve_socket;
mod full_disk;
mod grouped;
mod hostile;
mod judges;
mod links;
mod numbers;
mod rollup;
mod siem;
mod store;
mod stores;
mod stream;
mod suppressions;
mod traffic;
