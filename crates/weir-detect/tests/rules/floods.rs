//! Each rule about floods that Weir ships tells of twice its rate, and not of half of it.
//!
//! The rules are those of `rules/`, with lower rates: a test sends no millions a second.

use weir_detect::{Direction, FlowSlot};

use crate::bench::{Bench, CLIENT, SECOND, SERVER, ipv4, roce, tcp, udp};

const SHIPPED: [&str; 2] =
    [include_str!("../../../../rules/flood.rules"), include_str!("../../../../rules/rdma.rules")];
/// What is sent here.
const KINDS: [&str; 8] =
    ["syn", "half_open", "udp", "icmp", "dns", "new_flow", "rdma_read", "rdma_write"];
/// A rule's rate here, at most.
const RATE_MAX: u64 = 1000;
const RETH: [u8; 16] = [0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0x12, 0x34, 0, 0, 0, 64];

/// A shipped rule, with a rate that can be sent here.
struct Flood {
    text: String,
    sid: u32,
    kind: &'static str,
    rate: u64,
    is_by_source: bool,
    of_network: bool,
    /// How many times the usual is no flood.
    times: Option<u64>,
}

impl Flood {
    fn of(line: &str) -> Option<Self> {
        let number = |name: &str| -> Option<u64> {
            let behind = &line[line.find(name)? + name.len()..];
            behind.split(|it: char| !it.is_ascii_digit()).next()?.parse().ok()
        };
        let watch = &line[line.find("flood:")? + "flood:".len()..];
        let kind = watch.split(',').next()?;
        let kind = KINDS.into_iter().find(|it| *it == kind)?;
        let said = number(" rate ")?;
        let rate = said.min(RATE_MAX);
        let sid = u32::try_from(number("sid:")?).ok()?;
        Some(Self {
            text: line.replace(&format!(" rate {said}"), &format!(" rate {rate}")),
            sid,
            kind,
            rate,
            is_by_source: watch.contains("by_src"),
            of_network: line.contains(" prefix 24"),
            times: number(" times "),
        })
    }

    /// The `index`th packet. Who is counted is one host or one network; all else differs.
    fn packet(&self, index: u64) -> Vec<u8> {
        let [low, high] = [index % 250, index / 250 % 250].map(|it| it as u8 + 1);
        let one =
            |host: [u8; 4]| [host[0], host[1], host[2], if self.of_network { low } else { 9 }];
        let (source, destination) = match self.is_by_source {
            true => (one(CLIENT), [10, 0, high, low]),
            false => ([172, 16, high, low], one(SERVER)),
        };
        let port = 10_000 + (index % 40_000) as u16;
        match self.kind {
            "syn" | "half_open" => tcp((source, port), (destination, 80), 2, 1, 0, b""),
            "icmp" => ipv4(source, destination, 1, &[8, 0, 0xf7, 0xff, 0, 0, 0, 0]),
            "dns" => {
                udp(source, destination, 53, port, &[0, 1, 0x81, 0x80, 0, 0, 0, 0, 0, 0, 0, 0])
            }
            "rdma_read" => roce(0x0c, 7, index as u32, &RETH),
            "rdma_write" => roce(0x0a, 7, index as u32, &[&RETH[..], b"hello ok"].concat()),
            _ => udp(source, destination, port, 9, b"x"),
        }
    }

    /// Sends at a rate for so many seconds; whether the rule has told of it.
    fn is_told(&self, bench: &mut Bench, rate: u64, seconds: u64) -> bool {
        let mut is_told = false;
        for index in 0..rate * seconds {
            bench.now = bench.now.plus_ns(SECOND / rate - 1000);
            bench.slot = FlowSlot::default();
            bench.send(Direction::Initiator, &self.packet(index));
            is_told |= bench.alerted().contains(&self.sid);
        }
        is_told
    }
}

#[test]
fn shipped_rules_tell_of_twice_their_rate_and_not_of_half_of_it() {
    let lines = SHIPPED.iter().flat_map(|it| it.lines()).filter(|it| !it.starts_with('#'));
    let floods: Vec<Flood> = lines.filter_map(Flood::of).collect();
    assert!(floods.len() >= 21, "{}", floods.len());
    for flood in &floods {
        let (sid, usual) = (flood.sid, flood.rate / 2);
        let [mut calm, mut hit] = [(); 2].map(|()| Bench::new(&flood.text));
        let (mut below, mut above) = (usual, flood.rate * 2);
        if let Some(times) = flood.times {
            // What is usual is learned first.
            for bench in [&mut calm, &mut hit] {
                assert!(!flood.is_told(bench, usual, 70), "{sid} at what is usual");
            }
            (below, above) = (usual * (times - 2), usual * times * 2);
        }
        assert!(!flood.is_told(&mut calm, below, 4), "{sid} at {below} packets a second");
        assert!(flood.is_told(&mut hit, above, 4), "{sid} at {above} packets a second");
    }
}
