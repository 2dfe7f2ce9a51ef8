//! BitTorrent's distributed hash table (BEP 5): a dictionary in each datagram (BEP 3).

use std::net::Ipv6Addr;

use super::Parser;
use super::unit::{Said, Unit};
use crate::buffers::event::AppEvent;
use crate::heap::no_heap;
use crate::rule::Protocol;
use crate::value::{Object, Value, hex};

/// Lists and dictionaries within each other, at most (Suricata's limit): messages have three.
const DEPTH_MAX: usize = 3;
/// Bytes of a node's identifier.
const ID_LEN: usize = 20;

/// Messages of either side, each a transaction of its own.
#[derive(Debug, Default)]
pub(crate) struct Bittorrent {
    count: u64,
}
no_heap!(Bittorrent);

impl Parser for Bittorrent {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        // Others share the port.
        if !BEGINNINGS.iter().any(|it| bytes.starts_with(it)) {
            return;
        }
        let mut unit = Unit::new(Protocol::BittorrentDht, self.count);
        self.count += 1;
        let mut object = Object::default();
        let identifier = Element::first(bytes).and_then(|it| told(&mut object, &it));
        if identifier.is_none() {
            unit.odd(AppEvent::BittorrentMalformed);
            said.has_failed = true;
        }
        object.put("transaction_id", hex(identifier.unwrap_or(&[]), ""));
        unit.tells("bittorrent_dht", object);
        said.message(unit, side);
    }
}

/// What messages begin with.
const BEGINNINGS: [&[u8]; 4] = [b"d1:ad", b"d1:rd", b"d2:ip", b"d1:el"];

/// What is written, by BEP 3.
#[derive(Debug, PartialEq, Eq)]
enum Element<'a> {
    Number(i64),
    Bytes(&'a [u8]),
    List(Vec<Element<'a>>),
    Dictionary(Vec<(&'a [u8], Element<'a>)>),
}

impl<'a> Element<'a> {
    /// The one that `bytes` begin with.
    fn first(mut bytes: &'a [u8]) -> Option<Self> {
        Self::next(&mut bytes, 0)
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
                    // Keys are sorted, and each is there once.
                    if pairs.last().is_some_and(|(last, _)| *last >= key) {
                        return None;
                    }
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

    /// The bytes under that key, if there are some; `None`: it is something else.
    fn bytes(&self, key: &[u8]) -> Option<Option<&'a [u8]>> {
        match self.get(key) {
            None => Some(None),
            Some(Self::Bytes(bytes)) => Some(Some(bytes)),
            Some(_) => None,
        }
    }

    /// The number under that key, likewise, which is at most so great.
    fn number(&self, key: &[u8], most: u16) -> Option<Option<i64>> {
        match self.get(key) {
            None => Some(None),
            Some(Self::Number(number)) if (0..=i64::from(most)).contains(number) => {
                Some(Some(*number))
            }
            Some(_) => None,
        }
    }
}

/// Takes a number, in the one way to write it, and the byte that ends it.
fn number(rest: &mut &[u8], end: u8) -> Option<i64> {
    let at = rest.iter().position(|it| *it == end)?;
    let digits = rest[..at].strip_prefix(b"-").unwrap_or(&rest[..at]);
    let is_odd = match digits {
        [b'0'] => at > 1,
        [b'1'..=b'9', rest @ ..] => !rest.iter().all(u8::is_ascii_digit),
        _ => true,
    };
    let number = std::str::from_utf8(&rest[..at]).ok().filter(|_| !is_odd)?.parse().ok()?;
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

/// Tells what a message says, and its identifier; `None`: it is none.
fn told<'a>(object: &mut Object, message: &Element<'a>) -> Option<&'a [u8]> {
    let kind = message.bytes(b"y")??;
    let asked = utf8(message.bytes(b"q")?)?;
    let request = all(message.get(b"a").map(request))?;
    let response = all(message.get(b"r").map(response))?;
    let error = all(message.get(b"e").map(error))?;
    let identifier = message.bytes(b"t")?;
    let version = message.bytes(b"v")?;
    match kind {
        b"q" => {
            object.put("request_type", asked?);
            object.put("request", request?);
        }
        b"r" => object.put("response", response?),
        b"e" => object.put("error", error?),
        _ => return None,
    }
    let identifier = identifier?;
    object.put_some("client_version", version.map(|it| hex(it, "")));
    Some(identifier)
}

/// What is not there is well, what cannot be read is not.
fn all<T>(found: Option<Option<T>>) -> Option<Option<T>> {
    match found {
        None => Some(None),
        Some(found) => found.map(Some),
    }
}

fn utf8(text: Option<&[u8]>) -> Option<Option<&[u8]>> {
    text.is_none_or(|it| std::str::from_utf8(it).is_ok()).then_some(text)
}

fn request(asked: &Element<'_>) -> Option<Object> {
    let mut object = Object::default();
    object.put("id", hex(asked.bytes(b"id")??, ""));
    for name in ["target", "info_hash", "token"] {
        object.put_some(name, asked.bytes(name.as_bytes())?.map(|it| hex(it, "")));
    }
    for (name, most) in [("implied_port", u16::from(u8::MAX)), ("port", u16::MAX)] {
        object.put_some(name, asked.number(name.as_bytes(), most)?);
    }
    Some(object)
}

fn response(answer: &Element<'_>) -> Option<Object> {
    let mut object = Object::default();
    object.put("id", hex(answer.bytes(b"id")??, ""));
    for (name, address_len) in [("nodes", 4), ("nodes6", 16)] {
        let Some(nodes) = answer.bytes(name.as_bytes())? else { continue };
        let told = nodes.chunks_exact(ID_LEN + address_len + 2).filter_map(|it| {
            let (id, place) = it.split_at_checked(ID_LEN)?;
            place_of(Object::default().with("id", hex(id, "")), place)
        });
        put_list(&mut object, name, told.collect());
    }
    if let Some(Element::List(list)) = answer.get(b"values") {
        let told = list.iter().map(|it| match it {
            Element::Bytes(place) => {
                let length = if place.len() < 18 { 6 } else { 18 };
                place_of(Object::default(), place.get(..length)?)
            }
            _ => None,
        });
        put_list(&mut object, "values", told.collect::<Option<_>>()?);
    }
    object.put_some("token", answer.bytes(b"token")?.map(|it| hex(it, "")));
    Some(object)
}

fn put_list(object: &mut Object, name: &'static str, list: Vec<Object>) {
    let list: Vec<Value> = list.into_iter().map(Value::from).collect();
    object.put_some(name, (!list.is_empty()).then_some(list));
}

/// A number and a text; of several the last.
fn error(list: &Element<'_>) -> Option<Object> {
    let Element::List(list) = list else { return None };
    let (mut number, mut text) = (None, None);
    for element in list {
        match element {
            Element::Number(it) => number = Some(u16::try_from(*it).ok()?),
            Element::Bytes(it) => text = utf8(Some(it))?,
            _ => {}
        }
    }
    Some(Object::default().with("num", number?).with("msg", text?))
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

    const ID: &str = "2:id20:abcdefghij0123456789";

    fn is_malformed(text: &str) -> bool {
        said(text.as_bytes()).units[0].events.has(AppEvent::BittorrentMalformed)
    }

    #[test]
    fn messages_are_read_as_strictly_as_suricata_does() {
        let ask = |arguments: &str, rest: &str| format!("d1:ad{ID}{arguments}e{rest}e");
        let rest = "1:q4:ping1:t2:aa1:y1:q";
        for well in ["", "4:porti6881e", "12:implied_porti0e", "5:token0:", "1:z1:a"] {
            assert!(!is_malformed(&ask(well, rest)), "{well}");
        }
        for odd in [
            "4:porti70000e",
            "4:porti-1e",
            "4:porti+1e",
            "4:porti01e",
            "4:porti-0e",
            "4:portie",
            "4:port1:a",
            "5:token1:a5:token1:a",
            "5:token1:a4:porti1e",
            "5:tokeni1e",
            "5:token01:a",
            "5:token+1:a",
            "1:zlleee",
        ] {
            assert!(is_malformed(&ask(odd, rest)), "{odd}");
        }
        for rest in ["", "1:q4:ping1:t2:aa", "1:t2:aa1:y1:q", "1:q4:ping1:t2:aa1:y1:z", "1:q4:ping"]
        {
            assert!(is_malformed(&ask("", rest)), "{rest}");
        }
        assert!(is_malformed("d1:ad1:q4:ping1:t2:aa1:y1:qe"), "no id");
        assert!(!is_malformed(&format!("{} and more", ask("", rest))));
    }

    #[test]
    fn answers_and_errors_are_read() {
        let answer = |values: &str| format!("d1:rd{ID}6:valuesl{values}ee1:t2:aa1:y1:re");
        assert!(!is_malformed(&answer("6:axje.u")));
        assert!(is_malformed(&answer("5:axje.")) && is_malformed(&answer("i5e")));
        assert!(!is_malformed("d1:eli201e3:abce1:t2:aa1:y1:ee"));
        assert!(is_malformed("d1:eli99999e3:abce1:t2:aa1:y1:ee"));
        assert!(is_malformed("d1:eli201ee1:t2:aa1:y1:ee"));
    }

    #[test]
    fn what_is_none_of_it_is_passed_over() {
        assert!(said(b"A uTP packet").units.is_empty());
        assert!(said(b"d1:y1:qe").units.is_empty());
    }

    #[test]
    fn lists_within_lists_are_read_so_far_and_no_further() {
        let nested = |depth: usize| [vec![b'l'; depth], vec![b'e'; depth]].concat();
        assert!(Element::first(&nested(DEPTH_MAX)).is_some());
        assert!(Element::first(&nested(DEPTH_MAX + 1)).is_none());
        assert!(Element::first(&vec![b'l'; 65_000]).is_none());
    }
}
