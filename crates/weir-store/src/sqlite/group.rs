//! All records of one flow or conversation as one row, of every record in the time asked for.
//!
//! One walk over the records tells which groups have most of what is asked for, with a key and a
//! number for each; another adds those up that are answered. So memory holds whole rows of these
//! alone, whatever was recorded.

use rusqlite::Row;

use super::columns::{ABSENT, Block, ByKey, ID, Keys, LAST_NS, Layout, STARTED_NS, Walk};
use super::read::{Order, QueryError, ROWS_MAX, Range, Reader, RecordFilter};
use super::rows::{ConversationRow, FlowRow};

/// Groups of an answer that are told apart, at most: about 50 MB, since one more would double the
/// table.
const GROUPS_MAX: usize = 900_000;

/// The reason of a row that adds several records up.
const SEVERAL: &str = "several";

/// What becomes one row.
pub(super) trait Grouped: Sized {
    /// Its records.
    const LAYOUT: &'static Layout;

    fn of(row: &Row<'_>) -> rusqlite::Result<Self>;

    /// Takes the counts of its whole group, itself the latest record of it.
    fn put(&mut self, total: &Total);
}

/// What the records of a group come to.
#[derive(Debug, Default)]
pub(super) struct Total {
    latest: i64,
    records: u64,
    started_ns: i64,
    last_ns: i64,
    sums: Vec<i64>,
    greatest: Vec<i64>,
    flags: Vec<i64>,
}

impl Reader {
    /// The groups that `filter` chooses within `range`, those with most of its order first.
    pub(super) fn grouped<T: Grouped>(
        &self,
        range: Range,
        filter: &RecordFilter,
        limit: u32,
    ) -> Result<Vec<T>, QueryError> {
        // All is read at one moment.
        let moment = self.connection.unchecked_transaction()?;
        let (layout, limit) = (T::LAYOUT, limit.min(ROWS_MAX) as usize);
        let walk = Walk::new(self, &moment, layout, range, filter)?;
        let mut keys = Keys::new(layout.same_places());
        let places = first_groups(&walk, layout, filter.order, &mut keys, limit)?;
        let mut totals: Vec<Total> = Vec::new();
        totals.resize_with(places.len(), Total::default);
        walk.each(&mut |block, rows, _| {
            keys.of(block);
            for &row in rows {
                if let Some(place) = places.get(&keys.get(row)) {
                    totals[*place as usize].add(layout, block, row as usize);
                }
            }
            Ok(true)
        })?;
        let table = layout.table;
        let mut latest = moment.prepare(&format!(
            "SELECT {table}.*, pair.name AS pair_name FROM {table} \
             JOIN pair ON pair.id = {table}.pair WHERE {table}.id = ?1"
        ))?;
        let row = |total: &Total| {
            let mut row = latest.query_row([total.latest], T::of)?;
            row.put(total);
            Ok(row)
        };
        totals.iter().map(row).collect()
    }
}

/// The groups that have most, and the place of each among them.
fn first_groups(
    walk: &Walk<'_>,
    layout: &Layout,
    order: Order,
    keys: &mut Keys,
    limit: usize,
) -> Result<ByKey<u32>, QueryError> {
    let places: Vec<_> = order.columns().iter().filter_map(|name| layout.place(name)).collect();
    let is_sum = !matches!(order, Order::Last | Order::Response);
    let mut groups = ByKey::<u32>::default();
    let mut values: Vec<i64> = Vec::new();
    walk.each(&mut |block, rows, left_ns| {
        keys.of(block);
        for &row in rows {
            let next = values.len() as u32;
            let group = *groups.entry(keys.get(row)).or_insert(next);
            if group == next {
                if values.len() == GROUPS_MAX {
                    return Err(QueryError::TooMany(GROUPS_MAX));
                }
                values.push(if is_sum { 0 } else { i64::MIN });
            }
            let own = &mut values[group as usize];
            for place in &places {
                let value = block.number(*place, row as usize);
                *own = if is_sum { own.saturating_add(value) } else { value.max(*own) };
            }
        }
        // What is left is not later than as many groups as are wanted.
        let is_enough = || values.iter().filter(|it| **it >= left_ns).count() >= limit;
        Ok(order != Order::Last || !is_enough())
    })?;
    let mut first: Vec<u32> = (0..values.len() as u32).collect();
    let most_first = |group: &u32| std::cmp::Reverse(values[*group as usize]);
    if first.len() > limit {
        first.select_nth_unstable_by_key(limit, most_first);
        first.truncate(limit);
    }
    first.sort_by_key(most_first);
    let mut place_of = vec![None; values.len()];
    (0_u32..).zip(&first).for_each(|(place, group)| place_of[*group as usize] = Some(place));
    groups.retain(|_, group| match place_of[*group as usize] {
        Some(place) => {
            *group = place;
            true
        }
        None => false,
    });
    Ok(groups)
}

impl Total {
    fn add(&mut self, layout: &Layout, block: &Block<'_>, row: usize) {
        let number = |place: usize| block.number(place, row);
        let [id, last_ns, started_ns] = [ID, LAST_NS, STARTED_NS].map(number);
        if self.records == 0 {
            self.started_ns = started_ns;
            self.sums = vec![0; layout.sums.len()];
            self.greatest = vec![ABSENT; layout.greatest.len()];
            self.flags = vec![0; layout.flags.len()];
        }
        if self.records == 0 || (last_ns, id) > (self.last_ns, self.latest) {
            (self.latest, self.last_ns) = (id, last_ns);
        }
        self.records += 1;
        self.started_ns = self.started_ns.min(started_ns);
        for (own, place) in self.sums.iter_mut().zip(layout.sum_places()) {
            // Counters are stored by their bits.
            *own = (*own as u64).saturating_add(number(place) as u64) as i64;
        }
        for (own, place) in self.greatest.iter_mut().zip(layout.greatest_places()) {
            *own = number(place).max(*own);
        }
        for (own, place) in self.flags.iter_mut().zip(layout.flag_places()) {
            *own |= number(place);
        }
    }
}

/// Puts `sums` where they belong.
fn put<const N: usize>(own: [&mut u64; N], sums: &[i64]) {
    own.into_iter().zip(sums).for_each(|(own, sum)| *own = *sum as u64);
}

impl Grouped for FlowRow {
    const LAYOUT: &'static Layout = &Layout::FLOWS;

    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Self::of(row)
    }

    fn put(&mut self, total: &Total) {
        self.started_ns = total.started_ns as u64;
        put(
            [
                &mut self.packets,
                &mut self.bytes,
                &mut self.reply_packets,
                &mut self.reply_bytes,
                &mut self.congestion_marks,
                &mut self.fast_packets,
            ],
            &total.sums,
        );
        self.tcp_flags = total.flags[0] as u8;
        if total.records > 1 {
            SEVERAL.clone_into(&mut self.reason);
        }
    }
}

impl Grouped for ConversationRow {
    const LAYOUT: &'static Layout = &Layout::CONVERSATIONS;

    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Self::of(row)
    }

    fn put(&mut self, total: &Total) {
        self.started_ns = total.started_ns as u64;
        put(
            [
                &mut self.packets,
                &mut self.bytes,
                &mut self.payload_bytes,
                &mut self.messages,
                &mut self.reply_packets,
                &mut self.reply_bytes,
                &mut self.reply_payload_bytes,
                &mut self.reply_messages,
                &mut self.send_bytes,
                &mut self.write_bytes,
                &mut self.read_bytes,
                &mut self.atomic_bytes,
                &mut self.retransmissions,
                &mut self.naks,
                &mut self.rnr_naks,
                &mut self.cnp,
                &mut self.congestion_marks,
                &mut self.missing,
                &mut self.icrc_bad,
            ],
            &total.sums,
        );
        self.path_mtu = total.greatest[0].max(0) as u16;
        self.response_ns = u64::try_from(total.greatest[1]).ok();
        if total.records > 1 {
            SEVERAL.clone_into(&mut self.reason);
        }
    }
}
