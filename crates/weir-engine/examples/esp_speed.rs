//! How fast packets are sealed and opened in memory on one core, beside bare aws-lc-rs doing the
//! same bytes in the same interleaved run; and what cutting and gathering add.
//!
//!     cargo run --release -p weir-engine --example esp_speed [-- --json]
//!
//! "ESP" is the whole of it: sequence number, header, padding, trailer, ICV, replay window, outer
//! Ethernet and IPv4 headers. Figures are medians over rounds; Gb/s count inner bytes.

#![allow(clippy::disallowed_methods, reason = "only the engine itself does without these")]

use std::hint::black_box;
use std::time::Instant;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use weir_engine::esp::next_header;
use weir_engine::esp::open::OpeningSa;
use weir_engine::esp::outer::{OuterFields, OuterHeader, OuterLink};
use weir_engine::esp::sa::{SaParameters, Spi};
use weir_engine::esp::seal::{SealingSa, SealingState};
use weir_engine::offload::gather::Gather;
use weir_engine::offload::segment::Cut;
use weir_engine::output::{Destination, Output};
use weir_wire::checksum::{Sum, pseudo_header_v4};
use weir_wire::frame::{Frame, Link, Meta, Offload, PartialChecksum, SegmentKind, Segmentation};
use weir_wire::parse::{MacAddress, parse_frame};

const BATCH: usize = 64;
const ROOM: usize = 128;
const ROUNDS: usize = 400;
const SIZES: [usize; 5] = [64, 512, 1400, 4096, 8900];
const ICV_LEN: usize = 16;

fn main() {
    let json = std::env::args().any(|argument| argument == "--json");
    let mut printer = Printer { json };
    printer.head("one packet at a time, in place");
    for size in SIZES {
        let mut bench = Bench::new(size);
        let [bare, ours, bare_open, ours_open] = bench.run();
        printer.line("seal", size, ours, bare, "");
        printer.line("open", size, ours_open, bare_open, "");
    }
    printer.head("a payload of 65,000 bytes as one TCP super-packet");
    for segment_len in [1348, 8848] {
        let mut bench = SuperBench::new(segment_len);
        let results = bench.run();
        let bare = results[0];
        let notes = ["cut in place, seal_to", "headers aside, seal_pieces", "cut only, no seal"];
        for (result, note) in results[1..4].iter().zip(notes) {
            printer.line("cut_seal", segment_len, *result, bare, note);
        }
        printer.line("open_gather", segment_len, results[5], results[4], "open, parse, gather");
        printer.line("open_only", segment_len, results[6], results[4], "open alone");
    }
}

/// Seconds and inner bytes of one round of `packets` packets.
#[derive(Clone, Copy)]
struct Figure {
    seconds: f64,
    bytes: usize,
    packets: usize,
}

impl Figure {
    fn median(mut seconds: Vec<f64>, bytes: usize, packets: usize) -> Self {
        seconds.sort_by(f64::total_cmp);
        Self { seconds: seconds[seconds.len() / 2], bytes, packets }
    }

    fn gbps(self) -> f64 {
        self.bytes as f64 * 8.0 / self.seconds / 1e9
    }

    fn mpps(self) -> f64 {
        self.packets as f64 / self.seconds / 1e6
    }
}

/// Prints results as a table or as lines of JSON.
struct Printer {
    json: bool,
}

impl Printer {
    fn head(&mut self, text: &str) {
        if !self.json {
            println!("\n{text}");
            println!(
                "{:<12} {:>6} {:>8} {:>8} {:>10} {:>7}",
                "", "bytes", "Mpkt/s", "Gb/s", "bare Gb/s", "share"
            );
        }
    }

    fn line(&mut self, name: &str, size: usize, ours: Figure, bare: Figure, note: &str) {
        let share = ours.gbps() / bare.gbps();
        if self.json {
            let line = serde_json::json!({
                "name": format!("{name}_memory_{size}"),
                "value": ours.gbps(),
                "unit": "Gb/s",
                "peer": "aws-lc-rs",
                "peer_value": bare.gbps(),
                "ratio": share,
                "command": "cargo run --release -p weir-engine --example esp_speed -- --json",
                "note": format!("{:.3} M packets/s, one core; {note}", ours.mpps()),
            });
            println!("{line}");
            return;
        }
        println!(
            "{name:<12} {size:>6} {:>8.3} {:>8.2} {:>10.2} {:>6.1}%  {note}",
            ours.mpps(),
            ours.gbps(),
            bare.gbps(),
            share * 100.0
        );
    }
}

fn parameters() -> SaParameters {
    SaParameters::new(Spi::new(0x1000).unwrap(), &[7; 36]).unwrap()
}

fn sealing() -> SealingSa {
    let parameters = parameters();
    let mut sealing = SealingSa::new(&parameters, None).unwrap();
    let fingerprint = parameters.fingerprint();
    sealing.extend_reservation(&SealingState { fingerprint, reserved_until: 1 << 50 });
    sealing
}

fn outer() -> OuterHeader {
    let link = OuterLink {
        destination: MacAddress([2, 0, 0, 0, 0, 1]),
        source: MacAddress([2, 0, 0, 0, 0, 2]),
        vlan_tci: None,
    };
    let addresses = ["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
    OuterHeader::new(Some(link), addresses[0], addresses[1], 64, None).unwrap()
}

/// Bare AES-256-GCM with the same nonces and authenticated data.
struct Bare {
    key: LessSafeKey,
    number: u64,
}

impl Bare {
    fn new() -> Self {
        Self { key: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &[7; 32]).unwrap()), number: 1 }
    }

    fn nonce(number: u64) -> Nonce {
        let mut nonce = [7; 12];
        nonce[4..].copy_from_slice(&number.to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    }

    fn seal(&mut self, text: &mut [u8], icv: &mut [u8]) {
        let nonce = Self::nonce(self.number);
        self.number += 1;
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from([1; 12]), text).unwrap();
        icv.copy_from_slice(tag.as_ref());
    }

    fn open(&self, number: u64, text: &mut [u8], icv: &[u8]) {
        let nonce = Self::nonce(number);
        self.key.open_in_place_separate_tag(nonce, Aad::from([1; 12]), icv, text).unwrap();
    }
}

fn time<T>(work: impl FnOnce() -> T) -> f64 {
    let start = Instant::now();
    black_box(work());
    start.elapsed().as_secs_f64()
}

struct Bench {
    size: usize,
    buffers: Vec<Vec<u8>>,
    bare: Bare,
    sealing: SealingSa,
    opening: OpeningSa,
    outer: OuterHeader,
}

impl Bench {
    fn new(size: usize) -> Self {
        Self {
            size,
            buffers: vec![vec![0x5a; size + 2 * ROOM]; BATCH],
            bare: Bare::new(),
            sealing: sealing(),
            opening: OpeningSa::new(&parameters(), None).unwrap(),
            outer: outer(),
        }
    }

    fn run(&mut self) -> [Figure; 4] {
        let mut seconds: [Vec<f64>; 4] = Default::default();
        for _ in 0..ROUNDS {
            let [seal, open] = self.bare_round();
            seconds[0].push(seal);
            seconds[2].push(open);
            let [seal, open] = self.our_round();
            seconds[1].push(seal);
            seconds[3].push(open);
        }
        seconds.map(|seconds| Figure::median(seconds, self.size * BATCH, BATCH))
    }

    fn bare_round(&mut self) -> [f64; 2] {
        let first = self.bare.number;
        let (bare, buffers, size) = (&mut self.bare, &mut self.buffers, self.size);
        let seal = time(|| {
            for buffer in buffers.iter_mut() {
                let (text, icv) = buffer[ROOM..ROOM + size + ICV_LEN].split_at_mut(size);
                bare.seal(text, icv);
            }
        });
        let open = time(|| {
            for (number, buffer) in (first..).zip(buffers.iter_mut()) {
                let (text, icv) = buffer[ROOM..ROOM + size + ICV_LEN].split_at_mut(size);
                bare.open(number, text, icv);
            }
        });
        [seal, open]
    }

    fn our_round(&mut self) -> [f64; 2] {
        let (sealing, opening, outer) = (&mut self.sealing, &mut self.opening, &self.outer);
        let mut frames: Vec<Frame<'_>> = self
            .buffers
            .iter_mut()
            .map(|buffer| Frame::new(buffer, ROOM, ROOM + self.size, Meta::default()))
            .collect();
        let seal = time(|| {
            for frame in &mut frames {
                sealing.seal(frame, next_header::IPV4).unwrap();
                outer
                    .prepend(frame, OuterFields { traffic_class: 2, ..OuterFields::default() })
                    .unwrap();
            }
        });
        let open = time(|| {
            for frame in &mut frames {
                frame.trim_front(outer.len());
                opening.open(frame).unwrap();
            }
        });
        [seal, open]
    }
}

/// A super-packet and where its segments go.
struct SuperBench {
    segment_len: usize,
    packet: Vec<u8>,
    template: Vec<u8>,
    arena: Vec<u8>,
    slots: Vec<Vec<u8>>,
    bare: Bare,
    sealing: SealingSa,
    opening: OpeningSa,
    outer: OuterHeader,
    output: Output,
    gather: Gather,
}

const SUPER_PAYLOAD: usize = 65_000;

impl SuperBench {
    fn new(segment_len: usize) -> Self {
        let template = super_packet(SUPER_PAYLOAD);
        Self {
            segment_len,
            packet: vec![0; template.len() + 2 * ROOM],
            template,
            arena: vec![0; 2 * SUPER_PAYLOAD],
            slots: vec![vec![0; segment_len + 4 * ROOM]; BATCH],
            bare: Bare::new(),
            sealing: sealing(),
            opening: OpeningSa::new(&parameters(), None).unwrap(),
            outer: outer(),
            output: Output::new(0),
            gather: Gather::new(),
        }
    }

    /// Bare seal; cut and seal in two ways; cut alone; bare open; open and gather; open alone.
    fn run(&mut self) -> [Figure; 7] {
        let mut seconds: [Vec<f64>; 7] = Default::default();
        for _ in 0..ROUNDS {
            let first = self.bare.number;
            seconds[0].push(self.bare_seal());
            seconds[4].push(self.bare_open(first));
            seconds[1].push(self.cut_in_place());
            seconds[2].push(self.cut_aside());
            seconds[3].push(self.cut_alone());
            self.fill_slots();
            seconds[5].push(self.open(true));
            self.fill_slots();
            seconds[6].push(self.open(false));
        }
        let packets = SUPER_PAYLOAD.div_ceil(self.segment_len);
        seconds.map(|seconds| Figure::median(seconds, SUPER_PAYLOAD, packets))
    }

    /// What a port hands over.
    fn received(&mut self) -> Frame<'_> {
        let end = ROOM + self.template.len();
        self.packet[ROOM..end].copy_from_slice(&self.template);
        let offload = Offload {
            checksum: Some(PartialChecksum { start: 34, field: 50 }),
            segmentation: Some(Segmentation {
                kind: SegmentKind::TcpV4,
                segment_len: self.segment_len as u16,
                header_len: 54,
                ecn: false,
            }),
            ..Offload::default()
        };
        let original_len = self.template.len() as u32;
        let meta = Meta { offload, original_len, ..Meta::default() };
        Frame::new(&mut self.packet, ROOM, end, meta)
    }

    fn bare_seal(&mut self) -> f64 {
        let (bare, segment_len) = (&mut self.bare, self.segment_len);
        let payload = &mut self.packet[ROOM..ROOM + SUPER_PAYLOAD];
        let icvs = &mut self.arena[..];
        time(|| {
            for (text, icv) in payload.chunks_mut(segment_len).zip(icvs.chunks_mut(ICV_LEN)) {
                bare.seal(text, icv);
            }
        })
    }

    fn bare_open(&mut self, first: u64) -> f64 {
        let (bare, segment_len) = (&mut self.bare, self.segment_len);
        let payload = &mut self.packet[ROOM..ROOM + SUPER_PAYLOAD];
        let icvs = &self.arena[..];
        time(|| {
            let pieces = payload.chunks_mut(segment_len).zip(icvs.chunks(ICV_LEN));
            for (number, (text, icv)) in (first..).zip(pieces) {
                bare.open(number, text, icv);
            }
        })
    }

    fn cut_in_place(&mut self) -> f64 {
        let mut arena = std::mem::take(&mut self.arena);
        let (mut sealing, outer) = (self.swap_sealing(), self.outer.clone());
        let mut frame = self.received();
        let seconds = time(|| {
            let parsed = parse_frame(&frame);
            let mut cut = Cut::new(&frame, &parsed).unwrap().unwrap();
            let network = cut.network_offset();
            let mut used = 0;
            while let Some(range) = cut.next_in_place(frame.bytes_mut()) {
                let inner = &frame.bytes()[range.start + network..range.end];
                let out = &mut arena[used..];
                let len = sealing.seal_to(inner, next_header::IPV4, &mut out[outer.len()..]);
                let len = outer.len() + len.unwrap();
                outer.write(&mut out[..len], OuterFields::default()).unwrap();
                used += len;
            }
        });
        self.arena = arena;
        self.sealing = sealing;
        seconds
    }

    fn cut_aside(&mut self) -> f64 {
        let mut arena = std::mem::take(&mut self.arena);
        let (mut sealing, outer) = (self.swap_sealing(), self.outer.clone());
        let frame = self.received();
        let seconds = time(|| {
            let parsed = parse_frame(&frame);
            let cut = Cut::new(&frame, &parsed).unwrap().unwrap();
            let network = cut.network_offset();
            let mut headers = [0; 256];
            let mut used = 0;
            for index in 0..cut.count() {
                let payload = &frame.bytes()[cut.payload(index)];
                let headers = &mut headers[..cut.header_len()];
                cut.write_headers(index, payload, headers);
                let out = &mut arena[used..];
                let pieces = [&headers[network..], payload];
                let len = sealing.seal_pieces(&pieces, next_header::IPV4, &mut out[outer.len()..]);
                let len = outer.len() + len.unwrap();
                outer.write(&mut out[..len], OuterFields::default()).unwrap();
                used += len;
            }
        });
        self.arena = arena;
        self.sealing = sealing;
        seconds
    }

    fn cut_alone(&mut self) -> f64 {
        let mut frame = self.received();
        time(|| {
            let parsed = parse_frame(&frame);
            let mut cut = Cut::new(&frame, &parsed).unwrap().unwrap();
            while let Some(range) = cut.next_in_place(frame.bytes_mut()) {
                black_box(&frame.bytes()[range]);
            }
        })
    }

    fn swap_sealing(&mut self) -> SealingSa {
        std::mem::replace(&mut self.sealing, sealing())
    }

    /// Sealed segments, one a slot, as they come from the wire.
    fn fill_slots(&mut self) {
        let mut slots = std::mem::take(&mut self.slots);
        let mut sealing = self.swap_sealing();
        let mut frame = self.received();
        let parsed = parse_frame(&frame);
        let mut cut = Cut::new(&frame, &parsed).unwrap().unwrap();
        let network = cut.network_offset();
        for slot in &mut slots {
            let Some(range) = cut.next_in_place(frame.bytes_mut()) else { break };
            let inner = &frame.bytes()[range.start + network..range.end];
            sealing.seal_to(inner, next_header::IPV4, &mut slot[ROOM..]).unwrap();
        }
        self.slots = slots;
        self.sealing = sealing;
    }

    fn open(&mut self, gather: bool) -> f64 {
        let count = SUPER_PAYLOAD.div_ceil(self.segment_len);
        let last = SUPER_PAYLOAD - (count - 1) * self.segment_len;
        let meta = Meta { link: Link::Ip, ..Meta::default() };
        let mut frames: Vec<Frame<'_>> = self.slots[..count]
            .iter_mut()
            .enumerate()
            .map(|(index, slot)| {
                let payload = if index + 1 == count { last } else { self.segment_len };
                let end = ROOM + weir_engine::esp::esp_len(40 + payload);
                Frame::new(slot, ROOM, end, meta)
            })
            .collect();
        self.output.clear();
        let (opening, output, gatherer) = (&mut self.opening, &mut self.output, &mut self.gather);
        let seconds = time(|| {
            for index in 0..count {
                let frame = &mut frames[index];
                opening.open(frame).unwrap();
                if gather {
                    frame.meta.original_len = frame.len() as u32;
                    let parsed = parse_frame(frame);
                    gatherer.push(&frames, index as u32, &parsed, Destination::Host, output);
                }
            }
            gatherer.finish(&mut frames, output);
        });
        assert!(!gather || output.packets.len() == 1, "all segments became one super-packet");
        seconds
    }
}

/// Ethernet, IPv4, TCP and `payload_len` bytes.
fn super_packet(payload_len: usize) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let mut ipv4 = vec![0x45, 0, 0, 0, 7, 7, 0x40, 0, 64, 6, 0, 0, 10, 1, 0, 1, 10, 1, 0, 2];
    ipv4[2..4].copy_from_slice(&(40 + payload_len as u16).to_be_bytes());
    let sum = Sum::new().with(&ipv4).checksum();
    ipv4[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(ipv4);
    let mut tcp = vec![0x12, 0x34, 0x14, 0x51, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 4, 0];
    let pseudo = pseudo_header_v4([10, 1, 0, 1], [10, 1, 0, 2], 6, 20 + payload_len as u16);
    tcp.extend(pseudo.folded().to_be_bytes());
    tcp.extend([0, 0]);
    packet.extend(tcp);
    packet.extend((0..payload_len).map(|index| (index * 31 + index / 251) as u8));
    packet
}
