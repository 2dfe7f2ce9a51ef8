//! What buffers hold that is put together of a message's head, as Suricata does.

use super::half::Half;
use super::uri;

/// A message's headers: of one that comes several times, HTTP/1's values are one, HTTP/2's are not.
fn list(half: &Half) -> &[(Vec<u8>, Vec<u8>)] {
    match half.protocol.as_slice() {
        b"HTTP/2" => &half.fields,
        _ => &half.headers,
    }
}

/// All headers but the cookies of its side, which have a buffer of their own.
pub(super) fn headers(half: &Half, is_request: bool) -> Vec<u8> {
    let cookie: &[u8] = if is_request { b"cookie" } else { b"set-cookie" };
    let list = list(half);
    let mut joined = Vec::with_capacity(lines_len(list));
    list.iter()
        .filter(|it| !it.0.eq_ignore_ascii_case(cookie))
        .for_each(|header| put_line(header, &mut joined));
    joined
}

fn put_line((name, value): &(Vec<u8>, Vec<u8>), lines: &mut Vec<u8>) {
    for part in [name.as_slice(), b": ", value, b"\r\n"] {
        lines.extend_from_slice(part);
    }
}

/// Bytes of all headers, each in its line.
fn lines_len(headers: &[(Vec<u8>, Vec<u8>)]) -> usize {
    headers.iter().map(|(name, value)| name.len() + value.len() + 4).sum()
}

/// Calls `look` with each header as it stands in its line, until it says yes; whether it did.
pub(super) fn each_header(half: &Half, look: &mut dyn FnMut(&[u8]) -> bool) -> bool {
    let list = if half.fields.is_empty() { &half.headers } else { &half.fields };
    list.iter().any(|(name, value)| look(&[name.as_slice(), b": ", value].concat()))
}

/// The names of all headers, each between ends of lines.
pub(super) fn header_names(half: &Half) -> Vec<u8> {
    let list = list(half);
    let mut joined = Vec::with_capacity(list.iter().map(|it| it.0.len() + 2).sum::<usize>() + 4);
    joined.extend_from_slice(b"\r\n");
    for (name, _) in list {
        joined.extend_from_slice(name);
        joined.extend_from_slice(b"\r\n");
    }
    joined.extend_from_slice(b"\r\n");
    joined
}

/// A first line, and all headers as they are told.
pub(super) fn start(half: &Half) -> Vec<u8> {
    let mut start = Vec::with_capacity(half.first_line.len() + lines_len(&half.headers) + 4);
    start.extend_from_slice(&half.first_line);
    start.extend_from_slice(b"\r\n");
    half.headers.iter().for_each(|header| put_line(header, &mut start));
    if !half.headers.is_empty() {
        start.extend_from_slice(b"\r\n");
    }
    start
}

/// Whom a request is for: by its target, else by its header. An empty one is there only as it came:
/// rules about any host but a few have nothing to look at.
pub(super) fn host(half: &Half, is_raw: bool) -> Option<Vec<u8>> {
    // HTTP/2 asks for tunnels without a target: whom they lead to is a header of its own.
    if let Some(authority) = half.authority().filter(|it| !it.is_empty()) {
        return Some(uri::host_of(authority).to_ascii_lowercase());
    }
    let authority = half.header(b":authority");
    let named = authority.or(half.header(b"host"))?;
    if is_raw || named.is_empty() {
        return is_raw.then(|| named.to_vec());
    }
    let host = if authority.is_some() { uri::host_of(named) } else { uri::without_port(named) };
    Some(host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::super::http2::Header;
    use super::*;

    #[test]
    fn a_tunnel_leads_to_its_target_or_in_http_2_to_its_authority() {
        let field = |name: &str, value: &str| Header { name: name.into(), value: value.into() };
        let fields = vec![field(":method", "CONNECT"), field(":authority", "A.example:443")];
        let mut half = Half::default();
        half.put_fields(fields, &[]);
        assert_eq!(host(&half, false), Some(b"a.example".to_vec()));
        let half = Half::request(b"CONNECT B.example:443 HTTP/1.1\r\nHost: c\r\n\r\n");
        assert_eq!(host(&half, true), Some(b"b.example".to_vec()));
    }
}
