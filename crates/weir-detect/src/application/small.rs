//! Applications of which little is told: NTP, TFTP and multicast DNS.

use super::Parser;
use super::unit::{Record, Said, Unit};
use crate::buffers::dns;
use crate::buffers::event::AppEvent;
use crate::heap::no_heap;
use crate::rule::{Buffer, Field, Protocol};
use crate::value::Object;

/// NTP (RFC 5905): requests and answers.
#[derive(Debug, Default)]
pub(crate) struct Ntp {
    count: u64,
}

impl Parser for Ntp {
    fn take(&mut self, _: usize, bytes: &[u8], said: &mut Said) {
        let mut unit = Unit::new(Protocol::Ntp, self.count);
        match bytes {
            [first, stratum, ..] if matches!(first >> 3 & 7, 1..=4) && bytes.len() >= 12 => {
                self.count += 1;
                unit.number(Field::NtpVersion, first >> 3 & 7);
                unit.number(Field::NtpMode, first & 7);
                unit.number(Field::NtpStratum, *stratum);
                unit.some_text(Buffer::NtpReference, bytes.get(12..16));
            }
            _ => {
                unit.odd(AppEvent::NtpMalformed);
                said.has_failed = true;
            }
        }
        said.units.push(unit);
    }
}

/// TFTP (RFC 1350): requests for files.
#[derive(Debug, Default)]
pub(crate) struct Tftp {
    count: u64,
}

impl Parser for Tftp {
    fn take(&mut self, _: usize, bytes: &[u8], said: &mut Said) {
        // Data, acknowledgments, errors and options may come on the same ports.
        if matches!(bytes, [0, 3..=6, ..]) {
            return;
        }
        let Some((kind, file, mode)) = request_of_tftp(bytes) else {
            said.has_failed = true;
            return;
        };
        let object = Object::default()
            .with("packet", if kind == 1 { "read" } else { "write" })
            .with("file", file)
            .with("mode", mode.as_slice());
        let mut unit = Unit::new(Protocol::Tftp, self.count);
        unit.tells("tftp", object);
        self.count += 1;
        said.message(unit, 0);
    }
}

/// The kind of a request, its file and its mode.
fn request_of_tftp(bytes: &[u8]) -> Option<(u8, &[u8], Vec<u8>)> {
    let [0, kind @ (1 | 2), rest @ ..] = bytes else { return None };
    let mut texts = rest.split(|it| *it == 0);
    let (file, mode) = (texts.next()?, texts.next()?.to_ascii_lowercase());
    let is_known = matches!(mode.as_slice(), b"netascii" | b"mail" | b"octet");
    is_known.then_some((*kind, file, mode))
}

/// Multicast DNS (RFC 6762).
#[derive(Debug, Default)]
pub(crate) struct Mdns {
    count: u64,
}
no_heap!(Ntp, Tftp, Mdns);

impl Parser for Mdns {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        let mut unit = Unit::new(Protocol::Mdns, self.count);
        let Some(mut message) = dns::parse(bytes) else {
            unit.odd(AppEvent::MdnsMalformed);
            said.units.push(unit);
            return;
        };
        let object = message.multicast_object();
        // Of a request, rules look at what it asks and at the answers that are known already.
        if !message.is_response {
            message.records[1..].iter_mut().for_each(Vec::clear);
        }
        self.count += 1;
        let events = message.events.as_slice().iter();
        events.filter_map(|it| of_mdns(*it)).for_each(|it| unit.odd(it));
        let mut keep = |buffer, name: &[u8]| {
            unit.text(buffer, name);
            false
        };
        let buffers = [Buffer::MdnsAnswer, Buffer::MdnsAuthority, Buffer::MdnsAdditional];
        for (section, buffer) in buffers.into_iter().enumerate() {
            message.each_owner(section, &mut |it| keep(buffer, it));
        }
        message.each_question(&mut |it| keep(Buffer::MdnsQuery, it));
        if message.is_response {
            message.each_name(&mut |it| keep(Buffer::MdnsResponse, it));
        }
        unit.tells("mdns", object);
        let objects = unit.objects.as_ref().clone();
        let number = Some(unit.number);
        said.units.push(unit);
        said.records.push(Record { kind: "mdns", number, objects, side: Some(side) });
    }
}

/// What is odd about a message of DNS, by the name that it has in multicast DNS.
fn of_mdns(event: AppEvent) -> Option<AppEvent> {
    Some(match event {
        AppEvent::DnsReserved => AppEvent::MdnsReserved,
        AppEvent::DnsOpcode => AppEvent::MdnsOpcode,
        AppEvent::DnsNameTooLong => AppEvent::MdnsNameTooLong,
        AppEvent::DnsAdditionals => AppEvent::MdnsAdditionals,
        AppEvent::DnsAuthorities => AppEvent::MdnsAuthorities,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_for_files_tell_their_names() {
        let (mut tftp, mut said) = (Tftp::default(), Said::default());
        tftp.take(0, b"\0\x02a.bin\0OCTET\0", &mut said);
        tftp.take(1, b"\0\x04\0\0", &mut said);
        let [record] = &said.records[..] else { panic!("{said:?}") };
        let object = &record.objects[0].1;
        assert_eq!(object.value("packet"), Some(&"write".into()));
        assert_eq!(object.value("file"), Some(&"a.bin".into()));
        assert_eq!(object.value("mode"), Some(&"octet".into()));
    }

    #[test]
    fn rules_look_at_answers_that_a_request_of_multicast_dns_knows() {
        let (mut mdns, mut said) = (Mdns::default(), Said::default());
        let record = |name: &[u8]| [name, b"\0\x01\0\x01\0\0\0\x09\0\x04\x01\x02\x03\x04"].concat();
        let head = b"\0\0\0\0\0\x01\0\x01\0\x01\0\0\x01q\0\0\xff\0\x01";
        let request = [head.as_slice(), &record(b"\x01a\0"), &record(b"\x01b\0")].concat();
        mdns.take(0, &request, &mut said);
        let has = |buffer| said.units[0].each(buffer, &mut |_| true);
        assert!(has(Buffer::MdnsQuery) && has(Buffer::MdnsAnswer));
        assert!(!has(Buffer::MdnsAuthority) && !has(Buffer::MdnsResponse));
        assert!(said.records[0].objects[0].1.value("authorities").is_some());
    }

    #[test]
    fn an_answer_of_ntp_tells_its_reference() {
        let (mut ntp, mut said) = (Ntp::default(), Said::default());
        let answer = [b"\x24\x01\0\0\0\0\0\0\0\0\0\0GPS\0".as_slice(), &[0; 32]].concat();
        ntp.take(1, &answer, &mut said);
        assert!(said.units[0].each(Buffer::NtpReference, &mut |it| it == b"GPS\0"));
        assert_eq!(said.units[0].numbers(Field::NtpMode).next(), Some(4));
        ntp.take(1, b"\0", &mut said);
        assert!(said.units[1].events.has(AppEvent::NtpMalformed));
    }
}
