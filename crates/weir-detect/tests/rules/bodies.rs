//! Bodies of HTTP whose heads say of them what is not so.

use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

use crate::bench::Bench;

const RULES: &str = "\
    alert http any any -> any any (flow:to_client; file.data; content:\"evil\"; sid:1;)\n\
    alert http any any -> any any (flow:to_server; http.request_body; content:\"evil\"; sid:2;)";

/// The alerts about a body that comes in pieces, behind such lines of a head.
fn alerted(headers: &str, body: &[u8], piece: usize) -> Vec<u32> {
    let mut bench = Bench::new(RULES);
    bench.connect();
    bench.client(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    bench.server(format!("HTTP/1.1 200 OK\r\n{headers}\r\n").as_bytes());
    body.chunks(piece).for_each(|it| _ = bench.server(it));
    bench.tcp(weir_detect::Direction::Responder, 17, b"");
    bench.alerted()
}

#[test]
fn bodies_are_shown_whatever_they_are_said_to_be_encoded_in() {
    let text = b"some text with evil in it";
    let level = Compression::default();
    let mut gzip = GzEncoder::new(Vec::new(), level);
    let mut zlib = ZlibEncoder::new(Vec::new(), level);
    let mut bare = DeflateEncoder::new(Vec::new(), level);
    gzip.write_all(text).unwrap();
    zlib.write_all(text).unwrap();
    bare.write_all(text).unwrap();
    let sent =
        [text.to_vec(), gzip.finish().unwrap(), zlib.finish().unwrap(), bare.finish().unwrap()];
    for encoding in ["gzip", "x-gzip", "deflate", "gzip, deflate"] {
        for body in &sent {
            for length in [String::new(), format!("Content-Length: {}\r\n", body.len())] {
                let headers = format!("Content-Encoding: {encoding}\r\n{length}");
                assert_eq!(alerted(&headers, body, 7), [1], "{headers} {body:?}");
            }
        }
    }
}

#[test]
fn bodies_are_shown_whatever_they_are_said_to_be_long() {
    for length in ["-1", "0x8", "8x", "2, 8", "0", "2", "2\r\nContent-Length: 8"] {
        let mut bench = Bench::new(RULES);
        bench.connect();
        let request = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        bench.client(format!("{request}xxevilxx").as_bytes());
        bench.server(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\nxxe").as_bytes());
        bench.server(b"vilxx");
        bench.tcp(weir_detect::Direction::Responder, 17, b"");
        assert_eq!(bench.alerted(), [2, 1], "{length}");
    }
}

#[test]
fn nothing_is_said_to_be_absent_from_a_body_of_which_more_comes() {
    let rules = "alert http any any -> any any (file.data; content:!\"evil\"; sid:1;)\n\
                 alert http any any -> any any (http.response_body; content:!\"none\"; sid:2;)\n\
                 alert http any any -> any any (http.response_body; content:\"ev\"; sid:3;)";
    let mut bench = Bench::new(rules);
    bench.connect();
    bench.client(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    bench.server(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nev");
    assert_eq!(bench.alerted(), [3]);
    bench.server(b"il");
    assert_eq!(bench.alerted(), [2]);
}

/// The alerts about a body that is sent by a request, in pieces.
fn sent(method: &str, kind: &str, body: &[u8], piece: usize) -> Vec<u32> {
    let mut bench = Bench::new(
        "alert http any any -> any any (file.data; content:\"MZ evil\"; startswith; sid:1;)\n\
         alert http any any -> any any (file.data; content:\"evil\"; sid:2;)\n\
         alert http any any -> any any (file.data; content:\"name=\"; sid:3;)\n\
         alert http any any -> any any (file.data; content:\"MZ\"; content:\"other\"; sid:4;)\n\
         alert http any any -> any any (file.data; bsize:7; sid:5;)\n\
         alert http any any -> any any (file.data; to_md5; \
            content:\"|41 ba 16 9c 06 af e6 31 da a4 23 80 0b 11 58 c0|\"; sid:6;)\n\
         alert http any any -> any any (http.request_body; content:\"evil\"; sid:7;)",
    );
    bench.connect();
    let length = body.len();
    let head = format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\n");
    bench.client(format!("{head}Content-Length: {length}\r\n\r\n").as_bytes());
    body.chunks(piece).for_each(|it| _ = bench.client(it));
    let mut alerted = bench.alerted();
    alerted.sort_unstable();
    alerted
}

/// Asked: Suricata 8.0.7.
#[test]
fn files_of_a_form_are_looked_at_each_by_itself_and_posts_and_puts_alone_send_files() {
    let form = b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\nvalue\r\n\
        --x\r\nContent-Disposition: form-data; name=f; filename=one\r\n\r\nMZ evil\r\n\
        --x\r\nContent-Disposition: form-data; name=g; filename=two\r\n\r\nother\r\n--x--\r\n";
    let kind = "multipart/form-data; boundary=x";
    for piece in [1, 7, 1000] {
        assert_eq!(sent("POST", kind, form, piece), [1, 2, 5, 6, 7], "{piece}");
        assert_eq!(sent("PATCH", kind, form, piece), [7], "{piece}");
        assert_eq!(sent("POST", "text/plain", b"MZ evil", piece), [1, 2, 5, 6, 7], "{piece}");
    }
    assert_eq!(sent("PUT", kind, form, 1000), [2, 3, 4, 7], "one file");
}

/// Whatever kind of parts it has, and however its receiver reads what stands between them.
#[test]
fn a_body_of_several_parts_is_taken_apart_however_it_is_called() {
    let part = |boundary: &str| {
        format!(
            "--{boundary}\r\nContent-Disposition: form-data; filename=\"one\"\r\n\r\nMZ evil\r\n\
             --{boundary}--\r\n"
        )
    };
    for (kind, boundary) in [
        ("multipart/form-data; boundary=x", "x"),
        ("multipart/mixed; boundary=x", "x"),
        ("multipart/related; boundary=\"x y\"", "x y"),
        ("multipart/form-data; boundary=x; boundary=y", "x"),
        ("multipart/form-data; boundary=x; boundary=y", "y"),
        ("multipart/form-data; boundary=x y", "x y"),
    ] {
        let found = sent("POST", kind, part(boundary).as_bytes(), 1000);
        assert!(found.starts_with(&[1, 2]), "{kind}: {found:?}");
    }
}
