//! A driver's own counters, beside what ethtool says of them.

mod lab;

use std::process::Command;

use lab::{Lab, possible};
use weir_port::Interface;

#[test]
fn statistics_are_those_that_ethtool_shows() {
    if !possible() || Command::new("ethtool").arg("--version").output().is_err() {
        eprintln!("SKIPPED: needs ethtool");
        return;
    }
    let lab = Lab::new(1500);
    let ours = lab.middle.within(|| Interface::find("pl").unwrap().statistics().unwrap());
    let said = lab.middle.within(|| Command::new("ethtool").args(["-S", "pl"]).output().unwrap());
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(ours.len() > 3, "veth has counters: {ours:?}");
    let shown: Vec<&str> = said.lines().filter_map(|line| line.split(':').next()).skip(1).collect();
    let names: Vec<&str> = ours.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, shown.iter().map(|name| name.trim()).collect::<Vec<_>>());
    let peer = |name: &(String, u64)| name.0 == "peer_ifindex" && name.1 > 0;
    assert!(ours.iter().any(peer), "{ours:?}");
    let none = lab.middle.within(|| Interface::find("lo").unwrap().statistics().unwrap());
    assert!(none.is_empty(), "the loopback interface has none");
}

#[test]
fn what_queue_and_device_drop_on_the_way_out_is_told() {
    if !possible() {
        return;
    }
    let lab = Lab::new(1500);
    let say = || {
        let script = "import socket\ns = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n\
                      s.bind(('pr', 0x800))\n\
                      for _ in range(7):\n  try: s.send(bytes(60))\n  except OSError: pass";
        let said = lab.middle.command("python3", &["-c", script]);
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    };
    let lost = || lab.middle.within(|| Interface::find("pr").unwrap().lost_leaving().unwrap());
    let before = lost();
    say();
    assert_eq!(lost(), before, "they arrived");
    lab.right.ip("link set r0 down");
    say();
    assert_eq!(lost(), before + 7, "by the device");
    let added = lab.middle.command("tc", &["qdisc", "add", "dev", "pr", "root", "blackhole"]);
    if !added.status.success() {
        eprintln!("SKIPPED: what a queue drops: {}", String::from_utf8_lossy(&added.stderr));
        return;
    }
    say();
    assert_eq!(lost(), before + 14, "by the queue");
}
