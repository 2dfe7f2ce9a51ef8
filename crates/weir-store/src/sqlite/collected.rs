//! Rows that other exporters told of, into the tables of the gateway's own.

use rusqlite::{Transaction, params};

use super::insert::pair_numbers;
use super::rows::{ConversationRow, FlowRow};

/// Writes a flow.
pub(super) fn write_flow(transaction: &Transaction<'_>, row: &FlowRow) -> rusqlite::Result<()> {
    let pair = pair_number(transaction, &row.pair)?;
    let mut insert = transaction.prepare_cached(
        "INSERT INTO flow (started_ns, last_ns, pair, protocol, source, source_port, destination, \
         destination_port, vlan, side, packets, bytes, reply_packets, reply_bytes, tcp_flags, \
         congestion_marks, fast_packets, reason, exporter) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, \
         ?19)",
    )?;
    insert.execute(params![
        row.started_ns as i64,
        row.last_ns as i64,
        pair,
        row.protocol,
        row.source,
        row.source_port,
        row.destination,
        row.destination_port,
        row.vlan,
        row.side,
        row.packets as i64,
        row.bytes as i64,
        row.reply_packets as i64,
        row.reply_bytes as i64,
        row.tcp_flags,
        row.congestion_marks as i64,
        row.fast_packets as i64,
        row.reason,
        row.exporter,
    ])?;
    Ok(())
}

/// Writes a conversation likewise.
pub(super) fn write_conversation(
    transaction: &Transaction<'_>,
    row: &ConversationRow,
) -> rusqlite::Result<()> {
    let pair = pair_number(transaction, &row.pair)?;
    let mut insert = transaction.prepare_cached(
        "INSERT INTO conversation (started_ns, last_ns, pair, encapsulation, service, source, \
         source_qp, destination, destination_qp, vlan, partition_key, path_mtu, side, packets, \
         bytes, payload_bytes, messages, reply_packets, reply_bytes, reply_payload_bytes, \
         reply_messages, send_bytes, write_bytes, read_bytes, atomic_bytes, retransmissions, naks, \
         rnr_naks, cnp, congestion_marks, missing, icrc_bad, response_ns, reason, exporter) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, \
         ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35)",
    )?;
    insert.execute(params![
        row.started_ns as i64,
        row.last_ns as i64,
        pair,
        row.encapsulation,
        row.service,
        row.source,
        row.source_qp,
        row.destination,
        row.destination_qp,
        row.vlan,
        row.partition_key,
        row.path_mtu,
        row.side,
        row.packets as i64,
        row.bytes as i64,
        row.payload_bytes as i64,
        row.messages as i64,
        row.reply_packets as i64,
        row.reply_bytes as i64,
        row.reply_payload_bytes as i64,
        row.reply_messages as i64,
        row.send_bytes as i64,
        row.write_bytes as i64,
        row.read_bytes as i64,
        row.atomic_bytes as i64,
        row.retransmissions as i64,
        row.naks as i64,
        row.rnr_naks as i64,
        row.cnp as i64,
        row.congestion_marks as i64,
        row.missing as i64,
        row.icrc_bad as i64,
        row.response_ns.map(|ns| ns as i64),
        row.reason,
        row.exporter,
    ])?;
    Ok(())
}

fn pair_number(transaction: &Transaction<'_>, name: &str) -> rusqlite::Result<i64> {
    let numbers = pair_numbers(transaction, &[name.to_owned()])?;
    numbers.first().copied().ok_or(rusqlite::Error::QueryReturnedNoRows)
}
