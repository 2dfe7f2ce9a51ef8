//! Which cipher code this processor runs, and how fast one core is with it.

use std::hint::black_box;
use std::time::{Duration, Instant};

use weir_engine::esp::sa::{SaParameters, Spi};
use weir_engine::esp::seal::{SealingSa, SealingState};
use weir_engine::esp::{esp_len, next_header};
use weir_wire::icrc;

use super::{Finding, Grade};

const AREA: &str = "speed";

/// How long one figure is measured.
const MEASURED_FOR: Duration = Duration::from_millis(250);

/// Looks at the processor and measures.
pub fn examine() -> Vec<Finding> {
    let (code, fast) = cipher_code();
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
            findings.push(match seal_gbps(key_bytes, packet_bytes) {
                Some(gbps) => Finding::good(AREA, &name, format!("{gbps:.1} Gb/s a core")),
                None => {
                    let change = "report it: the cipher refuses a fresh key";
                    Finding::change(AREA, &name, "fails", Grade::Problem, change)
                }
            });
        }
    }
    let gbps = icrc_gbps();
    findings.push(Finding::good(AREA, "ICRC over 4096 bytes", format!("{gbps:.1} Gb/s a core")));
    findings
}

/// What AWS-LC chooses by the processor's features, and whether that is hardware.
#[cfg(target_arch = "x86_64")]
fn cipher_code() -> (String, bool) {
    use std::arch::is_x86_feature_detected as has;
    let wide = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
    let vector = has!("vaes") && has!("vpclmulqdq");
    if vector && wide {
        ("VAES with AVX-512".to_owned(), true)
    } else if has!("aes") && has!("pclmulqdq") && has!("avx") && has!("movbe") {
        let unused = if vector { " (VAES is there, AVX-512 is not)" } else { "" };
        (format!("AES-NI with AVX{unused}"), true)
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

fn icrc_gbps() -> f64 {
    let packet = vec![7; 4096];
    gbps(packet.len(), || {
        black_box(icrc::variant_crc(black_box(&packet)));
        true
    })
    .unwrap_or(0.0)
}

/// Gb/s of `work` on `bytes` at a time; `None` when it fails.
fn gbps(bytes: usize, mut work: impl FnMut() -> bool) -> Option<f64> {
    let started = Instant::now();
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
