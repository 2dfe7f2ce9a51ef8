//! Keys that front ends bring, whatever is administered: no nonce and no number leaves twice, no
//! recorded packet is delivered twice. tcpdump on the wire is the judge.

use std::collections::HashMap;

use rustix::process::Signal;
use weir_lab::observe::{Capture, Captured};
use weir_lab::topology::{HOST_DEVICE, HOST_V4, WIRE_END_A, WIRE_END_B};
use weir_lab::traffic::bypass::send_frames;

use super::gateways::transport;
use super::*;

const OUT: u32 = 0x1001;
const BACK: u32 = 0x1002;
const NEWER: u32 = 0x2001;
const SECOND: u32 = 0x3001;

/// One ESP packet over IPv4 (RFC 4303 s2, RFC 4106 s3).
struct Esp {
    spi: u32,
    sequence: u32,
    initialisation_vector: [u8; 8],
    frame: Vec<u8>,
}

fn esp_packets(wire: &Captured) -> Vec<Esp> {
    let read = |frame: Vec<u8>| {
        let is_esp = frame.get(12..15)? == [8, 0, 0x45] && *frame.get(23)? == 50;
        let esp = frame.get(34..50)?;
        is_esp.then(|| Esp {
            spi: u32::from_be_bytes(esp[..4].try_into().unwrap()),
            sequence: u32::from_be_bytes(esp[4..8].try_into().unwrap()),
            initialisation_vector: esp[8..].try_into().unwrap(),
            frame: frame.clone(),
        })
    };
    wire.frames().unwrap().into_iter().filter_map(read).collect()
}

fn key(byte: &str) -> String {
    format!("0x{}", byte.repeat(20))
}

/// The words of an administrator at side A.
struct Words {
    state: String,
    delete_state: String,
    policy: String,
    delete_policy: String,
}

fn words_for(from: &str, to: &str, back: bool, spi: u32, key: &str) -> Words {
    let [state, policy] = transport(from, to, back, spi, key);
    let direction = if back { "in" } else { "out" };
    Words {
        state,
        delete_state: format!("ip xfrm state delete src {from} dst {to} proto esp spi {spi:#x}"),
        policy,
        delete_policy: format!("ip xfrm policy delete src {from} dst {to} dir {direction}"),
    }
}

/// Both gateways keyed; what the first of them seals with, and opens with.
fn keyed(lab: &Lab) -> (Gateways, [Words; 2]) {
    let gateways = gateways(lab, "default = \"drop\"\n");
    let [a, b] = HOST_V4.map(|it| it.to_string());
    for side in Side::BOTH {
        let is_a = side == Side::A;
        for words in
            [words_for(&a, &b, !is_a, OUT, &key("1a")), words_for(&b, &a, is_a, BACK, &key("2b"))]
        {
            xfrm(lab, side, &words.state);
            xfrm(lab, side, &words.policy);
        }
    }
    wait_for_ping(lab, &b);
    let of_a =
        [words_for(&a, &b, false, OUT, &key("1a")), words_for(&b, &a, true, BACK, &key("2b"))];
    (gateways, of_a)
}

/// Pings all the time.
fn pinging(lab: &Lab) -> Running {
    let mut ping = lab.host(Side::A).command("ping");
    ping.args(["-q", "-i", "0.005", "-W", "1", &HOST_V4[1].to_string()]);
    Running::start(&mut ping).unwrap()
}

fn a_while() {
    interrupt::sleep(Duration::from_millis(300)).unwrap();
}

/// Every (SPI, number) and every (key, nonce) once; `keys` has an SPI's key. How many there were.
#[track_caller]
fn none_twice(packets: &[Esp], keys: &HashMap<u32, &str>) -> HashMap<u32, usize> {
    let (mut numbers, mut nonces) = (HashMap::new(), HashMap::new());
    let mut counted: HashMap<u32, usize> = HashMap::new();
    for esp in packets {
        *counted.entry(esp.spi).or_default() += 1;
        *numbers.entry((esp.spi, esp.sequence)).or_insert(0) += 1;
        *nonces.entry((keys[&esp.spi], esp.initialisation_vector)).or_insert(0) += 1;
    }
    let twice = |times: Vec<usize>| times.into_iter().filter(|it| *it > 1).sum::<usize>();
    let twice = [twice(numbers.into_values().collect()), twice(nonces.into_values().collect())];
    assert_eq!(
        twice,
        [0, 0],
        "of {} packets so many share (SPI, number) and (key, nonce) with another",
        packets.len()
    );
    counted
}

#[test]
fn no_nonce_leaves_twice_whatever_is_administered() {
    let Some(Stand { _turn, lab }) = stand("nonces of front ends", Plan::default(), &[]) else {
        return;
    };
    let (gateways, [out, back]) = keyed(&lab);
    let [a, b] = HOST_V4.map(|it| it.to_string());
    let newer = words_for(&a, &b, false, NEWER, &key("3c"));
    let newer_at_b = words_for(&a, &b, true, NEWER, &key("3c"));
    xfrm(&lab, Side::B, &newer_at_b.state);
    let second = words_for(&a, &b, false, SECOND, &key("1a"));
    let wire =
        Capture::start(lab.wire(), WIRE_END_A, &lab.folder().join("wire.pcap"), 128).unwrap();
    let ping = pinging(&lab);
    a_while();
    let say = |lines: &[&str]| {
        for line in lines {
            xfrm(&lab, Side::A, line);
        }
        a_while();
    };
    for _ in 0..2 {
        // The policy alone.
        say(&[&out.delete_policy, &out.policy]);
        // A newer association comes and goes: the older one takes over.
        say(&[&newer.state]);
        say(&[&newer.delete_state]);
        // The same key at once.
        say(&[&out.delete_state, &out.state]);
        say(&["ip xfrm policy flush", &out.policy, &back.policy]);
        say(&["ip xfrm state flush", &out.state, &back.state]);
        // A second SPI with one key.
        let said = says(&lab, Side::A, &second.state);
        assert!(!said.status.success(), "one key under two SPIs: {}", said.stdout);
        assert!(said.stderr.contains("another association has this key"), "{}", said.stderr);
        // The same key under another SPI, and back again.
        say(&[&out.delete_state, &second.state]);
        say(&[&second.delete_state, &out.state]);
        // One key for both directions.
        let turned = words_for(&b, &a, true, SECOND, &key("1a"));
        assert!(!says(&lab, Side::A, &turned.state).status.success(), "one key both ways");
    }
    // A soft limit: another is preferred, until it is gone.
    let dying = format!("{} limit time-soft 1", newer.state);
    say(&[&dying]);
    interrupt::sleep(Duration::from_millis(1500)).unwrap();
    say(&[&newer.delete_state]);
    wait_for_ping(&lab, &b);
    ping.stop(Signal::INT).unwrap();
    let packets = esp_packets(&wire.stop().unwrap());
    let keys = HashMap::from([(OUT, "1a"), (SECOND, "1a"), (NEWER, "3c"), (BACK, "2b")]);
    let counted = none_twice(&packets, &keys);
    let of = |spi| counted.get(&spi).copied().unwrap_or_default();
    assert!(of(OUT) > 300 && of(NEWER) > 50 && of(SECOND) > 20, "{counted:?}");
    assert!(of(BACK) > 300, "{counted:?}: {}", gateways.log(Side::A));
}

/// Sends what was recorded to `side` again; how many of them its host got.
fn delivered_again(lab: &Lab, side: Side, packets: &[Vec<u8>]) -> u64 {
    let file = lab.folder().join("host.pcap");
    let host = Capture::start(lab.host(side), HOST_DEVICE, &file, 128).unwrap();
    let end = if side == Side::A { WIRE_END_A } else { WIRE_END_B };
    send_frames(lab.wire(), end, packets, 1000).unwrap();
    host.stop()
        .unwrap()
        .count("icmp[icmptype] == icmp-echo or icmp[icmptype] == icmp-echoreply")
        .unwrap()
}

/// The last three packets of `spi`.
fn last_three(packets: &[Esp], spi: u32) -> Vec<Vec<u8>> {
    let of_spi: Vec<_> = packets.iter().filter(|esp| esp.spi == spi).collect();
    assert!(of_spi.len() > 10);
    of_spi[of_spi.len() - 3..].iter().map(|esp| esp.frame.clone()).collect()
}

#[test]
fn recorded_packets_are_delivered_once_whatever_is_administered() {
    let Some(Stand { _turn, lab }) = stand("replays to front ends", Plan::default(), &[]) else {
        return;
    };
    let (_gateways, [out, back]) = keyed(&lab);
    let [a, b] = HOST_V4.map(|it| it.to_string());
    let wire =
        Capture::start(lab.wire(), WIRE_END_A, &lab.folder().join("wire.pcap"), 1500).unwrap();
    ping_all(lab.host(Side::A), &b, 20, 56).unwrap();
    let recorded = last_three(&esp_packets(&wire.stop().unwrap()), BACK);
    assert_eq!(delivered_again(&lab, Side::A, &recorded), 0, "refused before anything is done");
    let turned = words_for(&b, &a, true, SECOND, &key("2b"));
    let rounds: [&[&str]; 5] = [
        &[&back.delete_policy, &back.policy],
        &["ip xfrm policy flush", &out.policy, &back.policy],
        &[&back.delete_state, &back.state],
        &["ip xfrm state flush", &back.state],
        &[&back.delete_state, &turned.state, &turned.delete_state, &back.state],
    ];
    for lines in rounds {
        lines.iter().for_each(|line| drop(xfrm(&lab, Side::A, line)));
        assert_eq!(delivered_again(&lab, Side::A, &recorded), 0, "after {lines:?}");
    }
}

#[test]
fn a_killed_gateway_goes_on_with_the_keys_that_front_ends_bring_again() {
    let Some(Stand { _turn, lab }) = stand("front ends and kill -9", Plan::default(), &[]) else {
        return;
    };
    let (mut gateways, of_a) = keyed(&lab);
    let b = HOST_V4[1].to_string();
    let wire =
        Capture::start(lab.wire(), WIRE_END_A, &lab.folder().join("wire.pcap"), 1500).unwrap();
    ping_all(lab.host(Side::A), &b, 50, 56).unwrap();
    let setup = Setup::new(WEIR, Protection::Plain);
    for round in 0..2 {
        if round == 1 {
            // What was deleted before the end is known after it, too.
            of_a.iter().for_each(|it| drop(xfrm(&lab, Side::A, &it.delete_state)));
        }
        gateways.end(Side::A, Signal::KILL).unwrap();
        interrupt::sleep(Duration::from_millis(500)).unwrap();
        gateways.start_again(&lab, &setup, Side::A).unwrap();
        for words in &of_a {
            xfrm(&lab, Side::A, &words.state);
            xfrm(&lab, Side::A, &words.policy);
        }
        ping_all(lab.host(Side::A), &b, 50, 56).unwrap();
    }
    let packets = esp_packets(&wire.stop().unwrap());
    none_twice(&packets, &HashMap::from([(OUT, "1a"), (BACK, "2b")]));
    let recorded = last_three(&packets, BACK);
    gateways.end(Side::A, Signal::KILL).unwrap();
    interrupt::sleep(Duration::from_millis(500)).unwrap();
    gateways.start_again(&lab, &setup, Side::A).unwrap();
    for words in &of_a {
        xfrm(&lab, Side::A, &words.state);
        xfrm(&lab, Side::A, &words.policy);
    }
    assert_eq!(delivered_again(&lab, Side::A, &recorded), 0, "a replay over a restart");
}
