//! The kernel's program and the engine see the same: every recorded packet through both (the real
//! program, run by the kernel on request), equal keys, equal records.
//!
//! Needs root and the folder of captures; says so and passes where there is none.

use std::path::PathBuf;

use weir_engine::fastpath::{Clocks, Command, FastPath as Table, opcode_words};
use weir_engine::meter::{ConversationRecord, FlowRecord, Meter, MeterLimits, Record, Totals};
use weir_engine::pipeline::{Associations, Engine};
use weir_engine::policy::Policy;
use weir_engine::verdict::Side;
use weir_port::{CaptureReader, FastPath, FastPathOptions};
use weir_wire::fastpath::{HEAD_BYTES, Key, Slot};
use weir_wire::frame::{Frame, Link, Meta, Time};
use weir_wire::parse::{Network, Transport, parse};
use weir_wire::tcp::flags::{FIN, RST, SYN};

const FLOWS_MAX: u32 = 1024;
const ROOM: usize = 128;

struct Packet {
    bytes: Vec<u8>,
    time: Time,
}

/// Whole Ethernet frames of every capture, a list a file.
fn captures() -> Vec<(String, Vec<Packet>)> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/captures");
    let mut files: Vec<PathBuf> = [root.to_owned(), format!("{root}/public")]
        .iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flat_map(|entries| entries.map(|entry| entry.expect("an entry").path()))
        .filter(|path| path.extension().is_some_and(|end| end == "pcap"))
        .collect();
    files.sort();
    files.iter().map(|file| (file.display().to_string(), packets(file))).collect()
}

fn packets(file: &PathBuf) -> Vec<Packet> {
    let mut packets = Vec::new();
    let mut reader = CaptureReader::open(file).expect("a capture");
    let mut take = |frames: &mut [Frame<'_>]| {
        for frame in frames.iter() {
            let is_whole = frame.len() == frame.meta.original_len as usize;
            if frame.meta.link == Link::Ethernet && is_whole {
                packets.push(Packet { bytes: shortened(frame), time: frame.meta.time });
            }
        }
    };
    while reader.next_batch(&mut take).expect("it can be read") > 0 {}
    packets
}

/// The frame, without 2048 bytes of payload where it is too long for the kernel to try it: its
/// lengths fit again, its ICRC does not.
fn shortened(frame: &Frame<'_>) -> Vec<u8> {
    const CUT: usize = 2048;
    const LONGEST: usize = 3000;
    let mut bytes = frame.bytes().to_vec();
    let parsed = parse(&bytes, Link::Ethernet, bytes.len() as u32);
    let Some(rdma) = parsed.rdma.filter(|_| bytes.len() > LONGEST) else { return bytes };
    let start = usize::from(rdma.payload_offset);
    bytes.drain(start..start + CUT);
    let network = usize::from(parsed.network_offset);
    let ip_length = if parsed.network == Network::Ipv4 { network + 2 } else { network + 4 };
    for at in [ip_length, usize::from(parsed.transport_offset) + 4] {
        let length = u16::from_be_bytes([bytes[at], bytes[at + 1]]) - CUT as u16;
        bytes[at..at + 2].copy_from_slice(&length.to_be_bytes());
    }
    bytes
}

fn kernel() -> Option<FastPath> {
    let options =
        FastPathOptions { flows_max: FLOWS_MAX, workers: 1, opcode_words: opcode_words() };
    match FastPath::detached(&options) {
        Ok(kernel) => {
            kernel.set_epoch(1);
            assert!(kernel.heartbeat());
            for side in 0..2 {
                kernel.set_departed(side, u64::MAX);
            }
            Some(kernel)
        }
        Err(reason) => {
            eprintln!("SKIPPED: the kernel takes no program here: {reason}");
            None
        }
    }
}

fn engine() -> Engine {
    let limits = MeterLimits::for_captures();
    let limits = MeterLimits { flows_max: 4096, conversations_max: 4096, ..limits };
    let policy = Policy::watch(1, 9000);
    Engine::new(policy, Associations::default(), Meter::new(limits, 7)).expect("no peers")
}

/// Keeps the lease, however slow this machine is.
fn beat(kernel: &FastPath) {
    if !kernel.heartbeat() {
        kernel.forget_heartbeat();
        assert!(kernel.heartbeat());
    }
}

/// No VLAN is the same to a key as any number of tags of no VLAN: what is behind more tags than
/// both look behind is not carried as what is behind none.
#[test]
fn a_packet_behind_more_than_two_tags_is_carried_by_nobody() {
    let Some(mut kernel) = kernel() else { return };
    let (macs, packet) = (
        [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2],
        [
            8, 0, 0x45, 0, 0, 46, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x30,
            0x39, 0x30, 0x39, 0, 26, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
            17, 18,
        ],
    );
    let behind = |tags: usize| [&macs[..], &[0x81, 0, 0, 0].repeat(tags), &packet].concat();
    install(&mut kernel, &key_of(&behind(0)).expect("a key"));
    for tags in 0..=4 {
        let bytes = behind(tags);
        assert_eq!(key_of(&bytes).is_some(), tags <= 2, "{tags} tags");
        assert_eq!(trial(&kernel, &bytes).unwrap(), tags <= 2, "{tags} tags");
    }
}

/// Whether a frame is a segment with SYN, FIN or RST.
fn is_control(bytes: &[u8]) -> bool {
    let parsed = parse(bytes, Link::Ethernet, bytes.len() as u32);
    matches!(parsed.transport, Transport::Tcp { flags, .. } if flags & (FIN | SYN | RST) != 0)
}

#[test]
fn the_kernel_carries_a_packet_exactly_when_the_engine_finds_its_key_in_the_table() {
    let Some(mut kernel) = kernel() else { return };
    for (file, packets) in captures() {
        let (mut with_key, mut without) = (0, 0);
        // What may begin a connection, or end it, is the gateway's, and what follows.
        let (control, packets): (Vec<_>, Vec<_>) =
            packets.into_iter().partition(|it| is_control(&it.bytes));
        for packet in control {
            let Some(key) = key_of(&packet.bytes) else { continue };
            install(&mut kernel, &key);
            assert!(!trial(&kernel, &packet.bytes).unwrap(), "{file}: {key:?}");
            kernel.remove(&key).unwrap();
        }
        let keys = packets.iter().map(|packet| key_of(&packet.bytes)).collect::<Vec<_>>();
        for (packet, key) in packets.iter().zip(&keys) {
            let carried = trial(&kernel, &packet.bytes).unwrap();
            assert!(!carried, "{file}: an empty table carries nothing");
            let Some(key) = key else {
                without += 1;
                continue;
            };
            // Any other key in the table does not fit.
            let mut others = [*key; 4];
            others[0].destination[15] ^= 1;
            others[1].vlans ^= 1;
            others[2].destination_qp ^= 1;
            others[3].source_port ^= 1;
            for other in &others {
                install(&mut kernel, other);
            }
            assert!(!trial(&kernel, &packet.bytes).unwrap(), "{file}: {key:?}");
            install(&mut kernel, key);
            assert!(trial(&kernel, &packet.bytes).unwrap(), "{file}: {key:?}");
            for key in others.iter().chain([key]) {
                kernel.remove(key).unwrap();
            }
            with_key += 1;
        }
        // With all keys of the file in the table, what has none is still the gateway's. The heads
        // of the others come up, if they are wanted.
        assert_eq!(kernel.take_heads(1, |_| ()), 0, "{file}: nobody wanted them");
        kernel.want_heads(true);
        for key in keys.iter().flatten() {
            install(&mut kernel, key);
        }
        for (packet, key) in packets.iter().zip(&keys) {
            let carried = trial(&kernel, &packet.bytes).unwrap();
            assert_eq!(carried, key.is_some(), "{file}: {key:?}");
            let heads = kernel.take_heads(2, |head| {
                let mut room = [0; HEAD_BYTES + 4];
                assert_eq!(
                    head.frame(&mut room),
                    &packet.bytes[..HEAD_BYTES.min(packet.bytes.len())]
                );
                assert_eq!((head.wire_len as usize, head.side), (packet.bytes.len(), 0));
            });
            assert_eq!(heads, usize::from(carried), "{file}: {key:?}");
        }
        kernel.want_heads(false);
        assert_eq!(kernel.heads_lost(), 0);
        for key in keys.iter().flatten() {
            kernel.remove(key).unwrap();
        }
        println!("{file}: {with_key} with a key, {without} without");
    }
}

fn install(kernel: &mut FastPath, key: &Key) {
    let slot = Slot { epoch: 1, ..Slot::default() };
    kernel.insert(key, 0, &slot).expect("room");
}

fn trial(kernel: &FastPath, bytes: &[u8]) -> std::io::Result<bool> {
    beat(kernel);
    kernel.trial(bytes)
}

fn key_of(bytes: &[u8]) -> Option<Key> {
    Key::of(&parse(bytes, Link::Ethernet, bytes.len() as u32), bytes, 0)
}

#[test]
fn records_and_totals_are_the_same_whether_the_kernel_carried_the_packets_or_not() {
    for (file, packets) in captures() {
        let Some(mut kernel) = kernel() else { return };
        let (mut slow, mut mixed) = (engine(), engine());
        mixed.set_fast_path(Some(Table::new(FLOWS_MAX, 7)));
        let mut carried = 0;
        for (index, packet) in packets.iter().enumerate() {
            process(&mut slow, packet);
            match trial(&kernel, &packet.bytes).unwrap() {
                true => carried += 1,
                false => process(&mut mixed, packet),
            }
            follow(&mut kernel, &mut mixed);
            if index % 37 == 0 {
                fold(&mut kernel, &mut mixed, packet.time);
            }
        }
        let end = packets.last().map_or(Time(0), |packet| packet.time);
        fold(&mut kernel, &mut mixed, end);
        mixed.fold_opcodes(&kernel.opcode_packets().unwrap());
        println!("{file}: {carried} of {} carried", packets.len());
        assert_eq!(kernel.events_lost(), 0);
        assert_eq!(counted(slow.meter().totals()), counted(mixed.meter().totals()), "{file}");
        assert_eq!(mixed.meter().totals().fast_packets, carried, "{file}");
        assert_eq!(slow.counters().host.received, mixed.counters().host.received);
        assert_eq!(slow.counters().host.received_bytes, mixed.counters().host.received_bytes);
        assert!(mixed.counters().host.adds_up());
        assert_eq!(mixed.counters().host.fast, carried);
        assert_eq!(records(slow), records(mixed), "{file}");
    }
}

fn process(engine: &mut Engine, packet: &Packet) {
    let mut buffer = [&[0; ROOM][..], &packet.bytes, &[0; ROOM]].concat();
    let len = packet.bytes.len();
    let meta = Meta { time: packet.time, original_len: len as u32, ..Meta::default() };
    let mut frames = [Frame::new(&mut buffer, ROOM, ROOM + len, meta)];
    engine.process(packet.time, Side::Host, &mut frames);
}

/// Does with the kernel's table what the engine says.
fn follow(kernel: &mut FastPath, engine: &mut Engine) {
    let table = engine.fast_path().unwrap();
    while let Some(command) = table.next_command() {
        match command {
            Command::Install(install) => {
                kernel.insert(&install.key, install.number, &install.slot(1)).unwrap();
                table.installed(install.number, weir_port::fastpath::now_ns());
            }
            Command::Remove { key, number } => {
                kernel.remove(&key).unwrap();
                table.removed(number, weir_port::fastpath::now_ns());
            }
        }
    }
}

fn fold(kernel: &mut FastPath, engine: &mut Engine, now: Time) {
    let clocks = Clocks { now, monotonic_ns: weir_port::fastpath::now_ns() };
    while let Some(event) = kernel.next_event() {
        engine.notice(&event, clocks);
    }
    let numbers: Vec<u32> = engine.fast_path().unwrap().numbers().collect();
    for number in numbers {
        let folded = engine.fold(number, &kernel.take(number), clocks);
        if let Some(bytes) = folded.path_mtu {
            kernel.set_path_mtu(number, bytes);
        }
    }
}

/// Totals without what the kernel cannot know.
fn counted(mut totals: Totals) -> Totals {
    totals.fast_packets = 0;
    let rdma = &mut totals.rdma;
    rdma.icrc_unchecked += rdma.icrc_ok + rdma.icrc_bad;
    (rdma.icrc_ok, rdma.icrc_bad) = (0, 0);
    totals
}

/// Records without times, and without what the kernel cannot know.
fn records(mut engine: Engine) -> (Vec<String>, Vec<String>) {
    let (mut flows, mut conversations) = (Vec::new(), Vec::new());
    engine.flush(&mut |record| match record {
        Record::Flow(flow) => {
            let mut flow: FlowRecord = *flow;
            (flow.started, flow.last) = Default::default();
            flow.counters.iter_mut().for_each(|direction| direction.fast_packets = 0);
            flows.push(format!("{flow:?}"));
        }
        Record::Conversation(conversation) => {
            let mut conversation: ConversationRecord = *conversation;
            (conversation.started, conversation.last) = Default::default();
            for direction in [Some(&mut conversation.first), conversation.second.as_mut()] {
                let Some(direction) = direction else { continue };
                let counters = &mut direction.counters;
                counters.fast_packets = 0;
                counters.response_times = Default::default();
                counters.icrc_unchecked = 0;
                counters.icrc_bad = 0;
            }
            conversations.push(format!("{conversation:?}"));
        }
    });
    flows.sort();
    conversations.sort();
    (flows, conversations)
}
