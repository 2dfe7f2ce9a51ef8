//! Randomness of this machine. The store, the server and the gateway's program read it here and
//! nowhere else; the engine is given it.

use std::fs::File;
use std::io::{self, Read};

/// The kernel's source, to read from.
///
/// # Errors
/// It cannot be opened; the message names it.
pub fn source() -> io::Result<File> {
    let name = "/dev/urandom";
    File::open(name).map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))
}

/// So many random bytes.
///
/// # Errors
/// The kernel's source cannot be read.
pub fn bytes<const COUNT: usize>() -> io::Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    source()?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Random bits that key a table: nobody outside can make its entries collide.
///
/// # Errors
/// The kernel's source cannot be read.
pub fn seed() -> io::Result<u128> {
    bytes().map(u128::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_seeds_differ() {
        assert_ne!(seed().unwrap(), seed().unwrap());
    }
}
