//! One configured key for several workers (docs/adr/0025): each has an association of its own, with
//! an SPI, a key and a counter of its own. The configured key itself then seals nothing.

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use zeroize::Zeroizing;

use super::sa::{SaError, SaParameters, Spi};

/// Workers of one pair of ports, at most.
pub const WORKERS_MAX: u32 = 16;

/// The bits of an SPI that tell which of its receiver's workers opens.
pub const SPI_WORKER_MASK: u32 = WORKERS_MAX - 1;

const LABEL: &[u8] = b"weir esp association of a worker";

/// Bytes of keying material to derive.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// The association of `worker` out of `master`: SPI base + n; key and salt by HKDF-SHA-256 (RFC
/// 5869) of the master's, with that SPI. Both gateways derive the same.
///
/// # Errors
/// [`SaError`]: none that a legal base can cause, whose [`SPI_WORKER_MASK`] is zero.
pub fn worker_association(master: &SaParameters, worker: u32) -> Result<SaParameters, SaError> {
    let spi = Spi::new(master.spi.value() | worker & SPI_WORKER_MASK)?;
    let secret = master.keying_material();
    let mut material = Zeroizing::new(vec![0; secret.len()]);
    let wrong = SaError::KeyLength { len: secret.len() };
    Salt::new(HKDF_SHA256, &[])
        .extract(&secret)
        .expand(&[LABEL, &spi.value().to_be_bytes()], Length(secret.len()))
        .and_then(|okm| okm.fill(&mut material))
        .map_err(|_| wrong)?;
    let SaParameters { extended_sequence, replay_window, .. } = *master;
    Ok(SaParameters { extended_sequence, replay_window, ..SaParameters::new(spi, &material)? })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn master(spi: u32, len: usize) -> SaParameters {
        let material: Vec<u8> = (0..len as u8).collect();
        let spi = Spi::new(spi).unwrap();
        SaParameters {
            replay_window: 64,
            extended_sequence: false,
            ..SaParameters::new(spi, &material).unwrap()
        }
    }

    #[test]
    fn no_two_workers_share_a_key_and_none_has_the_masters() {
        for len in [20, 36] {
            let masters = [master(0x1000, len), master(0x1010, len)];
            let mut keys = BTreeSet::from([masters[0].fingerprint()]);
            for master in &masters {
                for worker in 0..WORKERS_MAX {
                    let derived = worker_association(master, worker).unwrap();
                    assert_eq!(derived.spi.value(), master.spi.value() + worker);
                    assert_eq!(derived.keying_material().len(), len);
                    assert_eq!((derived.replay_window, derived.extended_sequence), (64, false));
                    assert!(keys.insert(derived.fingerprint()), "a key again: {derived:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_derived_is_hkdf_as_another_program_computes_it() {
        // python3: HMAC-SHA-256 as RFC 5869 has it, over bytes 0 to 35, with SPI 0x1003.
        let derived = worker_association(&master(0x1000, 36), 3).unwrap();
        let hex: String =
            derived.keying_material().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "736fde96cc9ab40e6909a01577391ad1601149347230143ad2878832b91118793fc37dfa");
    }
}
