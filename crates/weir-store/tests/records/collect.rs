//! What the gateway exports, collected again: each format's records are the rows that the gateway's
//! own store would have, as far as the format can say it.

use super::traffic;
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use weir_store::collect::{Decoder, SourceCounters};
use weir_store::sink::{Encoder, EncoderOptions, Format, Item};
use weir_store::sqlite::{Collected, ConversationRow, FlowRow};
use weir_wire::frame::Time;

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// Exports `items`, loses the messages whose number `is_lost`, and collects the rest.
fn collected(
    options: &EncoderOptions,
    items: &[Item],
    is_lost: impl Fn(usize) -> bool,
) -> (Vec<Collected>, SourceCounters) {
    let (now, from) = (now_ns(), SocketAddr::from(([192, 0, 2, 7], 5000)));
    let mut encoder = Encoder::new(options, Time(now - 600 * 1_000_000_000));
    let mut messages: Vec<Vec<u8>> = Vec::new();
    let mut keep = |message: weir_store::sink::Message<'_>| messages.push(message.bytes.to_vec());
    for item in items {
        encoder.add(item, Time(now), &mut keep);
    }
    encoder.flush(Time(now), &mut keep);
    let mut decoder = Decoder::new(32_473).unwrap();
    let kept = messages.iter().enumerate().filter(|(number, _)| !is_lost(*number));
    let rows = kept.flat_map(|(_, message)| decoder.read(from, message, now)).collect();
    let sources = decoder.sources();
    assert_eq!(sources.len(), 1, "{sources:?}");
    (rows, *sources.values().next().unwrap())
}

fn flows_of(rows: &[Collected]) -> Vec<&FlowRow> {
    let flows = rows.iter().filter_map(|row| match row {
        Collected::Flow(row) => Some(row),
        Collected::Conversation(_) => None,
    });
    flows.collect()
}

fn conversations_of(rows: &[Collected]) -> Vec<&ConversationRow> {
    let conversations = rows.iter().filter_map(|row| match row {
        Collected::Conversation(row) => Some(row),
        Collected::Flow(_) => None,
    });
    conversations.collect()
}

#[test]
fn own_flows_come_back_in_each_format() {
    let started = Time(now_ns() - 60 * 1_000_000_000);
    let (items, _) = traffic::flows(200, true, started);
    for format in [Format::Netflow5, Format::Netflow9, Format::Ipfix] {
        let (rows, counters) = collected(&EncoderOptions::datagrams(format), &items, |_| false);
        let rows = flows_of(&rows);
        let none = (0, 0, 0, 0);
        let wrong =
            (counters.lost, counters.restarts, counters.malformed, counters.without_template);
        assert_eq!(wrong, none, "{format:?}: {counters:?}");
        for item in &items {
            let Item::Flow(flow, _) = item else { panic!("{item:?}") };
            let is_v4 = flow.key.address_a()[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255];
            if format == Format::Netflow5 && !is_v4 {
                continue;
            }
            let ends = [
                (flow.key.address_a(), flow.key.port_a()),
                (flow.key.address_b(), flow.key.port_b()),
            ];
            for direction in [flow.initiator, flow.initiator.reversed()] {
                let counted = &flow.counters[direction.index()];
                if counted.packets == 0 {
                    continue;
                }
                let (source, port) = ends[direction.index()];
                let found = rows.iter().find(|row| {
                    (row.source, row.source_port, row.protocol)
                        == (source, port, flow.key.protocol())
                        && row.packets == counted.packets
                        && row.started_ns / 1_000_000 == flow.started.0 / 1_000_000
                });
                let row = found.unwrap_or_else(|| panic!("{format:?}: {flow:?} in {rows:#?}"));
                // Of VLAN tags v5 and v9's octet counters know nothing.
                if flow.key.vlans() == [0, 0] || format == Format::Ipfix {
                    assert_eq!(row.bytes, counted.bytes, "{format:?}");
                }
                assert_eq!(row.exporter.as_deref(), Some("192.0.2.7"));
            }
        }
    }
}

#[test]
fn both_directions_of_a_biflow_are_one_row() {
    let (items, _) = traffic::flows(50, true, Time(now_ns() - 60 * 1_000_000_000));
    let options = EncoderOptions { biflow: true, ..EncoderOptions::datagrams(Format::Ipfix) };
    let (rows, _) = collected(&options, &items, |_| false);
    let rows = flows_of(&rows);
    assert_eq!(rows.len(), items.len());
    let total = |item: &Item| match item {
        Item::Flow(flow, _) => flow.total().packets,
        Item::Conversation(..) => 0,
    };
    let counted: u64 = rows.iter().map(|row| row.packets + row.reply_packets).sum();
    assert_eq!(counted, items.iter().map(total).sum::<u64>());
}

#[test]
fn queue_pair_conversations_come_back_with_both_directions() {
    let captures = ["rc-write-rdmacm.pcap", "rping-ipv6-cm.pcap", "ud-send.pcap"];
    let items: Vec<Item> = captures.into_iter().flat_map(traffic::capture).collect();
    let options = EncoderOptions::datagrams(Format::Ipfix);
    let (rows, _) = collected(&options, &items, |_| false);
    let rows = conversations_of(&rows);
    let (mut seen, mut bytes) = (0, 0);
    for item in &items {
        let Item::Conversation(record, _) = item else { continue };
        let back = record.second.map(|it| it.counters.total().bytes).unwrap_or_default();
        (seen, bytes) = (seen + 1, bytes + record.first.counters.total().bytes + back);
        // Directions that the exporter put into two messages are rows of their own.
        let found = rows.iter().find(|row| {
            row.destination_qp == record.first.key.destination_qp().value()
                && row.source == record.first.key.source()
                && row.bytes == record.first.counters.total().bytes
                && [0, back].contains(&row.reply_bytes)
        });
        let row = found.unwrap_or_else(|| panic!("{record:?} in {rows:#?}"));
        assert_eq!(row.payload_bytes, record.first.counters.payload_bytes);
        assert_eq!(row.partition_key, record.first.partition_key);
        assert_eq!(row.path_mtu, record.path_mtu);
        if row.reply_bytes > 0 {
            let second = record.second.map(|it| it.counters).unwrap_or_default();
            let again = record.first.counters.retransmissions + second.retransmissions;
            assert_eq!(row.retransmissions, u64::from(again));
        }
    }
    assert!(seen > 3 && rows.iter().any(|row| row.reply_bytes > 0), "{rows:#?}");
    assert_eq!(rows.iter().map(|row| row.bytes + row.reply_bytes).sum::<u64>(), bytes);
}

#[test]
fn messages_that_do_not_come_are_counted_as_records_or_messages() {
    let (items, _) = traffic::flows(600, false, Time(now_ns() - 60 * 1_000_000_000));
    for format in [Format::Netflow5, Format::Netflow9, Format::Ipfix] {
        let options = EncoderOptions::datagrams(format);
        let (all, _) = collected(&options, &items, |_| false);
        // The first has the templates.
        let (rows, counters) = collected(&options, &items, |number| number == 2 || number == 3);
        let missing = (all.len() - rows.len()) as u64;
        let wanted = if format == Format::Netflow9 { 2 } else { missing };
        assert!(missing > 0);
        assert_eq!(counters.lost, wanted, "{format:?}: {counters:?}");
    }
}
