//! The lab stands, carries and goes away: judged by the kernel and by ping, tcpdump and ethtool.

use std::path::Path;
use std::process::Command;

use weir_lab::topology::{self, Gateways, HOST_V6, Lab, Plan, Side, WIRE_PORT};

/// Whether this test can run; says so loudly when not.
fn can_run(test: &str) -> bool {
    let root = Command::new("id").arg("-u").output().is_ok_and(|it| it.stdout == b"0\n");
    if !root {
        eprintln!("SKIPPED: {test} needs root for network namespaces");
    }
    root
}

fn namespaces() -> String {
    let output = Command::new("ip").args(["netns", "list"]).output().expect("iproute2 runs");
    String::from_utf8(output.stdout).expect("names are text")
}

#[test]
fn a_dropped_lab_leaves_nothing() {
    if !can_run("a_dropped_lab_leaves_nothing") {
        return;
    }
    let lab = Lab::build(Plan::default()).expect("it builds");
    let (mark, folder) = (format!("weir-{}-", lab.id()), lab.folder().to_owned());
    assert_eq!(namespaces().lines().filter(|name| name.starts_with(&mark)).count(), 5);
    let mut sleeper = lab.host(Side::A).command("sleep").arg("60").spawn().expect("sleep starts");
    weir_lab::interrupt::until(
        "sleeper in its namespace",
        std::time::Duration::from_secs(30),
        || {
            let inside = Path::new("/proc").join(sleeper.id().to_string()).join("comm");
            Ok(std::fs::read_to_string(inside)?.trim() == "sleep")
        },
    )
    .expect("it sleeps");
    drop(lab);
    assert!(!namespaces().contains(&mark), "namespaces stay behind");
    assert!(!folder.exists(), "files stay behind");
    assert!(!sleeper.wait().expect("it ended").success(), "a process outlived its namespace");
}

#[test]
fn a_bridged_lab_carries_ipv4_ipv6_and_jumbo_frames() {
    if !can_run("a_bridged_lab_carries_ipv4_ipv6_and_jumbo_frames") {
        return;
    }
    let lab = Lab::build(Plan { gateways: Gateways::Bridge, ..Plan::default() }).expect("builds");
    let v4 = lab.host_v4(Side::B);
    for target in [format!("{v4} -s 8972 -M do"), HOST_V6[1].to_string()] {
        lab.host(Side::A).run(&format!("ping -c 2 -i 0.1 -W 2 {target}")).expect("an answer");
    }
}

#[test]
fn an_empty_gateway_passes_nothing() {
    if !can_run("an_empty_gateway_passes_nothing") {
        return;
    }
    let lab = Lab::build(Plan::default()).expect("it builds");
    let line = format!("ping -c 1 -W 1 {}", lab.host_v4(Side::B));
    lab.host(Side::A).run(&line).expect_err("nothing connects the ports");
}

#[test]
fn segmentation_is_off_on_the_wire_and_on_towards_hosts() {
    if !can_run("segmentation_is_off_on_the_wire_and_on_towards_hosts") {
        return;
    }
    let lab = Lab::build(Plan::default()).expect("it builds");
    let state = |namespace: &weir_lab::netns::Namespace, port: &str| {
        let features =
            namespace.run(&format!("ethtool -k {port}")).expect("ethtool answers").stdout;
        ["tcp-segmentation-offload", "generic-segmentation-offload", "tx-udp-segmentation"]
            .map(|name| features.contains(&format!("{name}: on")))
    };
    for side in Side::BOTH {
        assert_eq!(state(lab.gateway(side), WIRE_PORT), [false; 3]);
        assert_eq!(state(lab.gateway(side), topology::HOST_PORT), [true; 3]);
        assert_eq!(state(lab.host(side), topology::HOST_DEVICE), [true; 3]);
    }
    for end in [topology::WIRE_END_A, topology::WIRE_END_B] {
        assert_eq!(state(lab.wire(), end), [false; 3]);
    }
}

#[test]
fn sweep_spares_a_living_owner() {
    if !can_run("sweep_spares_a_living_owner") {
        return;
    }
    let lab = Lab::build(Plan::default()).expect("it builds");
    let removed = topology::sweep().expect("it sweeps");
    assert!(!removed.iter().any(|name| name.contains(lab.id())), "swept a living lab");
    lab.host(Side::A).run("ip link show eth0").expect("the lab still stands");
}

#[test]
fn sweep_removes_what_a_killed_owner_left() {
    const ROLE: &str = "WEIR_LAB_TEST_OWNER";
    if std::env::var_os(ROLE).is_some() {
        let lab = Lab::build(Plan::default()).expect("it builds");
        std::fs::write(std::env::var_os(ROLE).expect("set"), lab.id()).expect("a file for the id");
        std::thread::sleep(std::time::Duration::from_secs(60));
        return;
    }
    if !can_run("sweep_removes_what_a_killed_owner_left") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("id");
    let mut owner = Command::new(std::env::current_exe().expect("this test's program"))
        .args(["--exact", "sweep_removes_what_a_killed_owner_left"])
        .env(ROLE, &file)
        .spawn()
        .expect("the owner starts");
    weir_lab::interrupt::until("lab", std::time::Duration::from_secs(30), || {
        Ok(std::fs::read(&file).is_ok_and(|id| !id.is_empty()))
    })
    .expect("the owner builds its lab");
    let id = std::fs::read_to_string(&file).expect("the id");
    assert!(namespaces().contains(&format!("weir-{id}-")), "the owner's lab stands");
    owner.kill().expect("the owner is killed");
    owner.wait().expect("the owner ended");
    // Tests run side by side: another's sweep may have come first; what counts is that it is gone.
    topology::sweep().expect("it sweeps");
    let lease = Path::new("/run/weir-lab").join(format!("{id}.lock"));
    let gone = || Ok(!lease.exists() && !namespaces().contains(&format!("weir-{id}-")));
    weir_lab::interrupt::until("lab to go", std::time::Duration::from_secs(30), gone)
        .expect("the lab is gone");
}
