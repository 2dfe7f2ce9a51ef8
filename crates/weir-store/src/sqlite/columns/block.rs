//! A block as bytes: a column after the other, each in as few bytes a record as its records need.
//!
//! ```text
//!  format 1 | records u32 | column | column | ...
//!  column:  0 | base i64 | width | width bytes a record, to be added to base
//!           1 | base i64                           the records count up from base
//!           2 | entries u32 | (length u32, bytes) each | width | width bytes a record: which entry
//! ```
//!
//! All numbers are little-endian.

use std::collections::HashMap;

use rusqlite::types::ValueRef;

use super::{BLOCK_RECORDS, Kind, Layout};

/// Stands for a number that is absent; those that may be absent are never negative.
pub(in super::super) const ABSENT: i64 = -1;

const FORMAT: u8 = 1;
const NUMBERS: u8 = 0;
const COUNTING: u8 = 1;
const VALUES: u8 = 2;

/// First byte of an entry.
const NULL: u8 = 0;
const BYTES: u8 = 1;
const INTEGER: u8 = 2;
const REAL: u8 = 3;

/// Gathers records, and makes a block of them.
pub(super) struct Builder {
    records: usize,
    columns: Vec<Gathered>,
    /// The value at hand, as an entry.
    entry: Vec<u8>,
}

enum Gathered {
    Numbers(Vec<i64>),
    Values { known: HashMap<Vec<u8>, u16>, entries: Vec<Vec<u8>>, which: Vec<i64> },
}

impl Builder {
    pub(super) fn new(layout: &Layout) -> Self {
        let gathered = |(_, kind)| match kind {
            Kind::Number => Gathered::Numbers(Vec::with_capacity(BLOCK_RECORDS)),
            Kind::Value => Gathered::Values {
                known: HashMap::new(),
                entries: Vec::new(),
                which: Vec::with_capacity(BLOCK_RECORDS),
            },
        };
        let columns = layout.columns().map(gathered).collect();
        Self { records: 0, columns, entry: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records == 0
    }

    pub(super) fn is_full(&self) -> bool {
        self.records == BLOCK_RECORDS
    }

    /// Adds a record whose columns `of` tells by their places.
    pub(super) fn add<'a>(
        &mut self,
        of: impl Fn(usize) -> rusqlite::Result<ValueRef<'a>>,
    ) -> rusqlite::Result<()> {
        let entry = &mut self.entry;
        for (place, column) in self.columns.iter_mut().enumerate() {
            let value = of(place)?;
            match column {
                Gathered::Numbers(numbers) => numbers.push(match value {
                    ValueRef::Integer(number) => number,
                    ValueRef::Real(number) => number as i64,
                    _ => ABSENT,
                }),
                Gathered::Values { known, entries, which } => {
                    to_entry(value, entry);
                    let latest = which.last().map(|it| *it as usize);
                    let is_same = latest.is_some_and(|it| entries[it] == *entry);
                    which.push(match (latest, known.get(entry.as_slice()).copied()) {
                        (Some(latest), _) if is_same => latest as i64,
                        (_, Some(found)) => i64::from(found),
                        (_, None) => {
                            known.insert(entry.clone(), entries.len() as u16);
                            entries.push(entry.clone());
                            entries.len() as i64 - 1
                        }
                    });
                }
            }
        }
        self.records += 1;
        Ok(())
    }

    /// The block of what was gathered; begins another.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        bytes.extend((self.records as u32).to_le_bytes());
        for column in &mut self.columns {
            match column {
                Gathered::Numbers(numbers) => {
                    put_numbers(numbers, &mut bytes);
                    numbers.clear();
                }
                Gathered::Values { known, entries, which } => {
                    bytes.push(VALUES);
                    bytes.extend((entries.len() as u32).to_le_bytes());
                    for entry in entries.iter() {
                        bytes.extend((entry.len() as u32).to_le_bytes());
                        bytes.extend(entry);
                    }
                    put_packed(which, 0, entries.len().saturating_sub(1) as u64, &mut bytes);
                    known.clear();
                    entries.clear();
                    which.clear();
                }
            }
        }
        self.records = 0;
        bytes
    }
}

fn to_entry(value: ValueRef<'_>, entry: &mut Vec<u8>) {
    entry.clear();
    match value {
        ValueRef::Null => entry.push(NULL),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            entry.push(BYTES);
            entry.extend_from_slice(bytes);
        }
        // Not as our programs write it, and told apart all the same.
        ValueRef::Integer(number) => {
            entry.push(INTEGER);
            entry.extend(number.to_le_bytes());
        }
        ValueRef::Real(number) => {
            entry.push(REAL);
            entry.extend(number.to_le_bytes());
        }
    }
}

fn put_numbers(numbers: &[i64], bytes: &mut Vec<u8>) {
    let base = numbers.iter().min().copied().unwrap_or(0);
    let mut counting = numbers.iter().zip(0_i64..);
    if numbers.len() > 1 && counting.all(|(number, row)| *number == base.wrapping_add(row)) {
        bytes.push(COUNTING);
        bytes.extend(base.to_le_bytes());
        return;
    }
    let most = numbers.iter().map(|it| it.wrapping_sub(base) as u64).max().unwrap_or(0);
    bytes.push(NUMBERS);
    bytes.extend(base.to_le_bytes());
    put_packed(numbers, base, most, bytes);
}

/// The width that `most` needs, and each number less `base` in so many bytes.
fn put_packed(numbers: &[i64], base: i64, most: u64, bytes: &mut Vec<u8>) {
    let width = (64 - most.leading_zeros() as usize).div_ceil(8);
    bytes.push(width as u8);
    for number in numbers {
        bytes.extend_from_slice(&(number.wrapping_sub(base) as u64).to_le_bytes()[..width]);
    }
}

/// A block, read in place.
#[derive(Debug)]
pub(in super::super) struct Block<'a> {
    pub(in super::super) records: usize,
    columns: Vec<Column<'a>>,
}

/// A column of a block.
#[derive(Debug)]
pub(in super::super) enum Column<'a> {
    Numbers(Packed<'a>),
    /// What the records have, and which of it each has.
    Values(Vec<&'a [u8]>, Packed<'a>),
}

/// A number a record.
#[derive(Debug)]
pub(in super::super) struct Packed<'a> {
    base: i64,
    /// What each record has more than the one before, beside its bytes.
    step: i64,
    width: usize,
    bytes: &'a [u8],
}

impl<'a> Block<'a> {
    /// `None`: those are bytes of another format, or damaged.
    pub(in super::super) fn parse(layout: &Layout, bytes: &'a [u8]) -> Option<Self> {
        let mut rest = bytes;
        if take::<1>(&mut rest)? != [FORMAT] {
            return None;
        }
        let records = u32::from_le_bytes(take(&mut rest)?) as usize;
        if records > BLOCK_RECORDS {
            return None;
        }
        let column = |(_, kind)| Column::parse(kind, records, &mut rest);
        let columns: Option<Vec<_>> = layout.columns().map(column).collect();
        Some(Self { records, columns: columns? })
    }

    pub(in super::super) fn column(&self, place: usize) -> &Column<'a> {
        &self.columns[place]
    }

    /// The number that `row` has in the column at `place`; of values, which entry.
    pub(in super::super) fn number(&self, place: usize, row: usize) -> i64 {
        match &self.columns[place] {
            Column::Numbers(packed) | Column::Values(_, packed) => packed.get(row),
        }
    }

    /// The text or bytes that `row` has in the column at `place`; `None`: it has none.
    pub(in super::super) fn value(&self, place: usize, row: usize) -> Option<&'a [u8]> {
        match &self.columns[place] {
            Column::Numbers(_) => None,
            Column::Values(entries, which) => value(entries.get(which.get(row) as usize)?),
        }
    }
}

/// The text or bytes of an entry.
pub(in super::super) fn value(entry: &[u8]) -> Option<&[u8]> {
    entry.split_first().filter(|(tag, _)| **tag == BYTES).map(|(_, bytes)| bytes)
}

impl<'a> Column<'a> {
    fn parse(kind: Kind, records: usize, rest: &mut &'a [u8]) -> Option<Self> {
        match (kind, take::<1>(rest)?) {
            (Kind::Number, [NUMBERS]) => {
                let base = i64::from_le_bytes(take(rest)?);
                Some(Self::Numbers(Packed::parse(base, records, rest)?))
            }
            (Kind::Number, [COUNTING]) => {
                let base = i64::from_le_bytes(take(rest)?);
                Some(Self::Numbers(Packed { base, step: 1, width: 0, bytes: &[] }))
            }
            (Kind::Value, [VALUES]) => {
                let count = u32::from_le_bytes(take(rest)?) as usize;
                if count > records {
                    return None;
                }
                let mut entries = Vec::with_capacity(count);
                for _ in 0..count {
                    let length = u32::from_le_bytes(take(rest)?) as usize;
                    entries.push(rest.split_off(..length)?);
                }
                let which = Packed::parse(0, records, rest)?;
                let mut is_within = true;
                which.each(records, |_, it| is_within &= (it as usize) < count);
                is_within.then_some(Self::Values(entries, which))
            }
            _ => None,
        }
    }
}

impl<'a> Packed<'a> {
    fn parse(base: i64, records: usize, rest: &mut &'a [u8]) -> Option<Self> {
        let width = usize::from(take::<1>(rest)?[0]);
        if width > 8 {
            return None;
        }
        Some(Self { base, step: 0, width, bytes: rest.split_off(..records * width)? })
    }

    /// The number that all records have, where it takes no bytes of each.
    pub(in super::super) fn common(&self) -> Option<i64> {
        (self.width == 0 && self.step == 0).then_some(self.base)
    }

    pub(in super::super) fn get(&self, row: usize) -> i64 {
        let mut number = [0; 8];
        let bytes = &self.bytes[row * self.width..][..self.width];
        number[..self.width].copy_from_slice(bytes);
        let own = i64::from_le_bytes(number).wrapping_add(self.step.wrapping_mul(row as i64));
        self.base.wrapping_add(own)
    }

    /// Each record's number in turn.
    pub(in super::super) fn each(&self, records: usize, mut to: impl FnMut(usize, i64)) {
        let base = self.base;
        match self.width {
            0 => (0..records)
                .for_each(|row| to(row, base.wrapping_add(self.step.wrapping_mul(row as i64)))),
            1 => self
                .bytes
                .iter()
                .enumerate()
                .for_each(|(row, byte)| to(row, base.wrapping_add(i64::from(*byte)))),
            2 => self.bytes.as_chunks().0.iter().enumerate().for_each(|(row, bytes)| {
                to(row, base.wrapping_add(i64::from(u16::from_le_bytes(*bytes))));
            }),
            4 => self.bytes.as_chunks().0.iter().enumerate().for_each(|(row, bytes)| {
                to(row, base.wrapping_add(i64::from(u32::from_le_bytes(*bytes))));
            }),
            _ => (0..records).for_each(|row| to(row, self.get(row))),
        }
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    rest.split_off(..N).and_then(|it| it.try_into().ok())
}
