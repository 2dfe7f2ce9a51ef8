//! One key of AES-GCM or ChaCha20-Poly1305, by the code that this processor runs fastest.
//!
//! aws-lc-rs is ahead where there is AVX-512, and on Arm. On x86 with VAES and without AVX-512 (Zen
//! 3, Intel's client cores) it has no code for that, and ring has: there ring seals (ADR 0068).

use aws_lc_rs::aead::NONCE_LEN;

use super::ICV_LEN;

/// Whose code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// AWS-LC, by aws-lc-rs.
    AwsLc,
    /// ring.
    Ring,
}

/// Which cipher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Aes128Gcm,
    Aes256Gcm,
    ChaCha20Poly1305,
}

/// An expanded key.
#[derive(Debug)]
pub(super) enum Aead {
    AwsLc(aws_lc_rs::aead::LessSafeKey),
    Ring(Box<ring::aead::LessSafeKey>),
}

/// The key has another length than the cipher's, or the library refused. Says no more: what failed
/// is the caller's to name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused;

impl Provider {
    /// The faster one on this processor.
    pub fn of_this_machine() -> Self {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("vaes")
            && std::arch::is_x86_feature_detected!("vpclmulqdq")
            && std::arch::is_x86_feature_detected!("avx2")
            && !std::arch::is_x86_feature_detected!("avx512f")
        {
            return Self::Ring;
        }
        Self::AwsLc
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AwsLc => "aws-lc",
            Self::Ring => "ring",
        }
    }
}

impl Drop for Aead {
    /// AWS-LC wipes its own; ring does not.
    fn drop(&mut self) {
        use ring::aead::{AES_128_GCM, LessSafeKey, UnboundKey};
        let Self::Ring(key) = self else { return };
        if let Ok(nothing) = UnboundKey::new(&AES_128_GCM, &[0; 16]) {
            **key = LessSafeKey::new(nothing);
            // Or what is freed next need not be written.
            std::hint::black_box(key);
        }
    }
}

impl Aead {
    /// Expands `key`.
    pub(super) fn new(
        provider: Provider,
        algorithm: Algorithm,
        key: &[u8],
    ) -> Result<Self, Refused> {
        match provider {
            Provider::AwsLc => {
                use aws_lc_rs::aead;
                let algorithm = match algorithm {
                    Algorithm::Aes128Gcm => &aead::AES_128_GCM,
                    Algorithm::Aes256Gcm => &aead::AES_256_GCM,
                    Algorithm::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
                };
                let key = aead::UnboundKey::new(algorithm, key).or(Err(Refused))?;
                Ok(Self::AwsLc(aead::LessSafeKey::new(key)))
            }
            Provider::Ring => {
                use ring::aead;
                let algorithm = match algorithm {
                    Algorithm::Aes128Gcm => &aead::AES_128_GCM,
                    Algorithm::Aes256Gcm => &aead::AES_256_GCM,
                    Algorithm::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
                };
                let key = aead::UnboundKey::new(algorithm, key).or(Err(Refused))?;
                Ok(Self::Ring(Box::new(aead::LessSafeKey::new(key))))
            }
        }
    }

    /// Encrypts `text` where it stands, and writes the tag of it and `authenticated`. The caller
    /// never gives a nonce twice.
    #[inline]
    pub(super) fn seal(
        &self,
        nonce: [u8; NONCE_LEN],
        authenticated: &[u8],
        text: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Refused> {
        match self {
            Self::AwsLc(key) => {
                use aws_lc_rs::aead::{Aad, Nonce};
                let nonce = Nonce::assume_unique_for_key(nonce);
                key.seal_in_place_scatter(nonce, Aad::from(authenticated), text, &[], tag)
                    .or(Err(Refused))
            }
            Self::Ring(key) => {
                use ring::aead::{Aad, Nonce};
                let nonce = Nonce::assume_unique_for_key(nonce);
                let made = key
                    .seal_in_place_separate_tag(nonce, Aad::from(authenticated), text)
                    .or(Err(Refused))?;
                tag.copy_from_slice(made.as_ref());
                Ok(())
            }
        }
    }

    /// Encrypts `inner` into `text`, which is as long, and `trailer` and the tag into `rest` behind
    /// it. Otherwise as [`Aead::seal`].
    #[inline]
    pub(super) fn seal_to(
        &self,
        nonce: [u8; NONCE_LEN],
        authenticated: &[u8],
        (inner, trailer): (&[u8], &[u8]),
        (text, rest): (&mut [u8], &mut [u8]),
    ) -> Result<(), Refused> {
        match self {
            Self::AwsLc(key) => {
                use aws_lc_rs::aead::{Aad, Nonce};
                let nonce = Nonce::assume_unique_for_key(nonce);
                let aad = Aad::from(authenticated);
                key.seal_out_of_place_scatter(nonce, aad, inner, text, trailer, rest)
                    .or(Err(Refused))
            }
            // ring seals in place and in one piece: the caller's parts lie behind each other.
            Self::Ring(_) => Err(Refused),
        }
    }

    /// Whether [`Aead::seal_to`] is there; else the text is copied first.
    #[inline]
    pub(super) fn seals_from_elsewhere(&self) -> bool {
        matches!(self, Self::AwsLc(_))
    }

    /// Decrypts `text` where it stands, if its tag is right.
    #[inline]
    pub(super) fn open(
        &self,
        nonce: [u8; NONCE_LEN],
        authenticated: &[u8],
        tag: &[u8; ICV_LEN],
        text: &mut [u8],
    ) -> Result<(), Refused> {
        match self {
            Self::AwsLc(key) => {
                use aws_lc_rs::aead::{Aad, Nonce};
                let nonce = Nonce::assume_unique_for_key(nonce);
                key.open_in_place_separate_tag(nonce, Aad::from(authenticated), tag, text)
                    .map(|_| ())
                    .or(Err(Refused))
            }
            Self::Ring(key) => {
                use ring::aead::{Aad, Nonce, Tag};
                let nonce = Nonce::assume_unique_for_key(nonce);
                let tag = Tag::from(*tag);
                key.open_in_place_separate_tag(nonce, Aad::from(authenticated), tag, text, 0..)
                    .map(|_| ())
                    .or(Err(Refused))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALGORITHMS: [(Algorithm, usize); 3] =
        [(Algorithm::Aes128Gcm, 16), (Algorithm::Aes256Gcm, 32), (Algorithm::ChaCha20Poly1305, 32)];

    fn key(provider: Provider, algorithm: Algorithm, len: usize) -> Aead {
        let bytes: Vec<u8> = (0..len as u8).collect();
        Aead::new(provider, algorithm, &bytes).unwrap()
    }

    #[test]
    fn both_providers_seal_alike_and_open_each_other_s_at_every_length() {
        for (algorithm, len) in ALGORITHMS {
            let keys = [Provider::AwsLc, Provider::Ring].map(|it| key(it, algorithm, len));
            for text_len in (0..300).chain([1400, 4096, 8900]) {
                let text: Vec<u8> = (0..text_len).map(|at| at as u8).collect();
                let sealed = keys.each_ref().map(|key| {
                    let (mut text, mut tag) = (text.clone(), [0; ICV_LEN]);
                    key.seal([7; NONCE_LEN], b"header", &mut text, &mut tag).unwrap();
                    (text, tag)
                });
                assert_eq!(sealed[0], sealed[1], "{algorithm:?}, {text_len} bytes");
                for (key, (mut sealed, mut tag)) in keys.iter().zip(sealed) {
                    key.open([7; NONCE_LEN], b"header", &tag, &mut sealed.clone()).unwrap();
                    let aad = key.open([7; NONCE_LEN], b"Header", &tag, &mut sealed.clone());
                    tag[3] ^= 1;
                    let forged = key.open([7; NONCE_LEN], b"header", &tag, &mut sealed);
                    assert_eq!((aad, forged), (Err(Refused), Err(Refused)));
                }
            }
        }
    }

    /// McGrew and Viega, The Galois/Counter Mode of Operation, test case 14.
    #[test]
    fn a_published_vector_of_aes_256_gcm_comes_out() {
        let expected = 0xcea7_403d_4d60_6b6e_074e_c5d3_baf3_9d18_u128.to_be_bytes();
        let tag_expected = 0xd0d1_c8a7_9999_6bf0_265b_98b5_d48a_b919_u128.to_be_bytes();
        for provider in [Provider::AwsLc, Provider::Ring] {
            let key = Aead::new(provider, Algorithm::Aes256Gcm, &[0; 32]).unwrap();
            let (mut text, mut tag) = ([0; 16], [0; ICV_LEN]);
            key.seal([0; NONCE_LEN], b"", &mut text, &mut tag).unwrap();
            assert_eq!((text, tag), (expected, tag_expected), "{provider:?}");
        }
    }
}
