//! What it costs a worker to show ten thousand peers: all at once, and the longest slice of a
//! sweep, which is all that packets wait for (docs/adr/0065).
//!
//! Prints a JSON line a figure: `cargo run --release -p weir --example status_speed`.

#![expect(clippy::disallowed_methods, reason = "an example measures from outside")]

use std::time::Instant;

use weir::daemon::control::show;
use weir::daemon::pair::publish::PEERS_A_SLICE;
use weir_engine::meter::{Meter, MeterLimits};
use weir_engine::pipeline::{Associations, Engine};
use weir_engine::policy::{Encapsulation, FrameActions, Mode, Peer, Policy, Prefix, Sealing};
use weir_engine::tunnel::key::PublicKey;
use weir_wire::frame::Time;

const PEERS: usize = 10_000;

fn main() {
    let engine = engine();
    let now = Time(1);
    // Once before, so that memory is at hand.
    drop(show::peers(&engine, 0..PEERS, now));
    let start = Instant::now();
    let all = show::peers(&engine, 0..PEERS, now);
    print("status_at_once_us", start.elapsed().as_nanos());
    drop(all);
    let (mut longest_ns, mut kept) = (0, Vec::new());
    for first in (0..PEERS).step_by(PEERS_A_SLICE) {
        let start = Instant::now();
        kept.push(show::peers(&engine, first..PEERS.min(first + PEERS_A_SLICE), now));
        longest_ns = longest_ns.max(start.elapsed().as_nanos());
    }
    print("status_longest_slice_us", longest_ns);
}

fn engine() -> Engine {
    let mut policy = Policy::watch(1, 9000);
    policy.frames = FrameActions::sealing();
    policy.keying_port = Some(51840);
    let peers = (0..PEERS).map(|index| {
        let [_, b, c, d] = (index as u32 + 1).to_be_bytes();
        let key = [index as u8, (index >> 8) as u8, 1, 2].repeat(8);
        Peer {
            name: format!("peer-{index}"),
            mode: Mode::Tunnel,
            encapsulation: Encapsulation::Esp,
            sealing: Sealing::Require,
            endpoint: None,
            protects: vec![Prefix::new([10, b, c, d].into(), 32)],
            everything: false,
            seal_spi: None,
            open_spis: Vec::new(),
            agreed: Some(PublicKey(key.try_into().expect("32 bytes"))),
            kernel: None,
            rate_limit: None,
            reaches: Vec::new(),
        }
    });
    let policy = policy.with_peers(peers.collect());
    let meter = Meter::new(MeterLimits::default(), 7);
    Engine::new(policy, Associations::default(), meter).expect("agreed keys come later")
}

fn print(name: &str, ns: u128) {
    println!("{{\"name\":\"{name}\",\"value\":{:.1},\"peers\":{PEERS}}}", ns as f64 / 1e3);
}
