//! Kerberos 5 (RFC 4120): who asks for which ticket, and what comes of it.

use super::ber::{Ber, SEQUENCE};
use super::names::{KRB_ENCRYPTION, name_of};
use super::unit::{Said, Unit};
use super::{Held, Parser};
use crate::buffers::event::AppEvent;
use crate::heap::heap_size;
use crate::rule::{Buffer, Field, Protocol};
use crate::value::{Object, text};

/// A string of Kerberos.
const STRING: u8 = 0x1b;
/// Parts of a name, at most.
const PARTS_MAX: usize = 16;

const AS_REQ: u8 = 10;
const AS_REP: u8 = 11;
const TGS_REQ: u8 = 12;
const TGS_REP: u8 = 13;
const AP_REQ: u8 = 14;
const ERROR: u8 = 30;

/// A flow between a client and a key distribution centre.
#[derive(Debug, Default)]
pub(crate) struct Krb5 {
    /// Bytes of streams; datagrams are whole.
    held: Option<[Held; 2]>,
    count: u64,
    /// The kind of the last request.
    asked: Option<u8>,
}
heap_size!(Krb5 { held });

/// A message, as far as it is told.
#[derive(Debug, Default)]
struct Message {
    kind: u8,
    client: Vec<Vec<u8>>,
    realm: Option<Vec<u8>>,
    server: Vec<Vec<u8>>,
    encryption: Option<i64>,
    ticket_encryption: Option<i64>,
    error: Option<i64>,
}

impl Krb5 {
    pub(crate) fn of_streams() -> Self {
        Self { held: Some(Default::default()), ..Self::default() }
    }

    fn message(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        let mut unit = Unit::new(Protocol::Krb5, self.count);
        // What is none, or cannot be read, is passed over, as by Suricata.
        let Some(message) = message(bytes) else { return };
        if matches!(message.kind, AS_REQ | TGS_REQ | AP_REQ) {
            self.asked = Some(message.kind);
        }
        if !matches!(message.kind, AS_REQ | AS_REP | TGS_REQ | TGS_REP | ERROR) {
            return;
        }
        self.count += 1;
        unit.number(Field::KrbMessage, message.kind);
        message.client.iter().for_each(|it| unit.text(Buffer::KrbClient, it));
        message.server.iter().for_each(|it| unit.text(Buffer::KrbServer, it));
        if let Some(error) = message.error {
            unit.number(Field::KrbError, error);
        }
        if let Some(encryption) = message.ticket_encryption {
            unit.number(Field::KrbEncryption, encryption);
            unit.number(Field::KrbWeak, i64::from(is_weak(encryption)));
        }
        if message.encryption.is_some_and(is_weak) {
            unit.odd(AppEvent::KrbWeak);
        }
        unit.tells("krb5", message.object(self.asked));
        said.message(unit, side);
    }
}

impl Parser for Krb5 {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        let Some(held) = &mut self.held else { return self.message(side, bytes, said) };
        held[side].add(bytes);
        loop {
            let Some(held) = self.held.as_mut().map(|it| &mut it[side]) else { return };
            let Some(length) = held.bytes().first_chunk::<4>().map(|it| u32::from_be_bytes(*it))
            else {
                return;
            };
            if held.is_too_long() {
                return held.drop(4 + u64::from(length));
            }
            let Some(bytes) = held.take(4 + length as usize) else { return };
            self.message(side, &bytes[4..], said);
        }
    }
}

impl Message {
    fn object(&self, asked: Option<u8>) -> Object {
        let name = |parts: &[Vec<u8>]| match parts {
            [] => "<empty>".to_owned(),
            parts => parts.iter().map(|it| text(it)).collect::<Vec<_>>().join("/"),
        };
        let realm = self.realm.as_ref().map_or("<empty>".to_owned(), |it| text(it));
        let mut object = Object::default().with("msg_type", kind_name(self.kind));
        if let Some(error) = self.error {
            object.put("failed_request", asked.map_or("UNKNOWN".to_owned(), kind_name));
            object.put("error_code", error_name(error));
        }
        object.put("cname", name(&self.client));
        object.put("realm", realm);
        object.put("sname", name(&self.server));
        let spelt =
            |kind: i64| name_of(KRB_ENCRYPTION, kind).map_or(kind.to_string(), str::to_owned);
        object.put("encryption", self.encryption.map_or("<none>".to_owned(), spelt));
        object.put("weak_encryption", self.encryption.is_some_and(is_weak));
        if let Some(kind) = self.ticket_encryption {
            object.put("ticket_encryption", spelt(kind));
            object.put("ticket_weak_encryption", is_weak(kind));
        }
        object
    }
}

/// Whether it has been broken.
fn is_weak(kind: i64) -> bool {
    matches!(kind, 0..=3 | 23 | 24)
}

fn message(bytes: &[u8]) -> Option<Message> {
    let (tag, content) = Ber::new(bytes).next()?;
    if tag & 0xe0 != 0x60 {
        return None;
    }
    let mut message = Message { kind: tag & 0x1f, ..Message::default() };
    let mut fields = Ber::new(Ber::new(content).expect(SEQUENCE)?);
    let is_request = matches!(message.kind, AS_REQ | TGS_REQ);
    while let Some((tag, field)) = fields.next() {
        let mut inner = Ber::new(field);
        match (message.kind, tag & 0x1f) {
            (_, 4) if is_request => body(Ber::new(inner.expect(SEQUENCE)?), &mut message)?,
            (AS_REP | TGS_REP, 3) => message.realm = Some(inner.expect(STRING)?.to_vec()),
            (AS_REP | TGS_REP, 4) => message.client = name(inner)?,
            (AS_REP | TGS_REP, 5) => ticket(inner, &mut message)?,
            (AS_REP | TGS_REP, 6) => message.encryption = Some(encryption(inner)?),
            (ERROR, 6) => message.error = Some(inner.integer()?),
            (ERROR, 7) => message.realm = Some(inner.expect(STRING)?.to_vec()),
            (ERROR, 8) => message.client = name(inner)?,
            (ERROR, 10) => message.server = name(inner)?,
            _ => {}
        }
    }
    Some(message)
}

/// What a request asks for.
fn body(mut fields: Ber<'_>, message: &mut Message) -> Option<()> {
    while let Some((tag, field)) = fields.next() {
        let mut inner = Ber::new(field);
        match tag & 0x1f {
            1 => message.client = name(inner)?,
            2 => message.realm = Some(inner.expect(STRING)?.to_vec()),
            3 => message.server = name(inner)?,
            _ => {}
        }
    }
    Some(())
}

fn ticket(mut outer: Ber<'_>, message: &mut Message) -> Option<()> {
    let (_, content) = outer.next()?;
    let mut fields = Ber::new(Ber::new(content).expect(SEQUENCE)?);
    while let Some((tag, field)) = fields.next() {
        let inner = Ber::new(field);
        match tag & 0x1f {
            2 => message.server = name(inner)?,
            3 => message.ticket_encryption = Some(encryption(inner)?),
            _ => {}
        }
    }
    Some(())
}

/// The kind of encryption of encrypted data.
fn encryption(mut outer: Ber<'_>) -> Option<i64> {
    let (tag, kind) = Ber::new(outer.expect(SEQUENCE)?).next()?;
    (tag & 0x1f == 0).then(|| Ber::new(kind).integer())?
}

/// The parts of a name.
fn name(mut outer: Ber<'_>) -> Option<Vec<Vec<u8>>> {
    let mut fields = Ber::new(outer.expect(SEQUENCE)?);
    let _ = fields.next()?;
    let (_, parts) = fields.next()?;
    let mut parts = Ber::new(Ber::new(parts).expect(SEQUENCE)?);
    let mut all = Vec::new();
    while let Some(part) = parts.expect(STRING) {
        if all.len() < PARTS_MAX {
            all.push(part.to_vec());
        }
    }
    Some(all)
}

fn kind_name(kind: u8) -> String {
    let name = match kind {
        AS_REQ => "KRB_AS_REQ",
        AS_REP => "KRB_AS_REP",
        TGS_REQ => "KRB_TGS_REQ",
        TGS_REP => "KRB_TGS_REP",
        AP_REQ => "KRB_AP_REQ",
        15 => "KRB_AP_REP",
        20 => "KRB_SAFE",
        21 => "KRB_PRIV",
        22 => "KRB_CRED",
        ERROR => "KRB_ERROR",
        other => return format!("MessageType({other})"),
    };
    name.to_owned()
}

/// RFC 4120 s7.5.9, as EVE spells them.
fn error_name(code: i64) -> String {
    let name = match code {
        0 => "KDC_ERR_NONE",
        1 => "KDC_ERR_NAME_EXP",
        2 => "KDC_ERR_SERVICE_EXP",
        3 => "KDC_ERR_BAD_PVNO",
        4 => "KDC_ERR_C_OLD_MAST_KVNO",
        5 => "KDC_ERR_S_OLD_MAST_KVNO",
        6 => "KDC_ERR_C_PRINCIPAL_UNKNOWN",
        7 => "KDC_ERR_S_PRINCIPAL_UNKNOWN",
        8 => "KDC_ERR_PRINCIPAL_NOT_UNIQUE",
        9 => "KDC_ERR_NULL_KEY",
        10 => "KDC_ERR_CANNOT_POSTDATE",
        11 => "KDC_ERR_NEVER_VALID",
        12 => "KDC_ERR_POLICY",
        13 => "KDC_ERR_BADOPTION",
        14 => "KDC_ERR_ETYPE_NOSUPP",
        15 => "KDC_ERR_SUMTYPE_NOSUPP",
        16 => "KDC_ERR_PADATA_TYPE_NOSUPP",
        17 => "KDC_ERR_TRTYPE_NOSUPP",
        18 => "KDC_ERR_CLIENT_REVOKED",
        19 => "KDC_ERR_SERVICE_REVOKED",
        20 => "KDC_ERR_TGT_REVOKED",
        21 => "KDC_ERR_CLIENT_NOTYET",
        22 => "KDC_ERR_SERVICE_NOTYET",
        23 => "KDC_ERR_KEY_EXPIRED",
        24 => "KDC_ERR_PREAUTH_FAILED",
        25 => "KDC_ERR_PREAUTH_REQUIRED",
        26 => "KDC_ERR_SERVER_NOMATCH",
        27 => "KDC_ERR_MUST_USE_USER2USER",
        28 => "KDC_ERR_PATH_NOT_ACCEPTED",
        29 => "KDC_ERR_SVC_UNAVAILABLE",
        31 => "KRB_AP_ERR_BAD_INTEGRITY",
        32 => "KRB_AP_ERR_TKT_EXPIRED",
        33 => "KRB_AP_ERR_TKT_NYV",
        34 => "KRB_AP_ERR_REPEAT",
        35 => "KRB_AP_ERR_NOT_US",
        36 => "KRB_AP_ERR_BADMATCH",
        37 => "KRB_AP_ERR_SKEW",
        41 => "KRB_AP_ERR_MODIFIED",
        44 => "KRB_AP_ERR_BADKEYVER",
        50 => "KRB_AP_ERR_INAPP_CKSUM",
        52 => "KRB_ERR_RESPONSE_TOO_BIG",
        60 => "KRB_ERR_GENERIC",
        61 => "KRB_ERR_FIELD_TOOLONG",
        68 => "KDC_ERR_WRONG_REALM",
        other => return format!("ErrorCode({other})"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(tag: u8, content: &[u8]) -> Vec<u8> {
        [&[tag, content.len() as u8], content].concat()
    }

    fn reply(encryption: u8) -> Vec<u8> {
        let name = |text: &[u8]| {
            let parts = value(0xa1, &value(SEQUENCE, &value(STRING, text)));
            value(SEQUENCE, &[value(0xa0, b"\x02\x01\x01"), parts].concat())
        };
        let encrypted = value(SEQUENCE, &value(0xa0, &[2, 1, encryption]));
        let ticket = [value(0xa2, &name(b"krbtgt")), value(0xa3, &encrypted)].concat();
        let fields = [
            value(0xa1, b"\x02\x01\x0b"),
            value(0xa3, &value(STRING, b"REALM")),
            value(0xa4, &name(b"me")),
            value(0xa5, &value(0x61, &value(SEQUENCE, &ticket))),
            value(0xa6, &encrypted),
        ];
        value(0x6b, &value(SEQUENCE, &fields.concat()))
    }

    #[test]
    fn a_reply_tells_whose_ticket_it_is_and_how_it_is_sealed() {
        let (mut krb5, mut said) = (Krb5::default(), Said::default());
        krb5.take(1, &reply(23), &mut said);
        let object = &said.records[0].objects[0].1;
        assert_eq!(object.value("cname"), Some(&"me".into()));
        assert_eq!(object.value("sname"), Some(&"krbtgt".into()));
        assert_eq!(object.value("encryption"), Some(&"rc4-hmac".into()));
        assert!(said.units[0].events.has(AppEvent::KrbWeak));
    }

    #[test]
    fn over_streams_each_message_has_its_length_before_it() {
        let (mut krb5, mut said) = (Krb5::of_streams(), Said::default());
        let reply = reply(18);
        let bytes = [&(reply.len() as u32).to_be_bytes(), reply.as_slice()].concat();
        bytes.chunks(9).for_each(|it| krb5.take(1, it, &mut said));
        assert_eq!(said.records.len(), 1);
        assert!(!said.units[0].events.has(AppEvent::KrbWeak));
    }

    #[test]
    fn errors_without_a_name_tell_their_number() {
        assert_eq!(error_name(99), "ErrorCode(99)");
    }
}
