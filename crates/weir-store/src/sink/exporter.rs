//! Exporters at work: one thread and one bounded queue a collector.
//!
//! [`RecordSender::send`] copies a record into each collector's queue and never waits; what finds a
//! queue full is counted. A thread encodes, and sends over its transport; over TCP and TLS, what a
//! collector cannot take waits in memory, then on disk ([`super::spool`]).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_engine::meter::Record;
use weir_wire::frame::Time;

use super::encoder::{Encoder, EncoderOptions, Format, Interfaces, Item, MESSAGE_BYTES_MIN};
use super::session::{Datagrams, Session, SessionCounters, StreamSession};
use super::spool::{Spool, SpoolError};
use super::transport::{Endpoint, EndpointError, TlsClient};
use crate::clock;
use crate::sqlite::StoreSender;

/// Records that wait for a collector's thread: what a full meter hands over at once, twice.
const QUEUE_RECORDS: usize = 8192;

/// How long a record may wait for others to fill its message.
const FLUSH_AFTER: Duration = Duration::from_secs(1);

/// Between two looks at the queue and the connection.
const TICK: Duration = Duration::from_millis(50);

/// The same while a stream has something to send.
const BUSY: Duration = Duration::from_millis(5);

/// Records taken from the queue before the connection is looked at again.
const BATCH_RECORDS: usize = 256;

/// How long a stop may take to send what is left; what is left then goes to the spool.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// A folder for messages that wait for a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spooling {
    /// Where.
    pub directory: PathBuf,
    /// Bytes, at most. At the bound further messages are lost and counted.
    pub bytes_max: u64,
}

/// One collector and how to serve it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// Where it is.
    pub endpoint: Endpoint,
    /// What it wants.
    pub options: EncoderOptions,
    /// For TCP and TLS.
    pub spool: Option<Spooling>,
}

/// Why an exporter cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// NetFlow over a stream.
    #[error("{0}: NetFlow goes by UDP only; use udp:// or format = \"ipfix\"")]
    NetflowOverStream(String),
    /// [`EncoderOptions::message_bytes_max`].
    #[error("messages of {0} bytes; write {MESSAGE_BYTES_MIN} to 65535")]
    MessageBytes(usize),
    /// TLS.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The spool.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// The thread.
    #[error("cannot start an exporter's thread: {0}; see `ulimit -u`")]
    Thread(std::io::Error),
}

/// What a collector was sent, and what it was not.
///
/// records = overflowed + without_form + encoded as `data_records` (a flow may become two).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectorCounters {
    /// The collector.
    pub collector: String,
    /// Records handed over by the meters.
    pub records: u64,
    /// Of those, lost because the queue was full.
    pub overflowed: u64,
    /// Of those, without a form in this format (see [`super::encoder::Added`]).
    pub without_form: u64,
    /// Data records encoded.
    pub data_records: u64,
    /// Of those, lost with a message that could not be sent, or that the spool had no room for.
    pub data_records_lost: u64,
    /// Messages given to the network.
    pub messages_sent: u64,
    /// Messages that could not be sent or kept.
    pub messages_lost: u64,
    /// Messages that went to the spool.
    pub messages_spooled: u64,
    /// Messages sent again, because their connection was lost before they were acknowledged: the
    /// collector may have them twice.
    pub messages_resent: u64,
    /// Messages waiting, in memory and in the spool.
    pub messages_waiting: u64,
    /// Times that a connection was made.
    pub connections: u64,
    /// Whether there is a connection now; always for UDP.
    pub is_connected: bool,
}

#[derive(Debug, Default)]
struct QueueCounters {
    records: AtomicU64,
    overflowed: AtomicU64,
    without_form: AtomicU64,
    data_records: AtomicU64,
}

/// Hands records to every collector and the store; one for each worker.
#[derive(Clone, Debug)]
pub struct RecordSender {
    interfaces: Interfaces,
    queues: Vec<(SyncSender<Item>, Arc<Shared>)>,
    store: Option<StoreSender>,
}

impl RecordSender {
    /// A sender to nobody.
    pub fn none() -> Self {
        Self { interfaces: Interfaces::default(), queues: Vec::new(), store: None }
    }

    /// The same, and to the embedded store.
    pub fn with_store(self, store: StoreSender) -> Self {
        Self { store: Some(store), ..self }
    }

    /// As [`Self::send`], but waits for room: for captures, never for a data path.
    pub fn send_waiting(&self, record: Record<'_>) {
        let item = Item::of(record, self.interfaces);
        for (queue, shared) in &self.queues {
            shared.queue.records.fetch_add(1, Relaxed);
            if queue.send(item).is_err() {
                shared.queue.overflowed.fetch_add(1, Relaxed);
            }
        }
    }

    /// Copies `record` for every collector. Never waits: a full queue is counted.
    pub fn send(&self, record: Record<'_>) {
        if self.queues.is_empty() && self.store.is_none() {
            return;
        }
        let item = Item::of(record, self.interfaces);
        if let Some(store) = &self.store {
            store.send(item);
        }
        for (queue, shared) in &self.queues {
            let counters = &shared.queue;
            counters.records.fetch_add(1, Relaxed);
            if queue.try_send(item).is_err() {
                counters.overflowed.fetch_add(1, Relaxed);
            }
        }
    }
}

/// What a collector's thread and the rest of the process both see.
#[derive(Debug, Default)]
struct Shared {
    queue: QueueCounters,
    session: Arc<SessionCounters>,
    is_stopping: AtomicBool,
}

#[derive(Debug)]
struct Running {
    name: String,
    queue: SyncSender<Item>,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

/// All collectors' threads.
#[derive(Debug, Default)]
pub struct Exporter {
    collectors: Vec<Running>,
}

impl Exporter {
    /// Starts a thread for each of `collectors`; uptimes count from `boot`. A collector that cannot
    /// be reached is no error.
    ///
    /// # Errors
    /// [`ExportError`].
    pub fn start(collectors: &[Collector], boot: Time) -> Result<Self, ExportError> {
        let collectors = collectors.iter().map(|it| start(it, boot)).collect::<Result<_, _>>()?;
        Ok(Self { collectors })
    }

    /// A sender for the worker of a pair of ports.
    pub fn sender(&self, interfaces: Interfaces) -> RecordSender {
        let queues =
            self.collectors.iter().map(|it| (it.queue.clone(), Arc::clone(&it.shared))).collect();
        RecordSender { interfaces, queues, store: None }
    }

    /// What each collector was sent.
    pub fn counters(&self) -> Vec<CollectorCounters> {
        self.collectors.iter().map(|it| it.shared.counters(&it.name)).collect()
    }

    /// Sends what is left and ends, within a few seconds. Returns the last counters.
    pub fn stop(self) -> Vec<CollectorCounters> {
        for running in &self.collectors {
            running.shared.is_stopping.store(true, Relaxed);
        }
        let ended = |running: Running| {
            if running.thread.join().is_err() {
                tracing::error!(collector = running.name, "the exporter's thread panicked");
            }
            running.shared.counters(&running.name)
        };
        self.collectors.into_iter().map(ended).collect()
    }
}

impl Shared {
    fn counters(&self, collector: &str) -> CollectorCounters {
        let Self { queue, session, .. } = self;
        CollectorCounters {
            collector: collector.to_owned(),
            records: queue.records.load(Relaxed),
            overflowed: queue.overflowed.load(Relaxed),
            without_form: queue.without_form.load(Relaxed),
            data_records: queue.data_records.load(Relaxed),
            data_records_lost: session.records_lost.load(Relaxed),
            messages_sent: session.sent.load(Relaxed),
            messages_lost: session.lost.load(Relaxed),
            messages_spooled: session.spooled.load(Relaxed),
            messages_resent: session.resent.load(Relaxed),
            messages_waiting: session.waiting.load(Relaxed),
            connections: session.connections.load(Relaxed),
            is_connected: session.is_connected.load(Relaxed),
        }
    }
}

fn start(collector: &Collector, boot: Time) -> Result<Running, ExportError> {
    let Collector { endpoint, options, spool } = collector;
    let name = endpoint.to_string();
    if !(MESSAGE_BYTES_MIN..=usize::from(u16::MAX)).contains(&options.message_bytes_max) {
        return Err(ExportError::MessageBytes(options.message_bytes_max));
    }
    let shared = Arc::new(Shared::default());
    let counters = Arc::clone(&shared.session);
    let tls = match endpoint {
        Endpoint::Tls(address, files) => Some(TlsClient::new(address, files)?),
        _ => None,
    };
    let session = match endpoint {
        Endpoint::Udp(address) => Session::Datagrams(Datagrams::new(address, counters)),
        Endpoint::Tcp(address) | Endpoint::Tls(address, _) => {
            if options.format != Format::Ipfix {
                return Err(ExportError::NetflowOverStream(name));
            }
            let spool = match spool {
                Some(Spooling { directory, bytes_max }) => {
                    Some(Spool::open(directory, *bytes_max)?)
                }
                None => None,
            };
            let templates = Encoder::new(options, boot);
            let session = StreamSession::new(address, tls, templates, spool, counters);
            Session::Stream(Box::new(session))
        }
    };
    let (queue, items) = sync_channel(QUEUE_RECORDS);
    let work = Work {
        items,
        shared: Arc::clone(&shared),
        encoder: Encoder::new(options, boot),
        session,
        oldest: None,
    };
    let thread = std::thread::Builder::new()
        .name(format!("export {}", endpoint.address()))
        .spawn(move || work.run())
        .map_err(ExportError::Thread)?;
    Ok(Running { name, queue, shared, thread })
}

/// A collector's thread.
struct Work {
    items: Receiver<Item>,
    shared: Arc<Shared>,
    encoder: Encoder,
    session: Session,
    /// When the oldest record of the message under way came.
    oldest: Option<Instant>,
}

impl Work {
    fn run(mut self) {
        loop {
            let item = self.items.recv_timeout(if self.session.is_busy() { BUSY } else { TICK });
            let now = clock::time();
            let was_empty = item.is_err();
            if let Ok(item) = item {
                self.add(&item, now);
                for _ in 1..BATCH_RECORDS {
                    let Ok(item) = self.items.try_recv() else { break };
                    self.add(&item, now);
                }
            }
            if self.oldest.is_some_and(|oldest| oldest.elapsed() >= FLUSH_AFTER) {
                self.flush(now);
            }
            self.session.pump(now);
            if was_empty && self.shared.is_stopping.load(Relaxed) {
                break;
            }
        }
        self.flush(clock::time());
        let deadline = clock::now() + STOP_TIMEOUT;
        loop {
            self.session.pump(clock::time());
            if !self.session.is_busy() || clock::now() >= deadline {
                break;
            }
            std::thread::sleep(BUSY);
        }
        self.session.close();
    }

    fn add(&mut self, item: &Item, now: Time) {
        let Self { encoder, session, shared, oldest, .. } = self;
        let mut has_sent = false;
        let added = encoder.add(item, now, &mut |message| {
            has_sent = true;
            session.submit(message);
        });
        let counters = &shared.queue;
        counters.data_records.fetch_add(added.records.into(), Relaxed);
        counters.without_form.fetch_add(added.is_without_form.into(), Relaxed);
        if has_sent || oldest.is_none() {
            *oldest = Some(clock::now());
        }
    }

    fn flush(&mut self, now: Time) {
        let Self { encoder, session, .. } = self;
        encoder.flush(now, &mut |message| session.submit(message));
        self.oldest = None;
    }
}
