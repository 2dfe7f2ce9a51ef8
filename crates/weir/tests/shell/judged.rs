//! What the made flows of `conformance` do not reach, judged by Suricata 8.0.7: IPv6, fragments,
//! data that overlap or come in disorder, compressed bodies, HTTP/2, and several of these at once.
//!
//! `testdata/judged/pairs.tsv` has the rules that Suricata finds in each flow, and
//! `differences.tsv` where Weir finds others, and why. Where Suricata is installed it is asked
//! again.

mod bodies;
mod http2;
mod wire;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::applications::{suricata_root, write_capture};
use http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GO_AWAY, HEADERS, PADDED, PING, PRIORITISED,
    PRIORITY, RESET, WINDOW, frame, literal, named,
};
use wire::{
    Arrange, DESTINATION, FRAGMENT, Flow, HOP_BY_HOP, ORDERS, Piece, ROUTING, TCP, UDP, UNIT,
    in_order, shuffled,
};

/// The systems that `host-os-policy` names, of servers at 192.0.2.1, .2 and so on.
pub(crate) const SYSTEMS: [&str; 13] = [
    "bsd",
    "bsd-right",
    "old-linux",
    "linux",
    "old-solaris",
    "solaris",
    "hpux10",
    "hpux11",
    "irix",
    "macos",
    "windows",
    "vista",
    "windows2k3",
];
/// A server that no system is named for.
const SERVER: u8 = 100;

/// Flows in one capture, and the rules about them.
struct Group {
    name: &'static str,
    rules: String,
    flows: Vec<(String, Flow)>,
}

impl Group {
    fn new(name: &'static str, rules: &[&str]) -> Self {
        let numbered = |(index, rule): (usize, &&str)| match rule.rsplit_once(')') {
            Some((head, _)) => format!("alert {head} sid:{};)\n", index + 1),
            None => unreachable!("a rule ends"),
        };
        Self { name, rules: rules.iter().enumerate().map(numbered).collect(), flows: Vec::new() }
    }

    /// A flow with a client of its own.
    fn flow(&mut self, name: &str, is_six: bool, port: u16, make: impl FnOnce(&mut Flow)) {
        self.flow_to(name, is_six, SERVER, port, make);
    }

    fn flow_to(
        &mut self,
        name: &str,
        is_six: bool,
        server: u8,
        port: u16,
        make: impl FnOnce(&mut Flow),
    ) {
        let mut flow = Flow::new(is_six, 1 + self.flows.len() as u8, server, port);
        make(&mut flow);
        self.flows.push((name.to_owned(), flow));
    }

    /// A connection that is opened before and ended after.
    fn connection(&mut self, name: &str, is_six: bool, port: u16, make: impl FnOnce(&mut Flow)) {
        self.flow(name, is_six, port, |it| {
            it.open();
            make(it);
            it.end();
        });
    }
}

/// What Suricata is asked with, and what Weir knows of the hosts.
fn configuration() -> String {
    let mut yaml = fs::read_to_string(folder().join("suricata.yaml")).unwrap();
    yaml.push_str("host-os-policy:\n");
    for (system, last) in SYSTEMS.iter().zip(1..) {
        let hosts = format!("[192.0.2.{last}, \"2001:db8:1::{last:x}\"]");
        writeln!(yaml, "  {system}: {hosts}").unwrap();
    }
    yaml
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/judged")
}

/// Which rules were found in which flow of a group.
type Pairs = BTreeSet<(String, u64)>;

/// The pairs among events.
fn found(group: &Group, eve: &str) -> Pairs {
    let mut pairs = Pairs::new();
    for line in eve.lines() {
        let event: Value = serde_json::from_str(line).expect("EVE");
        if event["event_type"] != "alert" {
            continue;
        }
        let ends = ["src_ip", "dest_ip"].map(|it| event[it].as_str().unwrap_or_default());
        let is_of = |(_, flow): &&(String, Flow)| ends.contains(&flow.client().as_str());
        let (name, _) = group.flows.iter().find(is_of).expect("a flow of the group");
        let sid = event["alert"]["signature_id"].as_u64().expect("a number");
        pairs.insert((name.clone(), sid));
    }
    pairs
}

/// The lines of a file here that are of this group: its flows, and the fields behind.
fn kept(file: &str, group: &Group) -> Vec<Vec<String>> {
    let text = fs::read_to_string(folder().join(file)).unwrap_or_default();
    let fields = text.lines().map(|line| line.split('\t').map(str::to_owned).collect());
    let mut lines: Vec<Vec<String>> = fields.collect();
    lines.retain(|it| it[0] == group.name);
    lines
}

fn numbers<'l>(flow: &'l str, list: &'l str) -> impl Iterator<Item = (String, u64)> + 'l {
    let sids = list.split(',').filter(|it| !it.is_empty());
    sids.map(move |it| (flow.to_owned(), it.parse().expect("a number")))
}

/// Pairs as they are kept, a flow a line.
fn told(group: &Group, pairs: &Pairs) -> String {
    let line = |(name, _): &(String, Flow)| {
        let of_flow = pairs.iter().filter(|it| it.0 == *name);
        let sids: Vec<String> = of_flow.map(|it| it.1.to_string()).collect();
        format!("{}\t{name}\t{}\n", group.name, sids.join(","))
    };
    group.flows.iter().map(line).collect()
}

fn ours(group: &Group, scratch: &Path) -> Pairs {
    let [rules, yaml, eve] = ["test.rules", "suricata.yaml", "eve.json"].map(|it| scratch.join(it));
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    weir.args(["read", "--no-checksums", "--types", "alert", "--rules"]).arg(rules);
    weir.arg("--variables").arg(yaml).arg("--eve").arg(&eve).arg(scratch.join("in.pcap"));
    let output = weir.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    found(group, &fs::read_to_string(eve).unwrap())
}

/// What the Suricata that is installed finds; none, loudly, where there is none.
fn theirs(group: &Group, scratch: &Path) -> Option<Pairs> {
    let root = suricata_root()?;
    let name = format!("judged-{}-{}", group.name, std::process::id());
    let inside = root.join(&name);
    fs::create_dir_all(&inside).unwrap();
    for file in ["in.pcap", "test.rules", "suricata.yaml"] {
        fs::copy(scratch.join(file), inside.join(file)).unwrap();
    }
    let line = format!(
        "cd /{name} && exec suricata -c suricata.yaml -S test.rules -l . -k none \
         --runmode single -r in.pcap"
    );
    let output = Command::new("chroot").arg(&root).args(["sh", "-c", &line]).output().unwrap();
    let eve = fs::read_to_string(inside.join("eve.json"));
    fs::remove_dir_all(&inside).unwrap();
    let log = [output.stdout, output.stderr].concat();
    let log = String::from_utf8_lossy(&log);
    assert!(eve.is_ok() && !log.contains("error parsing signature"), "{log}");
    eve.ok().map(|it| found(group, &it))
}

/// Compares what both find in a group with what is kept.
fn judge(group: &Group) {
    let scratch = tempfile::tempdir().unwrap();
    let frames: Vec<Vec<u8>> =
        group.flows.iter().flat_map(|(_, flow)| flow.frames.clone()).collect();
    write_capture(&scratch.path().join("in.pcap"), &frames);
    fs::write(scratch.path().join("test.rules"), &group.rules).unwrap();
    fs::write(scratch.path().join("suricata.yaml"), configuration()).unwrap();

    let (mut expected, mut differing) = (Pairs::new(), Pairs::new());
    for line in kept("pairs.tsv", group) {
        expected.extend(numbers(&line[1], &line[2]));
    }
    for line in kept("differences.tsv", group) {
        let [missing, extra] = [2, 3].map(|it| numbers(&line[1], &line[it]).collect::<Pairs>());
        assert!(missing.is_subset(&expected) && extra.is_disjoint(&expected), "{line:?}");
        differing.extend(missing.into_iter().chain(extra));
    }
    let theirs = theirs(group, scratch.path());
    let ours = ours(group, scratch.path());
    if let Some(theirs) = theirs {
        compare("Suricata", group, &theirs, &expected);
    }
    let wanted = expected.symmetric_difference(&differing).cloned().collect();
    compare("weir", group, &ours, &wanted);
}

fn compare(who: &str, group: &Group, found: &Pairs, wanted: &Pairs) {
    let [missing, extra] = [wanted.difference(found), found.difference(wanted)]
        .map(|it| it.cloned().collect::<Vec<_>>());
    assert!(
        missing.is_empty() && extra.is_empty(),
        "{who}: missing {missing:?}, extra {extra:?} of\n{}",
        told(group, found)
    );
}

const REQUEST: &[u8] =
    b"GET /alpha/beta?gamma=1 HTTP/1.1\r\nHost: delta.example\r\nUser-Agent: epsilon\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\nServer: zeta\r\n\r\nomega omega";
const QUERY: &[u8] =
    b"\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05alpha\x07example\x00\x00\x01\x00\x01";

/// Rules of addresses, packets, streams and applications.
const OF_ALL: [&str; 14] = [
    "tcp any any -> any any (content:\"alpha\";)",
    "tcp-pkt any any -> any any (content:\"alpha\";)",
    "tcp-stream any any -> any any (content:\"alpha\"; content:\"epsilon\"; distance:0;)",
    "udp any any -> any any (content:\"alpha\";)",
    "ip any any -> any any (content:\"alpha\";)",
    "http any any -> any any (http.uri; content:\"/alpha/beta\"; startswith;)",
    "http any any -> any any (http.host; content:\"delta\"; http.user_agent; content:\"epsilon\";)",
    "http any any -> any any (flow:to_client; file.data; content:\"omega omega\";)",
    "dns any any -> any any (dns.query; content:\"alpha.example\";)",
    "tcp any any -> any 80 (flow:established,to_server; flags:PA; dsize:>60;)",
    "udp any any -> any any (dsize:31;)",
    "ip any any -> any any (ip_proto:17; content:\"example\";)",
    "ip [2001:db8::/48] any -> [2001:db8:1::/48] any (content:\"alpha\";)",
    "http any any -> any any (http.stat_code; content:\"200\"; http.server; content:\"zeta\";)",
];

fn exchange(flow: &mut Flow, cut: usize, arrange: Arrange) {
    flow.say(0, REQUEST, cut, arrange);
    flow.say(1, RESPONSE, cut, arrange);
}

/// The pieces of `bytes`, `units` of eight bytes each.
fn pieces(bytes: &[u8], units: usize) -> Vec<Piece<'_>> {
    bytes.chunks(units * UNIT).enumerate().map(|(at, it)| (at * units * UNIT, it)).collect()
}

/// Extension headers that a packet may have, by name.
const EXTENSIONS: [(&str, &[u8]); 9] = [
    ("none", &[]),
    ("hop by hop", &[HOP_BY_HOP]),
    ("destination", &[DESTINATION]),
    ("routing", &[ROUTING]),
    ("fragment", &[FRAGMENT]),
    ("hop by hop, destination", &[HOP_BY_HOP, DESTINATION]),
    ("destination twice", &[DESTINATION, DESTINATION]),
    ("all", &[HOP_BY_HOP, DESTINATION, ROUTING, FRAGMENT, DESTINATION]),
    ("hop by hop late", &[DESTINATION, HOP_BY_HOP]),
];

#[test]
fn ipv6_is_read_as_by_suricata() {
    let mut group = Group::new("ipv6", &OF_ALL);
    for (name, kinds) in EXTENSIONS {
        group.flow(&format!("tcp, {name}"), true, 80, |it| {
            it.extensions = kinds.to_vec();
            it.open();
            exchange(it, 1000, in_order);
            it.end();
        });
        group.flow(&format!("udp, {name}"), true, 53, |it| {
            it.extensions = kinds.to_vec();
            it.datagram(0, QUERY);
        });
        if kinds.contains(&FRAGMENT) {
            continue;
        }
        group.flow(&format!("udp in fragments, {name}"), true, 53, |it| {
            it.extensions = kinds.to_vec();
            let all = it.inner(UDP, &it.udp(0, QUERY));
            it.fragments(0, UDP, all.len(), &pieces(&all, 1));
        });
    }
    group.flow("tcp in fragments", true, 80, |it| {
        it.open();
        let all = it.segment(0, 0, 24, REQUEST);
        it.fragments(0, TCP, all.len(), &pieces(&all, 4));
        it.acknowledge(1, REQUEST.len());
        it.say(1, RESPONSE, 1000, in_order);
        it.end();
    });
    judge(&group);
}

/// Units of fragments, and of segments, that overlap in every way (Shankar and Paxson): where they
/// begin, how many there are. What stands in a unit is its place and the piece that it is of.
const OVERLAPS: [(usize, usize); 9] =
    [(0, 3), (4, 2), (6, 3), (1, 4), (6, 3), (9, 3), (9, 3), (9, 3), (12, 1)];

fn overlapping(unit: usize) -> Vec<(usize, Vec<u8>)> {
    let piece = |(number, (start, count)): (usize, &(usize, usize))| {
        let of = |it: usize| format!("{}{number}", char::from(b'a' + it as u8)).repeat(unit / 2);
        (start * unit, (*start..start + count).map(of).collect::<String>().into_bytes())
    };
    OVERLAPS.iter().enumerate().map(piece).collect()
}

/// A rule for each unit as it may be read.
fn of_units(group: &mut Group, protocol: &str, unit: usize) {
    for place in 0..13_usize {
        for (number, (start, count)) in OVERLAPS.iter().enumerate() {
            if (*start..start + count).contains(&place) {
                let word = format!("{}{number}", char::from(b'a' + place as u8)).repeat(unit / 2);
                let sid = 100 * (place + 1) + number;
                writeln!(
                    group.rules,
                    "alert {protocol} any any -> any any (content:\"{word}\"; sid:{sid};)"
                )
                .unwrap();
            }
        }
    }
}

#[test]
fn fragments_are_put_together_as_by_suricata() {
    let mut group = Group::new("fragments", &OF_ALL);
    for is_six in [false, true] {
        let version = if is_six { 6 } else { 4 };
        for (name, arrange) in ORDERS {
            for units in [1, 2] {
                let name = format!("{units} units, {name}, ip {version}");
                group.flow(&name, is_six, 53, |it| {
                    let all = it.udp(0, QUERY);
                    let all_pieces = pieces(&all, units);
                    let order = arrange((0..all_pieces.len()).collect());
                    let arranged: Vec<_> = order.iter().map(|it| all_pieces[*it]).collect();
                    it.fragments(0, UDP, all.len(), &arranged);
                });
            }
        }
        group.flow(&format!("one missing, ip {version}"), is_six, 53, |it| {
            let all = it.udp(0, QUERY);
            let mut some = pieces(&all, 1);
            some.remove(2);
            it.fragments(0, UDP, all.len(), &some);
        });
        group.flow(&format!("an end before the end, ip {version}"), is_six, 53, |it| {
            let all = it.udp(0, QUERY);
            let mut some = pieces(&all, 2);
            some.push((8 * UNIT, b"behind the end"));
            it.fragments(0, UDP, all.len(), &some);
        });
        group.flow(&format!("the same bytes again, ip {version}"), is_six, 53, |it| {
            let all = it.udp(0, QUERY);
            let some: [Piece<'_>; 4] =
                [(0, &all[..16]), (8, &all[8..24]), (0, &all[..24]), (16, &all[16..])];
            it.fragments(0, UDP, all.len(), &some);
        });
        group.flow(&format!("a segment's header in two, ip {version}"), is_six, 80, |it| {
            it.open();
            let all = it.segment(0, 0, 24, REQUEST);
            it.fragments(0, TCP, all.len(), &pieces(&all, 1));
            it.acknowledge(1, REQUEST.len());
            it.say(1, RESPONSE, 1000, in_order);
            it.end();
        });
    }
    judge(&group);
}

#[test]
fn fragments_that_overlap_are_read_as_by_suricata() {
    let mut group = Group::new("fragments-overlapping", &[]);
    of_units(&mut group, "udp", UNIT);
    for is_six in [false, true] {
        for (system, last) in SYSTEMS.iter().zip(1..) {
            let name = format!("{system}, ip {}", if is_six { 6 } else { 4 });
            group.flow_to(&name, is_six, last, 5000, |it| {
                let mut units = overlapping(UNIT);
                // The datagram's header is the first unit.
                let total = 13 * UNIT;
                units[0].1.splice(..UNIT, it.udp(0, &[b'x'; 12 * UNIT])[..UNIT].to_vec());
                let some: Vec<Piece<'_>> = units.iter().map(|it| (it.0, &it.1[..])).collect();
                it.fragments(0, UDP, total, &some);
            });
        }
    }
    judge(&group);
}

#[test]
fn segments_are_put_together_as_by_suricata() {
    let mut group = Group::new("segments", &OF_ALL);
    for is_six in [false, true] {
        let version = if is_six { 6 } else { 4 };
        for (name, arrange) in ORDERS {
            for cut in [1, 7, 40] {
                let name = format!("{cut} bytes, {name}, ip {version}");
                group.connection(&name, is_six, 80, |it| exchange(it, cut, arrange));
            }
        }
        group.flow(&format!("numbers wrap, ip {version}"), is_six, 80, |it| {
            it.first = [u32::MAX - 20, u32::MAX - 30];
            it.open();
            exchange(it, 9, shuffled);
            it.end();
        });
        group.connection(&format!("a gap that is filled, ip {version}"), is_six, 80, |it| {
            it.put(0, 0, &REQUEST[..10]);
            it.put(0, 30, &REQUEST[30..]);
            it.acknowledge(1, 10);
            it.put(0, 10, &REQUEST[10..30]);
            it.acknowledge(1, REQUEST.len());
            it.say(1, RESPONSE, 1000, in_order);
        });
        group.connection(&format!("a gap in the request, ip {version}"), is_six, 80, |it| {
            it.put(0, 0, &REQUEST[..10]);
            it.put(0, 30, &REQUEST[30..]);
            it.acknowledge(1, REQUEST.len());
            it.say(1, RESPONSE, 1000, in_order);
        });
        group.connection(&format!("a gap in the body, ip {version}"), is_six, 80, |it| {
            it.say(0, REQUEST, 1000, in_order);
            let body = RESPONSE.len() - 11;
            it.put(1, 0, &RESPONSE[..body + 2]);
            it.put(1, body + 5, &RESPONSE[body + 5..]);
            it.acknowledge(0, RESPONSE.len());
        });
        group.connection(&format!("again with other bytes, ip {version}"), is_six, 80, |it| {
            it.say(0, REQUEST, 1000, in_order);
            it.put(0, 0, &REQUEST.to_ascii_uppercase());
            it.say(1, RESPONSE, 1000, in_order);
        });
        group.connection(&format!("longer the second time, ip {version}"), is_six, 80, |it| {
            it.put(0, 0, &REQUEST[..30]);
            it.put(0, 0, &REQUEST[..50]);
            it.put(0, 20, &REQUEST[20..]);
            it.acknowledge(1, REQUEST.len());
            it.say(1, RESPONSE, 1000, in_order);
        });
        group.connection(&format!("no acknowledgment, ip {version}"), is_six, 80, |it| {
            it.put(0, 0, REQUEST);
        });
        group.flow(&format!("from the middle, ip {version}"), is_six, 80, |it| {
            exchange(it, 1000, in_order);
        });
    }
    judge(&group);
}

#[test]
fn segments_that_overlap_are_read_as_by_suricata() {
    let mut group = Group::new("segments-overlapping", &[]);
    of_units(&mut group, "tcp-stream", 4);
    for is_six in [false, true] {
        for (system, last) in SYSTEMS.iter().zip(1..) {
            for has_hole in [true, false] {
                let when = if has_hole { "behind a hole" } else { "at the end" };
                let version = if is_six { 6 } else { 4 };
                let name = format!("{system}, {when}, ip {version}");
                group.flow_to(&name, is_six, last, 5000, |it| {
                    it.open();
                    for (at, data) in overlapping(4) {
                        it.put(0, at + usize::from(has_hole), &data);
                    }
                    if has_hole {
                        it.put(0, 0, b"x");
                    }
                    it.acknowledge(1, 13 * 4 + usize::from(has_hole));
                    it.end();
                });
            }
        }
    }
    judge(&group);
}

/// Rules about bodies, and what says how long they are.
const OF_BODIES: [&str; 8] = [
    "http any any -> any any (flow:to_client; file.data; content:\"sphinx of black quartz\";)",
    "http any any -> any any (flow:to_server; http.request_body; \
     content:\"sphinx of black quartz\";)",
    "http any any -> any any (flow:to_client; http.response_body; content:\"judge my vow\";)",
    "http any any -> any any (flow:to_client; file.data; content:\"sphinx of black quartz\"; \
     content:\"judge my vow\"; distance:0;)",
    "http any any -> any any (http.content_type; content:\"text/plain\";)",
    "http any any -> any any (http.header; content:\"Content-Encoding\";)",
    "http any any -> any any (flow:to_client; file.data; content:\"second answer\";)",
    "http any any -> any any (http.uri; content:\"/second\";)",
];

fn text_of_body() -> Vec<u8> {
    let filler: String = (0..60).map(|it| format!("line {it} of {}\n", it * 7919)).collect();
    format!("{filler}sphinx of black quartz\n{filler}judge my vow\n").into_bytes()
}

fn encodings() -> Vec<(&'static str, Vec<&'static str>, Vec<u8>)> {
    let text = text_of_body();
    let (gz, zlib) = (bodies::gzip(&text), bodies::zlib(&text));
    let chunks = "Transfer-Encoding: chunked";
    let [as_gzip, as_deflate] = ["Content-Encoding: gzip", "Content-Encoding: deflate"];
    vec![
        ("plain", vec![], text.clone()),
        ("gzip", vec![as_gzip], gz.clone()),
        ("x-gzip", vec!["Content-Encoding: x-gzip"], gz.clone()),
        ("deflate", vec![as_deflate], zlib.clone()),
        ("deflate without a header", vec![as_deflate], bodies::raw_deflate(&text)),
        ("chunked", vec![chunks], bodies::chunked(&text, 33, false)),
        ("chunked, extensions", vec![chunks], bodies::chunked(&text, 500, true)),
        ("gzip, chunked", vec![as_gzip, chunks], bodies::chunked(&gz, 19, false)),
        ("deflate, chunked", vec![as_deflate, chunks], bodies::chunked(&zlib, 5, false)),
        ("gzip twice", vec!["Content-Encoding: gzip, gzip"], bodies::gzip(&gz)),
        ("gzip that is none", vec![as_gzip], text.clone()),
        ("gzip that is deflate", vec![as_gzip], zlib.clone()),
        ("deflate that is gzip", vec![as_deflate], gz.clone()),
        ("gzip that ends early", vec![as_gzip], gz[..gz.len() * 19 / 20].to_vec()),
        ("gzip in two members", vec![as_gzip], {
            let (first, second) = text.split_at(text.len() - 20);
            [bodies::gzip(first), bodies::gzip(second)].concat()
        }),
    ]
}

fn with_length(headers: &[&str], body: &[u8]) -> Vec<String> {
    let mut all: Vec<String> = headers.iter().map(|it| (*it).to_owned()).collect();
    all.push("Content-Type: text/plain".to_owned());
    if !headers.iter().any(|it| it.starts_with("Transfer")) {
        all.push(format!("Content-Length: {}", body.len()));
    }
    all
}

fn message(first: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let all = with_length(headers, body);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    bodies::message(first, &all, body)
}

fn second(flow: &mut Flow) {
    let get = bodies::message("GET /second HTTP/1.1", &["Host: a.example"], b"");
    flow.say(0, &get, 1000, in_order);
    flow.say(1, &message("HTTP/1.1 200 OK", &[], b"the second answer"), 1000, in_order);
}

#[test]
fn bodies_are_decoded_as_by_suricata() {
    let mut group = Group::new("bodies", &OF_BODIES);
    let get = bodies::message("GET /first HTTP/1.1", &["Host: a.example"], b"");
    for (name, headers, body) in encodings() {
        for cut in [1400, 11] {
            group.connection(&format!("{name}, {cut} bytes"), false, 80, |it| {
                it.say(0, &get, 1000, in_order);
                it.say(1, &message("HTTP/1.1 200 OK", &headers, &body), cut, in_order);
                second(it);
            });
        }
        group.connection(&format!("{name}, of a request"), false, 80, |it| {
            let mut headers = headers.clone();
            headers.push("Host: a.example");
            it.say(0, &message("POST /first HTTP/1.1", &headers, &body), 90, in_order);
            it.say(1, b"HTTP/1.1 204 No Content\r\n\r\n", 90, in_order);
            second(it);
        });
    }
    judge(&group);
}

const OF_HTTP2: [&str; 16] = [
    "http any any -> any any (http.uri; content:\"/alpha\";)",
    "http any any -> any any (http.uri; content:\"/beta\";)",
    "http any any -> any any (http.host; content:\"www.example.com\";)",
    "http2 any any -> any any (http.header; content:\"custom-key|3a 20|custom-value\";)",
    "http2 any any -> any any (http2.header_name; content:\"custom-key\";)",
    "http any any -> any any (flow:to_client; file.data; content:\"sphinx of black quartz\";)",
    "http any any -> any any (flow:to_server; http.request_body; \
     content:\"sphinx of black quartz\";)",
    "http2 any any -> any any (http2.frametype:GOAWAY;)",
    "http2 any any -> any any (http2.frametype:CONTINUATION;)",
    "http2 any any -> any any (http2.errorcode:NO_ERROR;)",
    "http2 any any -> any any (http2.settings:SETTINGS_MAX_CONCURRENT_STREAMS > 50;)",
    "http2 any any -> any any (http2.window:>1000;)",
    "http2 any any -> any any (http2.priority:>10;)",
    "http any any -> any any (http.stat_code; content:\"200\";)",
    "http any any -> any any (http.method; content:\"POST\";)",
    "http any any -> any any (flow:to_client; file.data; content:\"judge my vow\";)",
];

/// A connection's bytes of both sides.
type Spoken = (Vec<u8>, Vec<u8>);

fn spoken(requests: &[Vec<u8>], answers: &[Vec<u8>]) -> Spoken {
    ([http2::beginning(), requests.concat()].concat(), [http2::answer(), answers.concat()].concat())
}

/// A connection's bytes of both sides by what is special in them.
type Connections = Vec<(&'static str, Spoken)>;

const HOST: &str = "www.example.com";

fn ok(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &[0x88])
}

fn data(stream: u32, data: &[u8]) -> Vec<u8> {
    frame(DATA, END_STREAM, stream, data)
}

fn request(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &http2::get(path, HOST))
}

/// Connections of HTTP/2 that differ in how their headers come.
fn http2_headers() -> Connections {
    let both = END_HEADERS | END_STREAM;
    let text = text_of_body();
    let [host, key] = [http2::indexed(1, http2::HOST), literal(true, http2::KEY, http2::VALUE)];
    let coded = [&[0x82, 0x86, 0x84][..], &host, &key].concat();
    let custom = [http2::get("/alpha", HOST), literal(false, b"custom-key", b"custom-value")];
    let custom = custom.concat();
    let (begin, end) = custom.split_at(9);
    let padded = |bytes: &[u8]| [&[5], bytes, &[0; 5]].concat();
    let prioritised = |bytes: &[u8]| [&[0, 0, 0, 0, 200], bytes].concat();
    vec![
        ("literal", spoken(&[request(1, "/alpha")], &[ok(1), data(1, &text)])),
        ("coded", spoken(&[frame(HEADERS, both, 1, &coded)], &[ok(1), data(1, &text)])),
        ("of the dynamic table", {
            let again = [0x82, 0x86, 0x84, 0xbe, 0xbf];
            let requests = [frame(HEADERS, both, 1, &coded), frame(HEADERS, both, 3, &again)];
            spoken(&requests, &[ok(1), data(1, b"a"), ok(3), data(3, &text)])
        }),
        ("continued", {
            let requests = [
                frame(HEADERS, END_STREAM, 1, begin),
                frame(CONTINUATION, 0, 1, &end[..7]),
                frame(CONTINUATION, END_HEADERS, 1, &end[7..]),
            ];
            spoken(&requests, &[ok(1), data(1, &text)])
        }),
        ("padded, with priority", {
            let block = padded(&prioritised(&custom));
            let requests = [
                frame(HEADERS, both | PADDED | PRIORITISED, 1, &block),
                frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 99]),
            ];
            spoken(&requests, &[ok(1), frame(DATA, END_STREAM | PADDED, 1, &padded(&text))])
        }),
        ("headers behind the body", {
            let behind = literal(false, b"custom-key", b"custom-value");
            let answers = [ok(1), frame(DATA, 0, 1, &text), frame(HEADERS, both, 1, &behind)];
            spoken(&[request(1, "/alpha")], &answers)
        }),
    ]
}

/// Connections of HTTP/2 that differ in their bodies and other frames.
fn http2_bodies() -> Connections {
    let both = END_HEADERS | END_STREAM;
    let text = text_of_body();
    let half = text.len() / 2;
    let gzipped = [&[0x88], named(26, b"gzip").as_slice()].concat();
    let [path, host] = [named(4, b"/alpha"), named(1, HOST.as_bytes())];
    let post = [&[0x83, 0x86], path.as_slice(), &host].concat();
    vec![
        ("two streams, mixed", {
            let requests = [request(1, "/alpha"), request(3, "/beta")];
            let answers = [
                ok(3),
                ok(1),
                frame(DATA, 0, 1, &text[..half]),
                frame(DATA, 0, 3, b"some"),
                data(1, &text[half..]),
                data(3, b" other"),
            ];
            spoken(&requests, &answers)
        }),
        ("gzip", {
            let answers = [frame(HEADERS, END_HEADERS, 1, &gzipped), data(1, &bodies::gzip(&text))];
            spoken(&[request(1, "/alpha")], &answers)
        }),
        ("gzip in pieces", {
            let body = bodies::gzip(&text);
            let mut answers = vec![frame(HEADERS, END_HEADERS, 1, &gzipped)];
            answers.extend(body.chunks(20).map(|it| frame(DATA, 0, 1, it)));
            answers.push(data(1, b""));
            spoken(&[request(1, "/alpha")], &answers)
        }),
        ("a body of a request", {
            let requests = [frame(HEADERS, END_HEADERS, 1, &post), data(1, &text)];
            spoken(&requests, &[frame(HEADERS, both, 1, &[0x88])])
        }),
        ("other frames", {
            let requests = [
                frame(PING, 0, 0, &[7; 8]),
                frame(WINDOW, 0, 0, &[0, 1, 0, 0]),
                request(1, "/alpha"),
                frame(RESET, 0, 1, &[0, 0, 0, 8]),
                frame(0x77, 0, 0, b"unknown"),
                request(3, "/beta"),
            ];
            let answers = [ok(3), data(3, &text), frame(GO_AWAY, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0])];
            spoken(&requests, &answers)
        }),
    ]
}

fn http2_connections() -> Connections {
    [http2_headers(), http2_bodies()].concat()
}

#[test]
fn http2_is_read_as_by_suricata() {
    let mut group = Group::new("http2", &OF_HTTP2);
    for (name, (client, server)) in http2_connections() {
        for cut in [1400, 13, 1] {
            // A byte a segment only of what is short.
            if cut == 1 && client.len() + server.len() > 3000 {
                continue;
            }
            group.connection(&format!("{name}, {cut} bytes"), false, 80, |it| {
                it.say(0, &client, cut, in_order);
                it.say(1, &server, cut, in_order);
            });
        }
    }
    judge(&group);
}

#[test]
fn several_of_these_at_once_are_read_as_by_suricata() {
    let rules = [OF_BODIES.as_slice(), &OF_HTTP2, &OF_ALL].concat();
    let mut group = Group::new("together", &rules);
    let get = bodies::message("GET /first HTTP/1.1", &["Host: a.example"], b"");
    let kinds = [HOP_BY_HOP, DESTINATION];
    for (name, headers, body) in encodings().into_iter().filter(|it| it.0.contains("gzip")) {
        group.connection(&format!("{name}, IPv6, disorder"), true, 8080, |it| {
            it.extensions = kinds.to_vec();
            it.say(0, &get, 10, shuffled);
            it.say(1, &message("HTTP/1.1 200 OK", &headers, &body), 30, shuffled);
            second(it);
        });
    }
    for (name, (client, server)) in http2_connections() {
        group.connection(&format!("HTTP/2 {name}, IPv6, disorder"), true, 8080, |it| {
            it.extensions = kinds.to_vec();
            it.say(0, &client, 40, shuffled);
            it.say(1, &server, 40, shuffled);
        });
    }
    let body = bodies::chunked(&bodies::gzip(&text_of_body()), 25, false);
    let headers = ["Content-Encoding: gzip", "Transfer-Encoding: chunked"];
    let answer = message("HTTP/1.1 200 OK", &headers, &body);
    group.connection("segments in fragments, IPv6, gzip, chunked", true, 80, |it| {
        it.extensions = kinds.to_vec();
        it.say(0, &get, 1000, in_order);
        for (index, piece) in answer.chunks(100).enumerate() {
            let all = it.inner(TCP, &it.segment(1, index as isize * 100, 24, piece));
            let mut pieces = pieces(&all, 5);
            pieces.reverse();
            it.fragments(1, TCP, all.len(), &pieces);
        }
        it.acknowledge(0, answer.len());
    });
    group.connection("overlapping, disorder, gzip, chunked", false, 80, |it| {
        it.say(0, &get, 1000, in_order);
        for start in (0..answer.len()).step_by(40).collect::<Vec<_>>().into_iter().rev() {
            it.put(1, start, &answer[start..answer.len().min(start + 70)]);
        }
        it.acknowledge(0, answer.len());
    });
    group.connection("a gap, IPv6, gzip, chunked", true, 80, |it| {
        it.say(0, &get, 1000, in_order);
        it.put(1, 0, &answer[..200]);
        it.put(1, 230, &answer[230..]);
        it.acknowledge(0, answer.len());
        second(it);
    });
    judge(&group);
}
