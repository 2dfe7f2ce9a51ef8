//! Association state as bytes for the disk.
//!
//! A record holds a magic number, the key's fingerprint, the state, and a digest over all of it, so
//! that a half-written record is told from a whole one. Whoever writes keeps two places and writes
//! them in turn: after a crash one of them is whole.

use aws_lc_rs::digest::{SHA256, digest};

use super::open::OpeningState;
use super::replay::ReplayState;
use super::sa::{Fingerprint, SaError};
use super::seal::SealingState;

const SEALING_MAGIC: [u8; 8] = *b"weirSEA1";
const OPENING_MAGIC: [u8; 8] = *b"weirOPN1";
const DIGEST_LEN: usize = 8;

/// Bytes of the longest record: a window of 8192 packets.
pub const RECORD_LEN_MAX: usize = 8 + 8 + 8 + 4 + 8 * (8192 / 64 + 1) + DIGEST_LEN;

impl SealingState {
    /// Replaces `record` by this state's.
    pub fn encode(&self, record: &mut Vec<u8>) {
        record.clear();
        record.extend_from_slice(&SEALING_MAGIC);
        record.extend_from_slice(&self.fingerprint.0);
        record.extend_from_slice(&self.reserved_until.to_be_bytes());
        finish(record);
    }

    /// The state that `record` holds.
    ///
    /// # Errors
    /// [`SaError::StateDamaged`].
    pub fn decode(record: &[u8]) -> Result<Self, SaError> {
        let mut body = check(record, SEALING_MAGIC)?;
        let fingerprint = Fingerprint(take(&mut body)?);
        let reserved_until = u64::from_be_bytes(take(&mut body)?);
        end(body)?;
        Ok(Self { fingerprint, reserved_until })
    }
}

impl OpeningState {
    /// Replaces `record` by this state's. Allocates nothing when it was encoded into before.
    pub fn encode(&self, record: &mut Vec<u8>) {
        record.clear();
        record.extend_from_slice(&OPENING_MAGIC);
        record.extend_from_slice(&self.fingerprint.0);
        record.extend_from_slice(&self.replay.highest.to_be_bytes());
        record.extend_from_slice(&self.replay.window.to_be_bytes());
        for word in &self.replay.accepted {
            record.extend_from_slice(&word.to_be_bytes());
        }
        finish(record);
    }

    /// The state that `record` holds.
    ///
    /// # Errors
    /// [`SaError::StateDamaged`].
    pub fn decode(record: &[u8]) -> Result<Self, SaError> {
        let mut body = check(record, OPENING_MAGIC)?;
        let fingerprint = Fingerprint(take(&mut body)?);
        let highest = u64::from_be_bytes(take(&mut body)?);
        let window = u32::from_be_bytes(take(&mut body)?);
        let (words, rest) = body.as_chunks::<8>();
        end(rest)?;
        let accepted = words.iter().map(|word| u64::from_be_bytes(*word)).collect();
        Ok(Self { fingerprint, replay: ReplayState { highest, window, accepted } })
    }
}

fn finish(record: &mut Vec<u8>) {
    let digest = digest(&SHA256, record);
    record.extend_from_slice(&digest.as_ref()[..DIGEST_LEN]);
}

fn check(record: &[u8], magic: [u8; 8]) -> Result<&[u8], SaError> {
    let (body, kept) = record
        .split_last_chunk::<DIGEST_LEN>()
        .ok_or(SaError::StateDamaged { what: "too short" })?;
    if digest(&SHA256, body).as_ref()[..DIGEST_LEN] != *kept {
        return Err(SaError::StateDamaged { what: "half written or changed" });
    }
    body.strip_prefix(&magic).ok_or(SaError::StateDamaged { what: "no record of this kind" })
}

fn take<const N: usize>(body: &mut &[u8]) -> Result<[u8; N], SaError> {
    let (field, rest) =
        body.split_first_chunk().ok_or(SaError::StateDamaged { what: "too short" })?;
    *body = rest;
    Ok(*field)
}

fn end(rest: &[u8]) -> Result<(), SaError> {
    if rest.is_empty() { Ok(()) } else { Err(SaError::StateDamaged { what: "too long" }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_give_back_what_was_kept() {
        let mut record = Vec::new();
        let sealing = SealingState { fingerprint: Fingerprint([3; 8]), reserved_until: 77 };
        sealing.encode(&mut record);
        assert_eq!(SealingState::decode(&record), Ok(sealing));
        assert!(OpeningState::decode(&record).is_err(), "kinds are not confused");
        let replay = ReplayState { highest: 1000, window: 64, accepted: vec![5, 6] };
        let opening = OpeningState { fingerprint: Fingerprint([4; 8]), replay };
        opening.encode(&mut record);
        assert_eq!(OpeningState::decode(&record), Ok(opening));
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_noticed() {
        let mut record = Vec::new();
        let sealing = SealingState { fingerprint: Fingerprint([3; 8]), reserved_until: 1 << 40 };
        sealing.encode(&mut record);
        for bit in 0..record.len() * 8 {
            let mut damaged = record.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(SealingState::decode(&damaged), Err(SaError::StateDamaged { .. })));
        }
        for len in 0..record.len() {
            assert!(SealingState::decode(&record[..len]).is_err());
        }
    }
}
