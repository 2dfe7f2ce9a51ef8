//! Records told apart by what they have in some columns, without a copy of it: by 128 bits that two
//! different keys share once in 2^96 pairs, whoever chooses what is recorded.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

use super::block::{Block, Column, Packed};

/// Things by key.
pub(in super::super) type ByKey<T> = HashMap<Key, T, BuildHasherDefault<HighHalf>>;

/// Half and half, so that it takes 16 bytes beside a small thing.
pub(in super::super) type Key = (u64, u64);

/// Makes keys of columns: the sum of what each column gives, modulo 2^128. A number gives its
/// product with a secret factor of its column, a text or bytes a keyed hash.
pub(in super::super) struct Keys {
    places: Vec<usize>,
    states: [RandomState; 2],
    /// What columns give in which all records of the block at hand have the same.
    common: u128,
    /// What the others give, a record.
    sums: Vec<u128>,
}

impl Keys {
    /// Of the columns at `places`.
    pub(in super::super) fn new(places: impl IntoIterator<Item = usize>) -> Self {
        let states = [RandomState::new(), RandomState::new()];
        Self { places: places.into_iter().collect(), states, common: 0, sums: Vec::new() }
    }

    /// Makes those of the records of `block`.
    pub(in super::super) fn of(&mut self, block: &Block<'_>) {
        let (mut common, mut sums) = (0_u128, std::mem::take(&mut self.sums));
        sums.clear();
        sums.resize(block.records, 0);
        for &place in &self.places {
            match block.column(place) {
                Column::Numbers(numbers) => {
                    let factor = self.hash(place, None);
                    let give = |it: i64| factor.wrapping_mul(i128::from(it).cast_unsigned());
                    add(numbers, give, &mut common, &mut sums);
                }
                Column::Values(entries, which) => {
                    let hashes: Vec<_> =
                        entries.iter().map(|it| self.hash(place, Some(it))).collect();
                    add(which, |entry| hashes[entry as usize], &mut common, &mut sums);
                }
            }
        }
        self.common = common;
        self.sums = sums;
    }

    /// The key of the record at `row` of the block at hand.
    pub(in super::super) fn get(&self, row: u32) -> Key {
        let sum = self.sums[row as usize].wrapping_add(self.common);
        (sum as u64, (sum >> 64) as u64)
    }

    /// 128 bits that nobody can guess: of an entry of the column at `place`, or its factor.
    fn hash(&self, place: usize, entry: Option<&[u8]>) -> u128 {
        let half = |state: &RandomState| {
            let mut hasher = state.build_hasher();
            hasher.write_usize(place);
            hasher.write_u8(entry.is_some().into());
            hasher.write(entry.unwrap_or_default());
            hasher.finish()
        };
        u128::from(half(&self.states[0])) << 64 | u128::from(half(&self.states[1]))
    }
}

/// Adds what the numbers of a column give.
fn add(numbers: &Packed<'_>, give: impl Fn(i64) -> u128, common: &mut u128, sums: &mut [u128]) {
    match numbers.common() {
        Some(number) if !sums.is_empty() => *common = common.wrapping_add(give(number)),
        _ => numbers.each(sums.len(), |row, number| {
            sums[row] = sums[row].wrapping_add(give(number));
        }),
    }
}

/// Takes the high half of a [`Key`], which is spread evenly.
#[derive(Default)]
pub(in super::super) struct HighHalf(u64);

impl Hasher for HighHalf {
    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, half: u64) {
        self.0 = half;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rusqlite::types::ValueRef;

    use super::super::block::Builder;
    use super::super::{BLOCK_RECORDS, Layout};
    use super::*;

    /// Source, source port and exporter of a flow.
    type FlowKey = (u8, i64, Option<&'static str>);

    /// A block of such flows.
    fn block(records: &[FlowKey]) -> Vec<u8> {
        let mut builder = Builder::new(&Layout::FLOWS);
        let place = |name| Layout::FLOWS.place(name).unwrap();
        let (source, port, exporter) = (place("source"), place("source_port"), place("exporter"));
        for (address, number, told) in records {
            let address = [*address; 16];
            let of = |at| {
                Ok(match at {
                    _ if at == source => ValueRef::Blob(&address),
                    _ if at == port => ValueRef::Integer(*number),
                    _ if at == exporter => told.map_or(ValueRef::Null, |it| it.into()),
                    _ => ValueRef::Integer(7),
                })
            };
            builder.add(of).unwrap();
        }
        builder.finish()
    }

    #[test]
    fn records_have_one_key_when_they_have_all_columns_in_common_in_whichever_block() {
        let mut records = Vec::new();
        for address in 0..12 {
            for port in [0, 1, 2, 80, 81, 65_535] {
                for exporter in [None, Some(""), Some("a"), Some("b")] {
                    records.push((address, port, exporter));
                }
            }
        }
        let places =
            ["source", "source_port", "exporter"].map(|it| Layout::FLOWS.place(it).unwrap());
        let mut keys = Keys::new(places);
        let mut found: BTreeMap<Key, Vec<FlowKey>> = BTreeMap::new();
        // In blocks of other sizes, so that columns are packed in other ways.
        for size in [1, 2, 7, records.len()] {
            for some in records.chunks(size) {
                let bytes = block(some);
                let block = Block::parse(&Layout::FLOWS, &bytes).unwrap();
                keys.of(&block);
                for (row, record) in (0..).zip(some) {
                    found.entry(keys.get(row)).or_default().push(*record);
                }
            }
        }
        assert_eq!(found.len(), records.len());
        assert!(found.values().all(|it| it.len() == 4 && it.iter().all(|own| own == &it[0])));
    }

    #[test]
    fn a_block_is_refused_when_a_part_of_it_is_missing() {
        let records: Vec<_> =
            (0..BLOCK_RECORDS as i64).map(|it| (it as u8, it * 9, None)).collect();
        let bytes = block(&records);
        for length in (0..bytes.len()).step_by(97).chain([bytes.len() - 1]) {
            assert!(Block::parse(&Layout::FLOWS, &bytes[..length]).is_none(), "{length}");
        }
        let other = [&[2], &bytes[1..]].concat();
        assert!(Block::parse(&Layout::FLOWS, &other).is_none(), "another format");
        let conversations = Block::parse(&Layout::CONVERSATIONS, &bytes);
        assert!(conversations.is_none(), "columns of another kind");
    }
}
