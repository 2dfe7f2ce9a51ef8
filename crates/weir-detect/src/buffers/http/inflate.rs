//! Bodies that are sent compressed (RFC 9110 s8.4): gzip and deflate.

use std::io::Write;

use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

use super::odd::contains;
use crate::digest::Digester;
use crate::heap::{HeapSize, INFLATE_SIZE};

/// Encodings within each other that are undone, at most (Suricata's limit).
const LAYERS_MAX: usize = 2;
/// Bytes that are inflated at a time.
const STEP: usize = 256;
/// First bytes of a body that are kept, to be shown as they came if they turn out not to be
/// compressed.
const DOUBT_LEN: usize = 2048;
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

impl HeapSize for Inflate {
    fn heap_size(&self) -> usize {
        let of_state = |it: &Layer| match it.state {
            State::Open | State::Plain => 0,
            State::Gzip(_) | State::Zlib(_) | State::Bare(_) => INFLATE_SIZE,
        };
        let of_layer = |it: &Layer| size_of::<Layer>() + it.given.heap_size() + of_state(it);
        self.layers.iter().map(of_layer).sum()
    }
}

/// One encoding. What it is called and what it is may differ: its first bytes tell.
#[derive(Debug)]
struct Layer {
    state: State,
    /// Its name is one that no bare stream has.
    is_foreign: bool,
    /// The first bytes, as long as they may have been taken for what they are not.
    given: Option<Vec<u8>>,
    /// Something came of them.
    has_made: bool,
}

#[derive(Debug)]
enum State {
    /// Too little came.
    Open,
    /// Of several members, it may be (RFC 1952 s2.2).
    Gzip(MultiGzDecoder<Vec<u8>>),
    Zlib(ZlibDecoder<Vec<u8>>),
    Bare(DeflateDecoder<Vec<u8>>),
    /// It is not compressed, or could not be read: the bytes are taken as they come.
    Plain,
}

/// What came of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    All,
    /// The compressed bytes end before.
    Ended,
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
            let made = self.through(step.to_vec(), false, digester.is_some());
            self.add(made, body, most, digester.as_deref_mut());
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

    /// No more comes: shows what was held back.
    pub(super) fn finish(
        &mut self,
        body: &mut Vec<u8>,
        most: usize,
        digester: Option<&mut Digester>,
    ) {
        if !self.is_over {
            let made = self.through(Vec::new(), true, digester.is_some());
            self.add(made, body, most, digester);
        }
    }

    /// What the layers make of bytes; with `is_last`, of all that came.
    fn through(&mut self, bytes: Vec<u8>, is_last: bool, is_digested: bool) -> Vec<u8> {
        let before = if is_digested { 0 } else { self.made };
        let mut made = bytes;
        for layer in self.layers.iter_mut().rev() {
            let mut next = Vec::new();
            for piece in made.chunks(STEP) {
                next.append(&mut layer.take(piece));
                if before + next.len() > BOMB_LEN {
                    self.is_over = true;
                    break;
                }
            }
            if is_last {
                next.append(&mut layer.finish());
            }
            made = next;
        }
        made
    }

    fn add(
        &mut self,
        mut made: Vec<u8>,
        body: &mut Vec<u8>,
        most: usize,
        digester: Option<&mut Digester>,
    ) {
        self.made += made.len();
        digester.into_iter().for_each(|it| it.update(&made));
        made.truncate(most.saturating_sub(body.len()));
        body.append(&mut made);
    }
}

impl Layer {
    fn of(name: &[u8]) -> Option<Self> {
        let is_foreign = name.eq_ignore_ascii_case(b"br");
        let is_known = is_foreign || contains(name, b"gzip") || contains(name, b"deflate");
        let given = Some(Vec::new());
        is_known.then_some(Self { state: State::Open, is_foreign, given, has_made: false })
    }

    /// What `bytes` become: about a thousand times as many, at most.
    fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        if let State::Plain = self.state {
            return bytes.to_vec();
        }
        let mut first = Vec::new();
        if let Some(given) = &mut self.given {
            given.extend_from_slice(bytes);
            if let State::Open = self.state {
                let Some(state) = State::of(given, self.is_foreign) else { return Vec::new() };
                (self.state, first) = (state, given.clone());
            }
        }
        let (written, mut made) = self.state.take(if first.is_empty() { bytes } else { &first });
        self.has_made |= !made.is_empty();
        let is_bare = matches!(self.state, State::Bare(_));
        match written {
            Written::Failed => made.append(&mut self.fail(bytes)),
            Written::Ended if is_bare => made.append(&mut self.give_up()),
            Written::Ended => {}
            Written::All => {
                if let Some(given) = self.given.take_if(|it| it.len() > DOUBT_LEN)
                    && !self.has_made
                {
                    made = given;
                }
            }
        }
        made
    }

    /// No more comes: what of it was not shown.
    fn finish(&mut self) -> Vec<u8> {
        let is_doubtful = match &mut self.state {
            // Whatever begins like a bare stream and does not end like one.
            State::Bare(decoder) => decoder.write(&[0]).ok() != Some(0),
            _ => !self.has_made,
        };
        if is_doubtful { self.give_up() } else { Vec::new() }
    }

    /// The bytes so far as they came, as will be those to come.
    fn give_up(&mut self) -> Vec<u8> {
        let Some(given) = self.given.take() else { return Vec::new() };
        self.state = State::Plain;
        given
    }

    /// The last `bytes` could not be read: what is shown instead.
    fn fail(&mut self, bytes: &[u8]) -> Vec<u8> {
        let is_zlib = matches!(self.state, State::Zlib(_)) && !self.has_made;
        let given = self.give_up();
        self.state = State::Plain;
        if given.is_empty() {
            return bytes.to_vec();
        }
        // Its checksum may be wrong, or it is bare and begins so by chance.
        for from in [2, 0].into_iter().filter(|_| is_zlib) {
            let mut state = State::Bare(DeflateDecoder::new(Vec::new()));
            let (written, made) = state.take(given.get(from..).unwrap_or_default());
            if written != Written::Failed && !made.is_empty() {
                (self.state, self.given) = (state, Some(given));
                return made;
            }
        }
        given
    }
}

impl State {
    /// Which it is, by the first bytes of the body.
    fn of(given: &[u8], is_foreign: bool) -> Option<Self> {
        let [first, second, ..] = given else { return None };
        let word = u16::from_be_bytes([*first, *second]);
        Some(match (first, second) {
            (0x1f, 0x8b) => Self::Gzip(MultiGzDecoder::new(Vec::new())),
            // RFC 1950 s2.2.
            _ if first & 15 == 8 && word.is_multiple_of(31) => {
                Self::Zlib(ZlibDecoder::new(Vec::new()))
            }
            _ if is_foreign => Self::Plain,
            _ => Self::Bare(DeflateDecoder::new(Vec::new())),
        })
    }

    fn take(&mut self, bytes: &[u8]) -> (Written, Vec<u8>) {
        let (written, made) = match self {
            Self::Gzip(decoder) => (write(decoder, bytes), decoder.get_mut()),
            Self::Zlib(decoder) => (write(decoder, bytes), decoder.get_mut()),
            Self::Bare(decoder) => (write(decoder, bytes), decoder.get_mut()),
            Self::Open | Self::Plain => return (Written::All, bytes.to_vec()),
        };
        (written, std::mem::take(made))
    }
}

/// Whether all could be read.
fn write(decoder: &mut impl Write, bytes: &[u8]) -> Written {
    let mut rest = bytes;
    while !rest.is_empty() {
        match decoder.write(rest) {
            Ok(0) => return Written::Ended,
            Ok(count) => rest = &rest[count..],
            Err(_) => return Written::Failed,
        }
    }
    if decoder.flush().is_ok() { Written::All } else { Written::Failed }
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
        sent.chunks(piece).for_each(|it| _ = inflate.take(it, &mut body, 100_000, None));
        inflate.finish(&mut body, 100_000, None);
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
    fn what_is_not_compressed_or_otherwise_than_named_is_shown() {
        let level = Compression::default();
        let (mut zlib, mut bare) =
            (ZlibEncoder::new(Vec::new(), level), DeflateEncoder::new(Vec::new(), level));
        zlib.write_all(TEXT).unwrap();
        bare.write_all(TEXT).unwrap();
        let (zlib, bare) = (zlib.finish().unwrap(), bare.finish().unwrap());
        let spoiled = [&zlib[..zlib.len() - 1], b"?"].concat();
        // Bare streams that end at once, or whose beginning could go on.
        let short =
            [b"evil".as_slice(), b"cevil", b"\x03\0evil", b"x\x9cevil", b"\x1f\x8b\x08evil"];
        for piece in [1, 3, 1000] {
            for name in [b"gzip".as_slice(), b"deflate", b"br", b"gzip, gzip"] {
                for sent in [gzipped(TEXT), zlib.clone(), spoiled.clone(), TEXT.to_vec()] {
                    let found = inflated(name, &sent, piece);
                    assert!(contains(&found, TEXT), "{name:?} {piece} {sent:?}");
                }
                for sent in short {
                    let found = inflated(name, sent, piece);
                    assert!(contains(&found, b"evil"), "{name:?} {piece} {sent:?} {found:?}");
                }
            }
            assert_eq!(inflated(b"gzip", &bare, piece), TEXT);
        }
        assert!(Inflate::of(b"identity").is_none());
    }

    #[test]
    fn what_stands_behind_the_first_member_is_shown() {
        let long = [TEXT; 100].concat();
        for (first, rest) in
            [(&b""[..], gzipped(b"evil")), (TEXT, gzipped(b"evil")), (&long, gzipped(b"evil"))]
        {
            let sent = [gzipped(first), rest].concat();
            for piece in [1, 7, 10_000] {
                assert_eq!(inflated(b"gzip", &sent, piece), [first, b"evil"].concat());
            }
        }
        for first in [&b""[..], TEXT, &long] {
            let sent = [&gzipped(first)[..], b"plain evil"].concat();
            for piece in [1, 7, 10_000] {
                let found = inflated(b"gzip", &sent, piece);
                assert!(found.starts_with(first) && contains(&found, b"plain evil"), "{piece}");
            }
        }
    }

    #[test]
    fn what_breaks_off_is_shown_as_it_came() {
        // A block that is stored (RFC 1951 s3.2.4), and one of no kind.
        let text = [b'a'; 4000];
        let head = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\0\xa0\x0f\x5f\xf0";
        let sent = [head.as_slice(), &text, b"\x07 evil"].concat();
        let found = inflated(b"gzip", &sent, 100);
        assert!(found.starts_with(&text) && contains(&found, b"evil"));
    }
}
