//! VPN clients by strangers and by force: the kernel's WireGuard in a guest, a client that roams,
//! and somebody who recorded its packets.

use std::net::IpAddr;

use weir_lab::netns::Namespace;
use weir_lab::topology::{GATEWAY_V4, HOST_DEVICE, HOST_PORT, WIRE_PORT};
use weir_lab::traffic::bypass::send_frames;
use weir_lab::traffic::iperf::{self, Extent};
use weir_lab::vm::{Guest, GuestKernel};
use weir_lab::vpn::{Client, Concentrator, PORT};

use super::*;

/// What a guest does is done by then, on a busy machine.
const GUEST_PATIENCE: Duration = Duration::from_secs(120);
/// Ethernet, IPv4, UDP: where WireGuard's message begins.
const MESSAGE_AT: usize = 14 + 20 + 8;

/// Has whoever is at host B's place stand on the wire instead of behind a gateway.
fn put_host_b_on_the_wire(lab: &Lab) {
    lab.host(Side::B)
        .ip(&format!(
            "addr flush dev {HOST_DEVICE}\nlink add br0 type bridge stp_state 0 mcast_snooping 0\n\
             link set {HOST_DEVICE} master br0\nlink set br0 up\n"
        ))
        .unwrap();
    lab.gateway(Side::B)
        .ip(&format!(
            "link add br1 type bridge stp_state 0 mcast_snooping 0\n\
             link set {HOST_PORT} master br1 up\nlink set {WIRE_PORT} master br1 up\n\
             link set br1 up\n"
        ))
        .unwrap();
}

#[test]
fn the_kernels_wireguard_is_a_client_and_its_own_tool_shows_handshake_and_bytes() {
    const TEST: &str = "the_kernels_wireguard_is_a_client";
    let kernel = match GuestKernel::find().and_then(|it| process::require(&["wg"]).map(|()| it)) {
        Ok(kernel) => kernel,
        Err(reason) => return eprintln!("SKIPPED: {TEST}: {reason:#}"),
    };
    let Some(Stand { _turn, lab }) = stand(TEST) else { return };
    put_host_b_on_the_wire(&lab);
    let mut guest = Guest::boot(&lab, Side::B, &kernel).unwrap();
    let gateway = Concentrator::start(&lab, WEIR.as_ref(), "").unwrap();
    let file = gateway.add("kernel").unwrap();
    let own = file.lines().find_map(|it| it.strip_prefix("Address = ")).unwrap();
    let own = own.split('/').next().unwrap();
    let bare: Vec<&str> = file.lines().filter(|it| !it.starts_with("Address")).collect();
    guest.wait_ready().unwrap();
    let host = lab.host_v4(Side::A);
    let [_, outer] = GATEWAY_V4;
    let mut run = |line: &str| {
        guest.run(line, GUEST_PATIENCE).unwrap().success().unwrap_or_else(|it| panic!("{it:#}"))
    };
    run(&format!(
        "set -e\ncat > /tmp/client.conf <<'END'\n{}\nEND\nmodprobe wireguard\n\
         ip address add {outer}/24 dev eth0\nip link add wg0 type wireguard\n\
         wg setconf wg0 /tmp/client.conf\nip address add {own}/32 dev wg0\n\
         ip link set wg0 mtu 1420 up\nip route add {host}/32 dev wg0\n",
        bare.join("\n")
    ));
    run(&format!("for i in $(seq 30); do ping -n -c 1 -W 1 {host} && exit 0; done; exit 1"));
    let pings = run(&format!("ping -n -c 10 -i 0.2 -s 1300 {host}"));
    assert!(pings.contains("10 received"), "{}", pings);
    assert_eq!(ping_all(lab.host(Side::A), own, 5, 1300).unwrap().answered, 5);
    // A stream both ways: super-packets are cut and gathered, and arrive as what was sent.
    let mut server = lab.host(Side::A).command("iperf3");
    let mut server = Running::start(server.args(["-s", "--forceflush"])).unwrap();
    server.wait_for("Server listening", PATIENCE).unwrap();
    for reverse in ["", " -R"] {
        let said = run(&format!("iperf3 -c {host} -n 4M -J{reverse}"));
        let report: Value = serde_json::from_str(&said).unwrap();
        assert!(number(&report, "/end/sum_sent/bytes") >= 4 << 20, "{said}");
    }
    let handshakes = run("wg show wg0 latest-handshakes");
    assert!(!handshakes.trim().ends_with("\t0"), "{handshakes}");
    let transfer = run("wg show wg0 transfer");
    let bytes: Vec<u64> = transfer.split_whitespace().skip(1).flat_map(str::parse).collect();
    let is_much = |it: &u64| *it > 1 << 20;
    assert!(bytes.len() == 2 && bytes.iter().all(is_much), "{transfer}");
    // What the workers counted is published now and then.
    let mut shown = Value::Null;
    let counted = weir_lab::interrupt::until("counters of both ways", PATIENCE, || {
        shown = serde_json::from_str(&gateway.vpn("show", &["kernel", "--json"])?.stdout)?;
        let is_much = |way: &str| number(&shown, &format!("/counters/{way}_bytes")) > 1 << 20;
        Ok(is_much("received") && is_much("sent"))
    });
    counted.unwrap_or_else(|it| panic!("{it:#}: {shown:#}"));
}

#[test]
fn boringtun_is_a_client_whose_session_outlives_a_rotation_of_ports() {
    let test = "boringtun_is_a_client";
    let program = match weir_lab::wireguard::boringtun().and_then(|it| {
        process::require(&["wg"])?;
        Ok(it)
    }) {
        Ok(program) => program,
        Err(reason) => return eprintln!("SKIPPED: {test}: {reason:#}"),
    };
    let Some(Stand { _turn, lab }) = stand(test) else { return };
    let gateway = Concentrator::start(&lab, WEIR.as_ref(), "").unwrap();
    let file = gateway.add("boring").unwrap();
    let arguments = ["-f", "--disable-drop-privileges"];
    let client = Client::start_by(&lab, 0, &file, &program, &arguments).unwrap();
    let (namespace, host) = (Client::namespace(&lab), lab.host_v4(Side::A));
    reaches(namespace, &host.to_string());
    assert_eq!(ping_all(namespace, &host.to_string(), 20, 1300).unwrap().answered, 20);
    assert_eq!(ping_all(lab.host(Side::A), client.address(), 20, 1300).unwrap().answered, 20);
    let session = client.wg(&lab, "latest-handshakes").unwrap();
    assert!(!session.trim().ends_with("\t0"), "{session}");
    // Both ways, super-packets cut and gathered.
    let stream = |from, to, address: IpAddr| {
        let report = iperf::tcp(from, to, address, Extent::Bytes(8 << 20)).unwrap();
        // What is under way at the end, iperf3's receiver does not count.
        assert!(report.bytes > 4 << 20, "{} bytes", report.bytes);
    };
    stream(namespace, lab.host(Side::A), host.into());
    stream(lab.host(Side::A), namespace, client.address().parse().unwrap());
    namespace.run(&format!("wg set {} listen-port 40002", client.port())).unwrap();
    assert_eq!(ping_all(namespace, &host.to_string(), 5, 200).unwrap().answered, 5);
    let shown = gateway.vpn("show", &["boring", "--json"]).unwrap().stdout;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert!(number(&shown, "/counters/received_bytes") > 4 << 20, "{shown:#}");
    assert!(number(&shown, "/counters/sent_bytes") > 4 << 20, "{shown:#}");
}

fn reaches(from: &Namespace, target: &str) {
    let answered = || Ok(ping(from, target, 1, 56)?.answered > 0);
    interrupt::until("answer through the tunnel", PATIENCE, answered).unwrap();
}

#[test]
fn a_client_that_roams_keeps_its_session_and_what_was_recorded_is_not_taken_again() {
    let test = "a_client_that_roams_keeps_its_session";
    if let Err(missing) = weir_lab::wireguard::program().and(process::require(&["wg"])) {
        return eprintln!("SKIPPED: {test}: {missing}");
    }
    let Some(Stand { _turn, lab }) = stand(test) else { return };
    let gateway = Concentrator::start(&lab, WEIR.as_ref(), "").unwrap();
    let client = Client::start(&lab, 0, &gateway.add("laptop").unwrap()).unwrap();
    let (namespace, host) = (Client::namespace(&lab), lab.host_v4(Side::A).to_string());
    let wire = listen(&lab, 0);
    reaches(namespace, &host);
    assert_eq!(ping_all(namespace, &host, 30, 200).unwrap().answered, 30);
    let [own, outer] = GATEWAY_V4;
    let recorded: Vec<Vec<u8>> = frames(&wire.stop().unwrap(), outer, 4);
    assert!(recorded.len() >= 30, "{}", recorded.len());
    let session = client.wg(&lab, "latest-handshakes").unwrap();
    let show = || -> Value {
        let said = gateway.vpn("show", &["laptop", "--json"]).unwrap().stdout;
        serde_json::from_str(&said).unwrap()
    };
    let is_at = |endpoint: &str| {
        let wanted = || Ok(show()["counters"]["endpoint"] == endpoint);
        interrupt::until("the client's new place", PATIENCE, wanted).unwrap();
    };

    // Another port, as a translator on the way gives it.
    namespace.run(&format!("wg set {} listen-port 40001", client.port())).unwrap();
    assert_eq!(ping_all(namespace, &host, 5, 200).unwrap().answered, 5);
    is_at(&format!("{outer}:40001"));
    // Another address.
    let elsewhere = "192.168.77.99";
    namespace
        .ip(&format!(
            "addr add {elsewhere}/32 dev {WIRE_PORT}\n\
             route add {own}/32 dev {WIRE_PORT} src {elsewhere}\n\
             addr del {outer}/24 dev {WIRE_PORT}\n"
        ))
        .unwrap();
    reaches(namespace, &host);
    is_at(&format!("{elsewhere}:40001"));
    assert_eq!(ping_all(lab.host(Side::A), client.address(), 5, 200).unwrap().answered, 5);
    assert_eq!(client.wg(&lab, "latest-handshakes").unwrap(), session, "no new handshake");

    // Recorded packets come again, in another order: none is taken, and none moves the client.
    let (before, again) = (show(), recorded.iter().rev().cloned().collect::<Vec<_>>());
    send_frames(lab.wire(), WIRE_END_A, &again, 2000).unwrap();
    let refused = || {
        let status = gateway.status()?;
        let reasons = &status["pairs"][0]["wire"]["dropped_by_reason"];
        let of = |name: &str| reasons[name].as_u64().unwrap_or(0);
        Ok(of("replay_duplicate") + of("replay_old") == again.len() as u64)
    };
    interrupt::until("count of what was replayed", PATIENCE, refused).unwrap();
    let received = |shown: &Value| number(shown, "/counters/received_packets");
    assert_eq!(received(&show()), received(&before));
    is_at(&format!("{elsewhere}:40001"));

    // Initiations by nobody: made-up ones are dropped, and a new client gets in meanwhile.
    let flood = initiations(&recorded[0], 3000);
    let file = gateway.add("phone").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| send_frames(lab.wire(), WIRE_END_A, &flood, 3000).unwrap());
        let phone = Client::start(&lab, 1, &file).unwrap();
        let ping = format!("ping -c 1 -W 1 -I {} {host}", phone.port());
        let answered = || Ok(namespace.run(&ping).is_ok());
        interrupt::until("answer to who came during the flood", PATIENCE, answered).unwrap();
    });
    assert_eq!(ping_all(namespace, &host, 5, 200).unwrap().answered, 5);
    assert_eq!(client.wg(&lab, "latest-handshakes").unwrap(), session, "no new handshake");
}

/// Frames from `source` that hold WireGuard's message of `kind`.
fn frames(captured: &Captured, source: std::net::Ipv4Addr, kind: u8) -> Vec<Vec<u8>> {
    let all = captured.frames().unwrap();
    let is_one = |frame: &Vec<u8>| {
        frame.get(26..30) == Some(&source.octets()[..])
            && frame.get(36..38) == Some(&PORT.to_be_bytes()[..])
            && frame.get(MESSAGE_AT) == Some(&kind)
    };
    all.into_iter().filter(is_one).collect()
}

/// So many handshake initiations of as many strangers, in frames like `like`.
fn initiations(like: &[u8], count: u32) -> Vec<Vec<u8>> {
    const INITIATION_LEN: usize = 148;
    let made = |number: u32| {
        let mut frame = like[..MESSAGE_AT].to_vec();
        let len = (20 + 8 + INITIATION_LEN) as u16;
        frame[16..18].copy_from_slice(&len.to_be_bytes());
        frame[38..40].copy_from_slice(&(len - 20).to_be_bytes());
        // No checksum of UDP's; the header's own is made anew.
        frame[40..42].fill(0);
        frame[24..26].fill(0);
        let words = frame[14..34].chunks_exact(2);
        let mut sum: u32 = words.map(|it| u32::from(u16::from_be_bytes([it[0], it[1]]))).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        frame[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        frame.extend([1, 0, 0, 0]);
        frame.extend((4..INITIATION_LEN as u32).map(|it| (it.wrapping_mul(number + 7) >> 3) as u8));
        frame
    };
    (0..count).map(made).collect()
}
