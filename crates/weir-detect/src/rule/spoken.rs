//! What rules ask of what is spoken: which application it is, and numbers in its messages.

use super::Protocol;
use super::number::Numbers;

/// `app-layer-protocol`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spoken {
    Is(Protocol),
    IsNot(Protocol),
    /// It is none that is known, or it is not told yet.
    IsUnknown,
    /// Some application is known.
    IsKnown,
}

impl Spoken {
    pub(crate) fn parse(value: &str) -> Result<Self, String> {
        let (name, direction) = value.split_once(',').unwrap_or((value, ""));
        let is_either = matches!(direction.trim(), "" | "either" | "final");
        let (is_negated, name) = match name.trim().strip_prefix('!') {
            Some(name) => (true, name.trim()),
            None => (false, name.trim()),
        };
        let of = Protocol::from_name(name).filter(|it| it.is_application() && is_either);
        match (name, of, is_negated) {
            ("failed" | "unknown", _, false) if is_either => Ok(Self::IsUnknown),
            ("failed" | "unknown", _, true) if is_either => Ok(Self::IsKnown),
            (_, Some(of), false) => Ok(Self::Is(of)),
            (_, Some(of), true) => Ok(Self::IsNot(of)),
            _ => Err(format!("`{value}`: this application is not told here")),
        }
    }

    pub(crate) fn holds(self, spoken: Option<Protocol>) -> bool {
        match self {
            Self::Is(of) => spoken == Some(of),
            Self::IsNot(of) => spoken.is_some_and(|it| it != of),
            Self::IsUnknown => spoken.is_none(),
            Self::IsKnown => spoken.is_some(),
        }
    }
}

/// A number in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageField {
    DnsOpcode,
    DnsResponseCode,
    DnsType,
    TlsVersion,
}

/// A number in a message, and what it must be; of several, any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MessageTest {
    pub(crate) field: MessageField,
    pub(crate) numbers: Vec<Numbers>,
}

impl MessageTest {
    /// `dns.opcode:!0`, `tls.version:1.2`; `None`: no such keyword.
    pub(crate) fn parse(name: &str, value: &str) -> Option<Result<Self, String>> {
        let field = match name {
            "dns.opcode" => MessageField::DnsOpcode,
            "dns.rcode" => MessageField::DnsResponseCode,
            "dns.rrtype" => MessageField::DnsType,
            "tls.version" | "ssl_version" => MessageField::TlsVersion,
            _ => return None,
        };
        let one = |text: &str| match field {
            MessageField::TlsVersion => version(text),
            _ => Numbers::parse(text),
        };
        let numbers: Result<Vec<Numbers>, String> = match field {
            MessageField::TlsVersion => value.split(',').map(one).collect(),
            _ => one(value).map(|it| vec![it]),
        };
        Some(numbers.map(|numbers| Self { field, numbers }))
    }

    /// The application whose messages have it.
    pub(crate) fn protocol(&self) -> Protocol {
        match self.field {
            MessageField::TlsVersion => Protocol::Tls,
            _ => Protocol::Dns,
        }
    }

    pub(crate) fn holds(&self, number: u16) -> bool {
        self.numbers.iter().any(|it| it.contain(number.into()))
    }
}

fn version(text: &str) -> Result<Numbers, String> {
    let text = text.trim().trim_matches('"').to_ascii_lowercase();
    let (sign, name) = match text.strip_prefix('!') {
        Some(name) => ("!", name),
        None => ("", text.as_str()),
    };
    let number = match name.trim_start_matches("tls") {
        "sslv3" => 0x300,
        "1.0" => 0x301,
        "1.1" => 0x302,
        "1.2" => 0x303,
        "1.3" => 0x304,
        _ => return Err(format!("`{text}` is no version of TLS that is known")),
    };
    Numbers::parse(&format!("{sign}{number}"))
}
