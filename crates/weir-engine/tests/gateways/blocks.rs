//! Text is padded to whole cipher blocks, where the path carries them.

use weir_engine::esp::{ICV_LEN, esp_len};

use super::*;

const BLOCK: usize = 16;
const ESP_HEADER_LEN: usize = 16;

/// Sealed UDP datagrams of every payload length that fits, and what the other gateway opened.
fn each_length(encapsulation: Encapsulation, mode: Mode, own: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut a, mut b) = pair_in(encapsulation, mode, own);
    let mut all = Vec::new();
    // Where it is, for tunnels that end at gateways' own addresses.
    b.receive(Side::Host, &[from_b(udp(1))]);
    for len in 0..1500 {
        let wire = a.receive(Side::Host, &[udp(len)]);
        let Some((Destination::Wire, sealed)) = wire.into_iter().next() else { break };
        let opened = only(Destination::Host, b.receive(Side::Wire, from_ref(&sealed.bytes)));
        assert_eq!(opened.len(), 1, "{encapsulation:?} {mode:?}: {len}");
        assert_eq!(opened[0][14..], udp(len)[14..]);
        all.push((sealed.bytes, opened[0].clone()));
    }
    assert_eq!(a.dropped(Side::Host, DropReason::TooBig), 1, "the first that does not fit");
    all
}

/// The same from the other host.
fn from_b(mut frame: Vec<u8>) -> Vec<u8> {
    frame[..6].copy_from_slice(&HOST_A);
    frame[6..12].copy_from_slice(&HOST_B);
    let (source, destination) = (frame[26..30].to_vec(), frame[30..34].to_vec());
    frame[26..30].copy_from_slice(&destination);
    frame[30..34].copy_from_slice(&source);
    frame
}

fn esp_of(packet: &[u8]) -> usize {
    let parsed = parse(packet, Link::Ethernet, packet.len() as u32);
    assert!(parsed.end as usize <= 14 + usize::from(WIRE_MTU), "{}", parsed.end);
    parsed.end as usize - (usize::from(parsed.payload_offset) - 8)
}

#[test]
fn the_text_of_tunnels_is_whole_blocks_unless_that_would_not_fit() {
    for (encapsulation, mode, added) in [
        (Encapsulation::Esp, Mode::Ethernet, 2),
        (Encapsulation::UdpSpread, Mode::Ethernet, 2),
        (Encapsulation::Esp, Mode::Tunnel, 0),
        (Encapsulation::Udp, Mode::Tunnel, 0),
    ] {
        let packets = each_length(encapsulation, mode, true);
        let longest = packets.iter().map(|(sealed, _)| esp_of(sealed)).max().unwrap();
        let mut whole = 0;
        for (sealed, inner) in &packets {
            let inner_len = if mode == Mode::Tunnel { inner.len() - 14 } else { inner.len() };
            let (esp, least) = (esp_of(sealed), esp_len(inner_len + added));
            let is_whole = (esp - ESP_HEADER_LEN - ICV_LEN).is_multiple_of(BLOCK);
            assert!(is_whole || esp == least && least + BLOCK > longest, "{esp} of {longest}");
            assert!(esp < least + BLOCK);
            whole += usize::from(is_whole);
        }
        assert!(whole + BLOCK > packets.len(), "{whole} of {}", packets.len());
    }
}

#[test]
fn behind_headers_that_are_not_ours_nothing_is_added() {
    for (sealed, inner) in each_length(Encapsulation::Esp, Mode::Transport, false) {
        assert_eq!(esp_of(&sealed), esp_len(inner.len() - 34));
    }
}
