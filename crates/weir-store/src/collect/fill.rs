//! Empty fields of variable length, as Open vSwitch's descriptions of interfaces are: RFC 7011
//! allows them (section 7), the parser gives their whole set up. A message that has some is given
//! to the parser with a zero byte in each.
//!
//! ```text
//!  set 256 | len | 10.0.0.1 .. | 00 | ..   ->   set 256 | len + 1 | 10.0.0.1 .. | 01 00 | ..
//! ```
//!
//! What does not look as its template says stays as it came, for the parser to judge.

use std::borrow::Cow;
use std::collections::HashMap;

/// The length of a template's field whose length stands in the record (RFC 7011 s7).
const VARIABLE: u16 = 65_535;

/// Bytes of a message's header, and of a set's.
const MESSAGE_HEADER: usize = 16;
const SET_HEADER: usize = 4;

/// The field number's bit that says that an enterprise's number follows.
const ENTERPRISE: u16 = 0x8000;

/// Templates with fields of variable length, at most; with more, all are forgotten until they are
/// sent again.
const LAYOUTS_MAX: usize = 1024;

/// Lengths of fields, by the port that sent the template and the template's number.
#[derive(Debug, Default)]
pub(super) struct Layouts(HashMap<(u16, u16), Vec<u16>>);

impl Layouts {
    /// The IPFIX message as the parser can read it.
    pub(super) fn filled<'a>(&mut self, port: u16, message: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(length) = word(message, 2).map(usize::from) else { return Cow::Borrowed(message) };
        if message.get(..2) != Some(&[0, 10]) || length != message.len() {
            return Cow::Borrowed(message);
        }
        let mut filled: Option<Vec<u8>> = None;
        let mut at = MESSAGE_HEADER;
        while let (Some(number), Some(length)) = (word(message, at), word(message, at + 2)) {
            let end = at + usize::from(length);
            let Some(set) = message.get(at..end).filter(|it| it.len() >= SET_HEADER) else { break };
            let more = match number {
                2 | 3 => {
                    self.learn(port, &set[SET_HEADER..], number == 3);
                    None
                }
                _ => self.0.get(&(port, number)).and_then(|lengths| fill_set(set, lengths)),
            };
            match (&mut filled, more) {
                (None, None) => {}
                (None, Some(more)) => filled = Some([&message[..at], &more].concat()),
                (Some(filled), more) => filled.extend_from_slice(more.as_deref().unwrap_or(set)),
            }
            at = end;
        }
        let Some(mut filled) = filled else { return Cow::Borrowed(message) };
        filled.extend_from_slice(&message[at..]);
        let Ok(length) = u16::try_from(filled.len()) else { return Cow::Borrowed(message) };
        filled[2..4].copy_from_slice(&length.to_be_bytes());
        Cow::Owned(filled)
    }

    /// The templates of a set.
    fn learn(&mut self, port: u16, mut set: &[u8], is_options: bool) {
        while let (Some(number), Some(count)) = (word(set, 0), word(set, 2)) {
            let mut at = if is_options { 6 } else { 4 };
            let mut lengths = Vec::new();
            for _ in 0..count {
                let (Some(field), Some(length)) = (word(set, at), word(set, at + 2)) else {
                    return;
                };
                at += if field & ENTERPRISE == 0 { 4 } else { 8 };
                lengths.push(length);
            }
            if self.0.len() >= LAYOUTS_MAX {
                self.0.clear();
            }
            match lengths.contains(&VARIABLE) {
                true => drop(self.0.insert((port, number), lengths)),
                false => drop(self.0.remove(&(port, number))),
            }
            let Some(rest) = set.get(at..) else { return };
            set = rest;
        }
    }
}

/// A set of records with each empty field filled; `None`: it has none, or is not so laid out.
fn fill_set(set: &[u8], lengths: &[u16]) -> Option<Vec<u8>> {
    let (mut filled, mut is_changed) = (set[..SET_HEADER].to_vec(), false);
    let mut rest = &set[SET_HEADER..];
    // What is shorter than a record of empty fields is padding.
    let least: usize =
        lengths.iter().map(|it| if *it == VARIABLE { 1 } else { (*it).into() }).sum();
    while rest.len() >= least.max(1) {
        for length in lengths {
            let size = match (*length, rest.first()) {
                (VARIABLE, Some(0)) => {
                    filled.extend_from_slice(&[1, 0]);
                    rest = &rest[1..];
                    is_changed = true;
                    continue;
                }
                (VARIABLE, Some(255)) => 3 + usize::from(word(rest, 1)?),
                (VARIABLE, first) => 1 + usize::from(*first?),
                (fixed, _) => fixed.into(),
            };
            filled.extend_from_slice(rest.get(..size)?);
            rest = &rest[size..];
        }
    }
    filled.extend_from_slice(rest);
    let length = u16::try_from(filled.len()).ok()?;
    filled[2..4].copy_from_slice(&length.to_be_bytes());
    is_changed.then_some(filled)
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of these sets, each a number and its content.
    fn message(sets: &[(u16, &[u8])]) -> Vec<u8> {
        let mut out = vec![0; MESSAGE_HEADER];
        out[1] = 10;
        for (number, content) in sets {
            out.extend(number.to_be_bytes());
            out.extend((content.len() as u16 + 4).to_be_bytes());
            out.extend_from_slice(content);
        }
        let length = (out.len() as u16).to_be_bytes();
        out[2..4].copy_from_slice(&length);
        out
    }

    /// Template 256: a field of 2 bytes, one of variable length, and an enterprise's of 1 byte.
    const TEMPLATE: (u16, &[u8]) =
        (2, &[1, 0, 0, 3, 0, 7, 0, 2, 0, 83, 255, 255, 0x80, 1, 0, 1, 0, 0, 0, 9]);

    #[test]
    fn empty_fields_get_a_byte_and_all_else_stays() {
        let mut layouts = Layouts::default();
        let records = [9, 9, 0, 7, 8, 8, 2, b'e', b'0', 6, 5, 5, 255, 0, 1, b'x', 4];
        let others: (u16, &[u8]) = (300, &[0, 0, 0]);
        let came = message(&[others, TEMPLATE, (256, &records), others]);
        let filled = [&[9, 9, 1, 0][..], &records[3..]].concat();
        let wanted = message(&[others, TEMPLATE, (256, &filled), others]);
        assert_eq!(layouts.filled(4000, &came), wanted);
        // The template holds for later messages of that port, and for no other.
        let later = message(&[(256, &[9, 9, 0, 7, 0])]);
        assert_eq!(layouts.filled(4000, &later), message(&[(256, &[9, 9, 1, 0, 7, 0])]), "padding");
        assert!(matches!(layouts.filled(4001, &later), Cow::Borrowed(_)));
        let full = message(&[(256, &[9, 9, 1, b'e', 7])]);
        assert!(matches!(layouts.filled(4000, &full), Cow::Borrowed(_)), "nothing is empty");
    }

    #[test]
    fn what_is_not_as_its_template_says_stays_as_it_came() {
        let mut layouts = Layouts::default();
        layouts.filled(1, &message(&[TEMPLATE]));
        for broken in [
            message(&[(256, &[9, 9, 0, 7, 9, 9, 200, 1])]),
            message(&[(256, &[9, 9, 0, 7, 9, 9, 255, 9, 9, 1])]),
            message(&[(2, &[1, 0, 0, 9, 0, 7])]),
            message(&[(2, &[])]),
            vec![0, 10, 0, 99],
            vec![0, 9],
            vec![],
        ] {
            assert_eq!(layouts.filled(1, &broken), broken);
        }
        // A template that is given again without such fields.
        layouts.filled(1, &message(&[(2, &[1, 0, 0, 1, 0, 7, 0, 2])]));
        let fixed = message(&[(256, &[9, 9, 0, 0])]);
        assert_eq!(layouts.filled(1, &fixed), fixed);
    }

    #[test]
    fn templates_without_end_are_forgotten() {
        let mut layouts = Layouts::default();
        for number in 256..4000_u16 {
            let mut template = TEMPLATE.1.to_vec();
            template[..2].copy_from_slice(&number.to_be_bytes());
            layouts.filled(1, &message(&[(2, &template)]));
        }
        assert!(layouts.0.len() <= LAYOUTS_MAX);
    }
}
