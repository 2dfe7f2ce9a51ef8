//! `offload = "crypto"`, `"packet"` and `"auto"` with a NIC that does ESP: a simulated one, in a
//! guest with a kernel that knows `packet` (Linux 6.12). The network is that of
//! [`super::kernel_agreed`], and the NIC stands where its gateway's wire port was. What it makes is
//! opened by a gateway that does its ESP itself, and what the wire shows is captured behind it.

use weir_lab::vm::{GuestKernel, Job};

use super::kernel_agreed::{FAR, NEAR, PEER, V6, configure, connect, loses_nothing, start};
use super::kernel_esp::{FAR_GATEWAY, GUEST_PATIENCE, Stage, number};
use super::*;

const NIC: &str = "set -e
modprobe -a esp6 esp4_offload esp6_offload
ip -n gateway link set p0 down
ip -n gateway link set p0 name l0
ip -n gateway link set l0 up
ip -n gateway link add p0 link l0 type espnic
ip -n gateway link set p0 up
";

/// Frames of a UDP packet in clear, from the far host to the near one, put on the wire.
const SAY_IN_CLEAR: &str = r#"ip netns exec wire python3 -c '
import socket, struct, subprocess, sys
mac = bytes.fromhex(subprocess.check_output(
    ["ip", "netns", "exec", "gateway", "cat", "/sys/class/net/p0/address"]).decode()
    .strip().replace(":", ""))
ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 40, 0, 0, 64, 17, 0, bytes([10, 2, 0, 1]),
                 bytes([10, 1, 0, 1]))
total = sum(struct.unpack("!10H", ip))
total = (total & 0xffff) + (total >> 16)
ip = ip[:10] + struct.pack("!H", ~total & 0xffff) + ip[12:]
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
out.bind(("wp", 0))
for _ in range(20):
    out.send(mac + bytes(6) + b"\x08\x00" + ip + struct.pack("!HHHH", 7777, 7777, 20, 0)
             + bytes(12))
'"#;

fn boot(test: &str) -> Option<Stage> {
    let mut stage = Stage::boot_by(test, GuestKernel::with_esp_nic())?;
    stage.run(FAR_GATEWAY);
    stage.run(NIC);
    Some(stage)
}

fn set(stage: &mut Stage, parameter: &str, value: u32) {
    stage.run(&format!("echo {value} > /sys/module/espnic/parameters/{parameter}"));
}

fn in_clear(stage: &mut Stage) -> String {
    let clear = "not esp and not arp and not icmp6 and not ip6 proto 0 and not udp port 51840";
    stage.run(&format!("sleep 1; tcpdump -nr /tmp/wire.pcap '{clear}' 2> /dev/null"))
}

/// A start that is refused for these words, and leaves nothing.
#[track_caller]
fn refused(stage: &mut Stage, words: &[&str]) {
    let line = format!("ip netns exec gateway /run/machine{WEIR} up /tmp/weir.toml");
    let said = stage.guest.run(&line, GUEST_PATIENCE).unwrap();
    assert_ne!(said.code, 0);
    words.iter().for_each(|it| assert!(said.output.contains(it), "{it}: {}", said.output));
    assert!(!stage.in_kernel().contains("proto esp"), "{}", stage.in_kernel());
}

#[track_caller]
fn is_in_nic(stage: &mut Stage) -> serde_json::Value {
    let status = stage.status();
    let at = |what: &str| status.pointer(&format!("{PEER}/{what}")).cloned();
    assert_eq!(at("offload/in_hw"), Some(true.into()), "{status}");
    assert_eq!(at("kernel/in_nic"), Some(true.into()), "{status}");
    status
}

#[test]
fn a_nic_does_the_cipher_and_where_it_is_full_the_kernel_does() {
    let Some(mut stage) = boot("ESP whose cipher a NIC does") else { return };
    let wire = stage.capture();
    configure(&mut stage, "rekey_after_s = 2", ["crypto", "none"]);
    let far = start(&mut stage, FAR);
    let near = start(&mut stage, NEAR);
    connect(&mut stage);
    loses_nothing(&mut stage);
    stage.transfers("far");
    let status = is_in_nic(&mut stage);
    assert_eq!(number(&status, "/pairs/0/host/sealed"), 0, "Weir seals nothing: {status}");
    let state = stage.in_kernel();
    assert!(state.contains("offload"), "{state}");
    assert_eq!(in_clear(&mut stage), "");
    // A card that is full works on; nothing that a reload would ask of it is new.
    let reload = format!("/run/machine{WEIR} reload --run-dir /tmp/run");
    set(&mut stage, "sa_max", 0);
    stage.run(&reload);
    stage.end_of(near, NEAR[2], "TERM");

    // Without room for it `crypto` is refused, and of `auto` the kernel seals.
    refused(&mut stage, &["offload = \"crypto\" on p0", "write offload = \"auto\""]);
    set(&mut stage, "sa_max", 64);
    configure(&mut stage, "rekey_after_s = 2", ["auto", "none"]);
    let near = start(&mut stage, NEAR);
    connect(&mut stage);
    is_in_nic(&mut stage);
    set(&mut stage, "sa_max", 0);
    loses_nothing(&mut stage);
    let text = stage.run(&format!("/run/machine{WEIR} status --run-dir /tmp/run"));
    assert!(text.contains("offload auto: NOT IN HARDWARE, the kernel seals"), "{text}");
    assert!(near.output().contains("the NIC takes no more"), "{}", near.output());
    set(&mut stage, "sa_max", 64);
    let again =
        || Ok(stage.status().pointer(&format!("{PEER}/kernel/in_nic")) == Some(&true.into()));
    interrupt::until("keys that the NIC takes again", GUEST_PATIENCE, again).unwrap();
    assert_eq!(in_clear(&mut stage), "");
    stage.run(&reload);
    is_in_nic(&mut stage);
    stage.end_of(near, NEAR[2], "TERM");
    stage.end_of(far, FAR[2], "TERM");
    assert!(!stage.in_kernel().contains("proto esp"), "{}", stage.in_kernel());
    drop(wire);
}

/// What left in clear until Weir found that the NIC no longer seals; it says so, and then stops it.
fn found_leaking(stage: &mut Stage, near: &Job) -> String {
    set(stage, "broken", 1);
    let line = "echo $$ > /tmp/pings; \
                exec ip netns exec host ping -n -q -i 0.1 -c 3000 10.2.0.1 2>&1";
    let pings = stage.guest.start(line).unwrap();
    near.wait_for("PLAINTEXT LEFT", GUEST_PATIENCE).unwrap();
    let line = format!("/run/machine{WEIR} status --check --run-dir /tmp/run");
    let said = stage.guest.run(&line, GUEST_PATIENCE).unwrap();
    assert!(said.code == 1 && said.output.contains("its NIC did not seal"), "{}", said.output);
    stage.run("sleep 1");
    let leaked = in_clear(stage);
    assert!(leaked.contains("ICMP echo request"), "what was found did leave: {leaked}");
    stage.run("sleep 1");
    assert_eq!(in_clear(stage), leaked, "pings that go on, but not in clear");
    stage.run("kill -INT $(cat /tmp/pings)");
    pings.finish(GUEST_PATIENCE).unwrap();
    leaked
}

#[test]
fn a_nic_does_all_of_esp_and_is_believed_as_far_as_it_is_counted() {
    let Some(mut stage) = boot("ESP that a NIC does whole") else { return };
    let wire = stage.capture();
    // Keys that were replaced often hide no leak.
    configure(&mut stage, "rekey_after_s = 2", ["packet", "none"]);
    // A NIC that takes a network for one host would let the others' packets leave in clear.
    set(&mut stage, "exact", 1);
    refused(&mut stage, &["of 2 empty packets", "to have sealed 1", "offload = \"crypto\""]);
    set(&mut stage, "exact", 0);
    set(&mut stage, "modes", 1);
    refused(&mut stage, &["offload = \"packet\" on p0"]);
    set(&mut stage, "modes", 3);
    let trials = in_clear(&mut stage);
    assert_eq!(trials.lines().count(), 1, "the empty packet that showed it: {trials}");

    let far = start(&mut stage, FAR);
    let near = start(&mut stage, NEAR);
    connect(&mut stage);
    loses_nothing(&mut stage);
    stage.transfers("far");
    let status = is_in_nic(&mut stage);
    let kernel = |what: &str| number(&status, &format!("{PEER}/kernel/{what}"));
    assert_eq!(number(&status, "/pairs/0/host/sealed"), 0, "Weir seals nothing: {status}");
    assert!(kernel("left_packets") > 500 && kernel("opened_packets") > 500, "{status}");
    assert_eq!(status["adds_up"], true, "{status}");
    assert_eq!(in_clear(&mut stage), trials, "and nothing else");

    // A gateway that is killed leaves what the next start removes.
    stage.end_of(near, NEAR[2], "KILL");
    stage.silent("host", "10.2.0.1");
    let near = start(&mut stage, NEAR);
    connect(&mut stage);

    // What somebody says in clear looks to Weir as what the NIC opened, and comes to nobody.
    let listens = stage
        .guest
        .start("echo $$ > /tmp/listens; exec ip netns exec host tcpdump -ni h0 udp port 7777 2>&1")
        .unwrap();
    listens.wait_for("listening", GUEST_PATIENCE).unwrap();
    stage.run(SAY_IN_CLEAR);
    stage.run("sleep 1; kill -INT $(cat /tmp/listens)");
    let heard = listens.finish(GUEST_PATIENCE).unwrap().output;
    assert!(heard.contains("\n0 packets captured"), "{heard}");

    // The port goes down and comes back: kernel and NIC forgot everything.
    stage.run("ip -n gateway link set p0 down; sleep 1; ip -n gateway link set p0 up");
    stage.ping("host", "10.2.0.1", "-c 3");
    loses_nothing(&mut stage);
    is_in_nic(&mut stage);

    let leaked = found_leaking(&mut stage, &near);
    stage.silent("host", "10.2.0.1");
    set(&mut stage, "broken", 0);
    stage.silent("host", "10.2.0.1");
    assert_eq!(in_clear(&mut stage), leaked, "nothing after it was found");
    stage.end_of(near, NEAR[2], "TERM");
    stage.end_of(far, FAR[2], "TERM");
    assert!(!stage.in_kernel().contains("proto esp"), "{}", stage.in_kernel());
    drop(wire);
}

#[test]
fn two_nics_do_all_of_esp_over_ipv6() {
    let Some(mut stage) = boot("ESP that a NIC does whole, over IPv6") else { return };
    let wire = stage.capture();
    configure(&mut stage, "rekey_after_s = 2", ["packet", "packet"]);
    stage.run(V6);
    // One family in the other is not for NICs.
    stage.run("sed -i 's,\"10[^ ]* ,,' /tmp/weir.toml /tmp/far.toml");
    stage.run(
        "ip -n peer link set w0 down
ip -n peer link set w0 name l1
ip -n peer link set l1 up
ip -n peer link add w0 link l1 type espnic
ip -n peer link set w0 up",
    );
    let far = start(&mut stage, FAR);
    let near = start(&mut stage, NEAR);
    stage.run("ip netns exec far ping -n -c 1 -W 1 fd00:2::9 || true");
    stage.ping("host", "fd00:2::1", "-c 3 -s 1300");
    stage.ping("host", "fd00:2::1", "-c 50");
    is_in_nic(&mut stage);
    assert_eq!(in_clear(&mut stage), "");
    stage.end_of(near, NEAR[2], "TERM");
    stage.end_of(far, FAR[2], "TERM");
    assert!(!stage.in_kernel().contains("proto esp"), "{}", stage.in_kernel());
    drop(wire);
}
