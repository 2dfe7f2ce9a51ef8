//! EVE to a Unix socket that somebody else listens at, as Suricata's `unix_stream`, `unix_dgram`
//! and `syslog`.
//!
//! Nothing waits for the listener. What it does not take at once waits in bounded memory, also
//! while nobody listens, and goes in order; what is beyond is lost, and counted. A line in the
//! midst of which a stream broke goes whole to the next listener. What the kernel took counts as
//! written: a listener that dies may not have read all of it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use super::alerts::{EveFile, EvePlace};
use crate::clock;

/// Bytes that wait for a listener, at most: some thousand events.
const WAITING_BYTES_MAX: usize = 8 << 20;

/// Between two attempts to connect.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Before a line that goes to the machine's syslog (RFC 3164 s4.1): facility local5, severity
/// informational, as Suricata has it.
const SYSLOG_PRIORITY: u8 = 21 * 8 + 6;

/// What lines tell of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineKind {
    Alert,
    Record,
}

/// Who counts what became of something: whether it was written.
pub(super) type Count<'c> = &'c mut dyn FnMut(LineKind, bool);

/// The socket, and what waits for it.
#[derive(Debug)]
pub(super) struct EveSocket {
    pub(super) wanted: EveFile,
    socket: Option<OwnedFd>,
    retry_at: Instant,
    waiting: VecDeque<Line>,
    waiting_bytes: usize,
    /// Bytes of the first line that the stream has.
    sent: usize,
    /// Why nobody takes events, while that is so.
    failure: Option<String>,
}

#[derive(Debug)]
struct Line {
    bytes: Vec<u8>,
    /// What is told with this line, the last of those that tell of it.
    told: Option<LineKind>,
}

impl EveSocket {
    /// It connects with the first line, and again whenever that is needed.
    pub(super) fn new(wanted: EveFile) -> Self {
        Self {
            wanted,
            socket: None,
            retry_at: clock::now(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            sent: 0,
            failure: None,
        }
    }

    /// Hands over whole lines that tell of one thing.
    pub(super) fn write(&mut self, lines: &[u8], told: LineKind, count: Count<'_>) {
        let lines = lines.split_inclusive(|it| *it == b'\n');
        let lines: Vec<Vec<u8>> = lines.map(|it| self.framed(it)).collect();
        let bytes: usize = lines.iter().map(Vec::len).sum();
        if self.waiting_bytes + bytes > WAITING_BYTES_MAX {
            self.send(count);
        }
        if self.waiting_bytes + bytes > WAITING_BYTES_MAX {
            return count(told, false);
        }
        self.waiting_bytes += bytes;
        self.waiting.extend(lines.into_iter().map(|bytes| Line { bytes, told: None }));
        if let Some(last) = self.waiting.back_mut() {
            last.told = Some(told);
        }
        self.send(count);
    }

    /// A line as its listener wants it.
    fn framed(&self, line: &[u8]) -> Vec<u8> {
        match self.wanted.place {
            EvePlace::Syslog => {
                let head = format!("<{SYSLOG_PRIORITY}>weir[{}]: ", std::process::id());
                [head.as_bytes(), line.trim_ascii_end()].concat()
            }
            _ => line.to_vec(),
        }
    }

    /// Sends what waits, as far as somebody takes it now.
    pub(super) fn send(&mut self, count: Count<'_>) {
        while !self.waiting.is_empty() {
            if self.socket.is_none() && !self.connect() {
                return;
            }
            let (Some(socket), Some(line)) = (&self.socket, self.waiting.front()) else { return };
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let rest = &line.bytes[self.sent..];
            match rustix::net::send(socket, rest, flags) {
                Ok(bytes) if bytes < rest.len() && self.wanted.place == EvePlace::Stream => {
                    self.sent += bytes;
                }
                Ok(_) => self.end_line(true, count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // No datagram is as long as this line.
                Err(Errno::MSGSIZE) => self.end_line(false, count),
                Err(error) => return self.broke(&error.into()),
            }
        }
    }

    /// Why events wait, if they do because nobody takes them.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.clone().filter(|_| !self.waiting.is_empty())
    }

    /// What waits is lost: nobody will take it any more.
    pub(super) fn give_up(&mut self, count: Count<'_>) {
        self.send(count);
        if !self.waiting.is_empty() {
            let (path, events) = (self.wanted.path.display(), self.waiting.len());
            tracing::warn!(%path, events, "nobody took these EVE events: they are lost");
        }
        let lost = self.waiting.drain(..).filter_map(|it| it.told);
        lost.for_each(|told| count(told, false));
        self.waiting_bytes = 0;
    }

    fn end_line(&mut self, is_written: bool, count: Count<'_>) {
        self.sent = 0;
        let Some(line) = self.waiting.pop_front() else { return };
        self.waiting_bytes -= line.bytes.len();
        if let Some(told) = line.told {
            count(told, is_written);
        }
    }

    /// Whether there is a connection now. A listener that has no room for one more is as none.
    fn connect(&mut self) -> bool {
        if clock::now() < self.retry_at {
            return false;
        }
        match self.open() {
            Ok(socket) => {
                self.socket = Some(socket);
                if self.failure.take().is_some() {
                    tracing::info!(path = %self.wanted.path.display(), "somebody listens again");
                }
                true
            }
            Err(error) => {
                self.broke(&error);
                false
            }
        }
    }

    fn open(&self) -> io::Result<OwnedFd> {
        let kind = match self.wanted.place {
            EvePlace::Datagrams | EvePlace::Syslog => SocketType::DGRAM,
            EvePlace::Stream | EvePlace::File => SocketType::STREAM,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(&self.wanted.path)?)?;
        Ok(socket)
    }

    fn broke(&mut self, error: &io::Error) {
        (self.socket, self.sent) = (None, 0);
        self.retry_at = clock::now() + RETRY_AFTER;
        let path = self.wanted.path.display();
        let failure = format!("{path}: nobody listens: {error}");
        if self.failure.replace(failure).is_none() {
            tracing::warn!(%path, %error, "nobody listens for EVE: events wait, then are lost");
        }
    }
}
