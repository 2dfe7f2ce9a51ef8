//! The blocks follow the records: what stands behind the last one becomes the next as soon as it is
//! [`BLOCK_RECORDS`] records. So a store of an earlier version gets its blocks by and by, and one
//! whose gateway was killed has what was committed.

use rusqlite::{Connection, Row, Transaction};

use super::block::{Block, Builder};
use super::{BLOCK_RECORDS, ID, LAST_NS, Layout, gather};

/// Blocks of a transaction: as many records as the sums take at a time.
const BLOCKS_AT_ONCE: usize = 8;

/// Makes blocks of records that are in none; whether there are more to make.
pub(in super::super) fn advance(connection: &mut Connection) -> rusqlite::Result<bool> {
    let transaction = connection.transaction()?;
    let mut made = 0;
    for layout in Layout::ALL {
        while made < BLOCKS_AT_ONCE && make_next(&transaction, layout)? {
            made += 1;
        }
    }
    transaction.commit()?;
    Ok(made == BLOCKS_AT_ONCE)
}

/// Makes the next block of `layout`; whether there were records enough.
fn make_next(transaction: &Transaction<'_>, layout: &Layout) -> rusqlite::Result<bool> {
    let (table, blocks) = (layout.table, layout.blocks());
    let sql = format!(
        "SELECT (SELECT coalesce(max(id), 0) FROM {table}), \
         coalesce((SELECT last_id FROM {blocks} ORDER BY first_id DESC LIMIT 1), 0)"
    );
    let two = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let (until, behind): (i64, i64) = transaction.prepare_cached(&sql)?.query_row([], two)?;
    if until - behind < BLOCK_RECORDS as i64 {
        return Ok(false);
    }
    let sql = format!("{} WHERE id > ?1 ORDER BY id LIMIT ?2", layout.select());
    let mut select = transaction.prepare_cached(&sql)?;
    let mut rows = select.query((behind, BLOCK_RECORDS as i64))?;
    let mut builder = Builder::new(layout);
    let (mut ids, mut ends) = ((i64::MAX, 0), (i64::MAX, i64::MIN));
    while let Some(row) = rows.next()? {
        gather(&mut builder, row)?;
        let (id, end): (i64, i64) = (row.get(ID)?, row.get(LAST_NS)?);
        ids = (ids.0.min(id), ids.1.max(id));
        ends = (ends.0.min(end), ends.1.max(end));
    }
    // Numbers may be missing between.
    if !builder.is_full() {
        return Ok(false);
    }
    let columns = builder.finish();
    debug_assert!(Block::parse(layout, &columns).is_some());
    let mut insert = transaction.prepare_cached(&format!(
        "INSERT INTO {blocks} (first_id, last_id, first_ns, last_ns, columns) \
         VALUES (?1, ?2, ?3, ?4, ?5)"
    ))?;
    insert.execute((ids.0, ids.1, ends.0, ends.1, columns))?;
    Ok(true)
}
