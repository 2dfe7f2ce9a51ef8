//! Lines of access before real RDMA: two Soft-RoCE guests ask everything of each other by verbs, by
//! rping and by perftest, through sealing gateways, and their own kernels say what became of it.

use weir_lab::topology::{HOST_V4, Hosts};
use weir_lab::vm::{Guest, GuestKernel, Job};

use super::*;

/// What runs in the guests, which have this machine's file system below `/run/machine`.
const VERBS: &str = concat!(
    "/usr/bin/python3 /run/machine",
    env!("CARGO_MANIFEST_DIR"),
    "/tests/gateway/access_verbs.py"
);
/// Emulated machines are slow when the host is busy.
const RUN: Duration = Duration::from_secs(180);
/// A rejected request ends at once; a denied one after retries that take seconds.
const AT_ONCE_MS: u64 = 1000;

/// Completions, as libibverbs numbers them.
const SUCCESS: u64 = 0;
const REMOTE_ACCESS_ERROR: u64 = 10;
const RETRIES_EXCEEDED: u64 = 12;

/// Operations over all kinds of queue pairs that Soft-RoCE has (it knows no XRC), and over reliable
/// ones; a WRITE with immediate data is a WRITE to the lines.
const OPERATIONS: usize = 12;
const RELIABLE_OPERATIONS: usize = 6;

/// Addresses of host B, and what gateway A does with what host A asks of them.
const VERDICTS: [(&str, &str); 4] = [
    ("10.77.0.20", "allow"),
    ("10.77.0.21", "deny"),
    ("10.77.0.22", "reject"),
    ("10.77.0.23", "would_deny"),
];
/// There connections are refused, and there nobody answers who asks for one.
const CONNECTIONS: [(&str, &str); 2] = [("10.77.0.24", "reject"), ("10.77.0.25", "deny")];

fn lines() -> String {
    let line = |name: &str, to: &str, operations: &str, action: &str| {
        format!(
            "\n[[access]]\nname = \"{name}\"\nfrom = \"{}\"\nto = \"{to}\"\n\
             operations = {operations}\naction = \"{action}\"\n",
            HOST_V4[0]
        )
    };
    let asked = "[\"send\", \"send_imm\", \"write\", \"read\", \"atomic\"]";
    let mut lines: String =
        VERDICTS.iter().map(|(to, action)| line(action, to, asked, action)).collect();
    lines += &line("perftest-writes", &HOST_V4[1].to_string(), "\"write\"", "reject");
    for (to, action) in CONNECTIONS {
        lines += &line(&format!("{action}-connections"), to, "\"connect\"", action);
    }
    lines
}

/// One operation's end, as the requester and the responder saw it.
#[derive(Debug)]
struct Ended {
    what: String,
    address: String,
    status: Option<u64>,
    milliseconds: u64,
    arrived: bool,
}

impl Ended {
    fn of(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        Some(Self {
            what: format!("{} {}", text("type"), text("operation")),
            address: text("address"),
            status: value["status"].as_u64(),
            milliseconds: value["ms"].as_u64().unwrap_or_default(),
            arrived: value["arrived"].as_bool()?,
        })
    }

    /// What it must be: a reliable sender learns what became of it, others do not.
    #[track_caller]
    fn check(&self, verdict: &str) {
        let passes = matches!(verdict, "allow" | "would_deny");
        let status = match verdict {
            _ if passes || !self.what.starts_with("rc") => SUCCESS,
            "reject" => REMOTE_ACCESS_ERROR,
            _ => RETRIES_EXCEEDED,
        };
        assert_eq!((self.status, self.arrived), (Some(status), passes), "{verdict}: {self:?}");
        assert!(status != REMOTE_ACCESS_ERROR || self.milliseconds < AT_ONCE_MS, "{self:?}");
    }
}

fn verdict_of(address: &str) -> &'static str {
    VERDICTS.iter().find(|(it, _)| *it == address).unwrap().1
}

/// Prints how each operation ended under each verdict, in a table.
fn show(ended: &[Ended]) {
    eprintln!("{:<12} verdict     status  arrived      ms", "operation");
    for it in ended {
        let Ended { what, status, arrived, milliseconds, .. } = it;
        let status = status.map_or("none".to_owned(), |it| it.to_string());
        let verdict = verdict_of(&it.address);
        eprintln!("{what:<12} {verdict:<10} {status:>7}  {arrived:<7} {milliseconds:>7}");
    }
}

/// Over every kind of queue pair, each operation under each verdict.
fn each_operation_ends_as_its_line_says(client: &Job) {
    client.wait_for("first", RUN).unwrap();
    let said = client.output();
    let ended: Vec<Ended> = said.lines().filter_map(Ended::of).collect();
    show(&ended);
    assert_eq!(ended.len(), OPERATIONS * VERDICTS.len(), "{said}");
    ended.iter().for_each(|it| it.check(verdict_of(&it.address)));
}

/// rping's connection is made, refused at once, or never answered.
fn connections_are_made_and_refused(a: &mut Guest, b: &mut Guest) {
    let server = b.start("rping -s -v -C 3").unwrap();
    b.wait_for_rdma_server().unwrap();
    let ask = |a: &mut Guest, to: &str| a.run(&format!("timeout 10 rping -c -v -C 3 -a {to}"), RUN);
    for (to, action) in CONNECTIONS {
        let client = ask(a, to).unwrap();
        let is_refused = client.output.contains("RDMA_CM_EVENT_REJECTED, error 28");
        assert!(client.code != 0 && !client.output.contains("ping data"), "{client:?}");
        assert_eq!(is_refused, action == "reject", "{to}: {client:?}");
    }
    let said = ask(a, VERDICTS[0].0).unwrap().success().unwrap();
    assert_eq!(said.matches("ping data: rdma-ping-").count(), 3, "{said}");
    server.finish(RUN).unwrap().success().unwrap();
}

/// perftest reads from host B's own address, and may not write there.
fn perftest_reads_and_is_told_that_it_may_not_write(a: &mut Guest, b: &mut Guest) {
    // -R: connection managers name the queue pair that a refusal is told to.
    for (tool, passes) in [("ib_read_bw", true), ("ib_write_bw -R", false)] {
        let server = format!("timeout 60 {tool} -F -d rxe0 -x 1 -m 1024 -n 20");
        let serving = b.start(&server).unwrap();
        b.wait_for_rdma_server().unwrap();
        let client = a.run(&format!("{server} {}", HOST_V4[1]), RUN).unwrap();
        assert_eq!(client.code == 0, passes, "{tool}: {client:?}");
        let is_told = client.output.contains("Failed status 10");
        assert_eq!(is_told, !passes, "{tool}: {client:?}");
        drop(serving.finish(RUN).unwrap());
    }
}

#[test]
fn each_operation_over_each_kind_of_queue_pair_ends_as_its_line_says() {
    const TEST: &str = "each_operation_over_each_kind_of_queue_pair_ends_as_its_line_says";
    let kernel = match GuestKernel::find() {
        Ok(kernel) => kernel,
        Err(reason) => return eprintln!("SKIPPED: {TEST}: {reason:#}"),
    };
    let verbs = Command::new("/usr/bin/python3").args(["-c", "import pyverbs.qp"]).output();
    if !verbs.is_ok_and(|it| it.status.success()) {
        return eprintln!("SKIPPED: {TEST} needs python3-pyverbs");
    }
    let plan = Plan { hosts: Hosts::Guests, ..Plan::default() };
    let Some(Stand { _turn, lab }) = stand_with(TEST, plan) else { return };
    let mut a = Guest::boot(&lab, Side::A, &kernel).unwrap();
    let mut b = Guest::boot(&lab, Side::B, &kernel).unwrap();
    let pair_lines = "access_state = \"learn\"\naccess_psn = \"drop\"\n".to_owned();
    let setup = Setup { tables_of_a: lines() + "\n[store]\n", pair_lines, ..sealed() };
    let mut gateways = Gateways::start(&lab, &setup).unwrap();
    a.wait_ready().unwrap();
    b.wait_ready().unwrap();
    let wire = listen(&lab, 128);
    let all = VERDICTS.iter().chain(&CONNECTIONS);
    let adds =
        all.map(|(it, _)| format!("ip address add {it}/24 dev eth0 && ")).collect::<String>();
    b.run(&(adds + "true"), RUN).unwrap().success().unwrap();

    let addresses = VERDICTS.map(|(it, _)| it).join(" ");
    let [own, server] = HOST_V4;
    let serving = b.start(&format!("exec {VERBS} serve {server} {addresses}")).unwrap();
    let client = a.start(&format!("exec {VERBS} ask {server} {own} {addresses}")).unwrap();
    each_operation_ends_as_its_line_says(&client);

    // Queue pairs that stand are judged again by the lines of a reload.
    let change = |text: String| text.replace("action = \"would_deny\"", "action = \"deny\"");
    let file = lab.folder().join("gw-a.toml");
    configure(&lab, Side::A, &change(std::fs::read_to_string(file).unwrap())).unwrap();
    gateways.add_tables(&lab, Side::A, "").unwrap();
    a.run("touch /tmp/again", RUN).unwrap().success().unwrap();
    let said = client.finish(RUN).unwrap().success().unwrap();
    serving.finish(RUN).unwrap().success().unwrap();
    let again: Vec<Ended> =
        said.lines().skip_while(|it| *it != "first").filter_map(Ended::of).collect();
    show(&again);
    let deny = |address: &str| verdict_of(address).replace("would_deny", "deny");
    again.iter().filter(|it| it.what.starts_with("rc")).for_each(|it| it.check(&deny(&it.address)));
    let reliable = again.iter().filter(|it| it.what.starts_with("rc")).count();
    assert_eq!(reliable, 2 * RELIABLE_OPERATIONS, "{said}");

    connections_are_made_and_refused(&mut a, &mut b);
    perftest_reads_and_is_told_that_it_may_not_write(&mut a, &mut b);
    assert_sealed(&wire.stop().unwrap());
    let hits = gateways.access_hits(Side::A).unwrap();
    assert!(number(&hits, "/pairs/0/answered") > 5, "{hits:#}");
    for nobody in ["forged", "out_of_window", "unconnected"] {
        assert_eq!(number(&hits, &format!("/pairs/0/state/{nobody}")), 0, "{hits:#}");
    }
    assert_eq!(gateways.status(Side::A).unwrap()["adds_up"], true);
    what_was_seen_is_remembered(&lab, &mut gateways, &setup);
}

/// Alerts and lines out of the gateway's own store; owners of queue pairs over a restart.
fn what_was_seen_is_remembered(lab: &Lab, gateways: &mut Gateways, setup: &Setup) {
    gateways.end(Side::A, Signal::TERM).unwrap();
    let store = lab.folder().join("state/gw-a/store");
    let weir = |arguments: &[&str]| {
        let mut command = Command::new(WEIR);
        command.args(arguments).arg("--store").arg(&store);
        process::run(&mut command, PATIENCE).unwrap().stdout
    };
    let alerts = weir(&["alerts", "--last", "1h", "--limit", "10000", "--json"]);
    for signature in ["line reject rejects write", "line would_deny would deny atomic"] {
        assert!(alerts.contains(signature), "{signature}: {alerts}");
    }
    let lines = weir(&["access", "learn", "--gateway", "gw-a"]);
    let asks =
        |line: &str| ["\"write\"", "\"read\"", "\"atomic\""].iter().all(|it| line.contains(it));
    let of_allowed = lines.split("[[access]]").filter(|it| it.contains(VERDICTS[0].0));
    assert!(of_allowed.into_iter().any(asks), "{lines}");
    gateways.start_again(lab, setup, Side::A).unwrap();
    let hits = gateways.access_hits(Side::A).unwrap();
    assert!(number(&hits, "/pairs/0/state/queue_pairs") >= 40, "{hits:#}");
}
