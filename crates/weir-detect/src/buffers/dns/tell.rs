//! What is told of a message of DNS: version 3 of EVE's object.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{Message, Record, name};
use crate::value::{Object, Value, hex};

/// The type of options of the message itself.
const OPTIONS: u16 = 41;
/// Texts, and options, of one record, at most.
const TEXTS_MAX: usize = 64;

/// Types with names (RFC 1035 s3.2.2 and later ones), those that Suricata names; others are told by
/// their numbers.
pub(crate) const TYPES: [(u16, &str); 59] = [
    (1, "A"),
    (2, "NS"),
    (3, "MD"),
    (4, "MF"),
    (5, "CNAME"),
    (6, "SOA"),
    (7, "MB"),
    (8, "MG"),
    (9, "MR"),
    (10, "NULL"),
    (11, "WKS"),
    (12, "PTR"),
    (13, "HINFO"),
    (14, "MINFO"),
    (15, "MX"),
    (16, "TXT"),
    (17, "RP"),
    (18, "AFSDB"),
    (19, "X25"),
    (20, "ISDN"),
    (21, "RT"),
    (22, "NSAP"),
    (23, "NSAPPTR"),
    (24, "SIG"),
    (25, "KEY"),
    (26, "PX"),
    (27, "GPOS"),
    (28, "AAAA"),
    (29, "LOC"),
    (30, "NXT"),
    (33, "SRV"),
    (34, "ATMA"),
    (35, "NAPTR"),
    (36, "KX"),
    (37, "CERT"),
    (38, "A6"),
    (39, "DNAME"),
    (41, "OPT"),
    (42, "APL"),
    (43, "DS"),
    (44, "SSHFP"),
    (45, "IPSECKEY"),
    (46, "RRSIG"),
    (47, "NSEC"),
    (48, "DNSKEY"),
    (49, "DHCID"),
    (50, "NSEC3"),
    (51, "NSEC3PARAM"),
    (52, "TLSA"),
    (55, "HIP"),
    (59, "CDS"),
    (60, "CDNSKEY"),
    (65, "HTTPS"),
    (99, "SPF"),
    (249, "TKEY"),
    (250, "TSIG"),
    (254, "MAILA"),
    (255, "ANY"),
    (256, "URI"),
];

/// Response codes with names (RFC 1035 s4.1.1, RFC 2136).
pub(crate) const CODES: [&str; 11] = [
    "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET",
    "NXRRSET", "NOTAUTH", "NOTZONE",
];

impl Message {
    /// What is told of it, as the flow's transaction of this number.
    pub(crate) fn object(&self, number: u64) -> Object {
        let kind = if self.is_response { "response" } else { "request" };
        let mut object = Object::default().with("version", 3_u8).with("type", kind);
        object.put("tx_id", number);
        object.put("id", self.id);
        object.put("flags", format!("{:x}", self.flags));
        let flags = [("qr", 0x8000), ("aa", 0x400), ("tc", 0x200), ("rd", 0x100), ("ra", 0x80)];
        for (name, _) in flags.iter().chain(&[("z", 0x40)]).filter(|it| self.flags & it.1 != 0) {
            object.put(*name, true);
        }
        object.put("opcode", self.opcode);
        let code = CODES.get(usize::from(self.response_code));
        object.put("rcode", code.map_or_else(|| self.response_code.to_string(), |it| (*it).into()));
        object.put_some("queries", self.queries(type_name));
        let [answers, authorities, additionals] = &self.records;
        if !answers.is_empty() {
            object.put("answers", self.list(answers));
            object.put("grouped", self.grouped(answers));
        }
        for (name, list) in [("authorities", authorities), ("additionals", additionals)] {
            let list = self.list(list);
            object.put_some(name, Some(list).filter(|it| !it.is_empty()));
        }
        object
    }

    /// What is asked for, types by the names that they have there.
    pub(super) fn queries(&self, type_name: impl Fn(u16) -> String) -> Option<Vec<Value>> {
        let queries = self.questions.iter().zip(&self.types).zip(&self.are_cut);
        let told = queries.map(|((name, kind), is_cut)| {
            let mut query = Object::default().with("rrname", name);
            query.put("rrtype", type_name(*kind));
            query.put_some("rrname_truncated", is_cut.then_some(true));
            query.into()
        });
        Some(told.collect()).filter(|it: &Vec<Value>| !it.is_empty())
    }

    /// Each record, or each of its texts; options of the message itself where there are some.
    fn list(&self, records: &[Record]) -> Vec<Value> {
        let mut list = Vec::new();
        for record in records {
            if record.kind == OPTIONS {
                list.extend(self.options(record));
                continue;
            }
            let mut data = self.data(record).into_iter();
            loop {
                let one = data.next();
                let mut object = Object::default();
                record.put_name(&mut object);
                object.put("rrtype", type_name(record.kind));
                object.put("ttl", record.ttl);
                if let Some(value) = one {
                    object.put(field(record.kind), value);
                }
                object.put_some("rdata_truncated", self.is_data_cut(record).then_some(true));
                list.push(object.into());
                if data.len() == 0 {
                    break;
                }
            }
        }
        list
    }

    /// Options of the message itself (RFC 6891 s6.1.2); `None`: it has none.
    fn options(&self, record: &Record) -> Option<Value> {
        let options = self.option_list(record);
        let object = Object::default().with("rrname", &record.name).with("rrtype", "OPT");
        let has_some = !options.is_empty();
        has_some.then(|| object.with("ttl", record.ttl).with("opt", options).into())
    }

    /// The same, each by its code.
    pub(super) fn option_list(&self, record: &Record) -> Vec<Value> {
        let mut data = self.bytes_of(record);
        let mut options = Vec::new();
        while let [code_high, code_low, high, low, rest @ ..] = data {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            let Some((value, behind)) = rest.split_at_checked(length) else { break };
            data = behind;
            if options.len() < TEXTS_MAX {
                let code = u16::from_be_bytes([*code_high, *code_low]);
                let object = Object::default().with("code", code).with("data", hex(value, ""));
                options.push(Value::from(object));
            }
        }
        options
    }

    /// A record's data as they came.
    pub(super) fn bytes_of(&self, record: &Record) -> &[u8] {
        self.bytes.get(record.data.0..record.data.1).unwrap_or_default()
    }

    /// Whether a record's data are a name that was longer.
    pub(super) fn is_data_cut(&self, record: &Record) -> bool {
        let skipped = match record.kind {
            2 | 5 | 12 => 0,
            15 => 2,
            _ => return false,
        };
        name(&self.bytes, record.data.0 + skipped).is_some_and(|it| it.is_cut)
    }

    /// What answers say, by their types.
    fn grouped(&self, records: &[Record]) -> Object {
        let mut groups: Vec<(u16, Vec<Value>)> = Vec::new();
        for record in records {
            let data = self.data(record);
            match groups.iter_mut().find(|it| it.0 == record.kind) {
                _ if data.is_empty() => {}
                Some((_, group)) => group.extend(data),
                None => groups.push((record.kind, data)),
            }
        }
        let mut object = Object::default();
        for (kind, group) in groups {
            object.put(type_name(kind), group);
        }
        object
    }

    /// What a record says, where its type is known: one value, or several texts.
    pub(super) fn data(&self, record: &Record) -> Vec<Value> {
        let (start, end) = record.data;
        let Some(data) = self.bytes.get(start..end) else { return Vec::new() };
        let name_at = |at: usize| {
            let name = name(&self.bytes, at)?;
            Some((Value::from(&name.text), name.end, name.is_cut))
        };
        let word = |at: usize| Some(u16::from_be_bytes(data.get(at..at + 2)?.try_into().ok()?));
        let number = |at: usize| {
            let bytes = self.bytes.get(at..at + 4)?;
            Some(u32::from_be_bytes(bytes.try_into().ok()?))
        };
        let one = match record.kind {
            1 | 28 => Some(address(data).into()),
            2 | 5 | 12 | 39 => name_at(start).map(|it| it.0),
            15 => name_at(start + 2).map(|it| it.0),
            10 => Some(Value::from(data)),
            16 => return texts(data),
            6 => (|| {
                let (primary, at, is_primary_cut) = name_at(start)?;
                let (mail, at, is_mail_cut) = name_at(at)?;
                let mut object = Object::default().with("mname", primary).with("rname", mail);
                object.put_some("mname_truncated", is_primary_cut.then_some(true));
                object.put_some("rname_truncated", is_mail_cut.then_some(true));
                let numbers = ["serial", "refresh", "retry", "expire", "minimum"];
                for (place, name) in numbers.into_iter().enumerate() {
                    object.put(name, number(at + 4 * place)?);
                }
                Some(object.into())
            })(),
            33 => (|| {
                let object = Object::default().with("priority", word(0)?).with("weight", word(2)?);
                let object = object.with("port", word(4)?);
                Some(object.with("name", name_at(start + 6)?.0).into())
            })(),
            44 => data.split_at_checked(2).map(|(kinds, print)| {
                let object = Object::default().with("fingerprint", hex(print, ":"));
                object.with("algo", kinds[0]).with("type", kinds[1]).into()
            }),
            _ => None,
        };
        one.into_iter().collect()
    }
}

impl Record {
    /// Puts whom it is about.
    pub(super) fn put_name(&self, object: &mut Object) {
        object.put("rrname", &self.name);
        object.put_some("rrname_truncated", self.is_cut.then_some(true));
    }
}

/// An address as EVE writes it; of another length, nothing.
fn address(data: &[u8]) -> String {
    if let Ok(octets) = <[u8; 4]>::try_from(data) {
        return Ipv4Addr::from(octets).to_string();
    }
    let octets = <[u8; 16]>::try_from(data);
    let groups = octets.map(|it| Ipv6Addr::from(it).segments().map(|it| format!("{it:04x}")));
    groups.map(|it| it.join(":")).unwrap_or_default()
}

/// Texts, each behind its length.
fn texts(mut data: &[u8]) -> Vec<Value> {
    let mut texts = Vec::new();
    while let [length, rest @ ..] = data {
        let Some((text, behind)) = rest.split_at_checked(usize::from(*length)) else { break };
        data = behind;
        if texts.len() < TEXTS_MAX {
            texts.push(Value::from(text));
        }
    }
    texts
}

/// The field that a record's data stands in.
fn field(kind: u16) -> &'static str {
    match kind {
        6 => "soa",
        33 => "srv",
        44 => "sshfp",
        _ => "rdata",
    }
}

pub(super) fn type_name(kind: u16) -> String {
    let known = TYPES.iter().find(|it| it.0 == kind);
    known.map_or_else(|| kind.to_string(), |it| it.1.to_owned())
}
