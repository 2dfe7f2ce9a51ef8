//! What is said of a segment in each state of a TCP connection, judged by Suricata 8.0.7: stream
//! events, and how far the connection is afterwards.
//!
//! Each probe is a connection of its own: the segments that lead to a state, and one more, of
//! either side, with all flags that are usual, before, at and behind its place.
//! `testdata/judged/states.tsv` has Suricata's answers. Where Suricata is installed it is asked
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::applications::{suricata_with, write_capture_every};
use crate::verify::verified;

/// The states, and the segments that lead there: `>` is the client's and `<` the server's, then
/// its flags and how many bytes it has. With `-` it does not acknowledge the last number of the
/// other side, which is a FIN's.
const STATES: [(&str, &str); 24] = [
    ("a SYN", ">S"),
    ("an answered SYN", ">S <SA"),
    ("FIN for the last ACK", ">S <SA >FA"),
    ("handshake", ">S <SA >A"),
    ("established", ">S <SA >A >PA53 <PA51 >A"),
    ("client's FIN", ">S <SA >A >PA53 <PA51 >A >FA"),
    ("client's FIN with data", ">S <SA >A >PA53 <PA51 >A >FPA7"),
    ("client's FIN, ACK", ">S <SA >A >PA53 <PA51 >A >FA <A"),
    ("client's FIN, server's", ">S <SA >A >PA53 <PA51 >A >FA <FA"),
    ("client's FIN, ACK, server's", ">S <SA >A >PA53 <PA51 >A >FA <A <FA"),
    ("server's FIN", ">S <SA >A >PA53 <PA51 >A <FA"),
    ("server's FIN with data", ">S <SA >A >PA53 <PA51 >A <FPA7"),
    ("server's FIN, ACK", ">S <SA >A >PA53 <PA51 >A <FA >A"),
    ("server's FIN, client's", ">S <SA >A >PA53 <PA51 >A <FA >FA"),
    ("server's FIN, ACK, client's", ">S <SA >A >PA53 <PA51 >A <FA >A >FA"),
    ("server's FIN, client's without ACK", ">S <SA >A >PA53 <PA51 >A <FA >F"),
    ("both FINs crossed", ">S <SA >A >PA53 <PA51 >A <FA >FA-"),
    ("closed", ">S <SA >A >PA53 <PA51 >A <FA >FA <A"),
    ("reset", ">S <SA >A >PA53 <PA51 >A >R"),
    ("both SYNs crossed", ">S <S"),
    ("crossed, client answers", ">S <S >SA"),
    ("crossed, server answers", ">S <S <SA"),
    ("crossed, both answer, ACK", ">S <S >SA <SA >A"),
    ("midstream", ">PA53 <PA51"),
];

/// The segments of the probes, of either side.
const PROBES: [&str; 9] = ["A", "PA5", "FA", "FPA5", "F", "R", "RA", "S", "SA"];
/// Where they stand, from the next number of their side, and what they acknowledge, from the next
/// of the other.
const SEQUENCES: [i32; 7] = [-60, -5, -1, 0, 1, 64_999, 65_001];
const ACKNOWLEDGMENTS: [i32; 5] = [-60, -1, 0, 1, 65_001];

/// Stream events that tell of a connection's life. Others are of bytes that come again or never.
const EVENTS: &str = "fin_syn pkt_broken_ack pkt_bad_window_update rst_but_no_session \
    rst_with_data fin_but_no_session 3whs_syn_flood 3whs_synack_flood \
    3whs_synack_tfo_data_ignored 3whs_synack_in_wrong_direction 3whs_synack_with_wrong_ack \
    3whs_synack_toserver_on_syn_recv 3whs_synack_resend_with_diff_ack \
    3whs_synack_resend_with_diff_seq 3whs_ack_data_inject 3whs_async_wrong_seq \
    3whs_syn_toclient_on_syn_recv 3whs_syn_resend_diff_seq_on_syn_recv 3whs_ack_in_wrong_dir \
    3whs_right_seq_wrong_ack_evasion 3whs_wrong_seq_wrong_ack 4whs_synack_with_wrong_ack \
    4whs_synack_with_wrong_syn 4whs_wrong_seq 4whs_invalid_ack est_synack_toserver \
    est_synack_resend_with_diff_ack est_synack_resend_with_diff_seq est_synack_resend \
    est_syn_toclient est_syn_resend_diff_seq est_syn_resend est_pkt_before_last_ack \
    est_invalid_ack est_packet_out_of_window pkt_invalid_ack rst_invalid_ack fin_invalid_ack \
    fin_out_of_window fin1_fin_wrong_seq fin1_ack_wrong_seq fin1_invalid_ack fin2_fin_wrong_seq \
    fin2_ack_wrong_seq fin2_invalid_ack closewait_fin_out_of_window closewait_ack_out_of_window \
    closewait_invalid_ack closewait_pkt_before_last_ack lastack_ack_wrong_seq lastack_invalid_ack \
    closing_ack_wrong_seq closing_invalid_ack timewait_ack_wrong_seq timewait_invalid_ack \
    shutdown_syn_resend suspected_rst_inject";

/// A test of suricata-verify's format that keeps the events.
const TEST: &str = "args: [-k none]\nchecks:\n- shell:\n    args: cp eve.json $TEST_DIR\n";

const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;
/// The first numbers of client and server.
const FIRST: [u32; 2] = [1000, 5000];
/// What they say.
const SAID: [&[u8]; 2] = [
    b"GET /abc HTTP/1.1\r\nHost: a.example\r\nUser-Agent: u\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nhello world!",
];
const WINDOW: u16 = 65_000;
/// The first client's address.
const CLIENTS: u32 = 10 << 24 | 1;
/// Packets come so far apart: all before anything is over for its age.
const APART_US: u64 = 20;

/// What a segment is, as [`STATES`] spells it.
struct Segment {
    side: usize,
    flags: u8,
    length: usize,
}

impl Segment {
    fn of(text: &str) -> Self {
        let flag = |it: char| "FSRPA".find(it).map_or(0, |place| 1 << place);
        let digits: String = text.chars().filter(char::is_ascii_digit).collect();
        Self {
            side: usize::from(text.starts_with('<')),
            flags: text.chars().map(flag).sum(),
            length: digits.parse().unwrap_or(0),
        }
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Its frame, of that client, with these numbers.
    fn frame(&self, client: u32, sequence: u32, seen: u32) -> Vec<u8> {
        let mut ends = [client, u32::from(Ipv4Addr::new(192, 168, 0, 2))].map(u32::to_be_bytes);
        let mut ports = [4000_u16, 80].map(u16::to_be_bytes);
        ends.rotate_left(self.side);
        ports.rotate_left(self.side);
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
        frame.extend((40 + self.length as u16).to_be_bytes());
        frame.extend([0, 1, 0, 0, 64, 6, 0, 0]);
        frame.extend(ends.concat());
        frame.extend(ports.concat());
        frame.extend(sequence.to_be_bytes());
        frame.extend(if self.has(ACK) { seen } else { 0 }.to_be_bytes());
        frame.extend([0x50, self.flags]);
        frame.extend(WINDOW.to_be_bytes());
        frame.extend([0; 4]);
        let first = sequence.wrapping_sub(FIRST[self.side] + 1) as usize;
        let byte = |it| SAID[self.side].get(first.wrapping_add(it)).unwrap_or(&b'x');
        frame.extend((0..self.length).map(byte));
        frame
    }
}

/// Adds the segments that lead to a state; the number that is next of each side then.
fn lead(client: u32, segments: &str, frames: &mut Vec<Vec<u8>>) -> [u32; 2] {
    let mut next = FIRST.map(|it| it + 1);
    for text in segments.split(' ') {
        let segment = Segment::of(text);
        let side = segment.side;
        let sequence = if segment.has(SYN) { FIRST[side] } else { next[side] };
        let seen = next[1 - side] - u32::from(text.ends_with('-'));
        frames.push(segment.frame(client, sequence, seen));
        next[side] += segment.length as u32 + u32::from(segment.has(FIN));
    }
    next
}

/// The segments of a state's probes, as they are spelled.
fn segments() -> impl Iterator<Item = String> {
    [">", "<"].into_iter().flat_map(|side| PROBES.map(|it| format!("{side}{it}")))
}

/// How far a segment's numbers are from those that are next: one probe each.
fn distances(segment: &str) -> Vec<[i32; 2]> {
    let seen = if segment.contains('A') { ACKNOWLEDGMENTS.as_slice() } else { &[0] };
    SEQUENCES.iter().flat_map(|at| seen.iter().map(|it| [*at, *it])).collect()
}

/// The frames of a state's probes, and the number of each probe's last packet.
fn probes(lead_in: &str) -> (Vec<Vec<u8>>, Vec<u64>) {
    let (mut frames, mut packets) = (Vec::new(), Vec::new());
    for text in segments() {
        let segment = Segment::of(&text);
        for [at, seen] in distances(&text) {
            let client = CLIENTS + packets.len() as u32;
            let next = lead(client, lead_in, &mut frames);
            let at = next[segment.side].wrapping_add_signed(at);
            let seen = next[1 - segment.side].wrapping_add_signed(seen);
            frames.push(segment.frame(client, at, seen));
            packets.push(frames.len() as u64);
        }
    }
    (frames, packets)
}

/// What is said of the probes with each segment, in the order of their [`distances`].
type Answers = BTreeMap<String, Vec<String>>;

/// What EVE says: how far each connection is in the end, and the rules that its last packet
/// matches. A `<` is before a connection whose client is the server here.
fn told(eve: &str, packets: &[u64]) -> Answers {
    let mut states = vec![BTreeSet::new(); packets.len()];
    let mut matches: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for line in eve.lines() {
        let event: Value = serde_json::from_str(line).expect("EVE");
        match event["event_type"].as_str() {
            Some("flow") => {}
            Some("alert") => {
                let packet = event["pcap_cnt"].as_u64().expect("a packet's number");
                let name = event["alert"]["signature"].as_str().expect("a name");
                matches.entry(packet).or_default().insert(name.to_owned());
                continue;
            }
            _ => continue,
        }
        let [from, to] = ["src_ip", "dest_ip"].map(|it| {
            let address: Ipv4Addr = event[it].as_str().expect("an address").parse().unwrap();
            u32::from(address)
        });
        let state = event["tcp"]["state"].as_str().unwrap_or("none");
        let turned = if from < to { "" } else { "<" };
        states[(from.min(to) - CLIENTS) as usize].insert(format!("{turned}{state}"));
    }
    let mut answers = states.into_iter().zip(packets).map(|(states, packet)| {
        let matches = matches.remove(packet).unwrap_or_default();
        states.into_iter().chain(matches).collect::<Vec<String>>().join(" ")
    });
    let of = |it: String| (it.clone(), answers.by_ref().take(distances(&it).len()).collect());
    segments().map(of).collect()
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/judged/states.tsv")
}

/// The answers that are kept of a state.
fn kept(state: &str) -> Answers {
    let mut kept = Answers::new();
    for line in fs::read_to_string(file()).unwrap_or_default().lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        if let [_, segment, grid, answers @ ..] = fields.as_slice()
            && fields[0] == state
        {
            let letters = grid.bytes().filter(|it| *it != b' ');
            let answer = |it: u8| answers[usize::from(it - b'a')].to_owned();
            kept.insert((*segment).to_owned(), letters.map(answer).collect());
        }
    }
    kept
}

/// Answers as they are kept: a letter for each probe, a word of letters for each place of the
/// segment, and what the letters stand for.
fn line(state: &str, segment: &str, answers: &[String]) -> String {
    let (mut grid, mut different) = (String::new(), Vec::new());
    let row = answers.len() / SEQUENCES.len();
    for (place, answer) in answers.iter().enumerate() {
        if place > 0 && place % row == 0 {
            grid.push(' ');
        }
        let letter = different.iter().position(|it| *it == answer).unwrap_or(different.len());
        if letter == different.len() {
            different.push(answer);
        }
        grid.push(char::from(b'a' + letter as u8));
    }
    let mut line = format!("{state}\t{segment}\t{grid}");
    different.iter().for_each(|it| write!(line, "\t{it}").unwrap());
    line
}

/// The lines that differ from what is wanted; the first probe of each that does is told.
fn differing(who: &str, state: &str, found: &Answers, wanted: &Answers) -> Vec<String> {
    let none = Vec::new();
    let mut lines = Vec::new();
    for segment in segments() {
        let (found, wanted) = (&found[&segment], wanted.get(&segment).unwrap_or(&none));
        let mut places = 0..found.len();
        if let Some(place) = places.find(|it| wanted.get(*it) != Some(&found[*it])) {
            let [at, seen] = distances(&segment)[place];
            let wanted = wanted.get(place).map_or("", String::as_str);
            let probe = format!("{segment} at {at:+}, acknowledging {seen:+}");
            eprintln!("{who}: {state}, {probe}: {:?}, not {wanted:?}", found[place]);
            lines.push(line(state, &segment, found));
        }
    }
    lines
}

/// The rules: one for each event, one of connections that are established, and one that asks for
/// bytes. Where none does, Suricata forgets at once what was acknowledged, and looks no further at
/// a segment from there.
fn rules() -> String {
    let mut rules = String::new();
    let events = EVENTS.split_whitespace().map(|it| (it, format!("stream-event:{it}")));
    let others = [("flow", "flow:established"), ("content", "content:\"never said\"")];
    let others = others.map(|(name, what)| (name, what.to_owned()));
    for ((name, what), sid) in events.chain(others).zip(1..) {
        let message = format!("msg:\"{name}\"; {what}; sid:{sid};");
        writeln!(rules, "alert tcp any any -> any any ({message})").unwrap();
    }
    rules
}

/// What both are asked with: flows besides alerts, and connections that nobody saw begin.
fn configuration(lead_in: &str) -> String {
    let yaml = fs::read_to_string(file().with_file_name("suricata.yaml")).unwrap();
    let yaml = yaml.replace("types: [alert]", "types: [alert, flow]");
    let is_midstream = !lead_in.contains('S');
    yaml.replace("stream:\n", &format!("stream:\n  midstream: {is_midstream}\n"))
}

fn ours(scratch: &Path, packets: &[u64]) -> Answers {
    fs::write(scratch.join("test.yaml"), TEST).unwrap();
    let report = verified(scratch);
    assert_eq!(report["passed"], 1, "{report:#}");
    told(&fs::read_to_string(scratch.join("eve.json")).unwrap(), packets)
}

#[test]
fn segments_in_each_state_are_judged_as_by_suricata() {
    let [mut of_suricata, mut of_weir] = [Vec::new(), Vec::new()];
    for (state, lead_in) in STATES {
        let scratch = tempfile::tempdir().unwrap();
        let (frames, packets) = probes(lead_in);
        let (capture, yaml) = (scratch.path().join("in.pcap"), configuration(lead_in));
        write_capture_every(APART_US, &capture, &frames);
        fs::write(scratch.path().join("test.rules"), rules()).unwrap();
        fs::write(scratch.path().join("suricata.yaml"), &yaml).unwrap();
        let wanted = kept(state);
        if let Some(eve) = suricata_with("judged-states", &yaml, &rules(), &capture) {
            of_suricata.extend(differing("Suricata", state, &told(&eve, &packets), &wanted));
        }
        of_weir.extend(differing("weir", state, &ours(scratch.path(), &packets), &wanted));
    }
    let [theirs, ours] = [of_suricata, of_weir].map(|it| it.join("\n"));
    assert!(theirs.is_empty() && ours.is_empty(), "Suricata:\n{theirs}\nweir:\n{ours}");
}
