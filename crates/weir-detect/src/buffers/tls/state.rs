//! How far the two sides of a session have come, as Suricata 8.0.7 reckons it.

use super::{RECORD_APPLICATION, RECORD_CHANGE_CIPHER_SPEC, RECORD_HEARTBEAT, Session};
use crate::buffers::event::AppEvent;
use crate::buffers::progress::Progress;

/// Places of the client's states and the server's among those that rules name.
pub(super) const HELLO: usize = 1;
pub(super) const CERTIFICATE: [usize; 2] = [2, 2];
pub(super) const SERVER_HELLO_DONE: usize = 3;
/// Both sides' own: nothing more of the handshake is awaited, and nothing more at all.
pub(super) const HANDSHAKE: [usize; 2] = [3, 4];
pub(super) const FINISHED: [usize; 2] = [4, 5];

/// Of a heartbeat, its type and length, and the padding behind its payload (RFC 6520 s4).
const HEARTBEAT_LEN: usize = 3;
const HEARTBEAT_PADDING_LEN: usize = 16;

/// Whether a heartbeat awaits its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Heartbeat {
    #[default]
    Answered,
    /// By whom, and how long it was if it was encrypted.
    Asked { by: usize, length: usize },
    /// One was not as it should be.
    Odd,
}

impl Session {
    /// Whether a side has come further since rules looked at it, who do so now.
    pub(crate) fn shows(&mut self, side: usize) -> bool {
        self.progress[side].show()
    }

    /// How far each side has come.
    pub(crate) fn places(&self) -> [usize; 2] {
        self.progress.each_ref().map(Progress::now)
    }

    /// The states that a side came through before rules look at it.
    pub(crate) fn states(&self, side: usize) -> (usize, usize) {
        self.progress[side].states()
    }

    /// A side says no more.
    pub(crate) fn close(&mut self, side: usize) {
        self.progress[side].reach(FINISHED[side]);
    }

    /// Bytes of a side are missing.
    pub(crate) fn lose(&mut self, side: usize) {
        self.sides[side].walk.lose();
    }

    /// Takes in bytes of a side that nobody looks into: the heads of records alone tell something.
    pub(crate) fn pass(&mut self, side: usize, mut bytes: &[u8]) {
        while let Some((kind, length)) = self.sides[side].walk.next(&mut bytes) {
            match kind {
                RECORD_APPLICATION => {
                    self.progress[side].reach(HANDSHAKE[side]);
                    // Before the server's hello it is early data (RFC 8446 s2.3).
                    self.has_data |= self.sides.iter().all(|it| it.has_greeted);
                }
                RECORD_CHANGE_CIPHER_SPEC => self.change_cipher(side),
                RECORD_HEARTBEAT => self.heartbeat(side, length, None),
                _ => {}
            }
        }
    }

    /// All that a side says from here on is encrypted.
    pub(super) fn change_cipher(&mut self, side: usize) {
        self.is_ciphered = true;
        if side == 0 {
            self.progress[0].reach(HANDSHAKE[0]);
        }
    }

    /// Behind the server's certificate nothing more is awaited of either side, unless the server
    /// asks for the client's with the same bytes.
    pub(super) fn settle(&mut self, side: usize) {
        let [client, server] =
            [0, 1].map(|side: usize| self.sides[side].said.certificate.is_some());
        if server && (client || !self.asks_client) {
            self.settled_by.get_or_insert(side);
            (0..2).for_each(|side| self.progress[side].reach(HANDSHAKE[side]));
        }
    }

    /// Whose certificate left nothing more to await of either side, where one did.
    pub(crate) fn settled_by(&self) -> Option<usize> {
        self.settled_by
    }

    /// Whether nothing more of the handshake is awaited of either side.
    pub(super) fn is_settled(&self) -> bool {
        [0, 1].iter().all(|side| self.progress[*side].now() >= HANDSHAKE[*side])
    }

    /// A heartbeat (RFC 6520 s4): one that comes back longer than it went out brings what nobody
    /// asked for (CVE-2014-0160). What is encrypted is known by its length alone.
    /// Behind one that is odd no further one is looked at.
    pub(super) fn heartbeat(&mut self, side: usize, length: usize, fragment: Option<&[u8]>) {
        if length < HEARTBEAT_LEN {
            return;
        }
        let fragment = fragment.filter(|_| !self.is_ciphered);
        let is_known = fragment.is_none_or(|it| matches!(it, [1 | 2, ..]));
        let odd = match self.heartbeat {
            Heartbeat::Odd => return,
            _ if !is_known => Some(AppEvent::TlsInvalidHeartbeat),
            Heartbeat::Answered => {
                let length = if self.is_ciphered { length } else { 0 };
                self.heartbeat = Heartbeat::Asked { by: side, length };
                fragment.and_then(fault)
            }
            Heartbeat::Asked { by, .. } if by == side => Some(AppEvent::TlsInvalidHeartbeat),
            Heartbeat::Asked { length: asked, .. } => {
                self.heartbeat = Heartbeat::Answered;
                let leaks = self.is_ciphered && asked > 0 && asked < length;
                leaks.then_some(AppEvent::TlsHeartbeatLeak)
            }
        };
        if let Some(event) = odd {
            self.heartbeat = Heartbeat::Odd;
            self.raise(event);
        }
    }
}

/// What is wrong with lengths of a heartbeat in clear.
fn fault(fragment: &[u8]) -> Option<AppEvent> {
    let [_, high, low, ..] = *fragment else { return None };
    let end = HEARTBEAT_LEN + usize::from(u16::from_be_bytes([high, low]));
    match fragment.len() {
        length if end > length => Some(AppEvent::TlsOverflowHeartbeat),
        length if end + HEARTBEAT_PADDING_LEN > length => Some(AppEvent::TlsInvalidHeartbeat),
        _ => None,
    }
}
