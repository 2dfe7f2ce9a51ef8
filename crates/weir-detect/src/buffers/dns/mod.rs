//! DNS messages (RFC 1035): the names that they ask for, and what answers say.

mod multicast;
mod tell;

pub(crate) use tell::{CODES, TYPES};

use super::event::{AppEvent, AppEvents};
use crate::heap::heap_size;

/// Operations that there are (RFC 1035, 1996, 2136, 8490).
const OPCODE_MAX: u16 = 6;
const HEADER_LEN: usize = 12;
/// Questions of one message that are looked at, at most.
const QUESTIONS_MAX: usize = 16;
/// Records of a section that are looked at, at most.
const RECORDS_MAX: usize = 64;
/// Bytes of a name that are looked at, at most (Suricata's limit; RFC 1035 s2.3.4 allows 255).
const NAME_LEN_MAX: usize = 1025;
/// Labels and compression pointers of one name, at most.
const LABELS_MAX: usize = 255;

/// The type of the record that has options (RFC 6891 s6.1.1).
const OPTIONS: [u8; 2] = 41_u16.to_be_bytes();

/// Bytes of a message over TCP that are kept.
const STREAM_LEN_MAX: usize = 16 * 1024;

/// Messages over TCP (RFC 1035 s4.2.2).
#[derive(Debug, Default)]
pub(crate) struct Stream {
    held: [Vec<u8>; 2],
    /// What is odd about messages that are none: it is told of with no message.
    pub(crate) odd: Message,
    fresh: Vec<AppEvent>,
    /// Bytes were missing, by side, and nobody knows where the next message begins.
    is_lost: [bool; 2],
    /// Some query came.
    was_asked: bool,
    /// Something came that is no message, or one that is too long.
    has_failed: bool,
}
heap_size!(Stream { held, odd });

impl Stream {
    /// Bytes of a side are missing: a message begins where a segment begins with one.
    pub(crate) fn lose(&mut self, side: usize) {
        self.held[side].clear();
        self.is_lost[side] = true;
    }

    /// Takes in a side's next bytes.
    pub(crate) fn take(&mut self, side: usize, bytes: &[u8], tell: &mut dyn FnMut(Message)) {
        if self.is_lost[side] {
            let is_message = |it: &&[u8]| {
                let length = it.first_chunk().map(|it| usize::from(u16::from_be_bytes(*it)));
                let message = length.and_then(|length| it.get(2..2 + length));
                message.and_then(parse).is_some()
            };
            if !is_message(&bytes) {
                return;
            }
            self.is_lost[side] = false;
        }
        self.held[side].extend_from_slice(bytes);
        let mut count = 0;
        while let [high, low, rest @ ..] = self.held[side].as_slice() {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            let Some(message) = rest.get(..length).map(parse) else { break };
            self.held[side].drain(..2 + length);
            self.has_failed |= message.is_none() && length > 0;
            // Suricata tells of it where some message is not done with.
            let event = match &message {
                None if count > 0 => Some(AppEvent::DnsMalformed),
                Some(it) if it.is_response && side == 0 && count > 0 => {
                    Some(AppEvent::DnsNotRequest)
                }
                Some(it) if !it.is_response && side == 1 && self.was_asked => {
                    Some(AppEvent::DnsNotResponse)
                }
                _ => None,
            };
            self.was_asked |= side == 0 && message.is_some();
            count += 1;
            match (event, message) {
                (Some(event), _) if self.odd.events.raise(event) => self.fresh.push(event),
                (None, Some(message)) => tell(message),
                _ => {}
            }
        }
        self.has_failed |= self.is_too_long(side);
    }

    /// Whether it met what is no message, or one that is longer than is kept.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    pub(crate) fn is_too_long(&self, side: usize) -> bool {
        self.held[side].len() > STREAM_LEN_MAX
    }

    /// What was odd and not handed over before.
    pub(crate) fn take_events(&mut self) -> Vec<AppEvent> {
        std::mem::take(&mut self.fresh)
    }
}

/// A message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) is_response: bool,
    pub(crate) opcode: u16,
    pub(crate) response_code: u16,
    /// What is odd about it.
    pub(crate) events: AppEvents,
    /// Types that are asked for.
    pub(crate) types: Vec<u16>,
    /// Number of the question, and its flags, as they came.
    id: u16,
    flags: u16,
    /// Answers, authorities and additional records.
    pub(crate) records: [Vec<Record>; 3],
    /// It all, for what is told of it.
    bytes: Vec<u8>,
    /// Names as `www.example.org`, in the case in which they were sent.
    pub(crate) questions: Vec<Vec<u8>>,
    /// Which of these were longer, and are cut.
    are_cut: Vec<bool>,
}
heap_size!(Message { types, bytes, questions, are_cut });

impl Message {
    /// Calls `look` with each name that is asked for until it says yes; whether it did. The root
    /// has no name to look at, here and below.
    pub(crate) fn each_question(&self, look: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.questions.iter().any(|it| !it.is_empty() && look(it))
    }

    /// The same, with each name that records of a section are about.
    pub(crate) fn each_owner(&self, section: usize, look: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.records[section].iter().any(|it| !it.name.is_empty() && look(&it.name))
    }

    /// The same, with all of these names, and those that records have for data.
    pub(crate) fn each_name(&self, look: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let mut of_data = self.records.iter().flatten().filter_map(|it| self.name_in(it));
        self.each_question(look)
            || (0..self.records.len()).any(|section| self.each_owner(section, look))
            || of_data.any(|it| !it.is_empty() && look(&it))
    }

    /// The name in the data of a record whose type is among those that Suricata looks at so: NS,
    /// CNAME, SOA, PTR, MX.
    fn name_in(&self, record: &Record) -> Option<Vec<u8>> {
        let skipped = match record.kind {
            2 | 5 | 6 | 12 => 0,
            15 => 2,
            _ => return None,
        };
        name(&self.bytes, record.data.0 + skipped).map(|it| it.text)
    }
}

/// A record of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) name: Vec<u8>,
    /// Its name was longer.
    is_cut: bool,
    pub(crate) kind: u16,
    ttl: u32,
    /// Where its data stands in the message.
    data: (usize, usize),
}

/// Whether a message of that length may begin with such a header.
pub(crate) fn may_begin(header: &[u8; HEADER_LEN], length: usize) -> bool {
    let word = |at: usize| usize::from(u16::from_be_bytes([header[at], header[at + 1]]));
    let least = HEADER_LEN + 2 * [4, 6, 8, 10].map(word).iter().sum::<usize>();
    let is_answer = header[2] & 0x80 != 0;
    least <= length && (is_answer || word(4) > 0)
}

/// The message that `bytes` are, whatever its flags; `None` where they are none.
pub(crate) fn parse(bytes: &[u8]) -> Option<Message> {
    let header: &[u8; HEADER_LEN] = bytes.first_chunk()?;
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let flags = word(2);
    let opcode = flags >> 11 & 15;
    let questions = usize::from(word(4));
    let is_response = flags & 0x8000 != 0;
    if questions == 0 && !is_response {
        return None;
    }
    let response_code = flags & 15;
    let mut message = Message { is_response, opcode, response_code, ..Message::default() };
    (message.id, message.flags) = (word(0), flags);
    let mut events = AppEvents::default();
    // The bit Z, which must be 0 (RFC 1035 s4.1.1).
    if flags >> 6 & 1 == 1 {
        events.raise(AppEvent::DnsReserved);
    }
    if opcode > OPCODE_MAX {
        events.raise(AppEvent::DnsOpcode);
    }
    let mut at = header.len();
    for _ in 0..questions.min(QUESTIONS_MAX) {
        let name = name(bytes, at)?;
        name.raise(&mut events);
        message.questions.push(name.text);
        message.are_cut.push(name.is_cut);
        at = name.end + 4;
        let kind = bytes.get(name.end..at)?;
        message.types.push(u16::from_be_bytes([kind[0], kind[1]]));
    }
    let counts = [word(6), word(8), word(10)].map(usize::from);
    if questions <= QUESTIONS_MAX {
        let failed = read_records(bytes, at, counts, &mut message.records, &mut events);
        match failed {
            // What has no room for what it announces is no DNS to Suricata, and nothing odd.
            _ if failed == Some(0) || !has_room(bytes, questions, counts) => {
                events = AppEvents::default();
            }
            Some(1) => _ = events.raise(AppEvent::DnsAuthorities),
            Some(2) => _ = events.raise(AppEvent::DnsAdditionals),
            _ => {}
        }
    }
    message.bytes = bytes.to_vec();
    message.events = events;
    Some(message)
}

/// Whether behind the header there are two bytes for each question and record.
fn has_room(bytes: &[u8], questions: usize, records: [usize; 3]) -> bool {
    let least = 2 * (questions + records.iter().sum::<usize>());
    least <= bytes.len().saturating_sub(HEADER_LEN)
}

/// Whether these are whole options (RFC 6891 s6.1.2): a code, a length, and so many bytes each.
fn are_options(mut data: &[u8]) -> bool {
    while !data.is_empty() {
        let [_, _, high, low, rest @ ..] = data else { return false };
        let Some(behind) = rest.get(usize::from(u16::from_be_bytes([*high, *low]))..) else {
            return false;
        };
        data = behind;
    }
    true
}

/// The names of records from `at` on, as far as they can be read; the section that cannot.
fn read_records(
    bytes: &[u8],
    mut at: usize,
    counts: [usize; 3],
    into: &mut [Vec<Record>; 3],
    events: &mut AppEvents,
) -> Option<usize> {
    for (section, (count, names)) in counts.into_iter().zip(into).enumerate() {
        for _ in 0..count.min(RECORDS_MAX) {
            let Some(owner) = name(bytes, at) else { return Some(section) };
            owner.raise(events);
            let end = owner.end;
            let Some([a, b, _, _, c, d, e, f, high, low]) = bytes.get(end..end + 10) else {
                return Some(section);
            };
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            at = end + 10 + length;
            names.push(Record {
                name: owner.text,
                is_cut: owner.is_cut,
                kind: u16::from_be_bytes([*a, *b]),
                ttl: u32::from_be_bytes([*c, *d, *e, *f]),
                data: (end + 10, at),
            });
            let Some(data) = bytes.get(end + 10..at) else { return Some(section) };
            if [*a, *b] == OPTIONS && !are_options(data) {
                return Some(section);
            }
        }
        if count > RECORDS_MAX {
            return None;
        }
    }
    None
}

/// A name that was read.
struct Name {
    text: Vec<u8>,
    /// It was longer.
    is_cut: bool,
    /// Where it ends, in the place that it was read from.
    end: usize,
}

impl Name {
    fn raise(&self, events: &mut AppEvents) {
        if self.is_cut {
            events.raise(AppEvent::DnsNameTooLong);
        }
    }
}

/// The name at `at`.
fn name(bytes: &[u8], mut at: usize) -> Option<Name> {
    let (mut text, mut is_cut) = (Vec::new(), false);
    let (mut end, mut parts) = (None, 0);
    loop {
        let length = usize::from(*bytes.get(at)?);
        parts += 1;
        if parts > LABELS_MAX {
            return None;
        }
        match length >> 6 {
            0 if length == 0 => return Some(Name { text, is_cut, end: end.unwrap_or(at + 1) }),
            0 => {
                let label = bytes.get(at + 1..at + 1 + length)?;
                if !is_cut {
                    if !text.is_empty() {
                        text.push(b'.');
                    }
                    text.extend_from_slice(label);
                }
                is_cut |= text.len() > NAME_LEN_MAX;
                text.truncate(NAME_LEN_MAX);
                at += 1 + length;
            }
            3 => {
                end = end.or(Some(at + 2));
                at = (length & 0x3f) << 8 | usize::from(*bytes.get(at + 1)?);
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(name: &[u8]) -> Vec<u8> {
        [b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00", name, b"\x00\x01\x00\x01"].concat()
    }

    #[test]
    fn names_are_read_with_dots() {
        let message = parse(&query(b"\x03www\x07eXample\x03org\x00")).unwrap();
        assert_eq!(message.questions, [b"www.eXample.org".to_vec()]);
        assert!(!message.is_response);
    }

    #[test]
    fn what_is_odd_about_a_message_is_named() {
        let events = |bytes: &[u8]| parse(bytes).unwrap().events.as_slice().to_vec();
        let mut odd = query(b"\x01a\x00");
        assert_eq!(events(&odd), []);
        odd[3] = 0x40;
        assert_eq!(events(&odd), [AppEvent::DnsReserved]);
        odd[2] = 0x39;
        assert_eq!(events(&odd), [AppEvent::DnsReserved, AppEvent::DnsOpcode]);
        let long = [b"\x3f".as_slice(), &[b'a'; 63]].concat().repeat(17);
        assert_eq!(events(&query(&[long, vec![0]].concat())), [AppEvent::DnsNameTooLong]);
        let mut cut = query(b"\x01a\x00");
        cut[11] = 1;
        assert_eq!(events(&cut), [AppEvent::DnsAdditionals]);
        // A record of options, of which one says that it is longer than the record.
        for (length, found) in [(2, &[][..]), (9, &[AppEvent::DnsAdditionals])] {
            let options = [&b"\0\0\x29\x10\0\0\0\0\0\0\x06\0\x03\0"[..], &[length], b"id"].concat();
            let mut message = [query(b"\x01a\x00"), options].concat();
            message[11] = 1;
            assert_eq!(events(&message), found);
        }
    }

    #[test]
    fn what_is_no_message_is_none() {
        assert_eq!(parse(b"GET / HTTP/1.1\r\n\r\n"), None);
        assert_eq!(parse(&query(b"\x3fwww")), None);
        assert_eq!(parse(&query(b"\x01a\xc0\x0e")), None, "a name that points at itself");
        assert_eq!(parse(&[0; 11]), None);
    }
}
