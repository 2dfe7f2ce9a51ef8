//! Which cipher code this processor runs, and how fast one core is with it.

use std::hint::black_box;
use std::time::Duration;

use weir_engine::esp::aead::Provider;
use weir_engine::esp::icrc_tag::{EPOCH_S_DEFAULT, IcrcTag, MASTER_KEY_LEN, TagKey};
use weir_engine::esp::sa::{SaParameters, Spi};
use weir_engine::esp::seal::{SealingSa, SealingState};
use weir_engine::esp::{esp_len, next_header};
use weir_engine::policy::KeyedBy;
use weir_store::clock;
use weir_wire::frame::{Link, Time};
use weir_wire::icrc::{self, IcrcStatus};
use weir_wire::parse::{Parsed, parse};
use zeroize::Zeroizing;

use super::{Finding, Grade};

const AREA: &str = "speed";

/// How long one figure is measured.
const MEASURED_FOR: Duration = Duration::from_millis(250);

/// Looks at the processor and measures.
pub fn examine() -> Vec<Finding> {
    let (code, fast) = cipher_code();
    let code = format!("{code}, by {}", Provider::of_this_machine().name());
    let mut findings = vec![if fast {
        Finding::good(AREA, "AES-GCM code", code)
    } else {
        Finding::change(
            AREA,
            "AES-GCM code",
            code,
            Grade::Advice,
            "a processor with AES instructions (in a virtual machine: pass the CPU model through)",
        )
    }];
    for (cipher, key_bytes) in [("aes-256-gcm", 32), ("aes-128-gcm", 16)] {
        for packet_bytes in [1400, 8900] {
            let name = format!("seal {packet_bytes} bytes, {cipher}");
            findings.push(figure(&name, seal_gbps(key_bytes, packet_bytes)));
        }
    }
    findings.push(figure("check ICRC, 4096 bytes", icrc_gbps()));
    findings.push(figure("tag in the ICRC's place, 4096 bytes", tag_gbps()));
    findings
}

fn figure(name: &str, gbps: Option<f64>) -> Finding {
    match gbps {
        Some(gbps) => Finding::good(AREA, name, format!("{gbps:.1} Gb/s a core")),
        None => {
            let change = "do not use this machine: it computes wrongly";
            Finding::change(AREA, name, "fails", Grade::Problem, change)
        }
    }
}

/// What the cipher library chooses by the processor's features, and whether that is hardware.
#[cfg(target_arch = "x86_64")]
fn cipher_code() -> (String, bool) {
    use std::arch::is_x86_feature_detected as has;
    let wide = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
    let vector = has!("vaes") && has!("vpclmulqdq");
    if vector && wide {
        ("VAES with AVX-512".to_owned(), true)
    } else if has!("aes") && has!("pclmulqdq") && has!("avx") && has!("movbe") {
        let code = if vector && has!("avx2") { "VAES with AVX2" } else { "AES-NI with AVX" };
        (code.to_owned(), true)
    } else if has!("aes") && has!("pclmulqdq") {
        ("AES-NI".to_owned(), true)
    } else {
        ("software: no AES instructions".to_owned(), false)
    }
}

/// What AWS-LC chooses by the processor's features, and whether that is hardware.
#[cfg(target_arch = "aarch64")]
fn cipher_code() -> (String, bool) {
    use std::arch::is_aarch64_feature_detected as has;
    if has!("aes") && has!("pmull") && has!("sha3") {
        ("ARMv8 cryptography extension, with EOR3".to_owned(), true)
    } else if has!("aes") && has!("pmull") {
        ("ARMv8 cryptography extension".to_owned(), true)
    } else {
        ("software: no AES instructions".to_owned(), false)
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn cipher_code() -> (String, bool) {
    ("unknown for this processor".to_owned(), false)
}

/// Sealing as the gateway does it, from cached memory.
fn seal_gbps(key_bytes: usize, packet_bytes: usize) -> Option<f64> {
    // The key is made up and seals nothing that leaves this function.
    let material: Vec<u8> = (0..key_bytes as u8 + 4).collect();
    let parameters = SaParameters::new(Spi::new(256).ok()?, &material).ok()?;
    let mut sa = SealingSa::new(&parameters, None).ok()?;
    let everything =
        SealingState { fingerprint: parameters.fingerprint(), reserved_until: u64::MAX };
    sa.extend_reservation(&everything);
    let packet = vec![7; packet_bytes];
    let mut sealed = vec![0; esp_len(packet_bytes)];
    gbps(packet_bytes, || {
        let done = sa.seal_to(black_box(&packet), next_header::IPV4, &mut sealed);
        black_box(done).is_ok()
    })
}

/// Checking the ICRC of a RoCE v2 packet that fills path MTU 4096; `None` when it is wrong.
fn icrc_gbps() -> Option<f64> {
    let (packet, parsed) = roce_packet_with_icrc();
    gbps(packet.len(), || icrc::check(black_box(&packet), &parsed) == IcrcStatus::Valid)
}

/// Putting a tag in the place of its ICRC and the ICRC back, half the time each.
fn tag_gbps() -> Option<f64> {
    let (mut packet, parsed) = roce_packet_with_icrc();
    let key = TagKey::new(Zeroizing::new([7; MASTER_KEY_LEN]));
    let mut tag = IcrcTag::shared(&key, None, KeyedBy::QueuePair, EPOCH_S_DEFAULT).ok()?;
    let now = Time::default();
    gbps(2 * packet.len(), || {
        let packet = black_box(&mut packet);
        tag.tag(now, packet, &parsed).is_ok() && tag.restore(now, packet, &parsed).is_ok()
    })
}

fn roce_packet_with_icrc() -> (Vec<u8>, Parsed) {
    let mut packet = roce_v2_packet(4096);
    let parsed = parse(&packet, Link::Ethernet, packet.len() as u32);
    icrc::write(&mut packet, &parsed);
    (packet, parsed)
}

/// Ethernet, IPv4, UDP to port 4791, BTH of RC SEND Only, payload, room for the ICRC.
fn roce_v2_packet(payload_bytes: u16) -> Vec<u8> {
    let udp_bytes = 8 + 12 + payload_bytes + 4;
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00, 0x45, 0];
    packet.extend((20 + udp_bytes).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    packet.extend([0xc0, 0, 0x12, 0xb7]);
    packet.extend(udp_bytes.to_be_bytes());
    packet.extend([0, 0, 4, 0, 0xff, 0xff, 0, 0, 0, 17, 0, 0, 0, 1]);
    packet.resize(14 + 20 + usize::from(udp_bytes), 7);
    packet
}

/// Gb/s of `work` on `bytes` at a time; `None` when it fails.
fn gbps(bytes: usize, mut work: impl FnMut() -> bool) -> Option<f64> {
    let started = clock::now();
    let mut rounds = 0u64;
    while started.elapsed() < MEASURED_FOR {
        for _ in 0..64 {
            if !work() {
                return None;
            }
        }
        rounds += 64;
    }
    Some(rounds as f64 * bytes as f64 * 8.0 / started.elapsed().as_secs_f64() / 1e9)
}
