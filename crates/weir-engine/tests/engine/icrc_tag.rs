//! The tag in the place of the ICRC: real captures through two gateways' ends, forgers between
//! them, and Python's `cryptography` as judge of every tag.

#![allow(clippy::disallowed_methods, reason = "only the engine itself does without these")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::talk::{self, A, Packet};
use proptest::prelude::*;
use weir_engine::esp::icrc_tag::{EPOCH_S_DEFAULT, IcrcTag, TagKey, TagRefusal};
use weir_engine::policy::KeyedBy;
use weir_wire::covered::covered;
use weir_wire::frame::{Link, Time};
use weir_wire::icrc::{self, IcrcStatus};
use weir_wire::parse::{Parsed, parse};

const NOW: Time = Time(1_700_000_003_000_000_000);
const MASTER: [u8; 32] = [0x42; 32];

fn key(bytes: [u8; 32]) -> TagKey {
    TagKey::new(bytes.into())
}

fn end(keyed_by: KeyedBy) -> IcrcTag {
    IcrcTag::shared(&key(MASTER), None, keyed_by, EPOCH_S_DEFAULT).unwrap()
}

fn walk(bytes: &[u8]) -> Parsed {
    parse(bytes, Link::Ethernet, bytes.len() as u32)
}

fn tagged(packet: Packet, keyed_by: KeyedBy) -> Vec<u8> {
    let mut bytes = packet.bytes();
    let parsed = walk(&bytes);
    end(keyed_by).tag(NOW, &mut bytes, &parsed).unwrap();
    bytes
}

fn restored(bytes: &[u8], at: Time, keyed_by: KeyedBy) -> Result<Vec<u8>, TagRefusal> {
    let mut bytes = bytes.to_vec();
    let parsed = walk(&bytes);
    end(keyed_by).restore(at, &mut bytes, &parsed).map(|_| bytes)
}

fn later(seconds: u64) -> Time {
    NOW.plus_ns(seconds * 1_000_000_000)
}

/// Frames of the captures beside the workspace and of those in it.
fn captured() -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut frames = Vec::new();
    for folder in ["testdata/roce", "../shared/captures"] {
        let Ok(entries) = std::fs::read_dir(root.join(folder)) else {
            eprintln!("SKIPPED: captures in {folder}: not there");
            continue;
        };
        for file in entries.flatten().filter_map(|entry| std::fs::read(entry.path()).ok()) {
            frames.extend(records(&file).into_iter().take(300));
        }
    }
    frames
}

/// The frames of a little-endian pcap file; nothing for any other.
fn records(file: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let magic = file.first_chunk::<4>().map(|it| u32::from_le_bytes(*it));
    if !matches!(magic, Some(0xa1b2_c3d4 | 0xa1b2_3c4d)) {
        return frames;
    }
    let mut rest = &file[24..];
    while let Some((header, behind)) = rest.split_first_chunk::<16>() {
        let len = u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize;
        let Some((frame, behind)) = behind.split_at_checked(len) else { break };
        frames.push(frame.to_vec());
        rest = behind;
    }
    frames
}

#[test]
fn captured_packets_arrive_byte_for_byte_and_differ_on_the_wire() {
    for keyed_by in [KeyedBy::Partition, KeyedBy::QueuePair] {
        let (mut near, mut far) = (end(keyed_by), end(keyed_by));
        let mut carried = 0;
        for original in captured() {
            let parsed = walk(&original);
            if icrc::check(&original, &parsed) != IcrcStatus::Valid {
                continue;
            }
            let mut bytes = original.clone();
            near.tag(NOW, &mut bytes, &parsed).unwrap();
            let changed: Vec<_> =
                (0..bytes.len()).filter(|at| bytes[*at] != original[*at]).collect();
            let offset = usize::from(parsed.rdma.unwrap().icrc_offset.unwrap());
            assert!(changed.iter().all(|at| (offset..offset + 4).contains(at)), "only the ICRC");
            assert_eq!(walk(&bytes), parsed, "still RoCE for everybody");
            far.restore(NOW, &mut bytes, &parsed).unwrap();
            assert!(bytes == original);
            carried += 1;
        }
        assert!(carried > 100, "{carried} packets");
    }
}

#[test]
fn covered_bytes_are_those_of_the_icrc() {
    let mut compared = 0;
    for bytes in captured() {
        let parsed = walk(&bytes);
        let Some(right) = icrc::computed(&bytes, &parsed) else { continue };
        let mut message = Vec::new();
        covered(&bytes, &parsed, &mut |piece| message.extend_from_slice(piece)).unwrap();
        assert_eq!(crc32(&message).to_le_bytes(), right);
        compared += 1;
    }
    assert!(compared > 100, "{compared} packets");
}

/// CRC-32 as in zlib, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ (0xedb8_8320 & 0u32.wrapping_sub(crc & 1));
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc));
    !bytes.iter().fold(!0, byte)
}

#[test]
fn a_stranger_computes_the_same_tags() {
    let script = r#"
import sys
from cryptography.hazmat.primitives.cmac import CMAC
from cryptography.hazmat.primitives.ciphers.algorithms import AES
def mac(key, message):
    cmac = CMAC(AES(key)); cmac.update(message); return cmac.finalize()
for line in sys.stdin:
    master, kind, scope, epoch, message = line.split()
    context = b"\x01weir icrc tag\0" + bytes([int(kind)]) + bytes.fromhex(scope)
    context += int(epoch).to_bytes(8, "big") + (128).to_bytes(2, "big")
    print(mac(mac(bytes.fromhex(master), context), bytes.fromhex(message))[:4].hex())
"#;
    if !Command::new("python3")
        .args(["-c", "import cryptography"])
        .output()
        .unwrap()
        .status
        .success()
    {
        eprintln!("SKIPPED: a_stranger_computes_the_same_tags: no python3 cryptography");
        return;
    }
    let (mut questions, mut ours) = (String::new(), Vec::new());
    for (kind, keyed_by) in [KeyedBy::Partition, KeyedBy::QueuePair].into_iter().enumerate() {
        for packet in [A.send_only(7), A.datagram(8), A.cnp(0), A.write_last(0xff_ffff)] {
            let bytes = tagged(packet, keyed_by);
            let parsed = walk(&bytes);
            let mut message = Vec::new();
            covered(&bytes, &parsed, &mut |piece| message.extend_from_slice(piece)).unwrap();
            let mut scope = [0; 36];
            match keyed_by {
                KeyedBy::Partition => scope[..2].copy_from_slice(&[0x7f, 0xff]),
                KeyedBy::QueuePair => {
                    scope[..16].copy_from_slice(&parsed.source);
                    scope[16..32].copy_from_slice(&parsed.destination);
                    scope[32..].copy_from_slice(&0xbu32.to_be_bytes());
                }
            }
            let epoch = NOW.0 / 1_000_000_000 / u64::from(EPOCH_S_DEFAULT);
            questions +=
                &format!("{} {kind} {} {epoch} {}\n", hex(&MASTER), hex(&scope), hex(&message));
            ours.push(hex(&icrc::present(&bytes, &parsed).unwrap()));
        }
    }
    let mut python = Command::new("python3");
    python.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = python.spawn().unwrap();
    python.stdin.take().unwrap().write_all(questions.as_bytes()).unwrap();
    let said = String::from_utf8(python.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(said.lines().collect::<Vec<_>>(), ours);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn every_covered_bit_that_flips_is_a_forgery() {
    for packet in [A.send_only(7), A.ack(9), A.datagram(3)] {
        let good = tagged(packet, KeyedBy::QueuePair);
        // From the network header's end of variant fields on: UDP ports, BTH, payload, tag.
        let checksum = 40..42;
        for at in (26..good.len()).filter(|at| !checksum.contains(at)) {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                let parsed = walk(&bad);
                let is_other_protocol = parsed.rdma.is_none();
                let masked = at == 46;
                match restored(&bad, NOW, KeyedBy::QueuePair) {
                    Ok(_) => assert!(masked, "byte {at} bit {bit}"),
                    Err(TagRefusal::NotRoce) => assert!(is_other_protocol || at < 42, "byte {at}"),
                    Err(refusal) => assert_eq!(refusal, TagRefusal::Forged, "byte {at} bit {bit}"),
                }
            }
        }
    }
}

#[test]
fn what_routers_change_may_change_on_the_way() {
    let mut bytes = tagged(A.send_only(7), KeyedBy::QueuePair);
    bytes[22] -= 3; // TTL
    bytes[15] = 3; // CE
    bytes[46] = 0x40; // BECN
    assert!(restored(&bytes, NOW, KeyedBy::QueuePair).is_ok());
}

#[test]
fn a_wrong_icrc_is_not_tagged_and_an_untagged_packet_is_foreign() {
    let mut bad = Packet { is_damaged: true, ..A.send_only(7) }.bytes();
    let parsed = walk(&bad);
    assert_eq!(end(KeyedBy::Partition).tag(NOW, &mut bad, &parsed), Err(TagRefusal::IcrcBad));
    let plain = A.send_only(7).bytes();
    assert_eq!(restored(&plain, NOW, KeyedBy::Partition), Err(TagRefusal::Foreign));
}

#[test]
fn replay_works_for_two_epochs_at_most_whatever_the_transport() {
    for packet in [A.send_only(7), A.datagram(7)] {
        let heard = tagged(packet, KeyedBy::QueuePair);
        // What cannot be told from a retransmission: identical bytes, soon after.
        assert!(restored(&heard, NOW, KeyedBy::QueuePair).is_ok());
        assert!(restored(&heard, later(10), KeyedBy::QueuePair).is_ok());
        // The same PSN comes round no sooner than that at 200,000 packets a second: 84 s.
        for (seconds, refusal) in [
            (20, TagRefusal::OtherEpoch),
            (66, TagRefusal::OtherEpoch),
            (84, TagRefusal::Forged),
            (3600, TagRefusal::Forged),
        ] {
            let outcome = restored(&heard, later(seconds), KeyedBy::QueuePair);
            assert_eq!(outcome, Err(refusal), "{seconds} s");
        }
    }
}

#[test]
fn clocks_may_differ_by_less_than_an_epoch() {
    let bytes = tagged(A.send_only(7), KeyedBy::Partition);
    let earlier = Time(NOW.0 - 10_000_000_000);
    assert!(restored(&bytes, earlier, KeyedBy::Partition).is_ok());
    let much_earlier = Time(NOW.0 - 20_000_000_000);
    assert_eq!(restored(&bytes, much_earlier, KeyedBy::Partition), Err(TagRefusal::OtherEpoch));
}

#[test]
fn one_queue_pairs_key_vouches_for_no_other() {
    let mut bytes = tagged(A.send_only(7), KeyedBy::QueuePair);
    bytes[49] ^= 1; // destination queue pair
    assert_eq!(restored(&bytes, NOW, KeyedBy::QueuePair), Err(TagRefusal::Forged));
}

#[test]
fn a_flood_of_forgeries_is_refused_unseen_and_other_queue_pairs_go_on() {
    let mut end = end(KeyedBy::QueuePair);
    let mut forged = tagged(A.send_only(7), KeyedBy::QueuePair);
    *forged.last_mut().unwrap() ^= 1;
    let parsed = walk(&forged);
    let mut outcomes = [0, 0];
    for _ in 0..10_000 {
        let outcome = end.restore(NOW, &mut forged.clone(), &parsed);
        outcomes[usize::from(outcome == Err(TagRefusal::FailureLimit))] += 1;
    }
    assert_eq!(outcomes, [64, 9936]);
    let other = Packet { from: talk::End { to_qp: 0xc, ..A }, ..A.send_only(1) };
    let mut good = tagged(other, KeyedBy::QueuePair);
    let parsed_good = walk(&good);
    assert!(end.restore(NOW, &mut good, &parsed_good).is_ok());
    let outcome = end.restore(later(1), &mut forged.clone(), &parsed);
    assert_eq!(outcome, Err(TagRefusal::Forged), "a second later it is looked at again");
}

#[test]
fn untagged_packets_cost_a_queue_pair_nothing() {
    let mut end = end(KeyedBy::QueuePair);
    let plain = A.send_only(7).bytes();
    let parsed = walk(&plain);
    for _ in 0..10_000 {
        assert_eq!(end.restore(NOW, &mut plain.clone(), &parsed), Err(TagRefusal::Foreign));
    }
    let mut good = tagged(A.send_only(8), KeyedBy::QueuePair);
    let parsed = walk(&good);
    assert!(end.restore(NOW, &mut good, &parsed).is_ok());
}

#[test]
fn the_key_before_is_accepted_where_it_is_named() {
    let heard = tagged(A.send_only(7), KeyedBy::QueuePair);
    let parsed = walk(&heard);
    let next = key([0x43; 32]);
    let keyed_by = KeyedBy::QueuePair;
    let mut both = IcrcTag::shared(&next, Some(&key(MASTER)), keyed_by, EPOCH_S_DEFAULT).unwrap();
    assert!(both.restore(NOW, &mut heard.clone(), &parsed).is_ok());
    let mut alone = IcrcTag::shared(&next, None, keyed_by, EPOCH_S_DEFAULT).unwrap();
    let outcome = alone.restore(NOW, &mut heard.clone(), &parsed);
    assert_eq!(outcome, Err(TagRefusal::Forged));
}

#[test]
fn agreed_keys_have_no_clock_and_end_when_they_are_forgotten() {
    let (first, second) = (key([1; 32]), key([2; 32]));
    let mut sender = IcrcTag::agreed(KeyedBy::QueuePair);
    let mut receiver = IcrcTag::agreed(KeyedBy::QueuePair);
    let packet = A.send_only(7).bytes();
    let parsed = walk(&packet);
    assert_eq!(sender.tag(NOW, &mut packet.clone(), &parsed), Err(TagRefusal::NoKey));
    sender.tag_with(300, &first).unwrap();
    receiver.accept(300, &first).unwrap();
    receiver.accept(301, &second).unwrap();
    let (mut old, mut new) = (packet.clone(), packet.clone());
    sender.tag(NOW, &mut old, &parsed).unwrap();
    sender.tag_with(301, &second).unwrap();
    sender.tag(NOW, &mut new, &parsed).unwrap();
    assert_ne!(old, new);
    let mut restore = |bytes: &[u8]| receiver.restore(later(3600), &mut bytes.to_vec(), &parsed);
    assert_eq!([restore(&old), restore(&new)], [Ok(300), Ok(301)]);
    receiver.forget(300);
    let mut restore = |bytes: &[u8]| receiver.restore(later(3600), &mut bytes.to_vec(), &parsed);
    assert_eq!([restore(&old), restore(&new)], [Err(TagRefusal::Forged), Ok(301)]);
}

proptest! {
    #[test]
    fn no_bytes_bring_an_end_down(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let parsed = walk(&bytes);
        let mut end = end(KeyedBy::QueuePair);
        let _ = end.tag(NOW, &mut bytes.clone(), &parsed);
        let _ = end.restore(NOW, &mut bytes.clone(), &parsed);
    }
}
