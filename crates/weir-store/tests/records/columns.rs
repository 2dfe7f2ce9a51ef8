//! Groups are added up from blocks of columns, and come out as the records say: whether these are
//! in blocks, in none, removed, or of a store that had no blocks.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use super::stores::{address, begin_s, start};
use weir_store::sqlite::{
    Collected, ConversationRow, FlowRow, GroupBy, Label, Order, Range, Reader, RecordFilter,
    SCHEMA_VERSION, VolumeRow, Volumes,
};

/// Two blocks and a rest, and no more than one answer has.
const RECORDS: u64 = 9_500;

/// Takes every block, and what keeps them, out of a store: as the version before left it.
const WITHOUT_BLOCKS: &str = "
    DROP TRIGGER flow_removed; DROP TABLE flow_block;
    DROP TRIGGER conversation_removed; DROP TABLE conversation_block;
    DROP TABLE alert_number;
    PRAGMA user_version = 11;";

fn sql(path: &Path, text: &str) {
    rusqlite::Connection::open(path).unwrap().execute_batch(text).unwrap();
}

fn count(path: &Path, of: &str) -> i64 {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.query_row(&format!("SELECT count(*) FROM {of}"), [], |row| row.get(0)).unwrap()
}

/// Numbers that look like chance, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % bound
    }

    fn one_of<T: Clone>(&mut self, choice: &[T]) -> T {
        choice[self.below(choice.len() as u64) as usize].clone()
    }
}

fn flows(begin_s: u64) -> Vec<FlowRow> {
    let mut numbers = Numbers(7);
    let mut flow = |number: u64| {
        let last_ns = (begin_s * 1000 + number * 300 + numbers.below(9000)) * 1_000_000;
        FlowRow {
            started_ns: last_ns - numbers.below(60_000_000_000),
            last_ns,
            pair: numbers.one_of(&["port0".to_owned(), "port1".to_owned()]),
            protocol: numbers.one_of(&[6, 17, 1]),
            source: address(numbers.below(3) as u32),
            source_port: numbers.one_of(&[1, 2, 60_000]),
            destination: address(10 + numbers.below(3) as u32),
            destination_port: numbers.one_of(&[80, 443]),
            vlan: numbers.one_of(&[0, 0, 4095]),
            side: numbers.one_of(&[None, Some("host".to_owned()), Some("wire".to_owned())]),
            packets: numbers.below(100),
            bytes: numbers.below(1 << 40),
            reply_packets: numbers.below(3),
            reply_bytes: numbers.below(100_000),
            tcp_flags: 1 << numbers.below(8),
            congestion_marks: numbers.below(2),
            fast_packets: numbers.below(300),
            reason: "active".to_owned(),
            exporter: numbers.one_of(&[None, Some("192.0.2.1".to_owned())]),
            ..FlowRow::default()
        }
    };
    (0..RECORDS).map(&mut flow).collect()
}

fn conversations(begin_s: u64) -> Vec<ConversationRow> {
    let mut numbers = Numbers(11);
    let mut conversation = |number: u64| {
        let last_ns = (begin_s * 1000 + number * 300 + numbers.below(9000)) * 1_000_000;
        ConversationRow {
            started_ns: last_ns - numbers.below(60_000_000_000),
            last_ns,
            pair: numbers.one_of(&["port0".to_owned(), "port1".to_owned()]),
            encapsulation: numbers.one_of(&["roce_v2".to_owned(), "infiniband".to_owned()]),
            service: numbers.one_of(&["rc".to_owned(), "ud".to_owned()]),
            source: address(numbers.below(2) as u32),
            source_qp: numbers.one_of(&[None, Some(17), Some(0xff_ffff)]),
            destination: address(10 + numbers.below(3) as u32),
            destination_qp: numbers.one_of(&[18, 19]),
            partition_key: numbers.one_of(&[0xffff, 0x8001]),
            path_mtu: numbers.one_of(&[0, 1024, 4096]),
            packets: numbers.below(100),
            bytes: numbers.below(1 << 33),
            payload_bytes: numbers.below(1 << 32),
            messages: numbers.below(1000),
            reply_packets: numbers.below(5),
            reply_bytes: numbers.below(6),
            reply_payload_bytes: numbers.below(7),
            reply_messages: numbers.below(8),
            send_bytes: numbers.below(9),
            write_bytes: numbers.below(10),
            read_bytes: numbers.below(11),
            atomic_bytes: numbers.below(12),
            retransmissions: numbers.below(13),
            naks: numbers.below(14),
            rnr_naks: numbers.below(15),
            cnp: numbers.below(16),
            congestion_marks: numbers.below(17),
            missing: numbers.below(18),
            icrc_bad: numbers.below(19),
            response_ns: numbers.one_of(&[None, Some(0), Some(5), Some(90_000)]),
            reason: "active".to_owned(),
            exporter: numbers.one_of(&[None, Some("192.0.2.1".to_owned())]),
            ..ConversationRow::default()
        }
    };
    (0..RECORDS).map(&mut conversation).collect()
}

/// A store of flows and conversations of an hour, where some addresses have a name.
fn fill(path: &Path, begin_s: u64) {
    let (store, end) = (start(path), Instant::now() + Duration::from_secs(120));
    let named = |name: &str| [None, Some(name.to_owned()), None, None];
    store.labels(vec![
        Label { first: address(0), last: address(0), names: named("red") },
        Label { first: address(11), last: address(12), names: named("blue") },
    ]);
    let sender = store.collected();
    let flows = flows(begin_s).into_iter().map(Collected::Flow);
    let conversations = conversations(begin_s).into_iter().map(Collected::Conversation);
    for row in flows.chain(conversations) {
        while store.counters().records - store.counters().written > 4000 {
            assert!(Instant::now() < end, "{:?}", store.counters());
            std::thread::sleep(Duration::from_millis(1));
        }
        sender.send(row);
    }
    let counters = store.stop();
    assert_eq!((counters.written, counters.overflowed), (2 * RECORDS, 0));
}

/// Records of one group have all in common that is left of them.
fn flow_groups(rows: Vec<FlowRow>) -> BTreeMap<String, FlowRow> {
    let mut groups = BTreeMap::<String, FlowRow>::new();
    for row in rows {
        let same = format!(
            "{} {} {:?} {} {:?} {} {} {:?} {:?}",
            row.pair,
            row.protocol,
            row.source,
            row.source_port,
            row.destination,
            row.destination_port,
            row.vlan,
            row.side,
            row.exporter
        );
        let Some(own) = groups.get_mut(&same) else {
            groups.insert(same, row);
            continue;
        };
        own.started_ns = own.started_ns.min(row.started_ns);
        own.last_ns = own.last_ns.max(row.last_ns);
        own.packets += row.packets;
        own.bytes += row.bytes;
        own.reply_packets += row.reply_packets;
        own.reply_bytes += row.reply_bytes;
        own.tcp_flags |= row.tcp_flags;
        own.congestion_marks += row.congestion_marks;
        own.fast_packets += row.fast_packets;
        own.reason = "several".to_owned();
    }
    groups
}

fn conversation_groups(rows: Vec<ConversationRow>) -> BTreeMap<String, ConversationRow> {
    let mut groups = BTreeMap::<String, ConversationRow>::new();
    for row in rows {
        let same = format!(
            "{} {} {} {:?} {:?} {:?} {} {} {:?} {} {:?}",
            row.pair,
            row.encapsulation,
            row.service,
            row.source,
            row.source_qp,
            row.destination,
            row.destination_qp,
            row.vlan,
            row.side,
            row.partition_key,
            row.exporter
        );
        let Some(own) = groups.get_mut(&same) else {
            groups.insert(same, row);
            continue;
        };
        let [packets, bytes, payload, messages] =
            [own.reply_packets, own.reply_bytes, own.reply_payload_bytes, own.reply_messages];
        own.add_reply(&row);
        own.reply_packets = packets + row.reply_packets;
        own.reply_bytes = bytes + row.reply_bytes;
        own.reply_payload_bytes = payload + row.reply_payload_bytes;
        own.reply_messages = messages + row.reply_messages;
        own.packets += row.packets;
        own.bytes += row.bytes;
        own.payload_bytes += row.payload_bytes;
        own.messages += row.messages;
        own.reason = "several".to_owned();
    }
    groups
}

fn filters() -> Vec<RecordFilter> {
    let all = RecordFilter::default();
    vec![
        all.clone(),
        RecordFilter { pair: Some("port1".into()), ..all.clone() },
        RecordFilter { pair: Some("nowhere".into()), ..all.clone() },
        RecordFilter { addresses: Some((address(2), address(10))), ..all.clone() },
        RecordFilter { port: Some(2), ..all.clone() },
        RecordFilter { protocol: Some(17), ..all.clone() },
        RecordFilter { queue_pair: Some(17), ..all.clone() },
        RecordFilter { exporter: Some("192.0.2.1".into()), ..all.clone() },
        RecordFilter { label: Some("tenant=red".parse().unwrap()), ..all.clone() },
        RecordFilter { label: Some("blue".parse().unwrap()), port: Some(443), ..all },
    ]
}

/// What a row of volumes is of.
fn group_of(row: &VolumeRow) -> String {
    let VolumeRow { source, destination, source_qp, destination_qp, .. } = row;
    let VolumeRow { service, exporter, label, is_lid, .. } = row;
    format!(
        "{source:?} {destination:?} {source_qp:?} {destination_qp:?} {service:?} {exporter:?} \
         {label:?} {is_lid}"
    )
}

/// What volumes by `by` have to be, as records, sums of bytes and the slowest answer.
fn volumes(rows: impl IntoIterator<Item = (VolumeRow, [u64; 3])>) -> BTreeMap<String, [u64; 3]> {
    let mut groups = BTreeMap::<String, [u64; 3]>::new();
    for (row, [records, bytes, slowest]) in rows {
        let own = groups.entry(group_of(&row)).or_default();
        *own = [own[0] + records, own[1] + bytes, own[2].max(slowest)];
    }
    groups
}

/// The groups that a record is of.
fn groups_of(by: GroupBy, ends: [[u8; 16]; 2], all: VolumeRow) -> Vec<VolumeRow> {
    let VolumeRow { is_lid, .. } = all;
    let none = VolumeRow { is_lid, ..VolumeRow::default() };
    let [source, destination] = ends.map(Some);
    let called = |names: &[&str]| -> Vec<VolumeRow> {
        let row = |name: &&str| VolumeRow {
            label: Some(format!("tenant={name}")),
            ..VolumeRow::default()
        };
        names.iter().map(row).collect()
    };
    match by {
        GroupBy::Source => vec![VolumeRow { source, ..none }],
        GroupBy::Destination => vec![VolumeRow { destination, ..none }],
        GroupBy::Ends => vec![VolumeRow { source, destination, ..none }],
        GroupBy::Service => vec![VolumeRow { service: all.service, ..none }],
        GroupBy::QueuePair => vec![VolumeRow {
            source,
            destination,
            source_qp: all.source_qp,
            destination_qp: all.destination_qp,
            ..none
        }],
        GroupBy::Exporter if all.exporter.is_none() => vec![],
        GroupBy::Exporter => vec![VolumeRow { exporter: all.exporter, ..none }],
        GroupBy::Label => match (ends[0] == address(0), ends[1] > address(10)) {
            (true, true) => called(&["red", "blue"]),
            (true, false) => called(&["red"]),
            (false, true) => called(&["blue"]),
            (false, false) => vec![],
        },
    }
}

const ALL: [GroupBy; 7] = [
    GroupBy::Source,
    GroupBy::Destination,
    GroupBy::Ends,
    GroupBy::Service,
    GroupBy::QueuePair,
    GroupBy::Exporter,
    GroupBy::Label,
];

/// Every answer by groups is what its records come to.
fn judge(path: &Path, range: Range, what: &str) {
    let reader = Reader::open_for(path, Duration::from_secs(120)).unwrap();
    let mut answered = 0;
    for filter in filters() {
        answered += judge_flows(&reader, range, &filter, what);
        answered += judge_conversations(&reader, range, &filter, what);
    }
    assert!(answered > 1000, "{what}: {answered} groups tell little");
    // The first of an order are those of all.
    for order in Order::OF_FLOWS {
        let ask = |limit| {
            let filter = RecordFilter { is_grouped: true, order, ..RecordFilter::default() };
            let rows = reader.flows(range, &filter, limit).unwrap();
            rows.iter()
                .map(|row| match order {
                    Order::Bytes => row.bytes + row.reply_bytes,
                    Order::Packets => row.packets + row.reply_packets,
                    _ => row.last_ns,
                })
                .collect::<Vec<_>>()
        };
        let mut all = ask(10_000);
        all.sort_unstable_by(|one, other| other.cmp(one));
        assert_eq!(ask(7), all[..7], "{what}: {order:?}");
    }
}

/// Flows, and volumes of them; how many groups of flows there were.
fn judge_flows(reader: &Reader, range: Range, filter: &RecordFilter, what: &str) -> usize {
    let grouped = RecordFilter { is_grouped: true, ..filter.clone() };
    let records = reader.flows(range, filter, 10_000).unwrap();
    let found = reader.flows(range, &grouped, 10_000).unwrap();
    assert!(found.is_sorted_by(|one, other| one.last_ns >= other.last_ns), "{what}");
    let answered = found.len();
    assert_eq!((flow_groups(found), filter), (flow_groups(records.clone()), filter), "{what}");
    for by in ALL.into_iter().filter(|it| *it != GroupBy::QueuePair) {
        let rows = records.iter().flat_map(|row| {
            let service = match row.protocol {
                6 => format!("tcp {}", row.destination_port),
                17 => format!("udp {}", row.destination_port),
                _ => "icmp".to_owned(),
            };
            let (service, exporter) = (Some(service), row.exporter.clone());
            let all = VolumeRow { service, exporter, ..VolumeRow::default() };
            let groups = groups_of(by, [row.source, row.destination], all).into_iter();
            groups.map(|group| (group, [1, row.bytes + row.reply_bytes, 0]))
        });
        let wanted = volumes(rows);
        let found = reader.volumes_of_records(Volumes::Flows, by, range, filter, 10_000);
        let found = volumes(found.unwrap().into_iter().map(|row| {
            let sums = [row.records, row.bytes + row.reply_bytes, 0];
            (row, sums)
        }));
        assert_eq!(found, wanted, "{what}: {by:?} {filter:?}");
    }
    answered
}

/// Conversations likewise.
fn judge_conversations(reader: &Reader, range: Range, filter: &RecordFilter, what: &str) -> usize {
    let grouped = RecordFilter { is_grouped: true, ..filter.clone() };
    let records = reader.conversations(range, filter, 10_000).unwrap();
    let wanted = conversation_groups(records.clone());
    let found = reader.conversations(range, &grouped, 10_000).unwrap();
    let answered = found.len();
    assert_eq!((conversation_groups(found), filter), (wanted, filter), "{what}");
    for by in ALL {
        let rows = records.iter().flat_map(|row| {
            let all = VolumeRow {
                service: Some(format!("{} {}", row.service, row.encapsulation)),
                exporter: row.exporter.clone(),
                source_qp: row.source_qp,
                destination_qp: Some(row.destination_qp),
                is_lid: row.encapsulation == "infiniband",
                ..VolumeRow::default()
            };
            let groups = groups_of(by, [row.source, row.destination], all).into_iter();
            let sums = [1, row.retransmissions + row.naks, row.response_ns.unwrap_or(0)];
            groups.map(move |group| (group, sums))
        });
        let wanted = volumes(rows);
        let of = Volumes::Conversations;
        let found = reader.volumes_of_records(of, by, range, filter, 10_000).unwrap();
        let found = volumes(found.into_iter().map(|row| {
            let slowest = row.response_ns.unwrap_or(0);
            let sums = [row.records, row.retransmissions + row.naks, slowest];
            (row, sums)
        }));
        assert_eq!(found, wanted, "{what}: {by:?} {filter:?}");
    }
    answered
}

#[test]
fn groups_are_what_their_records_come_to_with_blocks_and_without() {
    let folder = tempfile::tempdir().unwrap();
    let (path, begin_s) = (folder.path().join("gw.sqlite"), begin_s());
    fill(&path, begin_s);
    assert_eq!([count(&path, "flow_block"), count(&path, "conversation_block")], [2, 2]);
    let all = Range { from_s: begin_s, until_s: begin_s + 3600 };
    // It begins and ends within blocks.
    let some = Range { from_s: begin_s + 500, until_s: begin_s + 2600 };
    judge(&path, all, "blocks and a rest");
    judge(&path, some, "a span that cuts blocks");
    // In the middle of a block, at its edge, and all of one.
    sql(&path, "DELETE FROM flow WHERE id = 5000");
    sql(&path, "DELETE FROM conversation WHERE id IN (1, 4096)");
    assert_eq!([count(&path, "flow_block"), count(&path, "conversation_block")], [1, 1]);
    judge(&path, all, "some records are gone, and their blocks with them");
    sql(
        &path,
        "UPDATE flow_block SET columns = x'ff00'; UPDATE conversation_block SET columns = x''",
    );
    judge(&path, some, "blocks of another format");
    sql(&path, WITHOUT_BLOCKS);
    judge(&path, some, "a store of the version before");
}

#[test]
fn blocks_that_somebody_made_up_harm_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let (path, begin_s) = (folder.path().join("gw.sqlite"), begin_s());
    fill(&path, begin_s);
    let range = Range { from_s: begin_s, until_s: begin_s + 3600 };
    let ask = || {
        let reader = Reader::open_for(&path, Duration::from_secs(120)).unwrap();
        let grouped = RecordFilter { is_grouped: true, ..RecordFilter::default() };
        reader.flows(range, &grouped, 10_000).map(|it| it.len())
    };
    let all = ask().unwrap();
    for (first, last) in [(i64::MIN, i64::MAX), (i64::MAX, i64::MIN), (-5, 7), (1, i64::MAX)] {
        sql(&path, "DELETE FROM flow_block");
        sql(
            &path,
            &format!(
                "INSERT INTO flow_block SELECT {first}, {last}, 0, {}, x'01ffffffff00'",
                i64::MAX
            ),
        );
        assert!(ask().unwrap() <= all, "{first} {last}");
    }
}

#[test]
fn a_store_of_the_version_before_gets_its_blocks_by_and_by() {
    let folder = tempfile::tempdir().unwrap();
    let (path, begin_s) = (folder.path().join("gw.sqlite"), begin_s());
    fill(&path, begin_s);
    sql(&path, WITHOUT_BLOCKS);
    let (store, end) = (start(&path), Instant::now() + Duration::from_secs(120));
    let has_blocks = || {
        let connection = rusqlite::Connection::open(&path).unwrap();
        let sql = "SELECT (SELECT count(*) FROM flow_block) = 2 \
                   AND (SELECT count(*) FROM conversation_block) = 2";
        connection.query_row(sql, [], |row| row.get::<_, bool>(0)).is_ok_and(|it| it)
    };
    while !has_blocks() {
        assert!(Instant::now() < end, "{:?}", store.counters());
        std::thread::sleep(Duration::from_millis(20));
    }
    store.stop();
    let version: i64 = rusqlite::Connection::open(&path)
        .unwrap()
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    assert_eq!(version, SCHEMA_VERSION);
    judge(&path, Range { from_s: begin_s, until_s: begin_s + 3600 }, "migrated");
}

#[test]
fn no_block_outlives_a_record_of_it_when_the_oldest_go() {
    let folder = tempfile::tempdir().unwrap();
    let (path, begin_s) = (folder.path().join("gw.sqlite"), begin_s());
    fill(&path, begin_s);
    // As the bound of size removes them.
    sql(&path, "DELETE FROM flow WHERE id IN (SELECT id FROM flow ORDER BY id LIMIT 4097)");
    assert_eq!(count(&path, "flow_block"), 0, "the second lost its first record");
    sql(&path, "DELETE FROM conversation");
    assert_eq!(count(&path, "conversation_block"), 0);
    // Their numbers are given again, and blocks are made of those.
    fill(&path, begin_s);
    assert_eq!(count(&path, "conversation_block"), 2);
    let lone = "flow WHERE EXISTS (SELECT 1 FROM flow_block WHERE id BETWEEN first_id AND last_id)";
    assert_eq!(count(&path, "flow_block") * 4096, count(&path, lone));
}
