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
