//! Hosts whose MTU is the wire's: sealed, their largest packets would not fit.

use weir_lab::topology::Side;
use weir_lab::traffic::tcp;

use super::*;

fn narrow() -> Plan {
    Plan { host_mtu: 1500, wire_mtu: 1500, ..Plan::default() }
}

/// What ping says of packets of `payload_len` that must not be fragmented.
pub(super) fn largest(lab: &Lab, target: &str, payload_len: u32) -> (String, Option<u32>) {
    let mut command = lab.host(Side::A).command("ping");
    command.args(["-n", "-c", "3", "-i", "0.3", "-W", "1", "-M", "do", "-s"]);
    let ended = Running::start(command.args([&payload_len.to_string(), target])).unwrap();
    let ended = ended.finish(PATIENCE).unwrap();
    let words = ended.stdout + &ended.stderr;
    let after = words.split("mtu").nth(1).map(|it| it.trim_start_matches([' ', '=', ':']));
    let digits = after.map(|it| it.chars().take_while(char::is_ascii_digit).collect::<String>());
    (words, digits.and_then(|it| it.parse().ok()))
}

#[test]
fn tcp_passes_a_wire_no_wider_than_the_hosts_links() {
    let Some(Stand { _turn, lab }) = stand_with("tcp_passes_a_narrow_wire", narrow()) else {
        return;
    };
    for protection in
        [Protection::Sealed, Protection::BorrowedTunnel, Protection::BorrowedTransport]
    {
        let gateways = sealing_gateways(&lab, &Setup::new(WEIR, protection));
        assert_eq!(tcp::transfer(&lab, 4 << 20).unwrap(), 4 << 20, "{protection:?}");
        assert!(number(&gateways.status(Side::A).unwrap(), "/pairs/0/mss_clamped") > 0);
    }
}

#[test]
fn a_ping_too_large_for_the_wire_is_told_what_fits() {
    let Some(Stand { _turn, lab }) = stand_with("a_ping_is_told_what_fits", narrow()) else {
        return;
    };
    let gateways = sealing_gateways(&lab, &sealed());
    let v4 = (lab.host_v4(Side::B).to_string(), 28);
    let v6 = (HOST_V6[1].to_string(), 48);
    for (target, header_len) in [v4, v6] {
        let (words, mtu) = largest(&lab, &target, 1500 - header_len);
        let mtu = mtu.unwrap_or_else(|| panic!("no MTU in: {words}"));
        assert!((1400..1500).contains(&mtu), "{words}");
        let fits = ping_all(lab.host(Side::A), &target, 3, mtu - header_len).unwrap();
        assert_eq!(fits.answered, fits.sent, "{target}: {mtu}");
    }
    let status = gateways.status(Side::A).unwrap();
    assert!(number(&status, "/pairs/0/too_big_answered") >= 2);
    assert!(number(&status, "/pairs/0/host/dropped_by_reason/too_big") >= 2);
}

#[test]
fn a_ping_that_may_be_cut_is_cut() {
    let Some(Stand { _turn, lab }) = stand_with("a_ping_that_may_be_cut", narrow()) else {
        return;
    };
    let gateways = sealing_gateways(&lab, &sealed());
    let target = lab.host_v4(Side::B).to_string();
    let mut command = lab.host(Side::A).command("ping");
    command.args(["-M", "dont", "-c", "3", "-i", "0.2", "-s", "1472", &target]);
    let said = process::run(&mut command, PATIENCE).unwrap().stdout;
    assert!(said.contains("3 received"), "{said}");
    let status = gateways.status(Side::A).unwrap();
    assert!(number(&status, "/pairs/0/too_big_cut") >= 3, "{status:#}");
    assert_eq!(status["adds_up"], true, "{status:#}");
}

#[test]
fn a_wire_too_narrow_for_sealed_roce_is_refused_with_the_remedy() {
    let Some(Stand { _turn, lab }) = stand_with("a_narrow_wire_is_refused", narrow()) else {
        return;
    };
    let setup = Setup { pair_lines: "roce_mtu = 4096\n".to_owned(), ..sealed() };
    let refused = format!("{:#}", Gateways::start(&lab, &setup).unwrap_err());
    assert!(refused.contains("ip link set p0 mtu"), "{refused}");
}
