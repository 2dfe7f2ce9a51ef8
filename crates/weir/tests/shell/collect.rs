//! `weir collect` with strangers as exporters: softflowd in each of its formats, Open vSwitch; what
//! is lost on the way; and what nobody should send.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const WEIR: &str = env!("CARGO_BIN_EXE_weir");

fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/roce")
}

/// A collector on a free port of this machine's loopback.
struct Collector {
    child: Child,
    port: u16,
    store: PathBuf,
}

impl Collector {
    fn start(folder: &Path, more: &[&str]) -> Self {
        let probe = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = probe.local_addr().unwrap().port();
        drop(probe);
        let store = folder.join("racks.sqlite");
        let address = format!("127.0.0.1:{port}");
        let mut command = Command::new(WEIR);
        command.args(["collect", "--json", "--listen", &address, "--tcp", &address]).args(more);
        command.arg("--store").arg(&store).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("collecting on")));
        // Its log goes on: somebody must read it.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, port, store }
    }

    fn send(&self, message: &[u8]) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(message, ("127.0.0.1", self.port)).unwrap();
    }

    /// Ends it as a service manager does; what it counted.
    fn stop(mut self) -> Value {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").arg(&pid).status().unwrap().success());
        let mut said = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        serde_json::from_str(&said).unwrap()
    }

    fn rows(store: &Path, command: &[&str]) -> Vec<Value> {
        let output = Self::ask(store, command);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn ask(store: &Path, command: &[&str]) -> Output {
        let mut asked = Command::new(WEIR);
        asked.args(command).args(["--json", "--limit", "10000", "--store"]).arg(store);
        asked.output().unwrap()
    }

    /// Waits until the store has a row; minutes, for a machine that is busy.
    fn wait_for_rows(&self, command: &[&str], wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let end = Instant::now() + Duration::from_secs(120);
        loop {
            // A store that is being made has no file, or no tables yet.
            let output = Self::ask(&self.store, command);
            let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_default();
            if wanted(&rows) {
                return rows;
            }
            assert!(Instant::now() < end, "{rows:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn total(rows: &[Value], names: &[&str]) -> u64 {
    let of = |row: &Value| names.iter().map(|it| row[*it].as_u64().unwrap()).sum::<u64>();
    rows.iter().map(of).sum()
}

/// IP packets of a capture, as tcpdump counts them.
fn ip_packets(capture: &Path) -> u64 {
    let tcpdump = Command::new("tcpdump").args(["-nr"]).arg(capture).arg("ip or ip6").output();
    tcpdump.unwrap().stdout.iter().filter(|it| **it == b'\n').count() as u64
}

#[test]
fn what_softflowd_exports_in_each_format_is_stored_whole() {
    let capture = captures().join("rc-write-rdmacm.pcap");
    let packets = ip_packets(&capture);
    assert!(packets > 10);
    for version in ["5", "9", "10"] {
        let folder = tempfile::tempdir().unwrap();
        let collector = Collector::start(folder.path(), &[]);
        let target = format!("127.0.0.1:{}", collector.port);
        let mut softflowd = Command::new("softflowd");
        softflowd.args(["-v", version, "-n", &target, "-c"]).arg(folder.path().join("ctl"));
        softflowd.arg("-p").arg(folder.path().join("pid")).arg("-r").arg(&capture);
        let output = softflowd.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let counts = ["packets", "reply_packets"];
        let rows = collector.wait_for_rows(&["flows"], |it| total(it, &counts) >= packets);
        assert_eq!(total(&rows, &counts), packets, "version {version}");
        assert!(rows.iter().all(|it| it["exporter"] == "127.0.0.1"), "{rows:?}");
        assert!(rows.iter().any(|it| it["destination_port"] == 4791), "{rows:?}");
        let store = collector.store.clone();
        let said = collector.stop();
        assert_eq!(said["exporters"][0]["counters"]["lost"], 0, "{said}");
        assert_eq!(said["exporters"][0]["counters"]["malformed"], 0, "{said}");
        let talkers = Collector::rows(&store, &["top-talkers"]);
        assert_eq!(total(&talkers, &["sent_packets"]), packets);
        assert!(Collector::rows(&store, &["flows", "--exporter", "192.0.2.1"]).is_empty());
    }
}

/// A NetFlow v5 message of one flow (the format of Cisco's, 24 bytes of header, 48 of record).
fn v5(sequence: u32, packets: u32) -> Vec<u8> {
    let mut message = vec![0; 72];
    message[..4].copy_from_slice(&[0, 5, 0, 1]);
    message[4..8].copy_from_slice(&60_000_u32.to_be_bytes());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    message[8..12].copy_from_slice(&(now.as_secs() as u32).to_be_bytes());
    message[16..20].copy_from_slice(&sequence.to_be_bytes());
    message[24..28].copy_from_slice(&[10, 0, 0, 1]);
    message[28..32].copy_from_slice(&[10, 0, 0, 2]);
    message[40..44].copy_from_slice(&packets.to_be_bytes());
    message[44..48].copy_from_slice(&(packets * 100).to_be_bytes());
    message[48..52].copy_from_slice(&50_000_u32.to_be_bytes());
    message[52..56].copy_from_slice(&59_000_u32.to_be_bytes());
    message[62] = 17;
    message
}

#[test]
fn lost_numbers_are_counted_and_nonsense_harms_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let collector = Collector::start(folder.path(), &["--exporter", "127.0.0.0/8"]);
    let exporter = UdpSocket::bind("127.0.0.1:0").unwrap();
    for (sequence, packets) in [(100, 1), (101, 2), (105, 3)] {
        exporter.send_to(&v5(sequence, packets), ("127.0.0.1", collector.port)).unwrap();
    }
    collector.send(b"");
    collector.send(&[0xff; 1400]);
    // IPFIX: its length says more than there is; a set shorter than its header; endless fields.
    collector.send(&[0, 10, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
    collector.send(&[0, 10, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 1, 0, 0, 1]);
    collector.send(&[0, 10, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 2, 0, 8, 1, 0, 255, 255]);
    let mut stream = TcpStream::connect(("127.0.0.1", collector.port)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(stream.read(&mut [0; 16]).unwrap_or(0), 0, "what is not IPFIX is shut");
    let rows = collector.wait_for_rows(&["flows"], |it| it.len() == 3);
    assert_eq!(total(&rows, &["packets"]), 6);
    assert_eq!(total(&rows, &["bytes"]), 6 * 114, "with link headers, as everywhere");
    let store = collector.store.clone();
    let said = collector.stop();
    let of = |domain: u64| {
        let found = said["exporters"].as_array().unwrap().iter().find(|it| it["domain"] == domain);
        found.unwrap_or_else(|| panic!("{said}"))["counters"].clone()
    };
    assert_eq!((&of(0)["lost"], &of(0)["records"]), (&3.into(), &3.into()), "{said}");
    assert!(of(7)["malformed"].as_u64() >= Some(1) && of(7)["records"] == 0, "{said}");
    assert!(said["refused"]["foreign"].as_u64() >= Some(1), "{said}");
    assert!(store.exists());
}

/// pyarrow, which pandas reads Parquet with, is not in Debian: `pip install pyarrow`, and
/// `WEIR_PYTHON` says which Python has it.
const PYARROW: &str = "
import json, sys, pyarrow.parquet
table = pyarrow.parquet.read_table(sys.argv[1])
print(json.dumps({'rows': table.to_pylist(), 'types': {f.name: str(f.type) for f in table.schema}}))
";

#[test]
fn pyarrow_reads_the_rows_that_json_has() {
    let python = std::env::var("WEIR_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    if !Command::new(&python)
        .args(["-c", "import pyarrow.parquet"])
        .output()
        .unwrap()
        .status
        .success()
    {
        eprintln!("SKIPPED: pyarrow is not in Debian, and not here by pip");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let collector = Collector::start(folder.path(), &[]);
    collector.send(&v5(1, 7));
    let rows = collector.wait_for_rows(&["flows"], |it| it.len() == 1);
    let file = folder.path().join("flows.parquet");
    let mut asked = Command::new(WEIR);
    asked.args(["flows", "--format", "parquet", "--store"]).arg(&collector.store);
    std::fs::write(&file, asked.output().unwrap().stdout).unwrap();
    let output = Command::new(&python).args(["-c", PYARROW]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(read["types"]["bytes"], "uint64", "{read}");
    for (name, value) in rows[0].as_object().unwrap().iter().filter(|(_, it)| !it.is_object()) {
        assert_eq!(&read["rows"][0][name], value, "{name}");
    }
    collector.stop();
}

#[test]
fn strangers_are_not_heard() {
    let folder = tempfile::tempdir().unwrap();
    let collector = Collector::start(folder.path(), &["--exporter", "192.0.2.0/24"]);
    collector.send(&v5(1, 1));
    std::thread::sleep(Duration::from_millis(300));
    let said = collector.stop();
    assert_eq!(said["refused"]["strangers"], 1, "{said}");
    assert_eq!(said["store"]["records"], 0, "{said}");
}

/// Says what time it is to a program that is started with it.
const LIBFAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

/// Ten years ahead at a start, set right, and ahead once more: nothing that it keeps for a day is
/// gone.
#[test]
fn a_clock_that_is_set_while_it_runs_and_between_two_runs_deletes_nothing() {
    // Where times are far from the clock, that of arrival counts.
    const EVER: [&str; 5] =
        ["flows", "--from", "2020-01-01T00:00:00Z", "--until", "2090-01-01T00:00:00Z"];
    if !Path::new(LIBFAKETIME).exists() {
        eprintln!("SKIPPED: libfaketime is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let days = ["--records-days", "1"];
    let collector = Collector::start(folder.path(), &days);
    collector.send(&v5(0, 3));
    collector.wait_for_rows(&EVER, |it| it.len() == 1);
    collector.stop();
    let clock = folder.path().join("clock");
    std::fs::write(&clock, "+3650d\n").unwrap();
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let store = folder.path().join("racks.sqlite");
    let mut command = Command::new(WEIR);
    command.args(["collect", "--json", "--listen", &format!("127.0.0.1:{port}")]).args(days);
    command.arg("--store").arg(&store).env("LD_PRELOAD", LIBFAKETIME);
    command.env("FAKETIME_TIMESTAMP_FILE", &clock).env("FAKETIME_NO_CACHE", "1");
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || said.for_each(|line| drop(sender.send(line))));
    let wait_for = |wanted: &str| loop {
        let line = lines.recv_timeout(Duration::from_secs(120)).expect(wanted);
        if line.contains(wanted) {
            break line;
        }
    };
    wait_for("collecting on");
    let collector = Collector { child, port, store };
    // It looks at the clock before it writes, and then twice a minute.
    for (number, time, step) in [(1, "+0", "step_s=-3153"), (2, "+3650d", "step_s=3153")] {
        collector.send(&v5(number, 4));
        let is_there = |rows: &[Value]| rows.len() as u32 == 1 + number;
        collector.wait_for_rows(&EVER, is_there);
        let next = folder.path().join("next");
        std::fs::write(&next, format!("{time}\n")).unwrap();
        std::fs::rename(&next, &clock).unwrap();
        let said = wait_for("the clock stepped");
        assert!(said.contains(step), "{said}");
    }
    let store = collector.store.clone();
    collector.stop();
    // The next run begins by removing what is too old.
    Collector::start(folder.path(), &days).stop();
    let rows = Collector::rows(&store, &EVER);
    assert_eq!(total(&rows, &["packets"]), 11, "{rows:?}");
}

/// Open vSwitch between two hosts, exporting NetFlow and IPFIX to a collector beside it. Everything
/// is in namespaces that end with the script, and in `$D`.
const OVS: &str = r#"
set -e
mount -t tmpfs none /run
mkdir -p /run/netns
for n in 1 2; do
    ip netns add h$n
    ip link add p$n type veth peer name e$n
    ip link set e$n netns h$n
    ip link set p$n up
    ip -n h$n link set lo up
    ip -n h$n link set e$n up
    ip -n h$n addr add 10.9.0.$n/24 dev e$n
    ip netns exec h$n ethtool -K e$n tx off >/dev/null 2>&1
done
ip link set lo up
export OVS_RUNDIR=$D OVS_LOGDIR=$D OVS_DBDIR=$D
ovsdb-tool create $D/conf.db /usr/share/openvswitch/vswitch.ovsschema
ovsdb-server $D/conf.db --remote=punix:$D/db.sock --pidfile --detach --log-file
ovs-vsctl --db=unix:$D/db.sock --no-wait init
ovs-vswitchd unix:$D/db.sock --pidfile --detach --log-file 2>/dev/null
end() { kill $(cat $D/ovs-vswitchd.pid) $(cat $D/ovsdb-server.pid) $C 2>/dev/null || true; wait; }
trap end EXIT
$WEIR collect --json --ingress-only --listen 127.0.0.1:2055 --store $D/ovs.sqlite \
    > $D/said 2> $D/log &
C=$!
for i in $(seq 100); do grep -q collecting $D/log && break; sleep 0.1; done
vsctl() { ovs-vsctl --db=unix:$D/db.sock --timeout=30 "$@"; }
vsctl add-br b0 -- set bridge b0 datapath_type=netdev
vsctl add-port b0 p1 -- add-port b0 p2
vsctl -- set bridge b0 netflow=@n \
    -- --id=@n create NetFlow 'targets="127.0.0.1:2055"' active-timeout=1
ip netns exec h1 ping -q -c 3 -i 0.2 -w 20 10.9.0.2 >/dev/null
ip netns exec h1 ping -q -c 40 -i 0.05 10.9.0.2
sleep 3
vsctl -- clear bridge b0 netflow \
    -- set bridge b0 ipfix=@i -- --id=@i create IPFIX 'targets="127.0.0.1:2055"' sampling=1 \
    obs_domain_id=77 cache_active_timeout=1
ip netns exec h1 ping -q -c 20 -i 0.05 -p ff 10.9.0.2
sleep 3
kill $C; wait $C || true
cat $D/said
"#;

#[test]
fn open_vswitch_exports_netflow_and_ipfix() {
    if Command::new("ovs-vswitchd").arg("--version").output().is_err() {
        eprintln!("SKIPPED: openvswitch-switch is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut script = Command::new("unshare");
    script.args(["-n", "-m", "bash", "-c", OVS]).env("D", folder.path()).env("WEIR", WEIR);
    let output = script.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if errors.contains("Operation not permitted") {
        eprintln!("SKIPPED: Open vSwitch in a namespace needs root");
        return;
    }
    assert!(output.status.success(), "{said}{errors}");
    let store = folder.path().join("ovs.sqlite");
    let rows = Collector::rows(&store, &["flows", "--protocol", "1"]);
    let by_netflow =
        rows.iter().filter(|it| it["source"] == "10.9.0.1" && it["pair"] != "domain 77");
    let from_one: Vec<_> = by_netflow.cloned().collect();
    // Those of before the flow was set up in the switch may be missing.
    let netflow = total(&from_one, &["packets"]);
    assert!((40..=43).contains(&netflow), "{netflow} of 43 pings: {rows:#?}{said}");
    // Its IPFIX has records with an empty string.
    let counted: Value = serde_json::from_str(&said[said.find("\n{").unwrap()..]).unwrap();
    let exporters = counted["exporters"].as_array().unwrap();
    let ipfix = &exporters.iter().find(|it| it["domain"] == 77).unwrap()["counters"];
    assert_eq!((&ipfix["undecoded"], &ipfix["malformed"]), (&0.into(), &0.into()), "{said}");
    let ipfix = Collector::rows(&store, &["flows", "--protocol", "1", "--pair", "domain 77"]);
    let of_one = ipfix.iter().filter(|it| it["source"] == "10.9.0.1").cloned().collect::<Vec<_>>();
    let packets = total(&of_one, &["packets"]);
    assert!((18..=20).contains(&packets), "{packets} of 20 pings by IPFIX: {of_one:#?}{said}");
}

#[test]
fn what_speaks_http_is_not_root_by_name_either() {
    let folder = tempfile::tempdir().unwrap();
    if folder.path().metadata().unwrap().uid() != 0 {
        eprintln!("SKIPPED: running as root needs root");
        return;
    }
    let token = folder.path().join("token").display().to_string();
    for options in [&[][..], &["--user", "root"], &["--user", "0:4242"]] {
        let mut serve = Command::new(env!("CARGO_BIN_EXE_weir"));
        serve.args(["serve", "--listen", "127.0.0.1:0", "--token-file", &token]).args(options);
        let refused = serve.output().unwrap();
        assert_eq!(refused.status.code(), Some(1), "{options:?}");
        let words = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(words.contains("does not run as root"), "{words}");
    }
    assert!(!Path::new(&token).exists(), "nothing was made");
}

#[test]
fn started_as_root_it_writes_as_another_in_a_folder_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    if folder.path().metadata().unwrap().uid() != 0 {
        eprintln!("SKIPPED: becoming another user needs root");
        return;
    }
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let own = folder.path().join("var/collect");
    let collector = Collector::start(&own, &["--user", "nobody", "--group", "4242"]);
    collector.send(&v5(0, 3));
    collector.wait_for_rows(&["flows"], |it| it.len() == 1);
    let of = |path: &Path| {
        let about = path.metadata().unwrap();
        (about.uid(), about.gid(), about.mode() & 0o777)
    };
    let nobody = of(&own).0;
    assert_ne!(nobody, 0);
    assert_eq!(of(&own), (nobody, 4242, 0o750));
    for end in ["", "-wal", "-shm"] {
        let file = own.join(format!("racks.sqlite{end}"));
        assert_eq!(of(&file), (nobody, 4242, 0o640), "{end}: the group may read all of it");
    }
    collector.stop();
    // Root's folder is not another's to write: it says so, and does not listen for nothing.
    let mut command = Command::new(WEIR);
    command.args(["collect", "--listen", "127.0.0.1:0", "--user", "nobody"]);
    let refused = command.arg("--store").arg(folder.path().join("x.sqlite")).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("cannot be written to"), "{said}");
}

/// `weir serve` over this folder of a collector, as this user; its address and its token.
fn serve_over(folder: &Path, account: &str, token_file: &Path) -> (Child, String, String) {
    let mut command = Command::new(WEIR);
    command.args(["serve", "--listen", "127.0.0.1:0", "--user", account, "--token-file"]);
    command.arg(token_file).arg("--run-dir").arg(folder).arg("--store").arg(folder);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut link = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut link).unwrap();
    let (address, token) = link.trim().split_once("/#token=").unwrap();
    (child, address.trim_start_matches("http://").to_owned(), token.to_owned())
}

fn answer(address: &str, token: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Authorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    body.to_owned()
}

#[test]
fn weir_serve_and_prometheus_see_what_exporters_lost() {
    let folder = tempfile::tempdir().unwrap();
    if folder.path().metadata().unwrap().uid() != 0 {
        eprintln!("SKIPPED: becoming another user needs root");
        return;
    }
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let own = folder.path().join("collect");
    let collector = Collector::start(&own, &["--user", "nobody", "--group", "4242"]);
    let exporter = UdpSocket::bind("127.0.0.1:0").unwrap();
    for (sequence, packets) in [(100, 1), (101, 2), (105, 3)] {
        exporter.send_to(&v5(sequence, packets), ("127.0.0.1", collector.port)).unwrap();
    }
    collector.send(&[0xff; 1400]);
    collector.wait_for_rows(&["flows"], |it| it.len() == 3);
    let token_file = folder.path().join("token");
    let (mut serve, address, token) = serve_over(&own, "64998:4242", &token_file);
    let lost =
        "weir_exporter_lost_total{gateway=\"racks\",exporter=\"127.0.0.1\",domain=\"0\"} 3\n";
    let end = Instant::now() + Duration::from_secs(60);
    let metrics = loop {
        let metrics = answer(&address, &token, "/metrics");
        if metrics.contains(lost) {
            break metrics;
        }
        assert!(Instant::now() < end, "{metrics}");
        std::thread::sleep(Duration::from_millis(200));
    };
    for line in [
        "weir_up{gateway=\"racks\"} 1\n",
        "weir_exporter_records_total{gateway=\"racks\",exporter=\"127.0.0.1\",domain=\"0\"} 3\n",
        "weir_collector_refused_total{gateway=\"racks\",cause=\"foreign\"} 1\n",
        "weir_store_failed{gateway=\"racks\"} 0\n",
    ] {
        assert!(metrics.contains(line), "{line}{metrics}");
    }
    let status: Value = serde_json::from_str(&answer(&address, &token, "/api/v1/status")).unwrap();
    let row = &status["gateways"][0];
    assert_eq!((&row["name"], &row["is_healthy"]), (&"racks".into(), &true.into()), "{status}");
    if Command::new("promtool").arg("--version").output().is_err() {
        eprintln!("SKIPPED: promtool is not installed: apt install prometheus");
    } else {
        let mut promtool = Command::new("promtool");
        promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = promtool.stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
        let said = child.wait_with_output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    }
    // A second one on the same store leaves the first one's status alone.
    let mut second = Command::new(WEIR);
    second.args(["collect", "--listen", "127.0.0.1:0", "--store"]).arg(&collector.store);
    let mut second = second.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(second.stderr.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("another `weir collect` tells its status")));
    second.kill().unwrap();
    second.wait().unwrap();
    assert!(own.join("racks.status").exists());
    collector.stop();
    assert!(!own.join("racks.status").exists(), "it is gone with its process");
    serve.kill().unwrap();
    serve.wait().unwrap();
}
