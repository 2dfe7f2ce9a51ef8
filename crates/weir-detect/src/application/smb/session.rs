//! Who logs in: NTLMSSP (MS-NLMP s2.2.1) and Kerberos, inside of what SMB carries for them.

use super::super::ber::{Ber, SEQUENCE};
use super::{told_text, wide};
use crate::application::unit::Unit;
use crate::buffers::event::AppEvent;
use crate::rule::Buffer;
use crate::value::Object;

const SIGNATURE: &[u8] = b"NTLMSSP\0";
/// The mechanism Kerberos; the same and the mark of a ticket that is shown (RFC 4121 s4.1).
const MECHANISM: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02";
const KERBEROS: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01\x00";
const AP_REQ: u8 = 0x6e;
const STRING: u8 = 0x1b;
/// Flags: names are in UTF-16; a version stands at the end.
const UNICODE: u32 = 1;
const VERSION: u32 = 0x0200_0000;

/// Puts what a token says of its sender.
pub(super) fn describe(token: &[u8], unit: &mut Unit, told: &mut Object) {
    if let Some(at) = memchr::memmem::find(token, SIGNATURE) {
        ntlmssp(&token[at..], unit, told);
    }
    // Suricata looks where SPNEGO names the mechanism before.
    if let Some(at) = memchr::memmem::find(token, KERBEROS)
        && memchr::memmem::find(&token[..at], MECHANISM).is_some()
        && let Some(kerberos) = kerberos(&token[at + KERBEROS.len()..])
    {
        told.put("kerberos", kerberos);
    }
}

fn ntlmssp(message: &[u8], unit: &mut Unit, told: &mut Object) {
    let long = |at: usize| message.get(at..)?.first_chunk::<4>().map(|it| u32::from_le_bytes(*it));
    // The one that says who it is.
    if long(8) != Some(3) {
        return;
    }
    let flags = long(60).unwrap_or(UNICODE);
    let field = |at: usize| {
        let length = u16::from_le_bytes(*message.get(at..)?.first_chunk()?);
        let from = usize::try_from(long(at + 4)?).ok()?;
        let bytes = message.get(from..from.checked_add(length.into())?)?;
        Some(if flags & UNICODE != 0 { wide(bytes) } else { bytes.to_vec() })
    };
    let (Some(domain), Some(user), Some(host)) = (field(28), field(36), field(44)) else {
        unit.odd(AppEvent::SmbNtlmssp);
        return;
    };
    unit.text(Buffer::SmbDomain, &domain);
    unit.text(Buffer::SmbUser, &user);
    let mut object = Object::default()
        .with("domain", told_text(&domain))
        .with("user", told_text(&user))
        .with("host", told_text(&host));
    if flags & VERSION != 0
        && let Some([major, minor, low, high, _, _, _, revision]) = message.get(64..72)
    {
        let build = u16::from_le_bytes([*low, *high]);
        object.put("version", format!("{major}.{minor} build {build} rev {revision}"));
    }
    told.put("ntlmssp", object);
}

/// Whom a ticket is for.
fn kerberos(token: &[u8]) -> Option<Object> {
    let mut request = Ber::new(Ber::new(Ber::new(token).expect(AP_REQ)?).expect(SEQUENCE)?);
    while let Some((tag, field)) = request.next() {
        if tag & 0x1f != 3 {
            continue;
        }
        let (_, ticket) = Ber::new(field).next()?;
        let mut ticket = Ber::new(Ber::new(ticket).expect(SEQUENCE)?);
        let mut object = Object::default();
        while let Some((tag, field)) = ticket.next() {
            match tag & 0x1f {
                1 => object.put("realm", Ber::new(field).expect(STRING)?),
                2 => {
                    let mut name = Ber::new(Ber::new(field).expect(SEQUENCE)?);
                    let _ = name.next()?;
                    let mut parts = Ber::new(Ber::new(name.next()?.1).expect(SEQUENCE)?);
                    let mut all = Vec::new();
                    while let Some(part) = parts.expect(STRING) {
                        all.push(part);
                    }
                    object.put("snames", all);
                }
                _ => {}
            }
        }
        return Some(object);
    }
    None
}
