//! Sealing and opening in memory, one core, through the whole pipeline: parse, meter, route, seal,
//! outer headers; and back. Beside it the bare cipher library on the same buffers in the same run.
//!
//! Prints a JSON line a figure: `cargo run --release -p weir-engine --example gateway_speed`, of
//! all sizes or of those named behind `--`.

#![allow(clippy::disallowed_methods, reason = "only the engine itself does without these")]

use std::net::IpAddr;
use std::time::Instant;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use weir_engine::esp::aead::Provider;
use weir_engine::esp::open::OpeningSa;
use weir_engine::esp::sa::{SaParameters, Spi};
use weir_engine::esp::seal::SealingSa;
use weir_engine::meter::{Meter, MeterLimits};
use weir_engine::pipeline::{Associations, Engine};
use weir_engine::policy::{
    Encapsulation, FrameActions, Mode, OwnAddress, Peer, Policy, Prefix, Sealing,
};
use weir_engine::verdict::Side;
use weir_wire::frame::{Frame, Link, Meta, Offload, Time};
use weir_wire::parse::MacAddress;

const SIZES: [usize; 5] = [64, 512, 1400, 4096, 8900];
const BATCH: usize = 64;
/// Interleaved with as many of the bare cipher; the ratio is the median of the pairs' ratios.
const ROUNDS: usize = 61;
/// Bytes that all rounds of one size seal together, about.
const BYTES: usize = 1_600_000_000;
const HEADROOM: usize = 192;
const TAILROOM: usize = 64;
const INNER_HEADERS: usize = 42;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let asked = |size: &usize| {
        let sizes: Vec<usize> = arguments.iter().filter_map(|it| it.parse().ok()).collect();
        sizes.is_empty() || sizes.contains(size)
    };
    let (bytes, rounds) = if quick { (BYTES / 100, 1) } else { (BYTES, ROUNDS) };
    for size in SIZES.into_iter().filter(asked) {
        let batches = bytes / (size + 400) / BATCH / rounds + 1;
        let chosen = Provider::of_this_machine();
        let other = match chosen {
            Provider::AwsLc => Provider::Ring,
            Provider::Ring => Provider::AwsLc,
        };
        let mut of_each = [chosen, other].map(|provider| {
            let (mut a, mut b) = (engine(1, 2, provider), engine(2, 1, provider));
            find_each_other(&mut a, &mut b);
            (provider, a, b, [Vec::new(), Vec::new()])
        });
        let mut bare_ns = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            let (sealed, opened) = bare(size, batches);
            bare_ns[0].push(sealed);
            bare_ns[1].push(opened);
            for (_, a, b, [seal, open]) in &mut of_each {
                let (sealed, opened) = pipeline(a, b, size, batches);
                seal.push(sealed);
                open.push(opened);
            }
        }
        for (provider, _, _, ours) in &of_each {
            // What this machine runs has the figure's plain name.
            let suffix =
                if *provider == chosen { String::new() } else { format!("_{}", provider.name()) };
            for (what, (ours, bare)) in ["seal", "open"].iter().zip(ours.iter().zip(&bare_ns)) {
                print(what, size, (&suffix, provider.name()), ours, bare);
            }
        }
    }
}

/// `ours` and `bare`: nanoseconds a packet, round by round.
fn print(what: &str, size: usize, (suffix, by): (&str, &str), ours: &[f64], bare: &[f64]) {
    let (ns, bare_ns) = (median(ours.to_vec()), median(bare.to_vec()));
    let ratio = median(bare.iter().zip(ours).map(|(bare, ours)| bare / ours).collect());
    let gbps = size as f64 * 8.0 / ns;
    println!(
        "{{\"name\":\"{what}_memory_{size}{suffix}\",\"value\":{gbps:.2},\"unit\":\"Gb/s\",\
         \"peer\":\"bare aws-lc-rs AES-256-GCM\",\"peer_value\":{:.2},\"ratio\":{ratio:.3},\
         \"command\":\"make bench ONLY={what}_memory_{size}\",\"note\":\"{:.2} Mpps, \
         {ns:.0} ns a packet, one core, whole pipeline in Ethernet mode, by {by}\"}}",
        size as f64 * 8.0 / bare_ns,
        1000.0 / ns,
    );
}

/// Nanoseconds a packet, sealing and opening.
fn pipeline(a: &mut Engine, b: &mut Engine, size: usize, batches: usize) -> (f64, f64) {
    let mut buffers: Vec<Vec<u8>> =
        (0..BATCH).map(|_| vec![0; HEADROOM + size + TAILROOM]).collect();
    let (mut seal_ns, mut open_ns) = (Vec::new(), Vec::new());
    let headers = headers(size);
    for round in 0..batches {
        for buffer in &mut buffers {
            buffer[HEADROOM..HEADROOM + INNER_HEADERS].copy_from_slice(&headers);
        }
        let meta = Meta {
            time: Time(1_000_000_000 + round as u64),
            original_len: size as u32,
            link: Link::Ethernet,
            offload: Offload::default(),
        };
        let mut frames: Vec<Frame<'_>> = buffers
            .iter_mut()
            .map(|buffer| Frame::new(buffer, HEADROOM, HEADROOM + size, meta))
            .collect();
        let start = Instant::now();
        a.process(meta.time, Side::Host, &mut frames);
        seal_ns.push(each_ns(start));
        assert_eq!(a.output().packets.len(), BATCH);
        for frame in &mut frames {
            frame.meta.original_len = frame.len() as u32;
        }
        let start = Instant::now();
        b.process(meta.time, Side::Wire, &mut frames);
        open_ns.push(each_ns(start));
        assert_eq!(b.output().packets.len(), BATCH);
    }
    (median(seal_ns), median(open_ns))
}

/// Nanoseconds a packet of the batch that began at `start`. Of many batches the median is taken:
/// those in which the machine ran something else are few, and tell of that.
fn each_ns(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64 / BATCH as f64
}

fn bare(size: usize, batches: usize) -> (f64, f64) {
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &[7; 32]).unwrap());
    let mut buffers: Vec<Vec<u8>> = (0..BATCH).map(|_| vec![0; size]).collect();
    let mut tags = Vec::with_capacity(BATCH);
    let (mut seal_ns, mut open_ns) = (Vec::new(), Vec::new());
    for round in 0..batches {
        let nonce = |index: usize| {
            let mut nonce = [0; 12];
            nonce[..8].copy_from_slice(&((round * BATCH + index) as u64).to_be_bytes());
            Nonce::assume_unique_for_key(nonce)
        };
        tags.clear();
        let start = Instant::now();
        for (index, buffer) in buffers.iter_mut().enumerate() {
            let tag = key.seal_in_place_separate_tag(nonce(index), Aad::from([0; 12]), buffer);
            tags.push(tag.unwrap());
        }
        seal_ns.push(each_ns(start));
        let mut sealed: Vec<Vec<u8>> = buffers
            .iter()
            .zip(&tags)
            .map(|(buffer, tag)| [buffer, tag.as_ref()].concat())
            .collect();
        let start = Instant::now();
        for (index, buffer) in sealed.iter_mut().enumerate() {
            key.open_in_place(nonce(index), Aad::from([0; 12]), buffer).unwrap();
        }
        open_ns.push(each_ns(start));
    }
    (median(seal_ns), median(open_ns))
}

fn headers(size: usize) -> [u8; INNER_HEADERS] {
    let mut bytes = [0; INNER_HEADERS];
    bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa, 8, 0]);
    bytes[14..24].copy_from_slice(&[0x45, 2, 0, 0, 0, 0, 0x40, 0, 64, 17]);
    bytes[16..18].copy_from_slice(&((size - 14) as u16).to_be_bytes());
    bytes[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = weir_wire::checksum::ipv4_header(&bytes[14..34]);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    bytes[34..38].copy_from_slice(&[0xc0, 0, 0x13, 0x88]);
    bytes[38..40].copy_from_slice(&((size - 34) as u16).to_be_bytes());
    bytes
}

fn engine(here: u8, there: u8, provider: Provider) -> Engine {
    let address = |last: u8| IpAddr::from([192, 0, 2, last]);
    let mut policy = Policy::watch(1, 9216);
    policy.frames = FrameActions::sealing();
    policy.own = Some(OwnAddress {
        mac: MacAddress([2, 0, 0, 0, 1, here]),
        addresses: vec![(address(here), 24)],
        ..OwnAddress::default()
    });
    let spi = |from: u8| 0x1000 + u32::from(from);
    let policy = policy.with_peers(vec![Peer {
        name: "peer".into(),
        mode: Mode::Ethernet,
        encapsulation: Encapsulation::Esp,
        sealing: Sealing::Require,
        endpoint: Some(address(there)),
        protects: vec![Prefix::ALL],
        everything: true,
        seal_spi: Some(spi(here)),
        open_spis: vec![spi(there)],
        agreed: None,
        kernel: None,
        rate_limit: None,
        reaches: Vec::new(),
    }]);
    let parameters = |from| {
        let material: Vec<u8> = (0..36).map(|byte| byte ^ from).collect();
        SaParameters::new(Spi::new(spi(from)).unwrap(), &material).unwrap()
    };
    let mut sealing = SealingSa::by(provider, &parameters(here), None).unwrap();
    let mut reservation = sealing.reservation_needed().unwrap();
    reservation.reserved_until = 1 << 40;
    sealing.extend_reservation(&reservation);
    let opening = OpeningSa::by(provider, &parameters(there), None).unwrap();
    let associations =
        Associations { sealing: vec![sealing], opening: vec![opening], ..Associations::default() };
    Engine::new(policy, associations, Meter::new(MeterLimits::default(), 7)).unwrap()
}

/// Each engine takes the other's question as its answer.
fn find_each_other(a: &mut Engine, b: &mut Engine) {
    let (for_b, for_a) = (question(a), question(b));
    hear(a, for_a);
    hear(b, for_b);
}

const START: Time = Time(1_000_000_000);

fn question(engine: &mut Engine) -> Vec<u8> {
    let output = engine.tick(START);
    output.parts.iter().flat_map(|part| output.resolve(part, &[]).to_vec()).collect()
}

fn hear(engine: &mut Engine, mut question: Vec<u8>) {
    let len = question.len();
    let meta = Meta { original_len: len as u32, ..Meta::default() };
    engine.process(START, Side::Wire, &mut [Frame::new(&mut question, 0, len, meta)]);
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
