//! HTTP/2 in clear, as a client with prior knowledge speaks it (RFC 9113, RFC 7541).

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RESET: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GO_AWAY: u8 = 7;
pub(super) const WINDOW: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
pub(super) const ACK: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const PADDED: u8 = 8;
pub(super) const PRIORITISED: u8 = 0x20;

/// `www.example.com` and `custom-key`, `custom-value` of RFC 7541 C.4, in Huffman's code.
pub(super) const HOST: &[u8] = b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff";
pub(super) const KEY: &[u8] = b"\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f";
pub(super) const VALUE: &[u8] = b"\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf";

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut all = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    all.extend([kind, flags]);
    all.extend(stream.to_be_bytes());
    all.extend(payload);
    all
}

fn text(is_coded: bool, value: &[u8]) -> Vec<u8> {
    let mut all = vec![u8::from(is_coded) << 7 | value.len() as u8];
    all.extend(value);
    all
}

/// A header as a literal that the table does not get; its name is that of the static table.
pub(super) fn named(index: u8, value: &[u8]) -> Vec<u8> {
    let first: &[u8] = if index < 15 { &[index] } else { &[15, index - 15] };
    [first, &text(false, value)].concat()
}

/// A header as a literal that the table gets, with a name of the static table, coded.
pub(super) fn indexed(index: u8, coded: &[u8]) -> Vec<u8> {
    [&[0x40 | index], text(true, coded).as_slice()].concat()
}

/// A header as a literal that the table gets, both of its parts written out, or coded.
pub(super) fn literal(is_coded: bool, name: &[u8], value: &[u8]) -> Vec<u8> {
    [&[0x40], text(is_coded, name).as_slice(), &text(is_coded, value)].concat()
}

/// A request for this path: `:method GET`, `:scheme http`, the path and the host as literals.
pub(super) fn get(path: &str, host: &str) -> Vec<u8> {
    [&[0x82, 0x86], named(4, path.as_bytes()).as_slice(), &named(1, host.as_bytes())].concat()
}

/// What a client begins with.
pub(super) fn beginning() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, b"\x00\x03\x00\x00\x00\x64\x00\x04\x00\x00\xff\xff")].concat()
}

/// What a server begins with.
pub(super) fn answer() -> Vec<u8> {
    [frame(SETTINGS, 0, 0, b""), frame(SETTINGS, ACK, 0, b"")].concat()
}
