//! What is told of SMB 2 and 1 and of DCE/RPC over its pipes, judged by Suricata 8.0.7: each way to
//! negotiate, to log in, to connect, to open, to move bytes in any order, to change and to close,
//! with each kind of answer, and messages that are cut.
//!
//! Each case is a connection; `testdata/judged/smb.tsv` has Suricata's answers. Where Suricata is
//! installed it is asked again.

mod wire;

use serde_json::Value;

use crate::judged_conversations::judge;
use wire::{Two, bind, bound, call, compound, le, line, one, record, wide};

const NEGOTIATE: u16 = 0;
const SESSION_SETUP: u16 = 1;
const TREE_CONNECT: u16 = 3;
const CREATE: u16 = 5;
const CLOSE: u16 = 6;
const READ: u16 = 8;
const WRITE: u16 = 9;
const IOCTL: u16 = 11;
const KEEPALIVE: u16 = 13;
const GET_INFO: u16 = 16;
const SET_INFO: u16 = 17;
/// A call over a pipe.
const TRANSCEIVE: u32 = 0x0011_c017;
const PENDING: u32 = 0x103;
const DENIED: u32 = 0xc000_0022;
/// The body of an error.
const ERROR: [u8; 9] = [9, 0, 0, 0, 0, 0, 0, 0, 0];
/// Pieces of a file: where they begin, and how many bytes they have.
const PIECES: [&[(u64, usize)]; 11] = [
    &[(0, 5)],
    &[(0, 5), (5, 4), (9, 4)],
    &[(0, 5), (9, 4), (5, 4)],
    &[(5, 4), (0, 5), (9, 4)],
    &[(9, 4), (5, 4), (0, 5)],
    &[(0, 5), (9, 4)],
    &[(9, 4)],
    &[(0, 5), (0, 5)],
    &[(0, 5), (3, 5)],
    &[(9, 4), (9, 4)],
    &[(0, 0)],
];
/// What a server says to what was asked, one answer behind the other: a status, and whether the
/// body is that of a success.
const ANSWERS: [&[u32]; 5] = [&[], &[0], &[DENIED], &[PENDING], &[PENDING, 0]];

const YAML: &str = "%YAML 1.1
---
outputs:
  - eve-log:
      enabled: yes
      filetype: regular
      filename: eve.json
      types: [{anomaly: {enabled: yes, types: {applayer: yes}}}, smb, files]
";

/// Requests and answers of a connection, and how many they are.
#[derive(Clone, Default)]
struct Talk {
    said: String,
    count: u64,
}

impl Talk {
    fn say(&mut self, side: usize, message: &[u8]) {
        self.said.push_str(&line(side, &record(message)));
    }

    /// A request of version 2 and its answers.
    fn ask(&mut self, command: u16, body: &[u8], statuses: &[u32], success: &[u8]) {
        self.count += 1;
        let head = Two { command, number: self.count, status: 0, flags: 0 };
        self.say(0, &head.with(body));
        for status in statuses {
            let flags = if *status == PENDING { 3 } else { 1 };
            let body = if *status == 0 { success } else { &ERROR };
            self.say(1, &Two { status: *status, flags, ..head }.with(body));
        }
    }

    /// One that is connected to a share of that kind.
    fn connected(name: &str, kind: u8) -> Self {
        let mut talk = Self::default();
        talk.ask(NEGOTIATE, &offer(), &[0], &choice(0x302, 65_536));
        talk.ask(TREE_CONNECT, &tree(name), &[0], &connected(kind));
        talk
    }

    /// The same, and a file is open.
    fn opened(name: &str) -> Self {
        let mut talk = Self::connected("\\\\s\\share", 1);
        talk.ask(CREATE, &create(name, 1, 0x40), &[0], &created(7));
        talk
    }

    fn close(&mut self, file: u64) {
        self.ask(
            CLOSE,
            &close(file),
            &[0],
            &le(&[(4, 60), (4, 0), (8, 0), (8, 0), (8, 0), (28, 0)]),
        );
    }
}

fn file(number: u64) -> Vec<u8> {
    le(&[(8, number), (8, number + 0x1000)])
}

fn offer() -> Vec<u8> {
    let head = le(&[(2, 36), (2, 3), (2, 1), (2, 0), (4, 0)]);
    [&head[..], b"CLIENT_OF_SHARES", &[0; 8], &le(&[(2, 0x202), (2, 0x302), (2, 0x311)])].concat()
}

fn choice(dialect: u64, most: u64) -> Vec<u8> {
    let rest =
        le(&[(4, 0), (4, most), (4, most), (4, most), (8, 0), (8, 0), (2, 128), (2, 0), (4, 0)]);
    [&le(&[(2, 65), (2, 1), (2, dialect), (2, 0)])[..], b"SERVER_OF_SHARES", &rest].concat()
}

fn setup(token: &[u8]) -> Vec<u8> {
    let head = le(&[(2, 25), (2, 1), (8, 0), (2, 88), (2, token.len() as u64), (8, 0)]);
    [&head[..], token].concat()
}

fn tree(name: &str) -> Vec<u8> {
    let name = wide(name);
    [&le(&[(4, 9), (2, 72), (2, name.len() as u64)])[..], &name].concat()
}

fn connected(kind: u8) -> Vec<u8> {
    le(&[(2, 16), (2, kind.into()), (4, 0), (4, 0), (4, 0)])
}

fn create(name: &str, disposition: u64, options: u64) -> Vec<u8> {
    let name = wide(name);
    let head = le(&[(2, 57), (2, 0), (4, 2), (8, 0), (8, 0), (4, 0), (4, 0), (4, 0)]);
    let rest = le(&[(4, disposition), (4, options), (2, 120), (2, name.len() as u64), (8, 0)]);
    [&head[..], &rest, &name].concat()
}

fn created(number: u64) -> Vec<u8> {
    let times = [(8, 132_000_000_000_000_000); 4];
    let head = [&le(&[(2, 89), (2, 0), (4, 1)])[..], &le(&times)].concat();
    [&head[..], &le(&[(8, 4096), (8, 5), (4, 0x80), (4, 0)]), &file(number), &[0; 8]].concat()
}

fn close(number: u64) -> Vec<u8> {
    [&le(&[(2, 24), (2, 0), (4, 0)])[..], &file(number)].concat()
}

fn write(number: u64, at: u64, data: &[u8]) -> Vec<u8> {
    let head = le(&[(2, 49), (2, 112), (4, data.len() as u64), (8, at)]);
    [&head[..], &file(number), &[0; 16], data].concat()
}

fn read(number: u64, at: u64, count: u64) -> Vec<u8> {
    [&le(&[(2, 49), (2, 0), (4, count), (8, at)])[..], &file(number), &[0; 17]].concat()
}

fn got(data: &[u8]) -> Vec<u8> {
    [&le(&[(2, 17), (2, 80), (4, data.len() as u64), (8, 0)])[..], data].concat()
}

fn ioctl(function: u32, number: u64, data: &[u8]) -> Vec<u8> {
    let rest = le(&[(4, 120), (4, data.len() as u64), (8, 0), (8, 0), (8, 1)]);
    [&le(&[(4, 57), (4, function.into())])[..], &file(number), &rest, data].concat()
}

fn replied(function: u32, number: u64, data: &[u8]) -> Vec<u8> {
    let rest = le(&[(4, 112), (4, 0), (4, 112), (4, data.len() as u64), (8, 0)]);
    [&le(&[(4, 49), (4, function.into())])[..], &file(number), &rest, data].concat()
}

fn change(number: u64, kind: u64, class: u64, data: &[u8]) -> Vec<u8> {
    let head = le(&[(2, 33), (1, kind), (1, class), (4, data.len() as u64), (2, 96), (6, 0)]);
    [&head[..], &file(number), data].concat()
}

fn renamed(name: &str) -> Vec<u8> {
    let name = wide(name);
    [&le(&[(8, 0), (8, 0), (4, name.len() as u64)])[..], &name].concat()
}

/// Who logs in, as NTLMSSP says it, and how names are written: in UTF-16 where `flags` is 1.
fn login(flags: u64, names: [&str; 3]) -> Vec<u8> {
    let (mut fields, mut rest) = (Vec::new(), Vec::new());
    // Two proofs before, a key behind.
    for name in ["proof", "proof"].iter().chain(&names).chain(&["key"]) {
        let name = if flags == 1 { wide(name) } else { name.as_bytes().to_vec() };
        let length = name.len() as u64;
        fields.extend(le(&[(2, length), (2, length), (4, 72 + rest.len() as u64)]));
        rest.extend(name);
    }
    let flags = le(&[(4, flags | 0x0200_0000), (2, 10), (2, 19_041), (4, 0x0f00_0000)]);
    [b"NTLMSSP\0\x03\0\0\0", &fields[..], &flags, &rest].concat()
}

type Cases = Vec<(String, String)>;

/// How a connection begins.
fn beginnings(cases: &mut Cases) {
    for dialect in [0, 0x202, 0x210, 0x2ff, 0x300, 0x302, 0x311, 0x400] {
        let mut talk = Talk::default();
        talk.ask(NEGOTIATE, &offer(), &[0], &choice(dialect, 65_536));
        cases.push((format!("dialect {dialect:x}"), talk.said));
    }
    for most in [0, 1 << 24, (1 << 24) + 1] {
        let mut talk = Talk::default();
        talk.ask(NEGOTIATE, &offer(), &[0], &choice(0x302, most));
        cases.push((format!("moves {most}"), talk.said));
    }
    let tokens = [
        ("nobody", Vec::new()),
        ("wide", login(1, ["DOM", "me", "HOST"])),
        ("narrow", login(0, ["DOM", "me", "HOST"])),
        ("anonymous", login(1, ["", "", ""])),
        ("beyond ASCII", login(1, ["D", "m\u{fc}\u{20ac}", "H"])),
        ("first", b"NTLMSSP\0\x01\0\0\0\0\0\0\0".to_vec()),
        ("no token", b"nonsense".to_vec()),
    ];
    for (name, token) in tokens {
        for answer in ANSWERS {
            let mut talk = Talk::default();
            talk.ask(NEGOTIATE, &offer(), &[0], &choice(0x302, 65_536));
            talk.ask(
                SESSION_SETUP,
                &setup(&token),
                answer,
                &le(&[(2, 9), (2, 0), (2, 72), (2, 0)]),
            );
            cases.push((format!("log in {name} {answer:x?}"), talk.said));
        }
    }
    for name in ["\\\\s\\share", "\\\\s\\IPC$", "", "\\\\s\\\u{dc}"] {
        for (kind, answer) in [1, 2, 3, 9]
            .map(|it| (it, &[0][..]))
            .into_iter()
            .chain(ANSWERS.iter().filter(|it| **it != [0]).map(|it| (1, *it)))
        {
            let mut talk = Talk::default();
            talk.ask(NEGOTIATE, &offer(), &[0], &choice(0x302, 65_536));
            talk.ask(TREE_CONNECT, &tree(name), answer, &connected(kind));
            cases.push((format!("connect {name} {kind} {answer:x?}"), talk.said));
        }
    }
}

/// Files are opened, changed and closed.
fn files(cases: &mut Cases) {
    for disposition in 0..7 {
        for options in [0, 1, 0x1000, 0x1001] {
            for name in ["a\\b.txt", "", "\u{dc}"] {
                let mut talk = Talk::connected("\\\\s\\share", 1);
                talk.ask(CREATE, &create(name, disposition, options), &[0], &created(7));
                cases.push((format!("open {name} {disposition} {options:x}"), talk.said));
            }
        }
    }
    let rename = renamed("new");
    let asked: [(&str, u16, Vec<u8>, Vec<u8>); 9] = [
        ("open", CREATE, create("b", 1, 0), created(8)),
        ("close", CLOSE, close(7), [&[60][..], &[0; 59]].concat()),
        (
            "query",
            GET_INFO,
            [&le(&[(2, 41), (6, 0), (8, 0), (8, 0)])[..], &file(7)].concat(),
            got(b"a"),
        ),
        ("rename", SET_INFO, change(7, 1, 10, &rename), le(&[(2, 2)])),
        ("rename unknown", SET_INFO, change(9, 1, 10, &rename), le(&[(2, 2)])),
        ("delete", SET_INFO, change(7, 1, 13, &[1]), le(&[(2, 2)])),
        ("keep", SET_INFO, change(7, 1, 13, &[0]), le(&[(2, 2)])),
        ("function", IOCTL, ioctl(0x0014_0204, 7, b"asked"), replied(0x0014_0204, 7, b"told")),
        ("no function", IOCTL, ioctl(0x1234_5678, 7, b"asked"), replied(0x1234_5678, 7, b"told")),
    ];
    for (name, command, body, success) in &asked {
        for answer in ANSWERS {
            let mut talk = Talk::opened("a.txt");
            talk.ask(*command, body, answer, success);
            cases.push((format!("{name} {answer:x?}"), talk.said));
        }
        for length in (0..body.len()).step_by(8) {
            let mut talk = Talk::opened("a.txt");
            talk.ask(*command, &body[..length], &[0], success);
            talk.ask(KEEPALIVE, &le(&[(4, 4)]), &[0], &le(&[(4, 4)]));
            cases.push((format!("{name} cut to {length}"), talk.said));
        }
    }
}

/// Bytes are moved, both ways and in any order.
fn moves(cases: &mut Cases) {
    for pieces in PIECES {
        for way in ["written", "read", "both"] {
            for (name, file) in [("a.txt", 7), ("a.txt", 9)] {
                for is_closed in [true, false] {
                    let mut talk = Talk::opened(name);
                    for (at, length) in pieces {
                        let data = &b"what is moved"[..*length];
                        if way != "read" {
                            let count = le(&[(4, 17), (4, data.len() as u64), (8, 0)]);
                            talk.ask(WRITE, &write(file, *at, data), &[0], &count);
                        }
                        if way != "written" {
                            talk.ask(READ, &read(file, *at, data.len() as u64), &[0], &got(data));
                        }
                    }
                    if is_closed {
                        talk.close(file);
                    }
                    cases.push((format!("{way} {file} {pieces:?} {is_closed}"), talk.said));
                }
            }
        }
    }
    for (answer, place) in ANSWERS.iter().flat_map(|it| [(it, 0), (it, 1)]) {
        let mut talk = Talk::opened("a.txt");
        let (command, body, success) = match place {
            0 => (WRITE, write(7, 0, b"data"), le(&[(4, 17), (4, 4), (8, 0)])),
            _ => (READ, read(7, 0, 4), got(b"data")),
        };
        talk.ask(command, &body, answer, &success);
        talk.close(7);
        cases.push((format!("moved {place} {answer:x?}"), talk.said));
    }
    let number = |command: u16, number: u64, flags: u32| Two { command, number, status: 0, flags };
    let related = [0xff; 16];
    let mut body = write(0, 0, b"data");
    body[16..32].copy_from_slice(&related);
    let mut end = close(0);
    end[8..24].copy_from_slice(&related);
    let mut talk = Talk::connected("\\\\s\\share", 1);
    talk.say(
        0,
        &compound(&[
            number(CREATE, 5, 0).with(&create("a.txt", 1, 0)),
            number(WRITE, 6, 4).with(&body),
            number(CLOSE, 7, 4).with(&end),
        ]),
    );
    talk.say(
        1,
        &compound(&[
            number(CREATE, 5, 1).with(&created(7)),
            number(WRITE, 6, 5).with(&le(&[(4, 17), (4, 4), (8, 0)])),
            number(CLOSE, 7, 5).with(&[0; 60]),
        ]),
    );
    cases.push(("at once".into(), talk.said));
}

/// Calls go over pipes.
fn pipes(cases: &mut Cases) {
    let asked = call(0, 3, 2, b"\x04\0\0\0\0\0\x0f\0stub");
    let answered = call(2, 3, 2, b"\x06\0\0\0\0\0\0\0result");
    let fault = call(3, 3, 2, &[0; 16]);
    for name in ["srvsvc", "\\srvsvc", "wkssvc", ""] {
        for (share, kind) in [("\\\\s\\IPC$", 2), ("\\\\s\\share", 1)] {
            for way in ["calls", "writes"] {
                for (what, answer) in [("answered", &answered), ("fault", &fault)] {
                    let mut talk = Talk::connected(share, kind);
                    talk.ask(CREATE, &create(name, 1, 0), &[0], &created(7));
                    for (asked, told) in
                        [(&bind(11, &[0, 1]), &bound(12, &[0, 2])), (&asked, answer)]
                    {
                        if way == "calls" {
                            let told = replied(TRANSCEIVE, 7, told);
                            talk.ask(IOCTL, &ioctl(TRANSCEIVE, 7, asked), &[0], &told);
                            continue;
                        }
                        talk.ask(WRITE, &write(7, 0, asked), &[0], &le(&[(8, 17), (8, 0)]));
                        talk.ask(READ, &read(7, 0, 1024), &[0], &got(told));
                    }
                    talk.close(7);
                    cases.push((format!("{way} {share} {name} {what}"), talk.said));
                }
            }
        }
    }
    for answer in ANSWERS {
        let mut talk = Talk::connected("\\\\s\\IPC$", 2);
        talk.ask(CREATE, &create("srvsvc", 1, 0), &[0], &created(7));
        let told = replied(TRANSCEIVE, 7, &bound(12, &[0]));
        talk.ask(IOCTL, &ioctl(TRANSCEIVE, 7, &bind(11, &[0])), answer, &told);
        talk.close(7);
        cases.push((format!("bind {answer:x?}"), talk.said));
    }
}

/// A connection of version 1, and what it does with a file or pipe; what answers with version 2.
fn old(cases: &mut Cases) {
    let offer = one(0x72, false, 0, &[], b"\x02NT LM 0.12\0\x02SMB 2.???\0");
    let words = le(&[(2, 0), (1, 3), (8, 0), (8, 0), (4, 0x8000_0000), (8, 0), (3, 0)]);
    let choice_one = one(0x72, true, 0, &words, b"SERVER_OF_SHARES");
    let two = Two { command: NEGOTIATE, number: 0, status: 0, flags: 1 };
    let upgrade = two.with(&choice(0x2ff, 65_536));
    for (name, answer) in [("one", Some(&choice_one)), ("two", Some(&upgrade)), ("none", None)] {
        let mut talk = Talk::default();
        talk.say(0, &offer);
        answer.into_iter().for_each(|it| talk.say(1, it));
        cases.push((format!("old {name}"), talk.said));
    }
    let none = le(&[(4, 0xff)]);
    let opened = |name: &str, service: &[u8]| {
        let mut talk = Talk::default();
        talk.say(0, &offer);
        talk.say(1, &choice_one);
        let share = [b"\0", &wide("\\\\s\\share")[..], b"\0\0?????\0"].concat();
        talk.say(0, &one(0x75, false, 0, &[&none[..], &le(&[(2, 0), (2, 1)])].concat(), &share));
        talk.say(1, &one(0x75, true, 0, &[&none[..], &[0; 2]].concat(), service));
        let name = wide(name);
        let mut words = [&none[..], &[0; 44]].concat();
        words[5] = name.len() as u8;
        words[35] = 1;
        talk.say(0, &one(0xa2, false, 0, &words, &[b"\0", &name[..], b"\0\0"].concat()));
        let mut words = [&none[..], &[0; 64]].concat();
        words[5] = 7;
        talk.say(1, &one(0xa2, true, 0, &words, b""));
        talk
    };
    for pieces in PIECES {
        for (way, number) in [("written", 7), ("read", 7), ("written", 9), ("read", 9)] {
            let mut talk = opened("\\a.txt", b"A:\0NTFS\0");
            for (at, length) in pieces {
                let data = [b"\0", &b"what is moved"[..*length]].concat();
                let count = *length as u64;
                let mut words = [&none[..], &le(&[(2, number), (4, *at), (4, 0), (2, 0)])].concat();
                if way == "written" {
                    words.extend(le(&[(2, 0), (2, 0), (2, count), (2, 64), (4, 0)]));
                    talk.say(0, &one(0x2f, false, 0, &words, &data));
                    talk.say(1, &one(0x2f, true, 0, &[&none[..], &[0; 8]].concat(), b""));
                } else {
                    words.extend([0; 8]);
                    talk.say(0, &one(0x2e, false, 0, &words, b""));
                    let told = le(&[(6, 0), (2, count), (2, 60), (2, 0), (8, 0)]);
                    talk.say(1, &one(0x2e, true, 0, &[&none[..], &told].concat(), &data));
                }
            }
            talk.say(0, &one(4, false, 0, &le(&[(2, number), (4, 0)]), b""));
            talk.say(1, &one(4, true, 0, &[], b""));
            cases.push((format!("old {way} {number} {pieces:?}"), talk.said));
        }
    }
}

/// What counts of an event: all that `smb` says but for times and what each connection says alike.
fn tell(event: &Value) -> Option<String> {
    /// How most connections begin.
    const ALIKE: [&str; 2] = [
        "3.02 NEGOTIATE_PROTOCOL 65536 65536 SUCCESS 0",
        "TREE_CONNECT \\\\s\\share FILE SUCCESS 1",
    ];
    const PASSED: [&str; 13] = [
        "fuid",
        "id",
        "dialect",
        "session_id",
        "status_code",
        "created",
        "accessed",
        "modified",
        "changed",
        "client_guid",
        "server_guid",
        "client_dialects",
        "size",
    ];
    match event["event_type"].as_str()? {
        "anomaly" => Some(format!("!{}", event["anomaly"]["event"].as_str()?)),
        "fileinfo" => {
            let file = &event["fileinfo"];
            Some(format!("file {} {} {}", file["filename"], file["size"], file["state"]))
        }
        "smb" => {
            let fields = event["smb"].as_object()?;
            let value = |it: &Value| match it.as_str() {
                Some(text) => text.trim_start_matches("SMB2_COMMAND_").to_owned(),
                None => it.to_string(),
            };
            let told = fields.iter().filter(|it| !PASSED.contains(&it.0.as_str()));
            let told: Vec<_> = told.map(|it| value(it.1)).collect();
            let dialects = event["smb"]["client_dialects"].as_array();
            let dialect = dialects.map(|_| value(&fields["dialect"]));
            let told = [dialect.into_iter().collect(), told].concat().join(" ");
            Some(told.replace("STATUS_", "")).filter(|it| !ALIKE.contains(&it.as_str()))
        }
        _ => None,
    }
}

#[test]
fn shares_files_and_pipes_are_told_as_by_suricata() {
    let mut cases = Vec::new();
    for add in [beginnings, files, moves, pipes, old] {
        add(&mut cases);
    }
    judge("smb", 445, YAML, &cases, tell);
}
