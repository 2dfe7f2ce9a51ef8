//! A walk through the records of a span of time: blocks from the file, and what is in none, made
//! blocks on the way.

use std::ops::RangeInclusive;

use rusqlite::{Connection, params};

use super::block::{self, Block, Builder, Column};
use super::{LAST_NS, Layout, gather};
use crate::sqlite::read::{QueryError, Range, Reader, RecordFilter};

/// Numbers of records that are in no block up to which they are read in their order and kept: about
/// 10 MB. There are more only in a store that is not this version's yet.
const KEPT_MAX: i64 = 262_144;

/// Told of the records chosen of a block, and the latest end that those after it can have; whether
/// the walk goes on.
pub(in super::super) type Take<'a> =
    dyn FnMut(&Block<'_>, &[u32], i64) -> Result<bool, QueryError> + 'a;

/// A walk, as often as it is wanted, at one moment of the store.
pub(in super::super) struct Walk<'a> {
    reader: &'a Reader,
    moment: &'a Connection,
    layout: &'static Layout,
    /// From and until, nanoseconds since 1970.
    times_ns: [i64; 2],
    tests: Vec<Test>,
    /// The latest first.
    parts: Vec<Part>,
}

struct Part {
    /// The latest end that one of its records can have.
    last_ns: i64,
    of: Source,
}

enum Source {
    /// A block of the file, and the numbers of its records.
    Stored(RangeInclusive<i64>),
    /// A block of records that are in none.
    Kept(Vec<u8>),
    /// Records of these numbers.
    Rows(RangeInclusive<i64>),
}

/// A condition: one of its columns must have it.
struct Test {
    places: Vec<usize>,
    is_met: Box<dyn Fn(Cell<'_>) -> bool>,
}

/// What a record has in a column.
#[derive(Clone, Copy)]
enum Cell<'a> {
    Number(i64),
    Value(Option<&'a [u8]>),
}

impl<'a> Walk<'a> {
    /// Through the records that ended within `range` and that `filter` chooses, as they are at
    /// `moment`, a transaction of `reader`.
    pub(in super::super) fn new(
        reader: &'a Reader,
        moment: &'a Connection,
        layout: &'static Layout,
        range: Range,
        filter: &RecordFilter,
    ) -> Result<Self, QueryError> {
        let tests = tests(reader, layout, filter)?;
        let times_ns = range.times_ns();
        let mut walk = Self { reader, moment, layout, times_ns, tests, parts: Vec::new() };
        walk.find_parts()?;
        walk.parts.sort_by_key(|it| std::cmp::Reverse(it.last_ns));
        Ok(walk)
    }

    fn find_parts(&mut self) -> Result<(), QueryError> {
        let mut next = 0;
        let blocks = self.layout.blocks();
        if self.reader.has_table(&blocks)? {
            let sql = format!(
                "SELECT first_id, last_id, first_ns, last_ns FROM {blocks} \
                 INDEXED BY {blocks}_span ORDER BY first_id"
            );
            let mut select = self.moment.prepare(&sql)?;
            let mut rows = select.query([])?;
            while let Some(row) = rows.next()? {
                let (first, last): (i64, i64) = (row.get(0)?, row.get(1)?);
                let (first_ns, last_ns): (i64, i64) = (row.get(2)?, row.get(3)?);
                self.add_rows(next..=first.saturating_sub(1))?;
                if last_ns >= self.times_ns[0] && first_ns < self.times_ns[1] {
                    self.parts.push(Part { last_ns, of: Source::Stored(first..=last) });
                }
                next = last.saturating_add(1);
            }
        }
        self.add_rows(next..=i64::MAX)
    }

    /// Records that are in no block.
    fn add_rows(&mut self, ids: RangeInclusive<i64>) -> Result<(), QueryError> {
        if ids.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "SELECT (SELECT min(id) FROM {0} WHERE id BETWEEN ?1 AND ?2), \
             (SELECT max(id) FROM {0} WHERE id BETWEEN ?1 AND ?2)",
            self.layout.table
        );
        let span = self
            .moment
            .prepare_cached(&sql)?
            .query_row((ids.start(), ids.end()), |row| Ok((row.get(0)?, row.get(1)?)))?;
        let (Some(first), Some(last)): (Option<i64>, Option<i64>) = span else { return Ok(()) };
        let last_ns = i64::MAX;
        if last.saturating_sub(first) >= KEPT_MAX {
            self.parts.push(Part { last_ns, of: Source::Rows(first..=last) });
            return Ok(());
        }
        let mut kept = Vec::new();
        self.each_of_rows(&(first..=last), &mut |bytes| {
            kept.push(Part { last_ns, of: Source::Kept(bytes) });
            Ok(true)
        })?;
        self.parts.append(&mut kept);
        Ok(())
    }

    /// Blocks made of the rows of these numbers; whether all were taken.
    fn each_of_rows(
        &self,
        ids: &RangeInclusive<i64>,
        take: &mut dyn FnMut(Vec<u8>) -> Result<bool, QueryError>,
    ) -> Result<bool, QueryError> {
        // The plus sign keeps SQLite from an index that is the worse one.
        let (by_time, by_number) = match ids.end().saturating_sub(*ids.start()) {
            KEPT_MAX.. => ("", "+"),
            _ => ("+", ""),
        };
        let sql = format!(
            "{} WHERE {by_time}last_ns >= ?1 AND {by_time}last_ns < ?2 \
             AND {by_number}id BETWEEN ?3 AND ?4",
            self.layout.select()
        );
        let mut select = self.moment.prepare_cached(&sql)?;
        let [from, until] = self.times_ns;
        let mut rows = select.query(params![from, until, ids.start(), ids.end()])?;
        let mut builder = Builder::new(self.layout);
        while let Some(row) = rows.next()? {
            gather(&mut builder, row)?;
            if builder.is_full() && !take(builder.finish())? {
                return Ok(false);
            }
        }
        if builder.is_empty() { Ok(true) } else { take(builder.finish()) }
    }

    /// Shows all records to `take`, until it has enough.
    ///
    /// # Errors
    /// [`QueryError`], also that of `take`.
    pub(in super::super) fn each(&self, take: &mut Take<'_>) -> Result<(), QueryError> {
        let mut chosen = Chosen::default();
        let blocks = self.layout.blocks();
        let mut stored = match self.parts.iter().any(|it| matches!(it.of, Source::Stored(_))) {
            true => {
                let sql = format!("SELECT columns FROM {blocks} WHERE first_id = ?1");
                Some(self.moment.prepare(&sql)?)
            }
            false => None,
        };
        for (index, part) in self.parts.iter().enumerate() {
            self.reader.check_time()?;
            let left_ns = self.parts.get(index + 1).map_or(i64::MIN, |it| it.last_ns);
            let mut show = |bytes: &[u8], left_ns: i64| {
                let block = Block::parse(self.layout, bytes)?;
                let rows = chosen.of(&block, self);
                Some(if rows.is_empty() { Ok(true) } else { take(&block, rows, left_ns) })
            };
            let goes_on = match &part.of {
                Source::Kept(bytes) => show(bytes, left_ns).unwrap_or(Ok(true))?,
                Source::Rows(ids) => self.each_of_rows(ids, &mut |bytes| {
                    self.reader.check_time()?;
                    show(&bytes, i64::MAX).unwrap_or(Ok(true))
                })?,
                Source::Stored(ids) => {
                    let mut shown = None;
                    if let Some(select) = &mut stored {
                        let mut rows = select.query([ids.start()])?;
                        if let Some(row) = rows.next()? {
                            shown = show(row.get_ref(0)?.as_blob().unwrap_or_default(), left_ns);
                        }
                    }
                    match shown {
                        Some(shown) => shown?,
                        // Of another format: its records say the same.
                        None => self.each_of_rows(ids, &mut |bytes| {
                            show(&bytes, i64::MAX).unwrap_or(Ok(true))
                        })?,
                    }
                }
            };
            if !goes_on {
                break;
            }
        }
        Ok(())
    }
}

/// Which records of a block are wanted.
#[derive(Default)]
struct Chosen {
    is_wanted: Vec<bool>,
    is_met: Vec<bool>,
    rows: Vec<u32>,
}

impl Chosen {
    fn of(&mut self, block: &Block<'_>, walk: &Walk<'_>) -> &[u32] {
        let Self { is_wanted, is_met, rows } = self;
        is_wanted.clear();
        is_wanted.resize(block.records, true);
        let [from, until] = walk.times_ns;
        if let Column::Numbers(ends) = block.column(LAST_NS) {
            ends.each(block.records, |row, end| is_wanted[row] = (from..until).contains(&end));
        }
        for test in &walk.tests {
            is_met.clear();
            is_met.resize(block.records, false);
            for place in &test.places {
                match block.column(*place) {
                    Column::Numbers(numbers) => numbers.each(block.records, |row, number| {
                        is_met[row] |= (test.is_met)(Cell::Number(number));
                    }),
                    Column::Values(entries, which) => {
                        let of_entry = |it: &&[u8]| (test.is_met)(Cell::Value(block::value(it)));
                        let are_met: Vec<bool> = entries.iter().map(of_entry).collect();
                        which.each(block.records, |row, entry| {
                            is_met[row] |= are_met[entry as usize];
                        });
                    }
                }
            }
            is_wanted.iter_mut().zip(&*is_met).for_each(|(own, it)| *own &= it);
        }
        rows.clear();
        rows.extend((0..).zip(&*is_wanted).filter(|(_, it)| **it).map(|(row, _)| row));
        rows
    }
}

/// What `filter` asks of records.
fn tests(reader: &Reader, layout: &Layout, filter: &RecordFilter) -> Result<Vec<Test>, QueryError> {
    let mut tests = Vec::new();
    // A column that the table does not have makes no condition.
    let mut add = |names: &[&str], is_met: Box<dyn Fn(Cell<'_>) -> bool>| {
        let places: Option<Vec<_>> = names.iter().map(|name| layout.place(name)).collect();
        tests.extend(places.map(|places| Test { places, is_met }));
    };
    let number = |wanted: i64| -> Box<dyn Fn(Cell<'_>) -> bool> {
        Box::new(move |cell| matches!(cell, Cell::Number(number) if number == wanted))
    };
    if let Some(pair) = &filter.pair {
        let sql = "SELECT id FROM pair WHERE name = ?1";
        let ids: Vec<i64> = reader.rows(sql, [pair], |row| row.get(0))?;
        // No pair has the other number.
        add(&["pair"], number(ids.first().copied().unwrap_or(i64::MIN)));
    }
    if let Some(exporter) = filter.exporter.clone() {
        let is_it = move |it: &[u8]| it == exporter.as_bytes();
        add(
            &["exporter"],
            Box::new(move |cell| matches!(cell, Cell::Value(Some(it)) if is_it(it))),
        );
    }
    if let Some((first, last)) = filter.addresses {
        let is_within = move |it: &[u8]| (&first[..]..=&last[..]).contains(&it);
        add(
            &["source", "destination"],
            Box::new(move |cell| matches!(cell, Cell::Value(Some(it)) if is_within(it))),
        );
    }
    if let Some(label) = filter.label.clone() {
        let labels = reader.labels()?;
        let is_called =
            move |it: &[u8]| it.try_into().is_ok_and(|address| label.fits(&labels.names(address)));
        add(
            &["source", "destination"],
            Box::new(move |cell| matches!(cell, Cell::Value(Some(it)) if is_called(it))),
        );
    }
    if let Some(port) = filter.port {
        add(&["source_port", "destination_port"], number(port.into()));
    }
    if let Some(protocol) = filter.protocol {
        add(&["protocol"], number(protocol.into()));
    }
    if let Some(queue_pair) = filter.queue_pair {
        add(&["source_qp", "destination_qp"], number(queue_pair.into()));
    }
    Ok(tests)
}
