//! `offload = "kernel"`: the gateway's kernel does a peer's ESP. The whole network is inside a
//! guest with Debian's kernel, since not every machine's has ESP:
//!
//! ```text
//!   host 10.1.0.1 -- pf0 gateway p0 -- wire -- w0 peer 10.2.0.1
//! ```
//!
//! The judge is the peer: that kernel's own ESP, keyed by `ip xfrm` in a namespace of its own.

use weir_lab::topology::Hosts;
use weir_lab::vm::{Guest, GuestKernel, Job};

use super::*;

/// A guest's command, at its speed.
pub(super) const GUEST_PATIENCE: Duration = Duration::from_secs(300);

const NETWORK: &str = "set -e
modprobe -a xfrm_user xfrm_interface esp4 gcm ctr ghash_generic seqiv echainiv veth tun cls_bpf \
 sch_ingress bridge
mount -t bpf bpf /sys/fs/bpf || true
for name in host gateway wire peer; do ip netns add $name; ip -n $name link set lo up; done
ip link add h0 netns host type veth peer name pf0 netns gateway
ip -n wire link add br0 type bridge stp_state 0 mcast_snooping 0
for end in p0:gateway:wp w0:peer:ww; do
  name=${end%%:*}; port=${end##*:}; where=${end#*:}
  ip link add $name netns ${where%:*} type veth peer name $port netns wire
  ip -n wire link set $port master br0 up
done
ip -n wire link set br0 up
ip -n host addr add 10.1.0.1/24 dev h0
ip -n host link set h0 up
ip -n host neigh add 10.1.0.254 lladdr 02:00:00:00:00:fe dev h0 nud permanent
ip -n host route add 10.2.0.0/24 via 10.1.0.254
ip -n gateway link set pf0 up
ip -n gateway link set p0 up
ip -n peer addr add 192.0.2.2/24 dev w0
ip -n peer addr add 10.2.0.1/32 dev lo
ip -n peer link set w0 up
ip -n peer route add 10.1.0.0/24 via 192.0.2.1 src 10.2.0.1
ip netns exec peer ethtool -K w0 gro off gso off tso off > /dev/null
";

const KEYS: [&str; 2] = ["4101", "4202"];

/// What is somebody else's in the gateway's kernel.
pub(super) const OTHERS: &str = "set -e
ip -n gateway link add others type xfrm dev p0 if_id 7
ip -n gateway link set others up
ip -n gateway rule add fwmark 7 table 7
ip -n gateway route add 203.0.113.0/24 dev others table 7
ip -n gateway xfrm state add src 198.51.100.1 dst 198.51.100.2 proto esp spi 0x999 reqid 7 \
 mode tunnel if_id 7 aead 'rfc4106(gcm(aes))' 0x4343434343434343434343434343434343434343 128
ip -n gateway xfrm policy add src 10.9.0.0/24 dst 10.8.0.0/24 dir out if_id 7 \
 tmpl src 198.51.100.1 dst 198.51.100.2 proto esp reqid 7 mode tunnel
ip -n gateway xfrm state add src 198.51.100.1 dst 198.51.100.3 proto esp spi 0x998 mode tunnel \
 aead 'rfc4106(gcm(aes))' 0x4545454545454545454545454545454545454545 128
";

/// Somebody else's association in the place of the one from the peer.
const TAKEN: &str = "xfrm state add src 192.0.2.2 dst 192.0.2.1 proto esp spi 0x2002 reqid 7 \
 mode tunnel aead 'rfc4106(gcm(aes))' 0x4444444444444444444444444444444444444444 128";

/// Makes the peer a gateway with a host of its own.
pub(super) const FAR_GATEWAY: &str = "set -e
ip netns add far
ip -n peer addr flush dev w0
ip -n peer addr flush dev lo
ip link add h1 netns far type veth peer name pf1 netns peer
ip -n peer link set pf1 up
ip -n far addr add 10.2.0.1/24 dev h1
ip -n far link set h1 up
ip -n far neigh add 10.2.0.254 lladdr 02:00:00:00:00:fe dev h1 nud permanent
ip -n far route add 10.1.0.0/24 via 10.2.0.254
";

/// The peer's ESP of a capture, sent once more.
const SAY_AGAIN: &str = r#"ip netns exec peer python3 -c '
import socket, struct, sys, time
data = open(sys.argv[1], "rb").read()
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
out.bind(("w0", 0))
at = 24
while at + 16 <= len(data):
    length = struct.unpack_from("=I", data, at + 8)[0]
    frame = data[at + 16:at + 16 + length]
    at += 16 + length
    if frame[12:14] == b"\x08\x00" and frame[23] == 50 and frame[26:30] == bytes([192, 0, 2, 2]):
        out.send(frame)
        time.sleep(0.0005)
time.sleep(1)'"#;

/// Number and IV of each ESP packet of the gateway in a capture.
const NUMBERS_AND_IVS: &str = r#"python3 -c '
import struct, sys
data = open(sys.argv[1], "rb").read()
at = 24
while at + 16 <= len(data):
    length = struct.unpack_from("=I", data, at + 8)[0]
    frame = data[at + 16:at + 16 + length]
    at += 16 + length
    if frame[12:14] == b"\x08\x00" and frame[23] == 50 and frame[26:30] == bytes([192, 0, 2, 1]):
        print(frame[38:42].hex(), frame[42:50].hex())'"#;

/// A guest with the network in it.
pub(super) struct Stage {
    pub(super) guest: Guest,
    _stand: Stand,
}

impl Stage {
    pub(super) fn boot(test: &str) -> Option<Self> {
        Self::boot_by(test, GuestKernel::find())
    }

    pub(super) fn boot_by(test: &str, kernel: anyhow::Result<GuestKernel>) -> Option<Self> {
        let kernel = match kernel {
            Ok(kernel) => kernel,
            Err(reason) => {
                eprintln!("SKIPPED: {test}: {reason:#}");
                return None;
            }
        };
        let plan = Plan { hosts: Hosts::Guests, ..Plan::default() };
        let stand = stand(test, plan, &["python3", "iperf3"])?;
        let mut guest = Guest::boot(&stand.lab, Side::B, &kernel).unwrap();
        guest.wait_ready().unwrap();
        let mut stage = Self { guest, _stand: stand };
        stage.run(NETWORK);
        Some(stage)
    }

    #[track_caller]
    pub(super) fn run(&mut self, line: &str) -> String {
        self.guest.run(line, GUEST_PATIENCE).unwrap().success().unwrap()
    }

    fn key_the_peers_kernel(&mut self) {
        for (from, [a, b], direction) in [(0, [1, 2], "in"), (1, [2, 1], "out")] {
            let key = KEYS[from].repeat(18);
            self.run(&format!(
                "ip -n peer xfrm state add src 192.0.2.{a} dst 192.0.2.{b} proto esp \
                 spi 0x200{a} reqid 1 mode tunnel aead 'rfc4106(gcm(aes))' 0x{key} 128 \
                 replay-window 128 flag esn && \
                 ip -n peer xfrm policy add src 10.{a}.0.0/24 dst 10.{b}.0.0/24 dir {direction} \
                 tmpl src 192.0.2.{a} dst 192.0.2.{b} proto esp reqid 1 mode tunnel"
            ));
        }
    }

    fn configure(&mut self) {
        let configuration = "[gateway]
name = \"gw\"
state_dir = \"/tmp/state\"
run_dir = \"/tmp/run\"
[rules]
paths = [\"/tmp/long.rules\"]
[[pair]]
name = \"port0\"
host = \"pf0\"
wire = \"p0\"
address = \"192.0.2.1/24\"
[[peer]]
name = \"b\"
endpoint = \"192.0.2.2\"
mode = \"tunnel\"
offload = \"kernel\"
protects = \"10.2.0.0/24\"
seal = { spi = 0x2001, key_file = \"out.key\" }
open = { spi = 0x2002, key_file = \"in.key\" }
";
        let [out, inward] = KEYS.map(|key| key.repeat(18));
        self.run(&format!(
            "umask 077; echo {out} > /tmp/out.key; echo {inward} > /tmp/in.key\n\
             echo 'drop icmp any any -> any any (dsize:333; sid:333;)' > /tmp/long.rules\n\
             cat > /tmp/weir.toml <<END\n{configuration}END\n"
        ));
    }

    /// Starts the gateway and waits until it says that it is ready.
    fn start(&mut self) -> Job {
        self.start_in("gateway", "/tmp/weir.toml", "/tmp/pid")
    }

    /// The same in a namespace, by a file; its process's number goes to another.
    pub(super) fn start_in(&mut self, namespace: &str, file: &str, pid: &str) -> Job {
        let line = format!("echo $$ > {pid}; exec ip netns exec {namespace} /run/machine");
        let job = self.guest.start(&format!("{line}{WEIR} up {file}")).unwrap();
        let said = || {
            Ok(["ready", "error", "Error", "weir: "].iter().any(|word| job.output().contains(word)))
        };
        let waited = interrupt::until("word from the gateway", GUEST_PATIENCE, said);
        if waited.is_err() || !job.output().contains("ready") {
            panic!("{waited:?}: {}\n{}", job.output(), self.words());
        }
        job
    }

    fn end(&mut self, job: Job, signal: &str) {
        self.end_of(job, "/tmp/pid", signal);
    }

    pub(super) fn end_of(&mut self, job: Job, pid: &str, signal: &str) {
        self.run(&format!("kill -{signal} $(cat {pid})"));
        job.finish(GUEST_PATIENCE).unwrap();
    }

    /// A start whose second association is refused removes the first, and all else.
    fn fails_to_start(&mut self) {
        self.run(&format!("ip -n gateway {TAKEN}"));
        let taken = self.in_kernel();
        let line = format!("ip netns exec gateway /run/machine{WEIR} up /tmp/weir.toml");
        let said = self.guest.run(&line, GUEST_PATIENCE).unwrap();
        assert!(said.code != 0 && said.output.contains("refuses"), "{}", said.output);
        assert_eq!(self.in_kernel(), taken);
    }

    /// Captures what the wire carries, to /tmp/wire.pcap.
    pub(super) fn capture(&mut self) -> Job {
        let line = "echo $$ > /tmp/tcpdump.pid; \
                    exec ip netns exec wire tcpdump -Z root -U -n -i wp -w /tmp/wire.pcap";
        let job = self.guest.start(line).unwrap();
        job.wait_for("listening", GUEST_PATIENCE).unwrap();
        job
    }

    /// All of the gateway's kernel that an offload would change.
    pub(super) fn in_kernel(&mut self) -> String {
        self.run(
            "ip -n gateway xfrm state; ip -n gateway xfrm policy; \
             ip -n gateway -o link show type xfrm | cut -d: -f2; ip -n gateway rule; \
             ip -n gateway route show table all | grep -v 'table local\\|fe80\\|ff00' ; \
             ip -n gateway neigh show nud permanent",
        )
    }

    /// 1 MiB each way by TCP, between the host and who is at 10.2.0.1.
    pub(super) fn transfers(&mut self, far: &str) {
        for more in ["", "-R"] {
            let server =
                self.guest.start(&format!("ip netns exec {far} iperf3 -s -1 2>&1")).unwrap();
            let listens = format!("ip netns exec {far} ss -Hltn sport = 5201 | grep -q .");
            self.run(&format!("until {listens}; do sleep 0.1; done"));
            self.run(&format!("ip netns exec host iperf3 -c 10.2.0.1 -n 1M {more}"));
            server.finish(GUEST_PATIENCE).unwrap();
        }
    }

    /// Three questions that nobody may answer.
    #[track_caller]
    pub(super) fn silent(&mut self, from: &str, to: &str) {
        let line = format!("ip netns exec {from} ping -n -c 3 -i 0.2 -W 1 {to}");
        let said = self.guest.run(&line, GUEST_PATIENCE).unwrap();
        assert!(said.output.contains("100% packet loss"), "{}", said.output);
    }

    fn rules_judge_what_the_kernel_seals_and_has_opened(&mut self) {
        self.silent("host", "-s 333 10.2.0.1");
        self.silent("peer", "-s 333 10.1.0.1");
        let status = self.status();
        for side in ["host", "kernel"] {
            let dropped = number(&status, &format!("/pairs/0/{side}/dropped_by_reason/rule"));
            assert_eq!(dropped, 3, "{side}: {status}");
        }
    }

    /// Rules that others remove, as a network manager does that starts again, policies, and what
    /// goes with an interface that is switched off.
    fn the_way_to_the_kernel_comes_back(&mut self) {
        const WAY: &str = "ip -n gateway rule; ip -n gateway -6 rule; \
                           ip -n gateway -6 route show table all default; \
                           ip -n gateway xfrm policy; \
                           ip -n gateway -br -4 addr show dev weir-port0; \
                           ip -n gateway -br link show type xfrm | grep -o '^weirx.*UP.*'";
        let way = self.run(WAY);
        self.run(
            "for it in $(ip -n gateway -br link show type xfrm | grep -o '^weirx[0-9]*'); do \
             ip -n gateway link set $it down; number=$((0x57650000 + ${it#weirx})); \
             for all in 0.0.0.0/0 ::/0; do ip -n gateway xfrm policy delete src $all dst $all \
             dir out if_id $number; done; done; \
             ip -n gateway rule del pref 22373; ip -n gateway -6 rule del pref 22373; \
             ip -n gateway addr flush dev weir-port0",
        );
        let is_back = || Ok(self.guest.run(WAY, GUEST_PATIENCE)?.output == way);
        if let Err(error) = interrupt::until("the way to the kernel", PATIENCE, is_back) {
            panic!("{error:#}: {way}\n{}", self.words());
        }
    }

    /// A gateway whose threads do not answer in time says so, and is asked again.
    pub(super) fn status(&mut self) -> serde_json::Value {
        let line = format!("/run/machine{WEIR} status --json --run-dir /tmp/run");
        let mut said = self.guest.run(&line, GUEST_PATIENCE).unwrap();
        for _ in 0..10 {
            if said.code == 0 {
                break;
            }
            said = self.guest.run(&line, GUEST_PATIENCE).unwrap();
        }
        let text = said.output;
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// The status when every packet is accounted for: all that was handed to the kernel left as
    /// ESP, beside the first packet of the start, and all that it opened was taken.
    #[track_caller]
    fn settled(&mut self) -> serde_json::Value {
        let mut status = self.status();
        let settled = || {
            status = self.status();
            let [handed, sealed, left, opened, taken] = counts(&status);
            Ok(status["adds_up"] == true && [handed, sealed] == [left, left + 1] && opened == taken)
        };
        let waited =
            interrupt::until("packets that are all accounted for", GUEST_PATIENCE, settled);
        waited.unwrap_or_else(|error| panic!("{error:#}: {:?} {status}", counts(&status)));
        status
    }

    /// How the kernel sees it, for an error's text.
    pub(super) fn words(&mut self) -> String {
        let line = "for name in gateway peer; do echo == $name; ip -n $name -s xfrm state; \
                    ip netns exec $name grep -v '[[:space:]]0$' /proc/net/xfrm_stat; done; \
                    ip -n gateway -s link; ip -n gateway rule; ip -n gateway neigh; \
                    ip -n gateway route show table all";
        let drops = format!("; /run/machine{WEIR} status --run-dir /tmp/run");
        self.guest.run(&format!("{line}{drops}"), GUEST_PATIENCE).unwrap().output
    }

    #[track_caller]
    pub(super) fn ping(&mut self, from: &str, to: &str, more: &str) {
        let line = format!("ip netns exec {from} ping -n -i 0.2 -W 2 {more} {to}");
        let answered = || {
            let said = self.guest.run(&line, GUEST_PATIENCE)?;
            Ok(said.code == 0 && said.output.contains(" 0% packet loss"))
        };
        if let Err(error) = interrupt::until(&line, PATIENCE, answered) {
            panic!("{error:#}\n{}", self.words());
        }
    }
}

#[test]
fn the_kernels_esp_carries_a_peers_packets_and_repeats_no_number_after_kill_9() {
    let Some(mut stage) = Stage::boot("ESP by the gateway's kernel") else { return };
    stage.key_the_peers_kernel();
    stage.configure();
    stage.run(OTHERS);
    let others = stage.in_kernel();
    let wire = stage.capture();
    let weir = stage.start();
    stage.ping("host", "10.2.0.1", "-c 2");
    for more in ["-c 3 -s 1", "-c 3 -s 1400"] {
        stage.ping("host", "10.2.0.1", more);
        stage.ping("peer", "10.1.0.1", more);
    }
    stage.rules_judge_what_the_kernel_seals_and_has_opened();
    stage.transfers("peer");
    let first = stage.settled();
    let [_, _, left, opened, _] = counts(&first);
    assert!(left > 500 && opened > 500, "{first}");
    assert_eq!(number(&first, "/pairs/0/host/sealed"), 0, "Weir seals nothing: {first}");

    stage.end(weir, "KILL");
    assert_ne!(stage.in_kernel(), others, "a killed gateway leaves its associations");
    // The own address went with the process: what comes is not opened; nothing leaves.
    stage.silent("host", "10.2.0.1");
    stage.silent("peer", "10.1.0.1");
    let weir = stage.start();
    stage.ping("host", "10.2.0.1", "-c 3");
    stage.the_way_to_the_kernel_comes_back();
    stage.ping("host", "10.2.0.1", "-c 3");
    let before = stage.settled();
    // Of all that the wire ever saw, the three packets alone that came to no gateway are new to it.
    for _ in 0..2 {
        stage.run(&format!("{SAY_AGAIN} /tmp/wire.pcap"));
    }
    let again = stage.settled();
    // The kernel takes numbers far below its window for such of 2^32 later: not authentic.
    let refused =
        ["replayed", "forged"].map(|it| number(&again, &format!("/pairs/0/peers/0/kernel/{it}")));
    assert!(refused[0] > 0 && refused[0] + refused[1] >= opened, "all is refused: {again}");
    assert_eq!(counts(&again)[3], counts(&before)[3] + 3, "{again}");

    stage.run("ip -n gateway xfrm state deleteall reqid 0x57656972");
    stage.silent("host", "10.2.0.1");
    let lost = stage.status();
    assert_eq!(lost["pairs"][0]["peers"][0]["kernel"]["is_lost"], true, "{lost}");
    assert!(number(&lost, "/pairs/0/host/dropped_by_reason/kernel_esp") > 0, "{lost}");
    assert_eq!(lost["adds_up"], true, "{lost}");

    stage.end(weir, "TERM");
    assert_eq!(stage.in_kernel(), others, "nothing of ours stays, and others' does");
    stage.run("kill $(cat /tmp/tcpdump.pid)");
    wire.finish(GUEST_PATIENCE).unwrap();
    let clear = stage
        .run("tcpdump -nr /tmp/wire.pcap 'not esp and not arp and not icmp6 and not ip6 proto 0'");
    assert!(!clear.contains("IP"), "in clear: {clear}");
    let seen = stage.run(&format!("{NUMBERS_AND_IVS} /tmp/wire.pcap"));
    let seen: Vec<&str> = seen.lines().filter(|line| line.contains(' ')).collect();
    assert!(seen.len() as u64 > left, "{} packets on the wire", seen.len());
    let distinct = |column: usize, len: usize| {
        let words = seen.iter().map(|line| &line.split(' ').nth(column).unwrap()[..len]);
        words.collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!(distinct(0, 8), seen.len(), "a sequence number was used twice");
    assert_eq!(distinct(1, 16), seen.len(), "an IV was used twice");
    assert_eq!(distinct(1, 4), 2, "the first bits of the IV tell installations apart");
    let noted = stage.run("cat /tmp/state/keys-used");
    assert_eq!(noted.matches("\niv-").count(), 2, "{noted}");
    stage.fails_to_start();
}

#[test]
fn our_own_esp_and_the_kernels_understand_each_other() {
    let Some(mut stage) = Stage::boot("ESP by the gateway's kernel, and Weir's") else { return };
    stage.run(FAR_GATEWAY);
    stage.configure();
    stage.run(
        "sed -e s/gw/far/ -e s,/tmp/state,/tmp/far/state, -e s,/tmp/run,/tmp/far/run, \
         -e s/pf0/pf1/ -e s/p0/w0/ -e s/10.2.0.0/10.1.0.0/ \
         -e s/192.0.2.1/192.0.2.3/ -e s/192.0.2.2/192.0.2.1/ -e s/192.0.2.3/192.0.2.2/ \
         -e s/kernel/none/ -e 's/^seal/xxxx/' -e 's/^open/seal/' -e 's/^xxxx/open/' \
         /tmp/weir.toml > /tmp/far.toml",
    );
    let line = format!("exec ip netns exec peer /run/machine{WEIR} up /tmp/far.toml");
    let far = stage.guest.start(&line).unwrap();
    far.wait_for("ready", GUEST_PATIENCE).unwrap();
    let _weir = stage.start();
    // By its question for a neighbour the host there tells its gateway where it is.
    stage.run("ip netns exec far ping -n -c 1 -W 1 10.2.0.9 || true");
    stage.ping("host", "10.2.0.1", "-c 3 -s 1400");
    stage.transfers("far");
    let [_, _, left, opened, _] = counts(&stage.settled());
    assert!(left > 500 && opened > 500, "{left} {opened}");
    // A reload leaves it as it is; other keys, which only a restart installs, are refused.
    let reload = format!("/run/machine{WEIR} reload --run-dir /tmp/run");
    stage.run(&reload);
    stage.ping("host", "10.2.0.1", "-c 3");
    let status = stage.settled();
    assert!(counts(&status)[2] > left, "it goes on: {status}");
    stage.run(&format!("echo {} > /tmp/out.key", "4303".repeat(18)));
    let said = stage.guest.run(&reload, GUEST_PATIENCE).unwrap();
    assert!(said.code != 0 && said.output.contains("needs a restart"), "{}", said.output);
    assert_eq!(stage.status()["reloads_accepted"], 2);
}

/// Handed to the kernel, sealed by it, seen to leave; opened by it, taken from it.
fn counts(status: &serde_json::Value) -> [u64; 5] {
    let peer = "/pairs/0/peers/0";
    // What a rule drops was opened all the same.
    let dropped = status.pointer("/pairs/0/kernel/dropped_by_reason/rule");
    let dropped = dropped.and_then(serde_json::Value::as_u64).unwrap_or_default();
    ["sealed_packets", "kernel/sealed_packets", "kernel/left_packets", "kernel/opened_packets"]
        .map(|it| number(status, &format!("{peer}/{it}")))
        .into_iter()
        .chain([number(status, &format!("{peer}/opened_packets")) + dropped])
        .collect::<Vec<_>>()
        .try_into()
        .unwrap()
}

#[track_caller]
pub(super) fn number(status: &serde_json::Value, pointer: &str) -> u64 {
    let value = status.pointer(pointer).and_then(serde_json::Value::as_u64);
    value.unwrap_or_else(|| panic!("no {pointer} in {status}"))
}
