//! The construction, judged by a stranger: wireguard-go takes our initiation and we take its, with
//! and without a preshared key, and each opens the first packet under the keys of the other.
//!
//! Needs root, wireguard-go and wg; says so and passes where they are not. Runs in a network
//! namespace without a name, which ends with it.

#![allow(clippy::disallowed_methods, reason = "only the engine itself does without these")]

use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

use super::cookie::MacKeys;
use super::handshake::{self, Parties, Protocol, Terms, Timestamp};
use super::key::{Identity, PresharedKey, PublicKey};
use super::message::{self, Message};
use crate::policy::{Encapsulation, Mode};

const INSIDE: &str = "WEIR_TEST_INSIDE_NAMESPACE";
const PATIENCE: Duration = Duration::from_secs(20);
const TRANSPORT: u32 = 4;

/// wireguard-go with one peer: us.
struct Judge {
    _daemon: Daemon,
    interface: String,
    public: PublicKey,
    socket: UdpSocket,
    folder: PathBuf,
}

/// Ends with the test, however that ends.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn base64(bytes: &[u8; 32]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |bits: u32| char::from(DIGITS[bits as usize & 63]);
    let mut text: String = bytes
        .chunks(3)
        .flat_map(|it| {
            let at = |i: usize| u32::from(it.get(i).copied().unwrap_or(0));
            let word = at(0) << 16 | at(1) << 8 | at(2);
            [word >> 18, word >> 12, word >> 6, word].map(digit)
        })
        .collect();
    text.replace_range(43.., "=");
    text
}

fn run(command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "no {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Judge {
    fn start(name: &str, ours: &Identity, preshared: Option<[u8; 32]>, calls_us: bool) -> Self {
        let interface = format!("{name}{}", std::process::id());
        let folder = std::env::temp_dir().join(&interface);
        std::fs::create_dir_all(&folder).unwrap();
        let theirs = [0x5a; 32];
        let file = |name: &str, bytes: &[u8; 32]| {
            let path = folder.join(name);
            std::fs::write(&path, base64(bytes)).unwrap();
            path.display().to_string()
        };
        let mut command = Command::new("wireguard-go");
        // A daemon that outlived a failed test must not hold the test's output open.
        command.args(["-f", &interface]).stdout(Stdio::null()).stderr(Stdio::null());
        let daemon = Daemon(command.spawn().unwrap());
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let control = PathBuf::from(format!("/var/run/wireguard/{interface}.sock"));
        until("control socket", || control.exists().then_some(()));
        let mut set = format!(
            "wg set {interface} private-key {} listen-port 0 peer {} allowed-ips 10.9.0.2/32",
            file("theirs", &theirs),
            base64(&ours.public().0),
        );
        if let Some(preshared) = preshared {
            set += &format!(" preshared-key {}", file("shared", &preshared));
        }
        if calls_us {
            let endpoint = socket.local_addr().unwrap();
            set += &format!(" endpoint {endpoint} persistent-keepalive 1");
        }
        run(&set);
        run(&format!("ip link set {interface} up"));
        let public = Identity::new(Zeroizing::new(theirs)).unwrap().public();
        Self { _daemon: daemon, interface, public, socket, folder }
    }

    fn show(&self, what: &str) -> u64 {
        let shown = run(&format!("wg show {} {what}", self.interface));
        shown.split_whitespace().nth(1).and_then(|it| it.parse().ok()).unwrap_or(0)
    }

    fn call(&self, datagram: &[u8]) -> Vec<u8> {
        // It binds its socket some time after its interface is up.
        let port = until("port", || {
            let port: u16 =
                run(&format!("wg show {} listen-port", self.interface)).trim().parse().unwrap();
            (port > 0).then_some(port)
        });
        self.socket.send_to(datagram, ("127.0.0.1", port)).unwrap();
        self.receive()
    }

    fn receive(&self) -> Vec<u8> {
        let mut buffer = [0; 2048];
        let (length, from) = self.socket.recv_from(&mut buffer).unwrap();
        self.socket.connect(from).unwrap();
        buffer[..length].to_vec()
    }
}

fn nonce(counter: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&counter.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

fn cipher(key: &[u8; 32]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key).unwrap())
}

/// WireGuard's first packet: nothing, encrypted.
fn first_packet(key: &[u8; 32], receiver: u32) -> Vec<u8> {
    let tag = cipher(key).seal_in_place_separate_tag(nonce(0), Aad::empty(), &mut []).unwrap();
    let head = [TRANSPORT.to_le_bytes(), receiver.to_le_bytes()].concat();
    [&head, &0_u64.to_le_bytes()[..], tag.as_ref()].concat()
}

const TERMS: Terms =
    Terms { mode: Mode::Tunnel, encapsulation: Encapsulation::Esp, ml_kem: false, workers: 1 };

fn we_call(name: &str, preshared: Option<[u8; 32]>) {
    let ours = Identity::new(Zeroizing::new([0x21; 32])).unwrap();
    let judge = Judge::start(name, &ours, preshared, false);
    let shared = preshared.map_or(PresharedKey::none(), |it| PresharedKey::new(it.into()));
    let parties = Parties {
        protocol: Protocol::WireGuard,
        identity: &ours,
        peer: &judge.public,
        preshared: &shared,
    };
    let seed = Zeroizing::new([0x42; 32]);
    let stamp = Timestamp::new(1_700_000_000_000_000_000);
    let (mut attempt, noise) = handshake::attempt(parties, TERMS, stamp, seed).unwrap();
    let mut datagram = message::initiation(7777, &noise);
    MacKeys::new(&judge.public).finish(&mut datagram, None);
    assert_eq!(datagram.len(), 148, "WireGuard's initiation");
    let answer = judge.call(&datagram);
    let Some(Message::Response { sender, receiver: 7777, noise, macs }) = message::parse(&answer)
    else {
        panic!("{answer:?}")
    };
    assert!(MacKeys::new(&ours.public()).check(&macs));
    let agreement = attempt.finish(noise).unwrap();
    assert_eq!(judge.show("latest-handshakes"), 0, "nothing is confirmed yet");
    judge.socket.send(&first_packet(agreement.wireguard_keys().0, sender)).unwrap();
    until("confirmed handshake", || (judge.show("latest-handshakes") > 0).then_some(()));
}

fn it_calls(name: &str, preshared: Option<[u8; 32]>) {
    let ours = Identity::new(Zeroizing::new([0x22; 32])).unwrap();
    let judge = Judge::start(name, &ours, preshared, true);
    let shared = preshared.map_or(PresharedKey::none(), |it| PresharedKey::new(it.into()));
    let initiation = judge.receive();
    let Some(Message::Initiation { sender, noise, macs }) = message::parse(&initiation) else {
        panic!("{initiation:?}")
    };
    assert!(MacKeys::new(&ours.public()).check(&macs));
    let seed = Zeroizing::new([0x43; 32]);
    let offer = handshake::receive(Protocol::WireGuard, &ours, noise, seed).unwrap();
    assert_eq!(offer.peer, judge.public);
    let (noise, agreement) = offer.respond(&shared, 1).unwrap();
    let mut datagram = message::response(8888, sender, &noise);
    MacKeys::new(&judge.public).finish(&mut datagram, None);
    assert_eq!(datagram.len(), 92, "WireGuard's response");
    let packet = judge.call_connected(&datagram);
    assert_eq!(packet[..8], [TRANSPORT.to_le_bytes(), 8888_u32.to_le_bytes()].concat());
    let counter = u64::from_le_bytes(packet[8..16].try_into().unwrap());
    let mut sealed = packet[16..].to_vec();
    let key = cipher(agreement.wireguard_keys().1);
    let opened = key.open_in_place(nonce(counter), Aad::empty(), &mut sealed).unwrap();
    assert!(opened.is_empty(), "a keepalive");
}

impl Judge {
    fn call_connected(&self, datagram: &[u8]) -> Vec<u8> {
        self.socket.send(datagram).unwrap();
        self.receive()
    }
}

#[test]
fn wireguard_go_and_we_agree_whoever_calls() {
    if std::env::var_os(INSIDE).is_some() {
        we_call("wja", None);
        we_call("wjb", Some([0x77; 32]));
        it_calls("wjc", None);
        it_calls("wjd", Some([0x77; 32]));
        return;
    }
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    let root = Command::new("unshare").args(["-n", "true"]).status();
    if !has("wireguard-go") || !has("wg") || !root.is_ok_and(|it| it.success()) {
        eprintln!("SKIPPED: wireguard_go_and_we_agree needs root, wireguard-go and wg");
        return;
    }
    let program = std::env::current_exe().unwrap();
    let name = "tunnel::judged::wireguard_go_and_we_agree_whoever_calls";
    let script = "ip link set lo up && exec \"$0\" --exact \"$1\" --nocapture";
    let mut command = Command::new("unshare");
    command.args(["-n", "sh", "-c", script]).arg(program).arg(name).env(INSIDE, "1");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}\n{complained}");
}
