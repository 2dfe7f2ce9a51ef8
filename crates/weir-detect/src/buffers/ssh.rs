//! SSH's beginning (RFC 4253): both sides' lines, `SSH-2.0-OpenSSH_9.6 comment`, and what they
//! offer to encrypt by, whose digest is called HASSH.

use super::event::{AppEvent, AppEvents};
use super::progress::Progress;
use crate::digest;
use crate::heap::heap_size;
use crate::rule::Buffer;
use crate::value::Object;

/// Bytes of a line, at most; a longer one is none (RFC 4253 s4.2: 255).
const LINE_LEN_MAX: usize = 255;
/// Message that says what a side offers (RFC 4253 s7.1).
const KEXINIT: u8 = 20;
/// Message that says that all that follows is encrypted.
const NEWKEYS: u8 = 21;
/// Bytes of an offer, at most; a longer one is passed over (Suricata's limit, as RFC 4253 s6.1 has
/// it with room).
const OFFER_LEN_MAX: usize = 65_535;
/// In an offer, what stands before its lists: the packet's head, the message and the cookie.
const LISTS_AT: usize = 4 + 1 + 1 + 16;
/// Its lists up to those of languages.
const LISTS: usize = 8;

/// States by their places among those that rules name: a side's line has come; both encrypt.
const BANNER_DONE: usize = 2;
const FINISHED: usize = 3;

/// What both sides say.
#[derive(Debug, Default)]
pub(crate) struct Session {
    sides: [Banner; 2],
    progress: [Progress; 2],
    is_told: bool,
    /// What is no banner ends the reading, although servers may say it before theirs (RFC 4253
    /// s4.2).
    pub(crate) is_strict: bool,
}
heap_size!(Session { sides });

impl Session {
    /// Takes in a side's next bytes; whether they told something.
    pub(crate) fn take(&mut self, side: usize, bytes: &[u8]) -> bool {
        let told = self.sides[side].take(side, bytes, self.is_strict);
        let state = match &self.sides {
            _ if self.is_encrypted() => FINISHED,
            sides if sides[side].is_known() => BANNER_DONE,
            _ => 0,
        };
        self.progress[side].reach(state);
        told
    }

    /// Whether a side has said its banner, and nothing behind it.
    pub(crate) fn has_greeted_alone(&self, side: usize) -> bool {
        let Banner { is_done, held, offer_digest, is_encrypted, .. } = &self.sides[side];
        *is_done && held.is_empty() && offer_digest.is_empty() && !is_encrypted
    }

    /// Whether all that comes is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.sides.iter().all(|it| it.is_encrypted)
    }

    /// Whether a side has come further since rules looked at it, who do so now.
    pub(crate) fn shows(&mut self, side: usize) -> bool {
        self.progress[side].show()
    }

    /// The states that a side came through before rules look at it.
    pub(crate) fn states(&self, side: usize) -> (usize, usize) {
        self.progress[side].states()
    }

    /// Calls `look` with the buffer as a side has it, if it has; what `look` says.
    pub(crate) fn each(
        &self,
        side: usize,
        buffer: Buffer,
        look: &mut dyn FnMut(&[u8]) -> bool,
    ) -> bool {
        let own = &self.sides[side];
        let bytes = match (buffer, side) {
            (Buffer::SshProtocol, _) => &own.protocol,
            (Buffer::SshSoftware, _) => &own.software,
            (Buffer::SshHassh, 0) | (Buffer::SshHasshServer, 1) => &own.offer_digest,
            (Buffer::SshHasshString, 0) | (Buffer::SshHasshServerString, 1) => &own.offer,
            _ => return false,
        };
        !bytes.is_empty() && look(bytes)
    }

    /// Whether something was odd about what either side said.
    pub(crate) fn has(&self, event: AppEvent) -> bool {
        self.sides.iter().any(|it| it.events.has(event))
    }

    /// Whether a side has said what is no SSH.
    pub(crate) fn has_failed(&self) -> bool {
        self.sides.iter().any(|it| it.has_failed)
    }

    /// What was odd and not looked at with packets of a side before.
    pub(crate) fn take_events(&mut self, side: usize) -> Vec<AppEvent> {
        self.sides.iter_mut().flat_map(|it| it.take_events(side)).collect()
    }

    /// Whether both sides' beginnings are over, or, for who wants it early, both have said what
    /// they are, and nobody was told of it.
    pub(crate) fn is_to_be_told(&self, early: bool) -> bool {
        let is_over = |it: &Banner| match (early, self.is_strict) {
            (true, _) => it.is_known() || it.is_told(),
            // Who wants to know what both offer waits until they encrypt.
            (false, true) => it.is_encrypted,
            (false, false) => it.is_told(),
        };
        let gives_up = self.is_strict && self.has_failed();
        !self.is_told && (gives_up || self.sides.iter().all(is_over))
    }

    /// What is told of it, once, if either side has said what it is.
    pub(crate) fn record(&mut self) -> Option<Object> {
        let is_told = std::mem::replace(&mut self.is_told, true);
        let is_known = self.sides.iter().any(Banner::is_known);
        (!is_told && is_known).then(|| self.object())
    }

    /// What is known of it.
    pub(crate) fn object(&self) -> Object {
        let mut object = Object::default();
        for (name, banner) in ["client", "server"].into_iter().zip(&self.sides) {
            object.put_some(name, banner.is_known().then(|| banner.object()));
        }
        object
    }
}

/// What a side says it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Banner {
    held: Vec<u8>,
    /// The line came.
    is_done: bool,
    /// Nothing more is looked at.
    is_over: bool,
    /// Nothing more can be looked at.
    has_failed: bool,
    /// All that follows is encrypted.
    is_encrypted: bool,
    /// Bytes of a packet that are passed over.
    left: usize,
    protocol: Vec<u8>,
    software: Vec<u8>,
    /// What it offers for its own direction: `kex;cipher;mac;compression`.
    offer: Vec<u8>,
    /// MD5 of that, in hex.
    offer_digest: Vec<u8>,
    events: AppEvents,
    /// Of that, what was not handed over, by the side whose rules are to look at it.
    fresh: [Vec<AppEvent>; 2],
}
heap_size!(Banner { held, protocol, software, offer, offer_digest });

/// Whether a side that begins so speaks SSH; in which case matters to its banner alone.
pub(crate) fn begins(bytes: &[u8]) -> bool {
    bytes.get(..4).is_some_and(|it| it.eq_ignore_ascii_case(b"SSH-"))
}

impl Banner {
    /// Takes in a side's next bytes; whether they told what it is, or what it offers.
    fn take(&mut self, side: usize, bytes: &[u8], is_strict: bool) -> bool {
        if self.is_over {
            return false;
        }
        self.held.extend_from_slice(bytes);
        if self.is_done {
            return self.all_packets(side);
        }
        while let Some(end) = end_of_line(&self.held) {
            let line: Vec<u8> = self.held.drain(..=end).collect();
            let line = line.trim_ascii_end();
            // Servers may say other things before.
            let Some(rest) = line.strip_prefix(b"SSH-") else {
                if is_strict {
                    self.give_up(AppEvent::SshBanner);
                    return false;
                }
                self.raise(AppEvent::SshBanner);
                continue;
            };
            self.is_done = true;
            let dash = rest.iter().position(|it| *it == b'-').filter(|it| *it > 0);
            let Some(dash) = dash else {
                self.give_up(AppEvent::SshBanner);
                return false;
            };
            self.protocol = rest[..dash].to_vec();
            let mut words = rest[dash + 1..].split(|it| *it == b' ').filter(|it| !it.is_empty());
            self.software = words.next().unwrap_or_default().to_vec();
            if line.len() > LINE_LEN_MAX {
                self.raise(AppEvent::SshLongBanner);
            }
            self.all_packets(side);
            return true;
        }
        if self.held.len() > LINE_LEN_MAX {
            self.give_up(AppEvent::SshLongBanner);
        }
        false
    }

    fn all_packets(&mut self, side: usize) -> bool {
        let told = self.packets(side);
        if self.is_over {
            self.held = Vec::new();
        }
        told
    }

    /// Walks over packets until they are encrypted (RFC 4253 s6); whether one told what is offered.
    fn packets(&mut self, side: usize) -> bool {
        let mut told = false;
        loop {
            let passed = self.left.min(self.held.len());
            self.held.drain(..passed);
            self.left -= passed;
            let [a, b, c, d, _, kind, ..] = self.held[..] else { return told };
            let length = u32::from_be_bytes([a, b, c, d]);
            if length < 2 {
                if !self.is_over {
                    self.give_up(AppEvent::SshRecord);
                }
                return told;
            }
            // An offer may stand behind it in the same bytes, for who looks there.
            if kind == NEWKEYS {
                (self.is_over, self.is_encrypted) = (true, true);
            }
            if self.is_over && !self.offer.is_empty() {
                return told;
            }
            let length = 4 + length as usize;
            let is_long = length > OFFER_LEN_MAX;
            if kind == KEXINIT && is_long && !self.is_over {
                self.raise(AppEvent::SshLongOffer);
            }
            if kind == KEXINIT && !is_long {
                let Some(packet) = self.held.get(..length) else { return told };
                self.offer = offer(packet, side).unwrap_or_default();
                self.offer_digest = match self.offer.is_empty() {
                    true => Vec::new(),
                    false => digest::hex(&digest::md5(&self.offer)),
                };
                told = true;
            }
            self.left = length;
        }
    }

    /// Whether it has said what it is.
    fn is_known(&self) -> bool {
        !self.protocol.is_empty()
    }

    /// Whether nothing more is to be told of it.
    fn is_told(&self) -> bool {
        self.is_over || !self.offer.is_empty()
    }

    /// What is told of it.
    fn object(&self) -> Object {
        let some = |bytes: &Vec<u8>| Some(bytes.clone()).filter(|it| !it.is_empty());
        let mut object = Object::default();
        object.put_some("proto_version", some(&self.protocol).as_ref());
        object.put_some("software_version", some(&self.software).as_ref());
        if !self.offer.is_empty() {
            let offer = Object::default();
            let offer = offer.with("hash", &self.offer_digest).with("string", &self.offer);
            object.put("hassh", offer);
        }
        object
    }

    fn give_up(&mut self, event: AppEvent) {
        self.raise(event);
        (self.is_over, self.has_failed, self.held) = (true, true, Vec::new());
    }

    fn raise(&mut self, event: AppEvent) {
        if self.events.raise(event) {
            self.fresh.iter_mut().for_each(|it| it.push(event));
        }
    }

    /// What was odd and not looked at with packets of a side before.
    fn take_events(&mut self, side: usize) -> Vec<AppEvent> {
        std::mem::take(&mut self.fresh[side])
    }
}

/// Where a line ends: by a line feed, or a carriage return that something else follows.
fn end_of_line(bytes: &[u8]) -> Option<usize> {
    let is_end = |at: usize, byte: u8| match byte {
        b'\n' => true,
        b'\r' => bytes.get(at + 1).is_some_and(|it| *it != b'\n'),
        _ => false,
    };
    bytes.iter().enumerate().find(|(at, byte)| is_end(*at, **byte)).map(|it| it.0)
}

/// Of a packet's lists those of the keys' exchange, and of a side's own direction.
fn offer(packet: &[u8], side: usize) -> Option<Vec<u8>> {
    let mut rest = packet.get(LISTS_AT..)?;
    let mut lists = Vec::new();
    for _ in 0..LISTS {
        let (list, behind) = super::tls::counted(rest, 4)?;
        lists.push(list);
        rest = behind;
    }
    // Exchange, host keys, then ciphers, codes and compressions, each of both directions.
    let own = [lists[0], lists[2 + side], lists[4 + side], lists[6 + side]];
    Some(own.join(&b';'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_side_offers_is_told_however_it_is_cut() {
        let mut payload = vec![4, KEXINIT];
        payload.extend([0; 16]);
        for list in ["kex", "key", "c0", "c1", "m0", "m1", "z0", "z1", "", ""] {
            payload.extend((list.len() as u32).to_be_bytes());
            payload.extend(list.as_bytes());
        }
        payload.extend([0; 9]);
        let length = (payload.len() as u32).to_be_bytes();
        let said = [b"SSH-2.0-a\r\n".as_slice(), &length, &payload].concat();
        for piece in 1..said.len() {
            let mut banner = Banner::default();
            let told = said.chunks(piece).filter(|it| banner.take(1, it, false)).count();
            assert_eq!(told, 2);
            assert_eq!(banner.offer, b"kex;c1;m1;z1");
            assert_eq!(banner.offer_digest.len(), 32);
        }
        let mut banner = Banner::default();
        banner.take(0, &said, false);
        assert_eq!(banner.offer, b"kex;c0;m0;z0");
    }

    #[test]
    fn a_line_is_taken_apart_however_it_is_cut() {
        let line = b"hello\r\nSSH-2.0-OpenSSH_9.6p1 Debian\r\n\0\0binary\n";
        for piece in 1..line.len() {
            let mut banner = Banner::default();
            let told = line.chunks(piece).filter(|it| banner.take(0, it, false)).count();
            assert_eq!(told, 1);
            assert_eq!(banner.protocol, b"2.0");
            assert_eq!(banner.software, b"OpenSSH_9.6p1");
        }
        let mut banner = Banner::default();
        assert!(!banner.take(0, &[b'x'; 300], false) && !banner.take(0, b"\nSSH-2.0-a\n", false));
        assert_eq!(banner.take_events(0), [AppEvent::SshLongBanner]);
        let mut banner = Banner::default();
        assert!(!banner.take(0, b"SSH-2.0\r\n", false));
        assert_eq!(banner.take_events(1), [AppEvent::SshBanner]);
    }

    #[test]
    fn a_side_alone_is_told_of() {
        let mut session = Session::default();
        assert_eq!(session.record(), None);
        for (side, name) in ["client", "server"].into_iter().enumerate() {
            let mut session = Session::default();
            session.take(side, b"SSH-2.0-a\r\n");
            assert!(!session.is_to_be_told(true));
            let told = session.record().unwrap();
            assert_eq!(told.iter().map(|it| it.0).collect::<Vec<_>>(), [name]);
            assert_eq!(session.record(), None, "once");
        }
    }

    #[test]
    fn packets_are_walked_over_until_they_are_encrypted() {
        let mut banner = Banner::default();
        banner.take(0, b"SSH-2.0-a\r\n\0\0\0\x06\x04\x14abcd", false);
        assert_eq!(banner.take_events(0), []);
        let mut other = banner.clone();
        banner.take(0, b"\0\0\0\x01\0\0", false);
        assert_eq!(banner.take_events(0), [AppEvent::SshRecord]);
        other.take(0, b"\0\0\0\x06\x04\x15abcd\0\0\0\0\0\0", false);
        assert!(other.take_events(0).is_empty() && other.is_over);
    }
}
