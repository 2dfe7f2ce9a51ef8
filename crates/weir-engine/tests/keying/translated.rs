//! A peer behind a translator, whose UDP port the translator changes whenever it likes.

use weir_engine::policy::Encapsulation;
use weir_engine::proof::WireProof;

use super::world::{OnWire, SECOND, Setup, World};

/// Where the UDP ports stand in a frame without options.
const SOURCE_PORT: usize = 34;
const DESTINATION_PORT: usize = 36;
const ESP_PORT: u16 = 4500;

/// Two gateways whose ESP travels in UDP.
fn in_udp() -> World {
    let mut setups = [0, 1].map(Setup::new);
    for setup in &mut setups {
        setup.terms.encapsulation = Encapsulation::Udp;
    }
    let mut world = World::new(setups);
    world.run(2 * SECOND);
    world
}

fn port(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

/// What side 1 sends goes through a translator that gives its ESP this port.
fn translate(world: &mut World, to: u16) {
    for OnWire { to: side, frame } in &mut world.wire {
        if *side == 0 && port(frame, SOURCE_PORT) == ESP_PORT {
            frame[SOURCE_PORT..DESTINATION_PORT].copy_from_slice(&to.to_be_bytes());
        }
    }
}

/// The port that side 0 sends to next.
fn heard_at(world: &mut World) -> u16 {
    world.send(0);
    let sent = world.wire.pop_back().unwrap().frame;
    let mut proof = WireProof::new(world.sides[0].engine.policy());
    assert!(proof.admit(&sent, sent.len()), "it may leave");
    assert_eq!(port(&sent, SOURCE_PORT), ESP_PORT);
    port(&sent, DESTINATION_PORT)
}

#[test]
fn a_peer_whose_translator_gives_it_another_port_is_followed() {
    let mut world = in_udp();
    assert_eq!(heard_at(&mut world), ESP_PORT);
    for to in [61_000, 1025, ESP_PORT, 40_000] {
        world.send(1);
        translate(&mut world, to);
        world.deliver_all();
        assert_eq!(world.received(0).len(), 1);
        assert_eq!(heard_at(&mut world), to);
    }
    assert_eq!(world.sides[0].engine.counters().peers_moved, 4);
    // Handshakes have a port of their own, of which ESP's tells nothing.
    let path = world.status(0).path.unwrap();
    assert_ne!(path.remote.port, 40_000);
    world.reload(0);
    assert_eq!(heard_at(&mut world), 40_000, "a reload keeps the port");
}

#[test]
fn a_forged_or_an_old_packet_from_another_port_moves_nobody() {
    let mut world = in_udp();
    world.send(1);
    translate(&mut world, 61_000);
    let late = world.wire.pop_back().unwrap();
    world.send(1);
    translate(&mut world, 40_000);
    let mut forged = world.wire.back().unwrap().clone();
    world.deliver_all();
    let last = forged.frame.len() - 1;
    forged.frame[last] ^= 1;
    forged.frame[SOURCE_PORT..DESTINATION_PORT].copy_from_slice(&50_000u16.to_be_bytes());
    world.deliver(forged);
    world.deliver(late);
    assert_eq!(heard_at(&mut world), 40_000);
}

#[test]
fn source_ports_that_spread_flows_say_nothing_of_where_a_peer_is() {
    let mut setups = [0, 1].map(Setup::new);
    for setup in &mut setups {
        setup.terms.encapsulation = Encapsulation::UdpSpread;
    }
    let mut world = World::new(setups);
    world.run(2 * SECOND);
    world.send(1);
    world.deliver_all();
    assert_eq!(world.received(0).len(), 1);
    assert_eq!(world.sides[0].engine.counters().peers_moved, 0);
}
