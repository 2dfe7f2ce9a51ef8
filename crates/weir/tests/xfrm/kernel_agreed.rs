//! `offload = "kernel"` where gateways agree on keys: the network of [`super::kernel_esp`], and a
//! gateway at the other end too.

use weir_lab::vm::Job;

use super::kernel_esp::{FAR_GATEWAY, GUEST_PATIENCE, OTHERS, Stage, number};
use super::*;

pub(super) const NEAR: [&str; 3] = ["gateway", "/tmp/weir.toml", "/tmp/pid"];
pub(super) const FAR: [&str; 3] = ["peer", "/tmp/far.toml", "/tmp/far.pid"];
pub(super) const PEER: &str = "/pairs/0/peers/0";

/// SPI and IV of each ESP packet in a capture.
const SPIS_AND_IVS: &str = r#"python3 -c '
import struct, sys
data = open(sys.argv[1], "rb").read()
at = 24
while at + 16 <= len(data):
    length = struct.unpack_from("=I", data, at + 8)[0]
    frame = data[at + 16:at + 16 + length]
    at += 16 + length
    if frame[12:14] == b"\x08\x00" and frame[23] == 50:
        print(frame[34:38].hex(), frame[42:50].hex())'"#;

/// Both gateways' configurations, with these lines in `[keying]`, and who does the ESP of each.
pub(super) fn configure(stage: &mut Stage, keying: &str, offloads: [&str; 2]) {
    stage.run("mkdir -p /tmp/far");
    let public = ["/tmp/a.identity", "/tmp/far/b.identity"].map(|file| {
        let made =
            format!("test -e {file} || /run/machine{WEIR} keys identity {file} > /dev/null 2>&1");
        let told = stage.run(&format!("{made}; /run/machine{WEIR} keys public {file}"));
        told.trim().to_owned()
    });
    let ends = [
        ("gw", "/tmp", "pf0", "p0", 1, 2, "a", "/tmp/weir.toml"),
        ("far", "/tmp/far", "pf1", "w0", 2, 1, "b", "/tmp/far.toml"),
    ];
    for (side, (name, folder, host, wire, own, other, identity, file)) in
        ends.into_iter().enumerate()
    {
        let (offload, key) = (offloads[side], &public[1 - side]);
        stage.run(&format!(
            "cat > {file} <<END
[gateway]
name = \"{name}\"
state_dir = \"{folder}/state\"
run_dir = \"{folder}/run\"
[keying]
identity_file = \"{folder}/{identity}.identity\"
{keying}
[[pair]]
name = \"port0\"
host = \"{host}\"
wire = \"{wire}\"
address = \"192.0.2.{own}/24\"
[[peer]]
name = \"other\"
endpoint = \"192.0.2.{other}\"
mode = \"tunnel\"
offload = \"{offload}\"
protects = \"10.{other}.0.0/24\"
public_key = \"{key}\"
END
"
        ));
    }
}

pub(super) fn start(stage: &mut Stage, [namespace, file, pid]: [&str; 3]) -> Job {
    stage.start_in(namespace, file, pid)
}

/// By its question for a neighbour the host there tells its gateway where it is.
pub(super) fn connect(stage: &mut Stage) {
    stage.run("ip netns exec far ping -n -c 1 -W 1 10.2.0.9 || true");
    stage.ping("host", "10.2.0.1", "-c 2");
}

fn keying(status: &serde_json::Value, what: &str) -> u64 {
    number(status, &format!("/pairs/0/keying/{what}"))
}

/// 250 packets, and again until the keys have changed three times: none may be lost. Returns the
/// handshakes that this gateway answered.
#[track_caller]
pub(super) fn loses_nothing(stage: &mut Stage) -> u64 {
    // Late is not lost: ping asks on until it has as many answers, which of the first 250 are seen.
    let line = "ip netns exec host ping -n -i 0.02 -c 250 -w 60 10.2.0.1 \
                | sed -n 's/.* bytes from .*icmp_seq=\\([0-9]*\\) .*/\\1/p' \
                | awk '$1 <= 250 && !seen[$1]++ { count++ } END { print count + 0 }'";
    let before = stage.status();
    for _ in 0..6 {
        let said = stage.guest.run(line, GUEST_PATIENCE).unwrap();
        assert_eq!(said.output.trim(), "250", "{}", stage.words());
        let after = stage.status();
        if keying(&after, "handshakes") >= keying(&before, "handshakes") + 3 {
            return keying(&after, "responses_sent") - keying(&before, "responses_sent");
        }
    }
    panic!("the keys did not change three times: {before} {}", stage.status());
}

/// This kernel takes the association all the same, and would seal by itself: a demand that is not
/// met.
fn a_veth_does_no_cipher(stage: &mut Stage) {
    configure(stage, "", ["crypto", "none"]);
    let line = format!("ip netns exec gateway /run/machine{WEIR} up /tmp/weir.toml");
    let said = stage.guest.run(&line, GUEST_PATIENCE).unwrap();
    for words in ["offload = \"crypto\" on p0", "would seal by itself", "write offload = \"auto\""]
    {
        assert!(said.output.contains(words), "{words}: {}", said.output);
    }
}

#[test]
fn agreed_keys_change_in_the_kernel_and_not_one_packet_is_lost() {
    let Some(mut stage) = Stage::boot("agreed keys in the gateway's kernel") else { return };
    stage.run(FAR_GATEWAY);
    stage.run(OTHERS);
    let others = stage.in_kernel();
    let wire = stage.capture();
    configure(&mut stage, "rekey_after_s = 2", ["kernel", "none"]);
    let far = start(&mut stage, FAR);
    let near = start(&mut stage, NEAR);
    connect(&mut stage);
    loses_nothing(&mut stage);
    stage.transfers("far");
    let first = stage.status();
    assert_eq!(number(&first, "/pairs/0/host/sealed"), 0, "Weir seals nothing: {first}");
    let kernel = |what: &str| number(&first, &format!("{PEER}/kernel/{what}"));
    assert!(kernel("left_packets") > 500 && kernel("opened_packets") > 500, "{first}");

    // Who starts anew initiates, and goes on to unless it is held up: the kernel's side answers.
    let mut far = far;
    let mut answered = 0;
    for _ in 0..5 {
        stage.end_of(far, FAR[2], "KILL");
        far = start(&mut stage, FAR);
        connect(&mut stage);
        answered += loses_nothing(&mut stage);
        if answered >= 3 {
            break;
        }
    }
    assert!(answered >= 3, "{answered} handshakes answered");

    // The kernel at both ends.
    stage.end_of(far, FAR[2], "TERM");
    configure(&mut stage, "rekey_after_s = 2", ["kernel", "kernel"]);
    let far = start(&mut stage, FAR);
    connect(&mut stage);
    loses_nothing(&mut stage);
    stage.transfers("far");

    // Whoever flushes them costs a handshake; a port that goes down takes routes with it.
    // A generation of keys may end by itself between `ip`'s list and its work.
    let flush = "ip -n gateway xfrm state deleteall reqid 0x57656972";
    stage.run(&format!("{flush} || {flush}"));
    stage.ping("host", "10.2.0.1", "-c 5");
    stage.run("ip -n gateway link set p0 down; sleep 1; ip -n gateway link set p0 up");
    stage.ping("host", "10.2.0.1", "-c 5");
    loses_nothing(&mut stage);

    // Keys change all the time: there may be one generation more for a moment.
    let few = (0..15).any(|_| {
        std::thread::sleep(Duration::from_secs(1));
        stage.in_kernel().matches("proto esp spi").count() < 10
    });
    assert!(few, "associations pile up: {}", stage.in_kernel());
    stage.end_of(near, NEAR[2], "TERM");
    stage.end_of(far, FAR[2], "TERM");
    assert_eq!(stage.in_kernel(), others, "nothing of ours stays, and others' does");
    a_veth_does_no_cipher(&mut stage);
    assert_eq!(stage.in_kernel(), others, "nor of what a NIC was asked for");
    stage.run("kill $(cat /tmp/tcpdump.pid)");
    wire.finish(GUEST_PATIENCE).unwrap();
    let clear = "not esp and not arp and not icmp6 and not ip6 proto 0 and not udp port 51840";
    let clear = stage.run(&format!("tcpdump -nr /tmp/wire.pcap '{clear}'"));
    assert!(!clear.contains("IP"), "in clear: {clear}");
    let seen = stage.run(&format!("{SPIS_AND_IVS} /tmp/wire.pcap"));
    let seen: Vec<&str> = seen.lines().filter(|line| line.contains(' ')).collect();
    let distinct: std::collections::BTreeSet<_> = seen.iter().collect();
    assert_eq!(distinct.len(), seen.len(), "an IV was used twice under one SPI");
}

#[test]
fn an_idle_peer_of_the_kernels_is_heard_and_a_dead_one_is_found() {
    let Some(mut stage) = Stage::boot("signs of life through the kernel") else { return };
    stage.run(FAR_GATEWAY);
    configure(&mut stage, "keepalive_ms = 1000", ["kernel", "none"]);
    let far = start(&mut stage, FAR);
    let near = start(&mut stage, NEAR);
    connect(&mut stage);
    // Who is not heard for 2.5 seconds causes a handshake; so does a guest that stops for as long.
    let hears = |stage: &mut Stage| {
        let before = stage.status();
        std::thread::sleep(Duration::from_secs(6));
        keying(&stage.status(), "handshakes") == keying(&before, "handshakes")
    };
    assert!((0..4).any(|_| hears(&mut stage)), "it was not heard: {}", stage.status());
    let up = |status: &serde_json::Value, state: &str| {
        status.pointer(&format!("{PEER}/keying/state")).is_some_and(|it| it == state)
    };
    let is_wide = || {
        let status = stage.status();
        let width = status.pointer(&format!("{PEER}/keying/path_mtu")).unwrap();
        Ok((&width["state"], &width["bytes"]) == (&"found".into(), &1500.into()))
    };
    interrupt::until("a path of 1500 bytes", GUEST_PATIENCE, is_wide).unwrap();
    // All that the kernel sealed left; it is what hosts sent, and what the gateway said itself. The
    // kernel is asked every 100 ms.
    let mut after = stage.status();
    let is_accounted_for = || {
        after = stage.status();
        let kernel = |what: &str| number(&after, &format!("{PEER}/kernel/{what}"));
        let own = keying(&after, "keepalives_sent") + keying(&after, "path_probes_sent");
        let sealed = number(&after, &format!("{PEER}/sealed_packets")) + own;
        Ok((kernel("sealed_packets"), kernel("left_packets")) == (sealed, sealed))
    };
    let waited =
        interrupt::until("packets that are all accounted for", GUEST_PATIENCE, is_accounted_for);
    waited.unwrap_or_else(|error| panic!("{error:#}: {after}"));
    assert!(up(&after, "up") && after["adds_up"] == true, "{after}");

    stage.end_of(far, FAR[2], "KILL");
    let is_dead = || Ok(up(&stage.status(), "dead"));
    interrupt::until("a peer that is found dead", GUEST_PATIENCE, is_dead).unwrap();
    let far = start(&mut stage, FAR);
    connect(&mut stage);
    // A gateway that is killed leaves keys that nobody uses again.
    stage.end_of(near, NEAR[2], "KILL");
    stage.silent("host", "10.2.0.1");
    let near = start(&mut stage, NEAR);
    connect(&mut stage);
    stage.end_of(near, NEAR[2], "TERM");
    stage.end_of(far, FAR[2], "TERM");
    assert!(!stage.in_kernel().contains("esp"), "{}", stage.in_kernel());
}

/// IPv6 addresses for hosts and gateways.
pub(super) const V6: &str = "for at in host:h0:1:1 far:h1:2:1; do
  IFS=: read name port net own <<END
$at
END
  ip -n $name addr add fd00:$net::1/64 dev $port nodad
  ip -n $name neigh add fd00:$net::fe lladdr 02:00:00:00:00:fe dev $port nud permanent
  ip -n $name route add fd00:$((3 - net))::/64 via fd00:$net::fe
done
for file in /tmp/weir.toml /tmp/far.toml; do
  sed -i -e 's,192.0.2.\\(.\\)/24,2001:db8::\\1/64,' -e 's,192.0.2.\\(.\\),2001:db8::\\1,' \
   -e 's,\"10.\\(.\\).0.0/24\",[\"10.\\1.0.0/24\"\\, \"fd00:\\1::/64\"],' $file
done";

fn connect_v6(stage: &mut Stage) {
    connect(stage);
    stage.run("ip netns exec far ping -n -c 1 -W 1 fd00:2::9 || true");
    stage.ping("host", "fd00:2::1", "-c 3 -s 1300");
}

/// Gives both gateways a key for each direction instead.
fn key_by_files(stage: &mut Stage) {
    for (file, seal, open) in [(NEAR[1], 1, 2), (FAR[1], 2, 1)] {
        let key = format!("410{seal}").repeat(18);
        stage.run(&format!(
            "umask 077; echo {key} > /tmp/{seal}.key
sed -i -e '/^.keying/,/^rekey/d' -e /^public_key/d {file}
cat >> {file} <<END
seal = {{ spi = 0x200{seal}, key_file = \"/tmp/{seal}.key\" }}
open = {{ spi = 0x200{open}, key_file = \"/tmp/{open}.key\" }}
END
"
        ));
    }
}

#[test]
fn both_families_go_through_the_kernels_esp_over_ipv6() {
    let Some(mut stage) = Stage::boot("the kernel's ESP over IPv6") else { return };
    stage.run(FAR_GATEWAY);
    stage.run("modprobe esp6");
    let before = stage.in_kernel();
    let wire = stage.capture();
    configure(&mut stage, "rekey_after_s = 2", ["kernel", "none"]);
    stage.run(V6);
    let far = start(&mut stage, FAR);
    let near = start(&mut stage, NEAR);
    connect_v6(&mut stage);
    loses_nothing(&mut stage);
    stage.transfers("far");
    stage.ping("host", "fd00:2::1", "-c 10");
    let status = stage.status();
    let kernel = |what: &str| number(&status, &format!("{PEER}/kernel/{what}"));
    assert!(kernel("left_packets") > 500 && kernel("opened_packets") > 500, "{status}");
    stage.end_of(near, NEAR[2], "TERM");
    stage.end_of(far, FAR[2], "TERM");

    key_by_files(&mut stage);
    let far = start(&mut stage, FAR);
    let near = start(&mut stage, NEAR);
    connect_v6(&mut stage);
    stage.end_of(near, NEAR[2], "KILL");
    stage.silent("host", "10.2.0.1");
    let near = start(&mut stage, NEAR);
    connect_v6(&mut stage);
    stage.end_of(near, NEAR[2], "TERM");
    stage.end_of(far, FAR[2], "TERM");
    let removed = stage.in_kernel();
    assert!(!removed.contains("esp") && !removed.contains("5765"), "{before}\n{removed}");
    stage.run("kill $(cat /tmp/tcpdump.pid)");
    wire.finish(GUEST_PATIENCE).unwrap();
    let clear = "not esp and not arp and not icmp6 and not ip6 proto 0 and not udp port 51840";
    let clear = stage.run(&format!("tcpdump -nr /tmp/wire.pcap '{clear}'"));
    assert!(!clear.contains("IP"), "in clear: {clear}");
    let esp = stage.run("tcpdump -nr /tmp/wire.pcap 'ip6 proto 50' | wc -l");
    assert!(esp.trim().lines().last().unwrap().trim().parse::<u64>().unwrap() > 1000, "{esp}");
}
