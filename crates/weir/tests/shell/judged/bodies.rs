//! Bodies of HTTP, compressed and in chunks.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

pub(super) fn gzip(data: &[u8]) -> Vec<u8> {
    let mut to = GzEncoder::new(Vec::new(), Compression::default());
    to.write_all(data).unwrap();
    to.finish().unwrap()
}

pub(super) fn zlib(data: &[u8]) -> Vec<u8> {
    let mut to = ZlibEncoder::new(Vec::new(), Compression::default());
    to.write_all(data).unwrap();
    to.finish().unwrap()
}

/// Without zlib's header, as some servers send what they call deflate.
pub(super) fn raw_deflate(data: &[u8]) -> Vec<u8> {
    let mut to = DeflateEncoder::new(Vec::new(), Compression::default());
    to.write_all(data).unwrap();
    to.finish().unwrap()
}

/// In chunks of so many bytes, and with an extension if `is_extended`.
pub(super) fn chunked(data: &[u8], length: usize, is_extended: bool) -> Vec<u8> {
    let extension = if is_extended { ";name=value" } else { "" };
    let mut all = Vec::new();
    for chunk in data.chunks(length) {
        all.extend(format!("{:x}{extension}\r\n", chunk.len()).into_bytes());
        all.extend(chunk);
        all.extend(b"\r\n");
    }
    all.extend(b"0\r\n\r\n");
    all
}

/// A message: its first line, headers and body.
pub(super) fn message(first: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let mut all = format!("{first}\r\n").into_bytes();
    for header in headers {
        all.extend(header.as_bytes());
        all.extend(b"\r\n");
    }
    all.extend(b"\r\n");
    all.extend(body);
    all
}
