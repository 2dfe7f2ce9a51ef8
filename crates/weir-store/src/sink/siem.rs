//! Events to SIEMs: a thread a sink, fed by the thread of alerts, never by a packet's.
//!
//! ```text
//!  alerts' thread --(bounded, never waits)--> thread --UDP--> sent, or lost and counted
//!                                                `---TCP--> sent; while it is down: a spool
//! ```
//!
//! By TCP, with or without TLS, a message is delivered at least once: what was written within
//! [`DOUBT`] before a connection broke may not have arrived, and is sent again. At its end a
//! gateway closes the connection and waits for the sink to do so too, which shows that all of it
//! was read; without that, what is in doubt waits for the next start. A spool that is full, and a
//! queue that is, lose what comes, counted; a process that is killed loses its queue.

use std::collections::VecDeque;
use std::io;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::siem_link::Link;
use super::siem_text::{self, SiemEvent, SiemFormat};
use super::spool::{Spool, SpoolError};
use super::transport::{self, TlsClient, TlsFiles};
use crate::{clock, entropy};

/// Events that wait for a sink's thread.
const QUEUE_EVENTS: usize = 8192;

/// How long what was written to a connection may turn out not to have arrived.
const DOUBT: Duration = Duration::from_secs(10);

/// Messages in doubt, at most; the oldest then counts as arrived.
const DOUBT_MAX: usize = 4096;

/// Between two attempts to connect.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// Between two looks at a connection that has nothing to carry.
const TICK: Duration = Duration::from_millis(500);

/// Spooled messages that are sent before new ones are looked at.
const DRAIN_AT_ONCE: usize = 256;

/// Where events go, in what form, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiemSink {
    /// `host:port`.
    pub address: String,
    /// Where messages wait while it is down, and how many bytes of them: by TCP. Absent: UDP.
    pub spool: Option<(PathBuf, u64)>,
    /// By TLS over TCP, with these files.
    pub tls: Option<TlsFiles>,
    /// How events are written.
    pub format: SiemFormat,
    /// Alerts as severe as this or more: 1 is the most.
    pub severity_max: u8,
    /// The gateway's name.
    pub host: String,
}

/// What became of events. events + repeated = sent + lost + those that wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiemCounters {
    /// Events that the filter let through.
    pub events: u64,
    /// Messages handed to the network, one that is repeated each time.
    pub sent: u64,
    /// Messages lost: the queue or the spool was full, or the network refused.
    pub lost: u64,
    /// Messages on disk.
    pub waiting: u64,
    /// Messages to be sent once more, because a connection broke.
    pub repeated: u64,
    /// Why the sink takes nothing now: there is no connection, or the network refuses datagrams.
    pub failure: Option<String>,
}

#[derive(Debug, Default)]
struct Shared {
    events: AtomicU64,
    sent: AtomicU64,
    lost: AtomicU64,
    waiting: AtomicU64,
    repeated: AtomicU64,
    failure: Mutex<Option<String>>,
}

impl Shared {
    fn failure(&self) -> MutexGuard<'_, Option<String>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All sinks of a gateway.
#[derive(Debug, Default)]
pub struct Siem {
    threads: Vec<SinkThread>,
}

#[derive(Debug)]
struct SinkThread {
    sink: SiemSink,
    queue: Option<SyncSender<SiemEvent>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Siem {
    /// Starts a thread for each sink.
    ///
    /// # Errors
    /// A spool or a file of TLS cannot be used, or there are no more threads.
    pub fn start(sinks: &[SiemSink]) -> io::Result<Self> {
        Ok(Self { threads: sinks.iter().map(SinkThread::start).collect::<io::Result<_>>()? })
    }

    /// Whether nobody listens.
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Hands an event to each sink whose filter lets it through. Never waits.
    pub fn send(&self, event: &SiemEvent) {
        for lane in &self.threads {
            if event.severity > lane.sink.severity_max {
                continue;
            }
            lane.shared.events.fetch_add(1, Relaxed);
            let queue = lane.queue.as_ref();
            if queue.is_none_or(|it| it.try_send(event.clone()).is_err()) {
                lane.shared.lost.fetch_add(1, Relaxed);
            }
        }
    }

    /// What became of events, by sink.
    pub fn counters(&self) -> Vec<(String, SiemCounters)> {
        let of = |lane: &SinkThread| {
            let Shared { events, sent, lost, waiting, repeated, .. } = &*lane.shared;
            let counters = SiemCounters {
                events: events.load(Relaxed),
                sent: sent.load(Relaxed),
                lost: lost.load(Relaxed),
                waiting: waiting.load(Relaxed),
                repeated: repeated.load(Relaxed),
                failure: lane.shared.failure().clone(),
            };
            let scheme = match (&lane.sink.tls, &lane.sink.spool) {
                (Some(_), _) => "tls",
                (None, Some(_)) => "tcp",
                (None, None) => "udp",
            };
            (format!("{scheme}://{}", lane.sink.address), counters)
        };
        self.threads.iter().map(of).collect()
    }
}

impl SinkThread {
    fn start(sink: &SiemSink) -> io::Result<Self> {
        let (queue, incoming) = sync_channel(QUEUE_EVENTS);
        let shared = Arc::new(Shared::default());
        if sink.spool.is_some() {
            *shared.failure() = Some("not connected yet".into());
        }
        let tls = sink.tls.as_ref().map(|files| TlsClient::new(&sink.address, files));
        let way = match &sink.spool {
            None => Transport::Datagrams { socket: None, next_id: id_seed() },
            Some((folder, bytes_max)) => Transport::Stream(Box::new(Stream {
                spool: Spool::open(folder, *bytes_max).map_err(io::Error::other)?,
                connection: None,
                tls: tls.transpose().map_err(io::Error::other)?,
                doubtful: VecDeque::new(),
                retry_at: clock::now(),
                fails: false,
            })),
        };
        let work = Work { sink: sink.clone(), incoming, shared: Arc::clone(&shared), way };
        let thread = std::thread::Builder::new().name("sink".into()).spawn(|| work.run())?;
        Ok(Self { sink: sink.clone(), queue: Some(queue), shared, thread: Some(thread) })
    }
}

impl Drop for Siem {
    fn drop(&mut self) {
        // All threads take what waits, and end, side by side; then each is waited for.
        self.threads.iter_mut().for_each(|lane| lane.queue = None);
    }
}

impl Drop for SinkThread {
    fn drop(&mut self) {
        self.queue = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("a sink's thread panicked");
        }
    }
}

/// Between two ids, so that all of their bytes differ: there are decoders that look at six of them
/// (graygelf).
const ID_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Tells apart the chunked messages of this gateway from those of its neighbours.
fn id_seed() -> u64 {
    entropy::bytes().map_or(0, u64::from_be_bytes)
}

struct Work {
    sink: SiemSink,
    incoming: Receiver<SiemEvent>,
    shared: Arc<Shared>,
    way: Transport,
}

enum Transport {
    Datagrams { socket: Option<UdpSocket>, next_id: u64 },
    Stream(Box<Stream>),
}

struct Stream {
    spool: Spool,
    connection: Option<Link>,
    tls: Option<TlsClient>,
    /// Written, and perhaps not arrived.
    doubtful: VecDeque<(Instant, Vec<u8>)>,
    retry_at: Instant,
    fails: bool,
}

impl Work {
    fn run(mut self) {
        loop {
            match self.incoming.recv_timeout(TICK) {
                Ok(event) => self.take(&event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            // All that waits, before a sink that takes nothing is tried again: that takes seconds.
            while let Ok(event) = self.incoming.try_recv() {
                self.take(&event);
            }
            if let Transport::Stream(stream) = &mut self.way {
                stream.tend(&self.sink, &self.shared);
            }
        }
        if let Transport::Stream(stream) = &mut self.way {
            stream.end(&self.sink, &self.shared);
        }
    }

    fn take(&mut self, event: &SiemEvent) {
        let Work { sink, shared, way, .. } = self;
        let message = siem_text::encode(event, sink.format, &sink.host);
        match way {
            Transport::Datagrams { socket, next_id } => {
                *next_id = next_id.wrapping_add(ID_STEP);
                let datagrams = siem_text::datagrams(&message, sink.format, *next_id);
                let is_sent = !datagrams.is_empty()
                    && datagrams.iter().all(|it| send_datagram(socket, &sink.address, it, shared));
                let counter = if is_sent { &shared.sent } else { &shared.lost };
                counter.fetch_add(1, Relaxed);
            }
            Transport::Stream(stream) => {
                let framed = siem_text::framed(&message, sink.format);
                // In order: behind what waits.
                if !stream.spool.is_empty() || !stream.write(&framed, shared) {
                    stream.keep(&framed, shared);
                }
            }
        }
    }
}

/// A name is looked up again after each failure. Who refuses says so after a datagram: that the
/// sink takes them is known of the next.
fn send_datagram(
    socket: &mut Option<UdpSocket>,
    address: &str,
    datagram: &[u8],
    shared: &Shared,
) -> bool {
    let is_tried = socket.is_some();
    let open = match socket.take() {
        Some(socket) => Ok(socket),
        None => transport::udp(address),
    };
    match open.and_then(|it| it.send(datagram).map(|_| it)) {
        Ok(sent) => {
            *socket = Some(sent);
            if is_tried {
                *shared.failure() = None;
            }
            true
        }
        Err(error) => {
            *shared.failure() = Some(error.to_string());
            false
        }
    }
}

impl Stream {
    /// Puts a message behind those that wait on disk.
    fn keep(&mut self, framed: &[u8], shared: &Shared) {
        match self.spool.push(framed, 1) {
            Ok(()) => {}
            Err(SpoolError::Full) => {
                shared.lost.fetch_add(1, Relaxed);
            }
            Err(error) => {
                tracing::error!(%error, "an event is lost to a sink");
                shared.lost.fetch_add(1, Relaxed);
            }
        }
        shared.waiting.store(self.spool.len(), Relaxed);
    }

    /// Writes a message; false: there is no connection, or it broke.
    fn write(&mut self, framed: &[u8], shared: &Shared) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        if !connection.is_open() || connection.write(framed).is_err() {
            self.broke(shared);
            return false;
        }
        shared.sent.fetch_add(1, Relaxed);
        if self.doubtful.len() == DOUBT_MAX {
            self.doubtful.pop_front();
        }
        self.doubtful.push_back((clock::now(), framed.to_vec()));
        true
    }

    /// Sends what waits, as far as that goes at once, and closes the connection. For what waits it
    /// tries to connect a last time: the next start may be far.
    fn end(&mut self, sink: &SiemSink, shared: &Shared) {
        if self.connection.is_none() && !self.spool.is_empty() {
            self.connect(sink, shared);
        }
        self.drain(shared);
        if self.connection.as_mut().is_some_and(|it| it.close().is_err()) {
            self.broke(shared);
        }
    }

    /// What was written of late may not have arrived: it waits with the others.
    fn broke(&mut self, shared: &Shared) {
        if self.connection.take().is_none() {
            return;
        }
        self.retry_at = clock::now();
        for (at, framed) in std::mem::take(&mut self.doubtful) {
            if at.elapsed() < DOUBT {
                shared.repeated.fetch_add(1, Relaxed);
                self.keep(&framed, shared);
            }
        }
    }

    /// Connects where that is due, and sends what waits.
    fn tend(&mut self, sink: &SiemSink, shared: &Shared) {
        while self.doubtful.front().is_some_and(|(at, _)| at.elapsed() >= DOUBT) {
            self.doubtful.pop_front();
        }
        if self.connection.as_mut().is_some_and(|it| !it.is_open()) {
            self.broke(shared);
        }
        if self.connection.is_none() && clock::now() >= self.retry_at {
            self.connect(sink, shared);
        }
        self.drain(shared);
    }

    fn connect(&mut self, sink: &SiemSink, shared: &Shared) {
        self.retry_at = clock::now() + RETRY_AFTER;
        match Link::open(&sink.address, self.tls.as_ref()) {
            Ok(connection) => {
                self.connection = Some(connection);
                *shared.failure() = None;
                if std::mem::replace(&mut self.fails, false) {
                    tracing::info!(sink = sink.address, "the sink is there again");
                }
            }
            Err(error) => {
                *shared.failure() = Some(error.to_string());
                if !std::mem::replace(&mut self.fails, true) {
                    tracing::warn!(sink = sink.address, %error, "a sink is down: events wait");
                }
            }
        }
    }

    /// Sends some of what waits on disk.
    fn drain(&mut self, shared: &Shared) {
        if self.connection.is_none() {
            return;
        }
        for _ in 0..DRAIN_AT_ONCE {
            match self.spool.pop() {
                Ok(Some(stored)) => {
                    if !self.write(&stored.bytes, shared) {
                        self.keep(&stored.bytes, shared);
                        break;
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(%error, "what waited for a sink cannot be read");
                    break;
                }
            }
        }
        shared.waiting.store(self.spool.len(), Relaxed);
    }
}
