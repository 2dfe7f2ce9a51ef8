//! Groups are those of every record in the time asked for, and the first are the greatest of all.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use super::stores::{address, begin_s, start};
use weir_store::sqlite::{
    Collected, ConversationRow, FlowRow, GroupBy, Order, Range, Reader, RecordFilter, Volumes,
};

fn flow(number: u32, last_s: u64, bytes: u64) -> FlowRow {
    FlowRow {
        started_ns: (last_s - 10) * 1_000_000_000,
        last_ns: last_s * 1_000_000_000,
        pair: "port0".to_owned(),
        protocol: 6,
        source: address(number),
        source_port: 40_000,
        destination: address(0),
        destination_port: 443,
        packets: 2,
        bytes,
        reply_packets: 1,
        reply_bytes: 1,
        tcp_flags: 1 << (last_s % 8),
        reason: "active".to_owned(),
        ..FlowRow::default()
    }
}

fn write(path: &Path, rows: impl IntoIterator<Item = Collected>) {
    let (store, end) = (start(path), Instant::now() + Duration::from_secs(120));
    let sender = store.collected();
    for row in rows {
        while store.counters().records - store.counters().written > 4000 {
            assert!(Instant::now() < end, "{:?}", store.counters());
            std::thread::sleep(Duration::from_millis(1));
        }
        sender.send(row);
    }
    let counters = store.stop();
    assert_eq!((counters.written, counters.overflowed), (counters.records, 0));
}

#[test]
fn a_flow_s_row_has_all_of_its_records_however_many_there_are_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    let begin_s = begin_s();
    // Flow 1 has little at a time, all along; the greatest, flow 7, had it all at the beginning.
    let flows: Vec<FlowRow> = (0..40_000_u64)
        .map(|it| match it {
            0 => flow(7, begin_s, 1_000_000_000),
            _ => flow((it % 211) as u32 + 1, begin_s + it / 12, 100 + it % 900),
        })
        .collect();
    write(&path, flows.iter().cloned().map(Collected::Flow));
    let reader = Reader::open(&path).unwrap();
    for (from_s, until_s) in [(0, 3600), (7, 3001)] {
        let range = Range { from_s: begin_s + from_s, until_s: begin_s + until_s };
        let mut wanted: BTreeMap<[u8; 16], [u64; 4]> = BTreeMap::new();
        for row in &flows {
            if (range.from_s..range.until_s).contains(&(row.last_ns / 1_000_000_000)) {
                let sums = wanted.entry(row.source).or_default();
                sums[0] += row.packets;
                sums[1] += row.bytes;
                sums[2] = sums[2].max(row.last_ns);
                sums[3] |= u64::from(row.tcp_flags);
            }
        }
        let of = |row: &FlowRow| {
            (row.source, [row.packets, row.bytes, row.last_ns, u64::from(row.tcp_flags)])
        };
        let filter = RecordFilter { is_grouped: true, ..RecordFilter::default() };
        let rows = reader.flows(range, &filter, 1000).unwrap();
        assert_eq!(rows.iter().map(of).collect::<BTreeMap<_, _>>(), wanted);
        assert!(rows.is_sorted_by(|one, other| one.last_ns >= other.last_ns));
        // The first few of an order are those of all groups.
        let filter = RecordFilter { order: Order::Bytes, ..filter };
        let few = reader.flows(range, &filter, 3).unwrap();
        let mut greatest: Vec<_> = wanted.values().map(|it| it[1]).collect();
        greatest.sort_unstable_by(|one, other| other.cmp(one));
        assert_eq!(few.iter().map(|row| row.bytes).collect::<Vec<_>>(), greatest[..3]);
        if from_s == 0 {
            assert_eq!(few[0].source, address(7));
        }
    }
}

#[test]
fn the_slowest_and_the_most_repeated_queue_pairs_come_first_among_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    let begin_s = begin_s();
    let conversation = |number: u32, last_s: u64, again, slowest| {
        Collected::Conversation(ConversationRow {
            started_ns: last_s * 1_000_000_000,
            last_ns: last_s * 1_000_000_000,
            pair: "port0".to_owned(),
            encapsulation: "roce_v2".to_owned(),
            service: "rc".to_owned(),
            source: address(1),
            source_qp: Some(number),
            destination: address(2),
            destination_qp: 18,
            retransmissions: again,
            response_ns: slowest,
            reason: "active".to_owned(),
            ..ConversationRow::default()
        })
    };
    let mut rows =
        vec![conversation(5, begin_s, 1, Some(90_000)), conversation(6, begin_s, 0, None)];
    for second in 1..600 {
        rows.push(conversation(second as u32 + 100, begin_s + second, 2, Some(second)));
        rows.push(conversation(5, begin_s + second, 1, Some(10)));
    }
    write(&path, rows);
    let reader = Reader::open(&path).unwrap();
    let range = Range { from_s: begin_s, until_s: begin_s + 3600 };
    let ask = |order| {
        let filter = RecordFilter { is_grouped: true, order, ..RecordFilter::default() };
        let row = reader.conversations(range, &filter, 1).unwrap().remove(0);
        (row.source_qp, row.retransmissions, row.response_ns, row.reason)
    };
    let five = (Some(5), 600, Some(90_000), "several".to_owned());
    assert_eq!(ask(Order::Response), five);
    assert_eq!(ask(Order::Retransmissions), five);
    assert_eq!(ask(Order::Last).0, Some(5));
    // Records that are not grouped have an order too.
    let filter = RecordFilter { order: Order::Response, ..RecordFilter::default() };
    let slowest = reader.conversations(range, &filter, 2).unwrap();
    assert_eq!([slowest[0].response_ns, slowest[1].response_ns], [Some(90_000), Some(599)]);
}

#[test]
fn sums_of_records_name_every_group_to_the_second() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    let begin_s = begin_s();
    // More in one minute than sums by the minute name.
    write(&path, (1..=5000).map(|it| Collected::Flow(flow(it, begin_s + u64::from(it % 50), 7))));
    // The minute is over, and keeps its greatest.
    write(&path, [Collected::Flow(flow(1, begin_s + 3600, 7))]);
    let reader = Reader::open(&path).unwrap();
    let ask = |range, filter: &RecordFilter| {
        let (of, by) = (Volumes::Flows, GroupBy::Source);
        reader.volumes_of_records(of, by, range, filter, 10_000).unwrap()
    };
    let minute = Range { from_s: begin_s, until_s: begin_s + 60 };
    let rows = ask(minute, &RecordFilter::default());
    assert_eq!((rows.len(), rows.iter().map(|row| row.bytes).sum::<u64>()), (5000, 35_000));
    let summed =
        reader.volumes(Volumes::Flows, GroupBy::Source, minute, None, (Order::Bytes, 10_000));
    let summed = summed.unwrap();
    assert!(summed.rows.len() < 5000 && summed.rest_bytes > 0, "else this tells nothing");
    let second = Range { until_s: begin_s + 1, ..minute };
    assert_eq!(ask(second, &RecordFilter::default()).len(), 100);
    let addresses = Some((address(1), address(10)));
    assert_eq!(ask(minute, &RecordFilter { addresses, ..RecordFilter::default() }).len(), 10);
}
