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

    let mut quic = Quic { keys: Some(Box::new(keys)), ..Quic::default() };
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
