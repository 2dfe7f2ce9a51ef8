//! A batch into the tables, in one transaction; sums of records follow (`rollup`).

use rusqlite::{Connection, Transaction, params};
use weir_engine::meter::{ConversationRecord, DirectionRecord, FlowRecord};
use weir_engine::rdma::qp::OperationClass;
use weir_engine::verdict::Side;
use weir_wire::bth::{Qpn, Service};
use weir_wire::parse::Encapsulation;

use super::rows::{AlertRow, AskedRow, Collected};
use super::samples::{Event, Sample};
use super::writer::Pending;
use crate::names::Names;
use crate::sink::Item;

/// Seconds of the roll-ups of counters: the first for charts of a day.
pub(super) const COUNTER_RESOLUTIONS_S: [i64; 3] = [10, 60, 3600];

const NS_PER_S: u64 = 1_000_000_000;

/// Writes all of `pending`, or nothing.
pub(super) fn write(connection: &mut Connection, pending: &Pending) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    let pairs = pair_numbers(&transaction, &pending.pairs)?;
    for (pair, item) in &pending.records {
        let pair = pairs[usize::from(*pair)];
        match item {
            Item::Flow(flow, _) => flow_row(&transaction, pair, flow, &pending.names)?,
            Item::Conversation(conversation, _) => {
                conversation_row(&transaction, pair, conversation, &pending.names)?;
            }
        }
    }
    for row in &pending.collected {
        match row {
            Collected::Flow(row) => super::collected::write_flow(&transaction, row)?,
            Collected::Conversation(row) => {
                super::collected::write_conversation(&transaction, row)?;
            }
        }
    }
    for sample in &pending.samples {
        sample_rows(&transaction, sample)?;
    }
    for event in &pending.events {
        event_row(&transaction, event)?;
    }
    for note in &pending.notes {
        super::notes::write(&transaction, note)?;
    }
    for change in &pending.suppressions {
        super::suppressions::write(&transaction, change)?;
    }
    if let Some(labels) = &pending.labels {
        super::labels::replace(&transaction, labels)?;
    }
    for alert in &pending.alerts {
        alert_row(&transaction, alert)?;
    }
    transaction.commit()
}

pub(super) fn pair_numbers(
    transaction: &Transaction<'_>,
    names: &[String],
) -> rusqlite::Result<Vec<i64>> {
    let mut insert = transaction.prepare_cached("INSERT OR IGNORE INTO pair (name) VALUES (?1)")?;
    let mut select = transaction.prepare_cached("SELECT id FROM pair WHERE name = ?1")?;
    names
        .iter()
        .map(|name| {
            insert.execute([name])?;
            select.query_row([name], |row| row.get(0))
        })
        .collect()
}

fn side_name(side: Option<Side>) -> Option<&'static str> {
    side.map(|side| match side {
        Side::Host => "host",
        Side::Wire => "wire",
    })
}

fn flow_row(
    transaction: &Transaction<'_>,
    pair: i64,
    flow: &FlowRecord,
    names: &Names,
) -> rusqlite::Result<()> {
    let mut insert = transaction.prepare_cached(
        "INSERT INTO flow (started_ns, last_ns, pair, protocol, source, source_port, destination, \
         destination_port, vlan, side, packets, bytes, reply_packets, reply_bytes, tcp_flags, \
         congestion_marks, fast_packets, reason, source_peer, destination_peer) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, \
         ?19, ?20)",
    )?;
    let key = &flow.key;
    let ends = [(key.address_a(), key.port_a()), (key.address_b(), key.port_b())];
    let from = ends[flow.initiator.index()];
    let to = ends[flow.initiator.reversed().index()];
    let out = &flow.counters[flow.initiator.index()];
    let back = &flow.counters[flow.initiator.reversed().index()];
    insert.execute(params![
        flow.started.0 as i64,
        flow.last.0 as i64,
        pair,
        key.protocol(),
        from.0,
        from.1,
        to.0,
        to.1,
        key.vlans()[0],
        side_name(flow.side),
        out.packets as i64,
        out.bytes as i64,
        back.packets as i64,
        back.bytes as i64,
        out.tcp_flags | back.tcp_flags,
        (out.congestion_experienced + back.congestion_experienced) as i64,
        (out.fast_packets + back.fast_packets) as i64,
        flow.reason.name(),
        names.of(&from.0).as_deref(),
        names.of(&to.0).as_deref(),
    ])?;
    Ok(())
}

fn service_name(service: Service) -> &'static str {
    match service {
        Service::ReliableConnection => "rc",
        Service::UnreliableConnection => "uc",
        Service::ReliableDatagram => "rd",
        Service::UnreliableDatagram => "ud",
        Service::ExtendedReliableConnection => "xrc",
        Service::CongestionNotification => "cnp",
        Service::Other => "other",
    }
}

fn encapsulation_name(encapsulation: Encapsulation) -> &'static str {
    match encapsulation {
        Encapsulation::RoceV1 => "roce_v1",
        Encapsulation::RoceV2 => "roce_v2",
        Encapsulation::InfiniBand => "infiniband",
    }
}

fn conversation_row(
    transaction: &Transaction<'_>,
    pair: i64,
    record: &ConversationRecord,
    names: &Names,
) -> rusqlite::Result<()> {
    let mut insert = transaction.prepare_cached(
        "INSERT INTO conversation (started_ns, last_ns, pair, encapsulation, service, source, \
         source_qp, destination, destination_qp, vlan, partition_key, path_mtu, side, packets, \
         bytes, payload_bytes, messages, reply_packets, reply_bytes, reply_payload_bytes, \
         reply_messages, send_bytes, write_bytes, read_bytes, atomic_bytes, retransmissions, naks, \
         rnr_naks, cnp, congestion_marks, missing, icrc_bad, response_ns, reason, asked, \
         reply_asked, source_peer, destination_peer) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, \
         ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35, \
         ?36, ?37, ?38)",
    )?;
    let (key, out) = (&record.first.key, &record.first.counters);
    let back = record.second.map(|it| it.counters).unwrap_or_default();
    let of_second = record.second.map(|it| it.key.destination_qp());
    let source_qp = key.source_qp().or(of_second).map(|qp| qp.value());
    let both = [out, &back];
    let class = |class| both.iter().map(|it| it.class(class).bytes).sum::<u64>() as i64;
    let sum = |count: fn(&weir_engine::rdma::DirectionCounters) -> u32| {
        both.iter().map(|it| i64::from(count(it))).sum::<i64>()
    };
    let slowest = both.iter().filter_map(|it| it.response_time_ns(0.99)).max();
    insert.execute(params![
        record.started.0 as i64,
        record.last.0 as i64,
        pair,
        encapsulation_name(key.encapsulation()),
        service_name(record.service),
        key.source(),
        source_qp,
        key.destination(),
        key.destination_qp().value(),
        key.vlans()[0],
        record.first.partition_key,
        record.path_mtu,
        side_name(record.side),
        out.total().packets as i64,
        out.total().bytes as i64,
        out.payload_bytes as i64,
        out.messages as i64,
        back.total().packets as i64,
        back.total().bytes as i64,
        back.payload_bytes as i64,
        back.messages as i64,
        class(OperationClass::Send),
        class(OperationClass::Write),
        class(OperationClass::ReadRequest) + class(OperationClass::ReadResponse),
        class(OperationClass::Atomic),
        sum(|it| it.retransmissions),
        both.iter().flat_map(|it| it.naks).map(i64::from).sum::<i64>(),
        sum(|it| it.rnr_naks),
        sum(|it| it.cnp),
        sum(|it| it.congestion_experienced),
        sum(|it| it.missing),
        sum(|it| it.icrc_bad),
        slowest.map(|ns| ns as i64),
        record.reason.name(),
        asked(&record.first),
        record.second.as_ref().map_or(0, asked),
        names.of(&key.source()).as_deref(),
        names.of(&key.destination()).as_deref(),
    ])?;
    Ok(())
}

/// What packets of a direction ask of its queue pair, as [`AskedRow::asked`] has it. Management
/// datagrams ask for nothing that lasts.
fn asked(direction: &DirectionRecord) -> i64 {
    if direction.key.destination_qp() == Qpn::GENERAL_SERVICES {
        return 0;
    }
    let bits = [
        (OperationClass::Send, AskedRow::SEND),
        (OperationClass::Write, AskedRow::WRITE),
        (OperationClass::ReadRequest, AskedRow::READ),
        (OperationClass::Atomic, AskedRow::ATOMIC),
    ];
    let was_asked = |it: &&(OperationClass, u8)| direction.counters.class(it.0).packets > 0;
    bits.iter().filter(was_asked).fold(0, |sum, (_, bit)| sum | i64::from(*bit))
}

/// Start of the slice of `resolution` seconds that `ns` lies in, seconds since 1970.
fn slice(ns: u64, resolution: i64) -> i64 {
    let seconds = (ns / NS_PER_S) as i64;
    seconds - seconds % resolution
}

fn sample_rows(transaction: &Transaction<'_>, sample: &Sample) -> rusqlite::Result<()> {
    let mut scope_in = transaction
        .prepare_cached("INSERT OR IGNORE INTO scope (pair, kind, name) VALUES (?1, ?2, ?3)")?;
    let mut scope_of = transaction
        .prepare_cached("SELECT id FROM scope WHERE pair = ?1 AND kind = ?2 AND name = ?3")?;
    let mut name_in =
        transaction.prepare_cached("INSERT OR IGNORE INTO counter_name (name) VALUES (?1)")?;
    let mut name_of = transaction.prepare_cached("SELECT id FROM counter_name WHERE name = ?1")?;
    let mut upsert = transaction.prepare_cached(
        "INSERT INTO counter (resolution_s, time_s, scope, name, value) \
         VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO UPDATE SET value = value + excluded.value",
    )?;
    for scope in &sample.scopes {
        let key = (&scope.pair, scope.kind.name(), &scope.name);
        scope_in.execute(key)?;
        let scope_number: i64 = scope_of.query_row(key, |row| row.get(0))?;
        for (name, value) in scope.counters.iter().filter(|(_, value)| **value > 0) {
            name_in.execute([name])?;
            let name: i64 = name_of.query_row([name], |row| row.get(0))?;
            for resolution in COUNTER_RESOLUTIONS_S {
                let time = slice(sample.time_ns, resolution);
                upsert.execute((resolution, time, scope_number, name, *value as i64))?;
            }
        }
    }
    peer_states(transaction, sample)
}

/// A row for each peer whose state is another than its latest row says.
fn peer_states(transaction: &Transaction<'_>, sample: &Sample) -> rusqlite::Result<()> {
    let mut latest = transaction.prepare_cached(
        "SELECT state, endpoint FROM peer_state WHERE pair = ?1 AND peer = ?2 \
         ORDER BY id DESC LIMIT 1",
    )?;
    let mut insert = transaction.prepare_cached(
        "INSERT INTO peer_state (time_ns, pair, peer, state, endpoint) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for peer in &sample.peers {
        let mut rows = latest.query((&peer.pair, &peer.peer))?;
        let (state, endpoint): (Option<String>, Option<String>) = match rows.next()? {
            Some(row) => (row.get(0)?, row.get(1)?),
            None => (None, None),
        };
        if state.as_ref() != Some(&peer.state) || endpoint != peer.endpoint {
            let time = sample.time_ns as i64;
            insert.execute((time, &peer.pair, &peer.peer, &peer.state, &peer.endpoint))?;
        }
    }
    Ok(())
}

fn alert_row(transaction: &Transaction<'_>, alert: &AlertRow) -> rusqlite::Result<()> {
    let mut insert = transaction.prepare_cached(
        // In a file that an older one took the place of, the number may be another alert's.
        "INSERT INTO alert (id, time_ns, pair, sid, severity, action, signature, category, \
         protocol, source, source_port, destination, destination_port, event) \
         VALUES ((SELECT ?14 WHERE NOT EXISTS (SELECT 1 FROM alert WHERE id = ?14)), \
         ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    )?;
    insert.execute(params![
        alert.time_ns as i64,
        alert.pair,
        alert.sid,
        alert.severity,
        alert.action,
        alert.signature,
        alert.category,
        alert.protocol,
        alert.source,
        alert.source_port,
        alert.destination,
        alert.destination_port,
        alert.event,
        Some(alert.number as i64).filter(|it| *it != 0),
    ])?;
    Ok(())
}

fn event_row(transaction: &Transaction<'_>, event: &Event) -> rusqlite::Result<()> {
    let mut insert = transaction.prepare_cached(
        "INSERT INTO event (time_ns, who, what, outcome) VALUES (?1, ?2, ?3, ?4)",
    )?;
    insert.execute((event.time_ns as i64, &event.who, &event.what, &event.outcome))?;
    Ok(())
}
