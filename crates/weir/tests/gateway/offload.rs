//! ESP by the NIC, asked for where no NIC does it: said loudly, never assumed.

use weir_lab::gateways::KeySource;

use super::*;

fn asking(lab: &Lab, protection: Protection, offload: &str) -> (Setup, [String; 2]) {
    let setup = Setup::new(WEIR, protection);
    let texts = weir_lab::gateways::configurations(lab, &setup).unwrap();
    let line = format!("[[peer]]\noffload = \"{offload}\"\n");
    (setup, texts.map(|text| text.replace("[[peer]]\n", &line)))
}

/// The kernel's associations in a gateway's namespace, as iproute2 tells them.
fn in_kernel(lab: &Lab, side: Side) -> String {
    let mut command = lab.gateway(side).command("ip");
    let said = Running::start(command.args(["xfrm", "state"])).unwrap().finish(PATIENCE).unwrap();
    said.stdout
}

#[test]
fn auto_falls_back_to_our_own_esp_and_says_why() {
    let Some(Stand { _turn, lab }) = stand("auto_falls_back") else { return };
    for protection in [Protection::BorrowedTunnel, Protection::Sealed] {
        let (setup, texts) = asking(&lab, protection, "auto");
        let gateways = Gateways::start_configured(&lab, &setup, &texts).unwrap();
        wait_until_it_flows(&lab);
        let status = gateways.status(Side::A).unwrap();
        let offload = &status["pairs"][0]["peers"][0]["offload"];
        assert_eq!((&offload["asked"], &offload["in_hw"]), (&"auto".into(), &false.into()));
        assert!(!offload["reason"].as_str().unwrap().is_empty(), "{offload}");
        assert!(number(&status, "/pairs/0/peers/0/sealed_packets") > 0, "Weir seals");
        let text = gateways.status_text(Side::A).unwrap();
        assert!(text.contains("offload auto: NOT IN HARDWARE"), "{text}");
        assert!(gateways.log(Side::A).contains("not offloaded"), "{}", gateways.log(Side::A));
        assert_eq!(in_kernel(&lab, Side::A), "", "nothing of ours stays in the kernel");
    }
}

#[test]
fn what_is_demanded_of_a_nic_that_cannot_is_refused_with_the_remedy() {
    let Some(Stand { _turn, lab }) = stand("demanded_offload_is_refused") else { return };
    for offload in ["crypto", "packet"] {
        let keys = KeySource::handshakes();
        let setup = Setup { keys, ..Setup::new(WEIR, Protection::Sealed) };
        let texts = weir_lab::gateways::configurations(&lab, &setup).unwrap();
        let texts = texts.map(|text| {
            let line = format!("[[peer]]\noffload = \"{offload}\"\n");
            let text = text.replace("[[peer]]\n", &line).replace("\"ethernet\"", "\"tunnel\"");
            text.replace("\"everything\"", "\"198.51.100.0/24\"")
        });
        let refused = Gateways::start_configured(&lab, &setup, &texts).unwrap_err();
        let words = format!("{refused:#}");
        assert!(words.contains(&format!("offload = \"{offload}\" on")), "{words}");
        assert!(words.contains("write offload = \"auto\""), "{words}");
        assert_eq!(in_kernel(&lab, Side::A), "", "nothing of ours stays in the kernel");
    }
}
