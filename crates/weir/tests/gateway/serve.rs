//! A gateway that remembers, and `weir serve` over it: what crossed is in the API, asked as a
//! stranger would, of a process that is not root and cannot reach the control socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use weir_lab::gateways::{NAMES, run_folder};
use weir_lab::interrupt;
use weir_lab::process::{self, Running};
use weir_lab::topology::{Lab, Side};

use super::serve_judges::{fuzzed_by_schemathesis, scraped_by_prometheus};
use super::*;

/// A user and group that no account has.
const ACCOUNT: &str = "64999:64999";

const TABLES: &str = "\n[store]\ngroup = \"64999\"\noperate = true\nadminister = true\n\
                      size_mib = 16\n\n[evidence]\nmemory_mib = 8\nsnap = 0\n\n\
                      [[label]]\nof = \"0.0.0.0/0\"\ntenant = \"red\"\n\n\
                      [[sink]]\nto = \"tcp://127.0.0.1:9\"\nformat = \"gelf\"\n\n\
                      [limits]\nactive_timeout_s = 1\nidle_timeout_s = 1\n";

/// These, and a rule that each ping matches.
fn tables(lab: &Lab) -> String {
    let rules = lab.folder().join("ping.rules");
    let rule = "alert icmp any any -> any any (msg:\"ping\"; itype:8; sid:1;)\n";
    std::fs::write(&rules, rule).unwrap();
    format!("{TABLES}\n[rules]\npaths = [{:?}]\n", rules.display().to_string())
}

/// `weir serve` over gateway A.
pub(super) struct Serve {
    running: Running,
    pub(super) address: SocketAddr,
    pub(super) token: String,
}

fn store_of(lab: &Lab) -> PathBuf {
    lab.folder().join("state").join(NAMES[0]).join("store")
}

impl Serve {
    fn start(lab: &Lab) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = Command::new(WEIR);
        command.args(["serve", "--user", ACCOUNT, "--listen", &address.to_string()]);
        command.arg("--token-file").arg(lab.folder().join("serve/token"));
        command.arg("--run-dir").arg(run_folder(lab, Side::A));
        command.arg("--store").arg(store_of(lab));
        let mut running = Running::start(&mut command).unwrap();
        running.wait_for("#token=", PATIENCE).unwrap();
        let said = running.stdout();
        let token = said.trim().rsplit("#token=").next().unwrap().to_owned();
        Self { running, address, token }
    }

    /// The status line and the body of an answer.
    pub(super) fn ask(&self, path: &str, token: &str) -> (String, String) {
        self.send("GET", path, token, "")
    }

    fn send(&self, method: &str, path: &str, token: &str, body: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             Authorization: Bearer {token}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    /// The body of an answer that is no text.
    fn download(&self, path: &str) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let token = &self.token;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             Authorization: Bearer {token}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|it| it == b"\r\n\r\n").unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
        answer.split_off(end + 4)
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.send("POST", path, &self.token, &body.to_string());
        assert!(status.contains("200"), "{path}: {status}: {answer}");
        serde_json::from_str(&answer).unwrap()
    }

    fn json(&self, path: &str) -> Value {
        let (status, body) = self.ask(path, &self.token);
        assert!(status.contains("200"), "{status}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// The first answer that `wanted` takes.
    #[track_caller]
    fn wait(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let answered = interrupt::until("answer of `weir serve`", PATIENCE, || {
            let (status, body) = self.ask(path, &self.token);
            if status.contains("429") {
                // Asked more often than a client may.
                interrupt::sleep(Duration::from_millis(200))?;
                return Ok(false);
            }
            assert!(status.contains("200"), "{status}: {body}; before: {last}");
            last = serde_json::from_str(&body)?;
            Ok(wanted(&last))
        });
        answered.unwrap_or_else(|error| panic!("{error}: {last}"));
        last
    }
}

/// An address that is blocked by the API is dropped, and the log book says for whom.
fn blocked_by_the_api(lab: &Lab, serve: &Serve) {
    let (own, target) = (lab.host_v4(Side::A).to_string(), lab.host_v4(Side::B).to_string());
    let path = "/api/v1/blocks";
    let body =
        format!("{{\"gateway\": \"{}\", \"prefix\": \"{own}\", \"seconds\": 600}}", NAMES[0]);
    let (refused, _) = serve.send("POST", path, "wrong", &body);
    assert!(refused.contains("401"), "{refused}");
    let (status, answer) = serve.send("POST", path, &serve.token, &body);
    assert!(status.contains("200"), "{status}: {answer}");
    assert_eq!(ping(lab.host(Side::A), &target, 2, 56).unwrap().answered, 0);
    serve.wait(path, |it| it["rows"][0]["packets"].as_u64() >= Some(1));
    let gone = format!("{path}?gateway={}&prefix={own}", NAMES[0]);
    let (status, answer) = serve.send("DELETE", &gone, &serve.token, "");
    assert!(status.contains("200") && !answer.contains(&own), "{status}: {answer}");
    assert_eq!(ping(lab.host(Side::A), &target, 2, 56).unwrap().answered, 2, "no longer blocked");
    let is_said = |row: &Value| {
        row["who"] == "api: admin (admin) from 127.0.0.1"
            && row["what"] == format!("block add {own}/32 for 600 s").as_str()
            && row["outcome"] == "done"
    };
    serve.wait("/api/v1/events", |it| it["rows"].as_array().unwrap().iter().any(is_said));
    remarked_on_by_the_api(lab, serve);
    suppressed_by_the_api(lab, serve);
    // A sink that is down gets it later.
    let mut command = Command::new(WEIR);
    command.args(["status", "--json", NAMES[0], "--run-dir"]).arg(run_folder(lab, Side::A));
    let said = process::run(&mut command, PATIENCE).unwrap().stdout;
    let status: Value = serde_json::from_str(&said).unwrap();
    let sink = &status["alerts"]["sinks"][0];
    assert!(sink["waiting"].as_u64() >= Some(1) && sink["lost"] == 0, "{sink}");
    // Nothing else is taken there.
    let socket = run_folder(lab, Side::A).join(format!("{}.operate", NAMES[0]));
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(b"{\"command\":\"rollback\"}\n").unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert!(said.contains("not asked here"), "{said}");
}

/// An alert that somebody acknowledges is so from then on, and the log book says by whom.
fn remarked_on_by_the_api(lab: &Lab, serve: &Serve) {
    let target = lab.host_v4(Side::B).to_string();
    assert_eq!(ping(lab.host(Side::A), &target, 1, 56).unwrap().answered, 1);
    let path = "/api/v1/alerts";
    let rows = serve.wait(path, |it| it["rows"][0]["number"].as_u64() >= Some(1));
    let number = rows["rows"][0]["number"].as_u64().unwrap();
    assert_eq!(rows["rows"][0]["acknowledged"], false);
    let note = |alert: u64| {
        format!(
            "{{\"gateway\": \"{}\", \"alert\": {alert}, \"acknowledged\": true, \
             \"comment\": \"a <b>ping</b>\"}}",
            NAMES[0]
        )
    };
    let notes = "/api/v1/alerts/notes";
    let (status, _) = serve.send("POST", notes, &serve.token, &note(number + 100_000));
    assert!(status.contains("404"), "{status}");
    let (status, answer) = serve.send("POST", notes, &serve.token, &note(number));
    assert!(status.contains("202"), "{status}: {answer}");
    let is_said = |row: &Value| {
        row["number"] == number
            && row["acknowledged"] == true
            && row["comment"] == "a <b>ping</b>"
            && row["noted_by"] == "api: admin (admin) from 127.0.0.1"
    };
    serve.wait(path, |it| it["rows"].as_array().unwrap().iter().any(is_said));
    let what = format!("alert {number} acknowledged: a <b>ping</b>");
    let is_logged = |row: &Value| row["what"] == what.as_str() && row["outcome"] == "done";
    serve.wait("/api/v1/events", |it| it["rows"].as_array().unwrap().iter().any(is_logged));
}

/// A rule that somebody suppresses is left out from then on, and its alerts are there all the same.
fn suppressed_by_the_api(lab: &Lab, serve: &Serve) {
    let (own, target) = (lab.host_v4(Side::A).to_string(), lab.host_v4(Side::B).to_string());
    let path = "/api/v1/alerts/suppressions";
    let body = |seconds: u64| {
        format!(
            "{{\"gateway\": \"{}\", \"sid\": 1, \"source\": \"{own}\", \"seconds\": {seconds}, \
             \"reason\": \"a <b>drill</b>\"}}",
            NAMES[0]
        )
    };
    let (status, _) = serve.send("POST", path, &serve.token, &body(0));
    assert!(status.contains("400"), "{status}");
    let (status, answer) = serve.send("POST", path, &serve.token, &body(600));
    assert!(status.contains("202"), "{status}: {answer}");
    let is_said = |row: &Value| {
        row["sid"] == 1
            && row["source"] == format!("{own}/32").as_str()
            && row["reason"] == "a <b>drill</b>"
            && row["who"] == "api: admin (admin) from 127.0.0.1"
    };
    serve.wait(path, |it| it["rows"].as_array().unwrap().iter().any(is_said));
    assert_eq!(ping(lab.host(Side::A), &target, 1, 56).unwrap().answered, 1);
    let alone = serve.wait("/api/v1/alerts?suppressed=true", |it| it["rows"][0]["sid"] == 1);
    let number = &alone["rows"][0]["number"];
    let others = serve.json("/api/v1/alerts?suppressed=false&limit=1000");
    assert!(others["rows"].as_array().unwrap().iter().all(|row| row["number"] != *number));
    let all = serve.json("/api/v1/alerts/summary");
    let row = all["signatures"].as_array().unwrap().iter().find(|it| it["sid"] == 1).unwrap();
    assert!(
        row["suppressed"].as_u64() >= Some(1)
            && row["alerts"].as_u64() > row["suppressed"].as_u64()
    );
    // By the command line, it is seen and ended.
    let weir = |args: &[&str]| {
        let mut command = Command::new(WEIR);
        command.arg("alerts").args(args);
        process::run(&mut command, PATIENCE).unwrap()
    };
    let store = store_of(lab);
    let store = store.to_str().unwrap();
    let said = weir(&["suppressions", "--store", store]).stdout;
    assert!(said.contains(&format!("{own}/32")) && said.contains("drill"), "{said}");
    let hidden = weir(&["--store", store, "--sid", "1", "--limit", "10000"]);
    assert!(hidden.stderr.contains("more are suppressed"), "{hidden:?}");
    let run_dir = run_folder(lab, Side::A);
    let source = ["--source", &own, "--run-dir", run_dir.to_str().unwrap()];
    weir(&[&["unsuppress", "--sid", "1"][..], &source].concat());
    serve.wait(path, |it| it["rows"].as_array().unwrap().is_empty());
    let what = format!("alerts of rule 1 from {own}/32 shown again");
    let is_logged = |row: &Value| row["what"] == what.as_str() && row["who"] == "control socket";
    serve.wait("/api/v1/events", |it| it["rows"].as_array().unwrap().iter().any(is_logged));
}

/// The packets of an alert come as a capture that tshark reads.
fn downloaded_by_the_api(lab: &Lab, serve: &Serve) {
    let held = serve.wait("/api/v1/evidence", |it| it["rows"][0]["packets"].as_u64() > Some(0));
    assert_eq!(held["rows"][0]["gateway"], NAMES[0]);
    let alerts = serve.wait("/api/v1/alerts", |it| it["rows"][0]["sid"] == 1);
    let number = &alerts["rows"][0]["number"];
    let capture =
        serve.download(&format!("/api/v1/evidence/cut?gateway={}&alert={number}", NAMES[0]));
    let file = lab.folder().join("alert.pcapng");
    std::fs::write(&file, capture).unwrap();
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(&file).args(["-T", "fields", "-e", "icmp.type"]);
    let said = process::run(&mut tshark, PATIENCE).unwrap();
    let types: Vec<&str> = said.stdout.lines().collect();
    assert!(types.contains(&"8"), "the echo that made the alert: {said:?}");
    let (status, answer) =
        serve.ask(&format!("/api/v1/evidence/cut?gateway={}&filter=(", NAMES[0]), &serve.token);
    assert!(status.contains("400"), "{status}: {answer}");
}

/// A configuration is looked at, tried, taken back, tried again and kept, and the log book says
/// for whom.
fn configured_by_the_api(serve: &Serve) {
    let shown = serve.json("/api/v1/config");
    let text = shown["rows"][0]["text"].as_str().unwrap().to_owned();
    let file = shown["rows"][0]["path"].as_str().unwrap().to_owned();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    let next = format!("{text}# tried\n");
    let gateway = NAMES[0];
    let of =
        |text: &str| serde_json::json!({ "gateway": gateway, "text": text, "within_seconds": 600 });
    let checked = serve.post("/api/v1/config/check", &of("nonsense"));
    assert!(checked["problems"].as_str().unwrap().contains("not TOML"), "{checked}");
    let checked = serve.post("/api/v1/config/check", &of(&next));
    assert_eq!(checked["problems"], Value::Null);
    let difference = checked["difference"].as_str().unwrap();
    assert!(difference.ends_with("+# tried\n") && !difference.contains("\n-"), "{difference}");

    let refused = serve.post("/api/v1/config/try", &of("nonsense"));
    assert!(refused["problems"].is_string() && refused["state"] == "confirmed", "{refused}");
    let gateway = serde_json::json!({ "gateway": gateway });
    for (decision, kept) in [("rollback", &text), ("confirm", &next)] {
        let tried = serve.post("/api/v1/config/try", &of(&next));
        assert_eq!((&tried["state"], &tried["problems"]), (&"unconfirmed".into(), &Value::Null));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "the file is as it was");
        let decided = serve.post(&format!("/api/v1/config/{decision}"), &gateway);
        assert_eq!(decided["state"], "confirmed", "{decided}");
        assert_eq!(decided["text"].as_str(), Some(kept.as_str()));
        assert_eq!(&std::fs::read_to_string(&file).unwrap(), kept);
    }
    serve.wait("/api/v1/events?last=600", |it| {
        let rows = it["rows"].as_array().unwrap();
        rows.iter().any(|row| {
            let who = row["who"].as_str().unwrap();
            row["what"] == "confirm" && who.starts_with("api: admin") && row["outcome"] == "done"
        })
    });
}

/// What is too large or too slow is refused, and the next is answered.
fn asked_badly(serve: &Serve) {
    for (path, bytes) in [("/api/v1/blocks", 5_000), ("/api/v1/config/check", 300_000)] {
        let body = format!("{{\"gateway\": \"{}\"}}", "x".repeat(bytes));
        let (status, answer) = serve.send("POST", path, &serve.token, &body);
        assert!(status.contains("413"), "{path}: {status}: {answer}");
    }
    // Half a request, and then nothing.
    let mut slow = TcpStream::connect(serve.address).unwrap();
    slow.set_read_timeout(Some(PATIENCE)).unwrap();
    slow.write_all(b"GET /api/v1/status HTTP/1.1\r\nHost: x\r\nX-Slow: ").unwrap();
    let mut said = Vec::new();
    let _ = slow.read_to_end(&mut said);
    let said = String::from_utf8_lossy(&said);
    assert!(said.is_empty() || said.contains(" 408 "), "{said}");
    let mut large = TcpStream::connect(serve.address).unwrap();
    large.set_read_timeout(Some(PATIENCE)).unwrap();
    let header = "x".repeat(64 << 10);
    let request = format!("GET / HTTP/1.1\r\nX-Large: {header}\r\n\r\n");
    let _ = large.write_all(request.as_bytes());
    let mut said = Vec::new();
    let _ = large.read_to_end(&mut said);
    assert!(!String::from_utf8_lossy(&said).contains(" 200 "));
    serve.json("/api/v1/status");
}

/// `weir status --watch` goes on telling, a line of JSON a second.
fn watched(lab: &Lab) {
    let mut command = Command::new(WEIR);
    command.args(["status", NAMES[0], "--watch", "--json", "--run-dir"]);
    let mut running = Running::start(command.arg(run_folder(lab, Side::A))).unwrap();
    let told = |running: &Running| -> Vec<u64> {
        let said = running.stdout();
        let whole = said.rsplit_once('\n').map(|(whole, _)| whole).unwrap_or_default();
        let lines = whole.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|it| it["taken_ns"].as_u64().unwrap()).collect()
    };
    interrupt::until("three states", PATIENCE, || Ok(told(&running).len() >= 3)).unwrap();
    assert!(told(&running).is_sorted(), "{:?}", told(&running));
    assert!(running.is_running().unwrap(), "it watches until it is ended");
    let _ = running.stop(Signal::TERM);
}

fn found_by_name(lab: &Lab, target: &str) {
    for (label, found) in [("tenant=red", true), ("tenant=blue", false)] {
        let mut command = Command::new(WEIR);
        command.args(["flows", "--label", label, "--protocol", "1", "--store"]).arg(store_of(lab));
        let said = process::run(&mut command, PATIENCE).unwrap().stdout;
        assert_eq!(said.contains("tenant red") && said.contains(target), found, "{said}");
    }
}

#[test]
fn what_crossed_a_gateway_is_in_the_api_of_a_process_without_privileges() {
    let Some(stand) = stand("weir serve over a gateway") else { return };
    let lab = &stand.lab;
    let setup = Setup { tables: tables(lab), ..sealed() };
    let mut gateways = sealing_gateways(lab, &setup);
    let serve = Serve::start(lab);

    let id = serve.running.id();
    assert_eq!(std::fs::metadata(format!("/proc/{id}")).unwrap().uid(), 64_999);
    let (refused, _) = serve.ask("/api/v1/flows", "wrong");
    assert!(refused.contains("401"), "{refused}");

    // Its user cannot have what only root may ask for.
    let mut as_user = Command::new("setpriv");
    as_user.args(["--reuid", "64999", "--regid", "64999", "--clear-groups", WEIR, "status"]);
    as_user.args([NAMES[0], "--run-dir"]).arg(run_folder(lab, Side::A));
    let denied = as_user.output().unwrap();
    assert!(!denied.status.success(), "{denied:?}");

    let target = lab.host_v4(Side::B).to_string();
    let pinged = ping(lab.host(Side::A), &target, 10, 56).unwrap();
    assert_eq!(pinged.answered, 10);
    let is_ping = |row: &Value| row["protocol"] == "icmp" && row["destination"] == target.as_str();
    let path = format!("/api/v1/flows?address={target}&protocol=1&limit=1000");
    let echoes = |answer: &Value| -> u64 {
        let rows = answer["rows"].as_array().unwrap().iter().filter(|row| is_ping(row));
        rows.map(|row| row["packets"].as_u64().unwrap()).sum()
    };
    // Those that waited for the gateways to find each other are among them.
    let flows = serve.wait(&path, |answer| echoes(answer) >= 10);
    assert_eq!(flows["problems"], serde_json::json!([]));

    let status = serve.wait("/api/v1/status", |it| it["gateways"][0]["is_up"] == true);
    assert_eq!(status["gateways"][0]["problems"], serde_json::json!([]));
    let drops = serve.json("/api/v1/drops");
    assert!(drops["ports"].as_array().unwrap().iter().all(|port| port["adds_up"] == true));
    let tunnels = serve.wait("/api/v1/tunnels", |it| it["changes"][0]["state"] == "up");
    assert_eq!(tunnels["tunnels"][0]["peer"], NAMES[1]);
    let (_, metrics) = serve.ask("/metrics", &serve.token);
    assert!(metrics.contains("weir_up{gateway=\"gw-a\"} 1"), "{metrics}");

    blocked_by_the_api(lab, &serve);
    downloaded_by_the_api(lab, &serve);
    configured_by_the_api(&serve);
    asked_badly(&serve);
    watched(lab);
    scraped_by_prometheus(lab, &serve);
    fuzzed_by_schemathesis(lab, &serve);

    // The same on the command line, from the same file.
    let mut command = Command::new(WEIR);
    command.args(["flows", "--json", "--protocol", "1", "--store"]).arg(store_of(lab));
    let said = process::run(&mut command, PATIENCE).unwrap().stdout;
    let rows: Value = serde_json::from_str(&said).unwrap();
    assert!(rows.as_array().unwrap().iter().any(is_ping));
    found_by_name(lab, &target);

    // What was stored outlives the gateway, and one that was killed writes on.
    for signal in [Signal::KILL, Signal::TERM] {
        gateways.end(Side::A, signal).unwrap();
        let after = serve.json(&path);
        assert_eq!(after["problems"], serde_json::json!([]), "{signal:?}");
        assert!(echoes(&after) >= 10, "{signal:?}");
        serve.wait("/api/v1/status", |it| it["gateways"][0]["is_up"] == false);
        gateways.start_again(lab, &setup, Side::A).unwrap();
    }
    let status = gateways.status(Side::A).unwrap();
    assert_eq!(status["store"]["failure"], Value::Null);
    serve.running.stop(Signal::TERM).unwrap().success("weir serve").unwrap();
}

#[test]
fn a_store_that_cannot_be_written_keeps_nobody_from_sealing() {
    let Some(stand) = stand("a store in a place that is none") else { return };
    let tables = "\n[store]\npath = \"/proc/nowhere/gw.sqlite\"\n".to_owned();
    let gateways = sealing_gateways(&stand.lab, &Setup { tables, ..sealed() });
    let status = wait_status(&gateways, Side::A, |it| it["store"]["failure"].is_string());
    assert!(status["store"]["failure"].as_str().unwrap().contains("/proc/nowhere"));
    wait_until_it_flows(&stand.lab);
}
