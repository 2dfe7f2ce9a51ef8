//! What a change by a front end costs beside many tunnels: the plan of the whole databases, what of
//! it differs, a whole policy in an engine, new keys of a hundred peers at once, and usage.
//!
//! Prints a JSON line a figure: `cargo run --release -p weir-xfrm --example plan_speed`.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use weir_engine::esp::open::OpeningSa;
use weir_engine::esp::sa::Fingerprint;
use weir_engine::esp::seal::SealingSa;
use weir_engine::meter::{Meter, MeterLimits};
use weir_engine::pipeline::{Associations, Engine, PeerChange};
use weir_engine::policy::{OwnAddress, Policy};
use weir_engine::proof::WireProof;
use weir_xfrm::database::{Asker, Outside, Xfrm};
use weir_xfrm::netlink::Writer;
use weir_xfrm::plan::{GatewayAddresses, Plan};
use weir_xfrm::refusal::Refusal;
use weir_xfrm::uapi::{
    AeadHead, Header, Id, LifetimeLimits, PolicyInfo, SaInfo, Selector, Template, attribute, flag,
    kind,
};

const ROUNDS: usize = 21;
/// Peers whose keys are renewed together.
const TOGETHER: u32 = 100;
const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const V4: u16 = 2;
const ESP: u8 = 50;
const TUNNEL: u8 = 1;
const OUT: u8 = 1;

struct Anything;

impl Outside for Anything {
    fn random(&mut self) -> u32 {
        1
    }

    fn admit(&mut self, _key: Fingerprint) -> Result<(), Refusal> {
        Ok(())
    }
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let rounds = if quick { 1 } else { ROUNDS };
    // Databases have 8,192 associations and as many policies, at most.
    for tunnels in [100, 1000, 4000] {
        let mut xfrm = databases(tunnels);
        report("plan", tunnels, rounds, || drop(xfrm.plan()));
        let plan = xfrm.plan();
        report("compare", tunnels, rounds, || drop(plan.changed_peers(&plan)));
        let mut engine = engine(&xfrm, &plan);
        let mut proof = WireProof::new(engine.policy());
        let base = policy();
        report("whole_policy", tunnels, rounds, || {
            let next = base.clone().with_front_end(plan.peers.clone(), plan.selectors.clone());
            engine.check(&next, &Associations::default()).unwrap();
            engine.swap(next, Associations::default()).unwrap();
            proof.renew(engine.policy());
        });
        let mut spi = 0x100_0000;
        report("renew_100_peers", tunnels, rounds, || {
            let changes = (0..TOGETHER.min(tunnels)).map(|number| {
                spi += 2;
                let peer = engine.peer_id(number as usize).unwrap();
                let new = Associations {
                    sealing: vec![sealing(spi)],
                    opening: vec![opening(spi + 1)],
                    ..Associations::default()
                };
                PeerChange { peer, seal_spi: Some(spi), open_spis: vec![spi + 1], new }
            });
            engine.change_associations(changes.collect()).unwrap();
        });
        let usage: Vec<_> = engine.usage().collect();
        report("usage", tunnels, rounds, || drop(xfrm.tick(2, &usage)));
    }
}

/// Median microseconds of `work`.
fn report(name: &str, tunnels: u32, rounds: usize, mut work: impl FnMut()) {
    let mut took: Vec<Duration> = (0..rounds)
        .map(|_| {
            let begun = Instant::now();
            work();
            begun.elapsed()
        })
        .collect();
    took.sort_unstable();
    let us = took[rounds / 2].as_secs_f64() * 1e6;
    println!(
        "{{\"name\":\"front_end_{name}\",\"tunnels\":{tunnels},\"value\":{us:.0},\"unit\":\"us\"}}"
    );
}

/// Tunnels to `count` gateways, each with a network behind it.
fn databases(count: u32) -> Xfrm {
    let mut xfrm =
        Xfrm::new(GatewayAddresses { own: vec![OWN.into()], taken_spis: BTreeSet::new() });
    for number in 0..count {
        let remote = Ipv4Addr::from(u32::from(Ipv4Addr::new(198, 18, 0, 1)) + number);
        let behind = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 0)) + number * 256);
        for (from, to, spi) in [(OWN, remote, 2 * number), (remote, OWN, 2 * number + 1)] {
            association(&mut xfrm, from, to, 0x1000 + spi);
        }
        for direction in [OUT, 0] {
            tunnel_policy(&mut xfrm, direction, remote, behind);
        }
    }
    assert_eq!(
        (xfrm.states().len(), xfrm.policies().len()),
        (2 * count as usize, 2 * count as usize)
    );
    xfrm
}

fn say(xfrm: &mut Xfrm, datagram: &[u8]) {
    assert!(xfrm.handle(1, Asker::default(), datagram, &mut Anything).changed);
}

fn header(kind: u16) -> Header {
    Header { kind, flags: flag::REQUEST, ..Header::default() }
}

fn bytes(address: Ipv4Addr) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&address.octets());
    bytes
}

fn association(xfrm: &mut Xfrm, from: Ipv4Addr, to: Ipv4Addr, spi: u32) {
    let id = Id { destination: bytes(to), spi: spi.to_be_bytes(), protocol: ESP, ..Id::default() };
    let limits = LifetimeLimits::unlimited();
    let info = SaInfo {
        id,
        source: bytes(from),
        limits,
        family: V4,
        mode: TUNNEL,
        replay_window: 64,
        ..SaInfo::default()
    };
    let mut name = [[0; 32]; 2];
    name[0][..17].copy_from_slice(b"rfc4106(gcm(aes))");
    let head = AeadHead { name, key_bits: 36 * 8, icv_bits: 128 };
    let mut aead = zerocopy::IntoBytes::as_bytes(&head).to_vec();
    aead.extend(material(spi));
    let writer = Writer::new(header(kind::NEW_SA), &info);
    say(xfrm, &writer.with(attribute::ALG_AEAD, &aead[..]).finish());
}

fn tunnel_policy(xfrm: &mut Xfrm, direction: u8, remote: Ipv4Addr, behind: Ipv4Addr) {
    let is_out = direction == OUT;
    let (outer_from, outer_to) = if is_out { (OWN, remote) } else { (remote, OWN) };
    let near = Ipv4Addr::new(172, 16, 0, 0);
    let (from, to) = if is_out { (near, behind) } else { (behind, near) };
    let selector = Selector {
        source: bytes(from),
        destination: bytes(to),
        source_len: 24,
        destination_len: 24,
        family: V4,
        ..Selector::default()
    };
    let id = Id { destination: bytes(outer_to), protocol: ESP, ..Id::default() };
    let template =
        Template { id, source: bytes(outer_from), family: V4, mode: TUNNEL, ..Template::default() };
    let limits = LifetimeLimits::unlimited();
    let info = PolicyInfo { selector, limits, direction, ..PolicyInfo::default() };
    let writer = Writer::new(header(kind::NEW_POLICY), &info);
    say(xfrm, &writer.with(attribute::TEMPLATES, &template).finish());
}

fn material(spi: u32) -> [u8; 36] {
    std::array::from_fn(|at| spi.to_be_bytes()[at % 4] ^ at as u8)
}

fn parameters(spi: u32) -> weir_engine::esp::sa::SaParameters {
    let spi_of = weir_engine::esp::sa::Spi::new(spi).unwrap();
    weir_engine::esp::sa::SaParameters::new(spi_of, &material(spi)).unwrap()
}

fn sealing(spi: u32) -> SealingSa {
    SealingSa::new(&parameters(spi), None).unwrap()
}

fn opening(spi: u32) -> OpeningSa {
    OpeningSa::new(&parameters(spi), None).unwrap()
}

fn policy() -> Policy {
    let own = OwnAddress { addresses: vec![(OWN.into(), 24)], ..OwnAddress::default() };
    let mut policy = Policy::watch(1, 1500);
    policy.own = Some(own);
    policy
}

fn engine(xfrm: &Xfrm, plan: &Plan) -> Engine {
    let states = xfrm.states();
    let of = |places: &[usize]| places.iter().map(|it| states[*it].spi()).collect::<Vec<u32>>();
    let associations = Associations {
        sealing: of(&plan.sealing).into_iter().map(sealing).collect(),
        opening: of(&plan.opening).into_iter().map(opening).collect(),
        ..Associations::default()
    };
    let policy = policy().with_front_end(plan.peers.clone(), plan.selectors.clone());
    let meter = Meter::new(MeterLimits::default(), 7);
    Engine::new(policy, associations, meter).unwrap()
}
