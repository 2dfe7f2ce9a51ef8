//! A machine that was cloned while its gateway ran, or went back to a snapshot: Linux tells by a
//! uevent, which the tests say in the kernel's place. Keys that the other copy has too are not
//! used.

use std::collections::HashSet;

use super::keying::keyed;
use super::restart::esp_packets;
use super::*;

/// Has a gateway's namespace hear what drivers/virt/vmgenid.c says.
fn tell_of_a_new_generation(lab: &Lab, side: Side) {
    let told = "import socket\n\
                NETLINK_KOBJECT_UEVENT, GROUP_KERNEL = 15, 1\n\
                told = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_KOBJECT_UEVENT)\n\
                lines = ['change@/devices/LNXSYSTM:00/QEMUVGID:00', 'ACTION=change', \
                'NEW_VMGENID=1']\n\
                told.sendto(b''.join(it.encode() + b'\\0' for it in lines), (0, GROUP_KERNEL))\n";
    let mut command = lab.gateway(side).command("python3");
    process::run(command.args(["-c", told]), Duration::from_secs(30)).unwrap();
}

#[test]
fn agreed_keys_end_with_the_generation_and_new_ones_are_agreed() {
    let Some(Stand { _turn, lab }) = stand("agreed_keys_end_with_the_generation") else { return };
    let gateways = sealing_gateways(&lab, &keyed(Protection::Sealed, "", ""));
    wait_until_it_flows(&lab);
    let spis = || {
        let wire = listen(&lab, 128);
        wait_until_it_flows(&lab);
        let packets = esp_packets(&wire.stop().unwrap());
        packets.iter().map(|it| it.spi).collect::<HashSet<_>>()
    };
    let before = spis();
    tell_of_a_new_generation(&lab, Side::A);
    let is_told = || Ok(gateways.log(Side::A).contains("cloned"));
    interrupt::until("word of the copy", PATIENCE, is_told).unwrap();
    wait_status(&gateways, Side::A, |it| {
        it.pointer("/pairs/0/peers/0/keying/state").is_some_and(|it| it == "up")
    });
    let after = spis();
    assert!(!before.is_empty() && !after.is_empty());
    assert!(before.is_disjoint(&after), "{before:?} {after:?}");
}

#[test]
fn keys_in_files_are_refused_from_a_new_generation_on() {
    let Some(Stand { _turn, lab }) = stand("keys_in_files_are_refused_from_a_new_generation")
    else {
        return;
    };
    let setup = sealed();
    let mut gateways = sealing_gateways(&lab, &setup);
    wait_until_it_flows(&lab);
    tell_of_a_new_generation(&lab, Side::A);
    let is_over = || Ok(!gateways.daemon(Side::A).is_running()?);
    interrupt::until("the gateway's end", PATIENCE, is_over).unwrap();
    let said = gateways.log(Side::A);
    assert!(said.contains("was in use when this machine was cloned"), "{said}");
    let wire = listen(&lab, 128);
    let target = lab.host_v4(Side::B).to_string();
    let report = ping(lab.host(Side::A), &target, 5, 200).unwrap();
    assert_eq!(report.answered, 0);
    assert_sealed(&wire.stop().unwrap());
    // Nor by the next start.
    let error = gateways.start_again(&lab, &setup, Side::A).unwrap_err();
    assert!(format!("{error:#}").contains("weir keys generate"), "{error:#}");
}
