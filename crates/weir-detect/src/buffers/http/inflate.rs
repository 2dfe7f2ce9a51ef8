//! Bodies that are sent compressed (RFC 9110 s8.4): gzip and deflate.

use std::io::Write;

use flate2::write::{DeflateDecoder, GzDecoder, ZlibDecoder};

/// What makes a body's bytes of those that were sent.
#[derive(Debug)]
pub(super) enum Inflate {
    Gzip(GzDecoder<Vec<u8>>),
    /// In a zlib stream, as the specification says, or bare: the first byte tells.
    Deflate,
    Zlib(ZlibDecoder<Vec<u8>>),
    Bare(DeflateDecoder<Vec<u8>>),
    /// It could not be read: the bytes are taken as they come.
    Failed,
}

impl Inflate {
    /// By the value of `Content-Encoding`; `None`: nothing to be done.
    pub(super) fn of(encoding: &[u8]) -> Option<Self> {
        match encoding.to_ascii_lowercase().as_slice() {
            b"gzip" | b"x-gzip" => Some(Self::Gzip(GzDecoder::new(Vec::new()))),
            b"deflate" | b"x-deflate" => Some(Self::Deflate),
            _ => None,
        }
    }

    /// Appends to `body` what `bytes` become. A byte becomes about a thousand at most.
    pub(super) fn take(&mut self, bytes: &[u8], body: &mut Vec<u8>) {
        if let (Self::Deflate, Some(first)) = (&*self, bytes.first()) {
            *self = match first & 15 {
                8 => Self::Zlib(ZlibDecoder::new(Vec::new())),
                _ => Self::Bare(DeflateDecoder::new(Vec::new())),
            };
        }
        let (result, made) = match self {
            Self::Gzip(decoder) => (write(decoder, bytes), decoder.get_mut()),
            Self::Zlib(decoder) => (write(decoder, bytes), decoder.get_mut()),
            Self::Bare(decoder) => (write(decoder, bytes), decoder.get_mut()),
            Self::Deflate => return,
            Self::Failed => return body.extend_from_slice(bytes),
        };
        body.append(made);
        if !result {
            if body.is_empty() {
                body.extend_from_slice(bytes);
            }
            *self = Self::Failed;
        }
    }
}

/// Whether all could be read; what follows the end of the compressed bytes is passed over.
fn write(decoder: &mut impl Write, bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while !rest.is_empty() {
        match decoder.write(rest) {
            Ok(0) => break,
            Ok(count) => rest = &rest[count..],
            Err(_) => return false,
        }
    }
    decoder.flush().is_ok()
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    const TEXT: &[u8] = b"some text that is long enough to be worth it, it, it, it";

    fn inflated(encoding: &[u8], sent: &[u8], piece: usize) -> Vec<u8> {
        let mut inflate = Inflate::of(encoding).unwrap();
        let mut body = Vec::new();
        sent.chunks(piece).for_each(|it| inflate.take(it, &mut body));
        body
    }

    #[test]
    fn bodies_are_inflated_however_they_are_cut() {
        let level = Compression::default();
        let (mut gzip, mut zlib, mut bare) = (
            GzEncoder::new(Vec::new(), level),
            ZlibEncoder::new(Vec::new(), level),
            DeflateEncoder::new(Vec::new(), level),
        );
        gzip.write_all(TEXT).unwrap();
        zlib.write_all(TEXT).unwrap();
        bare.write_all(TEXT).unwrap();
        let sent = [gzip.finish().unwrap(), zlib.finish().unwrap(), bare.finish().unwrap()];
        for piece in 1..30 {
            assert_eq!(inflated(b"GZip", &sent[0], piece), TEXT);
            assert_eq!(inflated(b"deflate", &sent[1], piece), TEXT);
            assert_eq!(inflated(b"deflate", &sent[2], piece), TEXT);
        }
    }

    #[test]
    fn what_is_not_compressed_is_taken_as_it_comes() {
        assert_eq!(inflated(b"gzip", TEXT, 100), TEXT);
        assert!(Inflate::of(b"br").is_none());
    }
}
