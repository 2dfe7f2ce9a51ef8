//! Questions to a store, by who may read it only. A reader never holds up the writer (WAL), and no
//! question runs longer than [`QUERY_TIME_MAX`].

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::limits::Limit;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, Params, Row, params_from_iter};
use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::insert::COUNTER_RESOLUTIONS_S;
use super::labels::LabelFilter;
use super::rows::{
    AlertRow, AskedRow, ConversationRow, CounterRow, EventRow, FlowRow, PeerStateRow,
};
use super::schema::{self, StoreError};
use crate::clock;

/// Rows of an answer, at most.
pub const ROWS_MAX: u32 = 10_000;

/// A question is given up after so long.
pub const QUERY_TIME_MAX: Duration = Duration::from_secs(5);

/// Steps of SQLite's machine between two looks at the clock.
const STEPS_PER_LOOK: i32 = 10_000;

/// Bytes of a row, at most: a block of columns has a few hundred KiB. What is longer was written by
/// no gateway.
const ROW_BYTES_MAX: i32 = 4 << 20;

/// Texts and bytes of an answer to who answers many, at most.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// How long a reader waits for the file's lock: only a file that is being made is locked.
const LOCK_WAIT: Duration = Duration::from_millis(500);

/// Slices of a chart beyond which coarser ones serve better.
const SLICES_MAX: u64 = 400;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The file.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It took too long.
    #[error("the question took too long: ask for less time, or for one end")]
    TooLong,
    /// Their sums do not fit into memory.
    #[error("more than {0} different ones: ask for less time, or for one end")]
    TooMany(usize),
    /// They do not fit into memory.
    #[error("the answer has more than {} MiB: ask for less time, or for fewer rows", .0 >> 20)]
    TooMuch(usize),
    /// It has no such table or column.
    #[error(
        "the store has not what was asked for: it is being made, or what writes it is of an \
         earlier version ({0})"
    )]
    NotYet(rusqlite::Error),
    /// SQLite refuses.
    #[error("the store does not answer: {0}")]
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for QueryError {
    fn from(error: rusqlite::Error) -> Self {
        let is_missing = matches!(error, rusqlite::Error::InvalidColumnName(_))
            || error.to_string().starts_with("no such ");
        match error.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) => Self::TooLong,
            _ if is_missing => Self::NotYet(error),
            _ => Self::Sqlite(error),
        }
    }
}

/// A span of time, seconds since 1970: from `from_s` on and before `until_s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Its first second.
    pub from_s: u64,
    /// The first second after it.
    pub until_s: u64,
}

impl Range {
    /// Seconds that it spans.
    pub fn seconds(&self) -> u64 {
        self.until_s.saturating_sub(self.from_s)
    }

    /// From and until, nanoseconds since 1970.
    pub(super) fn times_ns(&self) -> [i64; 2] {
        [self.from_s, self.until_s]
            .map(|s| i64::try_from(s.saturating_mul(1_000_000_000)).unwrap_or(i64::MAX))
    }

    pub(super) fn nanoseconds(&self) -> [Value; 2] {
        self.times_ns().map(Value::Integer)
    }

    fn slices(&self, resolution: i64) -> [Value; 2] {
        let first = (self.from_s - self.from_s % resolution as u64) as i64;
        [Value::Integer(first), Value::Integer(i64::try_from(self.until_s).unwrap_or(i64::MAX))]
    }

    /// The finest of `resolutions` (rising) that makes no more slices than a chart can show.
    fn resolution(&self, resolutions: &[i64]) -> i64 {
        let fits = |it: &&i64| self.seconds() / (**it as u64) <= SLICES_MAX;
        *resolutions.iter().find(fits).or(resolutions.last()).unwrap_or(&3600)
    }
}

/// Which records; what is absent chooses nothing out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordFilter {
    /// Of this pair of ports.
    pub pair: Option<String>,
    /// With an end in this range of addresses, first and last.
    pub addresses: Option<([u8; 16], [u8; 16])>,
    /// With this port at an end; flows only.
    pub port: Option<u16>,
    /// Of this IP protocol; flows only.
    pub protocol: Option<u8>,
    /// With this queue pair at an end; conversations only.
    pub queue_pair: Option<u32>,
    /// All records of one flow or conversation as one row, their counts added up.
    pub is_grouped: bool,
    /// Which come first.
    pub order: Order,
    /// With an end of this name.
    pub label: Option<LabelFilter>,
    /// Told of by this exporter.
    pub exporter: Option<String>,
}

/// Which rows come first: those that have most of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The latest.
    #[default]
    Last,
    /// Bytes, there and back.
    Bytes,
    /// Packets, there and back.
    Packets,
    /// Packets that were sent again; conversations only.
    Retransmissions,
    /// NAKs; conversations only.
    Naks,
    /// The slowest answer; conversations only.
    Response,
}

impl Order {
    /// All, with their names on the command line and in the API.
    pub const NAMED: [(&str, Self); 6] = [
        ("last", Self::Last),
        ("bytes", Self::Bytes),
        ("packets", Self::Packets),
        ("retransmissions", Self::Retransmissions),
        ("naks", Self::Naks),
        ("response", Self::Response),
    ];

    /// Those that flows know.
    pub const OF_FLOWS: [Self; 3] = [Self::Last, Self::Bytes, Self::Packets];

    /// The columns that together are what a record has of it.
    pub(super) fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Last => &["last_ns"],
            Self::Bytes => &["bytes", "reply_bytes"],
            Self::Packets => &["packets", "reply_packets"],
            Self::Retransmissions => &["retransmissions"],
            Self::Naks => &["naks"],
            Self::Response => &["response_ns"],
        }
    }
}

impl std::str::FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::NAMED.into_iter().find(|(name, _)| *name == text);
        found.map(|(_, order)| order).ok_or_else(|| {
            let names = Self::NAMED.map(|(name, _)| name).join(", ");
            format!("`{text}` is no order: write one of {names}")
        })
    }
}

/// Which alerts; what is absent chooses nothing out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlertFilter {
    /// The one of this number.
    pub number: Option<u64>,
    /// Of this pair of ports.
    pub pair: Option<String>,
    /// Of the rule of this number.
    pub sid: Option<u32>,
    /// At least as severe: 1 is the most.
    pub severity: Option<u8>,
    /// What became of the packet: `allowed`, `blocked` or `would_block`.
    pub action: Option<String>,
    /// With an end in this range of addresses, first and last.
    pub addresses: Option<([u8; 16], [u8; 16])>,
    /// With an end of this name.
    pub label: Option<LabelFilter>,
    /// Whether it is suppressed.
    pub suppressed: Option<bool>,
}

impl AlertFilter {
    /// The conditions of a question for alerts, with their values; `is_suppressed` is one too.
    pub(super) fn terms(&self, range: Range, is_suppressed: &str) -> (String, Vec<Value>) {
        let mut terms = vec!["time_ns >= ?".to_owned(), "time_ns < ?".to_owned()];
        let mut values: Vec<Value> = range.nanoseconds().into();
        let mut add = |term: &str, value| {
            terms.push(term.to_owned());
            values.push(value);
        };
        if let Some(number) = self.number {
            add("id = ?", Value::Integer(number.cast_signed()));
        }
        if let Some(pair) = &self.pair {
            add("pair = ?", Value::Text(pair.clone()));
        }
        if let Some(sid) = self.sid {
            add("sid = ?", Value::Integer(sid.into()));
        }
        if let Some(severity) = self.severity {
            add("severity <= ?", Value::Integer(severity.into()));
        }
        if let Some(action) = &self.action {
            add("action = ?", Value::Text(action.clone()));
        }
        if let Some((first, last)) = self.addresses {
            terms.push("(source BETWEEN ? AND ? OR destination BETWEEN ? AND ?)".to_owned());
            values.extend([first, last, first, last].map(|it| Value::Blob(it.to_vec())));
        }
        if let Some(label) = &self.label {
            let (term, named) = label.term(&["source", "destination"]);
            terms.push(term);
            values.extend(named);
        }
        if let Some(suppressed) = self.suppressed {
            terms.push(format!("({is_suppressed}) = {}", i32::from(suppressed)));
        }
        (terms.join(" AND "), values)
    }
}

/// A store, read only.
#[derive(Debug)]
pub struct Reader {
    pub(super) connection: Connection,
    /// When a question has taken too long.
    end: Instant,
    /// Texts and bytes of an answer, at most.
    bytes_max: usize,
}

impl Reader {
    /// Opens the store at `path`, for one who answers many: questions end [`QUERY_TIME_MAX`] later,
    /// and an answer has 8 MiB of texts at most.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let bytes_max = ANSWER_BYTES_MAX;
        Self::open_for(path, QUERY_TIME_MAX).map(|reader| Self { bytes_max, ..reader })
    }

    /// Opens the store at `path`, for questions that may take so `long` and so much as they want.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open_for(path: &Path, long: Duration) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let error = match Self::open_as(path, path, flags, long) {
            Err(StoreError::Sqlite { error, .. }) => error,
            other => return other,
        };
        let refused = |error: Errno| StoreError::Io { path: path.to_owned(), error: error.into() };
        access(path, Access::READ_OK).map_err(refused)?;
        let is_shut = matches!(
            error.sqlite_error_code(),
            Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied)
        );
        // Beside a store that is written stand a log and its index; a copy, or a folder that cannot
        // be written to, may have none, and then all is in the file.
        match fs::metadata(schema::beside(path, "-wal")) {
            _ if !is_shut => Err(StoreError::Sqlite { path: path.to_owned(), error }),
            Ok(log) if log.len() > 0 => Err(StoreError::Unfinished(path.to_owned())),
            _ => {
                let flags = flags | OpenFlags::SQLITE_OPEN_URI;
                Self::open_as(path, Path::new(&immutable(path)), flags, long)
            }
        }
    }

    fn open_as(
        path: &Path,
        name: &Path,
        flags: OpenFlags,
        long: Duration,
    ) -> Result<Self, StoreError> {
        let failed = |error| StoreError::Sqlite { path: PathBuf::from(path), error };
        let mut connection = Connection::open_with_flags(name, flags).map_err(failed)?;
        connection.busy_timeout(LOCK_WAIT).map_err(failed)?;
        // Who wrote the file may be another than who reads it: nothing in it is run.
        for (pragma, is_on) in [("trusted_schema", false), ("cell_size_check", true)] {
            connection.pragma_update(None, pragma, is_on).map_err(failed)?;
        }
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, ROW_BYTES_MAX).map_err(failed)?;
        schema::version(&connection, path)?;
        let end = clock::now() + long;
        let is_over = move || clock::now() >= end;
        connection.progress_handler(STEPS_PER_LOOK, Some(is_over)).map_err(failed)?;
        Ok(Self { connection, end, bytes_max: usize::MAX })
    }

    /// An error when a question has taken too long: of what SQLite does not see.
    pub(super) fn check_time(&self) -> Result<(), QueryError> {
        if clock::now() < self.end { Ok(()) } else { Err(QueryError::TooLong) }
    }

    /// Flows that ended within `range`, the latest first.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn flows(
        &self,
        range: Range,
        filter: &RecordFilter,
        limit: u32,
    ) -> Result<Vec<FlowRow>, QueryError> {
        if filter.is_grouped {
            return self.grouped(range, filter, limit);
        }
        let (sql, values) = Query::of_flows(range, filter).finish(limit);
        self.rows(&sql, params_from_iter(values), FlowRow::of)
    }

    /// Conversations likewise.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn conversations(
        &self,
        range: Range,
        filter: &RecordFilter,
        limit: u32,
    ) -> Result<Vec<ConversationRow>, QueryError> {
        if filter.is_grouped {
            return self.grouped(range, filter, limit);
        }
        let (sql, values) = Query::of_conversations(range, filter).finish(limit);
        self.rows(&sql, params_from_iter(values), ConversationRow::of)
    }

    /// Who asked what of whom by RDMA within `range`; of `pair`, or of all. At most `limit` rows.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn asked(
        &self,
        range: Range,
        pair: Option<&str>,
        limit: u32,
    ) -> Result<Vec<AskedRow>, QueryError> {
        let sql = "WITH seen AS (SELECT * FROM conversation \
             WHERE last_ns >= ?1 AND last_ns < ?2 \
             AND (?3 IS NULL OR pair IN (SELECT id FROM pair WHERE name = ?3))) \
             SELECT source, destination, asked, SUM(messages) AS messages FROM ( \
             SELECT source, destination, asked, messages FROM seen WHERE asked > 0 UNION ALL \
             SELECT destination, source, reply_asked, reply_messages FROM seen \
             WHERE reply_asked > 0) \
             GROUP BY source, destination, asked LIMIT ?4";
        let [from, until] = range.nanoseconds();
        let pair = pair.map_or(Value::Null, |it| Value::Text(it.to_owned()));
        self.rows(sql, [from, until, pair, Value::Integer(limit.into())], AskedRow::of)
    }

    /// What counters grew by, in slices of the seconds that come with it.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn counters(&self, range: Range) -> Result<(u64, Vec<CounterRow>), QueryError> {
        let resolution = range.resolution(&COUNTER_RESOLUTIONS_S);
        let sql = "SELECT time_s, scope.pair, scope.kind, scope.name AS scope_name, \
                   counter_name.name AS name, value FROM counter \
                   JOIN scope ON scope.id = counter.scope \
                   JOIN counter_name ON counter_name.id = counter.name \
                   WHERE resolution_s = ? AND time_s >= ? AND time_s < ? ORDER BY time_s LIMIT ?";
        let [from, until] = range.slices(resolution);
        // Some tens of counters a slice.
        let limit = Value::Integer(i64::from(ROWS_MAX) * 10);
        let values = [Value::Integer(resolution), from, until, limit];
        let rows = self.rows(sql, params_from_iter(values), CounterRow::of)?;
        Ok((resolution as u64, rows))
    }

    /// The resolution of counters that suits `range`, and its slices.
    pub(super) fn counter_slices(&self, range: Range) -> (Value, [Value; 2]) {
        let resolution = range.resolution(&COUNTER_RESOLUTIONS_S);
        (Value::Integer(resolution), range.slices(resolution))
    }

    /// Changes of peers' states within `range`, the latest first.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn peer_states(&self, range: Range, limit: u32) -> Result<Vec<PeerStateRow>, QueryError> {
        let sql = "SELECT * FROM peer_state WHERE time_ns >= ? AND time_ns < ? \
                   ORDER BY id DESC LIMIT ?";
        self.rows(sql, params_from_iter(in_time(range, limit)), PeerStateRow::of)
    }

    /// Alerts within `range`, the latest first.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn alerts(
        &self,
        range: Range,
        filter: &AlertFilter,
        limit: u32,
    ) -> Result<Vec<AlertRow>, QueryError> {
        let is_suppressed = self.is_suppressed()?;
        let (terms, mut values) = filter.terms(range, is_suppressed);
        values.push(Value::Integer(limit.min(ROWS_MAX).into()));
        let note = match self.has_table("alert_note")? {
            true => "LEFT JOIN alert_note ON alert_note.alert = found.id",
            false => "LEFT JOIN (SELECT NULL AS note_time_ns)",
        };
        let sql = format!(
            "SELECT * FROM (SELECT *, {is_suppressed} AS is_suppressed FROM alert WHERE {terms} \
             ORDER BY time_ns DESC, id DESC LIMIT ?) AS found {note} \
             ORDER BY time_ns DESC, id DESC"
        );
        self.rows(&sql, params_from_iter(values), AlertRow::of)
    }

    /// Lines of the log book within `range`, the latest first.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn events(&self, range: Range, limit: u32) -> Result<Vec<EventRow>, QueryError> {
        let sql = "SELECT * FROM event WHERE time_ns >= ? AND time_ns < ? ORDER BY id DESC LIMIT ?";
        self.rows(sql, params_from_iter(in_time(range, limit)), EventRow::of)
    }

    /// Whether the store has a table of this name: one of an earlier Weir may not.
    pub(super) fn has_table(&self, name: &str) -> Result<bool, QueryError> {
        let sql = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?";
        Ok(!self.rows(sql, [name], |_| Ok(()))?.is_empty())
    }

    pub(super) fn rows<T>(
        &self,
        sql: &str,
        values: impl Params,
        of: fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, QueryError> {
        let mut statement = self.connection.prepare(sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query(values)?;
        let (mut found, mut bytes) = (Vec::new(), 0_usize);
        while let Some(row) = rows.next()? {
            for column in 0..columns {
                if let ValueRef::Text(it) | ValueRef::Blob(it) = row.get_ref(column)? {
                    bytes += it.len();
                }
            }
            if bytes > self.bytes_max {
                return Err(QueryError::TooMuch(self.bytes_max));
            }
            found.push(of(row)?);
        }
        Ok(found)
    }
}

/// Bounds the memory that SQLite takes in this process, for all files together; what needs more
/// fails. It bounds what SQLite makes of a file that a stranger wrote, above all of its schema.
///
/// # Errors
/// SQLite does not count its memory.
pub fn bound_memory(bytes_max: u32) -> Result<(), QueryError> {
    let connection = Connection::open_in_memory()?;
    let set =
        connection.query_row(&format!("PRAGMA hard_heap_limit = {bytes_max}"), [], |row| {
            row.get::<_, i64>(0)
        })?;
    match set == i64::from(bytes_max) {
        true => Ok(()),
        false => Err(QueryError::Sqlite(rusqlite::Error::InvalidQuery)),
    }
}

/// SQLite's name of a file that nobody writes.
fn immutable(path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes();
    let encoded: String = bytes.iter().map(|byte| format!("%{byte:02x}")).collect();
    format!("file:{encoded}?immutable=1")
}

fn in_time(range: Range, limit: u32) -> [Value; 3] {
    let [from, until] = range.nanoseconds();
    [from, until, Value::Integer(limit.min(ROWS_MAX).into())]
}

/// A question for records, with its values.
struct Query {
    table: &'static str,
    order: Order,
    terms: Vec<String>,
    values: Vec<Value>,
}

impl Query {
    fn of(table: &'static str, range: Range, filter: &RecordFilter) -> Self {
        let terms = vec!["last_ns >= ?".to_owned(), "last_ns < ?".to_owned()];
        let values = range.nanoseconds().into();
        let mut query = Self { table, order: filter.order, terms, values };
        if let Some(pair) = &filter.pair {
            query.terms.push("pair = (SELECT id FROM pair WHERE name = ?)".into());
            query.values.push(Value::Text(pair.clone()));
        }
        if let Some(exporter) = &filter.exporter {
            query.terms.push("exporter = ?".into());
            query.values.push(Value::Text(exporter.clone()));
        }
        if let Some((first, last)) = filter.addresses {
            query.terms.push("(source BETWEEN ? AND ? OR destination BETWEEN ? AND ?)".into());
            let ends = [first, last, first, last].map(|it| Value::Blob(it.to_vec()));
            query.values.extend(ends);
        }
        if let Some(label) = &filter.label {
            let (term, named) = label.term(&["source", "destination"]);
            query.terms.push(term);
            query.values.extend(named);
        }
        query
    }

    fn of_flows(range: Range, filter: &RecordFilter) -> Self {
        let mut query = Self::of("flow", range, filter);
        if let Some(port) = filter.port {
            query.both("source_port", "destination_port", i64::from(port));
        }
        if let Some(protocol) = filter.protocol {
            query.terms.push("protocol = ?".into());
            query.values.push(Value::Integer(protocol.into()));
        }
        query
    }

    fn of_conversations(range: Range, filter: &RecordFilter) -> Self {
        let mut query = Self::of("conversation", range, filter);
        if let Some(queue_pair) = filter.queue_pair {
            query.both("source_qp", "destination_qp", queue_pair.into());
        }
        query
    }

    fn both(&mut self, one: &str, other: &str, value: i64) {
        self.terms.push(format!("({one} = ? OR {other} = ?)"));
        self.values.extend([Value::Integer(value), Value::Integer(value)]);
    }

    fn finish(mut self, limit: u32) -> (String, Vec<Value>) {
        // What is absent is less than all that is there.
        let (table, order) = (self.table, self.order.columns().join(" + "));
        let chosen = self.terms.join(" AND ");
        let sql = format!(
            "SELECT records.*, pair.name AS pair_name FROM (SELECT *, {order} AS rank FROM {table} \
             WHERE {chosen} ORDER BY rank DESC LIMIT ?) AS records \
             JOIN pair ON pair.id = records.pair ORDER BY records.rank DESC"
        );
        self.values.push(Value::Integer(limit.min(ROWS_MAX).into()));
        (sql, self.values)
    }
}
