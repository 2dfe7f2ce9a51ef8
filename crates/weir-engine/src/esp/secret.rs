//! Secrets that leave nothing behind: on the heap, so that who is moved is the pointer and not the
//! bytes, and wiped when dropped.

use std::fmt;
use std::hint::black_box;
use std::ops::Deref;

use zeroize::Zeroizing;

/// Stack below the caller that [`wipe_stack`] overwrites, bytes: more than any handshake takes.
const STACK_LEN: usize = 96 << 10;

/// So many secret bytes. Never printed.
#[derive(PartialEq, Eq)]
pub struct Secret<const LEN: usize>(Box<Zeroizing<[u8; LEN]>>);

impl<const LEN: usize> Secret<LEN> {
    /// A copy of `bytes`.
    pub fn of(bytes: &[u8; LEN]) -> Self {
        // Room first: a value that is made elsewhere and moved leaves a copy there.
        let mut secret = Box::new(Zeroizing::new([0; LEN]));
        secret.copy_from_slice(bytes);
        Self(secret)
    }
}

impl<const LEN: usize> Clone for Secret<LEN> {
    fn clone(&self) -> Self {
        Self::of(self)
    }
}

impl<const LEN: usize> Deref for Secret<LEN> {
    type Target = [u8; LEN];

    fn deref(&self) -> &[u8; LEN] {
        &self.0
    }
}

impl<const LEN: usize> fmt::Debug for Secret<LEN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Overwrites what calls that have returned left on this thread's stack: ciphers and parsers keep
/// keys there, and nothing else wipes them. For the loops of threads that work with secrets.
#[inline(never)]
pub fn wipe_stack() {
    let mut space = [0_u8; STACK_LEN];
    black_box(&mut space);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_its_bytes_and_says_nothing_of_them() {
        let secret = Secret::of(&[7; 32]);
        assert_eq!(*secret.clone(), [7; 32]);
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        const fn wiped_when_dropped<T: zeroize::ZeroizeOnDrop>() {}
        wiped_when_dropped::<Zeroizing<[u8; 32]>>();
    }
}
