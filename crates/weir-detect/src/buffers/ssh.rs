//! SSH's identification lines (RFC 4253 s4.2): `SSH-2.0-OpenSSH_9.6 comment`.

use super::event::{AppEvent, AppEvents};

/// Bytes of a line, at most; a longer one is none (RFC 4253 s4.2: 255).
const LINE_LEN_MAX: usize = 255;
/// Message that says that all that follows is encrypted.
const NEWKEYS: u8 = 21;

/// What a side says it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Banner {
    held: Vec<u8>,
    /// The line came.
    is_done: bool,
    /// Nothing more is looked at.
    is_over: bool,
    /// Bytes of a packet that are passed over.
    left: usize,
    pub(crate) protocol: Vec<u8>,
    pub(crate) software: Vec<u8>,
    pub(crate) events: AppEvents,
    /// Of that, what was not handed over, by the side whose rules are to look at it.
    fresh: [Vec<AppEvent>; 2],
}

impl Banner {
    /// Takes in a side's next bytes; whether they told what it is.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> bool {
        if self.is_over {
            return false;
        }
        self.held.extend_from_slice(bytes);
        if self.is_done {
            self.packets();
            return false;
        }
        while let Some(end) = self.held.iter().position(|it| *it == b'\n') {
            let line: Vec<u8> = self.held.drain(..=end).collect();
            let line = line.trim_ascii_end();
            // Servers may say other things before.
            let Some(rest) = line.strip_prefix(b"SSH-") else {
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
            let software = rest[dash + 1..].split(|it| *it == b' ').next();
            self.software = software.unwrap_or_default().to_vec();
            if line.len() > LINE_LEN_MAX {
                self.raise(AppEvent::SshLongBanner);
            }
            self.packets();
            return true;
        }
        if self.held.len() > LINE_LEN_MAX {
            self.give_up(AppEvent::SshLongBanner);
        }
        false
    }

    /// Walks over packets until they are encrypted (RFC 4253 s6).
    fn packets(&mut self) {
        loop {
            let passed = self.left.min(self.held.len());
            self.held.drain(..passed);
            self.left -= passed;
            let [a, b, c, d, _, kind, ..] = self.held[..] else { return };
            let length = u32::from_be_bytes([a, b, c, d]);
            if length < 2 {
                return self.give_up(AppEvent::SshRecord);
            }
            if kind == NEWKEYS {
                (self.is_over, self.held) = (true, Vec::new());
                return;
            }
            self.left = 4 + length as usize;
        }
    }

    fn give_up(&mut self, event: AppEvent) {
        self.raise(event);
        (self.is_over, self.held) = (true, Vec::new());
    }

    fn raise(&mut self, event: AppEvent) {
        if self.events.raise(event) {
            self.fresh.iter_mut().for_each(|it| it.push(event));
        }
    }

    /// What was odd and not looked at with packets of a side before.
    pub(crate) fn take_events(&mut self, side: usize) -> Vec<AppEvent> {
        std::mem::take(&mut self.fresh[side])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_apart_however_it_is_cut() {
        let line = b"hello\r\nSSH-2.0-OpenSSH_9.6p1 Debian\r\n\0\0binary\n";
        for piece in 1..line.len() {
            let mut banner = Banner::default();
            let told = line.chunks(piece).filter(|it| banner.take(it)).count();
            assert_eq!(told, 1);
            assert_eq!(banner.protocol, b"2.0");
            assert_eq!(banner.software, b"OpenSSH_9.6p1");
        }
        let mut banner = Banner::default();
        assert!(!banner.take(&[b'x'; 300]) && !banner.take(b"\nSSH-2.0-a\n"));
        assert_eq!(banner.take_events(0), [AppEvent::SshLongBanner]);
        let mut banner = Banner::default();
        assert!(!banner.take(b"SSH-2.0\r\n"));
        assert_eq!(banner.take_events(1), [AppEvent::SshBanner]);
    }

    #[test]
    fn packets_are_walked_over_until_they_are_encrypted() {
        let mut banner = Banner::default();
        banner.take(b"SSH-2.0-a\r\n\0\0\0\x06\x04\x14abcd");
        assert_eq!(banner.take_events(0), []);
        let mut other = banner.clone();
        banner.take(b"\0\0\0\x01\0\0");
        assert_eq!(banner.take_events(0), [AppEvent::SshRecord]);
        other.take(b"\0\0\0\x06\x04\x15abcd\0\0\0\0\0\0");
        assert!(other.take_events(0).is_empty() && other.is_over);
    }
}
