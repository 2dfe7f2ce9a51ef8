//! ESP packets as they travel: tunnel and transport mode, EtherIP, UDP. What is sealed in any form
//! comes back as it was; what the outer headers say is right.

use std::net::IpAddr;

use super::buffers::Packet;
use proptest::prelude::*;
use weir_engine::esp::open::{OpenError, OpeningSa};
use weir_engine::esp::outer::{
    self, OuterError, OuterFields, OuterHeader, OuterLink, UdpChecksum, UdpEncapsulation, UdpSource,
};
use weir_engine::esp::sa::{SaParameters, Spi};
use weir_engine::esp::seal::SealingSa;
use weir_engine::esp::transport::{
    OVERHEAD_LEN_MAX, TransportError, open_transport, seal_transport, seal_transport_to,
};
use weir_engine::esp::{esp_len, next_header};
use weir_engine::offload::checksum;
use weir_wire::checksum::Sum;
use weir_wire::frame::Link;
use weir_wire::parse::{MacAddress, Network, Parsed, Transport};

const FLOW: u16 = 0xbeef;

fn encapsulations() -> impl Strategy<Value = Option<UdpEncapsulation>> {
    let source = prop_oneof![Just(UdpSource::Fixed(4500)), Just(UdpSource::Flow)];
    let checksums = [UdpChecksum::Zero, UdpChecksum::Full, UdpChecksum::Partial];
    let checksum = prop::sample::select(checksums.to_vec());
    prop::option::of((source, checksum).prop_map(|(source, checksum)| UdpEncapsulation {
        source,
        destination_port: 4500,
        checksum,
    }))
}

/// An IP packet with odd corners: options or extension headers, any length.
fn ip_packets() -> impl Strategy<Value = Vec<u8>> {
    let extensions = prop::collection::vec(prop::sample::select(vec![0_u8, 43, 60]), 0..3);
    let shape = (any::<bool>(), 0_u8..4, extensions, any::<u8>());
    (shape, prop::collection::vec(any::<u8>(), 0..200)).prop_map(
        |((is_ipv6, options, extensions, traffic_class), payload)| {
            if is_ipv6 {
                ipv6_packet(&extensions, traffic_class, &payload)
            } else {
                ipv4_packet(options, traffic_class, &payload)
            }
        },
    )
}

fn ipv4_packet(options: u8, traffic_class: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x45 + options, traffic_class, 0, 0, 7, 7, 0x40, 0, 63, 253];
    header.extend([0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    header.extend(vec![1; usize::from(options) * 4]);
    let len = (header.len() + payload.len()) as u16;
    header[2..4].copy_from_slice(&len.to_be_bytes());
    let sum = Sum::new().with(&header).checksum();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [&header, payload].concat()
}

fn ipv6_packet(extensions: &[u8], traffic_class: u8, payload: &[u8]) -> Vec<u8> {
    let mut chain = extensions.to_vec();
    chain.push(253);
    let mut packet = vec![0x60 | traffic_class >> 4, traffic_class << 4, 3, 4, 0, 0, chain[0], 63];
    packet.extend([[0x20; 16], [0x30; 16]].concat());
    for next in &chain[1..] {
        packet.extend([*next, 0, 1, 4, 0, 0, 0, 0]);
    }
    packet.extend(payload);
    let len = (packet.len() - 40) as u16;
    packet[4..6].copy_from_slice(&len.to_be_bytes());
    packet
}

fn ethernet(packet: &[u8]) -> Vec<u8> {
    let ethertype = if packet[0] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &ethertype, packet].concat()
}

fn pair() -> (SealingSa, OpeningSa) {
    let parameters = SaParameters::new(Spi::new(0x1000).unwrap(), &[7; 36]).unwrap();
    let mut sealing = SealingSa::new(&parameters, None).unwrap();
    sealing.extend_reservation(&sealing.reservation_needed().unwrap());
    (sealing, OpeningSa::new(&parameters, None).unwrap())
}

/// Completes what was left to the port, then checks every outer checksum.
fn check_outer(packet: &mut Packet, udp: Option<UdpEncapsulation>) -> Parsed {
    let left = packet.meta.offload.checksum.is_some();
    assert_eq!(left, matches!(udp, Some(UdpEncapsulation { checksum: UdpChecksum::Partial, .. })));
    assert!(packet.change(checksum::complete));
    let parsed = packet.parse(Link::Ethernet);
    assert_eq!(parsed.fault, None);
    assert_eq!(parsed.end as usize, packet.bytes().len());
    let bytes = packet.bytes();
    let network = &bytes[parsed.network_offset.into()..];
    if parsed.network == Network::Ipv4 {
        let header = &network[..usize::from(network[0] & 15) * 4];
        assert_eq!(Sum::new().with(header).checksum(), 0);
    }
    if let Some(udp) = udp {
        let datagram = &bytes[parsed.transport_offset.into()..];
        let port = u16::from_be_bytes([datagram[0], datagram[1]]);
        assert_eq!(port, if udp.source == UdpSource::Flow { 0xfeef } else { 4500 });
        let addresses = if parsed.network == Network::Ipv4 { 12..20 } else { 8..40 };
        let sum = Sum::new().with(&network[addresses]).with_u16(17);
        let sum = sum.with_u16(datagram.len() as u16).with(datagram);
        match udp.checksum {
            UdpChecksum::Zero => assert_eq!(datagram[6..8], [0, 0]),
            _ => assert_eq!(sum.checksum(), 0),
        }
    }
    let Transport::Esp { spi: 0x1000, in_udp, .. } = parsed.transport else {
        panic!("the walk finds our ESP: {parsed:?}")
    };
    assert_eq!(in_udp, udp.is_some());
    parsed
}

proptest! {
    #[test]
    fn a_tunnelled_packet_comes_back(
        inner in ip_packets(), udp in encapsulations(), is_ipv6 in any::<bool>(),
        vlan_tci in prop::option::of(any::<u16>()), padding in 0_usize..10,
    ) {
        let (mut sealing, mut opening) = pair();
        let [source, destination]: [IpAddr; 2] = if is_ipv6 {
            ["fd00::1".parse().unwrap(), "fd00::2".parse().unwrap()]
        } else {
            ["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()]
        };
        let link = OuterLink {
            destination: MacAddress([2, 0, 0, 0, 0, 9]),
            source: MacAddress([2, 0, 0, 0, 0, 8]),
            vlan_tci,
        };
        let header = OuterHeader::new(Some(link), source, destination, 62, udp).unwrap();
        let traffic_class = Packet::new(&ethernet(&inner)).parse(Link::Ethernet).traffic_class;
        let fields = OuterFields { traffic_class, pcp: 5, flow: FLOW };
        let mut packet = Packet::new(&inner);
        packet.seal(&mut sealing, next_header::IPV4).unwrap();
        let esp = packet.bytes().to_vec();
        packet.change(|frame| header.prepend(frame, fields)).unwrap();
        prop_assert_eq!(packet.bytes().len(), header.len() + esp_len(inner.len()));

        let mut written = vec![0; header.len()];
        written.extend(&esp);
        let left = header.write(&mut written, fields).unwrap();
        prop_assert_eq!((&written[..], left), (packet.bytes(), packet.meta.offload.checksum));

        let parsed = check_outer(&mut packet, udp);
        prop_assert_eq!(parsed.traffic_class, traffic_class);
        prop_assert_eq!(parsed.hop_limit, 62);
        prop_assert_eq!(parsed.link.vlan_count, u8::from(vlan_tci.is_some()));
        if let Some(tci) = vlan_tci {
            prop_assert_eq!(parsed.link.vlan_tci[0], tci & 0x1fff | 5 << 13);
        }
        let mut received = Packet::new(&[packet.bytes(), &vec![0; padding]].concat());
        let parsed = received.parse(Link::Ethernet);
        prop_assert!(received.change(|frame| outer::strip_outer(frame, &parsed)));
        prop_assert_eq!(received.open(&mut opening).unwrap().next_header, next_header::IPV4);
        prop_assert_eq!(received.bytes(), inner);
    }

    #[test]
    fn a_transport_mode_packet_comes_back(
        inner in ip_packets(), udp in encapsulations(), padding in 0_usize..10,
    ) {
        let (mut sealing, mut opening) = pair();
        let plain = ethernet(&inner);
        let mut packet = Packet::new(&[&plain[..], &vec![0; padding]].concat());
        packet.change(|frame| seal_transport(&mut sealing, frame, 14, udp, FLOW)).unwrap();

        let mut out = vec![0; plain.len() + OVERHEAD_LEN_MAX];
        let (len, left) =
            seal_transport_to(&mut pair().0, &plain, 14, udp, FLOW, &mut out).unwrap();
        prop_assert_eq!((&out[..len], left), (packet.bytes(), packet.meta.offload.checksum));

        let parsed = check_outer(&mut packet, udp);
        let before = Packet::new(&plain).parse(Link::Ethernet);
        prop_assert_eq!((parsed.source, parsed.destination), (before.source, before.destination));
        prop_assert_eq!(parsed.traffic_class, before.traffic_class);
        packet.change(|frame| open_transport(&mut opening, frame, 14)).unwrap();
        prop_assert_eq!(packet.bytes(), plain);
    }

    #[test]
    fn hostile_packets_are_refused_in_transport_mode(
        mut bytes in ip_packets(), noise in prop::collection::vec((0_usize..80, any::<u8>()), 0..5),
        len in 0_usize..300,
    ) {
        for (at, value) in noise {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes.truncate(len);
        let (mut sealing, mut opening) = pair();
        let _ = Packet::new(&bytes).change(|frame| seal_transport(&mut sealing, frame, 0, None, 0));
        let opened = Packet::new(&bytes).change(|frame| open_transport(&mut opening, frame, 0));
        prop_assert!(opened.is_err());
    }
}

#[test]
fn extension_headers_for_stations_on_the_way_stay_in_clear() {
    // (chain before the payload, how many of its headers stay before ESP)
    let cases: [(&[u8], usize); 7] = [
        (&[], 0),
        (&[0], 1),
        (&[0, 60], 1),
        (&[0, 60, 43], 3),
        (&[0, 60, 43, 60], 3),
        (&[43], 1),
        (&[60], 0),
    ];
    for (chain, kept) in cases {
        let plain = ethernet(&ipv6_packet(chain, 0, &[9; 20]));
        let mut packet = Packet::new(&plain);
        packet.change(|f| seal_transport(&mut pair().0, f, 14, None, 0)).unwrap();
        let parsed = packet.parse(Link::Ethernet);
        assert_eq!(usize::from(parsed.transport_offset), 14 + 40 + 8 * kept, "{chain:?}");
        assert!(matches!(parsed.transport, Transport::Esp { .. }), "{chain:?}");
    }
}

#[test]
fn fragments_are_refused_in_transport_mode() {
    let mut later = ipv4_packet(0, 0, &[9; 40]);
    later[6..8].copy_from_slice(&[0, 5]);
    let mut first = ipv4_packet(0, 0, &[9; 40]);
    first[6] = 0x20;
    let ipv6 = ipv6_packet(&[0, 44], 0, &[9; 40]);
    for packet in [later, first, ipv6] {
        let result =
            Packet::new(&packet).change(|frame| seal_transport(&mut pair().0, frame, 0, None, 0));
        assert_eq!(result, Err(TransportError::Fragment));
    }
}

#[test]
fn a_packet_that_would_grow_too_long_is_refused() {
    let packet = ipv4_packet(0, 0, &vec![9; 65_535 - 20]);
    let result = Packet::new(&packet).change(|f| seal_transport(&mut pair().0, f, 0, None, 0));
    assert_eq!(result, Err(TransportError::TooLong));
    let [a, b]: [IpAddr; 2] = ["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
    let header = OuterHeader::new(None, a, b, 64, None).unwrap();
    let mut sealed = Packet::new(&vec![9; 65_535]);
    let result = sealed.change(|frame| header.prepend(frame, OuterFields::default()));
    assert_eq!(result, Err(OuterError::TooLong));
    let v6 = "fd00::1".parse().unwrap();
    assert!(matches!(OuterHeader::new(None, a, v6, 64, None), Err(OuterError::Families(..))));
}

#[test]
fn etherip_comes_off_only_where_it_is() {
    let mut frame = Packet::new(&[1; 60]);
    frame.change(outer::prepend_etherip).unwrap();
    assert_eq!(frame.bytes()[..3], [0x30, 0, 1]);
    assert!(frame.change(outer::strip_etherip));
    assert_eq!(frame.bytes(), [1; 60]);
    for bytes in [&[][..], &[0x30], &[0x40, 0, 1]] {
        assert!(!Packet::new(bytes).change(outer::strip_etherip), "{bytes:?}");
    }
}

#[test]
fn another_protocol_is_not_opened_in_transport_mode() {
    let packet = ipv4_packet(0, 0, &[9; 40]);
    let result = Packet::new(&packet).change(|frame| open_transport(&mut pair().1, frame, 0));
    assert_eq!(result, Err(TransportError::Malformed));
    let mut short = ipv4_packet(0, 0, &[9; 4]);
    short[9] = 50;
    let result = Packet::new(&short).change(|frame| open_transport(&mut pair().1, frame, 0));
    assert_eq!(result, Err(TransportError::Open(OpenError::Malformed)));
}
