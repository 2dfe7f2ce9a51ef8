//! Keys of security associations: read, checked, never printed.
//!
//! A key file holds one line of hex: the AES key (32 or 16 bytes) followed by the 4 bytes of salt
//! of RFC 4106 s8.1. Empty lines and lines that begin with `#` are passed over.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use weir_engine::esp::icrc_tag::TagKey;
use weir_engine::esp::sa::{Fingerprint, SaParameters, Spi};
use zeroize::{Zeroize, Zeroizing};

use super::file::Cipher;
use super::keying::Secrets;
use super::secrecy;

/// Bytes of a key file, at most.
const KEY_FILE_BYTES_MAX: u64 = 4096;

/// Bytes of salt that follow the key (RFC 4106 s4).
pub const SALT_BYTES: usize = 4;

impl Cipher {
    /// Bytes of the AES key.
    pub fn key_bytes(self) -> usize {
        match self {
            Cipher::Aes128Gcm => 16,
            Cipher::Aes256Gcm => 32,
        }
    }

    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Cipher::Aes128Gcm => "aes-128-gcm",
            Cipher::Aes256Gcm => "aes-256-gcm",
        }
    }
}

/// An AES key and its salt. Wiped from memory when dropped.
pub struct Key {
    bytes: Vec<u8>,
}

impl Key {
    /// From hex text: key, then salt.
    ///
    /// # Errors
    /// The text is not hex, or has not the cipher's length; the error says what it should be and
    /// shows none of the key.
    pub fn from_hex(text: &str, cipher: Cipher) -> Result<Self, String> {
        let text = text.trim();
        let text = text.strip_prefix("0x").unwrap_or(text);
        let wanted = cipher.key_bytes() + SALT_BYTES;
        let right = format!(
            "{} wants {wanted} bytes ({} of key, {SALT_BYTES} of salt) as {} hex digits",
            cipher.name(),
            cipher.key_bytes(),
            wanted * 2
        );
        if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(format!("the key holds something else than hex digits; {right}"));
        }
        if text.len() != wanted * 2 {
            return Err(format!("the key has {} hex digits; {right}", text.len()));
        }
        let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or(0) as u8;
        let bytes: Vec<u8> = text
            .as_bytes()
            .chunks_exact(2)
            .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
            .collect();
        let key = Self { bytes };
        if key.bytes.iter().all(|byte| *byte == key.bytes[0]) {
            return Err("the key is one byte repeated; make one with `weir keys generate`".into());
        }
        Ok(key)
    }

    /// Key and salt, as RFC 4106 s8.1 writes keying material.
    pub fn material(&self) -> &[u8] {
        &self.bytes
    }

    /// A name for key and salt that tells nothing about them. State files use it to see whether a
    /// key was used before.
    pub fn fingerprint(&self) -> Fingerprint {
        // Every key has a length that the cipher knows and the SPI is legal: this cannot fail.
        Spi::new(256)
            .and_then(|spi| SaParameters::new(spi, &self.bytes))
            .map_or(Fingerprint([0; 8]), |parameters| parameters.fingerprint())
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Where a key is kept.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeySource {
    /// In a file of its own; the path is absolute or relative to the working directory.
    File(PathBuf),
    /// In the configuration itself, as hex.
    Inline(String),
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySource::File(path) => f.debug_tuple("File").field(path).finish(),
            KeySource::Inline(_) => f.write_str("Inline(..)"),
        }
    }
}

/// Why a key could not be had.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file is there, and may not be read by this user.
    #[error("may not read the key file {0}")]
    Forbidden(PathBuf),
    /// Anything else; text and remedy.
    #[error("{what}")]
    Unusable {
        /// What is wrong.
        what: String,
        /// What to do.
        remedy: String,
    },
}

impl KeyError {
    /// What to do.
    pub fn remedy(&self) -> &str {
        match self {
            KeyError::Forbidden(_) => "run it as the user that owns the file (root)",
            KeyError::Unusable { remedy, .. } => remedy,
        }
    }
}

impl KeySource {
    /// Whether the key stands in the configuration itself.
    pub fn is_inline(&self) -> bool {
        matches!(self, KeySource::Inline(_))
    }

    /// Reads and checks the key.
    ///
    /// # Errors
    /// See [`KeyError`]; a file that other users may read is refused.
    pub fn read(&self, cipher: Cipher) -> Result<Key, KeyError> {
        let unusable = |what: String| KeyError::Unusable {
            what,
            remedy: "make a key with `weir keys generate --help`".into(),
        };
        match self {
            KeySource::Inline(text) => Key::from_hex(text, cipher).map_err(unusable),
            KeySource::File(path) => {
                let line = read_secret_line(path, "make a key with `weir keys generate --help`")?;
                Key::from_hex(&line, cipher)
                    .map_err(|error| unusable(format!("key file {}: {error}", path.display())))
            }
        }
    }
}

/// The only line of the file at `path` that is neither empty nor a comment.
///
/// # Errors
/// [`KeyError`]; a file that other users may read is refused.
pub(super) fn read_secret_line(path: &Path, remedy: &str) -> Result<Zeroizing<String>, KeyError> {
    let text = read_key_file(path, remedy)?;
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    match lines[..] {
        [line] => Ok(Zeroizing::new(line.to_owned())),
        _ => Err(KeyError::Unusable {
            what: format!(
                "key file {} holds {} keys; one line is wanted",
                path.display(),
                lines.len()
            ),
            remedy: remedy.to_owned(),
        }),
    }
}

pub(super) fn read_key_file(path: &Path, remedy: &str) -> Result<Zeroizing<String>, KeyError> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => KeyError::Forbidden(path.to_owned()),
        _ => KeyError::Unusable {
            what: format!("cannot read the key file {}: {error}", path.display()),
            remedy: format!("{remedy}; or correct its path"),
        },
    };
    let mut file = std::fs::File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(KeyError::Unusable {
            what: format!("key file {} is no regular file", path.display()),
            remedy: "correct its path".into(),
        });
    }
    if let Some(exposure) = secrecy::exposure(&metadata) {
        return Err(KeyError::Unusable {
            what: format!("key file {} {exposure}", path.display()),
            remedy: secrecy::remedy(path),
        });
    }
    // Room for all of it: a text that grows leaves copies behind.
    let mut text = Zeroizing::new(String::with_capacity(KEY_FILE_BYTES_MAX as usize));
    file.by_ref().take(KEY_FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// The keys of a configuration, by where they are kept.
#[derive(Debug, Default)]
pub struct Keys {
    pub(super) by_source: BTreeMap<KeySource, Key>,
    /// Where the configuration's relative paths begin.
    pub(super) directory: PathBuf,
    /// Of tags, by file.
    pub(super) tags: BTreeMap<PathBuf, TagKey>,
    /// What handshakes need; `None` without `[keying]`.
    pub secrets: Option<Secrets>,
}

impl Keys {
    /// The key kept at `source`; present for every association of the settings it was read for.
    pub fn find(&self, source: &KeySource) -> Option<&Key> {
        self.by_source.get(source)
    }

    /// Where it is noted that the key at `source` sealed: beside it.
    pub fn stamp(&self, source: &KeySource) -> PathBuf {
        match source {
            KeySource::File(path) => path.with_added_extension("used"),
            KeySource::Inline(_) => self.directory.join("keys-inline.used"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const HEX_36: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20212223";

    #[test]
    fn salt_follows_the_key() {
        let key = Key::from_hex(HEX_36, Cipher::Aes256Gcm).unwrap();
        assert_eq!(key.material().len(), 36);
        assert_eq!(key.material()[31..33], [0x1f, 0x20]);
    }

    #[test]
    fn a_key_of_the_wrong_length_is_refused_and_not_shown() {
        let error = Key::from_hex(HEX_36, Cipher::Aes128Gcm).unwrap_err();
        assert!(error.contains("40 hex digits"), "{error}");
        assert!(!error.contains("0102030405"), "{error}");
    }

    #[test]
    fn no_debug_text_shows_a_key() {
        let key = Key::from_hex(HEX_36, Cipher::Aes256Gcm).unwrap();
        let source = KeySource::Inline(HEX_36.into());
        assert_eq!(format!("{key:?} {source:?}"), "Key(..) Inline(..)");
    }

    #[test]
    fn fingerprints_tell_keys_apart_even_by_the_salt() {
        let key = Key::from_hex(HEX_36, Cipher::Aes256Gcm).unwrap();
        let other = Key::from_hex(&HEX_36.replace("20212223", "20212224"), Cipher::Aes256Gcm);
        assert_ne!(key.fingerprint(), other.unwrap().fingerprint());
    }

    #[test]
    fn a_key_of_one_repeated_byte_is_refused() {
        assert!(Key::from_hex(&"00".repeat(36), Cipher::Aes256Gcm).is_err());
    }

    #[test]
    fn a_key_file_open_to_every_user_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("# comment\n{HEX_36}\n")).unwrap();
        let source = KeySource::File(file.path().to_owned());
        assert!(source.read(Cipher::Aes256Gcm).is_ok());
        std::fs::set_permissions(file.path(), PermissionsExt::from_mode(0o644)).unwrap();
        let error = source.read(Cipher::Aes256Gcm).unwrap_err();
        assert!(error.remedy().contains("chmod 600"), "{error}");
    }

    #[test]
    fn a_key_file_of_another_user_or_for_another_group_is_refused() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: files of other users need root");
            return;
        }
        const NOBODY: u32 = 65534;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), HEX_36).unwrap();
        let source = KeySource::File(file.path().to_owned());
        let read = || source.read(Cipher::Aes256Gcm).map_err(|error| error.to_string());
        for (user, group, mode, found) in [
            (NOBODY, 0, 0o600, Some("belongs to user 65534")),
            (0, NOBODY, 0o640, Some("is open to group 65534")),
            (0, NOBODY, 0o600, None),
            (0, 0, 0o640, None),
        ] {
            std::os::unix::fs::chown(file.path(), Some(user), Some(group)).unwrap();
            std::fs::set_permissions(file.path(), PermissionsExt::from_mode(mode)).unwrap();
            match found {
                Some(found) => assert!(read().unwrap_err().contains(found), "{found}"),
                None => assert!(read().is_ok(), "{mode:o}"),
            }
        }
    }
}
