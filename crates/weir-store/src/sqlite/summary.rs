//! Questions whose answers are sums: alerts by signature and over time, volume by who or what. The
//! store adds up, so that an answer stays small whatever was recorded.

use rusqlite::types::Value;
use rusqlite::{Row, params_from_iter};

use super::read::{AlertFilter, QueryError, ROWS_MAX, Range, Reader};

/// Slices of a timeline, at most: more than that are no bars that one can tell apart.
const SLICES_MAX: u64 = 120;

/// Slices of a timeline, seconds.
const RESOLUTIONS_S: [u64; 6] = [1, 10, 60, 600, 3600, 86_400];

/// Severities told apart; what is less severe counts with the last.
const SEVERITIES: i64 = 4;

/// The alerts of one signature.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the API")]
pub struct SignatureRow {
    pub sid: u32,
    pub signature: String,
    pub category: String,
    /// The most severe: 1 is more than 2.
    pub severity: u8,
    pub alerts: u64,
    pub blocked: u64,
    pub would_block: u64,
    /// Of all, those that are suppressed.
    pub suppressed: u64,
    pub first_ns: u64,
    pub last_ns: u64,
    /// Different addresses.
    pub sources: u64,
    pub destinations: u64,
}

/// Alerts of one severity in a slice of time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the API")]
pub struct AlertSlice {
    pub time_s: u64,
    /// 1 to 4; 4 is all that is less severe.
    pub severity: u8,
    pub alerts: u64,
}

/// What volume is added up of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Volumes {
    /// Flows.
    Flows,
    /// Queue pairs' conversations.
    Conversations,
}

/// By what. The numbers are those of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// Who sent the first packet.
    Source = 1,
    /// To whom.
    Destination = 2,
    /// Both: who with whom.
    Ends = 3,
    /// Protocol and the port that answers; of conversations, the service.
    Service = 4,
    /// Both ends with their queue pairs; of conversations alone.
    QueuePair = 5,
    /// Who told of it, where that was not the gateway itself.
    Exporter = 6,
    /// What an end is called: `tenant=red`. A record counts for each name of its ends.
    Label = 7,
}

impl GroupBy {
    pub(super) const ALL: [Self; 7] = [
        Self::Source,
        Self::Destination,
        Self::Ends,
        Self::Service,
        Self::QueuePair,
        Self::Exporter,
        Self::Label,
    ];
}

/// What one group carried. `source` and `destination` are there where it is by them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the API")]
pub struct VolumeRow {
    pub source: Option<[u8; 16]>,
    pub destination: Option<[u8; 16]>,
    /// Whether the addresses are LIDs.
    pub is_lid: bool,
    /// Absent also where only the other direction was seen.
    pub source_qp: Option<u32>,
    pub destination_qp: Option<u32>,
    /// `udp 4791`, `rc roce_v2`.
    pub service: Option<String>,
    /// Address of who told of it.
    pub exporter: Option<String>,
    /// `tenant=red`.
    pub label: Option<String>,
    pub records: u64,
    pub packets: u64,
    pub bytes: u64,
    pub reply_packets: u64,
    pub reply_bytes: u64,
    pub retransmissions: u64,
    pub naks: u64,
    /// The slowest answer of a conversation.
    pub response_ns: Option<u64>,
}

impl Reader {
    /// Alerts by signature, the most frequent first.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn signatures(
        &self,
        range: Range,
        filter: &AlertFilter,
        limit: u32,
    ) -> Result<Vec<SignatureRow>, QueryError> {
        let is_suppressed = self.is_suppressed()?;
        let (terms, mut values) = filter.terms(range, is_suppressed);
        values.push(Value::Integer(limit.min(ROWS_MAX).into()));
        let sql = format!(
            "SELECT sid, signature, max(category) AS category, min(severity) AS severity, \
             count(*) AS alerts, sum(action = 'blocked') AS blocked, \
             sum(action = 'would_block') AS would_block, \
             sum({is_suppressed}) AS suppressed, min(time_ns) AS first_ns, \
             max(time_ns) AS last_ns, count(DISTINCT source) AS sources, \
             count(DISTINCT destination) AS destinations FROM alert WHERE {terms} \
             GROUP BY sid, signature ORDER BY alerts DESC LIMIT ?"
        );
        self.rows(&sql, params_from_iter(values), SignatureRow::of)
    }

    /// Alerts over time, by severity, in slices of the seconds that come with them.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn alert_slices(
        &self,
        range: Range,
        filter: &AlertFilter,
    ) -> Result<(u64, Vec<AlertSlice>), QueryError> {
        let resolution_s = resolution_s(range);
        let slice_ns = (resolution_s * 1_000_000_000) as i64;
        let (terms, values) = filter.terms(range, self.is_suppressed()?);
        let sql = format!(
            "SELECT time_ns / {slice_ns} * {resolution_s} AS time_s, \
             min(max(severity, 1), {SEVERITIES}) AS level, count(*) AS alerts \
             FROM alert WHERE {terms} GROUP BY 1, 2 ORDER BY 1, 2 LIMIT {ROWS_MAX}"
        );
        let rows = self.rows(&sql, params_from_iter(values), AlertSlice::of)?;
        Ok((resolution_s, rows))
    }
}

/// The finest slice that makes a timeline of `range`.
fn resolution_s(range: Range) -> u64 {
    let fits = |it: &&u64| range.seconds() / **it <= SLICES_MAX;
    let coarsest = range.seconds() / SLICES_MAX + 1;
    RESOLUTIONS_S.iter().find(fits).copied().unwrap_or(coarsest)
}

fn unsigned(row: &Row<'_>, name: &str) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(name)? as u64)
}

impl SignatureRow {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            sid: row.get("sid")?,
            signature: row.get("signature")?,
            category: row.get("category")?,
            severity: row.get("severity")?,
            alerts: unsigned(row, "alerts")?,
            blocked: unsigned(row, "blocked")?,
            would_block: unsigned(row, "would_block")?,
            suppressed: unsigned(row, "suppressed")?,
            first_ns: unsigned(row, "first_ns")?,
            last_ns: unsigned(row, "last_ns")?,
            sources: unsigned(row, "sources")?,
            destinations: unsigned(row, "destinations")?,
        })
    }
}

impl AlertSlice {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        let (time_s, alerts) = (unsigned(row, "time_s")?, unsigned(row, "alerts")?);
        Ok(Self { time_s, severity: row.get("level")?, alerts })
    }
}
