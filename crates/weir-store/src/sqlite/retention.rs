//! What is too old goes, and what is too much: the oldest first, in small transactions, so that
//! records never wait long.

use std::ops::Range;

use rusqlite::Connection;

use super::clock::{Clock, Look};
use super::rollup::{LEVELS_S, advance as rollup};
use super::writer::Retention;

/// Rows of a transaction.
const CHUNK_ROWS: i64 = 10_000;

/// Transactions of one round: what is left then waits for the next.
const CHUNKS_MAX: usize = 50;

/// Seconds of the finest counters.
const FINE_S: i64 = 10;

/// Removes what is due by age, as the clock went since `last`, and by size; returns the bytes in
/// use.
pub(super) fn apply(
    connection: &mut Connection,
    retention: &Retention,
    last: &mut Option<Look>,
    now: Look,
) -> rusqlite::Result<u64> {
    let transaction = connection.transaction()?;
    let mut clock = Clock::read(&transaction)?;
    if let Some(step_s) = clock.follow(*last, now) {
        note_step(&transaction, now, step_s)?;
    }
    clock.write(&transaction)?;
    transaction.commit()?;
    *last = Some(now);
    let gone = |keep_s: u64, slice_s| clock.gone(keep_s.try_into().unwrap_or(i64::MAX), slice_s);
    let mut chunks = 0;
    for table in ["flow", "conversation"] {
        let sql = format!(
            "DELETE FROM {table} WHERE id IN (SELECT id FROM {table} \
             WHERE last_ns >= ?1 AND last_ns < ?2 ORDER BY last_ns LIMIT ?3)"
        );
        for span in gone(retention.records_s, 0) {
            let Range { start, end } = nanoseconds(&span);
            while chunks < CHUNKS_MAX {
                chunks += 1;
                if connection.execute(&sql, (start, end, CHUNK_ROWS))? < CHUNK_ROWS as usize {
                    break;
                }
            }
        }
    }
    for (resolution, keep_s) in
        [(FINE_S, retention.records_s), (60, retention.minutes_s), (3600, retention.hours_s)]
    {
        let sql = "DELETE FROM counter WHERE resolution_s = ?1 AND time_s >= ?2 AND time_s < ?3";
        for span in gone(keep_s, resolution) {
            connection.execute(sql, (resolution, span.start, span.end))?;
        }
    }
    for level in LEVELS_S {
        let keep_s = if level < 3600 { retention.minutes_s } else { retention.hours_s };
        for span in gone(keep_s, level) {
            rollup::remove(connection, level, span)?;
        }
    }
    rollup::records_removed(connection)?;
    for table in ["peer_state", "event", "alert"] {
        // The latest state of each peer says how it stands; it is written again with a change.
        let sql = format!("DELETE FROM {table} WHERE time_ns >= ?1 AND time_ns < ?2");
        for span in gone(retention.hours_s, 0) {
            let Range { start, end } = nanoseconds(&span);
            connection.execute(&sql, (start, end))?;
        }
    }
    for span in gone(retention.hours_s, 0) {
        let Range { start, end } = nanoseconds(&span);
        let sql = "DELETE FROM suppression WHERE until_ns >= ?1 AND until_ns < ?2";
        connection.execute(sql, (start, end))?;
    }
    // Nothing is kept for longer; what the bound of a round left over goes first.
    if chunks < CHUNKS_MAX {
        let longest_s = retention.records_s.max(retention.minutes_s).max(retention.hours_s);
        clock.forget(longest_s.try_into().unwrap_or(i64::MAX));
        clock.write(connection)?;
    }
    let bytes = make_room(connection, retention, 1)?;
    // Before the number of an alert that went is given again.
    connection.execute("DELETE FROM alert_note WHERE alert NOT IN (SELECT id FROM alert)", [])?;
    Ok(bytes)
}

fn nanoseconds(span: &Range<i64>) -> Range<i64> {
    span.start.saturating_mul(1_000_000_000)..span.end.saturating_mul(1_000_000_000)
}

/// Says in the log and in the log book that the clock was set.
fn note_step(connection: &Connection, now: Look, step_s: i64) -> rusqlite::Result<()> {
    tracing::warn!(step_s, "the clock stepped: ages in the store go on by the time that passes");
    let what = format!("the clock stepped by {step_s:+} s");
    connection.execute(
        "INSERT INTO event (time_ns, who, what, outcome) \
         VALUES (?1, 'store', ?2, 'nothing is older by it')",
        (now.wall_s.saturating_mul(1_000_000_000), what),
    )?;
    Ok(())
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

/// Tables of records, with what a row takes, about: bytes.
const RECORDS: [(&str, i64); 3] = [("flow", 160), ("conversation", 250), ("alert", 1500)];

/// The oldest rows of the kind that takes most, so that many of one push out no other: records of a
/// kind, or their sums and the counters, the finest first.
fn remove_oldest(connection: &Connection) -> rusqlite::Result<usize> {
    let (mut most, mut others) = ((0, RECORDS[0]), used_bytes(connection)? as i64);
    for (table, row_bytes) in RECORDS {
        // By the numbers, which SQLite finds at once; it counts rows one by one.
        let sql = format!(
            "SELECT coalesce((SELECT max(id) FROM {table}) - (SELECT min(id) FROM {table}) + 1, 0)"
        );
        let bytes = row_bytes.saturating_mul(connection.query_row(&sql, [], |row| row.get(0))?);
        others = others.saturating_sub(bytes);
        most = most.max((bytes, (table, row_bytes)));
    }
    let (bytes, (table, row_bytes)) = most;
    if others > bytes {
        // While there are records, only what coarser slices have too.
        for level in LEVELS_S {
            let until_s = rollup::in_coarser_until(connection, level)?;
            let removed = rollup::remove_oldest(connection, level, until_s)?;
            if removed > 0 {
                return Ok(removed);
            }
        }
    }
    let rows = CHUNK_ROWS * RECORDS[0].1 / row_bytes;
    let sql =
        format!("DELETE FROM {table} WHERE id IN (SELECT id FROM {table} ORDER BY id LIMIT ?1)");
    let removed = connection.execute(&sql, [rows])?;
    if removed > 0 {
        rollup::records_removed(connection)?;
        return Ok(removed);
    }
    remove_oldest_sums(connection)
}

/// The oldest counters and sums of the finest kind that there is.
fn remove_oldest_sums(connection: &Connection) -> rusqlite::Result<usize> {
    for (which, levels) in
        [("resolution_s < 3600", &LEVELS_S[..2]), ("resolution_s = 3600", &LEVELS_S[2..])]
    {
        let sql = format!(
            "DELETE FROM counter WHERE {which} AND time_s = \
             (SELECT min(time_s) FROM counter WHERE {which})"
        );
        let mut removed = connection.execute(&sql, [])?;
        for level in levels {
            removed += rollup::remove_oldest(connection, *level, i64::MAX)?;
        }
        if removed > 0 {
            return Ok(removed);
        }
    }
    Ok(0)
}

fn used_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let number =
        |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let pages = number("page_count")? - number("freelist_count")?;
    Ok((pages * number("page_size")?) as u64)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::clock;
    use crate::sqlite::files::Files;
    use crate::sqlite::insert;
    use crate::sqlite::read::{AlertFilter, Range as Span, Reader, RecordFilter};
    use crate::sqlite::rows::{AlertRow, Collected, FlowRow};
    use crate::sqlite::samples::{Sample, Scope, ScopeKind};
    use crate::sqlite::schema;
    use crate::sqlite::writer::{Pending, StoreOptions};

    const DAY_S: i64 = 86_400;
    const NOW_S: i64 = 1_700_000_000;
    const RETENTION: Retention = Retention {
        size_bytes_max: 64 << 20,
        records_s: DAY_S as u64,
        minutes_s: 2 * DAY_S as u64,
        hours_s: 4 * DAY_S as u64,
    };

    /// A store whose clock is ours.
    struct Bench {
        folder: tempfile::TempDir,
        connection: Connection,
        _claim: Files,
        rollup: rollup::Rollup,
        last: Option<Look>,
        at: Instant,
    }

    impl Bench {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("gw.sqlite");
            let options = StoreOptions { path, group: None, retention: RETENTION };
            let (connection, claim) = schema::open(&options).unwrap();
            let (rollup, at) =
                (rollup::Rollup::new(options.retention.size_bytes_max), clock::now());
            Self { folder, connection, _claim: claim, rollup, last: None, at }
        }

        /// A flow, an alert and a count of the moment `time_s`.
        fn write(&mut self, time_s: i64) {
            let time_ns = time_s as u64 * 1_000_000_000;
            let counters = [("received".to_owned(), 7)].into();
            let (pair, kind, name) = ("port0".to_owned(), ScopeKind::Host, "p0".to_owned());
            let scope = Scope { pair: pair.clone(), kind, name, counters };
            let flow =
                FlowRow { last_ns: time_ns, pair: pair.clone(), bytes: 100, ..FlowRow::default() };
            let pending = Pending {
                collected: vec![Collected::Flow(flow)],
                samples: vec![Sample { time_ns, scopes: vec![scope], peers: vec![] }],
                alerts: vec![AlertRow { time_ns, pair, ..alert() }],
                ..Pending::default()
            };
            insert::write(&mut self.connection, &pending).unwrap();
            self.rollup.advance(&mut self.connection).unwrap();
        }

        /// After `passed_s` seconds the clock says `wall_s`.
        fn look(&mut self, wall_s: i64, passed_s: i64) {
            self.at += Duration::from_secs(passed_s as u64);
            let now = Look { wall_s, at: self.at };
            apply(&mut self.connection, &RETENTION, &mut self.last, now).unwrap();
        }

        /// How many flows, alerts and slices of counters are around `time_s`, and whether sums.
        fn kept(&self, time_s: i64) -> [i64; 4] {
            let ns = 1_000_000_000_i64;
            let count = |table: &str, column: &str, factor: i64| {
                let (from, until) = ((time_s - 5000) * factor, (time_s + 5000) * factor);
                let sql = format!("SELECT count(*) FROM {table} WHERE {column} BETWEEN ?1 AND ?2");
                self.connection.query_row(&sql, (from, until), |row| row.get(0)).unwrap()
            };
            [
                count("flow", "last_ns", ns),
                count("alert", "time_ns", ns),
                count("counter", "time_s", 1),
                // Coarser ones may come.
                count("rollup", "time_s", 1).min(1),
            ]
        }

        fn reader(&self) -> Reader {
            Reader::open(&self.folder.path().join("gw.sqlite")).unwrap()
        }
    }

    fn alert() -> AlertRow {
        AlertRow {
            number: 0,
            note: None,
            is_suppressed: false,
            time_ns: 0,
            pair: String::new(),
            sid: 1,
            severity: 1,
            action: "blocked".into(),
            signature: "rule".into(),
            category: "test".into(),
            protocol: "TCP".into(),
            source: [1; 16],
            source_port: 0,
            destination: [2; 16],
            destination_port: 0,
            event: "{}".into(),
        }
    }

    #[test]
    fn a_clock_ten_years_ahead_deletes_nothing_and_is_said() {
        let mut bench = Bench::new();
        bench.write(NOW_S);
        bench.look(NOW_S, 0);
        let before = bench.kept(NOW_S);
        let ahead_s = NOW_S + 3650 * DAY_S;
        for round in 0..20 {
            bench.write(ahead_s + 3600 * round);
            bench.look(ahead_s + 3600 * round, if round == 0 { 30 } else { 3600 });
        }
        assert_eq!(bench.kept(NOW_S), before);
        assert_eq!(bench.kept(NOW_S)[..2], [1, 1]);
        // Right again: what it stamped stays for as long as the rest.
        bench.look(NOW_S + 20 * 3600, 3600);
        assert_eq!((bench.kept(NOW_S), bench.kept(ahead_s)[0]), (before, 2));
        let ever = Span { from_s: 0, until_s: 9_000_000_000 };
        let events = bench.reader().events(ever, 10).unwrap();
        let said: Vec<_> = events.iter().map(|it| it.what.as_str()).collect();
        assert_eq!(
            said,
            ["the clock stepped by -315360000 s", "the clock stepped by +315359970 s"]
        );
        // A day of life after they were written, records are gone; the alerts after four.
        bench.look(NOW_S + 3 * DAY_S, 2 * DAY_S + 4 * 3600);
        assert_eq!((bench.kept(NOW_S)[..2].to_vec(), bench.kept(ahead_s)[0]), (vec![0, 1], 0));
        bench.look(NOW_S + 6 * DAY_S, 3 * DAY_S);
        assert_eq!((bench.kept(NOW_S)[1], bench.kept(ahead_s)[1]), (0, 0));
        let reader = bench.reader();
        assert!(reader.flows(ever, &RecordFilter::default(), 10).unwrap().is_empty());
        assert!(reader.alerts(ever, &AlertFilter::default(), 10).unwrap().is_empty());
    }

    #[test]
    fn a_gateway_that_was_off_for_a_month_keeps_what_it_had_for_a_day_of_running() {
        let mut bench = Bench::new();
        bench.write(NOW_S);
        bench.look(NOW_S, 0);
        (bench.last, bench.at) = (None, clock::now());
        bench.look(NOW_S + 30 * DAY_S, 0);
        assert_eq!(bench.kept(NOW_S)[0], 1);
        bench.look(NOW_S + 32 * DAY_S, 2 * DAY_S);
        assert_eq!(bench.kept(NOW_S)[0], 0);
    }

    #[test]
    fn sums_and_counters_go_by_their_own_times() {
        let mut bench = Bench::new();
        let sums = |bench: &Bench, table: &str, slice: &str, level: i64| -> i64 {
            let sql = format!("SELECT count(*) FROM {table} WHERE {slice} = ?1 AND time_s < ?2");
            bench.connection.query_row(&sql, (level, NOW_S + 1), |row| row.get(0)).unwrap()
        };
        bench.write(NOW_S);
        bench.look(NOW_S, 0);
        bench.write(NOW_S + 4 * DAY_S);
        bench.look(NOW_S + 2 * DAY_S - 7200, 2 * DAY_S - 7200);
        let levels = [("counter", "resolution_s", 10), ("counter", "resolution_s", 60)];
        assert_eq!(levels.map(|(table, slice, level)| sums(&bench, table, slice, level)), [0, 1]);
        assert!(sums(&bench, "rollup", "slice_s", 60) > 0);
        bench.look(NOW_S + 3 * DAY_S, DAY_S + 7200);
        assert_eq!(levels.map(|(table, slice, level)| sums(&bench, table, slice, level)), [0, 0]);
        assert_eq!(sums(&bench, "rollup", "slice_s", 60), 0);
        assert!(sums(&bench, "rollup", "slice_s", 3600) > 0);
        assert!(sums(&bench, "counter", "resolution_s", 3600) > 0);
        bench.look(NOW_S + 7 * DAY_S, 4 * DAY_S);
        assert_eq!(sums(&bench, "rollup", "slice_s", 3600), 0);
        assert_eq!(sums(&bench, "counter", "resolution_s", 3600), 0);
    }
}
