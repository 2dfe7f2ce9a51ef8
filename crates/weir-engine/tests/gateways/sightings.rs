//! Several workers of one gateway: what one of them hears, the others know.

use super::*;

/// Tells `other` what `from` heard.
fn tell(from: &mut Gateway, other: &mut Gateway) {
    while let Some(told) = from.engine.take_sighting() {
        other.engine.hear(told, other.clock);
    }
}

#[test]
fn a_worker_that_hears_neither_hosts_nor_neighbours_sends_to_both() {
    let [mut first, mut second] = [(); 2].map(|()| {
        let mut worker = gateway(Mode::Tunnel, true, 2, 1);
        worker.engine.set_one_of_several();
        worker
    });
    let mut a = pair(Mode::Tunnel, true).0;

    // The answer to the second one's question comes to the first, which asked itself.
    let question = only(Destination::Wire, second.tick());
    first.tick();
    let answer = arp_answer(&question[0], GATEWAY_A);
    assert!(second.receive(Side::Host, &[udp(9)]).is_empty(), "it knows no neighbour yet");
    first.receive(Side::Wire, &[answer]);
    let host = ethernet(0x88b5, &[0; 50]);
    first.receive(Side::Host, &[host, from_host_b()]);
    assert!(first.engine.has_sightings());
    tell(&mut second, &mut first);
    tell(&mut first, &mut second);
    assert!(!first.engine.has_sightings());

    let wire = only(Destination::Wire, second.receive(Side::Host, &[from_host_b()]));
    assert_eq!(wire[0][..6], GATEWAY_A);
    let wire = only(Destination::Wire, a.receive(Side::Host, &[udp(100)]));
    let arrived = only(Destination::Host, second.receive(Side::Wire, &wire));
    assert_eq!(arrived[0][..6], HOST_B);
    assert!(!second.engine.has_sightings(), "what was told is not told again");
}

#[test]
fn what_could_not_be_told_waits_and_what_is_newer_stays() {
    let mut worker = gateway(Mode::Tunnel, true, 2, 1);
    worker.engine.set_one_of_several();
    worker.receive(Side::Host, &[from_host_b()]);
    let old = worker.engine.take_sighting().unwrap();
    let mut moved = from_host_b();
    moved[11] = 0x0c;
    worker.receive(Side::Host, &[moved]);
    worker.engine.keep_sighting(old);
    let told = worker.engine.take_sighting().unwrap();
    assert_eq!((told.who, told.mac.0[5]), (old.who, 0x0c));
    assert!(!worker.engine.has_sightings());
}

#[test]
fn a_worker_that_is_alone_keeps_nothing_to_tell() {
    let mut alone = gateway(Mode::Tunnel, true, 2, 1);
    alone.receive(Side::Host, &[from_host_b()]);
    assert!(!alone.engine.has_sightings() && alone.engine.take_sighting().is_none());
}

fn from_host_b() -> Vec<u8> {
    let mut packet = udp(1);
    packet[..6].copy_from_slice(&HOST_A);
    packet[6..12].copy_from_slice(&HOST_B);
    packet[26..34].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
    packet
}
