//! A detector of one's own: it drops what is near the end of its life, as a traceroute is.
//!
//! The detector is this file; the line that puts it at the joint is the one with `set_judge`.
//!
//! ```text
//! cargo run -p weir-engine --example ttl_detector
//! ```

use weir_engine::meter::{Meter, MeterLimits};
use weir_engine::pipeline::{Associations, Engine};
use weir_engine::plain::Judge;
use weir_engine::policy::Policy;
use weir_engine::verdict::{DropReason, Side, Verdict};
use weir_wire::frame::{Frame, Link, Meta, Offload, Time};
use weir_wire::parse::{Network, Parsed};

/// Drops IP packets of fewer hops than `least`.
#[derive(Debug)]
struct ByTtl {
    least: u8,
}

impl Judge for ByTtl {
    fn judge(&mut self, _: Side, _: &Frame<'_>, parsed: &Parsed) -> Result<(), DropReason> {
        let is_ip = matches!(parsed.network, Network::Ipv4 | Network::Ipv6);
        match is_ip && parsed.hop_limit < self.least {
            true => Err(DropReason::Rule),
            false => Ok(()),
        }
    }
}

fn main() {
    let meter = Meter::new(MeterLimits::default(), 1);
    let policy = Policy::watch(1, 1500);
    let mut engine = Engine::new(policy, Associations::default(), meter).expect("no keys needed");
    engine.set_judge(Some(Box::new(ByTtl { least: 5 })));
    for (ttl, expected) in
        [(64, Verdict::Forward), (5, Verdict::Forward), (1, Verdict::Drop(DropReason::Rule))]
    {
        let verdict = send(&mut engine, ttl);
        assert_eq!(verdict, expected);
        println!("TTL {ttl}: {verdict:?}");
    }
    assert!(engine.counters().host.adds_up());
}

/// What becomes of a UDP packet of the host's with this TTL.
fn send(engine: &mut Engine, ttl: u8) -> Verdict {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    bytes.extend([0x45, 0, 0, 32, 0, 0, 0, 0, ttl, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend([4, 0, 4, 1, 0, 12, 0, 0, 1, 2, 3, 4]);
    let time = Time(1_000_000_000);
    let original_len = bytes.len() as u32;
    let meta = Meta { time, original_len, link: Link::Ethernet, offload: Offload::default() };
    let end = bytes.len();
    let mut frames = [Frame::new(&mut bytes, 0, end, meta)];
    engine.process(time, Side::Host, &mut frames).verdicts[0]
}

#[test]
fn it_drops_what_is_near_the_end_of_its_life() {
    main();
}
