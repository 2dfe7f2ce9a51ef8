//! Connections of HTTP/2: what rules see of them, and what bounds them.

use super::*;
use crate::heap::HeapSize;
use crate::rule::Buffer;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

fn one(connection: &Connection, number: u64, side: usize, buffer: Buffer) -> Vec<u8> {
    let mut found = Vec::new();
    connection.transaction_of(number).unwrap().each(side, buffer, &mut |it| {
        found = it.to_vec();
        true
    });
    found
}

const GET: &[u8] = b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff";

fn client() -> Vec<u8> {
    [
        MAGIC.to_vec(),
        frame(frame::SETTINGS, 0, 0, b"\0\x02\0\0\0\0"),
        frame(frame::HEADERS, frame::END_STREAM, 1, &GET[..5]),
        frame(frame::CONTINUATION, frame::END_HEADERS, 1, &GET[5..]),
    ]
    .concat()
}

#[test]
fn streams_become_transactions_however_they_are_cut() {
    let server = [
        frame(frame::HEADERS, frame::END_HEADERS, 1, b"\x88"),
        frame(frame::DATA, frame::PADDED, 1, b"\x02ab\0\0"),
        frame(frame::DATA, frame::END_STREAM, 1, b"cd"),
    ];
    for piece in 1..60 {
        let mut connection = Connection::new();
        client().chunks(piece).for_each(|it| connection.take(0, it, &mut Vec::new()));
        server.concat().chunks(piece).for_each(|it| connection.take(1, it, &mut Vec::new()));
        assert_eq!(connection.transactions.len(), 2);
        let settings = &mut connection.transaction(0).unwrap().frames_mut(0).settings;
        assert_eq!(*settings, [(2, 0)]);
        assert_eq!(one(&connection, 1, 0, Buffer::HttpMethod), b"GET");
        assert_eq!(one(&connection, 1, 0, Buffer::HttpHost), b"www.example.com");
        assert_eq!(one(&connection, 1, 1, Buffer::HttpStatusCode), b"200");
        assert_eq!(one(&connection, 1, 1, Buffer::FileData), b"abcd", "{piece}");
        let transaction = connection.transaction_of(1).unwrap();
        assert!(transaction.is_complete(0) && transaction.is_complete(1));
    }
}

#[test]
fn streams_and_blocks_are_bounded() {
    let mut connection = Connection::new();
    connection.take(0, MAGIC, &mut Vec::new());
    for stream in 0..2000 {
        let headers = frame(frame::HEADERS, frame::END_HEADERS, 2 * stream + 1, b"\x82");
        connection.take(0, &headers, &mut Vec::new());
    }
    assert_eq!(connection.transactions.len(), TRANSACTIONS_MAX + 1);
    let many = frame(6, 0, 0, &[0; 8]).repeat(2 * FRESH_MAX);
    connection.take(0, &many, &mut Vec::new());
    assert_eq!(connection.transactions.len(), FRESH_MAX);
    let endless = frame(frame::CONTINUATION, 0, 1, &[0; 16_000]);
    connection.take(0, &frame(frame::HEADERS, 0, 1, b""), &mut Vec::new());
    for _ in 0..100 {
        connection.take(0, &endless, &mut Vec::new());
    }
    assert!(connection.sides[0].gathered.is_none());
    let last = connection.transactions.find(1).and_then(|it| connection.transaction_of(it));
    assert!(last.unwrap().events.has(AppEvent::Http2TooLong));
}

/// A client that has a header of 60,000 bytes remembered, as a byte of its blocks.
fn with_a_long_header() -> Connection {
    let block = [b"\x3f\xe1\xff\x03\x40\x01a\x7f\xe1\xd3\x03".as_slice(), &[b'x'; 60_000]];
    let headers = frame(frame::HEADERS, frame::END_HEADERS, 1, &block.concat());
    let mut connection = Connection::new();
    connection.take(0, &[MAGIC.as_slice(), &headers].concat(), &mut Vec::new());
    connection
}

#[test]
fn headers_of_a_stream_are_bounded_over_all_its_blocks() {
    let mut connection = with_a_long_header();
    let again = frame(frame::HEADERS, frame::END_HEADERS, 1, b"\xbe");
    for _ in 0..100 {
        connection.take(0, &again, &mut Vec::new());
    }
    assert!(connection.heap_size() < 1 << 20, "{}", connection.heap_size());
    let transaction = connection.transaction_of(0).unwrap();
    assert!(transaction.events.has(AppEvent::Http2TooLong));
    // What is short still finds room, and more than so many do not.
    let short = frame(frame::HEADERS, frame::END_HEADERS, 1, b"\0\x01b\x01c");
    connection.take(0, &short.repeat(1100), &mut Vec::new());
    let half = connection.transaction(0).unwrap().half_mut(0).unwrap();
    assert_eq!([&half.fields[0].0[..], &half.fields[1].0], [&b""[..], b"a"], "a size first");
    assert_eq!(half.header(b"b").map(|it| it[..4].to_vec()), Some(b"c, c".to_vec()));
    assert_eq!((half.fields.len(), half.raw_headers.len()), (2 + 921, 60_009 + 921 * 6));
    let mut connection = Connection::new();
    connection.take(0, &[MAGIC.as_slice(), &short.repeat(1100)].concat(), &mut Vec::new());
    let half = connection.transaction(0).unwrap().half_mut(0).unwrap();
    assert_eq!(half.fields.len(), 1024);
}

#[test]
fn headers_that_many_streams_name_again_are_bounded() {
    let mut connection = with_a_long_header();
    let again = |stream: u32| frame(frame::HEADERS, frame::END_HEADERS, stream, b"\xbe\x82");
    let streams: Vec<u8> = (1..2000).flat_map(|it| again(2 * it + 1)).collect();
    connection.take(0, &streams, &mut Vec::new());
    assert!(connection.heap_size() < 16 << 20, "{}", connection.heap_size());
    assert_eq!(one(&connection, 1999, 0, Buffer::HttpMethod), b"GET");
    assert!(connection.transaction_of(1999).unwrap().events.has(AppEvent::Http2TooLong));
}

#[test]
fn a_body_that_ends_again_is_one_message_of_dns() {
    let query = b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";
    let block = [b"\x83\x0f\x10\x17", b"application/dns-message".as_slice()].concat();
    let headers = frame(frame::HEADERS, frame::END_HEADERS, 1, &block);
    let mut connection = Connection::new();
    connection.take(0, &[MAGIC.as_slice(), &headers].concat(), &mut Vec::new());
    connection.take(0, &frame(frame::DATA, 0, 1, query), &mut Vec::new());
    let end = frame(frame::DATA, frame::END_STREAM, 1, b"");
    connection.take(0, &end.repeat(1000), &mut Vec::new());
    assert_eq!(connection.take_dns().len(), 1);
}

#[test]
fn what_is_odd_about_frames_is_named() {
    use AppEvent::*;
    let odd: [(Vec<u8>, AppEvent); 5] = [
        (frame(frame::WINDOW_UPDATE, 0, 0, b"123"), Http2FrameLength),
        (frame(frame::DATA, 0, 0, b"a"), Http2DataStreamZero),
        (frame(frame::HEADERS, frame::PADDED, 1, b"\x09a"), Http2FrameData),
        (frame(frame::HEADERS, frame::END_HEADERS, 1, b"\x80"), Http2Header),
        (frame(frame::HEADERS, frame::END_HEADERS, 1, b"\x41\x03a@b"), Http2UserInfo),
    ];
    for (bytes, event) in odd {
        let mut connection = Connection::new();
        connection.take(0, &[MAGIC.as_slice(), &bytes].concat(), &mut Vec::new());
        let number = connection.take_odd(1)[0];
        assert!(connection.transaction_of(number).unwrap().events.has(event), "{event:?}");
    }
}

/// A connection whose server has said that for the first stream, which its client asked for.
fn answered(frames: &[Vec<u8>]) -> Connection {
    let asked = frame(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, 1, b"\x82\x84");
    let mut connection = Connection::new();
    connection.take(0, &[MAGIC.as_slice(), &asked].concat(), &mut Vec::new());
    connection.take(1, &frames.concat(), &mut Vec::new());
    connection
}

fn literal(name: &str, value: &str) -> Vec<u8> {
    let text = |it: &str| [&[it.len() as u8], it.as_bytes()].concat();
    [vec![0], text(name), text(value)].concat()
}

#[test]
fn interim_responses_hide_nothing_of_the_final_one() {
    let interim = |more: &[u8]| {
        let block = [literal(":status", "103"), more.to_vec()].concat();
        frame(frame::HEADERS, frame::END_HEADERS, 1, &block)
    };
    let last = [b"\x88".to_vec(), literal("content-type", "text/evil")].concat();
    let last = frame(frame::HEADERS, frame::END_HEADERS, 1, &last);
    let many = b"\x90".repeat(1023);
    let odd = [literal("content-type", "a"), literal("content-encoding", "gzip")].concat();
    let few = literal("a", "b").repeat(5);
    let first = [interim(&many), interim(&odd), vec![interim(&few); 300].concat()];
    for interim in first {
        let body = frame(frame::DATA, frame::END_STREAM, 1, b"evil");
        let connection = answered(&[interim, last.clone(), body]);
        assert_eq!(one(&connection, 0, 1, Buffer::HttpContentType), b"text/evil");
        assert_eq!(one(&connection, 0, 1, Buffer::HttpStatusCode), b"200");
        assert_eq!(one(&connection, 0, 1, Buffer::FileData), b"evil");
        assert!(connection.heap_size() < 1 << 20);
    }
}

#[test]
fn a_body_that_trailers_end_has_a_size_for_rules() {
    let head = frame(frame::HEADERS, frame::END_HEADERS, 1, b"\x88");
    let trailers = frame(frame::HEADERS, 5, 1, &literal("a", "b"));
    let mut connection = answered(&[head, frame(frame::DATA, 0, 1, b"evil"), trailers]);
    let transaction = connection.transaction(0).unwrap();
    assert_eq!(transaction.files(1)[0].size, Some(4));
    assert!(transaction.take_files(1).is_empty(), "it is told when its flow ends");
}

#[test]
fn data_of_a_stream_that_was_let_go_is_looked_at() {
    let mut connection = Connection::new();
    let open = |stream: u32| frame(frame::HEADERS, frame::END_HEADERS, stream, b"\x83\x84");
    let data = frame(frame::DATA, frame::END_STREAM, 1, b"goodevil");
    let (begin, rest) = data.split_at(data.len() - 4);
    connection.take(0, &[MAGIC.as_slice(), &open(1)].concat(), &mut Vec::new());
    let others: Vec<u8> = (1..400).flat_map(|it| open(2 * it + 1)).collect();
    connection.take(0, &[&others, begin].concat(), &mut Vec::new());
    let mut progressed = Vec::new();
    connection.take(0, rest, &mut progressed);
    let found = progressed.iter().map(|it| one(&connection, *it, 0, Buffer::FileData));
    assert!(found.into_iter().any(|it| it.ends_with(b"evil")));
}

#[test]
fn a_promise_that_goes_on_has_its_headers_remembered() {
    // The first header is remembered, and named by the response that follows.
    let promise = [&b"\0\0\0\x02\x40\x01a\x04ev"[..]].concat();
    let frames = [
        frame(frame::PUSH_PROMISE, 0, 1, &promise),
        frame(frame::CONTINUATION, frame::END_HEADERS, 1, b"il"),
        frame(frame::HEADERS, 5, 1, b"\x88\xbe"),
    ];
    let connection = answered(&frames);
    let names = one(&connection, 0, 1, Buffer::HttpHeader);
    assert_eq!(names, b":status: 200\r\na: evil\r\n");
    assert!(connection.find(2).is_some());
}
