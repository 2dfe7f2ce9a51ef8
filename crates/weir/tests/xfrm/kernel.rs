//! A Debian kernel on the other side, in a guest: its own ESP opens what Weir seals and the other
//! way round, keyed on both sides by the same words of `ip xfrm`; and what `ip xfrm` prints of
//! Weir is what it prints of that kernel.

use weir_lab::observe::{Capture, ESP};
use weir_lab::topology::{HOST_V4, HOST_V6, Hosts, WIRE_END_A};
use weir_lab::vm::{Guest, GuestKernel};
use weir_xfrm::program::{Association, OFFLOAD_PACKET, PolicyRequest, offloaded};
use weir_xfrm::uapi::{DIRECTION_IN, DIRECTION_OUT, MODE_TRANSPORT, Offload};

use super::*;

const ESP_IN_UDP: &str = "(udp port 4500)";
/// A guest's command, at its speed.
const GUEST_PATIENCE: Duration = Duration::from_secs(300);
/// The kernel's own ESP, and all that AES-GCM is made of: a guest loads nothing by itself.
const MODULES: &str = "modprobe -a xfrm_user esp4 esp6 gcm ctr ghash_generic seqiv echainiv";
/// Takes ESP out of UDP port 4500, as an IKE daemon's socket makes the kernel do: the socket itself
/// passes every policy (`xfrm_userpolicy_info` with family and direction, the rest 0).
const TAKE_ENCAPSULATED: &str = r#"python3 -c '
import socket, struct, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 4500))
for direction in (0, 1):
    policy = bytearray(168)
    struct.pack_into("=H", policy, 40, socket.AF_INET)
    policy[160] = direction
    s.setsockopt(socket.IPPROTO_IP, 17, bytes(policy))
s.setsockopt(socket.IPPROTO_UDP, 100, 2)
print("ready", flush=True)
time.sleep(100000)'"#;

/// Bytes of a TCP stream to the guest.
const STREAM: &str = "4M";

/// One way to set both sides up.
struct Variant {
    mode: &'static str,
    /// Key and salt, bytes.
    key_len: usize,
    more: &'static str,
    v6: bool,
}

const VARIANTS: [Variant; 9] = [
    Variant { mode: "transport", key_len: 20, more: "", v6: false },
    Variant { mode: "transport", key_len: 36, more: "replay-window 64 flag esn", v6: false },
    Variant { mode: "transport", key_len: 20, more: "encap espinudp 4500 4500 0.0.0.0", v6: false },
    Variant { mode: "transport", key_len: 36, more: "", v6: true },
    Variant { mode: "tunnel", key_len: 20, more: "replay-window 64 flag esn", v6: false },
    Variant { mode: "tunnel", key_len: 36, more: "replay-window 32", v6: false },
    Variant { mode: "tunnel", key_len: 36, more: "encap espinudp 4500 4500 0.0.0.0", v6: false },
    Variant {
        mode: "tunnel",
        key_len: 36,
        more: "replay-window 128 flag esn encap espinudp 4500 4500 0.0.0.0",
        v6: false,
    },
    // IPv6 in an IPv4 tunnel.
    Variant { mode: "tunnel", key_len: 20, more: "flag af-unspec", v6: true },
];

/// Side A a host behind Weir, side B a guest behind a bridge.
fn boot(test: &str) -> Option<(Stand, Guest)> {
    let kernel = match GuestKernel::find() {
        Ok(kernel) => kernel,
        Err(reason) => {
            eprintln!("SKIPPED: {test}: {reason:#}");
            return None;
        }
    };
    let stand = stand(test, Plan { hosts: Hosts::Guests, ..Plan::default() }, &["python3"])?;
    let lab = &stand.lab;
    lab.gateway(Side::B)
        .ip("link add br0 type bridge stp_state 0 mcast_snooping 0\n\
             link set pf0hpf master br0\nlink set p0 master br0\nlink set br0 up\n")
        .unwrap();
    lab.host(Side::A).set(&[("net.ipv6.conf.br0.disable_ipv6", "0")]).unwrap();
    lab.host(Side::A)
        .ip(&format!(
            "addr add {}/24 dev br0\naddr add {}/64 dev br0 nodad\n",
            HOST_V4[0], HOST_V6[0]
        ))
        .unwrap();
    let mut guest = Guest::boot(lab, Side::B, &kernel).unwrap();
    guest.wait_ready().unwrap();
    in_guest(&mut guest, MODULES);
    in_guest(&mut guest, "ip address add 192.168.77.2/24 dev eth0");
    Some((stand, guest))
}

#[track_caller]
fn in_guest(guest: &mut Guest, line: &str) -> String {
    guest.run(line, GUEST_PATIENCE).unwrap().success().unwrap()
}

fn start_gateway(lab: &Lab, lines: &str) -> Running {
    let text = configuration(lab, Side::A, lines);
    let file = weir_lab::gateways::configure(lab, Side::A, &text).unwrap();
    let mut command = lab.gateway(Side::A).command(WEIR);
    let mut weir = Running::start(command.arg("up").arg(file)).unwrap();
    weir.wait_for("ready", PATIENCE).unwrap();
    weir
}

/// The lines of both directions; `inward` tells which of them comes in.
fn lines(variant: &Variant, number: usize, is_a: bool) -> Vec<String> {
    let hosts = match variant.v6 {
        false => HOST_V4.map(|it| it.to_string()),
        true => HOST_V6.map(|it| it.to_string()),
    };
    let tunnel = ["192.168.77.1".to_owned(), "192.168.77.2".to_owned()];
    let ends = if variant.mode == "tunnel" { &tunnel } else { &hosts };
    let Variant { mode, key_len, more, .. } = variant;
    let mut lines = Vec::new();
    for (from, to) in [(0, 1), (1, 0)] {
        let outward = is_a == (from == 0);
        let direction = if outward { "out" } else { "in" };
        let spi = 0x1000 * (number + 1) + from;
        let key = format!("{:02x}", 0x10 * number + from + 1).repeat(*key_len);
        lines.push(format!(
            "ip xfrm state add src {} dst {} proto esp spi {spi:#x} reqid {number} mode {mode} \
             aead 'rfc4106(gcm(aes))' 0x{key} 128 {more}",
            ends[from], ends[to]
        ));
        lines.push(format!(
            "ip xfrm policy add src {} dst {} dir {direction} \
             tmpl src {} dst {} proto esp reqid {number} mode {mode}",
            hosts[from], hosts[to], ends[from], ends[to]
        ));
    }
    lines
}

#[test]
fn the_kernels_own_esp_opens_what_we_seal_in_every_mode_and_the_other_way_round() {
    let Some((Stand { _turn, lab }, mut guest)) = boot("kernel ESP") else { return };
    let taker = guest.start(TAKE_ENCAPSULATED).unwrap();
    taker.wait_for("ready", GUEST_PATIENCE).unwrap();
    in_guest(&mut guest, "iperf3 -s -D -I /tmp/iperf.pid");
    // Real checksums, which the guest checks, where datagrams leave joined.
    lab.gateway(Side::A).run(&format!("ethtool -K {WIRE_PORT} tx off")).unwrap();
    for mode in ["transport", "tunnel"] {
        let address = if mode == "tunnel" { "address = \"192.168.77.1/24\"\n" } else { "" };
        let weir = start_gateway(&lab, address);
        let wanted = |it: &(usize, &Variant)| it.1.mode == mode;
        for (number, variant) in VARIANTS.iter().enumerate().filter(wanted) {
            carries(&lab, &mut guest, &weir, variant, number);
        }
    }
}

#[track_caller]
fn carries(lab: &Lab, guest: &mut Guest, weir: &Running, variant: &Variant, number: usize) {
    let what = format!("{} {} {} v6 {}", variant.mode, variant.key_len, variant.more, variant.v6);
    in_guest(guest, "ip xfrm state flush; ip xfrm policy flush");
    xfrm(lab, Side::A, "ip xfrm state flush");
    xfrm(lab, Side::A, "ip xfrm policy flush");
    in_guest(guest, &lines(variant, number, false).join(" && "));
    for line in lines(variant, number, true) {
        xfrm(lab, Side::A, &line);
    }
    let target = match variant.v6 {
        false => HOST_V4[1].to_string(),
        true => HOST_V6[1].to_string(),
    };
    let answered = || Ok(ping(lab.host(Side::A), &target, 1, 56)?.answered > 0);
    interrupt::until("answer from the guest", PATIENCE, answered).unwrap_or_else(|error| {
        let kernel = guest.run("ip -s xfrm state; cat /proc/net/xfrm_stat", GUEST_PATIENCE);
        let ours = xfrm(lab, Side::A, "ip -s xfrm state");
        let mut drops = Command::new(WEIR);
        drops.args(["drops", "--run-dir"]).arg(run_folder(lab, Side::A));
        let drops = process::run(&mut drops, SHORT).unwrap().stdout;
        panic!("{what}: {error:#}\n{}\n{ours}\n{drops}\n{}", kernel.unwrap().output, weir.stderr())
    });
    let file = lab.folder().join("wire.pcap");
    let wire = Capture::start(lab.wire(), WIRE_END_A, &file, 128).unwrap();
    for payload_len in [1, 1400, 8000] {
        let report = ping_all(lab.host(Side::A), &target, 5, payload_len).unwrap();
        assert_eq!(report.answered, 5, "{what}, {payload_len} bytes");
    }
    let mut stream = lab.host(Side::A).command("iperf3");
    stream.args(["-c", &target, "-n", STREAM]);
    process::run(&mut stream, GUEST_PATIENCE).unwrap_or_else(|error| panic!("{what}: {error:#}"));
    let wire = wire.stop().unwrap();
    let sealed = if variant.more.contains("encap") { ESP_IN_UDP } else { ESP };
    assert!(wire.count(sealed).unwrap() >= 30, "{what}");
    let neighbours = "arp or (icmp6 and ip6[40] >= 133 and ip6[40] <= 137)";
    let clear = format!("not ({sealed}) and not ({neighbours})");
    assert_eq!(wire.count(&clear).unwrap(), 0, "{what}: in clear");
    // Those that left joined have a checksum; a packet's own IP header is not repeated.
    let joined = wire.count(&format!("{ESP_IN_UDP} and udp[6:2] != 0")).unwrap();
    let may_join = sealed == ESP_IN_UDP && variant.mode == "tunnel";
    assert!(if may_join { joined > 100 } else { joined == 0 }, "{what}: {joined} left joined");
}

/// Hands requests to the guest's kernel, each a line of hex, and prints each answer so.
const SAY_NETLINK: &str = r#"python3 -c '
import socket, sys
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 6)
for line in sys.argv[1:]:
    s.send(bytes.fromhex(line))
    print(s.recv(65536).hex())'"#;

/// The answers of the guest's kernel.
fn kernel_says(guest: &mut Guest, requests: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let hex = |bytes: &Vec<u8>| bytes.iter().map(|it| format!("{it:02x}")).collect::<String>();
    let words: Vec<String> = requests.iter().map(hex).collect();
    let said = in_guest(guest, &format!("{SAY_NETLINK} {}", words.join(" ")));
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    said.lines().map(|line| line.as_bytes().chunks(2).map(byte).collect()).collect()
}

#[test]
fn what_we_program_into_a_kernel_carries_traffic_and_a_nic_without_esp_is_found_out() {
    let Some((Stand { _turn, lab }, mut guest)) = boot("programming a kernel") else { return };
    let _weir = start_gateway(&lab, "");
    let keys = [[0x31; 20], [0x32; 20]];
    let hosts = HOST_V4.map(std::net::IpAddr::from);
    let association = |from: usize| Association {
        ends: [hosts[from], hosts[1 - from]],
        spi: 0x1001 + from as u32,
        request: 1,
        mode: MODE_TRANSPORT,
        keying_material: &keys[from],
        extended_window: Some(64),
        offload: None,
        bound: None,
    };
    let policy = |from: usize, direction: u8| PolicyRequest {
        networks: [(hosts[from], 32), (hosts[1 - from], 32)],
        direction,
        ends: [hosts[from], hosts[1 - from]],
        request: 1,
        spi: None,
        mode: MODE_TRANSPORT,
        offload: None,
        interface: None,
    };
    let answers = kernel_says(
        &mut guest,
        &[
            association(0).install(1),
            association(1).install(2),
            policy(0, DIRECTION_IN).install(3),
            policy(1, DIRECTION_OUT).install(4),
        ],
    );
    for answer in &answers {
        assert_eq!(answer[16..20], [0; 4], "the kernel takes it: {answer:?}");
    }
    for from in [0, 1] {
        let [a, b] = [hosts[from], hosts[1 - from]];
        let key = format!("{:02x}", keys[from][0]).repeat(20);
        let direction = if from == 0 { "out" } else { "in" };
        let spi = 0x1001 + from;
        xfrm(
            &lab,
            Side::A,
            &format!(
                "ip xfrm state add src {a} dst {b} proto esp spi {spi} reqid 1 mode transport aead \
             'rfc4106(gcm(aes))' 0x{key} 128 replay-window 64 flag esn"
            ),
        );
        let line = format!(
            "ip xfrm policy add src {a} dst {b} dir {direction} \
             tmpl src {a} dst {b} proto esp reqid 1 mode transport"
        );
        xfrm(&lab, Side::A, &line);
    }
    wait_for_ping(&lab, &hosts[1].to_string());

    // eth0 is a virtio NIC without ESP: Linux 6.1 takes the request and seals by itself.
    let interface = in_guest(&mut guest, "cat /sys/class/net/eth0/ifindex").trim().parse().unwrap();
    let offload = Some(Offload { interface, ..Offload::default() });
    let asked = Association { spi: 0x5001, offload, ..association(1) };
    let answers = kernel_says(&mut guest, &[asked.install(5), asked.query(6)]);
    assert_eq!(offloaded(&answers[1]), None, "no NIC does it: {answers:?}");
    // `packet` is unknown to 6.1; what it makes of the flag must not pass for offload either.
    let packet = Some(Offload { interface, flags: OFFLOAD_PACKET, ..Offload::default() });
    let asked = Association { spi: 0x5002, offload: packet, ..association(1) };
    let answers = kernel_says(&mut guest, &[asked.install(7), asked.query(8)]);
    assert_eq!(offloaded(&answers[1]), None, "{answers:?}");
}
