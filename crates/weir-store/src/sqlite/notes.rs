//! What operators say of alerts: seen and done with, and why.

use rusqlite::{Row, Transaction, params};

use super::read::{QueryError, Reader};

/// What was last said of an alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertNote {
    /// Which: [`AlertRow::number`](super::AlertRow::number).
    pub alert: u64,
    /// When, nanoseconds since 1970.
    pub time_ns: u64,
    /// Who said it.
    pub who: String,
    /// Whether nobody need look at it any more.
    pub is_acknowledged: bool,
    /// In the operator's words; may be empty.
    pub comment: String,
}

impl AlertNote {
    /// Of a row of alerts with their notes; absent: nothing was said.
    pub(super) fn of(row: &Row<'_>) -> rusqlite::Result<Option<Self>> {
        let Some(time_ns) = row.get::<_, Option<i64>>("note_time_ns")? else { return Ok(None) };
        Ok(Some(Self {
            alert: row.get::<_, i64>("id")? as u64,
            time_ns: time_ns as u64,
            who: row.get("who")?,
            is_acknowledged: row.get("is_acknowledged")?,
            comment: row.get("comment")?,
        }))
    }
}

impl Reader {
    /// Whether there is an alert of this number.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn has_alert(&self, number: u64) -> Result<bool, QueryError> {
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        let found = self.rows("SELECT 1 FROM alert WHERE id = ?", [number], |_| Ok(()))?;
        Ok(!found.is_empty())
    }
}

/// Puts `note` in the place of what was said before; nothing where the alert is gone.
pub(super) fn write(transaction: &Transaction<'_>, note: &AlertNote) -> rusqlite::Result<()> {
    let mut insert = transaction.prepare_cached(
        "INSERT OR REPLACE INTO alert_note (alert, note_time_ns, who, is_acknowledged, comment) \
         SELECT id, ?2, ?3, ?4, ?5 FROM alert WHERE id = ?1",
    )?;
    let AlertNote { alert, time_ns, who, is_acknowledged, comment } = note;
    insert.execute(params![*alert as i64, *time_ns as i64, who, is_acknowledged, comment])?;
    Ok(())
}
