//! Numbers of alerts: drawn before an alert is written anywhere, so that every output tells the
//! same one, and never twice for a file.
//!
//! ```text
//!  file: | kept: 32769 |    drawn here: 1, 2, 3 ... 32768    next start: from 32769 on
//! ```
//!
//! The file says from where on numbers are free before one of those below is drawn. What is left
//! of them when the process ends is given back, or is lost when it is killed.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;

/// Numbers that are reserved at once: what the queue of alerts and a transaction hold, and more.
const RESERVED: u64 = 32_768;

/// The numbers that may be drawn.
#[derive(Debug, Default)]
pub(super) struct Numbers(Mutex<Range<u64>>);

impl Numbers {
    /// The next; none where no file has been opened yet, or the store stands still for so long that
    /// no more are reserved.
    pub(super) fn draw(&self) -> Option<u64> {
        self.lock().next()
    }

    /// Reserves more in the file where half of them are gone; those of a file that takes the place
    /// of another go on.
    pub(super) fn reserve(&self, connection: &Connection) -> rusqlite::Result<()> {
        let kept: i64 =
            connection.query_row("SELECT next FROM alert_number", [], |row| row.get(0))?;
        let kept = kept as u64;
        let free = self.lock().clone();
        // Whoever wrote the file before this process may have drawn all below.
        let next = if kept > free.end { kept } else { free.start };
        if kept == free.end && free.end - next >= RESERVED / 2 {
            return Ok(());
        }
        let end = (next + RESERVED).max(free.end);
        write(connection, end)?;
        let mut free = self.lock();
        *free = next.max(free.start)..end;
        Ok(())
    }

    /// No more are drawn; the file gets back what was reserved.
    pub(super) fn end(&self, connection: Option<&Connection>) {
        let free = std::mem::take(&mut *self.lock());
        if let Some(connection) = connection.filter(|_| free.end > 0) {
            // What fails leaves a gap; a file that others went on with knows more.
            let give_back = "UPDATE alert_number SET next = ?1 WHERE next = ?2";
            let _ = connection.execute(give_back, [free.start as i64, free.end as i64]);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Range<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write(connection: &Connection, next: u64) -> rusqlite::Result<()> {
    connection.execute("UPDATE alert_number SET next = ?1", [next as i64])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        let table = "CREATE TABLE alert_number (next INTEGER NOT NULL); \
                     INSERT INTO alert_number VALUES (1)";
        connection.execute_batch(table).unwrap();
        connection
    }

    #[test]
    fn none_is_drawn_that_the_file_does_not_know_to_be_gone() {
        let (file, numbers) = (file(), Numbers::default());
        assert_eq!(numbers.draw(), None, "no file yet");
        numbers.reserve(&file).unwrap();
        let drawn: Vec<u64> = std::iter::from_fn(|| numbers.draw()).collect();
        assert_eq!(drawn, (1..=RESERVED).collect::<Vec<_>>());
        // A process that is killed now leaves them unused.
        let after = Numbers::default();
        after.reserve(&file).unwrap();
        assert_eq!(after.draw(), Some(RESERVED + 1));
        // One that ends gives them back.
        after.end(Some(&file));
        assert_eq!(after.draw(), None);
        let last = Numbers::default();
        last.reserve(&file).unwrap();
        assert_eq!(last.draw(), Some(RESERVED + 2));
    }

    #[test]
    fn a_file_in_the_place_of_another_is_gone_on_with() {
        let (first, second, numbers) = (file(), file(), Numbers::default());
        numbers.reserve(&first).unwrap();
        assert_eq!(numbers.draw(), Some(1));
        numbers.reserve(&second).unwrap();
        assert_eq!(numbers.draw(), Some(2));
        let other = Numbers::default();
        other.reserve(&second).unwrap();
        assert!(other.draw() > Some(RESERVED));
        // One that others went on with knows more, also at the end.
        let before: i64 =
            second.query_row("SELECT next FROM alert_number", [], |row| row.get(0)).unwrap();
        Numbers(Mutex::new(1..RESERVED + 1)).end(Some(&second));
        assert!(other.draw() < Some(before as u64));
        let last = Numbers::default();
        last.reserve(&second).unwrap();
        assert!(last.draw() >= Some(before as u64), "none twice");
        numbers.reserve(&second).unwrap();
        assert!(numbers.draw() > other.draw());
    }
}
