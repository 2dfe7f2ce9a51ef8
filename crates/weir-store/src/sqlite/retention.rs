//! What is too old goes, and what is too much: the oldest first, in small transactions, so that
//! records never wait long.

use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::Connection;

use super::rollup::{LEVELS_S, advance as rollup};
use super::writer::Retention;

/// Rows of a transaction.
const CHUNK_ROWS: i64 = 10_000;

/// Transactions of one round: what is left then waits for the next.
const CHUNKS_MAX: usize = 50;

/// Seconds of the finest counters.
const FINE_S: i64 = 10;

/// Removes what is due; returns the bytes in use.
pub(super) fn apply(connection: &mut Connection, retention: &Retention) -> rusqlite::Result<u64> {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs());
    let before = |keep_s: u64| now_s.saturating_sub(keep_s) as i64;
    let before_ns = |keep_s: u64| before(keep_s).saturating_mul(1_000_000_000);
    let mut chunks = 0;
    for table in ["flow", "conversation"] {
        let sql = format!(
            "DELETE FROM {table} WHERE id IN \
             (SELECT id FROM {table} WHERE last_ns < ?1 ORDER BY last_ns LIMIT ?2)"
        );
        while chunks < CHUNKS_MAX {
            chunks += 1;
            let limit = before_ns(retention.records_s);
            if connection.execute(&sql, (limit, CHUNK_ROWS))? < CHUNK_ROWS as usize {
                break;
            }
        }
    }
    for (resolution, keep_s) in
        [(FINE_S, retention.records_s), (60, retention.minutes_s), (3600, retention.hours_s)]
    {
        let sql = "DELETE FROM counter WHERE resolution_s = ?1 AND time_s < ?2";
        connection.execute(sql, (resolution, before(keep_s)))?;
    }
    for level in LEVELS_S {
        let keep_s = if level < 3600 { retention.minutes_s } else { retention.hours_s };
        rollup::remove_before(connection, level, before(keep_s))?;
    }
    rollup::records_removed(connection)?;
    for table in ["peer_state", "event", "alert"] {
        // The latest state of each peer says how it stands; it is written again with a change.
        let sql = format!("DELETE FROM {table} WHERE time_ns < ?1");
        connection.execute(&sql, [before_ns(retention.hours_s)])?;
    }
    let bytes = make_room(connection, retention, 1)?;
    // Before the number of an alert that went is given again.
    connection.execute("DELETE FROM alert_note WHERE alert NOT IN (SELECT id FROM alert)", [])?;
    Ok(bytes)
}

/// Removes the oldest records until so many tenths of the space are free; returns the bytes in use.
pub(super) fn make_room(
    connection: &Connection,
    retention: &Retention,
    free_tenths: u64,
) -> rusqlite::Result<u64> {
    let wanted = retention.size_bytes_max / 10 * 10_u64.saturating_sub(free_tenths);
    for _ in 0..CHUNKS_MAX {
        if used_bytes(connection)? <= wanted || remove_oldest(connection)? == 0 {
            break;
        }
    }
    used_bytes(connection)
}

/// Whether a file that can take no more met its own bound: its disk has room for all of it.
pub(super) fn met_own_bound(connection: &Connection, retention: &Retention) -> bool {
    let place = connection.path().map(rustix::fs::statvfs);
    match (used_bytes(connection), place) {
        (Ok(used), Some(Ok(disk))) => {
            disk.f_bavail * disk.f_frsize >= retention.size_bytes_max.saturating_sub(used)
        }
        _ => false,
    }
}

/// The oldest rows of the most plentiful kind; when no records are left roll-ups, the finest first.
fn remove_oldest(connection: &Connection) -> rusqlite::Result<usize> {
    let mut removed = 0;
    for table in ["flow", "conversation", "alert"] {
        let sql = format!(
            "DELETE FROM {table} WHERE id IN (SELECT id FROM {table} ORDER BY id LIMIT ?1)"
        );
        removed += connection.execute(&sql, [CHUNK_ROWS])?;
    }
    if removed > 0 {
        rollup::records_removed(connection)?;
        return Ok(removed);
    }
    for (which, levels) in
        [("resolution_s < 3600", &LEVELS_S[..2]), ("resolution_s = 3600", &LEVELS_S[2..])]
    {
        let sql = format!(
            "DELETE FROM counter WHERE {which} AND time_s = \
             (SELECT min(time_s) FROM counter WHERE {which})"
        );
        removed += connection.execute(&sql, [])?;
        for level in levels {
            removed += rollup::remove_oldest(connection, *level)?;
        }
        if removed > 0 {
            break;
        }
    }
    Ok(removed)
}

fn used_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let number =
        |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let pages = number("page_count")? - number("freelist_count")?;
    Ok((pages * number("page_size")?) as u64)
}
