//! What is told of requests and responses of HTTP, and what is odd about them, judged by Suricata
//! 8.0.7: each way to say how long a response is, with each kind of status, and odd lines and
//! headers, one at a time.
//!
//! Each case is a connection of two requests. `testdata/judged/http.tsv` has Suricata's answers.
//! Where Suricata is installed it is asked again.

use serde_json::Value;

use crate::judged_told::Judged;

const METHODS: [&str; 3] = ["GET", "HEAD", "POST"];
const STATUSES: [&str; 8] =
    ["100 Continue", "103 Early", "200 OK", "204 No", "206 Part", "304 Not", "0 x", "999 y"];
/// What says how long a body is, and the body.
const BODIES: [[&str; 2]; 10] = [
    ["", ""],
    ["", "hello"],
    ["Content-Length: 0\\r\\n", ""],
    ["Content-Length: 0\\r\\n", "hello"],
    ["Content-Length: 5\\r\\n", "hello"],
    ["Content-Length: 5\\r\\n", "helloworld"],
    ["Content-Length: 5\\r\\n", "he"],
    ["Transfer-Encoding: chunked\\r\\n", "5\\r\\nhello\\r\\n0\\r\\n\\r\\n"],
    ["Content-Length: 5\\r\\nTransfer-Encoding: chunked\\r\\n", "5\\r\\nhello\\r\\n0\\r\\n\\r\\n"],
    ["Transfer-Encoding: identity\\r\\n", "hello"],
];
/// First lines of requests.
const REQUESTS: [&str; 19] = [
    "GET / BAR",
    "GET / HTTP/1.1 x",
    "GET  /  HTTP/1.1",
    "GET / HTTP / 1.1",
    "GET / HTTP/01.1",
    "GET / http/1.1",
    "get / HTTP/1.1",
    "GET /a b HTTP/1.1",
    "GET /a b",
    "GET / HTTP/1.2",
    "GET\\x09/ HTTP/1.1",
    "GET /\\x09HTTP/1.1",
    "GET http://x/ HTTP/1.1",
    "GET //x/ HTTP/1.1",
    "OPTIONS * HTTP/1.1",
    "INVALID / HTTP/1.1",
    "GET /?a=b#c HTTP/1.1",
    "GET http://u:p@x:81/ HTTP/1.1",
    "GET / HTTP/1.0",
];
/// First lines of responses.
const RESPONSES: [&str; 22] = [
    "HTTP/1.1 200",
    "HTTP/1.1",
    "HTTP/1.1 20 OK",
    "HTTP/1.1 2000 OK",
    "HTTP/1.1 abc OK",
    "HTTP/1.1 2x0 OK",
    "HTTP/2.0 200 OK",
    "HTTP/ 1.1 200 OK",
    "HTTP/01.1 200 OK",
    "http/1.1 200 OK",
    "HTTP 200 OK",
    "HTTP/1.1  200  OK",
    "HTTP/1.1\\x09200\\x09OK",
    " HTTP/1.1 200 OK",
    "ICY 200 OK",
    "HTTP/0.9 200 OK",
    "HTTPS/1.1 200 OK",
    "HTTP/1.1 200 O K ",
    "x\\r\\nHTTP/1.1 200 OK",
    "HTTP/1.1 099 OK",
    "HTTP/1.1 100.5 OK",
    "HTTP/1.1 +200 OK",
];
/// Headers of either.
const HEADERS: [&str; 36] = [
    "A : b",
    "A\\x09: b",
    ": b",
    " A: b",
    "A",
    "A@: b",
    "A:",
    "A: b\\r\\n c",
    "A: b\\r\\n\\x09c",
    "A: b\\r\\n c: d",
    "A: 1\\r\\nA: 2",
    "A: 1\\r\\na: 2\\r\\nA: 3",
    "A@: 1\\r\\nB : 2",
    "B : 2\\r\\nA@: 1",
    ": x\\r\\nA@: 1",
    "A\\r\\nB",
    "A: \\x00b",
    "A\\x00: b",
    "Host: c",
    "Host: a:99",
    "Host: a b",
    "Host:",
    "Authorization: Foo x",
    "Content-Length: x2",
    "Content-Length: 2x",
    "Content-Length:  2 ",
    "Content-Length: 2\\r\\nContent-Length: 2",
    "Content-Length: 2\\r\\nContent-Length: 1",
    "Content-Length: +2",
    "Content-Encoding: foo",
    "Content-Encoding: gzip, gzip, gzip",
    "Content-Encoding: identity",
    "Content-Range: x",
    "Content-Range: bytes 0-1/*",
    "Upgrade: h2c",
    "Connection: close",
];

const OK: &str = "HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok";
const NEXT: &str = "> GET /next HTTP/1.1\\r\\nHost: b\\r\\n\\r\\n";

const YAML: &str = "%YAML 1.1
---
outputs:
  - eve-log:
      enabled: yes
      filetype: regular
      filename: eve.json
      types: [{anomaly: {enabled: yes, types: {applayer: yes}}}, {http: {extended: yes}}]
";

/// Names, and what client and server say.
fn cases() -> Vec<(String, String)> {
    let mut cases = Vec::new();
    let mut add = |name: String, said: [&str; 2]| {
        let [asked, told] = said;
        cases.push((name, format!("> {asked}\n< {told}\n{NEXT}\n< {OK}\n")));
    };
    for method in METHODS {
        let body = if method == "POST" { "Content-Length: 3\\r\\n\\r\\nabc" } else { "\\r\\n" };
        for version in ["1.0", "1.1"] {
            let request = format!("{method} / HTTP/{version}\\r\\nHost: a\\r\\n{body}");
            for status in STATUSES {
                for [head, body] in BODIES {
                    let name = format!("{method} HTTP/{version} {status} {head}{body}");
                    let told = format!("HTTP/{version} {status}\\r\\n{head}\\r\\n{body}");
                    add(name, [&request, &told]);
                }
            }
        }
    }
    for line in REQUESTS {
        add(format!("> {line}"), [&format!("{line}\\r\\nHost: a\\r\\n\\r\\n"), OK]);
    }
    for line in RESPONSES {
        let told = format!("{line}\\r\\nContent-Length: 2\\r\\n\\r\\nok");
        add(format!("< {line}"), ["GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n", &told]);
    }
    for header in HEADERS {
        let has = |name: &str| header.starts_with(name);
        let host = if has("Host") { "" } else { "Host: a\\r\\n" };
        let length = if has("Content-Length") { "" } else { "Content-Length: 2\\r\\n" };
        let asked = format!("POST / HTTP/1.1\\r\\n{host}{length}{header}\\r\\n\\r\\nab");
        let told = format!("HTTP/1.1 200 OK\\r\\n{length}{header}\\r\\n\\r\\nok");
        add(format!("> {header}"), [&asked, OK]);
        add(format!("< {header}"), ["GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n", &told]);
        add(format!("<> {header}"), [&asked, &told]);
    }
    cases
}

/// What is odd, and what is told of a request and its response.
fn tell(event: &Value) -> Option<String> {
    match event["event_type"].as_str()? {
        "anomaly" => Some(event["anomaly"]["event"].as_str()?.to_owned()),
        "http" => {
            let names = ["http_method", "url", "protocol", "status", "status_string", "length"];
            let text = |it: &&str| match &event["http"][*it] {
                Value::String(text) => text.clone(),
                Value::Null => "-".into(),
                other => other.to_string(),
            };
            Some(names.iter().map(text).collect::<Vec<_>>().join(" "))
        }
        _ => None,
    }
}

#[test]
fn requests_and_responses_are_told_as_by_suricata() {
    Judged { name: "http", port: 80, yaml: YAML, cases: cases(), tell: &tell }.judge();
}
