//! What rules ask of what is spoken: which application it is, and numbers in its messages.

use super::Protocol;
use super::number::{Form, Numbers, number};
use crate::buffers::dns;
use crate::buffers::http::http2;
use crate::buffers::tls::{Moment, SslState};

/// What somebody speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// It is not told yet.
    #[default]
    Unknown,
    /// None that is known.
    Failed,
    Is(Protocol),
}

/// What is spoken in a flow, by each side, at first and at last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Speech {
    pub(crate) sides: [Speaks; 2],
    pub(crate) first: Speaks,
    pub(crate) last: Speaks,
}

impl Speech {
    /// The same from both sides, all along.
    pub(crate) fn of(spoken: Speaks) -> Self {
        Self { sides: [spoken; 2], first: spoken, last: spoken }
    }
}

/// Whose application is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Whose {
    /// That of who sent the packet.
    #[default]
    Sender,
    Client,
    Server,
    Either,
    /// That of the flow, now and at first.
    Last,
    First,
}

/// `app-layer-protocol`: one of these, or none of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spoken {
    list: Vec<Speaks>,
    is_negated: bool,
    whose: Whose,
    /// HTTP/2 that carries DNS is neither.
    is_exact: bool,
}

impl Spoken {
    pub(crate) fn parse(value: &str) -> Result<Self, String> {
        let unquoted = value.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
        let mut parts = unquoted.unwrap_or(value).split(',').map(str::trim);
        let names = parts.next().unwrap_or_default();
        let (mut whose, mut is_exact) = (None, false);
        for part in parts {
            let mode = match part {
                "exact" if !is_exact => {
                    is_exact = true;
                    continue;
                }
                "direction" => Whose::Sender,
                "to_server" => Whose::Client,
                "to_client" => Whose::Server,
                "either" => Whose::Either,
                "final" => Whose::Last,
                "original" => Whose::First,
                other => return Err(format!("`{other}` says of no side what it speaks")),
            };
            if whose.replace(mode).is_some() {
                return Err(format!("`{value}`: of one side, or of either"));
            }
        }
        let (is_negated, names) = match names.strip_prefix('!') {
            Some(names) => (true, names),
            None => (false, names),
        };
        let list: Result<Vec<Speaks>, String> = names.split('|').map(one).collect();
        let spoken = Self { list: list?, is_negated, whose: whose.unwrap_or_default(), is_exact };
        if is_negated && spoken.asks_unknown() {
            return Err(format!("`{value}`: what is not told yet is not something else"));
        }
        if is_exact && spoken.list.contains(&Speaks::Is(Protocol::Http)) {
            return Err(format!("`{value}`: HTTP is HTTP/1 or HTTP/2"));
        }
        Ok(spoken)
    }

    /// Whether a rule cannot ask for both: only what must not be goes together, each once.
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        !(self.is_negated && other.is_negated) || self.list.iter().any(|it| other.list.contains(it))
    }

    /// Whether it names several.
    pub(crate) fn is_list(&self) -> bool {
        self.list.len() > 1
    }

    fn asks_unknown(&self) -> bool {
        self.list.contains(&Speaks::Unknown)
    }

    /// Whether what is spoken is as asked, when `sender` sends a packet. What is not told yet is
    /// nothing else.
    pub(crate) fn holds(&self, sender: usize, speech: &Speech) -> bool {
        let [client, server] = speech.sides;
        let spoken: &[Speaks] = match self.whose {
            Whose::Sender => &[speech.sides[sender]],
            Whose::Client => &[client],
            Whose::Server => &[server],
            Whose::Either => &[client, server],
            Whose::Last => &[speech.last],
            Whose::First => &[speech.first],
        };
        if self.is_negated {
            let is_told = spoken.iter().any(|it| *it != Speaks::Unknown);
            return is_told && !spoken.iter().any(|it| self.names(*it));
        }
        spoken.iter().any(|it| self.names(*it))
    }

    fn names(&self, spoken: Speaks) -> bool {
        self.list.iter().any(|it| match (*it, spoken) {
            (Speaks::Is(Protocol::Http1), Speaks::Is(Protocol::Http)) => true,
            (Speaks::Is(of), Speaks::Is(it)) if !self.is_exact => of.means(it),
            (of, it) => of == it,
        })
    }
}

fn one(name: &str) -> Result<Speaks, String> {
    Ok(match name.trim() {
        "failed" => Speaks::Failed,
        "unknown" => Speaks::Unknown,
        name => {
            let known = Protocol::from_name(name).filter(|it| it.is_application());
            Speaks::Is(known.ok_or_else(|| format!("`{name}`: this application is not told here"))?)
        }
    })
}

/// A number in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageField {
    DnsOpcode,
    DnsResponseCode,
    DnsType,
    TlsVersion,
    TlsChainLength,
    TlsNotBefore,
    TlsNotAfter,
    TlsExpired,
    TlsValid,
    SslState,
    Http2FrameType,
    Http2ErrorCode,
    Http2Priority,
    Http2Window,
    Http2TableSize,
    /// Of that number.
    Http2Setting(u16),
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
            "tls.cert_chain_len" => MessageField::TlsChainLength,
            "tls_cert_notbefore" => MessageField::TlsNotBefore,
            "tls_cert_notafter" => MessageField::TlsNotAfter,
            "tls_cert_expired" => MessageField::TlsExpired,
            "tls_cert_valid" => MessageField::TlsValid,
            "ssl_state" => MessageField::SslState,
            "http2.frametype" => MessageField::Http2FrameType,
            "http2.errorcode" => MessageField::Http2ErrorCode,
            "http2.priority" => MessageField::Http2Priority,
            "http2.window" => MessageField::Http2Window,
            "http2.size_update" => MessageField::Http2TableSize,
            "http2.settings" => return Some(setting(value)),
            _ => return None,
        };
        let numbers: Result<Vec<Numbers>, String> = match field {
            MessageField::TlsVersion => value.split(',').map(version).collect(),
            MessageField::SslState => value.split(['|', ',']).map(state).collect(),
            MessageField::TlsNotBefore | MessageField::TlsNotAfter => {
                dates(value).map(|it| vec![it])
            }
            MessageField::TlsExpired | MessageField::TlsValid if value.trim().is_empty() => {
                Ok(Vec::new())
            }
            MessageField::DnsResponseCode => named(&dns::CODES, value, Form::Any(16)),
            MessageField::DnsType => dns_type(value).map(|it| vec![it]),
            MessageField::Http2FrameType => {
                named(&http2::FRAME_NAMES, value, Form::Digits(u8::MAX.into()))
            }
            MessageField::Http2ErrorCode => {
                named(&http2::ERROR_NAMES, value, Form::Digits(u32::MAX.into()))
            }
            MessageField::DnsOpcode | MessageField::Http2Priority => {
                Numbers::parse(value, 8).map(|it| vec![it])
            }
            MessageField::Http2TableSize => Numbers::parse(value, 64).map(|it| vec![it]),
            _ => Numbers::parse(value, 32).map(|it| vec![it]),
        };
        Some(numbers.map(|numbers| Self { field, numbers }))
    }

    /// The application whose messages have it.
    pub(crate) fn protocol(&self) -> Protocol {
        match self.field {
            MessageField::DnsOpcode | MessageField::DnsResponseCode | MessageField::DnsType => {
                Protocol::Dns
            }
            MessageField::Http2FrameType
            | MessageField::Http2ErrorCode
            | MessageField::Http2Priority
            | MessageField::Http2Window
            | MessageField::Http2TableSize
            | MessageField::Http2Setting(_) => Protocol::Http2,
            _ => Protocol::Tls,
        }
    }

    pub(crate) fn holds(&self, number: u64) -> bool {
        self.numbers.iter().any(|it| it.contain(number))
    }
}

/// A number, or the name of one by its place in `names`; or all but it.
fn named(names: &[&str], value: &str, form: Form) -> Result<Vec<Numbers>, String> {
    let (is_negated, name) = match value.trim().strip_prefix('!') {
        Some(name) => (true, name.trim()),
        None => (false, value.trim()),
    };
    match names.iter().position(|it| it.eq_ignore_ascii_case(name)) {
        Some(place) => Ok(vec![Numbers::between(place as u64, place as u64, is_negated)]),
        None => form.parse(value).map(|it| vec![it]),
    }
}

/// A type of DNS by its name, or all but it.
fn dns_type(value: &str) -> Result<Numbers, String> {
    let (is_negated, name) = match value.trim().strip_prefix('!') {
        Some(name) => (true, name.trim()),
        None => (false, value.trim()),
    };
    match dns::TYPES.iter().find(|it| it.1.eq_ignore_ascii_case(name)) {
        Some((kind, _)) => Ok(Numbers::between((*kind).into(), (*kind).into(), is_negated)),
        None => Numbers::parse(value, 16),
    }
}

/// `SETTINGS_HEADER_TABLE_SIZE>4096`: a setting by its name or number, and what it must be.
fn setting(value: &str) -> Result<MessageTest, String> {
    let value = value.trim();
    let is_of_name = |it: char| it.is_ascii_alphanumeric() || it == '_';
    let end = value.find(|it| !is_of_name(it)).unwrap_or(value.len());
    let (name, rest) = value.split_at(end);
    let known = http2::SETTINGS_NAMES.iter().find(|it| it.1.eq_ignore_ascii_case(name));
    let id = known.map(|it| it.0).or_else(|| name.parse().ok());
    let id = id.ok_or_else(|| format!("`{name}` is no setting of HTTP/2"))?;
    let numbers = match rest.trim() {
        "" => Numbers::between(0, u64::MAX, false),
        rest => Numbers::parse(rest, 32)?,
    };
    Ok(MessageTest { field: MessageField::Http2Setting(id), numbers: vec![numbers] })
}

/// A message of the handshake by its name.
fn state(text: &str) -> Result<Numbers, String> {
    let text = text.trim();
    let (is_negated, name) = match text.strip_prefix('!') {
        Some(name) => (true, name.trim()),
        None => (false, text),
    };
    let state = match name {
        "client_hello" => SslState::ClientHello,
        "server_hello" => SslState::ServerHello,
        "client_keyx" => SslState::ClientKeyExchange,
        "server_keyx" => SslState::ServerKeyExchange,
        "unknown" => SslState::Unknown,
        _ => return Err(format!("`{text}` is no state of TLS")),
    };
    Ok(Numbers::between(state as u64, state as u64, is_negated))
}

/// `2015`, `>2015-10`, `<2015-10-22 23:59:59`, `2015<>2020` (without its ends)
fn dates(text: &str) -> Result<Numbers, String> {
    let wrong = || format!("`{text}` is no date, and no range of them");
    let one = |text: &str| date(text).ok_or_else(wrong);
    let text = text.trim().trim_matches('"');
    if let Some((from, to)) = text.split_once("<>") {
        let (from, to) = (one(from)?, one(to)?);
        let is_range = from + 1 < to;
        return is_range.then(|| Numbers::between(from + 1, to - 1, false)).ok_or_else(wrong);
    }
    match text.split_at_checked(1) {
        Some(("<", date)) => Ok(Numbers::between(0, one(date)?.saturating_sub(1), false)),
        Some((">", date)) => Ok(Numbers::between(one(date)? + 1, u64::MAX, false)),
        _ => one(text).map(|it| Numbers::between(it, it, false)),
    }
}

/// A year, and as much more of a date as is written.
fn date(text: &str) -> Option<u64> {
    let mut parts = [0, 1, 1, 0, 0, 0];
    let mut written = text.trim().split(['-', 'T', ' ', ':']);
    for part in &mut parts {
        match written.next() {
            Some(number) => *part = number.parse().ok()?,
            None => break,
        }
    }
    let is_whole = written.next().is_none() && parts[0] > 0;
    Moment::of(parts).filter(|_| is_whole).map(|it| it.0)
}

fn version(text: &str) -> Result<Numbers, String> {
    let text = text.trim().trim_matches('"').to_ascii_lowercase();
    let (is_negated, name) = match text.strip_prefix('!') {
        Some(name) => (true, name),
        None => (false, text.as_str()),
    };
    let number = match name.trim_start_matches("tls") {
        "sslv3" => 0x300,
        "1.0" => 0x301,
        "1.1" => 0x302,
        "1.2" => 0x303,
        "1.3" => 0x304,
        "sslv2" => 0x200,
        hex if hex.starts_with("0x") => number(hex).ok_or("no version in hex")?,
        _ => return Err(format!("`{text}` is no version of TLS that is known")),
    };
    Ok(Numbers::between(number, number, is_negated))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(rule: &str, sender: usize, speech: &Speech) -> bool {
        Spoken::parse(rule).unwrap().holds(sender, speech)
    }

    #[test]
    fn a_rule_says_whose_application_it_means() {
        let (smtp, tls) = (Speaks::Is(Protocol::Smtp), Speaks::Is(Protocol::Tls));
        let speech = Speech { sides: [tls, Speaks::Unknown], first: smtp, last: tls };
        for (rule, from_client, from_server) in [
            ("tls", true, false),
            ("!http", true, false),
            ("!tls", false, false),
            ("!smtp|http", true, false),
            ("http|tls,direction", true, false),
            ("tls,to_server", true, true),
            ("tls,to_client", false, false),
            ("tls,either", true, true),
            ("tls,final", true, true),
            ("smtp,original", true, true),
            ("smtp", false, false),
            ("unknown", false, true),
            ("unknown|tls", true, true),
            ("!failed", true, false),
            ("failed", false, false),
        ] {
            assert_eq!(holds(rule, 0, &speech), from_client, "{rule} from the client");
            assert_eq!(holds(rule, 1, &speech), from_server, "{rule} from the server");
        }
        for wrong in ["tls,sideways", "tls,final,either", "!unknown", "http,exact", "xyz"] {
            assert!(Spoken::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn dns_over_http2_is_both_unless_it_has_to_be_exact() {
        let speech = Speech::of(Speaks::Is(Protocol::Doh2));
        for rule in ["dns", "http2", "!http", "doh2", "doh2,exact"] {
            assert!(holds(rule, 0, &speech), "{rule}");
        }
        for rule in ["dns,exact", "http2,final,exact", "!dns", "tls"] {
            assert!(!holds(rule, 0, &speech), "{rule}");
        }
    }

    #[test]
    fn only_what_must_not_be_goes_together() {
        let conflicts = |one, other| {
            let parse = |text| Spoken::parse(text).unwrap();
            parse(one).conflicts(&parse(other))
        };
        assert!(!conflicts("!http", "!smtp"));
        assert!(conflicts("!http", "!http"));
        assert!(conflicts("!http", "smtp"));
        assert!(conflicts("http", "smtp"));
    }
}
