//! The API, asked without a socket: what it gives to whom, and what it refuses.

#![expect(clippy::disallowed_methods, reason = "tests measure and wait from outside")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, Response, StatusCode, header};
use serde_json::Value;
use tower::ServiceExt;
use weir_engine::flow::{FlowCounters, FlowKey, Reason};
use weir_engine::meter::FlowRecord;
use weir_engine::verdict::Side;
use weir_serve::gateways::Places;
use weir_serve::status::{self, Status};
use weir_serve::token::{Holder, Role, Token};
use weir_serve::{App, router};
use weir_store::sink::{Interfaces, Item};
use weir_store::sqlite::{
    AlertRow, Event, Label, Retention, Sample, Scope, ScopeKind, Store, StoreOptions, Suppression,
    SuppressionChange,
};
use weir_wire::frame::Time;
use weir_wire::parse::{Network, Parsed, Transport};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A name that a browser must not run, an exporter must escape and a terminal must not obey.
const HOSTILE: &str = "<img src=x onerror=alert(1)>\"'\\\n\u{1b}[31m";

const GATEWAY: &str = "gw-a";

/// A store with two flows, an application that reads it, and its folder.
struct Stand {
    router: Router,
    app: Arc<App>,
    _folder: tempfile::TempDir,
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn mapped(last: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, last]
}

fn flow(source: u8, destination_port: u16, bytes: u64) -> Item {
    let parsed = Parsed {
        network: Network::Ipv4,
        source: mapped(source),
        destination: mapped(9),
        protocol: 17,
        transport: Transport::Udp { source: 50_000, destination: destination_port },
        ..Parsed::default()
    };
    let (key, initiator) = FlowKey::of(&parsed).unwrap();
    let mut counters = [FlowCounters::default(); 2];
    counters[initiator.index()] = FlowCounters { packets: 3, bytes, ..FlowCounters::default() };
    let last = Time((now_s() - 30) * 1_000_000_000);
    let side = Some(Side::Host);
    let reason = Reason::Idle;
    let record = FlowRecord { key, started: last, last, initiator, side, counters, reason };
    Item::Flow(record, Interfaces::default())
}

fn alert(sid: u32, severity: u8, action: &str, source: u8) -> AlertRow {
    AlertRow {
        number: 0,
        note: None,
        is_suppressed: false,
        time_ns: (now_s() - 5) * 1_000_000_000,
        pair: "port0".to_owned(),
        sid,
        severity,
        action: action.to_owned(),
        signature: HOSTILE.to_owned(),
        category: "attempt".to_owned(),
        protocol: "UDP".to_owned(),
        source: mapped(source),
        source_port: 50_000,
        destination: mapped(9),
        destination_port: 4791,
        event: "{}".to_owned(),
    }
}

fn make_store(path: &Path) {
    let retention = Retention {
        size_bytes_max: 64 << 20,
        records_s: 86_400,
        minutes_s: 86_400,
        hours_s: 86_400,
    };
    let options = StoreOptions { path: path.to_owned(), group: None, retention };
    let store = Store::start(options, vec!["port0".to_owned()]).unwrap();
    for item in [flow(1, 4791, 3000), flow(2, 53, 200)] {
        store.sender(0).send(item);
    }
    for (sid, severity, action, source) in
        [(7, 1, "blocked", 1), (7, 1, "blocked", 2), (7, 1, "allowed", 1), (8, 9, "would_block", 1)]
    {
        store.alerts().send(alert(sid, severity, action, source));
    }
    let label = |first, last, names: [Option<&str>; 4]| Label {
        first: mapped(first),
        last: mapped(last),
        names: names.map(|it| it.map(str::to_owned)),
    };
    store.labels(vec![
        label(0, 7, [None, Some("red"), None, Some("2")]),
        label(2, 2, [Some(HOSTILE), Some("blue"), None, None]),
    ]);
    let time_ns = now_s() * 1_000_000_000;
    for (sid, source) in [(97, Some(2)), (98, None), (99, Some(1))] {
        store.suppress(SuppressionChange::Begin(Suppression {
            sid,
            source: source.map(|last| (mapped(last), mapped(last))),
            since_ns: time_ns,
            until_ns: time_ns + 3_600_000_000_000,
            who: "soc".to_owned(),
            reason: HOSTILE.to_owned(),
        }));
    }
    let [who, what, outcome] = ["gateway", HOSTILE, "ready"].map(str::to_owned);
    store.event(Event { time_ns, who, what, outcome });
    let counters = BTreeMap::from([("received".to_owned(), 7)]);
    let name = "p0".to_owned();
    let scope = Scope { pair: "port0".to_owned(), kind: ScopeKind::Host, name, counters };
    store.sample(Sample { time_ns, scopes: vec![scope], peers: Vec::new() });
    assert_eq!(store.stop().lost, 0);
}

fn status(taken_s: u64, received: u64) -> Status {
    let host = status::Side {
        interface: "pf0hpf".into(),
        received,
        received_bytes: 100 * received,
        sealed: received - 2,
        clear: 1,
        dropped: 1,
        dropped_by_reason: BTreeMap::from([("no_policy".to_owned(), 1)]),
        adds_up: true,
        ..status::Side::default()
    };
    let endpoint = Some("10.0.0.2:4500".to_owned());
    let state = "up".to_owned();
    let keying = Some(status::Keying { state, endpoint, ..status::Keying::default() });
    let name = HOSTILE.to_owned();
    let peer = status::Peer { name, sealed_packets: 5, keying, ..status::Peer::default() };
    let pair =
        status::Pair { name: "port0".into(), host, peers: vec![peer], ..status::Pair::default() };
    Status {
        version: "0.1.0".into(),
        name: GATEWAY.into(),
        taken_ns: taken_s * 1_000_000_000,
        uptime_seconds: taken_s,
        adds_up: true,
        pairs: vec![pair],
        ..Status::default()
    }
}

fn stand() -> Stand {
    let folder = tempfile::tempdir().unwrap();
    make_store(&folder.path().join("gw-a.sqlite"));
    let stores = vec![folder.path().to_owned()];
    let places = Places { run_folders: Vec::new(), stores };
    let app = App::new(places, Token::new(TOKEN).unwrap());
    app.board.note(status(10, 100));
    app.board.note(status(12, 300));
    Stand { router: router(Arc::clone(&app)), app, _folder: folder }
}

impl Stand {
    async fn send(&self, request: Request<Body>) -> Response<Body> {
        self.router.clone().oneshot(request).await.unwrap()
    }

    /// With the token.
    async fn get(&self, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).header(header::AUTHORIZATION, format!("Bearer {TOKEN}"));
        let response = self.send(request.body(Body::empty()).unwrap()).await;
        let status = response.status();
        let bytes = to_bytes(response.into_body(), 16 << 20).await.unwrap();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[track_caller]
    fn json(answer: (StatusCode, String)) -> Value {
        assert_eq!(answer.0, StatusCode::OK, "{}", answer.1);
        serde_json::from_str(&answer.1).unwrap()
    }
}

const ROUTES: [&str; 13] = [
    "/api/v1/status",
    "/api/v1/flows",
    "/api/v1/conversations",
    "/api/v1/talkers",
    "/api/v1/alerts",
    "/api/v1/alerts/summary",
    "/api/v1/volumes",
    "/api/v1/blocks",
    "/api/v1/counters",
    "/api/v1/drops",
    "/api/v1/tunnels",
    "/api/v1/events",
    "/api/v1/openapi.json",
];

#[tokio::test]
async fn every_route_wants_the_token_and_the_page_and_health_do_not() {
    let stand = stand();
    for path in ROUTES.iter().chain(&["/metrics", "/api/v1/live"]) {
        let plain = stand.send(Request::get(*path).body(Body::empty()).unwrap()).await;
        assert_eq!(plain.status(), StatusCode::UNAUTHORIZED, "{path}");
        assert_eq!(plain.headers()[header::WWW_AUTHENTICATE], "Bearer");
        for wrong in ["Bearer ", "Bearer 0123", "Basic eDp5"] {
            let request = Request::get(*path).header(header::AUTHORIZATION, wrong);
            let refused = stand.send(request.body(Body::empty()).unwrap()).await.status();
            let refusals = [StatusCode::UNAUTHORIZED, StatusCode::TOO_MANY_REQUESTS];
            assert!(refusals.contains(&refused), "{path} {wrong}");
        }
    }
    for path in ROUTES {
        assert_eq!(stand.get(path).await.0, StatusCode::OK, "{path}");
    }
    for path in ["/healthz", "/", "/assets/index.js", "/assets/index.css", "/assets/icon.svg"] {
        let open = stand.send(Request::get(path).body(Body::empty()).unwrap()).await;
        assert_eq!(open.status(), StatusCode::OK, "{path}");
    }
}

#[tokio::test]
async fn flows_are_found_by_what_is_asked() {
    let stand = stand();
    let rows = |answer| Stand::json(answer)["rows"].as_array().unwrap().clone();
    let all = rows(stand.get("/api/v1/flows").await);
    assert_eq!(all.len(), 2);
    let rdma = rows(stand.get("/api/v1/flows?port=4791").await);
    assert_eq!(rdma.len(), 1);
    assert_eq!(rdma[0]["source"], "10.0.0.1");
    assert_eq!((&rdma[0]["bytes"], &rdma[0]["protocol"]), (&3000.into(), &"udp".into()));
    for (query, count) in [
        ("address=10.0.0.2", 1),
        ("address=10.0.0.0/24", 2),
        ("address=2001:db8::/32", 0),
        ("protocol=6", 0),
        ("gateway=gw-a&pair=port0", 2),
        ("gateway=other", 0),
        ("pair=other", 0),
        ("limit=1", 1),
        ("group=true", 2),
        ("group=true&order=bytes&limit=1", 1),
        ("from=0&until=1000", 0),
    ] {
        let found = rows(stand.get(&format!("/api/v1/flows?{query}")).await);
        assert_eq!(found.len(), count, "{query}");
    }
    let other = Stand::json(stand.get("/api/v1/flows?gateway=other").await);
    let said = "no store of a gateway `other`: there is that of gw-a";
    assert_eq!(other["problems"], serde_json::json!([said]));
    let talkers = rows(stand.get("/api/v1/talkers?kind=rdma").await);
    assert_eq!(talkers.len(), 2);
    assert_eq!(talkers.iter().map(|it| it["sent_bytes"].as_u64().unwrap()).sum::<u64>(), 3000);
    let counters = Stand::json(stand.get("/api/v1/counters?last=60").await);
    assert_eq!(counters["rows"][0]["value"], 7);
}

#[tokio::test]
async fn ends_have_the_names_of_the_longest_label_and_are_found_by_them() {
    let stand = stand();
    let sources = |rows: &Value, key: &str| -> Vec<String> {
        let rows = rows["rows"].as_array().unwrap();
        rows.iter().map(|row| row[key].as_str().unwrap().to_owned()).collect()
    };
    let all = Stand::json(stand.get("/api/v1/flows").await);
    for row in all["rows"].as_array().unwrap() {
        let names = match row["source"].as_str().unwrap() {
            "10.0.0.1" => {
                serde_json::json!({"host": null, "tenant": "red", "job": null, "rail": "2"})
            }
            _ => serde_json::json!({"host": HOSTILE, "tenant": "blue", "job": null, "rail": "2"}),
        };
        assert_eq!(row["source_names"], names);
        assert_eq!(row["destination_names"]["tenant"], Value::Null);
    }
    // The longer label's tenant hides the other's.
    for (label, found) in [
        ("red", vec!["10.0.0.1"]),
        ("tenant%3Dblue", vec!["10.0.0.2"]),
        ("rail%3Dblue", vec![]),
        ("tenant%3Dgreen", vec![]),
    ] {
        let rows = Stand::json(stand.get(&format!("/api/v1/flows?label={label}")).await);
        assert_eq!(sources(&rows, "source"), found, "{label}");
        let rows = Stand::json(stand.get(&format!("/api/v1/talkers?label={label}")).await);
        assert_eq!(sources(&rows, "address"), found, "{label}");
        let rows = Stand::json(stand.get(&format!("/api/v1/alerts?label={label}")).await);
        let from: std::collections::BTreeSet<_> = sources(&rows, "source").into_iter().collect();
        assert_eq!(from, found.iter().map(|it| (*it).to_owned()).collect(), "{label}");
        let (status, _) = stand.get(&format!("/api/v1/conversations?label={label}")).await;
        assert_eq!(status, StatusCode::OK);
        let peers = Stand::json(stand.get(&format!("/api/v1/tunnels?label={label}")).await);
        let is_found = found.contains(&"10.0.0.2");
        assert_eq!(peers["tunnels"].as_array().unwrap().len(), usize::from(is_found), "{label}");
    }
    let peers = Stand::json(stand.get("/api/v1/tunnels").await);
    assert_eq!(peers["tunnels"][0]["endpoint_names"]["tenant"], "blue");
    for (label, found) in [("tenant%3Dred", [98, 99]), ("blue", [97, 98])] {
        let path = format!("/api/v1/alerts/suppressions?label={label}");
        let rows = Stand::json(stand.get(&path).await);
        let mut sids: Vec<_> =
            rows["rows"].as_array().unwrap().iter().map(|it| it["sid"].as_u64().unwrap()).collect();
        sids.sort_unstable();
        assert_eq!(sids, found, "{label}: those from anywhere hide its alerts too");
    }
    let both = Stand::json(stand.get("/api/v1/flows?label=rail%3D2").await);
    assert_eq!(both["rows"].as_array().unwrap().len(), 2);
    assert_eq!(stand.get("/api/v1/flows?label=rack%3D2").await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn alerts_are_added_up_by_signature_and_over_time() {
    let stand = stand();
    let all = Stand::json(stand.get("/api/v1/alerts/summary").await);
    let rows = all["signatures"].as_array().unwrap();
    let counts = |row: &Value| {
        let names = ["sid", "alerts", "blocked", "would_block", "sources"];
        names.map(|name| row[name].as_u64().unwrap())
    };
    assert_eq!(rows.iter().map(counts).collect::<Vec<_>>(), [[7, 3, 2, 0, 2], [8, 1, 0, 1, 1]]);
    assert_eq!(rows[0]["signature"], HOSTILE);
    // All of one second or two.
    let by_severity = |level: usize| -> u64 {
        let slices = all["slices"].as_array().unwrap();
        slices.iter().map(|it| it["by_severity"][level].as_u64().unwrap()).sum()
    };
    assert_eq!([0, 1, 2, 3].map(by_severity), [3, 0, 0, 1]);
    assert!(all["resolution_s"].as_u64().unwrap() > 0);
    let severe = Stand::json(stand.get("/api/v1/alerts/summary?severity=2&limit=5").await);
    assert_eq!(severe["signatures"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn volume_is_added_up_by_what_is_asked() {
    let stand = stand();
    for (query, first, count) in [
        ("by=ends", ("source", "10.0.0.1"), 2),
        ("by=source", ("source", "10.0.0.1"), 2),
        ("by=destination", ("destination", "10.0.0.9"), 1),
        ("by=service", ("service", "udp 4791"), 2),
        ("by=ends&exact=true", ("source", "10.0.0.1"), 2),
    ] {
        let answer = Stand::json(stand.get(&format!("/api/v1/volumes?{query}")).await);
        let rows = answer["rows"].as_array().unwrap();
        assert_eq!(rows.len(), count, "{query}");
        assert_eq!(rows[0][first.0], first.1, "{query}");
        let bytes: u64 = rows.iter().map(|row| row["bytes"].as_u64().unwrap()).sum();
        assert_eq!(bytes, 3200, "{query}");
    }
    let none = Stand::json(stand.get("/api/v1/volumes?of=conversations").await);
    assert!(none["rows"].as_array().unwrap().is_empty());
    for wrong in ["of=x", "by=x"] {
        let status = stand.get(&format!("/api/v1/volumes?{wrong}")).await.0;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{wrong}");
    }
}

#[tokio::test]
async fn what_is_asked_wrongly_is_refused_in_json_with_a_remedy() {
    let stand = stand();
    for asked in [
        "flows?limit=0",
        "flows?limit=1001",
        "flows?limit=x",
        "flows?port=65536",
        "flows?address=nonsense",
        "flows?from=9&until=9",
        "flows?until=18446744073709551615",
        "flows?unknown=1",
        "flows?last=-1",
        "flows?last=253402300800",
        "conversations?queue_pair=16777216",
    ] {
        let (status, text) = stand.get(&format!("/api/v1/{asked}")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{asked}");
        let body: Value = serde_json::from_str(&text).unwrap();
        assert!(body["error"].as_str().is_some_and(|it| it.len() > 10), "{asked}: {text}");
    }
    assert_eq!(stand.get("/api/v2/flows").await.0, StatusCode::NOT_FOUND);
    let post =
        Request::post("/api/v1/flows").header(header::AUTHORIZATION, format!("Bearer {TOKEN}"));
    let response = stand.send(post.body(Body::empty()).unwrap()).await;
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    let long = format!("/api/v1/flows?pair={}", "x".repeat(5000));
    assert_eq!(stand.get(&long).await.0, StatusCode::URI_TOO_LONG);
}

#[tokio::test]
async fn received_is_accepted_and_dropped_and_bypassed() {
    let stand = stand();
    let drops = Stand::json(stand.get("/api/v1/drops").await);
    let host = &drops["ports"][0];
    assert_eq!(host["side"], "host");
    let count = |name: &str| host[name].as_u64().unwrap();
    assert_eq!(count("received"), count("accepted") + count("bypassed") + count("dropped"));
    assert_eq!((count("bypassed"), count("dropped"), count("received")), (1, 1, 300));
    assert_eq!(host["adds_up"], true);
    assert!(drops["meanings"]["no_policy"].as_str().unwrap().contains("policy"));
}

#[tokio::test]
async fn hostile_names_are_data_everywhere() {
    let stand = stand();
    let events = Stand::json(stand.get("/api/v1/events").await);
    assert_eq!(events["rows"][0]["what"], HOSTILE);
    let tunnels = Stand::json(stand.get("/api/v1/tunnels").await);
    assert_eq!(tunnels["tunnels"][0]["peer"], HOSTILE);
    let (_, metrics) = stand.get("/metrics").await;
    let lines: Vec<_> = metrics.lines().filter(|it| it.contains("onerror")).collect();
    assert!(!lines.is_empty());
    for line in lines {
        assert!(line.starts_with("weir_peer_") && line.contains("\\\"'\\\\\\n"), "{line}");
    }
    for path in ROUTES.iter().chain(&["/", "/metrics"]) {
        let request = Request::get(*path).header(header::AUTHORIZATION, format!("Bearer {TOKEN}"));
        let response = stand.send(request.body(Body::empty()).unwrap()).await;
        let headers = response.headers();
        let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    }
}

#[tokio::test]
async fn a_client_that_asks_too_often_is_told_to_wait() {
    let stand = stand();
    let mut refused = 0;
    for _ in 0..2000 {
        let response = stand.send(Request::get("/healthz").body(Body::empty()).unwrap()).await;
        if response.status() == StatusCode::TOO_MANY_REQUESTS {
            assert!(response.headers().contains_key(header::RETRY_AFTER));
            refused += 1;
        }
    }
    assert!(refused > 0);
    let answer = stand.get("/api/v1/status").await;
    assert_eq!(answer.0, StatusCode::OK, "who was let in does not share with strangers");
}

#[tokio::test]
async fn tokens_cannot_be_guessed_in_a_row() {
    let stand = stand();
    let mut statuses = Vec::new();
    for number in 0..30 {
        let wrong = format!("Bearer {number:032}");
        let request = Request::get("/metrics").header(header::AUTHORIZATION, wrong);
        let response = stand.send(request.body(Body::empty()).unwrap()).await;
        statuses.push(response.status());
    }
    assert_eq!(statuses[0], StatusCode::UNAUTHORIZED);
    assert!(statuses.contains(&StatusCode::TOO_MANY_REQUESTS));
    assert_eq!(
        stand.get("/metrics").await.0,
        StatusCode::OK,
        "who has the token is not locked out"
    );
}

#[tokio::test]
async fn the_live_stream_begins_with_what_was_and_goes_on_with_what_is() {
    let stand = stand();
    let request =
        Request::get("/api/v1/live").header(header::AUTHORIZATION, format!("Bearer {TOKEN}"));
    let response = stand.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
    let mut body = response.into_body().into_data_stream();
    stand.app.board.note(status(13, 320));
    let mut text = String::new();
    let end = Instant::now() + Duration::from_secs(60);
    while !text.contains("event: point") {
        assert!(Instant::now() < end, "{text}");
        let next = std::future::poll_fn(|context| {
            futures_util::Stream::poll_next(std::pin::Pin::new(&mut body), context)
        });
        text += std::str::from_utf8(&next.await.unwrap().unwrap()).unwrap();
    }
    let data = |name: &str| -> Value {
        let after = text.split(&format!("event: {name}\n")).nth(1).unwrap();
        let line = after.lines().find_map(|it| it.strip_prefix("data: ")).unwrap();
        serde_json::from_str(line).unwrap()
    };
    assert_eq!(data("history")[0]["out_packets"], 100.0);
    assert_eq!(data("point")["out_packets"], 20.0);
    assert_eq!(data("point")["gateway"], GATEWAY);
}

#[tokio::test]
async fn a_store_that_cannot_be_read_is_named_and_the_others_answer() {
    let folder = tempfile::tempdir().unwrap();
    make_store(&folder.path().join("gw-a.sqlite"));
    std::fs::write(folder.path().join("gw-b.sqlite"), "no database".repeat(1000)).unwrap();
    let places = Places { run_folders: Vec::new(), stores: vec![folder.path().to_owned()] };
    let app = App::new(places, Token::new(TOKEN).unwrap());
    let stand = Stand { router: router(Arc::clone(&app)), app, _folder: folder };
    let answer = Stand::json(stand.get("/api/v1/flows").await);
    assert_eq!(answer["rows"].as_array().unwrap().len(), 2);
    assert!(answer["problems"][0].as_str().unwrap().starts_with("gw-b: "));
}

#[tokio::test]
async fn the_document_describes_every_route() {
    let stand = stand();
    let document = Stand::json(stand.get("/api/v1/openapi.json").await);
    for path in ROUTES.iter().filter(|path| !path.ends_with("openapi.json")) {
        let answer = &document["paths"][path]["get"]["responses"]["200"];
        assert!(answer["content"]["application/json"]["schema"].is_object(), "{path}");
    }
    assert_eq!(document["components"]["securitySchemes"]["token"]["scheme"], "bearer");
}

#[tokio::test]
async fn a_viewer_looks_an_operator_blocks_and_an_admin_allows() {
    let folder = tempfile::tempdir().unwrap();
    let places = Places { run_folders: vec![folder.path().to_owned()], stores: Vec::new() };
    let roles = [("v", Role::Viewer), ("o", Role::Operator), ("a", Role::Admin)];
    let token = |letter: &str| Token::new(&letter.repeat(40)).unwrap();
    let holders = roles.map(|(name, role)| Holder::new(name, role, token(name)));
    let router = router(App::with_holders(places, holders.into()));
    let ask = async |name: &str, method: &str, path: &str, body: &str| {
        let request = Request::builder().method(method).uri(path);
        let request = request.header(header::AUTHORIZATION, format!("Bearer {}", name.repeat(40)));
        let request = request.header(header::CONTENT_TYPE, "application/json");
        let request = request.body(Body::from(body.to_owned())).unwrap();
        router.clone().oneshot(request).await.unwrap().status().as_u16()
    };
    let (path, gone) = ("/api/v1/blocks", "/api/v1/blocks?gateway=gw&prefix=192.0.2.1");
    let block = "{\"gateway\": \"gw\", \"prefix\": \"192.0.2.1\"}";
    let allow = "{\"gateway\": \"gw\", \"prefix\": \"192.0.2.1\", \"list\": \"allow\"}";
    // 404: it may be asked, and no gateway lets itself be told.
    for (name, block_status, allow_status) in [("v", 403, 403), ("o", 404, 403), ("a", 404, 404)] {
        assert_eq!(ask(name, "GET", path, "").await, 200, "{name}");
        assert_eq!(ask(name, "POST", path, block).await, block_status, "{name}");
        assert_eq!(ask(name, "DELETE", gone, "").await, block_status, "{name}");
        assert_eq!(ask(name, "POST", path, allow).await, allow_status, "{name}");
    }
    let note = "{\"gateway\": \"gw\", \"alert\": 1, \"acknowledged\": true}";
    for (name, status) in [("v", 403), ("o", 404), ("a", 404)] {
        assert_eq!(ask(name, "POST", "/api/v1/alerts/notes", note).await, status, "{name}");
    }
    let drill = "{\"gateway\": \"gw\", \"sid\": 7, \"seconds\": 60}";
    let suppressions = "/api/v1/alerts/suppressions";
    let ended = format!("{suppressions}?gateway=gw&sid=7");
    for (name, status) in [("v", 403), ("o", 404), ("a", 404)] {
        assert_eq!(ask(name, "GET", suppressions, "").await, 200, "{name}");
        assert_eq!(ask(name, "POST", suppressions, drill).await, status, "{name}");
        assert_eq!(ask(name, "DELETE", &ended, "").await, status, "{name}");
    }
    let for_ever = "{\"gateway\": \"gw\", \"sid\": 7, \"seconds\": 0}";
    assert_eq!(ask("o", "POST", suppressions, for_ever).await, 400, "it must end");
    assert_eq!(ask("x", "POST", path, block).await, 401);
    for wrong in ["", "{}", "[]", "{\"gateway\": \"gw\", \"prefix\": \"x\", \"more\": 1}"] {
        let status = ask("o", "POST", path, wrong).await;
        assert!((400..500).contains(&status) && status != 404, "{wrong}: {status}");
    }
    let long = format!("{{\"gateway\": \"{}\"}}", "x".repeat(5000));
    assert_eq!(ask("o", "POST", path, &long).await, 413);
    assert_eq!(ask("o", "POST", "/api/v1/flows", "").await, 405);
}
