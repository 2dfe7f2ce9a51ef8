//! The simulated network card does what cards with IPsec offload do. The judge is the kernel's own
//! ESP in another namespace of the guest:
//!
//! ```text
//!   host 10.1.0.9 -- h1 a p0 (espnic) over l0 192.0.2.1 -- w0 192.0.2.2 b 10.2.0.1
//! ```

use std::time::Duration;

use weir_lab::process;
use weir_lab::topology::{Hosts, Lab, Plan, Side};
use weir_lab::vm::{Guest, GuestKernel};

const PATIENCE: Duration = Duration::from_secs(90);

const NETWORK: &str = "set -e
modprobe -a xfrm_user esp4 esp4_offload gcm ctr ghash_generic seqiv echainiv veth
for name in host a b; do
  ip netns add $name
  ip netns exec $name sysctl -q -w net.ipv6.conf.default.disable_ipv6=1
  ip -n $name link set lo up
done
ip link add h0 netns host type veth peer name h1 netns a
ip link add l0 netns a type veth peer name w0 netns b
ip -n a link add p0 link l0 type espnic
ip -n host addr add 10.1.0.9/24 dev h0
ip -n a addr add 10.1.0.254/24 dev h1
ip -n a addr add 192.0.2.1/24 dev p0
ip -n b addr add 192.0.2.2/24 dev w0
ip -n b addr add 10.2.0.1/32 dev lo
for end in host:h0 a:h1 a:p0 b:w0; do ip -n ${end%:*} link set ${end#*:} up; done
ip -n host route add default via 10.1.0.254
ip -n a route add 10.2.0.0/24 via 192.0.2.2
ip -n b route add 10.1.0.0/24 via 192.0.2.1 src 10.2.0.1
ip netns exec a sysctl -q -w net.ipv4.ip_forward=1
";

const KEYS: [&str; 2] = ["4101", "4202"];

/// Associations and policies in packet mode, which Debian's `ip` does not know.
const PACKET_MODE: &str = r#"
import socket, struct, sys

def address(text):
    return socket.inet_aton(text).ljust(16, b"\0")

def attribute(kind, value):
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)

def ask(kind, body):
    kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 6)
    body += attribute(28, struct.pack("=iB3x", socket.if_nametoindex("p0"), flags))
    kernel.send(struct.pack("=IHHII", 16 + len(body), kind, 5, 1, 0) + body)
    error = struct.unpack_from("=i", kernel.recv(65536), 16)[0]
    sys.exit(f"refused: {error}" if error else 0)

what, source, destination, *rest = sys.argv[1:]
flags = 4
limits = b"\xff" * 32 + bytes(32)
if what == "state":
    spi, key = int(rest[0], 16), bytes.fromhex(rest[1])
    flags |= 2 if destination == "192.0.2.1" else 0
    ident = address(destination) + struct.pack("!IB3x", spi, 50)
    body = bytes(56) + ident + address(source) + limits + bytes(44)
    body += struct.pack("=IIHBBB7x", 0, 1, 2, 1, 0, 128)
    aead = b"rfc4106(gcm(aes))".ljust(64, b"\0") + struct.pack("=II", 8 * len(key), 128) + key
    body += attribute(18, aead)
    ask(16, body + attribute(23, struct.pack("=6I", 8, 0, 0, 0, 0, 256) + bytes(32)))
body = address(destination) + address(source) + struct.pack("=8xHBB12x", 2, 24, 24)
body += limits + bytes(32) + struct.pack("=8xBBBB4x", 1, 0, 0, 0)
template = address("192.0.2.2") + struct.pack("!IB3x", 0, 50) + struct.pack("=H2x", 2)
template += address("192.0.2.1") + struct.pack("=IB3x", 1, 1) + b"\xff" * 12
ask(19, body + attribute(5, template))
"#;

/// The ESP of `b` in a capture once more, then with one bit of each packet wrong.
const SAY_AGAIN: &str = r#"ip netns exec b python3 -c '
import socket, struct, time
data = open("/tmp/wire", "rb").read()
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
out.bind(("w0", 0))
at, frames = 24, []
while at + 16 <= len(data):
    length = struct.unpack_from("=I", data, at + 8)[0]
    frame = data[at + 16:at + 16 + length]
    at += 16 + length
    if frame[12:14] == b"\x08\x00" and frame[23] == 50 and frame[26:30] == bytes([192, 0, 2, 2]):
        frames.append(frame)
for frame in frames:
    out.send(frame)
for frame in frames:
    out.send(frame[:41] + bytes([frame[41] + 100]) + frame[42:])
print(len(frames))
time.sleep(1)'"#;

#[test]
fn the_card_does_esp_with_the_kernel_and_without() {
    let test = "the_card_does_esp_with_the_kernel_and_without";
    let ready = process::require(&["python3", "tcpdump"])
        .and_then(|()| GuestKernel::with_esp_nic())
        .and_then(|kernel| {
            Ok((kernel, Lab::build(Plan { hosts: Hosts::Guests, ..Plan::default() })?))
        });
    let (kernel, lab) = match ready {
        Ok(ready) => ready,
        Err(reason) => return eprintln!("SKIPPED: {test}: {reason:#}"),
    };
    let mut guest = Guest::boot(&lab, Side::B, &kernel).unwrap();
    guest.wait_ready().unwrap();
    let mut stage = Stage { guest };
    stage.run(NETWORK);
    stage.run(&format!("cat > /tmp/packet_mode <<'END'{PACKET_MODE}END"));

    stage.crypto();
    stage.run(
        "for name in a b; do ip -n $name xfrm state flush; ip -n $name xfrm policy flush; done",
    );
    stage.packet();
    stage.replays_and_forgeries_are_refused();
    stage.transfer();
    stage.networks_that_are_matched_exactly_leave_in_clear();
    stage.all_goes_with_the_lower_device();
}

struct Stage {
    guest: Guest,
}

impl Stage {
    #[track_caller]
    fn run(&mut self, line: &str) -> String {
        self.guest.run(line, PATIENCE).unwrap().success().unwrap()
    }

    fn counter(&mut self, name: &str) -> u64 {
        let line = format!("ip netns exec a cat /sys/class/net/p0/espnic/{name}");
        self.run(&line).trim().parse().unwrap()
    }

    /// The kernel's own ESP in a namespace; in `a` by the card.
    fn key(&mut self, namespace: &str, policies: [&str; 2]) {
        for (from, [a, b]) in [(0, [1, 2]), (1, [2, 1])] {
            let key = KEYS[from].repeat(10);
            let inward = (namespace == "a") == (from == 1);
            let direction = if inward { "in" } else { "out" };
            let offload = match namespace {
                "a" => format!("offload dev p0 dir {direction}"),
                _ => String::new(),
            };
            let policy = policies[usize::from(inward)];
            self.run(&format!(
                "ip -n {namespace} xfrm state add src 192.0.2.{a} dst 192.0.2.{b} proto esp \
                 spi 0x200{a} reqid 1 mode tunnel aead 'rfc4106(gcm(aes))' 0x{key} 128 \
                 replay-window 128 flag esn {offload} && \
                 ip -n {namespace} xfrm policy add src 10.{a}.0.0/24 dst 10.{b}.0.0/24 \
                 dir {policy} tmpl src 192.0.2.{a} dst 192.0.2.{b} proto esp reqid 1 mode tunnel"
            ));
        }
    }

    /// 1 MB to `b` and back, by TCP.
    fn transfer(&mut self) {
        let server = "ip netns exec b busybox nc -l -p 7000 -e cat";
        let server = self.guest.start(server).unwrap();
        self.run(
            "head -c 1048576 /dev/urandom > /tmp/there
             until ip netns exec b ss -Hltn | grep -q :7000; do sleep 0.1; done
             ip netns exec host busybox nc 10.2.0.1 7000 < /tmp/there > /tmp/back
             cmp /tmp/there /tmp/back",
        );
        server.finish(PATIENCE).unwrap();
    }

    fn crypto(&mut self) {
        self.key("a", ["out", "fwd"]);
        self.key("b", ["out", "in"]);
        self.run("ip netns exec host ping -c 3 -i 0.2 -W 5 10.2.0.1");
        assert_eq!([self.counter("tx_sealed"), self.counter("rx_opened")], [3, 3]);
        self.transfer();
        for name in ["tx_sealed", "rx_opened"] {
            assert!(self.counter(name) > 700, "1 MB in packets of 1400 bytes");
        }
        assert_eq!(self.counter("dropped"), 0);
        let states = self.run("ip -n a xfrm state");
        assert_eq!(states.matches("crypto offload parameters: dev p0").count(), 2, "{states}");
    }

    /// The kernel's own policies for what comes in: the card cannot have those for forwarding.
    fn packet(&mut self) {
        self.key("b", ["out", "in"]);
        for (from, [a, b]) in [(0, [1, 2]), (1, [2, 1])] {
            let key = KEYS[from].repeat(10);
            self.run(&format!(
                "ip netns exec a python3 /tmp/packet_mode state 192.0.2.{a} 192.0.2.{b} \
                 200{a} {key}"
            ));
        }
        self.run(
            "ip netns exec a python3 /tmp/packet_mode policy 10.1.0.0 10.2.0.0 && \
             ip -n a xfrm policy add src 10.2.0.0/24 dst 10.1.0.0/24 dir fwd \
             tmpl src 192.0.2.2 dst 192.0.2.1 proto esp reqid 1 mode tunnel",
        );
        let before = [self.counter("tx_sealed"), self.counter("rx_opened")];
        // Three questions and their answers.
        let capture = "timeout 90 ip netns exec b tcpdump -U -n -i w0 -c 6 -w /tmp/wire esp 2>&1";
        let capture = self.guest.start(capture).unwrap();
        capture.wait_for("listening", PATIENCE).unwrap();
        self.run("ip netns exec host ping -c 3 -i 0.2 -W 5 10.2.0.1");
        capture.finish(PATIENCE).unwrap();
        let after = [self.counter("tx_sealed"), self.counter("rx_opened")];
        assert_eq!(after, before.map(|count| count + 3));
        let state =
            self.run("ip -n a -s xfrm state get src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x2001");
        assert!(state.contains("252(bytes), 3(packets)"), "told by the card: {state}");
        assert_eq!(self.counter("dropped"), 0);
    }

    fn replays_and_forgeries_are_refused(&mut self) {
        assert_eq!(self.run(SAY_AGAIN).trim(), "3");
        assert_eq!(self.counter("dropped"), 6);
        let state =
            self.run("ip -n a -s xfrm state get src 192.0.2.2 dst 192.0.2.1 proto esp spi 0x2002");
        assert!(state.contains("replay 3 failed 3"), "{state}");
    }

    fn networks_that_are_matched_exactly_leave_in_clear(&mut self) {
        let clear = self.counter("tx_clear");
        let said = self.run(
            "echo 1 > /sys/module/espnic/parameters/exact
             timeout 60 ip netns exec b tcpdump -l -n -i w0 -c 1 icmp 2> /tmp/listens &
             until grep -q listening /tmp/listens; do sleep 0.1; done
             ip netns exec host ping -c 1 -W 1 10.2.0.1
             wait
             echo 0 > /sys/module/espnic/parameters/exact",
        );
        assert!(said.contains("IP 10.1.0.9 > 10.2.0.1: ICMP echo request"), "{said}");
        assert_eq!(self.counter("tx_clear"), clear + 1);
    }

    fn all_goes_with_the_lower_device(&mut self) {
        let left =
            self.run("ip -n a link del l0; ip -n a xfrm state; ip -n a link show type espnic");
        assert_eq!(left, "");
        self.run("rmmod espnic");
    }
}
