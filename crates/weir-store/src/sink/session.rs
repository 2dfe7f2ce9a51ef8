//! What carries a collector's messages: datagrams that are sent and forgotten, or a stream that
//! keeps every message until the collector's host has acknowledged it. (What that host's kernel
//! acknowledged and its collector never read, because it crashed, IPFIX has no means to tell.)
//!
//! ```text
//!  submit --> ready (memory) --full--> spool (disk)
//!               | renumbered for this session
//!               v
//!            stream --> unconfirmed --acknowledged--> gone
//!               |            |
//!               +---lost-----+--> ready again
//! ```

use std::collections::VecDeque;
use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use weir_wire::frame::Time;

use super::encoder::{Encoder, Message};
use super::ipfix;
use super::spool::{Spool, SpoolError, Stored};
use super::transport::{Stream, TlsClient, udp};
use crate::clock;

/// Bytes that wait in memory before the disk is used.
const READY_BYTES_MAX: usize = 256 << 10;

/// Bytes that may be on their way unacknowledged; further messages wait.
const UNCONFIRMED_BYTES_MAX: usize = 1 << 20;

/// Between attempts to reach a collector: the first, and the longest after doubling.
const RETRY_FIRST: Duration = Duration::from_millis(250);
const RETRY_LONGEST: Duration = Duration::from_secs(30);

/// A connection on which nothing moves for so long, although something waits, is given up.
const STALLED_AFTER: Duration = Duration::from_secs(30);

/// What became of the messages.
#[derive(Debug, Default)]
pub(crate) struct SessionCounters {
    pub(crate) sent: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) records_lost: AtomicU64,
    pub(crate) spooled: AtomicU64,
    pub(crate) resent: AtomicU64,
    pub(crate) waiting: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) is_connected: AtomicBool,
}

impl SessionCounters {
    fn lose(&self, records: u32) {
        self.lost.fetch_add(1, Relaxed);
        self.records_lost.fetch_add(records.into(), Relaxed);
    }
}

/// A way to one collector.
#[derive(Debug)]
pub(crate) enum Session {
    Datagrams(Datagrams),
    Stream(Box<StreamSession>),
}

impl Session {
    /// Takes a message on.
    pub(crate) fn submit(&mut self, message: Message<'_>) {
        match self {
            Self::Datagrams(session) => session.send(message),
            Self::Stream(session) => session.submit(message),
        }
    }

    /// Moves what waits. `now` stamps templates.
    pub(crate) fn pump(&mut self, now: Time) {
        if let Self::Stream(session) = self {
            session.pump(now);
        }
    }

    /// Whether something waits that moves as soon as the collector lets it.
    pub(crate) fn is_busy(&self) -> bool {
        match self {
            Self::Datagrams(_) => false,
            Self::Stream(session) => session.is_busy(),
        }
    }

    /// Ends it; what waits in memory goes to the spool.
    pub(crate) fn close(self) {
        if let Self::Stream(session) = self {
            session.close();
        }
    }
}

/// UDP.
#[derive(Debug)]
pub(crate) struct Datagrams {
    address: String,
    socket: Option<UdpSocket>,
    retry_at: Instant,
    is_failing: bool,
    counters: Arc<SessionCounters>,
}

impl Datagrams {
    pub(crate) fn new(address: &str, counters: Arc<SessionCounters>) -> Self {
        let retry_at = clock::now();
        Self { address: address.to_owned(), socket: None, retry_at, is_failing: false, counters }
    }

    fn send(&mut self, message: Message<'_>) {
        match self.try_send(message.bytes) {
            Ok(()) => {
                self.is_failing = false;
                self.counters.sent.fetch_add(1, Relaxed);
            }
            Err(error) => {
                self.counters.lose(message.records);
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(%error, collector = self.address, "export is lost");
                }
            }
        }
    }

    fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.socket.is_none() && clock::now() >= self.retry_at {
            // A name server that is slow to say no must not be asked for each message.
            self.retry_at = clock::now() + RETRY_LONGEST;
            self.socket = Some(udp(&self.address)?);
            self.counters.is_connected.store(true, Relaxed);
        }
        let Some(socket) = &self.socket else { return Err(io::ErrorKind::NotConnected.into()) };
        match socket.send(bytes) {
            // An answer to an earlier datagram; this one has not left.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                socket.send(bytes).map(drop)
            }
            result => result.map(drop),
        }
    }
}

/// TCP or TLS.
#[derive(Debug)]
pub(crate) struct StreamSession {
    address: String,
    tls: Option<TlsClient>,
    /// Encodes the templates that a session begins with.
    templates: Encoder,
    stream: Option<Stream>,
    /// Data records sent in this session.
    sequence: u32,
    preamble: VecDeque<Stored>,
    /// The message under way, and how much of it is written.
    sending: Option<(Stored, usize)>,
    ready: VecDeque<Stored>,
    ready_bytes: usize,
    unconfirmed: VecDeque<Unconfirmed>,
    unconfirmed_bytes: usize,
    spool: Option<Spool>,
    spool_fails: bool,
    retry_at: Instant,
    retry_after: Duration,
    /// When something moved last, and the count of acknowledged bytes then.
    moved: (Instant, u64),
    counters: Arc<SessionCounters>,
}

#[derive(Debug)]
struct Unconfirmed {
    message: Stored,
    /// Bytes of the stream up to its end, once the kernel has them all.
    end: Option<u64>,
}

impl StreamSession {
    pub(crate) fn new(
        address: &str,
        tls: Option<TlsClient>,
        templates: Encoder,
        spool: Option<Spool>,
        counters: Arc<SessionCounters>,
    ) -> Self {
        let now = clock::now();
        Self {
            address: address.to_owned(),
            tls,
            templates,
            stream: None,
            sequence: 0,
            preamble: VecDeque::new(),
            sending: None,
            ready: VecDeque::new(),
            ready_bytes: 0,
            unconfirmed: VecDeque::new(),
            unconfirmed_bytes: 0,
            spool,
            spool_fails: false,
            retry_at: now,
            retry_after: RETRY_FIRST,
            moved: (now, 0),
            counters,
        }
    }

    fn submit(&mut self, message: Message<'_>) {
        let spool_is_empty = self.spool.as_ref().is_none_or(Spool::is_empty);
        if spool_is_empty && self.ready_bytes + message.bytes.len() <= READY_BYTES_MAX {
            self.ready_bytes += message.bytes.len();
            self.ready
                .push_back(Stored { bytes: message.bytes.to_vec(), records: message.records });
        } else {
            self.keep(message.bytes, message.records);
        }
        self.count_waiting();
    }

    /// Puts a message on disk, or counts it as lost.
    fn keep(&mut self, bytes: &[u8], records: u32) {
        let result = match &mut self.spool {
            Some(spool) => spool.push(bytes, records),
            None => Err(SpoolError::Full),
        };
        match result {
            Ok(()) => {
                self.spool_fails = false;
                self.counters.spooled.fetch_add(1, Relaxed);
            }
            Err(error) => {
                self.counters.lose(records);
                if !std::mem::replace(&mut self.spool_fails, true) {
                    tracing::warn!(%error, collector = self.address, "export is lost");
                }
            }
        }
    }

    fn pump(&mut self, now: Time) {
        if self.stream.is_none() && clock::now() >= self.retry_at {
            self.connect(now);
        }
        if self.stream.is_some()
            && let Err(error) = self.advance()
        {
            // One that accepts, takes nothing and goes is said once, until it takes something.
            if self.retry_after == RETRY_FIRST {
                tracing::warn!(%error, collector = self.address, "the connection is lost");
            }
            self.give_up();
        }
        self.count_waiting();
    }

    fn connect(&mut self, now: Time) {
        match Stream::connect(&self.address, self.tls.as_ref()) {
            Ok(stream) => {
                self.stream = Some(stream);
                self.sequence = 0;
                self.moved = (clock::now(), 0);
                let preamble = &mut self.preamble;
                self.templates.templates(now, &mut |message| {
                    preamble.push_back(Stored { bytes: message.bytes.to_vec(), records: 0 });
                });
                self.counters.connections.fetch_add(1, Relaxed);
                self.counters.is_connected.store(true, Relaxed);
                if self.retry_after == RETRY_FIRST {
                    tracing::info!(collector = self.address, "connected");
                }
            }
            Err(error) => {
                if self.retry_after == RETRY_FIRST {
                    tracing::warn!(%error, collector = self.address, "not reached; will try on");
                }
                self.wait();
            }
        }
    }

    fn wait(&mut self) {
        self.retry_at = clock::now() + self.retry_after;
        self.retry_after = (self.retry_after * 2).min(RETRY_LONGEST);
    }

    /// Writes what waits, as far as the stream takes it.
    fn advance(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        stream.progress()?;
        while self.unconfirmed_bytes < UNCONFIRMED_BYTES_MAX {
            if self.sending.is_none() {
                self.sending = self.next().map(|message| (message, 0));
            }
            let (Some(stream), Some((message, written))) = (&mut self.stream, &mut self.sending)
            else {
                break;
            };
            let count = stream.write(&message.bytes[*written..])?;
            *written += count;
            if *written < message.bytes.len() {
                stream.progress()?;
                if count == 0 {
                    break;
                }
            } else if let Some((message, _)) = self.sending.take() {
                self.unconfirmed_bytes += message.bytes.len();
                self.unconfirmed.push_back(Unconfirmed { message, end: None });
                self.counters.sent.fetch_add(1, Relaxed);
            }
        }
        if let Some(stream) = &mut self.stream {
            stream.progress()?;
        }
        self.confirm()
    }

    /// The next message, numbered for this session.
    fn next(&mut self) -> Option<Stored> {
        let mut message = match self.preamble.pop_front() {
            Some(templates) => templates,
            None => self.next_ready()?,
        };
        ipfix::renumber(&mut message.bytes, self.sequence);
        self.sequence = self.sequence.wrapping_add(message.records);
        Some(message)
    }

    fn next_ready(&mut self) -> Option<Stored> {
        if let Some(message) = self.ready.pop_front() {
            self.ready_bytes = self.ready_bytes.saturating_sub(message.bytes.len());
            return Some(message);
        }
        self.spool.as_mut()?.pop().unwrap_or_else(|error| {
            tracing::error!(%error, collector = self.address, "what was spooled is lost");
            None
        })
    }

    /// Lets go of what the collector's host has acknowledged.
    fn confirm(&mut self) -> io::Result<()> {
        let Some(stream) = &self.stream else { return Ok(()) };
        if self.unconfirmed.is_empty() && self.sending.is_none() {
            self.moved.0 = clock::now();
            return Ok(());
        }
        let written = stream.written();
        if stream.is_flushed() {
            for waiting in self.unconfirmed.iter_mut().rev().take_while(|it| it.end.is_none()) {
                waiting.end = Some(written);
            }
        }
        let acknowledged = written.saturating_sub(stream.unacknowledged().unwrap_or(0));
        while let Some(oldest) = self.unconfirmed.front()
            && oldest.end.is_some_and(|end| end <= acknowledged)
        {
            self.unconfirmed_bytes -= oldest.message.bytes.len();
            self.unconfirmed.pop_front();
            // Only now: one that accepts connections and takes nothing is tried less often.
            if std::mem::replace(&mut self.retry_after, RETRY_FIRST) != RETRY_FIRST {
                tracing::info!(collector = self.address, "takes records again");
            }
        }
        if acknowledged != self.moved.1 {
            self.moved = (clock::now(), acknowledged);
        } else if self.moved.0.elapsed() >= STALLED_AFTER {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the collector takes nothing"));
        }
        Ok(())
    }

    /// Forgets the connection; what was not acknowledged waits for the next.
    fn give_up(&mut self) {
        self.stream = None;
        self.counters.is_connected.store(false, Relaxed);
        self.preamble.clear();
        let unsent = self.sending.take().map(|(message, _)| message);
        let sent = self.unconfirmed.drain(..).map(|it| it.message).filter(|it| it.records > 0);
        let mut again: VecDeque<Stored> = sent.collect();
        self.counters.resent.fetch_add(again.len() as u64, Relaxed);
        again.extend(unsent.filter(|message| message.records > 0));
        self.ready_bytes += again.iter().map(|message| message.bytes.len()).sum::<usize>();
        again.append(&mut self.ready);
        self.ready = again;
        self.unconfirmed_bytes = 0;
        self.wait();
    }

    fn is_busy(&self) -> bool {
        let waits = self.sending.is_some()
            || !self.unconfirmed.is_empty()
            || !self.ready.is_empty()
            || self.spool.as_ref().is_some_and(|spool| !spool.is_empty());
        self.stream.is_some() && waits
    }

    fn close(mut self) {
        if let Some(stream) = self.stream.take_if(|_| self.sending.is_none()) {
            stream.close();
        }
        self.give_up();
        for message in std::mem::take(&mut self.ready) {
            self.keep(&message.bytes, message.records);
        }
        self.count_waiting();
    }

    fn count_waiting(&self) {
        let spooled = self.spool.as_ref().map_or(0, Spool::len);
        let in_memory = self.ready.len() + usize::from(self.sending.is_some());
        self.counters.waiting.store(spooled + in_memory as u64, Relaxed);
    }
}
