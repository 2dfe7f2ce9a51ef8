//! Alerts that nobody wants to see for a while: those of a signature, of one source or of all.
//! They stay stored and counted; who asks for alerts may leave them out.

use rusqlite::{Row, Transaction, params};

use super::read::{QueryError, Reader};

/// Suppressions in force at a time, at most; more are refused.
pub const SUPPRESSIONS_MAX: usize = 1024;

/// All addresses, first and last.
const EVERYBODY: ([u8; 16], [u8; 16]) = ([0; 16], [255; 16]);

/// A signature whose alerts are suppressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suppression {
    /// The rule's number.
    pub sid: u32,
    /// Only what comes from here, first and last address; absent: from anywhere.
    pub source: Option<([u8; 16], [u8; 16])>,
    /// From when on, nanoseconds since 1970.
    pub since_ns: u64,
    /// Until when.
    pub until_ns: u64,
    /// Who said so.
    pub who: String,
    /// Why, in the operator's words; may be empty.
    pub reason: String,
}

/// A change of the suppressions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SuppressionChange {
    /// Suppress. One of the same signature and source goes on until then.
    Begin(Suppression),
    /// Show them again from a time on.
    End {
        /// The rule's number.
        sid: u32,
        /// As it was suppressed.
        source: Option<([u8; 16], [u8; 16])>,
        /// Nanoseconds since 1970.
        time_ns: u64,
    },
}

/// Whether a suppression covers an alert, as a condition on a row of `alert`.
pub(super) const IS_SUPPRESSED: &str = "EXISTS (SELECT 1 FROM suppression \
     WHERE suppression.sid = alert.sid \
     AND alert.source BETWEEN suppression.first AND suppression.last \
     AND alert.time_ns >= suppression.since_ns AND alert.time_ns < suppression.until_ns)";

impl Suppression {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        let source = (row.get("first")?, row.get("last")?);
        Ok(Self {
            sid: row.get("sid")?,
            source: Some(source).filter(|it| *it != EVERYBODY),
            since_ns: row.get::<_, i64>("since_ns")? as u64,
            until_ns: row.get::<_, i64>("until_ns")? as u64,
            who: row.get("who")?,
            reason: row.get("reason")?,
        })
    }
}

impl Reader {
    /// What is suppressed at `time_ns`, what ends first first.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn suppressions(&self, time_ns: u64) -> Result<Vec<Suppression>, QueryError> {
        if !self.has_table("suppression")? {
            return Ok(Vec::new());
        }
        let sql = "SELECT * FROM suppression WHERE since_ns <= ?1 AND until_ns > ?1 \
                   ORDER BY until_ns, sid";
        self.rows(sql, [i64::try_from(time_ns).unwrap_or(i64::MAX)], Suppression::of)
    }

    /// The condition that an alert is suppressed; one of an earlier Weir never is.
    pub(super) fn is_suppressed(&self) -> Result<&'static str, QueryError> {
        Ok(if self.has_table("suppression")? { IS_SUPPRESSED } else { "0" })
    }
}

/// Writes `change`; what ended before stays, for the alerts of its time.
pub(super) fn write(
    transaction: &Transaction<'_>,
    change: &SuppressionChange,
) -> rusqlite::Result<()> {
    match change {
        SuppressionChange::Begin(it) => {
            let (first, last) = it.source.unwrap_or(EVERYBODY);
            let (since_ns, until_ns) = (it.since_ns as i64, it.until_ns as i64);
            let mut update = transaction.prepare_cached(
                "UPDATE suppression SET until_ns = ?5, who = ?6, reason = ?7 \
                 WHERE sid = ?1 AND first = ?2 AND last = ?3 AND until_ns > ?4",
            )?;
            let values = params![it.sid, first, last, since_ns, until_ns, it.who, it.reason];
            if update.execute(values)? == 0 {
                let mut insert = transaction.prepare_cached(
                    "INSERT INTO suppression (sid, first, last, since_ns, until_ns, who, reason) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                )?;
                insert.execute(values)?;
            }
        }
        SuppressionChange::End { sid, source, time_ns } => {
            let (first, last) = source.unwrap_or(EVERYBODY);
            let mut end = transaction.prepare_cached(
                "UPDATE suppression SET until_ns = ?4 \
                 WHERE sid = ?1 AND first = ?2 AND last = ?3 AND until_ns > ?4",
            )?;
            end.execute((sid, first, last, *time_ns as i64))?;
        }
    }
    Ok(())
}
