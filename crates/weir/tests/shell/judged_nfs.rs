//! What is told of NFS 2 to 4 over TCP, judged by Suricata 8.0.7: each procedure of version 3 and
//! the operations of version 4, with each kind of answer, messages that are cut, and files that are
//! read and written in pieces in any order.
//!
//! Each case is a connection; `testdata/judged/nfs.tsv` has Suricata's answers. Where Suricata is
//! installed it is asked again.

mod wire;

use serde_json::Value;

use crate::judged_conversations::judge;
use wire::{
    call, compound, failed, line, numbers, opaque, operation, record, reply, reply_of, results,
    wide,
};

/// Handles of files and of a folder.
const FILE: &[u8] = b"handle-of-file-1";
const OTHER: &[u8] = b"other-file-handl";
const FOLDER: &[u8] = b"handle-of-dir-00";
const READ: u32 = 6;
const WRITE: u32 = 7;
/// Pieces of a file: where they begin, and how many bytes they have.
const PIECES: [&[(u64, usize)]; 10] = [
    &[(0, 4)],
    &[(0, 4), (4, 8), (12, 4)],
    &[(0, 4), (12, 4), (4, 8)],
    &[(12, 4), (4, 8), (0, 4)],
    &[(0, 4), (8, 4)],
    &[(8, 4)],
    &[(0, 4), (0, 4)],
    &[(0, 0)],
    &[(0, 4), (4, 0)],
    &[(0, 4), (4, 5)],
];
const DATA: &[u8] = b"what is moved here";

const YAML: &str = "%YAML 1.1
---
outputs:
  - eve-log:
      enabled: yes
      filetype: regular
      filename: eve.json
      types: [{anomaly: {enabled: yes, types: {applayer: yes}}}, nfs, {files: {force-hash: [md5]}}]
";

/// Calls and answers of a connection.
#[derive(Clone, Default)]
struct Talk(String);

impl Talk {
    fn say(&mut self, side: usize, message: &[u8]) {
        self.0.push_str(&line(side, &record(message)));
    }

    /// A call of version 3 and its answer.
    fn ask(&mut self, number: u32, procedure: u32, asked: &[u8], answer: Option<&[u8]>) {
        self.say(0, &call(number, 3, procedure, asked));
        if let Some(answer) = answer {
            self.say(1, &reply(number, answer));
        }
    }

    /// One that has looked up a file.
    fn found() -> Self {
        let mut talk = Self::default();
        talk.ask(
            1,
            3,
            &named("a.txt"),
            Some(&[&numbers(&[0])[..], &opaque(FILE), &none(2)].concat()),
        );
        talk
    }

    /// A compound and its answer.
    fn ask_at_once(&mut self, number: u32, asked: &[Vec<u8>], told: &[Vec<u8>], status: u32) {
        self.say(0, &call(number, 4, 1, &compound(asked)));
        self.say(1, &reply(number, &results(told, status)));
    }
}

/// Attributes that are not there.
fn none(count: usize) -> Vec<u8> {
    numbers(&vec![0; count])
}

fn attributes() -> Vec<u8> {
    [numbers(&[1, 1, 0o644, 1, 0, 0]), vec![0; 64]].concat()
}

fn named(name: &str) -> Vec<u8> {
    [opaque(FOLDER), opaque(name.as_bytes())].concat()
}

/// What each procedure of version 3 asks, and answers behind its status.
fn procedures() -> Vec<(u32, Vec<u8>, Vec<u8>)> {
    let facts = attributes();
    let both = [&none(1)[..], &facts].concat();
    let made = [&numbers(&[1])[..], &opaque(OTHER), &facts, &both].concat();
    let modes = numbers(&[1, 0o644, 0, 0, 0, 0, 0]);
    let file = opaque(FILE);
    let at = [wide(0), numbers(&[4096])].concat();
    let entry = [&wide(11)[..], &opaque(b"a.txt"), &wide(1)].concat();
    let end = numbers(&[0, 1]);
    let with = |first: &[u8], rest: &[&[u8]]| [first, &rest.concat()].concat();
    vec![
        (0, Vec::new(), Vec::new()),
        (1, file.clone(), facts[4..].to_vec()),
        (2, with(&file, &[&modes, &none(1)]), both.clone()),
        (3, named("a.txt"), with(&file, &[&facts, &facts])),
        (4, with(&file, &[&numbers(&[31])]), with(&facts, &[&numbers(&[31])])),
        (5, file.clone(), with(&facts, &[&opaque(b"/target")])),
        (READ, with(&file, &[&at]), with(&facts, &[&numbers(&[10, 1]), &opaque(b"file data!")])),
        (
            WRITE,
            with(&file, &[&wide(0), &numbers(&[10, 2]), &opaque(b"file data!")]),
            with(&both, &[&numbers(&[10, 2]), &wide(9)]),
        ),
        (8, with(&named("new.txt"), &[&none(1), &modes]), made.clone()),
        (9, with(&named("newdir"), &[&modes]), made.clone()),
        (10, with(&named("sym"), &[&modes, &opaque(b"/to")]), made.clone()),
        (11, with(&named("node"), &[&numbers(&[7]), &modes]), made),
        (12, named("gone.txt"), both.clone()),
        (13, named("gonedir"), both.clone()),
        (14, with(&named("from.txt"), &[&named("to.txt")]), with(&both, &[&both])),
        (15, with(&file, &[&named("link.txt")]), with(&facts, &[&both])),
        (
            16,
            with(&opaque(FOLDER), &[&wide(0), &at]),
            with(&facts, &[&wide(0), &numbers(&[1]), &entry, &end]),
        ),
        (
            17,
            with(&opaque(FOLDER), &[&wide(0), &at, &numbers(&[8192])]),
            with(&facts, &[&wide(0), &numbers(&[1]), &entry, &facts, &numbers(&[1]), &file, &end]),
        ),
        (18, opaque(FOLDER), with(&facts, &[&[0; 52]])),
        (19, opaque(FOLDER), with(&facts, &[&[0; 48]])),
        (20, opaque(FOLDER), with(&facts, &[&[0; 24]])),
        (21, with(&file, &[&at]), with(&both, &[&wide(9)])),
    ]
}

type Cases = Vec<(String, String)>;

/// Each procedure, with each kind of answer, and behind others.
fn third(cases: &mut Cases) {
    for (procedure, asked, answer) in procedures() {
        let success = match procedure {
            0 => Vec::new(),
            _ => [&numbers(&[0])[..], &answer].concat(),
        };
        let errors = [2, 13, 70, 10_004, 12_345].map(|it| numbers(&[it, 0, 0]));
        let mut answers = vec![("none", None), ("success", Some(success.clone()))];
        answers.extend(errors.map(|it| ("error", Some(it))));
        for (place, (name, answer)) in answers.iter().enumerate() {
            let mut talk = Talk::default();
            talk.ask(9, procedure, &asked, answer.as_deref());
            cases.push((format!("{procedure} {name} {place}"), talk.0));
        }
        for (name, times) in [("twice", [9, 10]), ("again", [9, 9])] {
            let mut talk = Talk::default();
            times.iter().for_each(|it| talk.ask(*it, procedure, &asked, Some(&success)));
            cases.push((format!("{procedure} {name}"), talk.0));
        }
        let mut talk = Talk::found();
        talk.ask(9, procedure, &asked, Some(&success));
        cases.push((format!("{procedure} of a file that was looked up"), talk.0));
        let mut talk = Talk::default();
        let (_, folder, entries) = procedures().remove(17);
        talk.ask(3, 17, &folder, Some(&[&numbers(&[0])[..], &entries].concat()));
        talk.ask(9, procedure, &asked, Some(&success));
        cases.push((format!("{procedure} of a file in a folder"), talk.0));
    }
}

/// Files in pieces, in version 3.
fn pieces(cases: &mut Cases) {
    let file = opaque(FILE);
    let kept = |talk: &mut Talk, number: u32| {
        let asked = [&file[..], &wide(0), &numbers(&[0])].concat();
        talk.ask(number, 21, &asked, Some(&numbers(&[0, 0, 0, 0, 9])));
    };
    for pieces in PIECES {
        for (stable, ends) in [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1)] {
            for begun in [Talk::default(), Talk::found()] {
                let mut talk = begun.clone();
                for (number, (at, length)) in (10..).zip(pieces) {
                    let place = [wide(*at), numbers(&[*length as u32, stable])].concat();
                    let asked = [&file[..], &place, &opaque(&DATA[..*length])].concat();
                    let told = numbers(&[0, 0, 0, *length as u32, stable, 0, 9]);
                    talk.ask(number, WRITE, &asked, Some(&told));
                }
                (0..ends).for_each(|it| kept(&mut talk, 30 + it));
                let name = if begun.0.is_empty() { "no name" } else { "named" };
                cases.push((format!("written {pieces:?} {stable} {ends} {name}"), talk.0));
            }
        }
        for last in [0, 1, 2] {
            for begun in [Talk::default(), Talk::found()] {
                let mut talk = begun.clone();
                for (number, (at, length)) in (10..).zip(pieces) {
                    let is_last = last == 2 || last == 1 && number as usize == 9 + pieces.len();
                    let asked = [&file[..], &wide(*at), &numbers(&[*length as u32])].concat();
                    let head = numbers(&[0, 0, *length as u32, is_last.into()]);
                    let told = [&head[..], &opaque(&DATA[..*length])].concat();
                    talk.ask(number, READ, &asked, Some(&told));
                }
                let name = if begun.0.is_empty() { "no name" } else { "named" };
                cases.push((format!("read {pieces:?} {last} {name}"), talk.0));
            }
        }
    }
}

/// What stands for a file that is open.
fn state() -> Vec<u8> {
    [&numbers(&[1])[..], b"stateid-0123"].concat()
}

/// What operations of version 4 ask, by their numbers, and answer.
fn operations() -> [(&'static str, u32, Vec<u8>, Vec<u8>); 12] {
    let state = state();
    let facts = [&numbers(&[2, 0x18, 0x30])[..], &opaque(b"attributes......")].concat();
    let change = numbers(&[1, 0, 1, 0, 2]);
    let map = numbers(&[2, 0x18, 0x30]);
    let with = |parts: &[&[u8]]| parts.concat();
    let open = with(&[&numbers(&[0, 1, 0, 0, 9]), &opaque(b"who."), &none(2), &opaque(b"o.txt")]);
    let opened = with(&[&state, &change, &numbers(&[2]), &map, &none(1)]);
    [
        ("access", 3, numbers(&[31]), numbers(&[31, 31])),
        ("close", 4, with(&[&numbers(&[5]), &state]), state.clone()),
        ("commit", 5, numbers(&[0, 0, 0]), wide(7)),
        ("create", 6, with(&[&numbers(&[2]), &opaque(b"newdir"), &facts]), with(&[&change, &map])),
        ("getattr", 9, map, facts),
        ("getfh", 10, Vec::new(), opaque(FILE)),
        ("lookup", 15, opaque(b"a.txt"), Vec::new()),
        ("open", 18, open, opened),
        (
            "read",
            25,
            with(&[&state, &wide(0), &numbers(&[64])]),
            with(&[&numbers(&[1]), &opaque(b"data")]),
        ),
        ("remove", 28, opaque(b"gone.txt"), change.clone()),
        ("rename", 29, with(&[&opaque(b"from"), &opaque(b"to")]), with(&[&change, &change])),
        (
            "write",
            38,
            with(&[&state, &wide(0), &numbers(&[2]), &opaque(b"data")]),
            numbers(&[4, 2, 0, 8]),
        ),
    ]
}

/// Each operation of version 4, with each kind of answer.
fn fourth(cases: &mut Cases) {
    let put = operation(22, &opaque(FILE));
    let [_, _, _, _, (_, _, map, facts), ..] = operations();
    for (name, number, arguments, told) in &operations() {
        let (asks, told) = (operation(*number, arguments), failed(*number, 0, told));
        let first = failed(22, 0, &[]);
        let answers = [("success", told.clone(), 0), ("error", failed(*number, 2, &[]), 2)];
        for (kind, told, status) in answers {
            let mut talk = Talk::default();
            talk.ask_at_once(9, &[put.clone(), asks.clone()], &[first.clone(), told], status);
            cases.push((format!("{name} {kind}"), talk.0));
        }
        let mut talk = Talk::default();
        talk.say(0, &call(9, 4, 1, &compound(&[put.clone(), asks.clone()])));
        cases.push((format!("{name} none"), talk.0));
        let get = [operation(9, &map), failed(9, 0, &facts)];
        let mut talk = Talk::default();
        let all = [first.clone(), told.clone(), get[1].clone()];
        talk.ask_at_once(9, &[put.clone(), asks.clone(), get[0].clone()], &all, 0);
        cases.push((format!("{name} and attributes"), talk.0));
    }
}

/// Files in pieces, in version 4.
fn fourth_pieces(cases: &mut Cases) {
    let (put, state) = (operation(22, &opaque(FILE)), state());
    let with = |parts: &[&[u8]]| parts.concat();
    let (_, _, open, opened) = &operations()[7];
    let open = [operation(22, &opaque(FOLDER)), operation(18, open), operation(10, &[])];
    let opened = [failed(22, 0, &[]), failed(18, 0, opened), failed(10, 0, &opaque(FILE))];
    for pieces in PIECES {
        // 0 and 2: they are written, to be kept later and at once; 5: the last at once.
        // 3 and 4: they are read, without an end and with one.
        let written = [0, 2, 5].map(|way| ["", "commit", "close"].map(|end| (way, end)));
        for (way, end) in written.into_iter().flatten().chain([(3, ""), (4, "")]) {
            let mut talk = Talk::default();
            talk.ask_at_once(1, &open, &opened, 0);
            for (number, (at, length)) in (10..).zip(pieces) {
                let data = opaque(&DATA[..*length]);
                let is_behind = number as usize == 9 + pieces.len();
                let stable = if way == 5 { 2 * u32::from(is_behind) } else { way };
                let is_last = way == 4 && is_behind;
                let (asks, told) = match way {
                    0 | 2 | 5 => (
                        operation(38, &with(&[&state, &wide(*at), &numbers(&[stable]), &data])),
                        failed(38, 0, &numbers(&[*length as u32, stable, 0, 8])),
                    ),
                    _ => (
                        operation(25, &with(&[&state, &wide(*at), &numbers(&[64])])),
                        failed(25, 0, &with(&[&numbers(&[is_last.into()]), &data])),
                    ),
                };
                talk.ask_at_once(number, &[put.clone(), asks], &[failed(22, 0, &[]), told], 0);
            }
            let ends = match end {
                "commit" => Some((operation(5, &none(3)), failed(5, 0, &wide(7)))),
                "close" => Some((operation(4, &with(&[&none(1), &state])), failed(4, 0, &state))),
                _ => None,
            };
            if let Some((asks, told)) = ends {
                talk.ask_at_once(30, &[put.clone(), asks], &[failed(22, 0, &[]), told], 0);
            }
            cases.push((format!("four {pieces:?} {way} {end}"), talk.0));
        }
    }
}

/// Calls and answers that are cut, and such as others give.
fn odd(cases: &mut Cases) {
    let (asked, answer) = (named("a.txt"), [&numbers(&[0])[..], &opaque(FILE), &none(2)].concat());
    let (asks, told) = (call(9, 3, 3, &asked), reply(9, &answer));
    for length in (0..asks.len()).step_by(4) {
        let mut talk = Talk::found();
        talk.say(0, &asks[..length]);
        talk.ask(10, 3, &asked, Some(&answer));
        cases.push((format!("call cut to {length}"), talk.0));
    }
    for length in (24..told.len()).step_by(4) {
        let mut talk = Talk::found();
        talk.say(0, &asks);
        talk.say(1, &told[..length]);
        talk.ask(10, 3, &asked, Some(&answer));
        cases.push((format!("answer cut to {length}"), talk.0));
    }
    let mut talk = Talk::default();
    talk.say(1, &told);
    cases.push(("answer alone".into(), talk.0));
    let mut talk = Talk::default();
    talk.say(0, &asks);
    talk.say(0, &call(10, 3, 3, &asked));
    talk.say(1, &reply(10, &answer));
    talk.say(1, &told);
    cases.push(("answers turned".into(), talk.0));
    for (length, state) in [(4, 0), (16, 0), (400, 0), (16, 1), (0, 1), (0, 3), (0, 5)] {
        let mut talk = Talk::default();
        for number in [9, 10] {
            talk.say(0, &call(number, 3, 3, &asked));
            talk.say(1, &reply_of(number, (6, &[1; 400][..length]), state, &answer));
        }
        cases.push((format!("answers with {length} bytes of proof, state {state}"), talk.0));
    }
    for (procedure, arguments) in [(0, Vec::new()), (4, vec![0; 32]), (9, vec![0; 60])] {
        let mut talk = Talk::default();
        talk.say(0, &call(9, 2, procedure, &arguments));
        talk.say(1, &reply(9, &numbers(&[0, 0, 0])));
        cases.push((format!("version 2, {procedure}"), talk.0));
    }
}

/// Calls of another version than the first: all are told as of that one.
fn versions(cases: &mut Cases) {
    let facts = [&numbers(&[0])[..], &attributes()].concat();
    for (first, then) in [(4, 3), (4, 2), (3, 2), (2, 3)] {
        for procedure in [0, 1, 4, 8, 9, 11] {
            let mut talk = Talk::default();
            talk.say(0, &call(1, first, 0, &[]));
            talk.say(1, &reply(1, &[]));
            let asked = [named("a.txt"), none(10)].concat();
            talk.say(0, &call(9, then, procedure, &asked));
            talk.say(1, &reply(9, if procedure == 0 { &[] } else { &facts }));
            cases.push((format!("version {first}, then {then}: {procedure}"), talk.0));
        }
    }
}

/// What counts of an event.
fn tell(event: &Value) -> Option<String> {
    let list = |it: &Value| {
        let fields = ["first", "last", "last_xid", "chunks"].map(|name| it[name].to_string());
        if it.is_null() { String::new() } else { format!(" [{}]", fields.join(" ")) }
    };
    match event["event_type"].as_str()? {
        "anomaly" => Some(format!("!{}", event["anomaly"]["event"].as_str()?)),
        "fileinfo" => {
            let file = &event["fileinfo"];
            let told = ["filename", "size", "state", "tx_id", "md5"].map(|it| file[it].to_string());
            Some(format!("file {}", told.join(" ").replace('"', "")))
        }
        "nfs" => {
            let (rpc, nfs) = (&event["rpc"], &event["nfs"]);
            let rpc = ["xid", "status", "auth_type"].map(|it| rpc[it].to_string()).join(" ");
            let names = ["version", "procedure", "filename", "hhash", "id", "file_tx", "status"];
            let told = names.map(|it| nfs[it].to_string()).join(" ");
            let moved = [list(&nfs["read"]), list(&nfs["write"])].concat();
            let from = nfs["rename"]["from"].as_str().unwrap_or_default();
            Some(format!("{rpc} {told}{moved} {from}").replace('"', "").trim().to_owned())
        }
        _ => None,
    }
}

#[test]
fn procedures_files_and_compounds_are_told_as_by_suricata() {
    let mut cases = Vec::new();
    for add in [third, pieces, fourth, fourth_pieces, odd, versions] {
        add(&mut cases);
    }
    judge("nfs", 2049, YAML, &cases, tell);
}
