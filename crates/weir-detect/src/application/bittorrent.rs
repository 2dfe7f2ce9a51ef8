//! BitTorrent's distributed hash table (BEP 5): a dictionary in each datagram (BEP 3).

use std::net::Ipv6Addr;

use super::Parser;
use super::unit::{Said, Unit};
use crate::buffers::event::AppEvent;
use crate::rule::Protocol;
use crate::value::{Object, Value, hex};

/// Lists and dictionaries within each other, at most; messages have three.
const DEPTH_MAX: usize = 8;
/// Bytes of a node's identifier.
const ID_LEN: usize = 20;

/// Messages of either side, each a transaction of its own.
#[derive(Debug, Default)]
pub(crate) struct Bittorrent {
    count: u64,
}

impl Parser for Bittorrent {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        let mut unit = Unit::new(Protocol::BittorrentDht, self.count);
        self.count += 1;
        let message = Element::whole(bytes);
        let identifier = message.as_ref().and_then(|it| it.bytes(b"t"));
        if identifier.is_none() {
            unit.odd(AppEvent::BittorrentMalformed);
        }
        let object = Object::default().with("transaction_id", hex(identifier.unwrap_or(&[]), ""));
        unit.tells("bittorrent_dht", message.map_or(object.clone(), |it| told(object, &it)));
        said.message(unit, side);
    }
}

/// What is written, by BEP 3.
#[derive(Debug, PartialEq, Eq)]
enum Element<'a> {
    Number(i64),
    Bytes(&'a [u8]),
    List(Vec<Element<'a>>),
    Dictionary(Vec<(&'a [u8], Element<'a>)>),
}

impl<'a> Element<'a> {
    /// The one that all of `bytes` are.
    fn whole(mut bytes: &'a [u8]) -> Option<Self> {
        let element = Self::next(&mut bytes, 0)?;
        bytes.is_empty().then_some(element)
    }

    fn next(rest: &mut &'a [u8], depth: usize) -> Option<Self> {
        let (first, behind) = rest.split_first()?;
        if *first == b'i' {
            *rest = behind;
            return Some(Self::Number(number(rest, b'e')?));
        }
        if !matches!(first, b'l' | b'd') {
            return Some(Self::Bytes(text(rest)?));
        }
        if depth == DEPTH_MAX {
            return None;
        }
        *rest = behind;
        let (mut list, mut pairs) = (Vec::new(), Vec::new());
        loop {
            match rest.split_first()? {
                (b'e', behind) => {
                    *rest = behind;
                    let is_list = *first == b'l';
                    return Some(if is_list { Self::List(list) } else { Self::Dictionary(pairs) });
                }
                _ if *first == b'l' => list.push(Self::next(rest, depth + 1)?),
                _ => {
                    let key = text(rest)?;
                    pairs.push((key, Self::next(rest, depth + 1)?));
                }
            }
        }
    }

    /// What a dictionary has under that key.
    fn get(&self, key: &[u8]) -> Option<&Self> {
        let Self::Dictionary(pairs) = self else { return None };
        pairs.iter().find(|it| it.0 == key).map(|it| &it.1)
    }

    fn bytes(&self, key: &[u8]) -> Option<&'a [u8]> {
        match self.get(key)? {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    fn number(&self, key: &[u8]) -> Option<i64> {
        match self.get(key)? {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }
}

/// Takes a number and the byte that ends it.
fn number(rest: &mut &[u8], end: u8) -> Option<i64> {
    let at = rest.iter().position(|it| *it == end)?;
    let number = std::str::from_utf8(&rest[..at]).ok()?.parse().ok()?;
    *rest = &rest[at + 1..];
    Some(number)
}

/// Takes bytes behind their count: `4:ping`.
fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(number(rest, b':')?).ok()?;
    let (text, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(text)
}

fn told(mut object: Object, message: &Element<'_>) -> Object {
    let hexed = |it: &[u8]| hex(it, "");
    object.put_some("client_version", message.bytes(b"v").map(hexed));
    match message.bytes(b"y") {
        Some(b"q") => {
            object.put_some("request_type", message.bytes(b"q"));
            object.put_some("request", message.get(b"a").map(request));
        }
        Some(b"r") => object.put_some("response", message.get(b"r").map(response)),
        Some(b"e") => {
            if let Some(Element::List(list)) = message.get(b"e")
                && let [Element::Number(number), Element::Bytes(text), ..] = &list[..]
            {
                object.put("error", Object::default().with("num", *number).with("msg", *text));
            }
        }
        _ => {}
    }
    object
}

fn request(asked: &Element<'_>) -> Object {
    let mut object = Object::default();
    for name in ["id", "target", "info_hash", "token"] {
        object.put_some(name, asked.bytes(name.as_bytes()).map(|it| hex(it, "")));
    }
    for name in ["implied_port", "port"] {
        object.put_some(name, asked.number(name.as_bytes()));
    }
    object
}

fn response(answer: &Element<'_>) -> Object {
    let mut object = Object::default();
    object.put_some("id", answer.bytes(b"id").map(|it| hex(it, "")));
    for (name, address_len) in [("nodes", 4), ("nodes6", 16)] {
        let nodes = answer.bytes(name.as_bytes()).map(|it| {
            let nodes = it.chunks_exact(ID_LEN + address_len + 2);
            let told = nodes.filter_map(|it| {
                let (id, place) = it.split_at_checked(ID_LEN)?;
                place_of(Object::default().with("id", hex(id, "")), place)
            });
            told.map(Value::from).collect::<Vec<_>>()
        });
        object.put_some(name, nodes);
    }
    if let Some(Element::List(list)) = answer.get(b"values") {
        let told = list.iter().filter_map(|it| match it {
            Element::Bytes(place) => place_of(Object::default(), place),
            _ => None,
        });
        object.put("values", told.map(Value::from).collect::<Vec<_>>());
    }
    object.put_some("token", answer.bytes(b"token").map(|it| hex(it, "")));
    object
}

/// An address and a port, in the bytes of either version of IP.
fn place_of(object: Object, bytes: &[u8]) -> Option<Object> {
    let (address, port) = bytes.split_last_chunk::<2>()?;
    let address = match (<[u8; 4]>::try_from(address), <[u8; 16]>::try_from(address)) {
        (Ok([a, b, c, d]), _) => format!("{a}.{b}.{c}.{d}"),
        (_, Ok(address)) => {
            let parts = Ipv6Addr::from(address).segments().map(|it| format!("{it:04x}"));
            parts.join(":")
        }
        _ => return None,
    };
    Some(object.with("ip", address).with("port", u16::from_be_bytes(*port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(bytes: &[u8]) -> Said {
        let mut said = Said::default();
        Bittorrent::default().take(0, bytes, &mut said);
        said
    }

    #[test]
    fn a_message_without_an_identifier_or_an_end_is_odd() {
        for odd in [&b"d1:y1:qe"[..], b"d1:t2:aa", b"d1:t9:aae", b"i1e", b"d1:t2:aaee"] {
            assert!(said(odd).units[0].events.has(AppEvent::BittorrentMalformed), "{odd:?}");
        }
        assert!(!said(b"d1:t2:aae").units[0].events.has(AppEvent::BittorrentMalformed));
    }

    #[test]
    fn lists_within_lists_are_read_so_far_and_no_further() {
        let nested = |depth: usize| [vec![b'l'; depth], vec![b'e'; depth]].concat();
        assert!(Element::whole(&nested(DEPTH_MAX)).is_some());
        assert!(Element::whole(&nested(DEPTH_MAX + 1)).is_none());
        assert!(Element::whole(&vec![b'l'; 65_000]).is_none());
    }
}
