use super::*;
use crate::value::Value;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |it: u8| char::from(it).to_digit(16).unwrap() as u8;
    digits.chunks(2).map(|it| digit(it[0]) << 4 | digit(it[1])).collect()
}

#[test]
fn a_servers_first_packet_is_opened() {
    // RFC 9001 A.3: an acknowledgement and a ServerHello.
    let packet = hex("cf000000010008f067a5502a4262b5004075c0d95a482cd0991cd25b0aac406a
         5816b6394100f37a1c69797554780bb38cc5a99f5ede4cf73c3ec2493a1839b3
         dbcba3f6ea46c5b7684df3548e7ddeb9c3bf9c73cc3f3bded74b562bfb19fb84
         022f8ef4cdd93795d77d06edbb7aaf2f58891850abbdca3d20398c276456cbc4
         2158407dd074ee");
    let keys = Keys::of(1, &hex("8394c8f03e515708")).unwrap();
    let read = Packet::read(&packet).unwrap();
    let opened = keys.open(1, read.bytes, read.head).unwrap();
    assert_eq!(opened[..10], hex("02000000000600405a02"));
    let mut changed = packet.clone();
    *changed.last_mut().unwrap() ^= 1;
    assert_eq!(keys.open(1, &changed, read.head), None);
    assert_eq!(keys.open(0, &packet, read.head), None, "the other side's keys");

    let connection = Connection {
        keys: Box::new(keys),
        ids: [hex("8394c8f03e515708"), Vec::new()],
        later: None,
        client: Default::default(),
        server: Side::default(),
        is_full: true,
        told: None,
    };
    let mut quic = Quic { connections: vec![connection], ..Quic::default() };
    let mut said = Said::default();
    quic.take(1, &packet, &mut said);
    assert!(said.units[0].each(Buffer::Ja3sString, &mut |it| it == b"771,4865,51-43"));
    assert!(matches!(said.records[0].objects[0].1.value("ja3s"), Some(Value::Object(_))));
    quic.take(1, &packet, &mut said);
    assert_eq!(said.units.len(), 1, "behind its hello nothing is looked at");
}

#[test]
fn the_pieces_of_a_hello_come_in_any_order() {
    let mut side = Side::default();
    let body = [&[3, 3][..], &[0; 32], &[0, 0, 2, 0x13, 1, 1, 0]].concat();
    let hello = [&[CLIENT_HELLO, 0, 0, body.len() as u8][..], &body].concat();
    for at in [30, 0, 20, 10] {
        assert!(matches!(side.hello(0), Ok(None)));
        side.put(at as u64, &hello[at..hello.len().min(at + 15)]).unwrap();
    }
    assert!(side.hello(0).unwrap().is_some());
    assert_eq!(side.hello(1).unwrap_err(), AppEvent::QuicData, "no server says that");
}

#[test]
fn a_handshake_has_an_end() {
    let mut side = Side::default();
    assert_eq!(side.put(65_000, &[0; 600]), Err(AppEvent::QuicTooLong));
    assert_eq!(side.put(u64::MAX, &[0; 6]), Err(AppEvent::QuicTooLong));
    for at in 0..PIECES_MAX as u64 {
        side.put(2 * at, b"a").unwrap();
    }
    assert_eq!(side.put(1, b"a"), Err(AppEvent::QuicTooLong));
}

#[test]
fn frames_that_are_cut_are_odd() {
    let mut pieces = Vec::new();
    let mut put = |at: u64, piece: &[u8]| {
        pieces.push((at, piece.to_vec()));
        Ok(())
    };
    assert_eq!(
        frames_of(b"\0\x01\x03\x05\0\x01\0\x01\x01\x01\x02\x03\x06\x04\x02ab", &mut put),
        Ok(())
    );
    assert_eq!(frames_of(b"\x06\0\x05ab", &mut put), Err(AppEvent::QuicData));
    assert_eq!(
        frames_of(b"\x02\x05\0\xff\xff\xff\xff\xff\xff\xff\xff", &mut put),
        Err(AppEvent::QuicData)
    );
    assert_eq!(pieces, [(4, b"ab".to_vec())]);
}

/// A hello that names a server.
fn hello_to(name: &[u8]) -> Vec<u8> {
    let n = name.len() as u8;
    let extension = [&[0, 0, 0, n + 5, 0, n + 3, 0, 0, n], name].concat();
    let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0, 0, n + 9], &extension].concat();
    [&[CLIENT_HELLO, 0, 0, body.len() as u8][..], &body].concat()
}

/// A client's datagram of one packet to `number`, with a piece of its handshake.
fn initial(number: &[u8], at: usize, piece: &[u8], length: usize) -> Vec<u8> {
    let crypto = [&[6, 0x40, at as u8, 0x40, piece.len() as u8], piece].concat();
    let head = [&[0xc0, 0, 0, 0, 1, number.len() as u8], number, &[1, b'c', 0]].concat();
    let mut frames = crypto;
    frames.resize(frames.len().max(length.saturating_sub(head.len() + 2 + 1 + 16)), 0);
    let behind = 0x4000 | (frames.len() + 1 + 16) as u16;
    let head = [&head[..], &behind.to_be_bytes()].concat();
    Keys::of(1, number).unwrap().seal(&head, &frames)
}

/// The servers that are named, each time.
fn named(datagrams: &[Vec<u8>]) -> Vec<String> {
    let (mut quic, mut said) = (Quic::default(), Said::default());
    datagrams.iter().for_each(|it| quic.take(0, it, &mut said));
    let mut names = Vec::new();
    for unit in &said.units {
        unit.each(Buffer::QuicServerName, &mut |it| {
            names.push(String::from_utf8(it.to_vec()).unwrap());
            false
        });
    }
    names
}

const REAL: &[u8] = b"number a";

#[test]
fn a_short_datagram_that_no_server_takes_hides_nothing_behind_it() {
    let (good, evil) = (hello_to(b"good"), hello_to(b"evil"));
    let real = initial(REAL, 0, &evil, FULL_LEN);
    assert_eq!(real.len(), FULL_LEN);
    let decoys = [
        ("a hello of its own", initial(b"number b", 0, &good, 0)),
        ("a piece of its own", initial(b"number b", 0, &good[..20], 0)),
        ("another hello of the same connection", initial(REAL, 0, &good, 0)),
        ("another piece of the same connection", initial(REAL, 0, &good[..60], 0)),
        ("no handshake", initial(REAL, 0, b"\x02\0\0\0", 0)),
    ];
    for (what, decoy) in decoys {
        let found = named(&[decoy, real.clone()]);
        assert_eq!(found.last().map(String::as_str), Some("evil"), "{what}");
    }
    assert_eq!(named(&[real.clone(), real]), ["evil"], "once, though it comes again");
}

#[test]
fn a_connection_is_read_beside_others_of_its_flow() {
    let (good, evil) = (hello_to(b"good"), hello_to(b"evil"));
    let (first, second) = evil.split_at(40);
    let mut datagrams = vec![initial(REAL, 0, first, FULL_LEN)];
    for other in 0..6 {
        datagrams.push(initial(&[other; 8], 0, &good, FULL_LEN));
    }
    for other in 0..200 {
        datagrams.push(initial(&[other, 1, 1, 1, 1, 1, 1, 1], 0, &good[..30], 0));
    }
    datagrams.push(initial(REAL, 40, second, FULL_LEN));
    let found = named(&datagrams);
    assert_eq!((found.len(), found.last().map(String::as_str)), (7, Some("evil")));
    // A piece that comes in a short datagram: a lenient server takes it.
    let short = [initial(REAL, 0, first, FULL_LEN), initial(REAL, 40, second, 0)];
    assert_eq!(named(&short), ["evil"]);
}

#[test]
fn connections_that_are_kept_and_keys_that_are_made_have_bounds() {
    let mut quic = Quic::default();
    for other in 0..100 {
        let piece = initial(&[other; 8], 0, &hello_to(b"good")[..30], FULL_LEN);
        quic.take(0, &piece, &mut Said::default());
    }
    assert_eq!(quic.connections.len(), CONNECTIONS_MAX);
    // Packets that nobody sealed, behind them one: of the first packet's connection, and another.
    let junk = |number: u8| {
        let head = [&[0xc0, 0, 0, 0, 1, 8], &[number; 8][..], &[1, b'c', 0, 0x40, 30]].concat();
        [head, vec![0; 30]].concat()
    };
    let many = (0..20).flat_map(junk).collect::<Vec<u8>>();
    let evil = hello_to(b"evil");
    assert_eq!(named(&[[many.clone(), initial(&[0; 8], 0, &evil, 0)].concat()]), ["evil"]);
    assert!(named(&[[many, initial(&[19; 8], 0, &evil, 0)].concat()]).is_empty());
}

#[test]
fn a_public_header_begins_a_connection_at_the_ports_of_quic_alone() {
    let tags = b"CHLO\x01\0\0\0SNI\0\x05\0\0\0a.org";
    let frames = [&[0; google::HASH_LEN][..], &[0xa0, 1, 0, tags.len() as u8], tags].concat();
    let first = [&b"\x0dconnectsQ043\x01"[..], &frames].concat();
    assert!(begins(&first, 443) && begins(&first, 80) && !begins(&first, 53));
    let later = [&b"\x0cconnects\x02"[..], &[7; 40]].concat();
    assert!(!begins(&later, 443), "it tells no version");
    assert_eq!(named(&[first, later]), ["a.org"]);
}

#[test]
fn at_other_ports_a_clients_packet_begins_a_connection() {
    let first = initial(REAL, 0, &hello_to(b"good"), FULL_LEN);
    assert!(begins(&first, 4433));
    let mut sealed_by_others = first.clone();
    *sealed_by_others.last_mut().unwrap() ^= 1;
    assert!(begins(&sealed_by_others, 443) && !begins(&sealed_by_others, 50_000));
    assert!(begins(&[sealed_by_others, first].concat(), 50_000), "what is behind it counts");
}
