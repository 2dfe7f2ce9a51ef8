//! Two gateways keyed by `ip xfrm` alone.

use weir_lab::gateways::{KeySource, configurations};
use weir_lab::observe::{Capture, ESP};
use weir_lab::topology::{GATEWAY_V4, HOST_V4, WIRE_END_A};

use super::*;

/// The set-up of Mireles's thesis: transport mode between two hosts, word for word but for the
/// addresses.
pub(crate) fn transport(from: &str, to: &str, back: bool, spi: u32, key: &str) -> [String; 2] {
    let direction = if back { "in" } else { "out" };
    [
        format!(
            "ip xfrm state add src {from} dst {to} proto esp spi {spi:#x} reqid 1 mode transport \
             aead 'rfc4106(gcm(aes))' {key} 128"
        ),
        format!(
            "ip xfrm policy add src {from} dst {to} dir {direction} \
             tmpl src {from} dst {to} proto esp reqid 1 mode transport"
        ),
    ]
}

#[test]
fn ip_xfrm_word_for_word_seals_between_two_gateways() {
    seals_between_two_gateways("ip xfrm", "default = \"drop\"\n");
}

/// An SPI that a user chose says nothing about a worker: worker 0 has every association.
#[test]
fn ip_xfrm_seals_between_two_gateways_of_three_workers() {
    seals_between_two_gateways("ip xfrm, workers", "default = \"drop\"\nworkers = 3\n");
}

fn seals_between_two_gateways(test: &str, lines: &str) {
    let Some(Stand { _turn, lab }) = stand(test, Plan::default(), &[]) else { return };
    let gateways = gateways(&lab, lines);
    let [a, b] = HOST_V4.map(|it| it.to_string());
    let keys = ["0x".to_owned() + &"1a".repeat(20), "0x".to_owned() + &"2b".repeat(36)];
    for side in Side::BOTH {
        for line in transport(&a, &b, side == Side::B, 0x1001, &keys[0]).iter().chain(&transport(
            &b,
            &a,
            side == Side::A,
            0x1002,
            &keys[1],
        )) {
            xfrm(&lab, side, line);
        }
    }
    wait_for_ping(&lab, &b);
    let file = lab.folder().join("wire.pcap");
    let wire = Capture::start(lab.wire(), WIRE_END_A, &file, 256).unwrap();
    let report = ping_all(lab.host(Side::A), &b, 10, 1000).unwrap();
    assert_eq!(report.answered, 10, "{}", gateways.log(Side::A));
    let wire = wire.stop().unwrap();
    assert!(wire.count(ESP).unwrap() >= 20);
    assert_eq!(wire.count("icmp").unwrap(), 0, "in clear");
    let shown = xfrm(&lab, Side::A, "ip -s xfrm state");
    for word in ["rfc4106(gcm(aes))", "0x00001001", "mode transport", "reqid 1", "(INF)(bytes)"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
}

/// What comes by an SPI that worker 1 agreed on goes to worker 0 from the moment a front end names
/// it: the peer is given other keys at once, and not when theirs are old.
#[test]
fn a_front_end_may_name_the_spi_that_another_worker_agreed_on() {
    let Some(Stand { _turn, lab }) = stand("an SPI of two", Plan::default(), &[]) else { return };
    let setup = Setup {
        keys: KeySource::handshakes(),
        pair_lines: "xfrm = true\nworkers = 3\n".to_owned(),
        ..Setup::new(WEIR, Protection::Sealed)
    };
    let mut texts = configurations(&lab, &setup).unwrap();
    for (text, host) in texts.iter_mut().zip([HOST_V4[1], HOST_V4[0]]) {
        // Which packets pass them, front ends decide, too.
        *text = text.replace("\"everything\"", &format!("[\"{host}/32\"]"));
    }
    let gateways = Gateways::start_configured(&lab, &setup, &texts).unwrap();
    let agreed = || {
        let spi = gateways.status(Side::A)?.pointer("/pairs/0/peers/0/open_spi").cloned();
        Ok::<_, anyhow::Error>(spi.and_then(|it| it.as_u64()).unwrap_or_default())
    };
    interrupt::until("keys", PATIENCE, || Ok(agreed()? > 0)).unwrap();
    let of_first = agreed().unwrap();
    assert!(of_first.is_multiple_of(16), "{of_first:#x}");
    let [near, far] = GATEWAY_V4;
    let ends = format!("src {far} dst {near} proto esp");
    let key = "1a".repeat(20);
    xfrm(
        &lab,
        Side::A,
        &format!(
            "ip xfrm state add {ends} spi {:#x} reqid 9 mode tunnel aead 'rfc4106(gcm(aes))' \
             0x{key} 128",
            of_first + 1
        ),
    );
    xfrm(
        &lab,
        Side::A,
        &format!(
            "ip xfrm policy add src 10.9.2.0/24 dst 10.9.1.0/24 dir in tmpl {ends} reqid 9 \
             mode tunnel"
        ),
    );
    let has_others = || Ok(![0, of_first].contains(&agreed()?));
    interrupt::until("other keys", PATIENCE, has_others).unwrap();
}

/// `ip xfrm monitor` as an operator leaves it running: what it prints, in this order.
#[test]
fn ip_xfrm_monitor_tells_what_comes_and_goes() {
    let Some(Stand { _turn, lab }) = stand("ip xfrm monitor", Plan::default(), &[]) else { return };
    let _gateways = gateways(&lab, "default = \"drop\"\n");
    let [a, b] = HOST_V4.map(|it| it.to_string());
    let watching = ["stdbuf", "-oL", "ip", "xfrm", "monitor"];
    let monitor = Running::start(&mut under_weir(&lab, Side::A, &watching)).unwrap();
    let only_policies = ["stdbuf", "-oL", "ip", "xfrm", "monitor", "policy"];
    let policies = Running::start(&mut under_weir(&lab, Side::A, &only_policies)).unwrap();
    // A monitor says nothing when it listens: what is said again until it hears is heard.
    let [state, policy] = transport(&a, &b, false, 0x1001, &format!("0x{}", "1a".repeat(20)));
    let heard = |monitor: &Running, word: &str| monitor.stdout().contains(word);
    interrupt::until("word of a policy", PATIENCE, || {
        xfrm(&lab, Side::A, &policy);
        xfrm(&lab, Side::A, "ip xfrm policy flush");
        Ok(heard(&monitor, "Flushed policy") && heard(&policies, "Flushed policy"))
    })
    .unwrap();
    xfrm(&lab, Side::A, &(state.clone() + " limit time-soft 1 limit time-hard 2"));
    xfrm(&lab, Side::A, &policy);
    let policy_id = policy.split(" tmpl").next().unwrap().replace("add", "delete");
    xfrm(&lab, Side::A, &policy_id);
    interrupt::until("the association's end", PATIENCE, || Ok(heard(&monitor, "hard 1"))).unwrap();
    xfrm(&lab, Side::A, &state);
    xfrm(&lab, Side::A, &format!("ip xfrm state delete src {a} dst {b} proto esp spi 0x1001"));
    xfrm(&lab, Side::A, "ip xfrm state flush");
    let deleted = || Ok(monitor.stdout().contains("Deleted src"));
    interrupt::until("word of what was deleted", PATIENCE, deleted).unwrap();
    let stopped = |it: Running| it.stop(rustix::process::Signal::INT).unwrap().stdout;
    let (all, few) = (stopped(monitor), stopped(policies));
    for word in ["proto esp spi 0x00001001 reqid 1 mode transport", "Expired", "hard 1", "dir out"]
    {
        assert!(all.contains(word), "{word}: {all}");
    }
    assert!(few.contains("dir out") && !few.contains("0x00001001"), "policies alone: {few}");
}

/// A NAT gave the far gateway another port: its packets are taken, and who keyed the association
/// hears where they come from now, once.
#[test]
fn a_port_that_a_nat_changed_is_told_as_a_mapping() {
    const BEFORE: &str = "4500";
    const BEHIND_NAT: &str = "4600";
    let Some(Stand { _turn, lab }) = stand("a mapping", Plan::default(), &[]) else { return };
    let gateways = gateways(&lab, "default = \"drop\"\n");
    let [a, b] = HOST_V4.map(|it| it.to_string());
    let keys = ["0x".to_owned() + &"1a".repeat(20), "0x".to_owned() + &"2b".repeat(20)];
    for side in Side::BOTH {
        let is_a = side == Side::A;
        let [out_a, policy_a] = transport(&a, &b, !is_a, 0x1001, &keys[0]);
        let [out_b, policy_b] = transport(&b, &a, is_a, 0x1002, &keys[1]);
        // What B sends leaves by the port of the NAT, of which A was not told.
        let from_b = if is_a { BEFORE } else { BEHIND_NAT };
        xfrm(&lab, side, &format!("{out_a} encap espinudp {BEFORE} 4500 0.0.0.0"));
        xfrm(&lab, side, &format!("{out_b} encap espinudp {from_b} 4500 0.0.0.0"));
        xfrm(&lab, side, &policy_a);
        xfrm(&lab, side, &policy_b);
    }
    let watching = ["stdbuf", "-oL", "ip", "xfrm", "monitor"];
    let monitor = Running::start(&mut under_weir(&lab, Side::A, &watching)).unwrap();
    // A monitor says nothing when it listens.
    interrupt::until("the monitor", PATIENCE, || {
        xfrm(&lab, Side::A, "ip xfrm policy update dir out src 10.9.9.9 dst 10.9.9.9 action block");
        Ok(monitor.stdout().contains("10.9.9.9"))
    })
    .unwrap();
    wait_for_ping(&lab, &b);
    let report = ping_all(lab.host(Side::A), &b, 10, 1000).unwrap();
    assert_eq!(report.answered, 10, "{}", gateways.log(Side::A));
    interrupt::until("the mapping", PATIENCE, || Ok(monitor.stdout().contains(BEHIND_NAT)))
        .unwrap();
    interrupt::sleep(Duration::from_millis(300)).unwrap();
    let told = monitor.stop(rustix::process::Signal::INT).unwrap().stdout;
    assert_eq!(told.matches("Mapping change").count(), 1, "{told}");
    let change = format!("Mapping change {b}:{BEFORE} -> {b}:{BEHIND_NAT}");
    assert!(told.contains(&change) && told.contains("SPI 0x1002"), "{told}");
}
