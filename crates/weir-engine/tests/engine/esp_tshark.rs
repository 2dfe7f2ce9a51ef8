//! A second stranger as judge: tshark decrypts what we seal, finds the inner packet byte for byte,
//! and says that our integrity check value is good. (Its 4.0 knows no extended numbering.)

#![allow(clippy::disallowed_methods, reason = "only the engine itself does without these")]

use std::net::IpAddr;
use std::process::Command;

use super::buffers::Packet;
use weir_engine::esp::next_header;
use weir_engine::esp::outer::{OuterFields, OuterHeader, UdpEncapsulation};
use weir_engine::esp::sa::{SaParameters, Spi};
use weir_engine::esp::seal::SealingSa;
use weir_engine::esp::transport::seal_transport;

#[test]
fn tshark_decrypts_ours_and_finds_the_icv_good() {
    let inner = inner_packets();
    let mut captured = Vec::new();
    let mut expected = Vec::new();
    for (spi, key_len) in [(0x1001, 16), (0x1002, 32)] {
        let mut sealing = association(spi, key_len);
        for (payload, plain) in &inner {
            for sealed in all_forms(&mut sealing, plain) {
                captured.push(sealed);
                expected.push(format!("1\t0\t{}", hex(payload)));
            }
        }
    }
    let mut forged = captured[0].clone();
    *forged.last_mut().unwrap() ^= 1;
    captured.push(forged);
    let Some(found) = tshark(&captured) else { return };
    let (forged, found) = found.split_last().expect("tshark prints a line a packet");
    assert_eq!(found, expected);
    assert!(forged.starts_with("0\t1\t"), "tshark notices a forged packet: {forged}");
}

/// In transport mode and in tunnels over IPv4 and IPv6, with and without UDP.
fn all_forms(sealing: &mut SealingSa, plain: &[u8]) -> Vec<Vec<u8>> {
    let mut forms = Vec::new();
    let protocol = if plain[0] >> 4 == 4 { next_header::IPV4 } else { next_header::IPV6 };
    for udp in [None, Some(UdpEncapsulation::STANDARD)] {
        let mut packet = Packet::new(plain);
        packet.change(|frame| seal_transport(sealing, frame, 0, udp, 0)).unwrap();
        forms.push(packet.bytes().to_vec());
        for addresses in [["10.9.0.1", "10.9.0.2"], ["fd00::1", "fd00::2"]] {
            let [source, destination]: [IpAddr; 2] = addresses.map(|a| a.parse().unwrap());
            let header = OuterHeader::new(None, source, destination, 64, udp).unwrap();
            let mut packet = Packet::new(plain);
            packet.seal(sealing, protocol).unwrap();
            packet.change(|frame| header.prepend(frame, OuterFields::default())).unwrap();
            forms.push(packet.bytes().to_vec());
        }
    }
    forms
}

fn association(spi: u32, key_len: u8) -> SealingSa {
    let parameters = SaParameters::new(Spi::new(spi).unwrap(), &material(key_len)).unwrap();
    let parameters = SaParameters { extended_sequence: false, ..parameters };
    let mut sealing = SealingSa::new(&parameters, None).unwrap();
    sealing.extend_reservation(&sealing.reservation_needed().unwrap());
    sealing
}

fn material(key_len: u8) -> Vec<u8> {
    (0..key_len + 4).map(|byte| byte * 3 + 1).collect()
}

/// UDP payloads and the packets that carry them, over IPv4 and IPv6.
fn inner_packets() -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut packets = Vec::new();
    for len in [1_u16, 2, 3, 4, 1400, 8900] {
        let payload: Vec<u8> = (0..len).map(|index| index.wrapping_mul(11) as u8).collect();
        let mut udp = vec![0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0];
        udp[4..6].copy_from_slice(&(8 + len).to_be_bytes());
        udp.extend(&payload);
        let mut ipv4 = vec![0x45, 0, 0, 0, 7, 7, 0x40, 0, 63, 17, 0, 0];
        ipv4.extend([192, 0, 2, 1, 192, 0, 2, 2]);
        ipv4[2..4].copy_from_slice(&(28 + len).to_be_bytes());
        let mut ipv6 = vec![0x60, 0, 0, 0, 0, 0, 17, 63];
        ipv6[4..6].copy_from_slice(&(8 + len).to_be_bytes());
        ipv6.extend([[0x20; 16], [0x30; 16]].concat());
        packets.push((payload.clone(), [ipv4, udp.clone()].concat()));
        packets.push((payload, [ipv6, udp].concat()));
    }
    packets
}

/// A line a packet: ICV good, ICV bad, the innermost payload. `None` without tshark.
fn tshark(packets: &[Vec<u8>]) -> Option<Vec<String>> {
    if Command::new("tshark").arg("--version").output().is_err() {
        eprintln!("SKIPPED: tshark is not installed (apt install tshark)");
        return None;
    }
    let path = std::env::temp_dir().join(format!("weir-esp-tshark-{}.pcap", std::process::id()));
    std::fs::write(&path, capture(packets)).expect("the temporary folder is writable");
    let mut command = Command::new("tshark");
    command.arg("-r").arg(&path);
    command.args(["-o", "esp.enable_encryption_decode:TRUE"]);
    command.args(["-o", "esp.enable_authentication_check:TRUE"]);
    for (spi, key_len) in [(0x1001, 16), (0x1002, 32)] {
        let key = hex(&material(key_len));
        for version in ["IPv4", "IPv6"] {
            command.arg("-o").arg(format!(
                "uat:esp_sa:\"{version}\",\"*\",\"*\",\"0x{spi:08x}\",\
                 \"AES-GCM with 16 octet ICV [RFC4106]\",\"0x{key}\",\"NULL\",\"\""
            ));
        }
    }
    command.args(["-T", "fields", "-E", "occurrence=l"]);
    command.args(["-e", "esp.icv_good", "-e", "esp.icv_bad", "-e", "udp.payload"]);
    let output = command.output().expect("tshark runs");
    std::fs::remove_file(&path).expect("the capture is removed");
    let text = String::from_utf8(output.stdout).expect("tshark prints text");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(text.lines().map(str::to_owned).collect())
}

/// A pcap file of raw IP packets.
fn capture(packets: &[Vec<u8>]) -> Vec<u8> {
    const LINKTYPE_RAW: u32 = 101;
    let word = |value: u32| value.to_le_bytes();
    let mut file = [word(0xa1b2_c3d4), [2, 0, 4, 0], word(0), word(0)].concat();
    file.extend([word(65_535), word(LINKTYPE_RAW)].concat());
    for packet in packets {
        let len = word(packet.len() as u32);
        file.extend([word(0), word(0), len, len].concat());
        file.extend(packet);
    }
    file
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
