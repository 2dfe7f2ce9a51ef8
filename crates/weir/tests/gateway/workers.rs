//! Several workers a pair (docs/adr/0025): flows spread over them, each in order, and the wire
//! shows an association of each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rustix::process::Signal;
use weir_lab::gateways::configurations;
use weir_lab::observe::NEIGHBOUR;
use weir_lab::topology::{GATEWAY_MAC, HOST_DEVICE};
use weir_lab::traffic::bypass::{exchange, send_frames, stream, stream_while};
use weir_lab::traffic::frames::planned;
use weir_lab::traffic::{Kind, tcp};
use weir_wire::frame::Link;
use weir_wire::parse::parse;
use weir_wire::{checksum, icrc};

use super::evidence::{cut, evidence, read_frames, tshark};
use super::mirror::Analyser;
use super::restart::esp_packets;
use super::*;

const TRANSFER_BYTES: usize = 1 << 20;
const TRANSFERS: u64 = 8;
/// Hosts behind host A's port that talk RDMA with host B's, each by 40 packets.
const HOST_PAIRS: u8 = 24;
const ROUNDS: usize = 40;

/// What is asked of gateways of both kinds: every kind of traffic arrives as it was sent, each flow
/// in its order.
fn carry_everything(lab: &Lab, gateways: &Gateways) {
    let report = ping_all(lab.host(Side::A), &lab.host_v4(Side::B).to_string(), 20, 4000).unwrap();
    assert_eq!(report.answered, report.sent);
    for _ in 0..TRANSFERS {
        assert_eq!(tcp::transfer(lab, TRANSFER_BYTES).unwrap(), TRANSFER_BYTES as u64);
    }
    let captured = exchange(lab, &planned(Kind::RoceV2, 300).unwrap(), 2000).unwrap();
    assert!(captured.is_exact(), "{captured:?}; {}", gateways.drops(Side::A).unwrap());
    let streamed = stream(lab, &RoceStream::new(1024).unwrap(), 1000, 4000).unwrap();
    assert!(streamed.is_exact(), "{streamed:?}");
    many_hosts_talk(lab, gateways);
}

/// RoCE of many hosts through host A's port, round by round.
fn frames_of_many_hosts(rounds: usize) -> Vec<Vec<u8>> {
    let mut stream = RoceStream::new(256).unwrap();
    let mut frames = Vec::new();
    for _ in 0..rounds {
        let frame = stream.next_frame();
        frames.extend((1..=HOST_PAIRS).map(|host| of_host(frame, host)));
    }
    frames
}

/// Frames of many hosts by who sent them, in the order in which they come.
fn by_host(frames: &[Vec<u8>]) -> BTreeMap<u8, Vec<Vec<u8>>> {
    let mut flows = BTreeMap::<u8, Vec<Vec<u8>>>::new();
    let of_hosts = frames.iter().filter(|it| it.len() > 36 && it[26..28] == [10, 99]);
    of_hosts.for_each(|it| flows.entry(it[29]).or_default().push(it.clone()));
    flows
}

/// The frame from another host, whole again.
fn of_host(frame: &[u8], host: u8) -> Vec<u8> {
    with_address(frame, 26, host)
}

/// The frame to another host, whole again.
fn to_host(frame: &[u8], host: u8) -> Vec<u8> {
    with_address(frame, 30, host)
}

/// The frame with another address of IPv4 at that byte, its checksum and ICRC right again.
fn with_address(frame: &[u8], at: usize, host: u8) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[at..at + 4].copy_from_slice(&[10, 99, 0, host]);
    frame[24..26].fill(0);
    let sum = checksum::ipv4_header(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    let parsed = parse(&frame, Link::Ethernet, frame.len() as u32);
    icrc::write(&mut frame, &parsed);
    frame
}

#[test]
fn a_limit_by_source_holds_for_both_workers_together() {
    const PER_SECOND: u64 = 200;
    const FRAMES: usize = 9600;
    let Some(Stand { _turn, lab }) = stand("a_limit_by_source_of_two") else { return };
    let setup = Setup {
        tables_of_a: format!(
            "\n[[access]]\nname = \"few\"\noperations = \"send\"\naction = \"allow\"\n\
             limit = {{ messages = {PER_SECOND} }}\n"
        ),
        ..workers(2, Protection::Plain)
    };
    let gateways = Gateways::start(&lab, &setup).unwrap();
    wait_until_it_flows(&lab);
    let mut stream = RoceStream::new(256).unwrap();
    let frame = stream.next_frame().to_vec();
    let hosts = (1..=HOST_PAIRS).cycle().take(FRAMES);
    let frames: Vec<_> = hosts.map(|host| to_host(&frame, host)).collect();
    let begun = std::time::Instant::now();
    send_frames(lab.host(Side::A), HOST_DEVICE, &frames, 2000).unwrap();
    at_rest(&gateways);
    let elapsed_ms = begun.elapsed().as_millis() as u64;
    let status = gateways.status(Side::A).unwrap();
    assert_all_worked(&status, 2, &["host_received"]);
    let limited = number(&status, "/pairs/0/host/dropped_by_reason/access_limit");
    let passed = FRAMES as u64 - limited;
    // The rate, a second's worth at once from each worker, and what neither has heard of yet.
    // Apart they would let twice the rate pass.
    let most = PER_SECOND * elapsed_ms / 1000 + 3 * PER_SECOND;
    assert!(
        passed > 2 * PER_SECOND && passed <= most,
        "{passed} in {elapsed_ms} ms, {most} at most"
    );
}

/// They talk, and each host's packets arrive in order; all that they said.
fn many_hosts_talk(lab: &Lab, gateways: &Gateways) -> Vec<Vec<u8>> {
    many_hosts_talk_long(lab, gateways, ROUNDS)
}

fn many_hosts_talk_long(lab: &Lab, gateways: &Gateways, rounds: usize) -> Vec<Vec<u8>> {
    let frames = frames_of_many_hosts(rounds);
    let file = lab.folder().join("host-b.pcap");
    let host = Capture::start(lab.host(Side::B), HOST_DEVICE, &file, 65535).unwrap();
    send_frames(lab.host(Side::A), HOST_DEVICE, &frames, 3000).unwrap();
    at_rest(gateways);
    let arrived = host.stop().unwrap().frames().unwrap();
    assert_all_in_order(&frames, &arrived);
    frames
}

#[track_caller]
fn assert_all_in_order(sent: &[Vec<u8>], arrived: &[Vec<u8>]) {
    let (sent, arrived) = (by_host(sent), by_host(arrived));
    assert_eq!(sent.len(), usize::from(HOST_PAIRS));
    for (host, sent) in &sent {
        assert!(arrived.get(host) == Some(sent), "host {host}: not all, or not in order");
    }
}

/// Each of `workers` of the pair's workers did much of all these.
#[track_caller]
fn assert_all_worked(status: &Value, workers: usize, counts: &[&str]) {
    assert_eq!(status["pairs"][0]["workers"].as_array().map(Vec::len), Some(workers));
    for worker in 0..workers {
        for count in counts {
            let did = number(status, &format!("/pairs/0/workers/{worker}/{count}"));
            assert!(did > 100, "{count} of worker {worker}: {:#}", status["pairs"][0]["workers"]);
        }
    }
    assert_eq!(status["adds_up"], true);
}

/// The SPIs under which each gateway sealed.
fn spis(wire: &weir_lab::observe::Captured) -> [BTreeSet<u32>; 2] {
    let packets = esp_packets(wire);
    GATEWAY_MAC.map(|mac| {
        let its = packets.iter().filter(|esp| esp.source == mac);
        its.map(|esp| u32::from_be_bytes(esp.spi)).collect()
    })
}

fn workers(count: usize, protection: Protection) -> Setup {
    Setup { pair_lines: format!("workers = {count}\n"), ..Setup::new(WEIR, protection) }
}

/// Both configurations with `count` workers for the peer, whose keys are in files.
fn with_workers_for_the_peer(texts: [String; 2], count: usize) -> [String; 2] {
    texts.map(|it| it.replace("[[peer]]", &format!("[[peer]]\nworkers = {count}")))
}

#[test]
fn in_clear_both_directions_of_a_flow_meet_in_one_of_two_workers() {
    const CONNECTIONS: u64 = 24;
    const BYTES: usize = 1 << 16;
    // What the hosts' own kernels say meanwhile; halves in two workers would be twelve more.
    const OTHERS_MAX: u64 = 4;
    let Some(Stand { _turn, lab }) = stand("in_clear_flows_meet") else { return };
    let gateways = Gateways::start(&lab, &workers(2, Protection::Plain)).unwrap();
    wait_until_it_flows(&lab);
    let flows = || number(&gateways.status(Side::A).unwrap(), "/pairs/0/flows");
    let before = flows();
    for _ in 0..CONNECTIONS {
        assert_eq!(tcp::transfer(&lab, BYTES).unwrap(), BYTES as u64);
    }
    let more = flows() - before;
    assert!((CONNECTIONS..=CONNECTIONS + OTHERS_MAX).contains(&more), "{more}");
    carry_everything(&lab, &gateways);
    let status = gateways.status(Side::A).unwrap();
    assert_all_worked(&status, 2, &["host_received"]);
    assert!(gateways.status_text(Side::A).unwrap().contains("worker 1: "));
}

#[test]
fn two_workers_seal_by_an_association_each() {
    two_workers_seal("two_workers_seal", workers(2, Protection::Sealed));
}

#[test]
fn two_workers_share_one_queue_of_af_xdp_by_a_socket_each() {
    let setup = Setup { driver: Some("xdp".to_owned()), ..workers(2, Protection::Sealed) };
    two_workers_seal("two_workers_by_af_xdp", setup);
}

fn two_workers_seal(name: &str, setup: Setup) {
    let Some(Stand { _turn, lab }) = stand(name) else { return };
    for side in Side::BOTH.into_iter().filter(|_| setup.driver.is_some()) {
        // XDP does not see that a veth's sender left a checksum unfinished.
        let off = format!("ethtool -K {HOST_DEVICE} tx off tso off gso off");
        lab.host(side).run(&off).unwrap();
    }
    let texts = with_workers_for_the_peer(configurations(&lab, &setup).unwrap(), 2);
    let wire = listen(&lab, 256);
    let mut gateways = Gateways::start_configured(&lab, &setup, &texts).unwrap();
    wait_until_it_flows(&lab);
    carry_everything(&lab, &gateways);
    // A reload reaches every worker, and loses nothing.
    let frames = RoceStream::new(1024).unwrap();
    let (streamed, ()) = stream_while(&lab, &frames, 4000, || {
        pause(300);
        reload(&lab, &mut gateways, &texts, "icrc = \"off\"", 2);
        pause(300);
    })
    .unwrap();
    assert!(streamed.is_exact(), "{streamed:?}");
    let statuses = Side::BOTH.map(|side| gateways.status(side).unwrap());
    drop(gateways);
    let wire = wire.stop().unwrap();
    assert_sealed(&wire);
    let of_each = spis(&wire);
    for (side, status) in Side::BOTH.into_iter().zip(&statuses) {
        let base = number(status, "/pairs/0/peers/0/seal_spi") as u32;
        assert_eq!(of_each[side.index()], BTreeSet::from([base, base + 1]), "{side:?}");
    }
    assert_all_worked(&statuses[0], 2, &["sealed"]);
    assert_all_worked(&statuses[1], 2, &["opened"]);
}

#[test]
fn killed_gateways_with_two_workers_use_no_number_and_no_nonce_twice() {
    let Some(Stand { _turn, lab }) = stand("killed_gateways_with_two_workers") else { return };
    let setup = workers(2, Protection::Sealed);
    let texts = with_workers_for_the_peer(configurations(&lab, &setup).unwrap(), 2);
    let mut gateways = Gateways::start_configured(&lab, &setup, &texts).unwrap();
    let wire = listen(&lab, 128);
    wait_until_it_flows(&lab);
    for side in [Side::A, Side::B, Side::A] {
        many_hosts_talk(&lab, &gateways);
        gateways.end(side, Signal::KILL).unwrap();
        gateways.start_again(&lab, &setup, side).unwrap();
        wait_until_it_flows(&lab);
    }
    many_hosts_talk(&lab, &gateways);
    let mut seen = BTreeSet::new();
    let wire = wire.stop().unwrap();
    for esp in esp_packets(&wire) {
        assert!(seen.insert((esp.spi, esp.initialisation_vector)), "a nonce again");
    }
    assert!(seen.len() > 3000 && spis(&wire).iter().all(|it| it.len() == 2), "{}", seen.len());
}

#[test]
fn two_workers_speak_with_a_gateway_that_has_one() {
    let Some(Stand { _turn, lab }) = stand("two_workers_against_one") else { return };
    let setup = workers(2, Protection::Sealed);
    let [a, b] = configurations(&lab, &setup).unwrap();
    let texts = [a, b.replace("workers = 2\n", "")];
    let wire = listen(&lab, 256);
    let gateways = Gateways::start_configured(&lab, &setup, &texts).unwrap();
    wait_until_it_flows(&lab);
    carry_everything(&lab, &gateways);
    let status = gateways.status(Side::A).unwrap();
    assert_eq!(number(&status, "/pairs/0/workers/1/host_received"), 0, "all by worker 0");
    drop(gateways);
    let wire = wire.stop().unwrap();
    assert_sealed(&wire);
    assert!(spis(&wire).iter().all(|it| it.len() == 1), "{:?}", spis(&wire));
}

fn keyed(protection: Protection, lines: &str) -> Setup {
    Setup { pair_lines: "workers = 2\n".to_owned(), ..super::keying::keyed(protection, lines, "") }
}

/// The wire carried nothing in clear but handshakes and address resolution.
#[track_caller]
fn assert_only_esp_and_handshakes(wire: &weir_lab::observe::Captured) {
    assert_eq!(wire.dropped_by_kernel, 0, "tcpdump saw all of it");
    let clear = format!("not ({ESP}) and not (udp port 51840) and not ({NEIGHBOUR})");
    assert_eq!(wire.count(&clear).unwrap(), 0, "in clear");
    assert!(!wire.contains(&ROCE_MARK).unwrap());
}

#[test]
fn agreed_keys_of_two_workers_are_renewed_and_not_one_packet_is_lost() {
    let Some(Stand { _turn, lab }) = stand("agreed_keys_of_two_workers") else { return };
    let wire = listen(&lab, 256);
    let gateways = sealing_gateways(&lab, &keyed(Protection::Sealed, "rekey_after_s = 1\n"));
    let handshakes = || number(&gateways.status(Side::A).unwrap(), "/pairs/0/keying/handshakes");
    let before = handshakes();
    let mut rounds = 0;
    while handshakes() < before + 4 || rounds < 3 {
        carry_everything(&lab, &gateways);
        rounds += 1;
        assert!(rounds < 20, "{:#}", gateways.status(Side::A).unwrap());
    }
    let statuses = Side::BOTH.map(|side| gateways.status(side).unwrap());
    for (side, status) in Side::BOTH.into_iter().zip(&statuses) {
        assert_all_worked(status, 2, if side == Side::A { &["sealed"] } else { &["opened"] });
        for reason in ["no_association", "unknown_spi", "authentication", "replay_old"] {
            let path = format!("/pairs/0/wire/dropped_by_reason/{reason}");
            assert!(status.pointer(&path).is_none(), "{reason}: {status:#}");
        }
    }
    drop(gateways);
    let wire = wire.stop().unwrap();
    assert_only_esp_and_handshakes(&wire);
    for used in spis(&wire) {
        let of = |worker: u32| used.iter().filter(|spi| *spi & 15 == worker).count();
        assert!(of(0) >= 5 && of(1) >= 5 && of(0) + of(1) == used.len(), "{used:x?}");
    }
}

#[test]
fn a_bump_in_the_wire_agrees_on_keys_for_two_workers() {
    let Some(Stand { _turn, lab }) = stand("bump_with_two_workers") else { return };
    let wire = listen(&lab, 256);
    let gateways = sealing_gateways(&lab, &keyed(Protection::BorrowedTunnel, ""));
    // Which worker a transfer's port comes to is chance.
    let sealed = |worker: usize| {
        let status = gateways.status(Side::A).unwrap();
        number(&status, &format!("/pairs/0/workers/{worker}/sealed"))
    };
    for _ in 0..8 * TRANSFERS {
        assert_eq!(tcp::transfer(&lab, TRANSFER_BYTES).unwrap(), TRANSFER_BYTES as u64);
        if sealed(0) > 200 && sealed(1) > 200 {
            break;
        }
    }
    let captured = exchange(&lab, &planned(Kind::RoceV2, 300).unwrap(), 2000).unwrap();
    assert!(captured.is_exact(), "{captured:?}; {}", gateways.drops(Side::A).unwrap());
    drop(gateways);
    let wire = wire.stop().unwrap();
    assert_only_esp_and_handshakes(&wire);
    let seen = wire.frames().unwrap();
    let of_worker = |worker: u8| {
        let is_its = |frame: &&Vec<u8>| frame[23] == 50 && frame[37] & 15 == worker;
        seen.iter().filter(|it| it.len() > 50 && it[12..14] == [8, 0]).filter(is_its).count()
    };
    assert!(of_worker(0) > 100 && of_worker(1) > 100, "{} {}", of_worker(0), of_worker(1));
}

#[test]
fn agreed_keys_serve_as_many_workers_as_both_gateways_have() {
    let Some(Stand { _turn, lab }) = stand("agreed_keys_two_and_one") else { return };
    let setup = keyed(Protection::Sealed, "");
    let texts = configurations(&lab, &setup).unwrap();
    let one = |text: &String| text.replace("workers = 2\n", "");
    let texts = [texts[0].clone(), one(&texts[1])];
    let mut gateways = Gateways::start_configured(&lab, &setup, &texts).unwrap();
    wait_until_it_flows(&lab);
    carry_everything(&lab, &gateways);
    let of_1 = |gateways: &Gateways| {
        number(&gateways.status(Side::A).unwrap(), "/pairs/0/workers/1/sealed")
    };
    assert_eq!(of_1(&gateways), 0, "the peer has one worker");

    let two = texts[1].replace("[[pair]]\n", "[[pair]]\nworkers = 2\n");
    for (text, is_used) in [(&two, true), (&texts[1], false)] {
        gateways.end(Side::B, Signal::KILL).unwrap();
        configure(&lab, Side::B, text).unwrap();
        gateways.start_again(&lab, &setup, Side::B).unwrap();
        wait_until_it_flows(&lab);
        let before = of_1(&gateways);
        carry_everything(&lab, &gateways);
        assert_eq!(of_1(&gateways) > before + 100, is_used);
    }
}

#[test]
fn two_workers_keep_evidence_in_a_shard_each_which_a_cut_joins_in_time_order() {
    let Some(Stand { _turn, lab }) = stand("two_workers_keep_evidence") else { return };
    let folder = lab.folder().join("evidence");
    let setup = workers(2, Protection::Sealed);
    let texts = with_workers_for_the_peer(configurations(&lab, &setup).unwrap(), 2);
    let disk = folder.display();
    let table =
        format!("\n[evidence]\nmemory_mib = 16\nsnap = 0\ndisk = \"{disk}\"\ndisk_mib = 32\n");
    let texts = [format!("{}{table}", texts[0]), texts[1].clone()];
    let mut gateways = Gateways::start_configured(&lab, &setup, &texts).unwrap();
    wait_until_it_flows(&lab);
    let sent = many_hosts_talk(&lab, &gateways);
    let status = gateways.status(Side::A).unwrap();
    let capacity = number(&status, "/pairs/0/evidence/capacity_bytes");
    assert_eq!(capacity, 16 << 20, "the shards together are what was asked for");
    assert!(number(&status, "/pairs/0/evidence/packets") >= sent.len() as u64);

    let assert_whole = |file: &Path| {
        assert_all_in_order(&sent, &read_frames(file));
        let filter = "ip.src == 10.99.0.0/16 && frame.comment == \"sealed\"";
        let times = tshark(file, filter, &["frame.time_epoch"]);
        assert_eq!(times.len(), sent.len());
        assert!(times.is_sorted(), "one capture, in time order, of both workers' packets");
    };
    let file = lab.folder().join("all.pcapng");
    let (done, words) = cut(&lab, &file, &[]);
    assert!(done, "{words}");
    assert_whole(&file);
    // Another plan leaves both shards as they are.
    reload(&lab, &mut gateways, &texts, "icrc = \"off\"", 2);
    let (done, words) = cut(&lab, &file, &["--force"]);
    assert!(done, "{words}");
    assert_whole(&file);
    gateways.end(Side::A, Signal::TERM).unwrap();
    let path = folder.to_str().unwrap();
    let (code, words) = evidence(&["list", "--json", "--folder", path]);
    assert_eq!(code, Some(0), "{words}");
    let files: Value = serde_json::from_str(&words).unwrap();
    let files = files.as_array().unwrap();
    let of_workers: Vec<_> = files.iter().map(|it| number(it, "/worker")).collect();
    assert_eq!(of_workers, [0, 1]);
    assert!(files.iter().all(|it| number(it, "/packets") > 100), "{words}");
    let output = file.to_str().unwrap();
    let (code, words) = evidence(&["cut", "--force", "-w", output, "--folder", path]);
    assert_eq!(code, Some(0), "{words}");
    assert_whole(&file);
}

#[test]
fn what_two_workers_carry_is_mirrored_once_by_them_or_by_the_kernel() {
    let Some(Stand { _turn, lab }) = stand("two_workers_are_mirrored") else { return };
    let analyser = Analyser::new(&lab);
    let setup = workers(2, Protection::Sealed);
    let texts = with_workers_for_the_peer(configurations(&lab, &setup).unwrap(), 2);
    // Chosen queue pairs are the gateway's to find; a filter alone is the kernel's.
    let mirror = |more: &str| {
        let mirror = "\n[[mirror]]\nname = \"ids\"\nport = \"mon0\"\nfilter = \"udp port 4791\"\n";
        [format!("{}{mirror}{more}", texts[0]), texts[1].clone()]
    };
    let by_gateway = mirror("queue_pairs = [17]\n");
    let mut gateways = Gateways::start_configured(&lab, &setup, &by_gateway).unwrap();
    wait_until_it_flows(&lab);
    for (epoch, by_kernel) in [(1, false), (2, true), (3, false)] {
        if epoch > 1 {
            let next = if by_kernel { mirror("") } else { by_gateway.clone() };
            configure(&lab, Side::A, &next[0]).unwrap();
            gateways.daemon(Side::A).signal(Signal::HUP).unwrap();
            wait_status(&gateways, Side::A, |it| {
                it["pairs"][0]["policy_epoch"] == epoch
                    && it["pairs"][0]["mirrors"][0]["by_kernel"] == by_kernel
            });
        }
        let mut sent = Vec::new();
        let (_, heard) = analyser.hears(&lab, || sent = many_hosts_talk(&lab, &gateways));
        assert_all_in_order(&sent, &heard);
        let status = gateways.status(Side::A).unwrap();
        let count = |name: &str| number(&status, &format!("/pairs/0/mirrors/0/{name}"));
        assert_eq!(count("mirrored"), sent.len() as u64, "by_kernel {by_kernel}: {status:#}");
        assert_eq!(count("dropped"), 0);
    }
}

#[test]
fn two_workers_tag_and_restore_what_many_hosts_say() {
    let Some(Stand { _turn, lab }) = stand("two_workers_tag") else { return };
    let setup = workers(2, Protection::Tagged);
    let [a, b] = configurations(&lab, &setup).unwrap();
    let texts = [a, b.replace("protects = [", "protects = [\"10.99.0.0/16\", ")];
    let gateways = Gateways::start_configured(&lab, &setup, &texts).unwrap();
    let wire = listen(&lab, 256);
    // The clocks agree at once: keys are in files.
    let captured = exchange(&lab, &planned(Kind::RoceV2, 300).unwrap(), 2000).unwrap();
    assert!(captured.is_exact(), "{captured:?}; {}", gateways.drops(Side::A).unwrap());
    many_hosts_talk(&lab, &gateways);
    let wire = wire.stop().unwrap();
    assert!(wire.count(ESP).unwrap() == 0 && wire.count("udp dst port 4791").unwrap() > 1000);
    for (side, verb) in [(Side::A, "tagged"), (Side::B, "restored")] {
        let status = gateways.status(side).unwrap();
        assert_all_worked(
            &status,
            2,
            if side == Side::A { &["host_received"] } else { &["wire_received"] },
        );
        let done = number(&status, &format!("/pairs/0/peers/0/tag/{verb}_packets"));
        assert!(done >= 960, "{done} {verb}");
        assert_eq!(status["pairs"][0]["wire"]["dropped"], 0, "{status:#}");
    }
}

#[test]
fn the_kernel_carries_flows_of_two_workers_in_order_and_evidence_holds_their_heads() {
    const LONG: usize = 10 * ROUNDS;
    let Some(Stand { _turn, lab }) = stand("fast_path_of_two_workers") else { return };
    let setup = workers(2, Protection::Plain);
    let texts = configurations(&lab, &setup).unwrap();
    let texts = texts.map(|text| {
        let text = text.replace("workers = 2\n", "workers = 2\nfastpath = \"tc\"\n");
        format!("{text}\n[evidence]\nmemory_mib = 32\n")
    });
    let mut gateways = Gateways::start_configured(&lab, &setup, &texts).unwrap();
    wait_until_it_flows(&lab);
    let sent = many_hosts_talk_long(&lab, &gateways, LONG);
    let status = wait_status(&gateways, Side::A, |it| {
        number(it, "/pairs/0/rdma/packets") == sent.len() as u64
    });
    let fast = number(&status, "/pairs/0/host/fast");
    assert!(fast > sent.len() as u64 / 2, "{fast} of {}: {status:#}", sent.len());
    assert_all_worked(&status, 2, &["host_received"]);
    let count = |name: &str| number(&status, &format!("/pairs/0/fast_path/{name}"));
    assert_eq!((count("events_lost"), count("heads_lost")), (0, 0), "{status:#}");
    // Those that are silent by now were removed again.
    assert!(count("installed") >= u64::from(HOST_PAIRS), "{status:#}");
    let file = lab.folder().join("carried.pcapng");
    let (done, words) = cut(&lab, &file, &[]);
    assert!(done, "{words}");
    assert_all_in_order(&sent, &read_frames(&file));
    // Another plan takes all of them off, and on again.
    reload(&lab, &mut gateways, &texts, "icrc = \"check\"", 2);
    let before = number(&gateways.status(Side::A).unwrap(), "/pairs/0/host/fast");
    let sent = many_hosts_talk_long(&lab, &gateways, LONG).len() as u64;
    let status =
        wait_status(&gateways, Side::A, |it| number(it, "/pairs/0/host/fast") > before + sent / 2);
    assert_eq!(status["adds_up"], true);
}

/// Two rules: what says `open` opens its flow, and `evil` is dropped in such a one.
const RULES_OF_A_FLOW: &str = "\
alert udp any any -> any 9000 (content:\"open\"; flowbits:set,opened; sid:1;)\n\
drop udp any any -> any 9000 (content:\"evil\"; flowbits:isset,opened; sid:2;)\n";

/// A datagram of one flow: whole, or in two pieces of which the second has the text.
fn datagrams(flow: u16, text: &[u8; 4], in_pieces: bool) -> Vec<Vec<u8>> {
    let template = RoceStream::new(256).unwrap().next_frame().to_vec();
    let filler = if in_pieces { 56 } else { 0 };
    let mut udp = (20_000 + flow).to_be_bytes().to_vec();
    udp.extend(9000_u16.to_be_bytes());
    udp.extend((8 + filler + 4_u16).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(std::iter::repeat_n(b'x', filler.into()));
    udp.extend(text);
    let frame = |flags: u16, payload: &[u8]| {
        let mut frame = template[..34].to_vec();
        frame[16..18].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
        frame[18..20].copy_from_slice(&flow.to_be_bytes());
        frame[20..22].copy_from_slice(&flags.to_be_bytes());
        frame[24..26].fill(0);
        let sum = checksum::ipv4_header(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame.extend(payload);
        frame
    };
    match in_pieces {
        false => vec![frame(0, &udp)],
        true => vec![frame(0x2000, &udp[..64]), frame(8, &udp[64..])],
    }
}

#[test]
fn a_rule_sees_a_datagram_in_pieces_in_its_flow_whichever_worker_has_that() {
    const FLOWS: u16 = 40;
    let Some(Stand { _turn, lab }) = stand("pieces_of_two_workers") else { return };
    let rules = lab.folder().join("flow.rules");
    std::fs::write(&rules, RULES_OF_A_FLOW).unwrap();
    let setup = Setup {
        tables_of_a: format!("\n[rules]\npaths = [\"{}\"]\n", rules.display()),
        ..workers(2, Protection::Plain)
    };
    let gateways = Gateways::start(&lab, &setup).unwrap();
    wait_until_it_flows(&lab);
    let send = |text: &[u8; 4], in_pieces: bool| {
        let frames: Vec<_> = (0..FLOWS).flat_map(|flow| datagrams(flow, text, in_pieces)).collect();
        send_frames(lab.host(Side::A), HOST_DEVICE, &frames, 2000).unwrap();
        at_rest(&gateways);
    };
    let file = lab.folder().join("pieces.pcap");
    let host = Capture::start(lab.host(Side::B), HOST_DEVICE, &file, 65535).unwrap();
    send(b"open", false);
    send(b"good", true);
    send(b"evil", true);
    let arrived = host.stop().unwrap().frames().unwrap();
    let of_udp = |it: &&Vec<u8>| it.len() > 34 && it[23] == 17;
    let count = |text: &[u8]| arrived.iter().filter(of_udp).filter(|it| it.ends_with(text)).count();
    assert_eq!(count(b"open"), usize::from(FLOWS));
    assert_eq!(count(b"good"), usize::from(FLOWS), "what may pass");
    assert_eq!(count(b"evil"), 0, "in whichever worker its flow was opened");
    let status = gateways.status(Side::A).unwrap();
    let dropped = number(&status, "/pairs/0/host/dropped_by_reason/rule");
    assert_eq!(dropped, 2 * u64::from(FLOWS), "both pieces: {status:#}");
    assert_eq!(status["adds_up"], true, "{status:#}");
    let worked = |worker: usize| {
        number(&status, &format!("/pairs/0/workers/{worker}/host_received")) > u64::from(FLOWS) / 8
    };
    assert!(worked(0) && worked(1), "{:#}", status["pairs"][0]["workers"]);
}

#[test]
fn a_filter_of_a_rule_counts_what_both_workers_see() {
    const COUNT: u64 = 200;
    const FLOWS: u16 = 40;
    let Some(Stand { _turn, lab }) = stand("a_filter_of_two_workers") else { return };
    let rules = lab.folder().join("filter.rules");
    let rule = format!(
        "drop udp any any -> any 9000 (content:\"open\"; \
         detection_filter:track by_src, count {COUNT}, seconds 120; sid:1;)\n"
    );
    std::fs::write(&rules, rule).unwrap();
    let setup = Setup {
        tables_of_a: format!("\n[rules]\npaths = [\"{}\"]\n", rules.display()),
        ..workers(2, Protection::Plain)
    };
    let gateways = Gateways::start(&lab, &setup).unwrap();
    wait_until_it_flows(&lab);
    let frames: Vec<_> =
        (0..25).flat_map(|_| (0..FLOWS).flat_map(|flow| datagrams(flow, b"open", false))).collect();
    // In a tenth of a second, until each has heard of the other, 40 pass.
    send_frames(lab.host(Side::A), HOST_DEVICE, &frames, 400).unwrap();
    at_rest(&gateways);
    let status = gateways.status(Side::A).unwrap();
    let dropped = number(&status, "/pairs/0/host/dropped_by_reason/rule");
    let passed = frames.len() as u64 - dropped;
    assert!((COUNT..COUNT + COUNT / 2).contains(&passed), "{passed}: apart {} pass", 2 * COUNT);
    assert_all_worked(&status, 2, &["host_received"]);
}
