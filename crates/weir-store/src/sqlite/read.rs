//! Questions to a store, by who may read it only. A reader never holds up the writer (WAL), and no
//! question runs longer than [`QUERY_TIME_MAX`].

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode, OpenFlags, Params, Row, params_from_iter};

use super::insert::COUNTER_RESOLUTIONS_S;
use super::labels::LabelFilter;
use super::rows::{
    AlertRow, AskedRow, ConversationRow, CounterRow, EventRow, FlowRow, PeerStateRow,
};
use super::schema::{self, StoreError};

/// Rows of an answer, at most.
pub const ROWS_MAX: u32 = 10_000;

/// A question is given up after so long.
pub const QUERY_TIME_MAX: Duration = Duration::from_secs(5);

/// Steps of SQLite's machine between two looks at the clock.
const STEPS_PER_LOOK: i32 = 10_000;

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
    #[error("the question took longer than {QUERY_TIME_MAX:?}: ask for less time or one pair")]
    TooLong,
    /// SQLite refuses.
    #[error("the store does not answer: {0}")]
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for QueryError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) => Self::TooLong,
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

    pub(super) fn nanoseconds(&self) -> [Value; 2] {
        [self.from_s, self.until_s].map(|s| {
            Value::Integer(i64::try_from(s.saturating_mul(1_000_000_000)).unwrap_or(i64::MAX))
        })
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

/// How the records of one flow or conversation become one row.
struct Group {
    /// What they have in common.
    same: &'static str,
    /// What is added up.
    sums: &'static [&'static str],
    /// Of what the greatest counts.
    greatest: &'static [&'static str],
    /// Bits that are or-ed.
    flags: &'static [&'static str],
}

const FLOW_GROUP: Group = Group {
    same: "pair, protocol, source, source_port, destination, destination_port, vlan, side, \
           exporter",
    sums: &["packets", "bytes", "reply_packets", "reply_bytes", "congestion_marks", "fast_packets"],
    greatest: &["last_ns", "source_peer", "destination_peer"],
    flags: &["tcp_flags"],
};

const CONVERSATION_GROUP: Group = Group {
    same: "pair, encapsulation, service, source, source_qp, destination, destination_qp, vlan, \
           side, partition_key, exporter",
    sums: &[
        "packets",
        "bytes",
        "payload_bytes",
        "messages",
        "reply_packets",
        "reply_bytes",
        "reply_payload_bytes",
        "reply_messages",
        "send_bytes",
        "write_bytes",
        "read_bytes",
        "atomic_bytes",
        "retransmissions",
        "naks",
        "rnr_naks",
        "cnp",
        "congestion_marks",
        "missing",
        "icrc_bad",
    ],
    greatest: &["last_ns", "path_mtu", "response_ns", "source_peer", "destination_peer"],
    flags: &[],
};

impl Group {
    /// The columns of a row, by the names of a record's.
    fn columns(&self) -> String {
        let sums = self.sums.iter().map(|it| format!("sum({it}) AS {it}"));
        let greatest = self.greatest.iter().map(|it| format!("max({it}) AS {it}"));
        let flags = self.flags.iter().map(|it| {
            let bits = (0..8).map(|bit| format!("max({it} & {})", 1 << bit));
            format!("{} AS {it}", bits.collect::<Vec<_>>().join(" | "))
        });
        let counted: Vec<_> = sums.chain(greatest).chain(flags).collect();
        let reason = "CASE count(*) WHEN 1 THEN max(reason) ELSE 'several' END AS reason";
        format!("{}, min(started_ns) AS started_ns, {}, {reason}", self.same, counted.join(", "))
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
    /// Of the latest so many records alone; absent: of all. A dashboard cannot wait for the sums of
    /// half a million.
    pub records_max: Option<u32>,
    /// With an end of this name.
    pub label: Option<LabelFilter>,
    /// Told of by this exporter.
    pub exporter: Option<String>,
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
}

impl AlertFilter {
    /// The conditions of a question for alerts, with their values.
    pub(super) fn terms(&self, range: Range) -> (String, Vec<Value>) {
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
        (terms.join(" AND "), values)
    }
}

/// A store, read only.
#[derive(Debug)]
pub struct Reader {
    pub(super) connection: Connection,
}

impl Reader {
    /// Opens the store at `path`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let failed = |error| StoreError::Sqlite { path: PathBuf::from(path), error };
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        connection.busy_timeout(LOCK_WAIT).map_err(failed)?;
        schema::version(&connection, path)?;
        let end = Instant::now() + QUERY_TIME_MAX;
        let is_over = move || Instant::now() >= end;
        connection.progress_handler(STEPS_PER_LOOK, Some(is_over)).map_err(failed)?;
        Ok(Self { connection })
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
        let mut query = Query::of("flow", &FLOW_GROUP, range, filter);
        if let Some(port) = filter.port {
            query.both("source_port", "destination_port", i64::from(port));
        }
        if let Some(protocol) = filter.protocol {
            query.terms.push("protocol = ?".into());
            query.values.push(Value::Integer(protocol.into()));
        }
        let (sql, values) = query.finish(limit);
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
        let mut query = Query::of("conversation", &CONVERSATION_GROUP, range, filter);
        if let Some(queue_pair) = filter.queue_pair {
            query.both("source_qp", "destination_qp", queue_pair.into());
        }
        let (sql, values) = query.finish(limit);
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
        let (terms, mut values) = filter.terms(range);
        values.push(Value::Integer(limit.min(ROWS_MAX).into()));
        let note = match self.has_table("alert_note")? {
            true => "LEFT JOIN alert_note ON alert_note.alert = found.id",
            false => "LEFT JOIN (SELECT NULL AS note_time_ns)",
        };
        let sql = format!(
            "SELECT * FROM (SELECT * FROM alert WHERE {terms} \
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
        let rows = statement.query_map(values, of)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

fn in_time(range: Range, limit: u32) -> [Value; 3] {
    let [from, until] = range.nanoseconds();
    [from, until, Value::Integer(limit.min(ROWS_MAX).into())]
}

/// A question for records, with its values.
struct Query {
    table: &'static str,
    records_max: Option<u32>,
    group: Option<&'static Group>,
    terms: Vec<String>,
    values: Vec<Value>,
}

impl Query {
    fn of(table: &'static str, group: &'static Group, range: Range, filter: &RecordFilter) -> Self {
        let terms = vec!["last_ns >= ?".to_owned(), "last_ns < ?".to_owned()];
        let group = filter.is_grouped.then_some(group);
        let values = range.nanoseconds().into();
        let mut query =
            Self { table, records_max: group.and(filter.records_max), group, terms, values };
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

    fn both(&mut self, one: &str, other: &str, value: i64) {
        self.terms.push(format!("({one} = ? OR {other} = ?)"));
        self.values.extend([Value::Integer(value), Value::Integer(value)]);
    }

    fn finish(mut self, limit: u32) -> (String, Vec<Value>) {
        let Self { table, group, terms, .. } = &self;
        let (columns, by) = match group {
            Some(group) => (group.columns(), format!("GROUP BY {}", group.same)),
            None => ("*".to_owned(), String::new()),
        };
        let chosen = format!("FROM {table} WHERE {}", terms.join(" AND "));
        let from = match self.records_max {
            Some(most) => {
                format!("FROM (SELECT * {chosen} ORDER BY {table}.last_ns DESC LIMIT {most})")
            }
            None => chosen,
        };
        let sql = format!(
            "SELECT records.*, pair.name AS pair_name FROM (SELECT {columns} {from} \
             {by} ORDER BY last_ns DESC LIMIT ?) AS records \
             JOIN pair ON pair.id = records.pair ORDER BY records.last_ns DESC"
        );
        self.values.push(Value::Integer(limit.min(ROWS_MAX).into()));
        (sql, self.values)
    }
}
