//! Mirrors whose port leads to the sealed wire by another name or by what stands between.

use rustix::process::Signal;
use weir_lab::gateways::configurations;
use weir_lab::process::Finished;
use weir_lab::topology::WIRE_PORT;

use super::*;

/// Two mirrors, one by the kernel, one by the gateway.
fn mirrors_to(port: &str) -> String {
    let mirror = |name: &str, more: &str| {
        format!("\n[[mirror]]\nname = \"{name}\"\nport = \"{port}\"\n{more}")
    };
    mirror("whole", "") + &mirror("cut", "snap = 128\n")
}

#[test]
fn a_mirror_that_leads_to_the_sealed_wire_is_refused_under_every_name() {
    let Some(Stand { _turn, lab }) = stand("a_mirror_that_leads_to_the_sealed_wire") else {
        return;
    };
    let texts = configurations(&lab, &sealed()).unwrap();
    let gateway = lab.gateway(Side::A);
    gateway
        .ip(&format!(
            "link property add dev {WIRE_PORT} altname other0\n\
             link add vxlan0 type vxlan id 5 dev {WIRE_PORT} dstport 4789 remote 192.0.2.9\n\
             link add shut0 type veth peer name shut1\n"
        ))
        .unwrap();
    let shut = texts[0].replace("pf0hpf", "shut0").replace(WIRE_PORT, "shut1");
    configure(&lab, Side::A, &shut).unwrap();
    assert_eq!(guard::guard(&lab, Side::A, &["on"]).status.code(), Some(0));
    let with = |port: &str| format!("{}{}", texts[0], mirrors_to(port));
    let weir = |words: &[&str], port: &str| -> Finished {
        let file = configure(&lab, Side::A, &with(port)).unwrap();
        let mut command = gateway.command(WEIR);
        Running::start(command.args(words).arg(file)).unwrap().finish(PATIENCE).unwrap()
    };
    let assert_refused = |port: &str, words: &str| {
        for command in [&["check"][..], &["up", "--wait", "0"]] {
            let refused = weir(command, port);
            assert_eq!(refused.status.code(), Some(2), "{command:?} {port}: {}", refused.stderr);
            assert!(refused.stderr.contains(words), "{port}: {}", refused.stderr);
        }
    };
    let ports = [
        ("other0", "which is p0, the wire of a gateway that seals, would leak plaintext"),
        ("vxlan0", "which leads to p0, the wire"),
        ("shut0", "a port that a guard shuts"),
    ];
    for (port, words) in &ports {
        assert_refused(port, words);
    }
    match gateway.ip(&format!("link add link {WIRE_PORT} name macvlan0 type macvlan mode bridge\n"))
    {
        Ok(_) => assert_refused("macvlan0", "which leads to p0, the wire"),
        Err(error) => eprintln!("SKIPPED: a mirror to a macvlan: {error:#}"),
    }
    // A port has one of the two.
    let _ = gateway.ip("link del macvlan0\n");
    gateway.ip(&format!("link add br0 type bridge\nlink set {WIRE_PORT} master br0\n")).unwrap();
    assert_refused("br0", "which leads to p0, the wire");
    gateway.ip("link del br0\n").unwrap();

    configure(&lab, Side::A, &texts[0]).unwrap();
    let mut gateways = Gateways::start_configured(&lab, &sealed(), &texts).unwrap();
    for (refused, (port, words)) in (1..).zip(&ports) {
        configure(&lab, Side::A, &with(port)).unwrap();
        gateways.daemon(Side::A).signal(Signal::HUP).unwrap();
        wait_status(&gateways, Side::A, |it| it["reloads_refused"] == refused);
        assert!(gateways.log(Side::A).contains(words), "{port}: {}", gateways.log(Side::A));
    }
}

#[test]
fn a_mirror_port_that_comes_back_on_top_of_the_sealed_wire_gets_no_copies() {
    let Some(Stand { _turn, lab }) = stand("a_mirror_port_that_comes_back") else { return };
    let gateway = lab.gateway(Side::A);
    gateway
        .ip("link add mon0 type veth peer name mon1\nlink set mon0 up\nlink set mon1 up\n")
        .unwrap();
    let [text, other] = configurations(&lab, &sealed()).unwrap();
    let texts = [text + &mirrors_to("mon0"), other];
    let gateways = Gateways::start_configured(&lab, &sealed(), &texts).unwrap();
    wait_until_it_flows(&lab);
    let wire = listen(&lab, 256);
    under_traffic(&lab, || {
        gateway
            .ip(&format!(
                "link del mon0\n\
                 link add mon0 type vxlan id 5 dev {WIRE_PORT} dstport 4789 remote 192.0.2.9\n\
                 link set mon0 up\n"
            ))
            .unwrap();
        interrupt::until("word of the refusal", PATIENCE, || {
            Ok(gateways.log(Side::A).matches("nothing is copied").count() == 2)
        })
        .unwrap();
        pause(2000);
    });
    assert_sealed(&wire.stop().unwrap());
    let refused = gateways.log(Side::A).matches("nothing is copied").count();
    assert_eq!(refused, 2, "said once a mirror");
}

#[test]
fn copies_do_not_pass_the_guard_of_a_wire_that_joins_the_mirrors_bridge_later() {
    let Some(Stand { _turn, lab }) = stand("copies_do_not_pass_the_guard") else { return };
    let gateway = lab.gateway(Side::A);
    gateway.ip("link add mon0 type bridge\nlink set mon0 mtu 9000\nlink set mon0 up\n").unwrap();
    gateway.set(&[("net.ipv6.conf.mon0.disable_ipv6", "1")]).unwrap();
    let [text, other] = configurations(&lab, &sealed()).unwrap();
    let texts = [text + &mirrors_to("mon0"), other];
    let gateways = Gateways::start_configured(&lab, &sealed(), &texts).unwrap();
    wait_until_it_flows(&lab);
    let wire = listen(&lab, 256);
    gateway.ip(&format!("link set {WIRE_PORT} master mon0\n")).unwrap();
    let mirrored = |gateways: &Gateways| {
        let status = gateways.status(Side::A).unwrap();
        [0, 1].map(|at| number(&status, &format!("/pairs/0/mirrors/{at}/chosen")))
    };
    let before = mirrored(&gateways);
    under_traffic(&lab, || {
        wait_until_it_flows(&lab);
        weir_lab::traffic::tcp::transfer(&lab, 1 << 20).unwrap();
        pause(1000);
    });
    let after = mirrored(&gateways);
    assert!((0..2).all(|at| after[at] > before[at] + 100), "{before:?} {after:?}");
    assert_sealed(&wire.stop().unwrap());
}
