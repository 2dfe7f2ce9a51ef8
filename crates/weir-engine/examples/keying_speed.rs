//! What keying costs one core: handshakes a second, memory a peer, and what ten thousand idle peers
//! cost the packets of one that is not idle. The same of standard clients, which speak WireGuard,
//! and what it costs that packets come from sixteen of them and not from one.
//!
//! Prints a JSON line a figure: `cargo run --release -p weir-engine --example keying_speed`, all or
//! those named behind `--`.

#![allow(clippy::disallowed_methods, reason = "only the engine itself does without these")]

use std::net::IpAddr;
use std::time::Instant;

use weir_engine::esp::open::OpeningSa;
use weir_engine::esp::sa::{SaParameters, Spi};
use weir_engine::esp::seal::SealingSa;
use weir_engine::meter::{Meter, MeterLimits};
use weir_engine::pipeline::{Agreed, Associations, Engine};
use weir_engine::policy::{Encapsulation, FrameActions, Mode, OwnAddress, Peer, Policy, Prefix};
use weir_engine::tunnel::PeerSettings;
use weir_engine::tunnel::handshake::{Role, Terms};
use weir_engine::tunnel::key::{Entropy, Identity, PresharedKey, PublicKey};
use weir_engine::tunnel::path::{Path, Remote};
use weir_engine::tunnel::rekey::Limits;
use weir_engine::tunnel::state::{Effect, Install, Now, Tunnel};
use weir_engine::verdict::Side;
use weir_wire::frame::{Frame, Link, Meta, Offload, Time};
use weir_wire::parse::MacAddress;

const PEERS: usize = 10_000;
const PORT: u16 = 51840;
const BATCH: usize = 64;
const SIZE: usize = 1400;
const ROUNDS: usize = 61;
const SECOND: u64 = 1_000_000_000;
/// Of both ends of the tunnels of standard clients.
const GATEWAY_V4: [u8; 4] = [192, 0, 2, 1];
const GATEWAY_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let names: Vec<&String> = arguments.iter().filter(|it| !it.starts_with("--")).collect();
    let asked = |name: &str| names.is_empty() || names.iter().any(|it| name.starts_with(*it));
    let peers = if quick { PEERS / 20 } else { PEERS };
    if asked("handshakes_per_core") || asked("peers_bytes_each") {
        handshakes_and_memory(peers, Mode::Tunnel);
    }
    if asked("vpn_peer_bytes_each") {
        handshakes_and_memory(peers, Mode::WireGuard);
    }
    if asked("vpn_16_tunnels_share") {
        tunnels_share(if quick { 3 } else { ROUNDS });
    }
    if asked("idle_peers_slowdown") {
        idle_peers(peers, if quick { 3 } else { ROUNDS });
    }
}

struct Seeded(u64);

impl Entropy for Seeded {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            *byte = (mixed ^ mixed >> 31) as u8;
        }
    }
}

fn identity(number: usize) -> Identity {
    Identity::new(Seeded(number as u64 + 1).seed()).expect("any 32 bytes are a secret")
}

fn address(index: usize) -> IpAddr {
    let [_, b, c, d] = (index as u32 + 1).to_be_bytes();
    IpAddr::from([10, b, c, d])
}

fn settings(public_key: PublicKey, index: usize, calls: bool, mode: Mode) -> PeerSettings {
    PeerSettings {
        public_key,
        preshared: PresharedKey::none(),
        path: calls.then(|| Path::to(address(index), PORT)),
        terms: Terms { mode, encapsulation: Encapsulation::Esp, ml_kem: false, workers: 1 },
        replay_window: 1024,
        path_mtu_max: 0,
    }
}

fn tunnel(identity: &Identity, peers: Vec<PeerSettings>, seed: u64) -> Tunnel {
    let limits = Limits::default();
    let mut tunnel = Tunnel::new(identity.clone(), limits, Box::new(Seeded(seed)));
    tunnel.configure(Now::default(), limits, peers, &mut Vec::new());
    tunnel
}

fn agreed(install: Install) -> Agreed {
    let sealing = SealingSa::new(&install.seal, None).expect("agreed keys are keys");
    let opening = OpeningSa::new(&install.open, None).expect("agreed keys are keys");
    Agreed {
        peer: install.peer,
        role: install.role,
        path: install.path,
        sealing,
        opening,
        tags: install.tags,
    }
}

fn datagram(effects: Vec<Effect>, engine: Option<&mut Engine>) -> Vec<u8> {
    let (mut found, mut engine) = (None, engine);
    for effect in effects {
        match (effect, &mut engine) {
            (Effect::Send { datagram, .. }, _) => found = Some(datagram),
            (Effect::Install(install), Some(engine)) => drop(engine.install(agreed(*install))),
            (Effect::Install(install), None) => drop(agreed(*install)),
            (Effect::Forget { peer, open_spi }, Some(engine)) => engine.forget(&peer, open_spi),
            _ => {}
        }
    }
    found.unwrap_or_default()
}

fn resident_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"));
    let kib = line.and_then(|it| it.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) * 1024.0
}

/// A hub answers each of its peers twice: a first handshake, and one that renews the keys.
fn handshakes_and_memory(count: usize, mode: Mode) {
    let hub_identity = identity(usize::MAX / 2);
    let spokes: Vec<Identity> = (0..count).map(identity).collect();
    let before = resident_bytes();
    let settings_of = |index: usize| settings(spokes[index].public(), index, false, mode);
    let mut hub = tunnel(&hub_identity, (0..count).map(settings_of).collect(), 1);
    let keys: Vec<PublicKey> = spokes.iter().map(Identity::public).collect();
    let mut engine = engine(&keys, mode);
    let (mut responder_ns, mut both_ns) = (0, 0);
    for round in 0..2_u64 {
        for (index, spoke) in spokes.iter().enumerate() {
            // Slow enough that nobody is asked for a cookie.
            let elapsed_ns = (round * count as u64 + index as u64 + 1) * 4_000_000;
            let now = Now { elapsed_ns, unix_ns: 1_700_000_000 * SECOND + elapsed_ns };
            let path = Path::to(address(index), PORT);
            let to_hub = vec![settings(hub_identity.public(), count, true, mode)];
            let mut caller = tunnel(spoke, to_hub, elapsed_ns);
            let start = Instant::now();
            let mut effects = Vec::new();
            caller.tick(now, &mut effects);
            let initiation = datagram(effects, None);
            let answering = Instant::now();
            let mut effects = Vec::new();
            hub.handle(now, &path, &initiation, &mut effects);
            let response = datagram(effects, Some(&mut engine));
            responder_ns += answering.elapsed().as_nanos();
            let mut effects = Vec::new();
            caller.handle(now, &path, &response, &mut effects);
            drop(datagram(effects, None));
            both_ns += start.elapsed().as_nanos();
        }
    }
    let made = hub.counters().handshakes as f64;
    assert_eq!(made as usize, 2 * count, "{:?}", hub.counters());
    if mode == Mode::WireGuard {
        let each = (resident_bytes() - before) / count as f64;
        print(
            "vpn_peer_bytes_each",
            each,
            "bytes",
            &format!(
                "resident, of {count} standard clients after a rekey each: state machine, policy \
                 and engine; want at most 8192"
            ),
        );
        return;
    }
    let (responder, both) = (made * 1e9 / responder_ns as f64, made * 1e9 / both_ns as f64);
    print(
        "handshakes_per_core",
        responder,
        "/s",
        &format!(
            "whole handshakes of the responder's side, associations built and put in place; \
             {both:.0}/s for both sides together; X25519, no ML-KEM"
        ),
    );
    let each = (resident_bytes() - before) / count as f64;
    print(
        "peers_bytes_each",
        each,
        "bytes",
        &format!(
            "resident, of {count} peers after a rekey each: state machine, policy and engine with \
             two opening associations and one that seals or waits; want at most 16384"
        ),
    );
}

fn engine(peers: &[PublicKey], mode: Mode) -> Engine {
    let mut policy = Policy::watch(1, 9000);
    policy.frames = FrameActions::sealing();
    policy.keying_port = Some(PORT);
    policy.own = (mode == Mode::WireGuard).then(|| OwnAddress {
        mac: MacAddress(GATEWAY_MAC),
        addresses: vec![(IpAddr::from(GATEWAY_V4), 8)],
        next_hop: None,
        daemon_ports: Vec::new(),
        vlan: None,
    });
    let peers = peers.iter().enumerate().map(|(index, key)| Peer {
        name: format!("peer-{index}"),
        mode,
        encapsulation: Encapsulation::Esp,
        sealing: weir_engine::policy::Sealing::Require,
        endpoint: None,
        protects: vec![Prefix::new(address(index), 32)],
        everything: false,
        seal_spi: None,
        open_spis: Vec::new(),
        agreed: Some(*key),
        kernel: None,
        rate_limit: None,
        reaches: Vec::new(),
    });
    let meter = Meter::new(MeterLimits::default(), 7);
    Engine::new(policy.with_peers(peers.collect()), Associations::default(), meter)
        .expect("peers with agreed keys need no association")
}

/// An engine whose peers all have keys; those of the last one are the other engine's.
fn keyed_engine(count: usize, seals_first: bool, mode: Mode) -> Engine {
    let keys: Vec<PublicKey> = (0..count)
        .map(|index| {
            PublicKey(
                [index as u8, (index >> 8) as u8, 1, 2].repeat(8).try_into().expect("32 bytes"),
            )
        })
        .collect();
    let mut engine = engine(&keys, mode);
    for (index, peer) in keys.into_iter().enumerate() {
        let spi = |first: bool| {
            let number = (index as u32 + 1).wrapping_mul(0x9e37_79b1) & !1 | u32::from(first);
            Spi::new(number.max(256)).expect("not reserved")
        };
        let parameters = |first: bool| {
            let mut material = [u8::from(first); 36];
            material[..4].copy_from_slice(&(index as u32).to_be_bytes());
            if mode == Mode::WireGuard {
                let key = material.first_chunk().expect("36 bytes are more than 32");
                return SaParameters::wireguard(spi(first), key);
            }
            SaParameters::new(spi(first), &material).expect("36 bytes")
        };
        let sealing = SealingSa::new(&parameters(seals_first), None).expect("a key");
        let opening = OpeningSa::new(&parameters(!seals_first), None).expect("a key");
        let path = match mode {
            // Both gateways have one address here, and so each is the other's peer.
            Mode::WireGuard => Path {
                remote: Remote { address: IpAddr::from(GATEWAY_V4), port: PORT },
                borrowed: None,
                link: GATEWAY_MAC.into_iter().chain(GATEWAY_MAC).chain([8, 0]).collect(),
            },
            _ => Path::to(address(index), PORT),
        };
        let role = Role::Initiator;
        engine.install(Agreed { peer, role, path, sealing, opening, tags: None });
    }
    engine
}

/// Seals and opens packets of these peers, those of each in a row; nanoseconds a packet.
fn traffic(engines: &mut [Engine; 2], to: &[usize], batches: usize) -> f64 {
    let mut buffers: Vec<Vec<u8>> = (0..BATCH).map(|_| vec![0; 192 + SIZE + 64]).collect();
    let headers: Vec<_> = to.iter().map(|it| headers(*it)).collect();
    let [a, b] = engines;
    let mut spent_ns = 0;
    for round in 0..batches {
        for (index, buffer) in buffers.iter_mut().enumerate() {
            let headers = &headers[index * headers.len() / BATCH];
            buffer[192..192 + headers.len()].copy_from_slice(headers);
        }
        let meta = Meta {
            time: Time(SECOND + round as u64),
            original_len: SIZE as u32,
            link: Link::Ethernet,
            offload: Offload::default(),
        };
        let mut frames: Vec<Frame<'_>> =
            buffers.iter_mut().map(|it| Frame::new(it, 192, 192 + SIZE, meta)).collect();
        let start = Instant::now();
        a.process(meta.time, Side::Host, &mut frames);
        spent_ns += start.elapsed().as_nanos();
        assert_eq!(a.output().packets.len(), BATCH);
        for frame in &mut frames {
            frame.meta.original_len = frame.len() as u32;
        }
        let start = Instant::now();
        b.process(meta.time, Side::Wire, &mut frames);
        spent_ns += start.elapsed().as_nanos();
        assert_eq!(b.counters().wire.dropped_total(), 0);
    }
    spent_ns as f64 / (batches * BATCH) as f64
}

fn headers(to: usize) -> [u8; 42] {
    let mut bytes = [0; 42];
    bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa, 8, 0]);
    bytes[14..24].copy_from_slice(&[0x45, 2, 0, 0, 0, 0, 0x40, 0, 64, 17]);
    bytes[16..18].copy_from_slice(&((SIZE - 14) as u16).to_be_bytes());
    // Both ends lie behind the peer: each engine looks for the far one.
    let [_, b, c, d] = (to as u32 + 1).to_be_bytes();
    bytes[26..34].copy_from_slice(&[10, b, c, d, 10, b, c, d]);
    let sum = weir_wire::checksum::ipv4_header(&bytes[14..34]);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    bytes[34..38].copy_from_slice(&[0xc0, 0, 0x13, 0x88]);
    bytes[38..40].copy_from_slice(&((SIZE - 34) as u16).to_be_bytes());
    bytes
}

fn idle_peers(count: usize, rounds: usize) {
    let both = |count| [true, false].map(|it| keyed_engine(count, it, Mode::Tunnel));
    let (mut alone, mut crowded) = (both(1), both(count));
    let batches = 60;
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let one = traffic(&mut alone, &[0], batches);
        let many = traffic(&mut crowded, &[count - 1], batches);
        ratios.push((many / one - 1.0) * 100.0);
    }
    ratios.sort_by(f64::total_cmp);
    let at = |share: f64| ratios[((ratios.len() - 1) as f64 * share) as usize];
    print(
        "idle_peers_slowdown",
        at(0.5),
        "%",
        &format!(
            "seal and open {SIZE} bytes for one peer beside {} idle ones, against that peer alone; \
             quartiles {:.1} to {:.1} of {rounds} pairs in turn; want at most 5",
            count - 1,
            at(0.25),
            at(0.75),
        ),
    );
}

/// What sixteen clients get through one core together, as a share of what one gets through.
fn tunnels_share(rounds: usize) {
    const TUNNELS: usize = 16;
    let both = |count| {
        let mut engines = [true, false].map(|it| keyed_engine(count, it, Mode::WireGuard));
        // The hosts that packets are for have spoken.
        for index in 0..count {
            let mut bytes = vec![0; 192 + SIZE + 64];
            bytes[192..192 + 42].copy_from_slice(&headers(index));
            let meta = Meta {
                time: Time(1),
                original_len: SIZE as u32,
                link: Link::Ethernet,
                offload: Offload::default(),
            };
            let mut frames = [Frame::new(&mut bytes, 192, 192 + SIZE, meta)];
            engines[1].process(Time(1), Side::Host, &mut frames);
        }
        engines
    };
    let (mut one, mut many) = (both(1), both(TUNNELS));
    let all: Vec<usize> = (0..TUNNELS).collect();
    let (mut shares, mut costs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let alone = traffic(&mut one, &[0], 60);
        let together = traffic(&mut many, &all, 60);
        shares.push(alone / together);
        costs.push((alone, together));
    }
    shares.sort_by(f64::total_cmp);
    costs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let at = |share: f64| shares[((shares.len() - 1) as f64 * share) as usize];
    let (alone, together) = costs[costs.len() / 2];
    print(
        "vpn_16_tunnels_share",
        at(0.5),
        "share",
        &format!(
            "packets of {SIZE} bytes a second of 16 clients together, 4 in a row of each, against \
             one client; sealed at one end and opened at the other, one core; {together:.0} ns \
             against {alone:.0}; quartiles {:.2} to {:.2} of {rounds} pairs in turn; want \
             at least 0.9",
            at(0.25),
            at(0.75),
        ),
    );
}

fn print(name: &str, value: f64, unit: &str, note: &str) {
    println!(
        "{{\"name\":\"{name}\",\"value\":{value:.3},\"unit\":\"{unit}\",\"peer\":\"\",\
         \"peer_value\":null,\"ratio\":null,\"command\":\"make bench ONLY={name}\",\
         \"note\":\"{note}\"}}"
    );
}
