use super::*;
use crate::rule::Buffer;

fn one(side: usize, connection: &mut Connection, buffer: Buffer) -> Vec<u8> {
    let mut found = Vec::new();
    let transaction = connection.transaction(0).unwrap();
    transaction.each(side, buffer, &mut |it| {
        found = it.to_vec();
        true
    });
    found
}

const REQUEST: &[u8] = b"POST /a%20b/../c?x=%41 HTTP/1.1\r\nHost: Example.ORG:80\r\n\
    Cookie: k=v\r\nContent-Length: 3\r\n\r\nabc";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
    3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";

#[test]
fn what_is_missing_of_a_body_is_not_taken_from_what_follows() {
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n";
    let chunked: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n";
    // What comes behind the first three bytes and the loss of some.
    let cases: [(&[u8], u64, &[u8]); 4] = [
        (HEAD, 4, b"hi"),
        (HEAD, 6, b""),
        (chunked, 4, b"hi\r\n0\r\n\r\n"),
        (chunked, 6, b"\r\n0\r\n\r\n"),
    ];
    for (head, count, behind) in cases {
        let mut connection = Connection::default();
        let mut progressed = Vec::new();
        let next = b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n";
        connection.take(0, &b"GET /a HTTP/1.1\r\n\r\n".repeat(2), &mut progressed);
        connection.take(1, &[head, b"abc"].concat(), &mut progressed);
        connection.lose(1, count);
        connection.take(1, &[behind, next].concat(), &mut progressed);
        let mut code = Vec::new();
        connection.transaction(1).unwrap().each(1, Buffer::HttpStatusCode, &mut |it| {
            code = it.to_vec();
            true
        });
        assert_eq!(code, b"404", "{count} of {}", head.len());
    }
}

#[test]
fn both_sides_are_taken_apart_however_they_are_cut() {
    for piece in 1..60 {
        let mut connection = Connection::default();
        let mut progressed = Vec::new();
        REQUEST.chunks(piece).for_each(|it| connection.take(0, it, &mut progressed));
        RESPONSE.chunks(piece).for_each(|it| connection.take(1, it, &mut progressed));
        let request = |connection: &mut _, buffer| one(0, connection, buffer);
        assert_eq!(request(&mut connection, Buffer::HttpUri), b"/c?x=A");
        assert_eq!(request(&mut connection, Buffer::HttpUriRaw), b"/a%20b/../c?x=%41");
        assert_eq!(request(&mut connection, Buffer::HttpMethod), b"POST");
        assert_eq!(request(&mut connection, Buffer::HttpHost), b"example.org");
        assert_eq!(request(&mut connection, Buffer::HttpHostRaw), b"Example.ORG:80");
        assert_eq!(request(&mut connection, Buffer::HttpCookie), b"k=v");
        assert_eq!(request(&mut connection, Buffer::HttpRequestBody), b"abc");
        assert_eq!(
            request(&mut connection, Buffer::HttpHeader),
            b"Host: Example.ORG:80\r\nContent-Length: 3\r\n"
        );
        assert_eq!(
            request(&mut connection, Buffer::HttpHeaderNames),
            b"\r\nHost\r\nCookie\r\nContent-Length\r\n\r\n"
        );
        assert_eq!(one(1, &mut connection, Buffer::HttpStatusCode), b"200");
        assert_eq!(one(1, &mut connection, Buffer::FileData), b"abcde", "{piece}");
    }
}

#[test]
fn requests_that_follow_each_other_are_told_apart() {
    let mut connection = Connection::default();
    let mut progressed = Vec::new();
    connection.take(0, b"GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\n", &mut progressed);
    assert_eq!(progressed, [0, 1]);
    connection.take(1, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", &mut progressed);
    connection.take(1, b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", &mut progressed);
    let second = connection.transaction(1).unwrap();
    assert_eq!(second.response.as_ref().unwrap().status, b"404");
}

#[test]
fn long_heads_are_taken_byte_by_byte() {
    let (mut connection, mut progressed) = (Connection::default(), Vec::new());
    let headers = "X: yyyyyyyyyy\r\n".repeat(4000);
    for (side, line) in [(0, "GET /a HTTP/1.1\r\n"), (1, "HTTP/1.1 200 OK\r\n")] {
        let head = [line, &headers, "\r\n"].concat();
        head.as_bytes().chunks(1).for_each(|it| connection.take(side, it, &mut progressed));
    }
    assert_eq!(one(0, &mut connection, Buffer::HttpUri), b"/a");
    assert_eq!(one(1, &mut connection, Buffer::HttpStatusCode), b"200");
}

#[test]
fn blank_lines_before_a_request_are_not_kept() {
    let mut connection = Connection::default();
    (0..50_000).for_each(|_| connection.take(0, b"\r\n", &mut Vec::new()));
    assert!(connection.sides[0].held.is_empty());
    connection.take(0, b"GET /a HTTP/1.1\r\n\r\n", &mut Vec::new());
    assert_eq!(one(0, &mut connection, Buffer::HttpUri), b"/a");
}

#[test]
fn a_line_that_is_too_long_ends_the_look() {
    let mut connection = Connection::default();
    connection.take(0, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &mut Vec::new());
    connection.take(1, &[b'a'; LINE_LEN_MAX + 1], &mut Vec::new());
    assert_eq!(connection.sides[1].expect, Expect::Nothing);
    assert!(connection.sides[1].held.is_empty());
    assert_eq!(events(&connection, 0), [AppEvent::HttpResponseTooLong]);
}

fn events(connection: &Connection, number: u64) -> Vec<AppEvent> {
    connection.transaction_of(number).unwrap().events.as_slice().to_vec()
}

#[test]
fn what_follows_a_message_and_begins_no_other_is_its_body() {
    let mut connection = Connection::default();
    connection.take(0, b"GET / HTTP/1.1\r\nHost: a\r\n\r\nmore of it\n", &mut Vec::new());
    assert_eq!(one(0, &mut connection, Buffer::HttpRequestBody), b"more of it\n");
    assert_eq!(events(&connection, 0), [AppEvent::HttpBodyUnexpected]);
    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nmore\n";
    connection.take(1, response, &mut Vec::new());
    assert_eq!(one(1, &mut connection, Buffer::FileData), b"more\n");
    connection.take(0, b"GET /2 HTTP/1.1\r\nHost: a\r\n\r\nend", &mut Vec::new());
    assert_eq!(events(&connection, 1), []);
    connection.close(0);
    assert_eq!(events(&connection, 1), []);
    connection.take(0, b"GET /3", &mut Vec::new());
    connection.close(0);
}

#[test]
fn what_follows_a_message_is_its_body_before_its_line_ends() {
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n";
    let mut connection = Connection::default();
    connection.take(0, &[head, b"xxev".as_slice()].concat(), &mut Vec::new());
    assert_eq!(one(0, &mut connection, Buffer::HttpRequestBody), b"xxev");
    connection.take(0, b"il GET /no HTTP/1.1\r\n\r\n", &mut Vec::new());
    assert!(one(0, &mut connection, Buffer::HttpRequestBody).starts_with(b"xxevil GET"));
    assert_eq!(events(&connection, 0), [AppEvent::HttpBodyUnexpected]);
    for (length, body) in [("0x8", "evil"), ("-1", "evil"), ("2\r\nContent-Length: 4", "ev")] {
        let mut connection = Connection::default();
        connection.take(0, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &mut Vec::new());
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
        connection.take(1, response.as_bytes(), &mut Vec::new());
        connection.close(1);
        assert_eq!(one(1, &mut connection, Buffer::FileData), body.as_bytes(), "{length}");
    }
}

#[test]
fn a_response_without_a_request_is_one_and_odd() {
    let mut connection = Connection::default();
    connection.take(0, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &mut Vec::new());
    connection.take(1, b"SSH-2.0-x\r\n", &mut Vec::new());
    assert_eq!(events(&connection, 0), []);
    connection.take(1, b"Protocol mismatch.\n", &mut Vec::new());
    assert_eq!(events(&connection, 1), [AppEvent::HttpUnmatchedResponse]);
}
