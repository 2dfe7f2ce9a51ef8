//! Randomness: the only place of the daemon that reads any.

use std::fs::File;
use std::io::Read;

use anyhow::{Context, Result};

/// The kernel's source, to read from.
///
/// # Errors
/// It cannot be opened.
pub(in crate::daemon) fn source() -> Result<File> {
    File::open("/dev/urandom").context("cannot open /dev/urandom")
}

/// Random bits that key the flow tables: nobody outside can make their entries collide.
///
/// # Errors
/// The kernel's source cannot be read.
pub(in crate::daemon) fn seed() -> Result<u128> {
    let mut bytes = [0; 16];
    source()?.read_exact(&mut bytes).context("cannot read /dev/urandom")?;
    Ok(u128::from_ne_bytes(bytes))
}
