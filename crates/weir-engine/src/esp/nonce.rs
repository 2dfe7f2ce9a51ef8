//! Sequence numbers and the nonces made of them.
//!
//! AES-GCM loses everything when a nonce repeats, so a number is used once in a key's life, across
//! crashes too: the daemon first writes to disk how far numbers may go, then the counter hands them
//! out up to there. After a crash it starts where the disk says, and skips what was left.

use aws_lc_rs::aead::NONCE_LEN;

use super::sa::{SaParameters, Salt, Sequence};
use super::seal::SealError;

/// Numbers reserved at a time. At 1 M packets/s the disk is asked twice a second; of the 32-bit
/// space a crash wastes at most one part in 4096.
pub const RESERVATION_BLOCK: u64 = 1 << 20;

/// Hands out the numbers of one association, each once.
#[derive(Debug)]
pub(super) struct SequenceCounter {
    next: u64,
    reserved_until: u64,
    /// First number that may never be used.
    end: u64,
}

impl SequenceCounter {
    /// Starts at `start`, the mark on disk; nothing is reserved yet. 0, a new key, starts at 1
    /// (RFC 4303 s3.3.3).
    pub(super) fn new(start: u64, end: u64) -> Self {
        let next = start.max(1).min(end);
        Self { next, reserved_until: next, end }
    }

    /// The next number.
    pub(super) fn take(&mut self) -> Result<Sequence, SealError> {
        if self.next < self.reserved_until {
            let sequence = Sequence(self.next);
            self.next += 1;
            return Ok(sequence);
        }
        Err(if self.next >= self.end { SealError::Exhausted } else { SealError::NotReserved })
    }

    /// The mark to write to disk now, when less than half a block is left.
    pub(super) fn reservation_needed(&self) -> Option<u64> {
        let left = self.reserved_until - self.next;
        if left >= RESERVATION_BLOCK / 2 || self.reserved_until == self.end {
            return None;
        }
        Some(self.next.saturating_add(RESERVATION_BLOCK).min(self.end))
    }

    /// Allows numbers below `until`, which is on disk by now. Never takes numbers back.
    pub(super) fn extend_reservation(&mut self, until: u64) {
        self.reserved_until = self.reserved_until.max(until.min(self.end));
    }

    pub(super) fn reserved_until(&self) -> u64 {
        self.reserved_until
    }

    pub(super) fn next(&self) -> u64 {
        self.next
    }

    pub(super) fn remaining(&self) -> u64 {
        self.end - self.next
    }
}

/// What both directions make nonces and authenticated data of.
#[derive(Debug)]
pub(super) struct NonceMaker {
    salt: Salt,
    spi: [u8; 4],
    extended: bool,
}

impl NonceMaker {
    pub(super) fn new(parameters: &SaParameters) -> Self {
        Self {
            salt: parameters.salt.clone(),
            spi: parameters.spi.value().to_be_bytes(),
            extended: parameters.extended_sequence,
        }
    }

    /// Salt and explicit IV (RFC 4106 s4).
    #[inline]
    pub(super) fn nonce(&self, iv: &[u8; 8]) -> [u8; NONCE_LEN] {
        joined(self.salt.bytes(), *iv)
    }

    /// What the ICV covers beside the text: SPI and the whole sequence number (RFC 4106 s5).
    #[inline]
    pub(super) fn authenticated(&self, sequence: Sequence) -> Authenticated {
        if self.extended {
            Authenticated { bytes: joined(self.spi, sequence.0.to_be_bytes()), len: 12 }
        } else {
            let low = u64::from(sequence.low()) << 32;
            Authenticated { bytes: joined(self.spi, low.to_be_bytes()), len: 8 }
        }
    }
}

/// `first`, then `second`: made in registers, since the cipher reads other words than these at
/// once, and a load across two fresh stores waits for both.
#[inline]
fn joined(first: [u8; 4], second: [u8; 8]) -> [u8; NONCE_LEN] {
    let (first, second) = (u32::from_be_bytes(first), u64::from_be_bytes(second));
    let whole = u128::from(first) << 96 | u128::from(second) << 32;
    let [bytes @ .., _, _, _, _] = whole.to_be_bytes();
    bytes
}

/// Additional authenticated data of 8 or 12 bytes.
pub(super) struct Authenticated {
    bytes: [u8; 12],
    len: usize,
}

impl AsRef<[u8]> for Authenticated {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_handed_out_before_the_disk_knows() {
        let mut counter = SequenceCounter::new(0, 1 << 32);
        assert_eq!(counter.take(), Err(SealError::NotReserved));
        let mark = counter.reservation_needed().expect("nothing is reserved");
        counter.extend_reservation(mark);
        assert_eq!(counter.take(), Ok(Sequence(1)));
    }

    #[test]
    fn numbers_end_before_they_wrap() {
        for end in [1 << 32, u64::MAX] {
            let mut counter = SequenceCounter::new(end - 2, end);
            counter.extend_reservation(u64::MAX);
            assert_eq!(counter.take(), Ok(Sequence(end - 2)));
            assert_eq!(counter.take(), Ok(Sequence(end - 1)));
            assert_eq!(counter.take(), Err(SealError::Exhausted));
            assert_eq!(counter.reservation_needed(), None);
            assert_eq!(counter.remaining(), 0);
        }
    }

    #[test]
    fn a_restart_at_the_very_end_stays_exhausted() {
        let mut counter = SequenceCounter::new(u64::MAX, 1 << 32);
        counter.extend_reservation(u64::MAX);
        assert_eq!(counter.take(), Err(SealError::Exhausted));
    }

    #[test]
    fn a_reservation_is_asked_for_at_half_a_block() {
        let mut counter = SequenceCounter::new(1, u64::MAX);
        counter.extend_reservation(1 + RESERVATION_BLOCK);
        for _ in 0..RESERVATION_BLOCK / 2 {
            assert_eq!(counter.reservation_needed(), None);
            counter.take().unwrap();
        }
        counter.take().unwrap();
        assert_eq!(counter.reservation_needed(), Some(counter.next() + RESERVATION_BLOCK));
    }

    #[test]
    fn a_reservation_is_never_taken_back() {
        let mut counter = SequenceCounter::new(1, u64::MAX);
        counter.extend_reservation(100);
        counter.extend_reservation(50);
        assert_eq!(counter.reserved_until(), 100);
    }
}
