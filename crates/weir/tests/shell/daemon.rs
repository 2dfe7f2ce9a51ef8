//! A running gateway as its service manager and its administrator meet it, in a network namespace
//! of its own that ends with it. Needs root; says so and passes where there is none.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const WEIR: &str = env!("CARGO_BIN_EXE_weir");
const PATIENCE: Duration = Duration::from_secs(20);

/// A configuration in a folder of its own.
struct ConfigFolder {
    folder: tempfile::TempDir,
}

impl ConfigFolder {
    fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        place.configure("gw", "");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn configure(&self, name: &str, more: &str) -> PathBuf {
        let folder = self.folder.path().display();
        let text = format!(
            "[gateway]\nname = \"{name}\"\nstate_dir = \"{folder}/state\"\n\
             run_dir = \"{folder}/run\"\n[[pair]]\nhost = \"host0\"\nwire = \"wire0\"\n\
             default = \"forward\"\n{more}"
        );
        let file = self.path(&format!("{name}.toml"));
        fs::write(&file, text).unwrap();
        file
    }

    /// A peer in ethernet mode, with fresh keys.
    fn sealing(&self) -> String {
        let keys = self.path("keys");
        if !keys.exists() {
            let made = Command::new(WEIR)
                .args(["keys", "generate", "a", "b", "--directory"])
                .arg(&keys)
                .output()
                .unwrap();
            assert!(made.status.success());
        }
        "address = \"192.0.2.1/24\"\n[[peer]]\nname = \"b\"\nmode = \"ethernet\"\n\
         endpoint = \"192.0.2.2\"\nprotects = \"10.0.0.0/8\"\n\
         seal = { spi = 4097, key_file = \"keys/a-to-b.key\" }\n\
         open = { spi = 4098, key_file = \"keys/b-to-a.key\" }\n"
            .to_owned()
    }

    /// Runs `weir up` in a namespace with ports `host0` and `wire0`, after `prepare`.
    fn up(&self, prepare: &str, more: &[&str]) -> Running {
        let script = format!(
            "ip link add host0 type veth peer name host1 && \
             ip link add wire0 type veth peer name wire1 && \
             for i in lo host0 host1 wire0 wire1; do ip link set $i up; done && \
             {prepare} exec \"$@\""
        );
        let child = Command::new("unshare")
            .args(["-n", "sh", "-c", &script, "sh", WEIR, "up"])
            .arg(self.path("gw.toml"))
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::from(fs::File::create(self.path("log")).unwrap()))
            .spawn()
            .unwrap();
        Running { child, log: self.path("log"), run_dir: self.path("run") }
    }
}

struct Running {
    child: Child,
    log: PathBuf,
    run_dir: PathBuf,
}

impl Running {
    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    fn weir(&self, command: &str) -> Output {
        let mut weir = Command::new(WEIR);
        weir.arg(command).arg("gw").arg("--json").arg("--run-dir").arg(&self.run_dir);
        weir.output().unwrap()
    }

    fn status(&self) -> Option<serde_json::Value> {
        let output = self.weir("status");
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// The first status that `wanted` takes.
    #[track_caller]
    fn wait(&mut self, wanted: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.status().filter(|status| wanted(status)) {
                return status;
            }
            if let Some(code) = self.child.try_wait().unwrap() {
                panic!("ended with {code}:\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("not in time; status {:?}; log:\n{}", self.status(), self.log());
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").arg(signal).arg(self.child.id().to_string()).status();
        assert!(sent.unwrap().success());
    }

    /// The exit code, once it ended by itself.
    #[track_caller]
    fn ended(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("still running; log:\n{}", self.log());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether namespaces can be made here.
fn namespaces() -> bool {
    let script = "ip link add host0 type veth peer name host1";
    let tried = Command::new("unshare").args(["-n", "sh", "-c", script]).output();
    let possible = tried.is_ok_and(|output| output.status.success());
    if !possible {
        eprintln!("SKIPPED: daemon tests need root, unshare and iproute2");
    }
    possible
}

#[test]
fn a_gateway_starts_shows_its_counters_and_stops_cleanly() {
    if !namespaces() {
        return;
    }
    let place = ConfigFolder::new();
    let mut gateway = place.up("", &[]);
    let status = gateway.wait(|_| true);
    assert_eq!(status["name"], "gw");
    assert_eq!(status["adds_up"], true);
    assert_eq!(status["pid"], gateway.child.id());
    assert_eq!(status["pairs"][0]["policy_epoch"], 1);
    assert_eq!(gateway.weir("drops").status.code(), Some(0));
    gateway.signal("-TERM");
    assert_eq!(gateway.ended(), Some(0), "{}", gateway.log());
    assert!(!place.path("run/gw.sock").exists());
}

#[test]
fn a_broken_file_at_sighup_leaves_the_old_configuration_in_force() {
    if !namespaces() {
        return;
    }
    let place = ConfigFolder::new();
    let mut gateway = place.up("", &[]);
    gateway.wait(|_| true);

    place.configure("gw", "colour = \"red\"\n");
    gateway.signal("-HUP");
    let status = gateway.wait(|status| status["reloads_refused"] == 1);
    assert_eq!(status["pairs"][0]["policy_epoch"], 1);
    assert!(gateway.log().contains("unknown field `colour`"), "{}", gateway.log());

    place.configure("gw", "[limits]\nflows = 100\n");
    gateway.signal("-HUP");
    gateway.wait(|status| status["reloads_refused"] == 2);
    assert!(gateway.log().contains("needs a restart"), "{}", gateway.log());

    place.configure("gw", &place.sealing());
    gateway.signal("-HUP");
    gateway.wait(|status| status["pairs"][0]["policy_epoch"] == 2);
    gateway.signal("-INT");
    assert_eq!(gateway.ended(), Some(0));
}

#[test]
fn a_plan_that_one_of_two_pairs_refuses_changes_neither() {
    if !namespaces() {
        return;
    }
    let second = "ip link add host2 type veth peer name host3 && \
                  ip link add wire2 type veth peer name wire3 && \
                  for i in host2 host3 wire2 wire3; do ip link set $i up; done &&";
    let place = ConfigFolder::new();
    let configure = |icrc: &str, peer: &str, keys: &str| {
        let sealing = place.sealing().replace("[[peer]]", &format!("[[peer]]\n{peer}"));
        let more = format!("icrc = \"{icrc}\"\n[[pair]]\nhost = \"host2\"\nwire = \"wire2\"\n");
        place.configure("gw", &(more + &sealing.replace("keys/", keys)));
    };
    configure("check", "pair = \"host2\"", "keys/");
    let mut gateway = place.up(second, &[]);
    let status = gateway.wait(|_| true);
    assert_eq!(status["pairs"].as_array().map(Vec::len), Some(2));
    let epochs = |status: &serde_json::Value| {
        [0, 1].map(|pair| status["pairs"][pair]["policy_epoch"].as_u64().unwrap())
    };

    // The first pair could take this; the second would have to forget what it accepted.
    configure("off", "pair = \"host2\"\nreplay_window = 2048", "keys/");
    gateway.signal("-HUP");
    let status = gateway.wait(|status| status["reloads_refused"] == 1);
    assert_eq!(epochs(&status), [1, 1]);
    let log = gateway.log();
    assert!(log.contains("pair host2: peer b: the SPI, the numbering or the replay"), "{log}");

    // With new keys both take it.
    fs::rename(place.path("keys"), place.path("old")).unwrap();
    place.sealing();
    fs::rename(place.path("keys"), place.path("new")).unwrap();
    fs::rename(place.path("old"), place.path("keys")).unwrap();
    configure("off", "pair = \"host2\"\nreplay_window = 2048", "new/");
    gateway.signal("-HUP");
    gateway.wait(|status| epochs(status) == [2, 2]);
    gateway.signal("-TERM");
    assert_eq!(gateway.ended(), Some(0), "{}", gateway.log());
}

#[test]
fn a_second_gateway_on_the_same_ports_is_refused() {
    if !namespaces() {
        return;
    }
    let place = ConfigFolder::new();
    let mut first = place.up("", &[]);
    first.wait(|_| true);
    let second = Command::new("nsenter")
        .args(["-n", "-t", &first.child.id().to_string(), WEIR, "up"])
        .arg(place.configure("other", ""))
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(1));
    let words = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(words.contains("belongs to a gateway that runs already"), "{words}");
    assert!(words.contains(&first.child.id().to_string()), "{words}");
}

#[test]
fn ports_that_are_missing_down_or_administrative_are_refused() {
    if !namespaces() {
        return;
    }
    let cases = [
        // What may come yet is worth another start.
        ("ip link set wire0 down &&", "`wire0` is down", 1),
        ("ip link del wire0 &&", "`wire0` is not there", 1),
        (
            "ip addr add 192.0.2.9/24 dev host0 && ip route add default via 192.0.2.1 &&",
            "default route",
            2,
        ),
    ];
    for (prepare, words, code) in cases {
        let place = ConfigFolder::new();
        let mut gateway = place.up(prepare, &["--wait", "0"]);
        assert_eq!(gateway.ended(), Some(code), "{}", gateway.log());
        assert!(gateway.log().contains(words), "{}", gateway.log());
    }
    let place = ConfigFolder::new();
    let mut forced = place.up(cases[2].0, &["--force"]);
    forced.wait(|_| true);
}

#[test]
fn a_wire_that_cannot_carry_sealed_roce_is_refused() {
    if !namespaces() {
        return;
    }
    let place = ConfigFolder::new();
    place.configure("gw", &format!("roce_mtu = 4096\n{}", place.sealing()));
    let mut narrow = place.up("ip link set wire0 mtu 4200 &&", &[]);
    assert_eq!(narrow.ended(), Some(2));
    assert!(narrow.log().contains("ip link set wire0 mtu 4260"), "{}", narrow.log());
    let mut wide = place.up("ip link set wire0 mtu 4260 &&", &[]);
    wide.wait(|_| true);
}

#[test]
fn a_used_key_without_its_state_is_refused_after_a_kill() {
    if !namespaces() {
        return;
    }
    let place = ConfigFolder::new();
    place.configure("gw", &place.sealing());
    let mut killed = place.up("", &[]);
    killed.wait(|_| true);
    killed.signal("-KILL");
    killed.ended();
    let mut again = place.up("", &[]);
    again.wait(|_| true);
    again.signal("-KILL");
    again.ended();

    remove_states(&place.path("state"));
    let mut refused = place.up("", &[]);
    assert_eq!(refused.ended(), Some(1), "{}", refused.log());
    assert!(refused.log().contains("a nonce could repeat"), "{}", refused.log());
    let mut forgetting = place.up("", &["--danger-forget-state"]);
    forgetting.wait(|_| true);
}

#[test]
fn a_used_key_with_an_emptied_state_directory_is_refused_and_a_fresh_one_begins() {
    if !namespaces() {
        return;
    }
    let place = ConfigFolder::new();
    place.configure("gw", &place.sealing());
    let mut first = place.up("", &[]);
    first.wait(|_| true);
    first.signal("-TERM");
    first.ended();

    fs::remove_dir_all(place.path("state")).unwrap();
    for _attempt in 0..2 {
        let mut refused = place.up("", &[]);
        assert_eq!(refused.ended(), Some(1), "{}", refused.log());
        assert!(refused.log().contains("a nonce could repeat"), "{}", refused.log());
    }
    let mut forgetting = place.up("", &["--danger-forget-state"]);
    forgetting.wait(|_| true);
    forgetting.signal("-TERM");
    forgetting.ended();

    fs::remove_dir_all(place.path("state")).unwrap();
    fs::remove_dir_all(place.path("keys")).unwrap();
    place.configure("gw", &place.sealing());
    let mut fresh = place.up("", &[]);
    fresh.wait(|_| true);
}

fn remove_states(folder: &Path) {
    let mut removed = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "state") {
            fs::remove_file(path).unwrap();
            removed += 1;
        }
    }
    assert_eq!(removed, 2);
}

#[test]
fn the_service_manager_hears_of_start_reload_and_end() {
    if !namespaces() {
        return;
    }
    let place = ConfigFolder::new();
    let path = place.path("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let heard = move || {
        let mut bytes = [0; 1024];
        let count = manager.recv(&mut bytes).expect("a word in time");
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    };
    let prepare = format!("export NOTIFY_SOCKET={} &&", path.display());
    let mut gateway = place.up(&prepare, &[]);
    assert!(heard().contains("READY=1"));
    gateway.signal("-HUP");
    assert!(heard().contains("RELOADING=1"));
    assert!(heard().contains("READY=1"));
    gateway.signal("-TERM");
    assert!(heard().contains("STOPPING=1"));
    assert_eq!(gateway.ended(), Some(0));
}

#[test]
fn a_slow_or_hostile_control_client_stops_nobody() {
    if !namespaces() {
        return;
    }
    let place = ConfigFolder::new();
    let mut gateway = place.up("", &[]);
    gateway.wait(|_| true);
    let mut idle = std::os::unix::net::UnixStream::connect(place.path("run/gw.sock")).unwrap();
    gateway.wait(|status| status["adds_up"] == true);
    idle.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(idle.read(&mut [0; 16]).unwrap_or(0), 0, "cut off without an answer");
}

/// What strace saw of the sockets in the file system: their path, and the modes that were set
/// between bind and listen.
fn sockets_listening(trace: &str) -> Vec<(String, Vec<String>)> {
    let quoted = |line: &str| line.split('"').nth(1).map(str::to_owned);
    let descriptor = |line: &str| line.split(['(', ',', ')']).nth(1).map(str::to_owned);
    let (mut bound, mut listening) = (Vec::new(), Vec::new());
    for line in trace.lines().filter(|it| it.ends_with(" = 0")) {
        let call = line.split('(').next().unwrap_or_default();
        match call {
            "bind" if line.contains("AF_UNIX") => {
                bound.push((descriptor(line), quoted(line).unwrap_or_default(), Vec::new()));
            }
            "listen" => {
                let at = bound.iter().position(|it| it.0 == descriptor(line));
                listening.extend(at.map(|at| bound.remove(at)).map(|it| (it.1, it.2)));
            }
            _ => {
                let Some((path, mode)) = quoted(line).zip(line.rsplit([',', ')']).nth(1)) else {
                    continue;
                };
                let of_it = bound.iter_mut().filter(|it| it.1 == path);
                of_it.for_each(|it| it.2.push(mode.trim().to_owned()));
            }
        }
    }
    listening
}

/// Asks a gateway for its status at the socket argv 2, as the user of number argv 1, and prints how
/// the answer begins.
const ASK: &str = "\
import os, socket, sys
os.setgroups([])
os.setresgid(*[int(sys.argv[1])] * 3)
os.setresuid(*[int(sys.argv[1])] * 3)
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[2])
try:
    s.sendall(b'{\"command\":\"status\"}\\n')
    print(s.makefile().readline()[:9])
except ConnectionError:
    pass
";

#[test]
fn every_socket_has_its_mode_before_it_listens_and_asks_who_connects() {
    let strace = Command::new("strace").arg("-V").output().is_ok();
    if !namespaces() || !strace {
        return eprintln!("SKIPPED: every_socket_has_its_mode needs root and strace");
    }
    let place = ConfigFolder::new();
    place.configure("gw", "xfrm = true\n[store]\ngroup = \"root\"\noperate = true\n");
    let trace = place.path("trace").display().to_string();
    // Beside it, and a file for each thread, whose calls do not mix.
    let calls = "trace=bind,listen,?chmod,fchmodat";
    let prepare = format!("set -- strace -D -ff -s 200 -o {trace} -e {calls} \"$@\" &&");
    let mut gateway = place.up(&prepare, &[]);
    gateway.wait(|_| true);

    // Whatever has become of the mode of the file.
    for (name, mode) in [("", 0o755), ("run", 0o755), ("run/gw.sock", 0o666)] {
        fs::set_permissions(place.path(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    let asked_by = |user: &str| {
        let socket = place.path("run/gw.sock");
        let said = Command::new("python3").args(["-c", ASK, user]).arg(socket).output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8(said.stdout).unwrap()
    };
    assert_eq!(asked_by("65534").trim(), "");
    assert!(gateway.log().contains("user 65534 is neither root"), "{}", gateway.log());
    assert!(asked_by("0").starts_with("{"), "root is told");

    gateway.signal("-TERM");
    assert_eq!(gateway.ended(), Some(0), "{}", gateway.log());
    let whole = place.path(&format!("trace.{}", gateway.child.id()));
    let deadline = Instant::now() + PATIENCE;
    let mut seen = String::new();
    while !seen.contains("+++ exited") && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
        seen = fs::read_to_string(&whole).unwrap_or_default();
    }
    let files = fs::read_dir(place.folder.path()).unwrap().map(|it| it.unwrap().path());
    let traces = files.filter(|it| it.display().to_string().starts_with(&trace));
    let listening: Vec<_> =
        traces.flat_map(|it| sockets_listening(&fs::read_to_string(it).unwrap())).collect();
    assert_eq!(listening.len(), 4, "control, operators, status, front ends: {listening:?}");
    for (path, modes) in &listening {
        assert_eq!(modes, &["0600"], "{path}: {listening:?}");
    }
}

#[test]
fn ten_thousand_peers_are_started_reloaded_and_shown() {
    use base64ct::{Base64, Encoding};
    if !namespaces() {
        return;
    }
    const PEERS: u32 = 10_000;
    let place = ConfigFolder::new();
    let made = Command::new(WEIR).args(["keys", "identity"]).arg(place.path("id")).output();
    assert!(made.unwrap().status.success());
    let configure = |icrc: &str| {
        let mut text = format!("address = \"172.16.0.1/12\"\nicrc = \"{icrc}\"\n");
        for number in 0..PEERS {
            let [_, b, c, d] = (number + 2).to_be_bytes();
            let mut key = [7; 32];
            key[..4].copy_from_slice(&number.to_be_bytes());
            text += &format!(
                "[[peer]]\nname = \"p{number}\"\nmode = \"tunnel\"\nendpoint = \
                 \"172.{}.{c}.{d}\"\nprotects = \"10.{b}.{c}.{d}/32\"\npublic_key = \"{}\"\n",
                16 + b,
                Base64::encode_string(&key)
            );
        }
        place.configure("gw", &format!("{text}[keying]\nidentity_file = \"id\"\n"));
    };
    configure("check");
    let mut gateway = place.up("", &[]);
    let peers = |status: &serde_json::Value| status["pairs"][0]["peers"].as_array().map(Vec::len);
    let status = gateway.wait(|_| true);
    assert_eq!(peers(&status), Some(PEERS as usize));
    assert!(status["pairs"][0]["peers"][9999]["keying"]["public_key"].is_string());
    configure("off");
    gateway.signal("-HUP");
    let status = gateway.wait(|status| status["pairs"][0]["policy_epoch"] == 2);
    assert_eq!(peers(&status), Some(PEERS as usize));
    gateway.signal("-TERM");
    assert_eq!(gateway.ended(), Some(0), "{}", gateway.log());
}
