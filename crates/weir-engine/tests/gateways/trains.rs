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
