//! Two engines back to back, as two gateways on a wire: what one host sends, the other receives.

#![allow(clippy::disallowed_methods, reason = "only the engine itself does without these")]

mod addresses;
mod blocks;
mod counted;
mod drops;
mod floods;
mod honest;
mod inline;
mod joined;
mod kernel;
mod keys;
mod marking;
mod parsers;
mod reassembled;
mod reject;
mod replace;
mod segments;
mod sightings;
mod spared;
mod trains;
mod wireguard;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::slice::from_ref;

use weir_engine::counters::Counters;
use weir_engine::esp::open::OpeningSa;
use weir_engine::esp::sa::{SaParameters, Spi};
use weir_engine::esp::seal::SealingSa;
use weir_engine::flow::FlowCounters;
use weir_engine::meter::{Meter, MeterLimits};
use weir_engine::offload::datagrams::{Datagrams, Joined};
use weir_engine::output::{Destination, Output};
use weir_engine::pipeline::{Associations, Engine, Reassembled};
use weir_engine::policy::{
    Action, Encapsulation, FrameActions, Mode, OwnAddress, Peer, Policy, Prefix, Sealing, mapped,
};
use weir_engine::verdict::{DropReason, Side};
use weir_wire::frame::{
    Frame, Link, Meta, Offload, PartialChecksum, SegmentKind, Segmentation, Time,
};
use weir_wire::parse::{MacAddress, Network, Transport, parse};

const HOST_A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const HOST_B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
const GATEWAY_A: [u8; 6] = [2, 0, 0, 0, 1, 0xa];
const GATEWAY_B: [u8; 6] = [2, 0, 0, 0, 1, 0xb];
const WIRE_MTU: u16 = 1500;

/// What a port would send: bytes, and what is left to the port.
#[derive(Clone, Debug, PartialEq)]
struct Sent {
    bytes: Vec<u8>,
    offload: Offload,
}

struct Gateway {
    engine: Engine,
    clock: Time,
    /// Datagrams that another worker is to judge.
    elsewhere: VecDeque<Box<Reassembled>>,
}

impl Gateway {
    fn of(engine: Engine, clock: Time) -> Self {
        Self { engine, clock, elsewhere: VecDeque::new() }
    }

    fn receive(&mut self, side: Side, packets: &[Vec<u8>]) -> Vec<(Destination, Sent)> {
        let sent = packets
            .iter()
            .map(|bytes| Sent { bytes: bytes.clone(), offload: Offload::default() })
            .collect::<Vec<_>>();
        self.receive_offloaded(side, &sent)
    }

    /// What the wire's port hands over: datagrams that come joined are cut first.
    fn receive_joined(&mut self, packets: &[Sent]) -> Vec<(Destination, Sent)> {
        let Self { engine, clock, .. } = self;
        *clock = clock.plus_ns(1_000);
        let (mut buffers, mut sent) = (buffers(packets), Vec::new());
        let mut frames = frames(*clock, &mut buffers, packets);
        Datagrams::default().each_batch(&mut frames, Joined::Sealed, &mut |batch| {
            engine.process(*clock, Side::Wire, batch);
            sent.extend(collect(engine.output(), batch));
        });
        sent
    }

    fn receive_offloaded(&mut self, side: Side, packets: &[Sent]) -> Vec<(Destination, Sent)> {
        self.clock = self.clock.plus_ns(1_000);
        let mut buffers = buffers(packets);
        let mut frames = frames(self.clock, &mut buffers, packets);
        self.engine.process(self.clock, side, &mut frames);
        let mut sent = collect(self.engine.output(), &frames);
        sent.extend(self.release());
        sent
    }

    /// What waited for other pieces, and goes on.
    fn release(&mut self) -> Vec<(Destination, Sent)> {
        let mut sent = Vec::new();
        while let Some(mut reassembled) = self.engine.take_reassembled() {
            match reassembled.datagram() {
                Some(_) => self.elsewhere.push_back(reassembled),
                None => sent.extend(self.go_on(&mut reassembled)),
            }
        }
        sent
    }

    fn go_on(&mut self, reassembled: &mut Reassembled) -> Vec<(Destination, Sent)> {
        let (mut pieces, onward) = reassembled.pieces();
        let alone = self.engine.drop_but_misfit(&onward, &pieces).map(|it| it..it + 1);
        let going = alone.unwrap_or(0..pieces.len());
        let pieces = &mut pieces[going.clone()];
        self.engine.go_on(self.clock, &onward[going], pieces);
        collect(self.engine.output(), pieces)
    }

    fn tick(&mut self) -> Vec<(Destination, Sent)> {
        self.clock = self.clock.plus_ns(100_000_000);
        self.engine.tick(self.clock);
        let mut sent = collect(self.engine.output(), &[]);
        sent.extend(self.release());
        sent
    }

    fn counters(&self) -> &Counters {
        self.engine.counters()
    }

    fn dropped(&self, side: Side, reason: DropReason) -> u64 {
        assert!(self.counters().host.adds_up() && self.counters().wire.adds_up());
        self.counters().side(side).dropped_for(reason)
    }
}

/// Memory as a port has it: room before and behind each packet.
fn buffers(packets: &[Sent]) -> Vec<Vec<u8>> {
    let with_room = |packet: &Sent| [vec![0; 192], packet.bytes.clone(), vec![0; 64]].concat();
    packets.iter().map(with_room).collect()
}

fn frames<'a>(time: Time, buffers: &'a mut [Vec<u8>], packets: &[Sent]) -> Vec<Frame<'a>> {
    let frame = |(buffer, packet): (&'a mut Vec<u8>, &Sent)| {
        let end = buffer.len() - 64;
        let meta = Meta {
            time,
            original_len: packet.bytes.len() as u32,
            link: Link::Ethernet,
            offload: packet.offload,
        };
        Frame::new(buffer, 192, end, meta)
    };
    buffers.iter_mut().zip(packets).map(frame).collect()
}

fn collect(output: &Output, frames: &[Frame<'_>]) -> Vec<(Destination, Sent)> {
    let whole = |packet: &weir_engine::output::Packet| {
        let parts = &output.parts[packet.parts.start as usize..packet.parts.end as usize];
        let bytes = parts.iter().flat_map(|part| output.resolve(part, frames).to_vec()).collect();
        (packet.destination, Sent { bytes, offload: packet.offload })
    };
    output.packets.iter().map(whole).collect()
}

/// What goes to `destination`, and nothing else was sent.
fn only(destination: Destination, sent: Vec<(Destination, Sent)>) -> Vec<Vec<u8>> {
    sent.into_iter()
        .map(|(to, packet)| {
            assert_eq!(to, destination);
            packet.bytes
        })
        .collect()
}

fn parameters(spi: u32) -> SaParameters {
    let material: Vec<u8> = (0..36).map(|byte| byte ^ spi as u8).collect();
    SaParameters::new(Spi::new(spi).unwrap(), &material).unwrap()
}

fn sealing(spi: u32) -> SealingSa {
    let mut sa = SealingSa::new(&parameters(spi), None).unwrap();
    let reservation = sa.reservation_needed().unwrap();
    sa.extend_reservation(&reservation);
    sa
}

fn opening(spi: u32) -> OpeningSa {
    OpeningSa::new(&parameters(spi), None).unwrap()
}

fn meter() -> Meter {
    Meter::new(MeterLimits::default(), 7)
}

/// One of the two ends of a sealed wire.
fn gateway(mode: Mode, own: bool, here: u8, there: u8) -> Gateway {
    gateway_in(Encapsulation::Esp, mode, own, here, there)
}

fn gateway_in(encapsulation: Encapsulation, mode: Mode, own: bool, here: u8, there: u8) -> Gateway {
    let address = |last: u8| IpAddr::from([192, 0, 2, last]);
    let mut policy = Policy::watch(1, WIRE_MTU);
    policy.default = Action::Drop;
    policy.frames = FrameActions::sealing();
    policy.own = own.then(|| OwnAddress {
        mac: MacAddress(if here == 1 { GATEWAY_A } else { GATEWAY_B }),
        addresses: vec![(address(here), 24)],
        ..OwnAddress::default()
    });
    let policy = policy.with_peers(vec![Peer {
        name: "peer".into(),
        mode,
        encapsulation,
        sealing: Sealing::Require,
        endpoint: own.then(|| address(there)),
        protects: vec![Prefix::ALL],
        everything: true,
        seal_spi: Some(0x1000 + u32::from(here)),
        open_spis: vec![0x1000 + u32::from(there)],
        agreed: None,
        kernel: None,
        rate_limit: None,
        reaches: Vec::new(),
    }]);
    let associations = Associations {
        sealing: vec![sealing(0x1000 + u32::from(here))],
        opening: vec![opening(0x1000 + u32::from(there))],
        ..Associations::default()
    };
    Gateway::of(Engine::new(policy, associations, meter()).unwrap(), Time(1))
}

/// Both ends; with own addresses they have found each other.
fn pair(mode: Mode, own: bool) -> (Gateway, Gateway) {
    pair_in(Encapsulation::Esp, mode, own)
}

fn pair_in(encapsulation: Encapsulation, mode: Mode, own: bool) -> (Gateway, Gateway) {
    let gateway = |here, there| gateway_in(encapsulation, mode, own, here, there);
    let (mut a, mut b) = (gateway(1, 2), gateway(2, 1));
    if own {
        let question = only(Destination::Wire, a.tick());
        assert_eq!(question.len(), 1);
        let punted = only(Destination::Punt, b.receive(Side::Wire, &question));
        let answer = arp_answer(&punted[0], GATEWAY_B);
        only(Destination::Punt, a.receive(Side::Wire, &[answer]));
        let question = only(Destination::Wire, b.tick());
        assert!(question.is_empty(), "the question itself told b where a is");
    }
    (a, b)
}

/// What a kernel answers to an ARP request.
fn arp_answer(request: &[u8], mac: [u8; 6]) -> Vec<u8> {
    let mut answer = request.to_vec();
    answer[..6].copy_from_slice(&request[6..12]);
    answer[6..12].copy_from_slice(&mac);
    answer[21] = 2;
    answer[22..28].copy_from_slice(&mac);
    answer[28..32].copy_from_slice(&request[38..42]);
    answer[32..38].copy_from_slice(&request[22..28]);
    answer[38..42].copy_from_slice(&request[28..32]);
    answer
}

fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&HOST_B[..], &HOST_A, &ethertype.to_be_bytes(), payload].concat()
}

fn ipv4(protocol: u8, traffic_class: u8, payload: &[u8]) -> Vec<u8> {
    let total = (20 + payload.len()) as u16;
    let mut header = vec![0x45, traffic_class, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0];
    header[2..4].copy_from_slice(&total.to_be_bytes());
    header.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = weir_wire::checksum::ipv4_header(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    ethernet(0x0800, &[&header, payload].concat())
}

fn udp(len: usize) -> Vec<u8> {
    let mut datagram = vec![0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0];
    datagram.extend((0..len).map(|byte| byte as u8));
    let total = datagram.len() as u16;
    datagram[4..6].copy_from_slice(&total.to_be_bytes());
    ipv4(17, 0, &datagram)
}

#[test]
fn a_host_that_said_no_more_than_an_arp_answer_is_reached_through_a_tunnel() {
    let (mut a, mut b) = pair(Mode::Tunnel, true);
    let wire = only(Destination::Wire, a.receive(Side::Host, &[udp(100)]));
    let asked = only(Destination::Host, b.receive(Side::Wire, &wire));
    assert_eq!((asked.len(), &asked[0][12..14]), (1, &[8, 6][..]), "it is asked for by ARP");
    assert_eq!(b.dropped(Side::Wire, DropReason::NeighbourUnknown), 1, "nobody knows it yet");
    let head = [&HOST_A[..], &HOST_B, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2]].concat();
    let answer = [&head[..], &HOST_B, &[10, 0, 0, 2], &HOST_A, &[10, 0, 0, 1]].concat();
    b.receive(Side::Host, &[answer]);
    let wire = only(Destination::Wire, a.receive(Side::Host, &[udp(100)]));
    let arrived = only(Destination::Host, b.receive(Side::Wire, &wire));
    assert_eq!(arrived.len(), 1);
    assert_eq!(arrived[0][..6], HOST_B);
}

/// An IPv6 packet between the hosts, or with a link-local receiver.
fn ipv6(protocol: u8, [source, destination]: [[u8; 16]; 2], payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0, 0, payload.len() as u8, protocol, 255];
    header.extend([source, destination].concat());
    ethernet(0x86dd, &[&header, payload].concat())
}

#[test]
fn an_ipv6_host_that_has_not_spoken_is_asked_for_and_reached() {
    let (mut a, mut b) = pair(Mode::Tunnel, true);
    let address = |last: u8| {
        let mut address = [0; 16];
        (address[0], address[15]) = (0xfd, last);
        address
    };
    let packet = ipv6(17, [address(1), address(2)], &[0, 7, 0, 7, 0, 8, 0, 0]);
    let wire = only(Destination::Wire, a.receive(Side::Host, std::slice::from_ref(&packet)));
    let asked = only(Destination::Host, b.receive(Side::Wire, &wire));
    let [asked] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!((&asked[..6], asked[54]), (&[0x33, 0x33, 0xff, 0, 0, 2][..], 135));
    assert_eq!((&asked[62..78], &asked[80..86]), (&address(2)[..], &GATEWAY_B[..]));
    // The host answers to the link-local address that the question came from.
    let us = asked[22..38].try_into().unwrap();
    let mut message = vec![136, 0, 0, 0, 0x60, 0, 0, 0];
    message.extend(address(2));
    message.extend([&[2, 1][..], &HOST_B].concat());
    let sum = weir_wire::checksum::pseudo_header_v6(&address(2), &us, 58, 32);
    let sum = sum.with(&message).checksum();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut answer = ipv6(58, [address(2), us], &message);
    answer[..12].copy_from_slice(&[GATEWAY_B, HOST_B].concat());
    assert!(b.receive(Side::Host, &[answer]).is_empty(), "it is for the gateway alone");
    let wire = only(Destination::Wire, a.receive(Side::Host, &[packet]));
    let arrived = only(Destination::Host, b.receive(Side::Wire, &wire));
    assert_eq!((arrived.len(), &arrived[0][..6]), (1, &HOST_B[..]));
}

#[test]
fn every_mode_carries_a_packet_unchanged_and_shows_only_esp() {
    for (mode, own) in [
        (Mode::Ethernet, true),
        (Mode::Tunnel, true),
        (Mode::Tunnel, false),
        (Mode::Transport, true),
        (Mode::Transport, false),
    ] {
        let (mut a, mut b) = pair(mode, own);
        // The far host has spoken, so that its gateway knows where it lives.
        b.receive(
            Side::Host,
            &[{
                let mut packet = udp(1);
                packet[..6].copy_from_slice(&HOST_A);
                packet[6..12].copy_from_slice(&HOST_B);
                packet[26..34].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
                packet
            }],
        );
        let packets: Vec<_> = [1, 100, 1300].map(udp).to_vec();
        let wire = only(Destination::Wire, a.receive(Side::Host, &packets));
        assert_eq!(wire.len(), packets.len(), "{mode:?}");
        for packet in &wire {
            let parsed = parse(packet, Link::Ethernet, packet.len() as u32);
            assert!(matches!(parsed.transport, Transport::Esp { spi: 0x1001, .. }), "{parsed:?}");
        }
        let arrived = only(Destination::Host, b.receive(Side::Wire, &wire));
        let network =
            |frames: &[Vec<u8>]| frames.iter().map(|f| f[12..].to_vec()).collect::<Vec<_>>();
        assert!(network(&arrived) == network(&packets), "{mode:?}, own address {own}");
        assert!(arrived.iter().all(|frame| frame[..6] == HOST_B));
        assert_eq!(a.counters().host.sealed, 3);
        assert_eq!(b.counters().wire.opened, 3);
        assert!(a.counters().host.adds_up() && b.counters().wire.adds_up());
    }
}

#[test]
fn ethernet_mode_carries_what_has_no_ip_address() {
    let (mut a, mut b) = pair(Mode::Ethernet, true);
    let mut arp = ethernet(0x0806, &[0, 1, 8, 0, 6, 4, 0, 1]);
    arp.extend_from_slice(&[&HOST_A[..], &[10, 0, 0, 1], &[0; 6], &[10, 0, 0, 2]].concat());
    arp[..6].fill(0xff);
    let packets =
        vec![arp, ethernet(0x88b5, b"an experiment of the hosts, padded to be long enough")];
    let wire = only(Destination::Wire, a.receive(Side::Host, &packets));
    assert_eq!(only(Destination::Host, b.receive(Side::Wire, &wire)), packets);
}

#[test]
fn a_packet_in_clear_from_the_wire_is_dropped_and_counted() {
    let (mut a, _) = pair(Mode::Ethernet, true);
    assert!(a.receive(Side::Wire, &[udp(10), ethernet(0x88b5, &[0; 50])]).is_empty());
    assert_eq!(a.dropped(Side::Wire, DropReason::NotSealed), 2);
}

#[test]
fn what_is_wrong_behind_the_addresses_is_carried_for_its_receiver_to_judge() {
    let (mut a, mut b) = pair(Mode::Ethernet, true);
    let no_tcp = ipv4(6, 0, &[0; 30]);
    let wire = only(Destination::Wire, a.receive(Side::Host, from_ref(&no_tcp)));
    assert_eq!(only(Destination::Host, b.receive(Side::Wire, &wire)), [no_tcp]);

    let no_ip = ethernet(0x0800, &[0xff; 60]);
    assert!(a.receive(Side::Host, &[no_ip]).is_empty());
    assert_eq!(a.dropped(Side::Host, DropReason::Malformed), 1);
}

#[test]
fn link_protocols_end_at_a_sealing_gateway() {
    let (mut a, _) = pair(Mode::Ethernet, true);
    let mut lldp = ethernet(0x88cc, &[0; 50]);
    lldp[..6].copy_from_slice(&[0x01, 0x80, 0xc2, 0, 0, 0x0e]);
    assert!(a.receive(Side::Host, &[lldp]).is_empty());
    assert_eq!(a.dropped(Side::Host, DropReason::LinkProtocol), 1);
}

#[test]
fn a_replayed_or_forged_packet_is_dropped_under_its_own_reason() {
    let (mut a, mut b) = pair(Mode::Ethernet, true);
    let wire = only(Destination::Wire, a.receive(Side::Host, &[udp(40), udp(41)]));
    assert_eq!(b.receive(Side::Wire, &wire).len(), 2);
    assert!(b.receive(Side::Wire, &wire[..1]).is_empty());
    assert_eq!(b.dropped(Side::Wire, DropReason::ReplayDuplicate), 1);

    let mut forged = only(Destination::Wire, a.receive(Side::Host, &[udp(42)])).remove(0);
    *forged.last_mut().unwrap() ^= 1;
    assert!(b.receive(Side::Wire, &[forged.clone()]).is_empty());
    assert_eq!(b.dropped(Side::Wire, DropReason::Authentication), 1);

    let spi = 14 + 20;
    forged[spi..spi + 4].copy_from_slice(&0xdead_beef_u32.to_be_bytes());
    assert!(b.receive(Side::Wire, &[forged]).is_empty());
    assert_eq!(b.dropped(Side::Wire, DropReason::UnknownSpi), 1);
}

#[test]
fn what_a_peer_does_not_protect_it_may_not_send() {
    let (mut a, mut b) = pair(Mode::Ethernet, true);
    let mut policy = b.engine.policy().clone();
    let mut peers = policy.peers.clone();
    peers[0].everything = false;
    peers[0].protects = vec![Prefix::new("10.9.0.0".parse().unwrap(), 16)];
    policy.epoch += 1;
    b.engine.swap(policy.with_peers(peers), Associations::default()).unwrap();
    b.tick();
    let wire = only(Destination::Wire, a.receive(Side::Host, &[udp(1)]));
    assert!(b.receive(Side::Wire, &wire).is_empty());
    assert_eq!(b.dropped(Side::Wire, DropReason::SelectorMismatch), 1);
}

#[test]
fn nothing_leaves_before_the_peer_was_found() {
    let mut a = gateway(Mode::Ethernet, true, 1, 2);
    assert!(a.receive(Side::Host, &[udp(1)]).is_empty());
    assert_eq!(a.dropped(Side::Host, DropReason::NeighbourUnknown), 1);
}

#[test]
fn a_packet_that_does_not_fit_sealed_is_answered_with_the_size_that_does() {
    let (mut a, mut b) = pair(Mode::Ethernet, true);
    let answer = only(Destination::Host, a.receive(Side::Host, &[udp(1472)])).remove(0);
    let parsed = parse(&answer, Link::Ethernet, answer.len() as u32);
    assert_eq!(parsed.transport, Transport::Icmp { kind: 3, code: 4 });
    assert_eq!((parsed.link.destination, parsed.fault), (MacAddress(HOST_A), None));
    let icmp = usize::from(parsed.transport_offset);
    assert_eq!(weir_wire::checksum::Sum::new().with(&answer[icmp..]).checksum(), 0);
    let mtu = usize::from(u16::from_be_bytes([answer[icmp + 6], answer[icmp + 7]]));
    assert_eq!(a.dropped(Side::Host, DropReason::TooBig), 1);

    // A packet of just that size passes, one byte more does not.
    let wire = only(Destination::Wire, a.receive(Side::Host, &[udp(mtu - 28)]));
    assert!(wire[0].len() <= usize::from(WIRE_MTU) + 14);
    assert_eq!(b.receive(Side::Wire, &wire).len(), 1);
    a.receive(Side::Host, &[udp(mtu - 27)]);
    assert_eq!(a.dropped(Side::Host, DropReason::TooBig), 2);
}

#[test]
fn the_mss_of_a_connection_is_clamped_and_its_checksum_stays_right() {
    let (mut a, mut b) = pair(Mode::Ethernet, true);
    let mut syn = vec![0; 24];
    syn[12] = 6 << 4;
    syn[13] = 2;
    syn[20..24].copy_from_slice(&[2, 4, 0x05, 0xb4]);
    let pseudo = weir_wire::checksum::pseudo_header_v4([10, 0, 0, 1], [10, 0, 0, 2], 6, 24);
    let sum = pseudo.with(&syn).checksum();
    syn[16..18].copy_from_slice(&sum.to_be_bytes());
    let wire = only(Destination::Wire, a.receive(Side::Host, &[ipv4(6, 0, &syn)]));
    let arrived = only(Destination::Host, b.receive(Side::Wire, &wire)).remove(0);
    let tcp = &arrived[34..58];
    let mss = u16::from_be_bytes([tcp[22], tcp[23]]);
    assert!(mss < 1460 && mss > 1300, "{mss}");
    assert_eq!(pseudo.with(tcp).checksum(), 0);
    assert_eq!(a.counters().mss_clamped, 1);
}

#[test]
fn a_congestion_mark_on_the_wire_reaches_the_inner_packet() {
    let (mut a, mut b) = pair(Mode::Ethernet, true);
    let ect = ipv4(17, 2, &[0, 1, 0, 2, 0, 9, 0, 0, 7]);
    let mut wire = only(Destination::Wire, a.receive(Side::Host, &[ect]));
    assert_eq!(wire[0][15], 2, "the outer header copies ECT(0)");
    weir_engine::esp::outer::write_ecn(&mut wire[0][14..], 3);
    let arrived = only(Destination::Host, b.receive(Side::Wire, &wire)).remove(0);
    assert_eq!(arrived[15] & 3, 3);
    assert_eq!(weir_wire::checksum::Sum::new().with(&arrived[14..34]).checksum(), 0);
    assert_eq!(b.counters().ce_combined, 1);
}

#[test]
fn a_watching_gateway_passes_everything_as_it_is() {
    let engine = Engine::new(Policy::watch(1, WIRE_MTU), Associations::default(), meter()).unwrap();
    let mut gateway = Gateway::of(engine, Time(1));
    let packets = vec![udp(9000), ethernet(0x88cc, &[1; 50]), vec![1, 2, 3]];
    assert_eq!(only(Destination::Wire, gateway.receive(Side::Host, &packets)), packets);
    assert_eq!(only(Destination::Host, gateway.receive(Side::Wire, &packets)), packets);
    assert_eq!(gateway.counters().host.forwarded, 3);
}

#[test]
fn a_policy_without_keys_is_refused_and_the_old_one_goes_on() {
    let (mut a, mut b) = pair(Mode::Ethernet, true);
    let mut peers = a.engine.policy().peers.clone();
    peers[0].seal_spi = Some(0x7777);
    let policy = a.engine.policy().clone().with_peers(peers);
    let error = a.engine.swap(policy, Associations::default()).unwrap_err();
    assert!(error.to_string().contains("0x7777"), "{error}");
    let wire = only(Destination::Wire, a.receive(Side::Host, &[udp(1)]));
    assert_eq!(b.receive(Side::Wire, &wire).len(), 1);
}

#[test]
fn a_reload_keeps_the_associations_going() {
    let (mut a, mut b) = pair(Mode::Ethernet, true);
    let wire = only(Destination::Wire, a.receive(Side::Host, &[udp(1)]));
    b.receive(Side::Wire, &wire);
    for gateway in [&mut a, &mut b] {
        let mut policy = gateway.engine.policy().clone();
        policy.epoch += 1;
        gateway.engine.swap(policy, Associations::default()).unwrap();
        gateway.tick();
    }
    assert!(b.receive(Side::Wire, &wire).is_empty(), "the replay window went on");
    let wire = only(Destination::Wire, a.receive(Side::Host, &[udp(2)]));
    assert_eq!(b.receive(Side::Wire, &wire).len(), 1, "the sequence numbers went on");
    assert_eq!(b.dropped(Side::Wire, DropReason::ReplayDuplicate), 1);
    assert_eq!(a.engine.peer_counters(0).sealed_packets, 2, "the counters went on");
    assert_eq!(b.engine.peer_counters(0).opened_packets, 2);
}

#[test]
fn the_network_of_a_frame_for_us_is_left_to_our_kernel() {
    let (mut a, _) = pair(Mode::Ethernet, true);
    let mut ping = ipv4(1, 0, &[8, 0, 0xf7, 0xff, 0, 0, 0, 0]);
    ping[..6].copy_from_slice(&GATEWAY_A);
    ping[30..34].copy_from_slice(&[192, 0, 2, 1]);
    let sum = weir_wire::checksum::ipv4_header(&ping[14..34]);
    ping[24..26].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(only(Destination::Punt, a.receive(Side::Wire, &[ping.clone()])), [ping]);
    assert_eq!(a.counters().wire.punted, 2, "the ARP answer and this");
    assert_eq!(parse(&udp(1), Link::Ethernet, 43).network, Network::Ipv4);
}

/// What a host hands to a port that cuts for it: headers once, checksum begun.
fn super_packet(payload_len: usize, segment_len: u16) -> Sent {
    let payload: Vec<u8> = (0..payload_len).map(|byte| (byte * 7 + byte / 256) as u8).collect();
    let mut tcp =
        vec![0x12, 0x34, 0x56, 0x78, 0, 0, 0, 9, 0, 0, 0, 7, 5 << 4, 0x18, 1, 0, 0, 0, 0, 0];
    let length = (tcp.len() + payload.len()) as u16;
    let pseudo = weir_wire::checksum::pseudo_header_v4([10, 0, 0, 1], [10, 0, 0, 2], 6, length);
    tcp[16..18].copy_from_slice(&pseudo.folded().to_be_bytes());
    tcp.extend_from_slice(&payload);
    let offload = Offload {
        checksum: Some(PartialChecksum { start: 34, field: 50 }),
        segmentation: Some(Segmentation {
            kind: SegmentKind::TcpV4,
            segment_len,
            header_len: 54,
            ecn: false,
        }),
        ..Offload::default()
    };
    Sent { bytes: ipv4(6, 0, &tcp), offload }
}

#[test]
fn a_super_packet_is_cut_sealed_opened_and_gathered_again() {
    for (mode, own) in [(Mode::Ethernet, true), (Mode::Tunnel, false), (Mode::Transport, false)] {
        // 1460 does not fit sealed: it is cut smaller, as for a sender whose MSS was not clamped.
        for segment_len in [1300, 1460, 536] {
            let (mut a, mut b) = pair(mode, own);
            let sent = super_packet(30_000, segment_len);
            let wire = only(Destination::Wire, a.receive_offloaded(Side::Host, from_ref(&sent)));
            assert!(wire.len() >= 30_000 / usize::from(segment_len), "{}", wire.len());
            assert!(wire.iter().all(|packet| packet.len() <= usize::from(WIRE_MTU) + 14));
            let arrived: Vec<_> =
                wire.chunks(64).flat_map(|batch| b.receive(Side::Wire, batch)).collect();
            assert_eq!(arrived.len(), 1, "{mode:?} {segment_len}");
            let (_, packet) = &arrived[0];
            assert!(packet.bytes[54..] == sent.bytes[54..], "the payload is the same");
            let segmentation = packet.offload.segmentation.unwrap();
            assert!(segmentation.segment_len <= segment_len && segmentation.header_len == 54);
            assert_eq!(a.counters().host.sealed, 1);
            assert_eq!(a.engine.peer_counters(0).sealed_packets, wire.len() as u64);
        }
    }
}

/// The packets of a little-endian microsecond capture.
fn capture(name: &str) -> Vec<Vec<u8>> {
    let path = format!("{}/../../testdata/roce/{name}", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(path).unwrap();
    let mut rest = &bytes[24..];
    let mut packets = Vec::new();
    while let Some((header, body)) = rest.split_at_checked(16) {
        let len = u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize;
        packets.push(body[..len].to_vec());
        rest = &body[len..];
    }
    packets
}

#[test]
fn the_path_mtu_of_an_rdma_connection_is_clamped_and_its_icrc_renewed() {
    use weir_wire::icrc::{IcrcStatus, check};
    let asked = |packet: &[u8]| {
        let parsed = parse(packet, Link::Ethernet, packet.len() as u32);
        match weir_wire::cm::message(packet, &parsed) {
            Some((_, weir_wire::cm::Message::Request(request))) => {
                assert_eq!(check(packet, &parsed), IcrcStatus::Valid);
                request.path_mtu().map(|mtu| mtu.bytes())
            }
            _ => None,
        }
    };
    let packets = capture("rc-write-rdmacm.pcap");
    let request = packets.iter().find(|packet| asked(packet).is_some()).unwrap();
    assert_eq!(asked(request), Some(4096));

    let (mut a, mut b) = pair(Mode::Ethernet, true);
    for (wire_mtu, clamped) in [(9000, 4096), (1500, 1024), (1100, 512), (700, 512), (500, 256)] {
        for gateway in [&mut a, &mut b] {
            let mut policy = gateway.engine.policy().clone();
            policy.wire_mtu = wire_mtu;
            gateway.engine.swap(policy, Associations::default()).unwrap();
            gateway.tick();
        }
        let wire = only(Destination::Wire, a.receive(Side::Host, from_ref(request)));
        let arrived = only(Destination::Host, b.receive(Side::Wire, &wire));
        assert_eq!(asked(&arrived[0]), Some(clamped), "wire MTU {wire_mtu}");
    }
    assert_eq!(a.counters().path_mtu_clamped, 4);
}

#[test]
fn a_checksum_that_the_sender_got_wrong_stays_wrong() {
    let (mut a, mut b) = pair(Mode::Ethernet, true);
    let (mut c, mut d) = pair(Mode::Ethernet, true);
    // A peer's segments as they are on the wire, one of them damaged before it was sealed.
    let sent = super_packet(4_000, 1000);
    let wire = only(Destination::Wire, a.receive_offloaded(Side::Host, &[sent]));
    let mut segments: Vec<Vec<u8>> = wire
        .iter()
        .flat_map(|packet| only(Destination::Host, b.receive(Side::Wire, from_ref(packet))))
        .collect();
    assert_eq!(segments.len(), 4);
    *segments[2].last_mut().unwrap() ^= 1;
    let wire = only(Destination::Wire, c.receive(Side::Host, &segments));
    let arrived = d.receive(Side::Wire, &wire);
    assert!(arrived.iter().any(|(_, packet)| packet.bytes == segments[2]), "as it was sent");
    assert_eq!(arrived.len(), 3, "two gathered, the damaged one, the last");
}

/// Gives a gateway another set of associations with its one peer.
fn rekey(gateway: &mut Gateway, seal: Option<u32>, open: &[u32], new: Associations) {
    let mut peers = gateway.engine.policy().peers.clone();
    peers[0].seal_spi = seal;
    peers[0].open_spis = open.to_vec();
    let policy = gateway.engine.policy().clone().with_peers(peers);
    gateway.engine.swap(policy, new).unwrap();
    gateway.tick();
}

#[test]
fn without_an_association_nothing_leaves_and_the_packet_that_wanted_one_is_told() {
    let (mut a, _) = pair(Mode::Ethernet, true);
    rekey(&mut a, None, &[], Associations::default());
    assert!(a.receive(Side::Host, &[udp(9)]).is_empty());
    assert_eq!(a.dropped(Side::Host, DropReason::NoAssociation), 1);
    let mapped = |last| mapped(IpAddr::from([10, 0, 0, last]));
    let wanted: Vec<_> = a.engine.take_wanted().collect();
    assert_eq!(wanted, [(0, [mapped(1), mapped(2)])]);
    assert_eq!(a.engine.take_wanted().count(), 0, "told once");
}
