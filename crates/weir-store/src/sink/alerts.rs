//! Alerts to a file or a Unix socket: EVE JSON, a line each, written by a thread of its own.
//!
//! ```text
//!  workers --AlertSender (bounded, never waits)--> thread --> eve.json, and eve.json.1 before it
//!                                                        `--> or a socket, where somebody listens
//! ```
//!
//! A file that somebody moved or removed (logrotate) is made anew within a second. One that reaches
//! its bound becomes `eve.json.1`, in the place of the one before.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::json;
use weir_detect::alert::FlowView;
use weir_detect::{Alert, Blocked, Rule, RuleSet};
use weir_engine::access::AccessEvent;
use weir_engine::detect::DetectionRecord;
use weir_engine::verdict::Side;
use weir_wire::frame::Time;

use super::eve_dns::DnsVersion;
use super::eve_out::{Out, is_pipe, open};
use super::eve_socket::{EveSocket, LineKind};
use super::siem::{Siem, SiemCounters, SiemSink};
use super::siem_text::SiemEvent;
use super::{access_event, eve, eve_record};
use crate::clock;
use crate::names::Names;
use crate::sqlite::{AlertRow, AlertStore};

/// Alerts that wait for the thread: those of a few ticks of all workers.
const QUEUE_ALERTS: usize = 16_384;

/// Records among them.
const RECORDS_MAX: u64 = 4_096;

/// How long an alert may wait in memory, and between two looks at the file's name.
const FLUSH_AFTER: Duration = Duration::from_millis(200);

/// Where alerts go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EveFile {
    /// The file, or the socket.
    pub path: PathBuf,
    /// Which of them.
    pub place: EvePlace,
    /// At so many bytes a file is moved to `PATH.1`, and a new one begins.
    pub bytes_max: u64,
    /// Which flows, transactions and counters are written beside alerts.
    pub records: EveRecords,
    /// Alerts in Suricata's one-line form, beside; it ends likewise.
    pub fast: Option<PathBuf>,
    /// How records of DNS are written; alerts have version 3, as with Suricata 8.
    pub dns: DnsVersion,
}

impl EveFile {
    /// Opens the files that it names, and makes them where they are not there; sockets come later.
    /// Pipes are left alone: who reads one, and sees it opened and closed, takes it for over.
    ///
    /// # Errors
    /// One cannot be opened.
    pub fn try_open(&self) -> io::Result<()> {
        self.files().filter(|it| !is_pipe(it)).try_for_each(|it| open(it).map(drop))
    }

    /// The same with pipes; they stay open as long as what is returned is kept.
    ///
    /// # Errors
    /// One cannot be opened. Nor can a pipe that nobody reads: who writes would wait.
    fn open_all(&self) -> io::Result<Vec<File>> {
        self.files().map(|it| open(it)).collect()
    }

    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let file = (self.place == EvePlace::File).then_some(&self.path);
        file.into_iter().chain(&self.fast)
    }
}

/// Which records are written beside alerts and the drops that they tell of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EveRecords {
    /// None.
    None,
    /// All that there are.
    #[default]
    All,
    /// Those of these kinds, by EVE's names (`event_type`).
    Kinds(BTreeSet<String>),
}

impl EveRecords {
    /// Whether any are.
    pub fn any(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Whether those of a kind are.
    pub fn has(&self, kind: &str) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Kinds(kinds) => kinds.contains(kind),
        }
    }
}

/// What alerts are written to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EvePlace {
    /// A file.
    #[default]
    File,
    /// A Unix socket at which somebody listens for connections.
    Stream,
    /// One that takes datagrams: a line each.
    Datagrams,
    /// That of the machine's syslog, a message each: facility local5, severity informational.
    Syslog,
}

/// What became of alerts. alerts = written + lost + those under way; without a file, all are lost
/// to it and none is counted as such.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlertCounters {
    /// Alerts handed over.
    pub alerts: u64,
    /// Of those, written.
    pub written: u64,
    /// Of those, lost: the queue was full, or the file could not be written.
    pub lost: u64,
    /// Records of flows and transactions handed over.
    pub records: u64,
    /// Of those, lost: they make room for alerts.
    pub records_lost: u64,
    /// Lines of `fast.log` that could not be written.
    pub fast_lost: u64,
    /// Files that cannot be written now, and why.
    pub failures: Vec<String>,
}

#[derive(Debug, Default)]
struct Shared {
    alerts: AtomicU64,
    written: AtomicU64,
    lost: AtomicU64,
    records: AtomicU64,
    records_lost: AtomicU64,
    fast_lost: AtomicU64,
    /// Records in the queue.
    records_waiting: AtomicU64,
    /// Why the file of EVE, and that of lines beside it, cannot be written.
    failures: Mutex<[Option<String>; 2]>,
}

impl Shared {
    fn count(&self, told: LineKind, is_written: bool) {
        let counter = match (told, is_written) {
            (LineKind::Alert, true) => &self.written,
            (LineKind::Alert, false) => &self.lost,
            (LineKind::Record, true) => return,
            (LineKind::Record, false) => &self.records_lost,
        };
        counter.fetch_add(1, Relaxed);
    }

    fn failures(&self) -> MutexGuard<'_, [Option<String>; 2]> {
        // What is in it is whole at any time.
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Message {
    Alert(Box<Alert>, Arc<RuleSet>, Arc<AlertSource>),
    /// What a line of access decided.
    Access(Box<AccessEvent>, Arc<AlertSource>),
    Record(Box<DetectionRecord>, Arc<AlertSource>),
    /// Counters by EVE's dotted names.
    Stats(BTreeMap<String, u64>),
    /// Who did what, and what came of it.
    Note([String; 3]),
    /// The files to write to from now on, and those of them that are open already.
    File(Option<EveFile>, Vec<File>),
    Stop,
}

/// The pair of ports that something is told of.
#[derive(Debug, Default)]
struct AlertSource {
    /// Its name.
    pair: String,
    /// Its interfaces, that of the host first.
    interfaces: Option<[Arc<str>; 2]>,
}

impl AlertSource {
    /// The interface by which packets of a flow come in from one of its sides.
    fn interface(&self, flow: &FlowView, of_initiator: bool) -> Option<&Arc<str>> {
        let by_initiator = usize::from(flow.port?);
        let port = if of_initiator { by_initiator } else { 1 - by_initiator.min(1) };
        self.interfaces.as_ref()?.get(port)
    }

    /// That of one side of the gateway.
    fn interface_at(&self, side: Option<Side>) -> Option<&Arc<str>> {
        let [host, wire] = self.interfaces.as_ref()?;
        side.map(|it| if it == Side::Host { host } else { wire })
    }

    /// That of what a record tells of.
    fn interface_of(&self, record: &DetectionRecord) -> Option<&Arc<str>> {
        match record {
            DetectionRecord::Flow(it) => self.interface(&it.view, true),
            DetectionRecord::Http(it) => self.interface(&it.flow, true),
            DetectionRecord::Application(it) => self.interface(&it.flow, it.flow.to_server),
            DetectionRecord::Unit(it) => self.interface(&it.flow, it.flow.to_server),
            DetectionRecord::Anomaly(it) => self.interface(&it.flow, it.flow.to_server),
            DetectionRecord::Drop(it) => {
                it.flow.as_ref().and_then(|flow| self.interface(flow, flow.to_server))
            }
        }
    }
}

/// Hands alerts over; one for each worker.
#[derive(Clone, Debug)]
pub struct AlertSender {
    source: Arc<AlertSource>,
    queue: SyncSender<Message>,
    shared: Arc<Shared>,
}

impl AlertSender {
    /// Hands an alert over, with the rules that it is of. Never waits: a full queue is counted.
    pub fn send(&self, alert: Alert, rules: &Arc<RuleSet>) {
        self.shared.alerts.fetch_add(1, Relaxed);
        let source = Arc::clone(&self.source);
        self.offer(Message::Alert(Box::new(alert), Arc::clone(rules), source));
    }

    /// Hands over what a line of access decided; likewise.
    pub fn send_access(&self, event: AccessEvent) {
        self.shared.alerts.fetch_add(1, Relaxed);
        self.offer(Message::Access(Box::new(event), Arc::clone(&self.source)));
    }

    fn offer(&self, message: Message) {
        if self.queue.try_send(message).is_err() {
            self.shared.lost.fetch_add(1, Relaxed);
        }
    }
}

impl AlertSender {
    /// Hands over what is told beside alerts. Never waits: it has a quarter of the queue, and what
    /// is beyond is counted.
    pub fn tell(&self, record: DetectionRecord) {
        let Shared { records, records_lost, records_waiting, .. } = &*self.shared;
        records.fetch_add(1, Relaxed);
        let has_room = records_waiting.fetch_add(1, Relaxed) < RECORDS_MAX;
        let message = || Message::Record(Box::new(record), Arc::clone(&self.source));
        if !has_room || self.queue.try_send(message()).is_err() {
            records_waiting.fetch_sub(1, Relaxed);
            records_lost.fetch_add(1, Relaxed);
        }
    }

    /// Counts records that found no room before they were handed over.
    pub fn lose(&self, records: u64) {
        self.shared.records.fetch_add(records, Relaxed);
        self.shared.records_lost.fetch_add(records, Relaxed);
    }
}

/// The thread that writes alerts.
#[derive(Debug)]
pub struct AlertSink {
    sender: AlertSender,
    siem: Arc<Siem>,
    names: Names,
    thread: Option<JoinHandle<()>>,
}

impl AlertSink {
    /// Starts the thread; alerts go to the `file`, to the `store` and to the `sinks`, as far as
    /// there are such.
    ///
    /// # Errors
    /// The file or a spool cannot be opened, or there are no more threads.
    pub fn start(
        file: Option<EveFile>,
        store: Option<AlertStore>,
        sinks: &[SiemSink],
    ) -> io::Result<Self> {
        let siem = Arc::new(Siem::start(sinks)?);
        let (out, fast) = outs(file)?;
        let (queue, incoming) = sync_channel(QUEUE_ALERTS);
        let shared = Arc::new(Shared::default());
        let line = Vec::new();
        let names = Names::default();
        let work = Work {
            names: names.clone(),
            incoming,
            shared: Arc::clone(&shared),
            out,
            fast,
            store,
            line,
            siem: Arc::clone(&siem),
        };
        let thread = std::thread::Builder::new().name("alerts".into()).spawn(|| work.run())?;
        let sender = AlertSender { source: Arc::default(), queue, shared };
        Ok(Self { sender, siem, names, thread: Some(thread) })
    }

    /// Whom alerts are about: what is told there is written from then on.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// A sender for one worker of the pair of this name, and of these interfaces, that of the host
    /// first.
    pub fn sender(&self, pair: &str, interfaces: [&str; 2]) -> AlertSender {
        let interfaces = Some(interfaces.map(Arc::from));
        let source = Arc::new(AlertSource { pair: pair.to_owned(), interfaces });
        AlertSender { source, ..self.sender.clone() }
    }

    /// Writes to another file from now on, or to none.
    ///
    /// # Errors
    /// It cannot be opened; the file before stays.
    pub fn change(&self, file: Option<EveFile>) -> io::Result<()> {
        let open = file.as_ref().map(EveFile::open_all).transpose()?.unwrap_or_default();
        self.sender.queue.send(Message::File(file, open)).map_err(io::Error::other)
    }

    /// Tells the sinks what the gateway did, or was told to. Never waits.
    pub fn note(&self, who: &str, what: &str, outcome: &str) {
        let note = Message::Note([who, what, outcome].map(str::to_owned));
        let _ = self.sender.queue.try_send(note);
    }

    /// Has counters written. Never waits.
    pub fn stats(&self, counters: BTreeMap<String, u64>) {
        let _ = self.sender.queue.try_send(Message::Stats(counters));
    }

    /// What became of events, by sink.
    pub fn sinks(&self) -> Vec<(String, SiemCounters)> {
        self.siem.counters()
    }

    /// What became of alerts.
    pub fn counters(&self) -> AlertCounters {
        let shared = &*self.sender.shared;
        AlertCounters {
            alerts: shared.alerts.load(Relaxed),
            written: shared.written.load(Relaxed),
            lost: shared.lost.load(Relaxed),
            records: shared.records.load(Relaxed),
            records_lost: shared.records_lost.load(Relaxed),
            fast_lost: shared.fast_lost.load(Relaxed),
            failures: shared.failures().iter().flatten().cloned().collect(),
        }
    }
}

impl Drop for AlertSink {
    fn drop(&mut self) {
        // Behind the alerts that wait.
        let _ = self.sender.queue.send(Message::Stop);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that writes alerts panicked");
        }
    }
}

struct Work {
    incoming: Receiver<Message>,
    shared: Arc<Shared>,
    out: Option<EveOutput>,
    fast: Option<Out>,
    store: Option<AlertStore>,
    siem: Arc<Siem>,
    line: Vec<u8>,
    names: Names,
}

impl Work {
    fn run(mut self) {
        let mut flushed = clock::now();
        loop {
            match self.incoming.recv_timeout(FLUSH_AFTER) {
                Ok(Message::Alert(alert, rules, from)) => self.tell_alert(&alert, &rules, &from),
                Ok(Message::Access(event, from)) => self.tell_access(&event, &from),
                Ok(Message::Record(record, from)) => {
                    self.shared.records_waiting.fetch_sub(1, Relaxed);
                    self.write_record(&record, from.interface_of(&record));
                }
                Ok(Message::Stats(counters)) => {
                    self.write_event(eve_record::stats(clock::time(), &counters), None);
                }
                Ok(Message::Note(note)) => self.siem.send(&siem_note(note)),
                Ok(Message::File(file, open)) => {
                    self.change(file);
                    drop(open);
                }
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return self.end(),
                Err(RecvTimeoutError::Timeout) => {}
            }
            // However many come.
            if flushed.elapsed() >= FLUSH_AFTER {
                self.flush();
                flushed = clock::now();
            }
        }
    }

    fn tell_alert(&mut self, alert: &Alert, rules: &RuleSet, from: &AlertSource) {
        let pair = &from.pair;
        let ends = [&alert.source.address, &alert.destination.address];
        let interface = from.interface(&alert.flow, alert.flow.to_server);
        let marks = self.store(ends, interface, |marks| row(alert, rules, marks, pair));
        if !self.siem.is_empty() {
            self.siem.send(&siem_event(alert, rules, &marks, pair));
        }
        self.write(alert, rules, &marks);
    }

    /// Hands what goes between `ends` to the store, and says how others are to mark it: with its
    /// number there only if it has a place there.
    fn store(
        &self,
        ends: [&[u8; 16]; 2],
        interface: Option<&Arc<str>>,
        row: impl FnOnce(&eve::Marks) -> AlertRow,
    ) -> eve::Marks {
        let number = self.store.as_ref().and_then(AlertStore::draw);
        let mut marks = eve::Marks::of(ends, number, &self.names);
        marks.interface = interface.cloned();
        if !self.store.as_ref().is_some_and(|store| store.send(row(&marks))) {
            marks.number = None;
        }
        marks
    }

    fn tell_access(&mut self, event: &AccessEvent, from: &AlertSource) {
        let (ends, pair) = ([&event.from, &event.to], &from.pair);
        let interface = from.interface_at(event.side);
        let marks = self.store(ends, interface, |marks| access_event::row(event, marks, pair));
        let lines = access_event::lines(event, &marks);
        if !self.siem.is_empty() {
            self.siem.send(&access_event::siem(event, lines[0].clone(), pair));
        }
        self.line.clear();
        lines.into_iter().for_each(|it| eve::push(&mut self.line, it));
        self.write_line();
    }

    fn write(&mut self, alert: &Alert, rules: &RuleSet, marks: &eve::Marks) {
        self.line.clear();
        eve::write(alert, rules, marks, &mut self.line);
        self.write_line();
        if let Some(fast) = &mut self.fast {
            self.line.clear();
            eve::fast(alert, rules, &mut self.line);
            let is_written = fast.write(&self.line).is_ok();
            self.shared.fast_lost.fetch_add(u64::from(!is_written), Relaxed);
        }
    }

    fn write_line(&mut self) {
        if let Some(out) = &mut self.out {
            out.write(&self.line, LineKind::Alert, &self.shared);
        }
    }

    fn write_record(&mut self, record: &DetectionRecord, interface: Option<&Arc<str>>) {
        let dns = self.out.as_ref().map(|it| it.wanted().dns).unwrap_or_default();
        let event = match record {
            DetectionRecord::Flow(flow) => eve_record::flow(flow, Some(0)),
            DetectionRecord::Http(http) => eve_record::http(http.time, http),
            DetectionRecord::Application(told) => {
                let events = dns.events(eve_record::application(told));
                return events.into_iter().for_each(|it| self.write_event(it, interface));
            }
            DetectionRecord::Unit(unit) => eve_record::unit(unit),
            DetectionRecord::Anomaly(anomaly) => eve_record::anomaly(anomaly),
            DetectionRecord::Drop(drop) => eve_record::drop(drop),
        };
        self.write_event(event, interface);
    }

    fn write_event(&mut self, mut event: eve_record::Event, interface: Option<&Arc<str>>) {
        let kind = event.get("event_type").and_then(|it| it.as_str()).unwrap_or_default();
        let Some(out) = self.out.as_mut().filter(|it| it.wanted().records.has(kind)) else {
            return;
        };
        if let Some(interface) = interface {
            event.insert("in_iface".into(), interface.as_ref().into());
        }
        self.line.clear();
        eve::push(&mut self.line, event);
        out.write(&self.line, LineKind::Record, &self.shared);
    }

    fn change(&mut self, file: Option<EveFile>) {
        self.flush();
        if self.out.as_ref().map(EveOutput::wanted) == file.as_ref() {
            return;
        }
        match outs(file) {
            Ok(outs) => {
                if let Some(EveOutput::Socket(socket)) = &mut self.out {
                    socket.give_up(&mut |told, is_written| self.shared.count(told, is_written));
                }
                (self.out, self.fast) = outs;
            }
            Err(error) => tracing::error!(%error, "alerts go on to the file before"),
        }
    }

    fn end(&mut self) {
        self.flush();
        if let Some(EveOutput::Socket(socket)) = &mut self.out {
            socket.give_up(&mut |told, is_written| self.shared.count(told, is_written));
        }
    }

    fn flush(&mut self) {
        let of_fast = self.fast.as_mut().and_then(Out::look_after);
        let of_eve = match &mut self.out {
            None => None,
            Some(EveOutput::Socket(socket)) => {
                socket.send(&mut |told, is_written| self.shared.count(told, is_written));
                socket.failure()
            }
            Some(EveOutput::File(out)) => out.look_after(),
        };
        *self.shared.failures() = [of_eve, of_fast];
    }
}

/// The alert as the store keeps it.
fn row(alert: &Alert, rules: &RuleSet, marks: &eve::Marks, pair: &str) -> AlertRow {
    let rule = rules.rule(alert.rule);
    let action = match alert.blocked {
        Blocked::No => "allowed",
        Blocked::Dropped | Blocked::Rejected => "blocked",
        Blocked::Would => "would_block",
    };
    let mut event = eve::alert_event(alert, rules);
    marks.put(&mut event);
    let protocol = event.get("proto").and_then(|it| it.as_str()).unwrap_or_default().to_owned();
    AlertRow {
        number: marks.number.unwrap_or_default(),
        note: None,
        is_suppressed: false,
        time_ns: alert.time.0,
        pair: pair.to_owned(),
        sid: rule.sid,
        severity: severity(rule),
        action: action.to_owned(),
        signature: rule.message.clone(),
        category: rules.category(rule).to_owned(),
        protocol,
        source: alert.source.address,
        source_port: alert.source.port,
        destination: alert.destination.address,
        destination_port: alert.destination.port,
        event: serde_json::Value::Object(event).to_string(),
    }
}

/// A rule's priority as records and sinks keep it: what is beyond 255 counts as 255.
fn severity(rule: &Rule) -> u8 {
    u8::try_from(rule.priority).unwrap_or(u8::MAX)
}

/// The alert for sinks.
fn siem_event(alert: &Alert, rules: &RuleSet, marks: &eve::Marks, pair: &str) -> SiemEvent {
    let rule = rules.rule(alert.rule);
    let mut event = eve::alert_event(alert, rules);
    marks.put(&mut event);
    event.insert("pair".into(), pair.into());
    SiemEvent {
        kind: "alert",
        timestamp: rfc3339(alert.time),
        seconds: alert.time.0 as f64 / 1e9,
        severity: severity(rule),
        summary: rule.message.clone(),
        event,
    }
}

/// As EVE has it, with the zone as RFC 3339 wants it.
pub(super) fn rfc3339(time: Time) -> String {
    eve::timestamp(time).replace("+0000", "Z")
}

/// What the gateway did, for sinks; as severe as what every filter but the narrowest lets through.
fn siem_note([who, what, outcome]: [String; 3]) -> SiemEvent {
    let time = clock::time();
    let event = json!({
        "timestamp": eve::timestamp(time), "event_type": "gateway", "who": who, "what": what,
        "outcome": outcome,
    });
    SiemEvent {
        kind: "gateway",
        timestamp: rfc3339(time),
        seconds: time.0 as f64 / 1e9,
        severity: 2,
        summary: format!("{who}: {what}: {outcome}"),
        event: event.as_object().cloned().unwrap_or_default(),
    }
}

/// Where events go, and the file of lines beside it.
fn outs(file: Option<EveFile>) -> io::Result<(Option<EveOutput>, Option<Out>)> {
    let fast = file.as_ref().and_then(|file| {
        let path = file.fast.clone()?;
        Some(EveFile { path, place: EvePlace::File, fast: None, ..file.clone() })
    });
    Ok((file.map(EveOutput::open).transpose()?, fast.map(Out::open).transpose()?))
}

/// Where events go.
enum EveOutput {
    File(Out),
    Socket(Box<EveSocket>),
}

impl EveOutput {
    fn open(wanted: EveFile) -> io::Result<Self> {
        match wanted.place {
            EvePlace::File => Out::open(wanted).map(Self::File),
            _ => Ok(Self::Socket(Box::new(EveSocket::new(wanted)))),
        }
    }

    fn wanted(&self) -> &EveFile {
        match self {
            Self::File(out) => &out.wanted,
            Self::Socket(socket) => &socket.wanted,
        }
    }

    /// Writes lines that tell of one thing, or counts them as lost.
    fn write(&mut self, lines: &[u8], told: LineKind, shared: &Shared) {
        match self {
            Self::File(out) => shared.count(told, out.write(lines).is_ok()),
            Self::Socket(socket) => {
                socket.write(lines, told, &mut |told, is_written| shared.count(told, is_written));
            }
        }
    }
}
