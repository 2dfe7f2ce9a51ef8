//! ESP that the kernel or a NIC does.

use super::keying::{KEYING, PUBLIC};
use super::*;

#[test]
fn the_kernels_esp_is_refused_where_the_kernel_does_not_do_what_is_asked() {
    let with = |pair: &str, rest: &str| {
        let rest = format!("offload = \"kernel\"\n{rest}");
        format!("{HEAD}{pair}{}", peer("b", &rest, 4097))
    };
    let rest = "mode = \"tunnel\"\nendpoint = \"192.0.2.2\"\nprotects = \"10.2.0.0/24\"\n";
    let settings = accepted(&with(ADDRESS, rest));
    assert_eq!(settings.pairs[0].peers[0].offload, Offload::Kernel);
    let agreed = format!("{HEAD}{ADDRESS}[[peer]]\nname = \"b\"\noffload = \"kernel\"\n");
    let settings = accepted(&format!("{agreed}public_key = \"{PUBLIC}\"\n{rest}{KEYING}"));
    assert_eq!(settings.pairs[0].peers[0].offload, Offload::Kernel);
    // In a NIC the IVs are its driver's: only keys that die with the process.
    let by_nic = |text: &str| text.replace("\"kernel\"", "\"crypto\"");
    let settings = accepted(&by_nic(&format!("{agreed}public_key = \"{PUBLIC}\"\n{rest}{KEYING}")));
    assert_eq!(settings.pairs[0].peers[0].offload, Offload::Crypto);
    refused(&by_nic(&with(ADDRESS, rest)), &["offload = \"crypto\" needs keys from handshakes"]);
    // One that does all of it matches packets by their networks.
    let whole = |rest: &str| {
        format!("{agreed}public_key = \"{PUBLIC}\"\n{rest}{KEYING}").replace("kernel", "packet")
    };
    let settings = accepted(&whole(rest));
    assert_eq!(settings.pairs[0].peers[0].offload, Offload::Packet);
    for (network, why) in [
        ("192.0.2.0/24", "the NIC would seal handshakes too"),
        ("fd00:2::/64", "networks of the endpoint's family"),
        ("everything", "needs prefixes in `protects`"),
    ] {
        refused(&whole(&rest.replace("10.2.0.0/24", network)), &[why]);
    }
    refused(&whole(&format!("{rest}replay_window = 512\n")), &["at most 256 packets"]);
    for (pair, more, words) in [
        ("vlan = 7\n", "", "a pair without `vlan`"),
        ("driver = \"xdp\"\n", "", "driver = \"packet\""),
        ("xfrm = true\n", "", "a pair without `xfrm`"),
        ("dscp_map = { \"26\" = 34 }\n", "", "a pair without `dscp_map`"),
        ("", "encapsulation = \"udp\"\n", "encapsulation = \"esp\""),
        ("", "extended_sequence = false\n", "extended_sequence = true"),
        ("", "replay_window = 8192\n", "at most 4096 packets"),
    ] {
        refused(&with(&format!("{ADDRESS}{pair}"), &format!("{rest}{more}")), &[words]);
    }
    let everything = rest.replace("10.2.0.0/24", "everything");
    refused(&with(ADDRESS, &everything), &["prefixes in `protects`"]);
    let ethernet = rest.replace("tunnel", "ethernet");
    refused(&with(ADDRESS, &ethernet), &["needs mode = \"tunnel\""]);
    let borrowed = rest.replace("endpoint = \"192.0.2.2\"\n", "");
    refused(&with("", &borrowed), &["an `endpoint`, and a pair with an `address`"]);
    let v6 = rest.replace("192.0.2.2", "2001:db8::2").replace("10.2.0.0/24", "fd00::/64");
    accepted(&with("address = \"2001:db8::1/64\"\n", &v6));
}
