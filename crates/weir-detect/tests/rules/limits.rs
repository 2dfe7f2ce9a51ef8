//! What is odd because there is too much of it, one below each limit and one beyond.

use crate::bench::Bench;

/// How often the event is told of a client's bytes, behind what both sides said before.
fn raised(event: &str, port: u16, before: &[(usize, &[u8])], client: &[u8]) -> usize {
    let protocol = event.split('.').next().unwrap();
    let rule = format!("alert {protocol} any any -> any any (app-layer-event:{event}; sid:1;)");
    let mut bench = Bench::new(&rule);
    bench.server_port = port;
    bench.connect();
    for (side, bytes) in before {
        if *side == 0 {
            bench.client(bytes)
        } else {
            bench.server(bytes)
        };
    }
    // As a client would: in segments.
    client.chunks(1400).for_each(|it| _ = bench.client(it));
    bench.alerted().len()
}

#[test]
fn requests_that_nobody_answers_are_too_many_beyond_a_thousand() {
    let ftp = |count: usize| {
        let before: [(usize, &[u8]); 3] =
            [(1, b"220 a\r\n"), (0, b"USER a\r\n"), (1, b"331 a\r\n")];
        raised("ftp.too_many_transactions", 21, &before, &b"NOOP\r\n".repeat(count))
    };
    assert_eq!([ftp(1025), ftp(1026), ftp(1100)], [0, 1, 1]);
    let publish = |identifier: usize| {
        let identifier = identifier as u16 + 1;
        [b"\x32\x06\0\x01t".as_slice(), &identifier.to_be_bytes(), b"x"].concat()
    };
    let mqtt = |count: usize| {
        let connect = b"\x10\x0d\0\x04MQTT\x04\x02\0\x3c\0\x01c";
        let before: [(usize, &[u8]); 2] = [(0, connect), (1, b"\x20\x02\0\0")];
        let client: Vec<u8> = (0..count).flat_map(publish).collect();
        raised("mqtt.too_many_transactions", 1883, &before, &client)
    };
    assert_eq!([mqtt(1025), mqtt(1026), mqtt(1030)], [0, 1, 5]);
}

#[test]
fn properties_of_one_message_are_too_many_beyond_256() {
    let mqtt = |count: usize| {
        let properties = b"\x26\0\x01k\0\x01v".repeat(count);
        let number =
            |it: usize| [(it & 127) as u8 | 128, (it >> 7 & 127) as u8 | 128, (it >> 14) as u8];
        let body = [b"\0\x04MQTT\x05\x02\0\x3c".as_slice(), &number(properties.len())].concat();
        let body = [&body, properties.as_slice(), b"\0\x01c"].concat();
        let connect = [b"\x10".as_slice(), &number(body.len()), &body].concat();
        raised("mqtt.too_many_properties", 1883, &[], &connect)
    };
    assert_eq!([mqtt(256), mqtt(257)], [0, 1]);
}

#[test]
fn what_a_request_of_modbus_asks_for_has_bounds() {
    let modbus = |event: &str, message: &[u8]| {
        let length = message.len() as u8 + 1;
        raised(event, 502, &[], &[&[0, 1, 0, 0, 0, length, 1], message].concat())
    };
    for (message, is_odd) in [
        (b"\x03\0\0\0\x7d".as_slice(), false),
        (b"\x03\0\0\0\x7e", true),
        (b"\x01\0\0\x07\xd0", false),
        (b"\x01\0\0\x07\xd1", true),
        (b"\x05\0\0\xff\0", false),
        (b"\x05\0\0\0\x01", true),
        (b"\x10\0\0\0\x01\x02\0\0", false),
        (b"\x10\0\0\0\x01\x03\0\0\0", true),
    ] {
        assert_eq!(modbus("modbus.invalid_value", message), usize::from(is_odd), "{message:?}");
    }
    assert_eq!(modbus("modbus.invalid_function_code", b"\x80\0\0\0\x01"), 1);
    assert_eq!(modbus("modbus.invalid_function_code", b"\x03\0\0\0\x01"), 0);
}

#[test]
fn a_text_of_rfb_is_too_long_beyond_4096_bytes_and_turns_are_kept() {
    let rfb = |event: &str, length: usize, early: &[u8]| {
        let display = [&[0, 8, 0, 4][..], &[32; 16], &(length as u32).to_be_bytes()].concat();
        let display = [display, vec![b'n'; length]].concat();
        let lines: [(usize, &[u8]); 5] = [
            (1, b"RFB 003.007\n"),
            (0, b"RFB 003.007\n"),
            (1, b"\x01\x01"),
            (0, b"\x01"),
            (0, early),
        ];
        let lines: Vec<_> = lines.into_iter().chain([(1, display.as_slice())]).collect();
        raised(event, 5900, &lines, b"")
    };
    assert_eq!([4096, 4097].map(|it| rfb("rfb.too_long_string", it, b"\x01")), [0, 1]);
    assert_eq!([&b"\x01"[..], b"\x01\x02"].map(|it| rfb("rfb.confused_state", 4, it)), [0, 1]);
}

#[test]
fn a_response_whose_chunks_have_extensions_is_odd() {
    let mut bench = Bench::new(
        "alert http any any -> any any (flow:to_client; \
         app-layer-event:http.response_chunk_extension; sid:1;)",
    );
    bench.connect();
    bench.client(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    bench.server(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\n\r\n");
    assert_eq!(bench.alerted(), [1]);
}
