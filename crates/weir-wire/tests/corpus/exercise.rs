//! What must hold for any input of the `parse` fuzz target; the replay of its corpus, the property
//! tests and the target itself share it.

use weir_wire::bth::Bth;
use weir_wire::frame::Link;
use weir_wire::parse::{Fault, Parsed, parse, parse_inner};
use weir_wire::tcp::mss_offset;
use weir_wire::{cm, ext, icrc, mad};

const LINKS: [Link; 5] =
    [Link::Ethernet, Link::Ip, Link::LinuxSll, Link::LinuxSll2, Link::InfiniBand];

/// Walks over an input: a byte for the link, a byte that counts what the capture cut off, a frame.
#[allow(dead_code)] // The property tests bring their own frames.
pub(crate) fn exercise_input(input: &[u8]) {
    let [link, missing, bytes @ ..] = input else { return };
    let link = match *link {
        // It came later: kept inputs are to stay what they were.
        5 => Link::Ipoib,
        link => LINKS[usize::from(link) % LINKS.len()],
    };
    exercise(bytes, link, bytes.len() as u32 + u32::from(*missing));
}

/// Walks over a frame with everything the crate has.
#[track_caller]
pub(crate) fn exercise(bytes: &[u8], link: Link, original_len: u32) -> Parsed {
    let parsed = parse(bytes, link, original_len);
    assert_inside(bytes, &parsed);
    read_all(bytes, &parsed);
    rewrite(bytes, link, original_len, &parsed);
    if let Some(tunnel) = &parsed.tunnel {
        let inner = parse_inner(bytes, &parsed, tunnel, original_len);
        let start = usize::from(tunnel.inner_offset);
        assert!(start + inner.end as usize <= bytes.len(), "{parsed:?} {inner:?}");
    }
    parsed
}

/// No offset points outside the bytes present.
#[track_caller]
fn assert_inside(bytes: &[u8], parsed: &Parsed) {
    let len = bytes.len();
    let [network, transport, payload] =
        [parsed.network_offset, parsed.transport_offset, parsed.payload_offset].map(usize::from);
    assert!(network <= len && transport <= len && payload <= len, "{parsed:?}");
    assert!(parsed.end as usize <= len, "{parsed:?}");
    assert!(parsed.payload(bytes).len() <= len);
    if let Some(tunnel) = parsed.tunnel {
        assert!(usize::from(tunnel.inner_offset) <= len);
    }
    let Some(rdma) = parsed.rdma else { return };
    assert!(usize::from(rdma.bth_offset) + Bth::LEN <= len, "{parsed:?}");
    assert!(usize::from(rdma.payload_offset) <= len, "{parsed:?}");
    assert!(rdma.payload(bytes).len() <= usize::from(rdma.payload_len));
    if let Some(icrc) = rdma.icrc_offset {
        assert!(usize::from(icrc) + icrc::ICRC_LEN <= len, "{parsed:?}");
        assert!(rdma.payload_offset + rdma.payload_len <= icrc, "{parsed:?}");
    } else {
        assert!(parsed.fault == Some(Fault::Truncated) || parsed.fragment.is_some(), "{parsed:?}");
    }
}

fn read_all(bytes: &[u8], parsed: &Parsed) {
    let transport = usize::from(parsed.transport_offset);
    mss_offset(bytes.get(transport..usize::from(parsed.payload_offset)).unwrap_or_default());
    icrc::check(bytes, parsed);
    icrc::check_variant(bytes, parsed);
    mad::mad(bytes, parsed);
    if let Some((_, cm::Message::Request(request))) = cm::message(bytes, parsed) {
        request.ip_addresses();
        request.path_mtu();
    }
    let Some(rdma) = &parsed.rdma else { return };
    ext::reth(bytes, rdma);
    ext::aeth(bytes, rdma).map(|aeth| aeth.syndrome());
    ext::deth(bytes, rdma);
    ext::atomic_eth(bytes, rdma);
    ext::atomic_ack_eth(bytes, rdma);
    ext::imm_dt(bytes, rdma);
    ext::ieth(bytes, rdma);
    ext::rdeth(bytes, rdma);
    ext::xrceth(bytes, rdma);
    ext::feth(bytes, rdma);
    assert!(rdma.opcode.to_string().len() > 2);
}

/// What the gateway writes leaves a packet that reads the same and has a valid ICRC.
fn rewrite(bytes: &[u8], link: Link, original_len: u32, parsed: &Parsed) {
    let mut copy = bytes.to_vec();
    if let Some(request) = cm::request_mut(&mut copy, parsed) {
        request.set_path_mtu(cm::PathMtu::Mtu1024);
    }
    if icrc::write(&mut copy, parsed) {
        assert_eq!(icrc::check(&copy, parsed), icrc::IcrcStatus::Valid);
        assert_eq!(parse(&copy, link, original_len), *parsed);
    }
}
