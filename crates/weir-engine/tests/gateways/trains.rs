//! Packets that follow each other are counted together: nothing of it shows in what was counted.

use proptest::prelude::*;
use weir_engine::meter::Totals;

use super::*;

/// Who sends, and what: of few flows, so that many follow their like.
fn packet() -> impl Strategy<Value = Vec<u8>> {
    let port = prop::sample::select(&[1000_u16, 4791]);
    let class = prop::sample::select(&[2_u8, 2, 2, 3]);
    let kind = prop::sample::select(&[6_u8, 17]);
    (kind, port, class, any::<u8>(), 0_usize..60).prop_map(|(kind, port, class, flags, len)| {
        let mut bytes = match kind {
            6 => [&[0; 12][..], &[5 << 4, flags & 0x3b, 1, 0, 0, 0, 0, 0]].concat(),
            _ => vec![0; 8],
        };
        bytes.resize(bytes.len() + len, 7);
        let total = (bytes.len() as u16).to_be_bytes();
        bytes[..2].copy_from_slice(&0x1234_u16.to_be_bytes());
        bytes[2..4].copy_from_slice(&port.to_be_bytes());
        if kind == 17 {
            bytes[4..6].copy_from_slice(&total);
        }
        let mut frame = ipv4(kind, 0, &bytes);
        frame[15] = class;
        frame[24..26].fill(0);
        let sum = weir_wire::checksum::ipv4_header(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    })
}

/// Totals and flow records of `packets` that came from the host and from the wire in turn, so many
/// of each at a time in calls of at most `batch`.
fn counted(packets: &[Vec<u8>], turn: usize, batch: usize, flows_max: usize) -> (Totals, String) {
    let limits = MeterLimits { flows_max, ..MeterLimits::default() };
    let policy = Policy::watch(1, WIRE_MTU);
    let mut engine =
        Engine::new(policy, Associations::default(), Meter::new(limits, 7)).expect("no peers");
    let time = Time(1_000_000_000);
    for (turn, packets) in packets.chunks(turn).enumerate() {
        let side = if turn % 2 == 0 { Side::Host } else { Side::Wire };
        for packets in packets.chunks(batch) {
            let whole =
                |bytes: &Vec<u8>| Sent { bytes: bytes.clone(), offload: Offload::default() };
            let sent: Vec<Sent> = packets.iter().map(whole).collect();
            let mut buffers = buffers(&sent);
            engine.process(time, side, &mut frames(time, &mut buffers, &sent));
        }
    }
    let mut records = Vec::new();
    engine.flush(&mut |record| records.push(format!("{record:?}")));
    records.sort();
    (engine.meter().totals(), records.join("\n"))
}

proptest! {
    #[test]
    fn what_is_counted_does_not_depend_on_how_packets_come_together(
        packets in prop::collection::vec((packet(), 1_usize..4), 1..60),
        turn in 1_usize..70,
        batch in 2_usize..=64,
        flows_max in prop::sample::select(&[2_usize, 4, 64]),
    ) {
        let packets: Vec<Vec<u8>> =
            packets.into_iter().flat_map(|(packet, times)| vec![packet; times]).collect();
        let (totals, records) = counted(&packets, turn, 1, flows_max);
        prop_assert_eq!(totals.packets, packets.len() as u64);
        prop_assert_eq!(counted(&packets, turn, batch, flows_max), (totals, records));
    }
}

/// What was counted, flow by flow.
fn flows(gateway: &Gateway) -> Vec<(String, [FlowCounters; 2])> {
    let entries = gateway.engine.meter().flows().iter();
    let mut flows: Vec<_> =
        entries.map(|flow| (format!("{:?}", flow.key), flow.counters)).collect();
    flows.sort_by(|one, other| one.0.cmp(&other.0));
    flows
}

#[test]
fn what_packets_of_a_flow_share_is_found_once_and_each_fares_as_if_it_came_alone() {
    for (mode, own) in [(Mode::Ethernet, true), (Mode::Tunnel, false), (Mode::Transport, false)] {
        let from_port = |port: u8, len| {
            let mut packet = udp(len);
            packet[34] = port;
            packet
        };
        let marked = |traffic_class| ipv4(17, traffic_class, &udp(40)[34..]);
        let mut group = udp(9);
        group[0] = 1;
        let mut wrong_length = from_port(1, 30);
        wrong_length[39] = 200;
        let host = [
            vec![from_port(1, 10), from_port(1, 500), from_port(2, 20), from_port(1, 10)],
            vec![marked(0), marked(2), marked(2), marked(2), marked(0), group.clone(), group],
            vec![wrong_length, from_port(1, 30), ethernet(0x88cc, &[1; 50]), udp(2000), udp(7)],
        ]
        .concat();
        let (mut a, mut b) = pair(mode, own);
        let (mut a_alone, mut b_alone) = pair(mode, own);
        let mut wire = a.receive(Side::Host, &host);
        let alone: Vec<_> = host
            .iter()
            .flat_map(|it| a_alone.receive(Side::Host, std::slice::from_ref(it)))
            .collect();
        assert_eq!(wire, alone, "{mode:?}");
        assert!(a.counters().host.sealed >= 10 && a.dropped(Side::Host, DropReason::TooBig) == 1);
        wire.retain(|(to, _)| *to == Destination::Wire);

        let mut wire: Vec<_> = wire.into_iter().map(|(_, sent)| sent.bytes).collect();
        // Congestion was met by the second of three that follow each other; then a packet in clear,
        // and one that was there before.
        weir_engine::esp::outer::write_ecn(&mut wire[6][14..], 3);
        wire.insert(8, from_port(1, 10));
        wire.push(wire[2].clone());
        let opened = b.receive(Side::Wire, &wire);
        let alone: Vec<_> = wire
            .iter()
            .flat_map(|it| b_alone.receive(Side::Wire, std::slice::from_ref(it)))
            .collect();
        assert_eq!(opened, alone, "{mode:?}");
        assert_eq!(b.dropped(Side::Wire, DropReason::ReplayDuplicate), 1);

        for (batch, alone) in [(&a, &a_alone), (&b, &b_alone)] {
            assert_eq!(batch.counters(), alone.counters());
            assert_eq!(flows(batch), flows(alone));
        }
    }
}
