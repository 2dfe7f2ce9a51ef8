//! What numbers rules ask of a session, and what is told of it when its handshakes are over.

use super::certificate::Certificate;
use super::hello::Hello;
use super::{EPOCH, Session, ja4};
use crate::rule::{MessageField, MessageTest};
use crate::value::{Object, Value, base64};
use weir_wire::frame::Time;

impl Session {
    /// Whether a number of what a side said is as a rule wants it; one that is not there is not.
    pub(crate) fn holds(&self, side: usize, test: &MessageTest, now: Time) -> bool {
        let said = &self.sides[side].said;
        let now = EPOCH + now.0 / 1_000_000_000;
        match (test.field, &said.certificate) {
            (MessageField::TlsVersion, _) => {
                self.version(side).is_some_and(|it| test.holds(it.into()))
            }
            (MessageField::SslState, _) => {
                (0..8).any(|bit| self.seen >> bit & 1 == 1 && test.holds(bit))
            }
            // That of a server that has sent none, nor will.
            (MessageField::TlsChainLength, certificate) if side == 1 => {
                let is_known = certificate.is_some() || self.sides[side].is_done;
                is_known && test.holds(said.chain.len() as u64)
            }
            // Of servers' certificates alone.
            _ if side == 0 => false,
            (MessageField::TlsNotBefore, Some(it)) => test.holds(it.not_before.0),
            (MessageField::TlsNotAfter, Some(it)) => test.holds(it.not_after.0),
            (MessageField::TlsExpired, Some(it)) => it.not_after.0 < now,
            // Its end alone, as in Suricata.
            (MessageField::TlsValid, Some(it)) => now <= it.not_after.0,
            _ => false,
        }
    }

    /// The version of what a side says: by its hello, else by its records.
    fn version(&self, side: usize) -> Option<u16> {
        let said = &self.sides[side].said;
        said.hello.as_ref().map(|it| it.version).or(said.version)
    }

    /// Whether its handshakes are over, or, as Suricata has it, nothing more of them is awaited,
    /// and nobody was told of it.
    pub(crate) fn is_to_be_told(&self, as_suricata: bool) -> bool {
        let is_over = match as_suricata {
            true => self.is_settled(),
            false => self.sides.iter().all(|it| it.is_done),
        };
        !self.is_told && is_over
    }

    /// What is told of it, once. Suricata tells of those alone whose server says who it is, or who
    /// it was.
    pub(crate) fn record(&mut self, as_suricata: bool) -> Option<Object> {
        let is_known = self.sides[1].said.certificate.is_some() || self.repeats();
        if self.is_told || (as_suricata && !is_known) {
            return None;
        }
        self.is_told = true;
        let has_spoken = as_suricata || self.sides.iter().any(|it| it.said.hello.is_some());
        has_spoken.then(|| self.object(true, as_suricata))
    }

    /// What is known of it; with the certificates themselves or without.
    pub(crate) fn object(&self, with_certificates: bool, as_suricata: bool) -> Object {
        let mut object = Object::default();
        let [client, server] = [0, 1].map(|side: usize| &self.sides[side].said);
        let [from_client, from_server] = [&client.hello, &server.hello];
        if let Some(certificate) = &server.certificate {
            put_certificate(&mut object, certificate);
            put_list(&mut object, "subjectaltname", &certificate.alternative_names);
        }
        if self.is_resumed() || (as_suricata && self.repeats()) {
            object.put("session_resumed", true);
        }
        let name = from_client.as_ref().and_then(|it| it.server_name.as_ref());
        object.put_some("sni", name.filter(|it| !it.is_empty()));
        object
            .put("version", version_name(self.version(1).or(self.version(0)).unwrap_or_default()));
        if with_certificates {
            put_chain(&mut object, &server.chain);
        }
        if as_suricata {
            let of_client = from_client.as_ref().map(|it| &it.ja4_of_suricata);
            object.put_some("ja4", of_client.map_or(Some(ja4::OF_NOTHING), |it| it.as_deref()));
        }
        if let Some(hello) = from_client {
            object.put("ja3", fingerprint(hello));
            object.put_some("ja4", Some(&hello.ja4).filter(|it| !it.is_empty()));
            put_list(&mut object, "client_alpns", &hello.protocols);
        }
        if let Some(hello) = from_server {
            object.put("ja3s", fingerprint(hello));
            put_list(&mut object, "server_alpns", &hello.protocols);
        }
        if let Some(certificate) = &client.certificate {
            let mut own = Object::default();
            put_certificate(&mut own, certificate);
            if with_certificates {
                put_chain(&mut own, &client.chain);
            }
            object.put("client", own);
        }
        object
    }

    /// The server took up an earlier session.
    fn is_resumed(&self) -> bool {
        self.repeats() && self.version(1).is_some_and(|it| it < 0x304)
    }

    /// The server answers with the number of a session that its client asks for (RFC 5246
    /// s7.4.1.3), and sends no certificate. Of TLS 1.3 this says nothing (RFC 8446 D.4).
    fn repeats(&self) -> bool {
        let [client, server] = [0, 1].map(|side: usize| self.sides[side].said.hello.as_ref());
        let sessions = (client.map(|it| &it.session), server.map(|it| &it.session));
        matches!(sessions, (Some(asked), Some(given)) if !given.is_empty() && asked == given)
            && self.sides[1].said.certificate.is_none()
    }
}

fn put_certificate(object: &mut Object, certificate: &Certificate) {
    let texts = [
        ("subject", &certificate.subject),
        ("issuerdn", &certificate.issuer),
        ("serial", &certificate.serial),
        ("fingerprint", &certificate.fingerprint),
    ];
    for (name, text) in texts {
        object.put_some(name, Some(text).filter(|it| !it.is_empty()));
    }
    object.put("notbefore", certificate.not_before.text());
    object.put("notafter", certificate.not_after.text());
}

fn put_list(object: &mut Object, name: &'static str, list: &[Vec<u8>]) {
    if !list.is_empty() {
        object.put(name, list.iter().map(Value::from).collect::<Vec<_>>());
    }
}

fn put_chain(object: &mut Object, chain: &[Vec<u8>]) {
    let texts: Vec<String> = chain.iter().map(|it| base64(it)).collect();
    object.put_some("certificate", texts.first().map(String::as_str));
    if !texts.is_empty() {
        object.put("chain", texts);
    }
}

fn fingerprint(hello: &Hello) -> Object {
    Object::default().with("hash", &hello.ja3.hash).with("string", &hello.ja3.line)
}

/// A version as EVE spells it.
fn version_name(version: u16) -> String {
    match version {
        0 => "UNDETERMINED".into(),
        0x200 => "SSLv2".into(),
        0x300 => "SSLv3".into(),
        0x301 => "TLSv1".into(),
        0x302 => "TLS 1.1".into(),
        0x303 => "TLS 1.2".into(),
        0x304 => "TLS 1.3".into(),
        0x7f01..=0x7f0f => "TLS 1.3 draft-<16".into(),
        0x7f10..=0x7f1c => format!("TLS 1.3 draft-{}", version & 0xff),
        0xfb14..=0xfb17 | 0xfb1a => format!("TLS 1.3 draft-{}-fb", version & 0xff),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_spelt_as_suricata_spells_them() {
        for (version, name) in [
            (0x303, "TLS 1.2"),
            (0x7f0e, "TLS 1.3 draft-<16"),
            (0x7f1c, "TLS 1.3 draft-28"),
            (0xfb1a, "TLS 1.3 draft-26-fb"),
            (0x305, "773"),
        ] {
            assert_eq!(version_name(version), name);
        }
    }
}
