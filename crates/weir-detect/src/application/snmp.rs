//! SNMP (RFC 1157, 3416, 3412, 3414): what is asked of whom, as whom.

use super::Parser;
use super::ber::{self, Ber, IDENTIFIER, OCTETS, SEQUENCE};
use super::names::{SNMP_PDU, SNMP_TRAP, name_of};
use super::unit::{Said, Unit};
use crate::buffers::event::AppEvent;
use crate::heap::no_heap;
use crate::rule::{Buffer, Field, Protocol};
use crate::value::Object;

/// Variables of a message that are told, at most.
const VARIABLES_MAX: usize = 256;
/// The security model of users (RFC 3414).
const MODEL_USERS: i64 = 3;
/// Tag of the first kind of message, of the oldest kind of trap, and of an address.
const PDU: u8 = 0xa0;
const TRAP: u8 = 0xa4;
const ADDRESS: u8 = 0x40;

/// A flow between an agent and who manages it.
#[derive(Debug, Default)]
pub(crate) struct Snmp {
    count: u64,
    /// The version of its first message.
    version: Option<i64>,
}
no_heap!(Snmp);

impl Parser for Snmp {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        let mut unit = Unit::new(Protocol::Snmp, self.count);
        // What cannot be read is no transaction, and nothing is odd about one, as with Suricata.
        let Some(mut message) = message(bytes, &mut unit) else { return said.fail() };
        self.count += 1;
        let first = *self.version.get_or_insert(message.version);
        if first != message.version {
            unit.odd(AppEvent::SnmpVersion);
        }
        message.version = first;
        unit.number(Field::SnmpVersion, message.version);
        unit.some_text(Buffer::SnmpCommunity, message.community.as_deref());
        unit.some_text(Buffer::SnmpUser, message.user.as_deref());
        unit.tells("snmp", message.object());
        said.message(unit, side);
    }
}

#[derive(Debug, Default)]
struct Message {
    version: i64,
    community: Option<Vec<u8>>,
    user: Option<Vec<u8>>,
    is_encrypted: bool,
    pdu: Object,
}

impl Message {
    fn object(&self) -> Object {
        let mut object = Object::default().with("version", self.version);
        if self.is_encrypted {
            object.put("pdu_type", "encrypted");
        }
        for (name, value) in self.pdu.iter() {
            object.put(name.to_owned(), value.clone());
        }
        object.put_some("community", self.community.as_ref());
        object.put_some("usm", self.user.as_ref().filter(|_| !self.is_encrypted));
        object
    }
}

fn message(bytes: &[u8], unit: &mut Unit) -> Option<Message> {
    let mut outer = Ber::new(Ber::new(bytes).expect(SEQUENCE)?);
    let version = outer.integer()?;
    let mut message =
        Message { version: if version == 3 { 3 } else { version + 1 }, ..Message::default() };
    match version {
        0 | 1 => {
            message.community = Some(outer.expect(OCTETS)?.to_vec());
            message.pdu = pdu(outer, unit)?;
        }
        3 => {
            let mut header = Ber::new(outer.expect(SEQUENCE)?);
            let (_, _, _) = (header.integer()?, header.integer()?, header.expect(OCTETS)?);
            let model = header.integer()?;
            let parameters = outer.expect(OCTETS)?;
            if model == MODEL_USERS {
                let mut parameters = Ber::new(Ber::new(parameters).expect(SEQUENCE)?);
                let (_, _, _) =
                    (parameters.expect(OCTETS)?, parameters.integer()?, parameters.integer()?);
                message.user = Some(parameters.expect(OCTETS)?.to_vec());
            } else {
                unit.odd(AppEvent::SnmpSecurityModel);
            }
            match outer.next()? {
                (SEQUENCE, scoped) => {
                    let mut scoped = Ber::new(scoped);
                    let (_, _) = (scoped.expect(OCTETS)?, scoped.expect(OCTETS)?);
                    message.pdu = pdu(scoped, unit)?;
                }
                _ => message.is_encrypted = true,
            }
        }
        _ => return None,
    }
    Some(message)
}

/// What is asked or answered.
fn pdu(mut outer: Ber<'_>, unit: &mut Unit) -> Option<Object> {
    let (tag, content) = outer.next()?;
    let kind = tag.checked_sub(PDU).filter(|it| *it <= 8)?;
    unit.number(Field::SnmpPdu, kind);
    let mut object = Object::default();
    object.put_some("pdu_type", name_of(SNMP_PDU, kind));
    let mut content = Ber::new(content);
    if tag == TRAP {
        let enterprise = ber::identifier(content.expect(IDENTIFIER)?)?;
        let address = content.expect(ADDRESS)?;
        let trap = content.integer()?;
        let (_, _) = (content.integer()?, content.next()?);
        unit.number(Field::SnmpTrap, trap);
        object.put_some("trap_type", name_of(SNMP_TRAP, trap).map(joined));
        object.put("trap_oid", enterprise);
        if let [a, b, c, d] = address {
            object.put("trap_address", format!("{a}.{b}.{c}.{d}"));
        }
    } else {
        let _ = content.integer()?;
        let (status, _) = (content.integer()?, content.integer()?);
        // Of a request for many, it says how many.
        if kind != 5 && status != 0 {
            object.put("error", error(status));
        }
    }
    let mut bindings = Ber::new(content.expect(SEQUENCE)?);
    let mut names = Vec::new();
    while let Some(binding) = bindings.expect(SEQUENCE) {
        let name = ber::identifier(Ber::new(binding).expect(IDENTIFIER)?)?;
        if names.len() < VARIABLES_MAX {
            names.push(name);
        }
    }
    if !names.is_empty() {
        object.put("vars", names);
    }
    Some(object)
}

/// `cold_start` as EVE has it: `coldStart`.
fn joined(name: &str) -> String {
    let mut words = name.split('_');
    let mut joined = words.next().unwrap_or_default().to_owned();
    for word in words {
        joined.push_str(&word[..1].to_ascii_uppercase());
        joined.push_str(&word[1..]);
    }
    joined
}

/// RFC 3416 s3.
fn error(status: i64) -> String {
    const NAMES: [&str; 19] = [
        "NoError",
        "TooBig",
        "NoSuchName",
        "BadValue",
        "ReadOnly",
        "GenErr",
        "NoAccess",
        "WrongType",
        "WrongLength",
        "WrongEncoding",
        "WrongValue",
        "NoCreation",
        "InconsistentValue",
        "ResourceUnavailable",
        "CommitFailed",
        "UndoFailed",
        "AuthorizationError",
        "NotWritable",
        "InconsistentName",
    ];
    let name = usize::try_from(status).ok().and_then(|it| NAMES.get(it));
    name.map_or_else(|| status.to_string(), |it| (*it).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &[u8] =
        b"\x30\x26\x02\x01\x01\x04\x06public\xa0\x19\x02\x01\x07\x02\x01\x00\x02\x01\
        \x00\x30\x0e\x30\x0c\x06\x08\x2b\x06\x01\x02\x01\x01\x02\x00\x05\x00";

    #[test]
    fn a_request_tells_who_asks_for_what() {
        let (mut snmp, mut said) = (Snmp::default(), Said::default());
        snmp.take(0, GET, &mut said);
        let object = &said.records[0].objects[0].1;
        assert_eq!(object.value("version"), Some(&2_u8.into()));
        assert_eq!(object.value("pdu_type"), Some(&"get_request".into()));
        assert_eq!(object.value("vars"), Some(&vec!["1.3.6.1.2.1.1.2.0"].into()));
        assert_eq!(object.value("community"), Some(&"public".into()));
    }

    #[test]
    fn what_is_cut_is_malformed() {
        let (mut snmp, mut said) = (Snmp::default(), Said::default());
        snmp.take(0, &GET[..30], &mut said);
        assert!(said.has_failed && said.units.is_empty() && said.records.is_empty());
    }
}
