//! What is told of streams and frames of HTTP/2, and what is odd about them, judged by Suricata
//! 8.0.7: each kind of frame in each place, whole or not, fields of blocks of headers, and headers.
//!
//! Each case is a connection with one request or two. `testdata/judged/http2.tsv` has Suricata's
//! answers.

use serde_json::Value;

use crate::judged_conversations::judge;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const UNKNOWN: u8 = 20;
const KINDS: [u8; 11] = [
    DATA,
    HEADERS,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    PUSH_PROMISE,
    PING,
    GOAWAY,
    WINDOW_UPDATE,
    CONTINUATION,
    UNKNOWN,
];

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const WITH_PRIORITY: u8 = 32;

type Headers<'a> = &'a [(&'a str, &'a str)];

/// Who says something (0: the client), and what.
type Segment = (usize, Vec<u8>);

const GET: Headers<'_> =
    &[(":method", "GET"), (":path", "/a"), (":scheme", "http"), (":authority", "x.com")];
const OK: Headers<'_> = &[(":status", "200"), ("content-length", "2")];

/// Fields of a block of headers (RFC 7541 s6).
const FIELDS: [(&str, &[u8]); 30] = [
    ("size 0", b"\x20"),
    ("size 31", b"\x3f\0"),
    ("size 4097", b"\x3f\xe2\x1f"),
    ("size 70000", b"\x3f\xd1\xa2\x04"),
    ("two sizes", b"\x20\x3f\xe1\x1f"),
    ("index 0", b"\x80"),
    ("index 61", b"\xbd"),
    ("index 62", b"\xbe"),
    ("index of 5 bytes", b"\xff\xff\xff\xff\x0f"),
    ("index of 7 bytes", b"\xff\xff\xff\xff\xff\xff\x0f"),
    ("size of 7 bytes", b"\x3f\xff\xff\xff\xff\xff\x0f"),
    ("name of 7 bytes", b"\x0f\xff\xff\xff\xff\xff\x0f\x01b"),
    ("name 99", b"\x0f\x63\x01b"),
    ("kept", b"\x40\x01a\x01b"),
    ("kept, known name", b"\x41\x01b"),
    ("never kept", b"\x10\x01a\x01b"),
    ("coded", b"\0\x81\x1f\x81\x8f"),
    ("coded, zeros behind", b"\0\x81\0\x81\0"),
    ("coded, ones behind", b"\0\x82\x1f\xff\x81\x8f"),
    ("coded, end", b"\0\x84\xff\xff\xff\xff\x01b"),
    ("cut name", b"\0\x05a"),
    ("cut number", b"\xff\x80"),
    ("no name", b"\0\0\x01b"),
    ("no value", b"\0\x01a\0"),
    ("kept, again", b"\x40\x01a\x01b\xbe"),
    ("kept twice", b"\x40\x01a\x01b\x40\x01a\x01b"),
    ("kept, name again", b"\x40\x01a\x01b\x7e\x01c"),
    ("capitals", b"\0\x01A\x01B"),
    ("method", b"\x83"),
    ("nothing", b""),
];

const MORE_HEADERS: [Headers<'_>; 16] = [
    &[("host", "x.com")],
    &[("host", "y.com")],
    &[("host", "X.com")],
    &[("user-agent", "a")],
    &[("user-agent", "a"), ("user-agent", "b")],
    &[("cookie", "a=1"), ("cookie", "b=2")],
    &[("content-length", "x")],
    &[("content-length", "2"), ("content-length", "3")],
    &[(":authority", "u@x.com")],
    &[(":path", "/b")],
    &[(":method", "POST")],
    &[(":status", "404")],
    &[(":status", "100")],
    &[("content-encoding", "foo")],
    &[("content-range", "bytes 0-1/2")],
    &[("content-disposition", "attachment; filename=\"a.txt\"")],
];

const YAML: &str = "%YAML 1.1
---
outputs:
  - eve-log:
      enabled: yes
      filetype: regular
      filename: eve.json
      types: [{anomaly: {enabled: yes, types: {applayer: yes}}}, http2, files, flow]
";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A block in which nothing is coded.
fn block(headers: Headers<'_>) -> Vec<u8> {
    let text = |it: &str| [&[it.len() as u8], it.as_bytes()].concat();
    headers.iter().flat_map(|it| [vec![0], text(it.0), text(it.1)].concat()).collect()
}

fn headers(flags: u8, stream: u32, list: Headers<'_>) -> Vec<u8> {
    frame(HEADERS, flags, stream, &block(list))
}

fn request(stream: u32) -> Vec<u8> {
    headers(END_STREAM | END_HEADERS, stream, GET)
}

fn data(flags: u8, stream: u32) -> Vec<u8> {
    frame(DATA, flags, stream, b"ok")
}

fn response(stream: u32) -> Vec<u8> {
    [headers(END_HEADERS, stream, OK), data(END_STREAM, stream)].concat()
}

/// What a frame of that kind carries where it is as it must be.
fn payload(kind: u8) -> Vec<u8> {
    match kind {
        DATA => b"abc".to_vec(),
        HEADERS => block(GET),
        PRIORITY => b"\0\0\0\x03\x05".to_vec(),
        RST_STREAM => b"\0\0\0\x08".to_vec(),
        SETTINGS => b"\0\x04\0\x01\0\0".to_vec(),
        PUSH_PROMISE => [&b"\0\0\0\x04"[..], &block(GET)].concat(),
        PING => b"12345678".to_vec(),
        GOAWAY => b"\0\0\0\x01\0\0\0\x02".to_vec(),
        WINDOW_UPDATE => b"\0\0\0\x07".to_vec(),
        CONTINUATION => block(&[("a", "b")]),
        _ => b"x".to_vec(),
    }
}

struct Cases(Vec<(String, String)>);

impl Cases {
    /// A connection, behind what both sides begin with.
    fn add(&mut self, name: String, segments: &[Segment]) {
        let settings = frame(SETTINGS, 0, 0, b"\0\x03\0\0\0\x64");
        let begun = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &settings].concat();
        let answered = [settings, frame(SETTINGS, 1, 0, b"")].concat();
        let line = |(side, bytes): &Segment| {
            let bytes: String = bytes.iter().map(|it| format!("\\x{it:02x}")).collect();
            format!("{} {bytes}\n", ["> ", "< "][*side].trim())
        };
        let begin = [(0, begun), (1, answered)];
        let lines: Vec<String> = begin.iter().chain(segments).map(line).collect();
        self.0.push((name, lines.concat()));
    }

    /// Frames of each kind and some lengths, for the connection and for streams.
    fn lengths(&mut self) {
        for (side, who) in [(0, "client"), (1, "server")] {
            for stream in [0, 1, 2] {
                for kind in KINDS {
                    let is_of_headers = matches!(kind, HEADERS | PUSH_PROMISE | CONTINUATION);
                    let flags = if is_of_headers { END_HEADERS } else { 0 };
                    // Of a promise and what goes on for the connection, see what is left alone.
                    if is_of_headers && kind != HEADERS && stream == 0 {
                        continue;
                    }
                    for payload in
                        [&b""[..], b"\0\0\0\x01", b"\0\0\0\x01\x05", b"\0\x04\0\x01\x11\x70"]
                    {
                        let name = format!("{who} {kind} {} of {stream}", payload.len());
                        let odd = frame(kind, flags, stream, payload);
                        self.add(name, &[(side, odd), (0, request(1)), (1, response(1))]);
                    }
                }
            }
        }
    }

    /// Frames of each kind in each place of a stream.
    fn places(&mut self) {
        let open = headers(END_HEADERS, 1, GET);
        let reset = frame(RST_STREAM, 0, 1, b"\0\0\0\x01");
        for (side, who) in [(0, "client"), (1, "server")] {
            for kind in KINDS {
                let is_of_headers = matches!(kind, HEADERS | PUSH_PROMISE | CONTINUATION);
                let flags = if is_of_headers { END_HEADERS } else { 0 };
                let odd = || (side, frame(kind, flags, 1, &payload(kind)));
                let head = || (1, headers(END_HEADERS, 1, OK));
                let mut add = |place: &str, segments: &[Segment]| {
                    self.add(format!("{who} {kind} {place}"), segments);
                };
                let whole = [(0, request(1)), (1, response(1))];
                add("between", &[whole[0].clone(), odd(), whole[1].clone()]);
                add("in the response", &[whole[0].clone(), head(), odd(), (1, data(1, 1))]);
                add(
                    "in the request",
                    &[(0, open.clone()), odd(), (0, data(1, 1)), (1, response(1))],
                );
                add("behind", &[whole[0].clone(), whole[1].clone(), odd()]);
                let ping = |side| (side, frame(PING, 0, 0, b"12345678"));
                add("later", &[whole[0].clone(), whole[1].clone(), ping(0), odd()]);
                add("later still", &[whole[0].clone(), whole[1].clone(), ping(1), odd()]);
                add("behind a reset", &[(0, open.clone()), (0, reset.clone()), odd()]);
                add("behind a server's reset", &[(0, open.clone()), (1, reset.clone()), odd()]);
                let mut joined = response(1);
                joined.extend(if side == 1 { odd().1 } else { Vec::new() });
                let then = if side == 1 { Vec::new() } else { vec![odd()] };
                add("at the end", &[vec![(0, request(1)), (1, joined)], then].concat());
            }
        }
    }

    /// Fields of a block, alone and before others, in a request and in a response.
    fn fields(&mut self) {
        for (name, field) in FIELDS {
            for (place, list) in [("alone", &[][..]), ("first", GET)] {
                let odd = frame(HEADERS, 5, 1, &[field, &block(list)].concat());
                let next = [(0, request(3)), (1, response(3))];
                let segments = [vec![(0, odd), (1, response(1))], next.to_vec()].concat();
                self.add(format!("> {name} {place}"), &segments);
                let list = if list.is_empty() { list } else { OK };
                let odd = frame(HEADERS, 4, 1, &[field, &block(list)].concat());
                let told = [odd, data(END_STREAM, 1)].concat();
                let segments = [vec![(0, request(1)), (1, told)], next.to_vec()].concat();
                self.add(format!("< {name} {place}"), &segments);
            }
        }
        for more in MORE_HEADERS {
            for (place, is_first) in [("first", true), ("last", false)] {
                let join = |list| if is_first { [more, list] } else { [list, more] }.concat();
                let asked = headers(5, 1, &join(GET));
                self.add(format!("> {more:?} {place}"), &[(0, asked), (1, response(1))]);
                let told = [headers(4, 1, &join(OK)), data(END_STREAM, 1)].concat();
                self.add(format!("< {more:?} {place}"), &[(0, request(1)), (1, told)]);
            }
            let told = [headers(4, 1, OK), data(0, 1), headers(5, 1, more)].concat();
            self.add(format!("< {more:?} behind"), &[(0, request(1)), (1, told)]);
        }
    }

    /// How streams go otherwise.
    fn streams(&mut self) {
        let first = || (0, request(1));
        let promise = |flags| {
            let payload = [&b"\0\0\0\x02"[..], &block(GET)].concat();
            (1, frame(PUSH_PROMISE, flags, 1, &payload))
        };
        let padded = |flags: u8, length: u8| {
            let priority: &[u8] = if flags & WITH_PRIORITY == 0 { b"" } else { b"\0\0\0\0\x09" };
            let payload = [&[length], priority, &block(GET), b"\0\0\0"].concat();
            (0, frame(HEADERS, END_STREAM | END_HEADERS | PADDED | flags, 1, &payload))
        };
        let [begin, end] = [&GET[..2], &GET[2..]].map(block);
        let cut = |first_flags, second, stream| {
            let bytes =
                [frame(HEADERS, first_flags, 1, &begin), frame(CONTINUATION, second, stream, &end)];
            (0, bytes.concat())
        };
        let cases: Vec<(&str, Vec<Segment>)> = vec![
            ("no answer", vec![first()]),
            ("no end", vec![first(), (1, headers(4, 1, OK)), (1, data(0, 1))]),
            ("answer alone", vec![(1, response(1))]),
            ("answer first", vec![(1, response(1)), first()]),
            ("end in a head", vec![first(), (1, headers(5, 1, OK))]),
            ("end in empty data", vec![first(), (1, headers(4, 1, OK)), (1, frame(0, 1, 1, b""))]),
            ("two crossed", vec![first(), (0, request(3)), (1, response(3)), (1, response(1))]),
            (
                "two in one",
                vec![(0, [request(1), request(3)].concat()), (1, response(1)), (1, response(3))],
            ),
            ("again", vec![first(), (1, response(1)), first(), (1, response(1))]),
            ("even", vec![(0, request(2)), (1, response(2))]),
            ("interim", vec![first(), (1, headers(4, 1, &[(":status", "103")])), (1, response(1))]),
            ("data first", vec![first(), (1, data(0, 1)), (1, response(1))]),
            ("promise", vec![first(), promise(4), (1, response(1)), (1, response(2))]),
            (
                "promise, answer first",
                vec![first(), promise(4), (1, response(2)), (1, response(1))],
            ),
            ("promise refused", vec![first(), promise(4), (0, frame(3, 0, 2, b"\0\0\0\x08"))]),
            ("padded", vec![padded(0, 3), (1, response(1))]),
            ("padded, priority", vec![padded(WITH_PRIORITY, 3), (1, response(1))]),
            ("padded too much", vec![padded(0, 255), (1, response(1))]),
            (
                "padded data",
                vec![first(), (1, headers(4, 1, OK)), (1, frame(0, 9, 1, b"\x02ok\0\0"))],
            ),
            (
                "data padded too much",
                vec![first(), (1, headers(4, 1, OK)), (1, frame(0, 9, 1, b"\x09ok"))],
            ),
            ("data of no padding", vec![first(), (1, headers(4, 1, OK)), (1, frame(0, 9, 1, b""))]),
            ("in two frames", vec![cut(END_STREAM, END_HEADERS, 1), (1, response(1))]),
            ("reserved bit", vec![(0, request(1 | 1 << 31)), (1, response(1 | 1 << 31))]),
        ];
        cases.into_iter().for_each(|(name, segments)| self.add(name.into(), &segments));
    }
}

/// What is told of a stream, a file, a flow, or what is odd.
fn told(event: &Value) -> Option<String> {
    let http = |http: &Value| {
        let list = |name: &str| match &http[name] {
            Value::Array(list) => {
                let text = |it: &Value| match it["name"].as_str() {
                    Some(name) => format!("{name} {}", it["value"].as_str().unwrap_or_default()),
                    None => it.to_string(),
                };
                let text = list.iter().map(text).collect::<Vec<_>>().join("; ");
                let usual = |list: Headers<'_>| {
                    list.iter()
                        .map(|it| format!("{} {}", it.0, it.1))
                        .collect::<Vec<_>>()
                        .join("; ")
                };
                text.replace(&usual(GET), "GET").replace(&usual(OK), "OK")
            }
            _ => "-".into(),
        };
        let names = ["http_method", "url", "hostname", "http_user_agent", "status", "length"];
        let fields: Vec<String> = names.iter().map(|it| http[*it].to_string()).collect();
        let headers = [list("request_headers"), list("response_headers")];
        format!("{} [{}] {}", http["http2"], headers.join("] ["), fields.join(" "))
            .replace("null", "-")
            .replace(['\n', '\r', '\t', '\0'], "?")
    };
    match event["event_type"].as_str()? {
        "anomaly" => Some(format!("{} in {}", event["anomaly"]["event"].as_str()?, event["tx_id"])),
        // What both sides begin with is in each case.
        "http" if event["http"].to_string().contains("\"settings_value\":100}") => None,
        "http" => Some(http(&event["http"])),
        "fileinfo" => {
            let file = &event["fileinfo"];
            Some(format!("file of {} {} {}", file["tx_id"], file["size"], file["state"]))
        }
        "flow" => Some(format!("{} {}", event["app_proto"], event["flow"]["tx_cnt"])),
        _ => None,
    }
}

#[test]
fn streams_are_told_as_by_suricata() {
    let mut cases = Cases(Vec::new());
    cases.lengths();
    cases.places();
    cases.fields();
    cases.streams();
    judge("http2", 80, YAML, &cases.0, told);
}
