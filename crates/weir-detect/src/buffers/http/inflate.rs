//! Bodies that are sent compressed (RFC 9110 s8.4): gzip and deflate.

use std::io::Write;

use flate2::write::{DeflateDecoder, GzDecoder, ZlibDecoder};

use super::odd::contains;
use crate::digest::Digester;

/// Encodings within each other that are undone, at most (Suricata's limit).
const LAYERS_MAX: usize = 2;
/// Bytes that are inflated at a time.
const STEP: usize = 256;
/// A body is a bomb that becomes so long, and so many times as long as it came (Suricata's limits).
/// It is not inflated further.
const BOMB_LEN: usize = 1 << 20;
const BOMB_RATIO: usize = 2048;

/// What makes a body's bytes of those that were sent.
#[derive(Debug)]
pub(super) struct Inflate {
    /// The one that was applied last is undone first.
    layers: Vec<Layer>,
    came: usize,
    made: usize,
    is_over: bool,
}

#[derive(Debug)]
enum Layer {
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
        let names = encoding.split(|it| matches!(it, b',' | b' ')).filter(|it| !it.is_empty());
        let layers: Vec<Layer> = names.take(LAYERS_MAX).filter_map(Layer::of).collect();
        let new = || Self { layers, came: 0, made: 0, is_over: false };
        (!encoding.is_empty()).then(new).filter(|it| !it.layers.is_empty())
    }

    /// Bytes that came of it so far.
    pub(super) fn made(&self) -> usize {
        self.made
    }

    /// Whether all that came was inflated.
    pub(super) fn is_whole(&self) -> bool {
        !self.is_over
    }

    /// Appends to `body` what `bytes` become, until it has `most` bytes, and gives all of it to
    /// the `digester`, for whom it is inflated further; whether it is a bomb: says yes once.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        body: &mut Vec<u8>,
        most: usize,
        digester: Option<&mut Digester>,
    ) -> bool {
        let mut digester = digester;
        for step in bytes.chunks(STEP) {
            if self.is_over {
                return false;
            }
            self.came += step.len();
            let mut made = step.to_vec();
            for layer in self.layers.iter_mut().rev() {
                let mut next = Vec::new();
                for piece in made.chunks(STEP) {
                    next.append(&mut layer.take(piece));
                    let before = if digester.is_some() { 0 } else { self.made };
                    if before + next.len() > BOMB_LEN {
                        self.is_over = true;
                        break;
                    }
                }
                made = next;
            }
            self.made += made.len();
            digester.iter_mut().for_each(|it| it.update(&made));
            made.truncate(most.saturating_sub(body.len()));
            body.append(&mut made);
            let is_bomb = self.made > BOMB_LEN && self.made / BOMB_RATIO > self.came;
            // Beyond, nobody looks at it, and it becomes no bomb.
            let is_beyond =
                self.made > BOMB_LEN || (body.len() >= most && self.came * BOMB_RATIO > BOMB_LEN);
            self.is_over |= is_bomb || (is_beyond && digester.is_none());
            if is_bomb {
                return true;
            }
        }
        false
    }
}

impl Layer {
    fn of(name: &[u8]) -> Option<Self> {
        match () {
            () if contains(name, b"gzip") => Some(Self::Gzip(GzDecoder::new(Vec::new()))),
            () if contains(name, b"deflate") => Some(Self::Deflate),
            () => None,
        }
    }

    /// What `bytes` become: about a thousand times as many, at most.
    fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
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
            Self::Deflate => return Vec::new(),
            Self::Failed => return bytes.to_vec(),
        };
        let mut made = std::mem::take(made);
        if !result {
            if made.is_empty() {
                made = bytes.to_vec();
            }
            *self = Self::Failed;
        }
        made
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
    use crate::digest::FileDigests;

    const TEXT: &[u8] = b"some text that is long enough to be worth it, it, it, it";

    fn inflated(encoding: &[u8], sent: &[u8], piece: usize) -> Vec<u8> {
        let mut inflate = Inflate::of(encoding).unwrap();
        let mut body = Vec::new();
        sent.chunks(piece).for_each(|it| _ = inflate.take(it, &mut body, 1000, None));
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

    fn gzipped(bytes: &[u8]) -> Vec<u8> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(bytes).unwrap();
        gzip.finish().unwrap()
    }

    #[test]
    fn encodings_within_each_other_are_undone() {
        let mut deflate = ZlibEncoder::new(Vec::new(), Compression::default());
        deflate.write_all(&gzipped(TEXT)).unwrap();
        let sent = deflate.finish().unwrap();
        for piece in [1, 7, 1000] {
            assert_eq!(inflated(b"gzip, deflate", &sent, piece), TEXT);
        }
    }

    #[test]
    fn a_bomb_is_told_of_and_left() {
        let mut inflate = Inflate::of(b"gzip, gzip").unwrap();
        let mut body = Vec::new();
        let bomb = gzipped(&gzipped(&vec![0; 20 << 20]));
        assert!(inflate.take(&bomb, &mut body, 5000, None) && !inflate.is_whole());
        assert_eq!(body, [0; 5000]);
        assert!(inflate.made < 2 * BOMB_LEN, "{}", inflate.made);
        assert!(!inflate.take(&bomb, &mut body, 5000, None));
        let wanted = FileDigests { md5: true, ..FileDigests::default() };
        let mut inflate = Inflate::of(b"gzip, gzip").unwrap();
        assert!(inflate.take(&bomb, &mut body, 5000, Digester::of(wanted).as_deref_mut()));
        assert!(inflate.made < 3 * BOMB_LEN && !inflate.is_whole(), "{}", inflate.made);
    }

    #[test]
    fn what_is_not_compressed_is_taken_as_it_comes() {
        assert_eq!(inflated(b"gzip", TEXT, 100), TEXT);
        assert!(Inflate::of(b"br").is_none());
    }
}
