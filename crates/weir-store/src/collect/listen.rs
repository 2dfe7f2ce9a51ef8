//! Where messages come in: datagrams (NetFlow v5 and v9, IPFIX), and IPFIX over TCP.

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Decoder, Source, SourceCounters};
use crate::clock;
use crate::sqlite::CollectedStore;

/// TCP connections at a time; more are shut at once.
const CONNECTIONS_MAX: usize = 256;

/// A connection that says nothing for so long is shut.
const SILENCE_MAX: Duration = Duration::from_secs(3600);

/// Between two looks at whether to stop.
const TICK: Duration = Duration::from_millis(200);

/// The largest message (RFC 7011 s3.1: a length of two bytes).
const MESSAGE_BYTES_MAX: usize = 65_535;

/// Bytes of the kernel's queue of datagrams: half a second of 50,000 records/s in messages of 1400
/// bytes, as the kernel counts them.
const RECEIVE_BYTES: usize = 8 << 20;

/// A range of addresses, first and last, IPv4 mapped.
pub type AddressRange = ([u8; 16], [u8; 16]);

/// Messages that were not read, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// From addresses that may not export here.
    pub strangers: u64,
    /// From exporters, or domains of theirs, beyond [`super::SOURCES_MAX`].
    pub beyond_bound: u64,
    /// Neither NetFlow v5 or v9 nor IPFIX.
    pub foreign: u64,
    /// TCP connections beyond the bound.
    pub connections: u64,
}

struct Shared {
    decoder: Mutex<Decoder>,
    store: CollectedStore,
    allowed: Vec<AddressRange>,
    strangers: AtomicU64,
    connections: AtomicUsize,
    connections_refused: AtomicU64,
    is_stopping: AtomicBool,
}

/// A collector at work; ends when it is dropped.
pub struct Listener {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

impl Listener {
    /// Takes what comes to `datagrams` and, where there is one, over `streams`, of exporters in
    /// `allowed` (empty: of all), and hands it to `store`.
    ///
    /// # Errors
    /// The sockets cannot be set, or there are no more threads.
    pub fn start(
        datagrams: UdpSocket,
        streams: Option<TcpListener>,
        decoder: Decoder,
        allowed: Vec<AddressRange>,
        store: CollectedStore,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            decoder: Mutex::new(decoder),
            store,
            allowed,
            strangers: AtomicU64::new(0),
            connections: AtomicUsize::new(0),
            connections_refused: AtomicU64::new(0),
            is_stopping: AtomicBool::new(false),
        });
        datagrams.set_read_timeout(Some(TICK))?;
        // Less than asked for is what the kernel's own bound allows.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&datagrams, RECEIVE_BYTES);
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.into()).spawn(work)
        };
        let mut threads = Vec::new();
        let own = Arc::clone(&shared);
        threads.push(spawn("datagrams", Box::new(move || own.read_datagrams(&datagrams)))?);
        if let Some(streams) = streams {
            streams.set_nonblocking(true)?;
            let own = Arc::clone(&shared);
            threads.push(spawn("streams", Box::new(move || own.accept(&streams)))?);
        }
        Ok(Self { shared, threads })
    }

    /// What came of each source.
    pub fn sources(&self) -> std::collections::BTreeMap<Source, SourceCounters> {
        self.shared.decoder.lock().unwrap_or_else(PoisonError::into_inner).sources()
    }

    /// What was not read.
    pub fn refused(&self) -> Refused {
        let decoder = self.shared.decoder.lock().unwrap_or_else(PoisonError::into_inner);
        let (beyond_bound, foreign) = decoder.refused();
        Refused {
            strangers: self.shared.strangers.load(Relaxed),
            beyond_bound,
            foreign,
            connections: self.shared.connections_refused.load(Relaxed),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the collector panicked");
            }
        }
    }
}

impl Shared {
    fn read_datagrams(&self, socket: &UdpSocket) {
        let mut buffer = vec![0; MESSAGE_BYTES_MAX + 1];
        while !self.is_stopping.load(Relaxed) {
            if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                self.take(from, &buffer[..length]);
            }
        }
    }

    fn take(&self, from: SocketAddr, message: &[u8]) {
        if !self.allows(from.ip()) {
            self.strangers.fetch_add(1, Relaxed);
            return;
        }
        let now_ns = clock::time().0;
        let mut decoder = self.decoder.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = decoder.read(from, message, now_ns);
        drop(decoder);
        rows.into_iter().for_each(|row| self.store.send(row));
    }

    fn allows(&self, address: IpAddr) -> bool {
        let octets = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        let holds = |(first, last): &AddressRange| (first..=last).contains(&&octets);
        self.allowed.is_empty() || self.allowed.iter().any(holds)
    }

    fn accept(self: Arc<Self>, listener: &TcpListener) {
        while !self.is_stopping.load(Relaxed) {
            let Ok((stream, from)) = listener.accept() else {
                std::thread::sleep(TICK);
                continue;
            };
            if !self.allows(from.ip()) {
                self.strangers.fetch_add(1, Relaxed);
                continue;
            }
            if self.connections.load(Relaxed) >= CONNECTIONS_MAX {
                self.connections_refused.fetch_add(1, Relaxed);
                continue;
            }
            self.connections.fetch_add(1, Relaxed);
            let own = Arc::clone(&self);
            let read = move || {
                if let Err(error) = own.read_stream(stream, from) {
                    tracing::info!(%from, %error, "an exporter's connection ended");
                }
                own.connections.fetch_sub(1, Relaxed);
            };
            if std::thread::Builder::new().name("exporter".into()).spawn(read).is_err() {
                self.connections.fetch_sub(1, Relaxed);
                self.connections_refused.fetch_add(1, Relaxed);
            }
        }
    }

    /// Messages one behind the other, each with its length (RFC 7011 s10.4).
    fn read_stream(&self, mut stream: TcpStream, from: SocketAddr) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(TICK))?;
        let (mut buffer, mut filled, mut silent) = (vec![0; MESSAGE_BYTES_MAX], 0, Duration::ZERO);
        while !self.is_stopping.load(Relaxed) {
            match stream.read(&mut buffer[filled..]) {
                Ok(0) => return Ok(()),
                Ok(count) => (filled, silent) = (filled + count, Duration::ZERO),
                Err(error) if is_timeout(&error) => silent += TICK,
                Err(error) => return Err(error),
            }
            if silent >= SILENCE_MAX {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let mut begin = 0;
            while let Some(length) = message_length(&buffer[begin..filled])? {
                self.take(from, &buffer[begin..begin + length]);
                begin += length;
            }
            buffer.copy_within(begin..filled, 0);
            filled -= begin;
        }
        Ok(())
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// The length of the message that `bytes` begin with, once all of it is there.
fn message_length(bytes: &[u8]) -> io::Result<Option<usize>> {
    let [0, 10, high, low, ..] = bytes else {
        let is_short = bytes.len() < 4 && [0, 10].starts_with(&bytes[..bytes.len().min(2)]);
        return if is_short { Ok(None) } else { Err(io::Error::other("this is not IPFIX")) };
    };
    match usize::from(u16::from_be_bytes([*high, *low])) {
        ..16 => Err(io::Error::other("a message is shorter than its header")),
        length => Ok((bytes.len() >= length).then_some(length)),
    }
}
