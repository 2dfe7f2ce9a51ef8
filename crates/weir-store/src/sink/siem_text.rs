//! Events as SIEMs take them: syslog (RFC 5424), GELF 1.1, or EVE as it is. Bytes in, bytes out.

use std::fmt::Write as _;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde_json::{Map, Value, json};

/// RFC 5424 s6.2.1: local use 0.
const FACILITY: u8 = 16;

/// The number for examples (RFC 5612), until there is one of our own.
const ENTERPRISE: u32 = 32_473;

/// Bytes of a datagram: what crosses any path, as Graylog's own senders have it.
const DATAGRAM_BYTES: usize = 1420;

/// Magic, message, number and count of a chunk.
const CHUNK_HEADER_BYTES: usize = 12;

/// Chunks of a message, at most, as GELF says.
const CHUNKS_MAX: usize = 128;

/// How an event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiemFormat {
    /// RFC 5424, the event as JSON in its message.
    Syslog,
    /// GELF 1.1.
    Gelf,
    /// EVE's JSON, a line each.
    Eve,
}

/// An event on its way out.
#[derive(Clone, Debug, PartialEq)]
pub struct SiemEvent {
    /// `alert`, or `gateway` for what the gateway itself did.
    pub kind: &'static str,
    /// When, as RFC 3339 with microseconds.
    pub timestamp: String,
    /// The same as seconds since 1970.
    pub seconds: f64,
    /// 1 is the most severe.
    pub severity: u8,
    /// In one sentence.
    pub summary: String,
    /// As EVE has it.
    pub event: Map<String, Value>,
}

impl SiemEvent {
    /// Syslog's severity: critical, warning, notice, informational.
    fn level(&self) -> u8 {
        match self.severity {
            0 | 1 => 2,
            2 => 4,
            3 => 5,
            _ => 6,
        }
    }

    /// Fields that people search by: name and value, objects in objects as `outer_inner`.
    fn fields(&self) -> Vec<(String, &Value)> {
        let mut fields = Vec::new();
        for (name, value) in &self.event {
            match value {
                Value::Object(inner) => {
                    let named = inner.iter().map(|(key, value)| (format!("{name}_{key}"), value));
                    fields.extend(named.filter(|(_, value)| !value.is_object()));
                }
                Value::Null => {}
                other => fields.push((name.clone(), other)),
            }
        }
        fields
    }
}

/// The event in `format`, without framing. `host` is the gateway's name.
pub fn encode(event: &SiemEvent, format: SiemFormat, host: &str) -> Vec<u8> {
    match format {
        SiemFormat::Syslog => syslog(event, host).into_bytes(),
        SiemFormat::Gelf => gelf(event, host),
        SiemFormat::Eve => json_bytes(&event.event),
    }
}

/// `message` as a stream carries it: syslog by octet counting (RFC 6587 s3.4.1), GELF with a zero
/// at its end, EVE with a line feed.
pub fn framed(message: &[u8], format: SiemFormat) -> Vec<u8> {
    match format {
        SiemFormat::Syslog => [format!("{} ", message.len()).as_bytes(), message].concat(),
        SiemFormat::Gelf => [message, b"\0"].concat(),
        SiemFormat::Eve => [message, b"\n"].concat(),
    }
}

/// `message` as datagrams: GELF compressed and, where it is long, in chunks told apart by `id`;
/// none where it is too long even so.
pub fn datagrams(message: &[u8], format: SiemFormat, id: u64) -> Vec<Vec<u8>> {
    if format != SiemFormat::Gelf {
        return vec![message.to_vec()];
    }
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory does not fail.
    let _ = encoder.write_all(message);
    let packed = encoder.finish().unwrap_or_default();
    chunks(packed, id)
}

fn chunks(packed: Vec<u8>, id: u64) -> Vec<Vec<u8>> {
    if packed.len() <= DATAGRAM_BYTES {
        return vec![packed];
    }
    let pieces: Vec<&[u8]> = packed.chunks(DATAGRAM_BYTES - CHUNK_HEADER_BYTES).collect();
    if pieces.len() > CHUNKS_MAX {
        return Vec::new();
    }
    let count = pieces.len() as u8;
    let chunk = |(number, piece): (usize, &&[u8])| {
        [&[0x1e, 0x0f][..], &id.to_be_bytes(), &[number as u8, count], piece].concat()
    };
    pieces.iter().enumerate().map(chunk).collect()
}

fn syslog(event: &SiemEvent, host: &str) -> String {
    let priority = FACILITY * 8 + event.level();
    let mut text = format!("<{priority}>1 {} ", event.timestamp);
    let host: String = host.chars().filter(char::is_ascii_graphic).take(255).collect();
    let host = if host.is_empty() { "-" } else { &host };
    let _ = write!(text, "{host} weir - {} [weir@{ENTERPRISE}", event.kind);
    for (name, value) in event.fields() {
        // Names are ours; values may be anybody's.
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let _ = write!(text, " {name}=\"");
        for letter in value.chars() {
            match letter {
                '"' | '\\' | ']' => text.extend(['\\', letter]),
                _ if letter.is_control() => text.push(' '),
                _ => text.push(letter),
            }
        }
        text.push('"');
    }
    text.push_str("] ");
    text + &String::from_utf8_lossy(&json_bytes(&event.event))
}

fn gelf(event: &SiemEvent, host: &str) -> Vec<u8> {
    let mut message = Map::new();
    message.insert("version".into(), "1.1".into());
    message.insert("host".into(), if host.is_empty() { "weir" } else { host }.into());
    let summary = if event.summary.is_empty() { event.kind } else { &event.summary };
    message.insert("short_message".into(), summary.into());
    message.insert("timestamp".into(), json!(event.seconds));
    message.insert("level".into(), event.level().into());
    for (name, value) in event.fields() {
        // GELF knows text and numbers, and keeps `_id` for itself.
        let value = match value {
            Value::String(_) | Value::Number(_) => value.clone(),
            other => other.to_string().into(),
        };
        message.insert(format!("_{name}"), value);
    }
    json_bytes(&message)
}

fn json_bytes(event: &Map<String, Value>) -> Vec<u8> {
    serde_json::to_vec(event).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::ZlibDecoder;

    use super::*;

    fn event(signature: &str) -> SiemEvent {
        let event = json!({
            "event_type": "alert", "src_ip": "10.0.0.1",
            "alert": {"signature": signature, "signature_id": 7},
        });
        SiemEvent {
            kind: "alert",
            timestamp: "2026-01-31T08:00:00.000000+00:00".into(),
            seconds: 1_769_846_400.0,
            severity: 1,
            summary: signature.into(),
            event: event.as_object().unwrap().clone(),
        }
    }

    #[test]
    fn syslog_escapes_what_would_end_a_value_or_a_line() {
        let text = syslog(&event("a\"b]c\\d\ne"), "gw a");
        let head = "<130>1 2026-01-31T08:00:00.000000+00:00 gwa weir - alert [weir@32473 ";
        assert!(text.starts_with(head), "{text}");
        assert!(text.contains(r#" alert_signature="a\"b\]c\\d e""#), "{text}");
        assert!(!text.contains('\n'), "{text}");
        let framed = framed(text.as_bytes(), SiemFormat::Syslog);
        assert!(framed.starts_with(format!("{} <130>1 ", text.len()).as_bytes()));
    }

    #[test]
    fn gelf_has_its_fields_and_no_others_without_an_underscore() {
        let bytes = encode(&event("x"), SiemFormat::Gelf, "gw-a");
        let message: Map<String, Value> = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(message["version"], "1.1");
        assert_eq!((&message["host"], &message["level"]), (&"gw-a".into(), &2.into()));
        assert_eq!(message["_alert_signature_id"], 7);
        let known = ["version", "host", "short_message", "timestamp", "level"];
        let is_fit = |name: &String| name.starts_with('_') || known.contains(&name.as_str());
        assert!(message.keys().all(is_fit), "{message:?}");
    }

    #[test]
    fn long_messages_go_in_chunks_that_come_together_again() {
        let short = datagrams(b"{}", SiemFormat::Gelf, 5);
        assert_eq!(short.len(), 1);
        // Nothing that compresses well.
        let mut state = 1_u32;
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let message: Vec<u8> = std::iter::repeat_with(&mut noise).take(20_000).collect();
        let chunks = datagrams(&message, SiemFormat::Gelf, 5);
        assert!(chunks.len() > 2 && chunks.iter().all(|it| it.len() <= DATAGRAM_BYTES));
        let mut packed = Vec::new();
        for (number, chunk) in chunks.iter().enumerate() {
            let head = [&[0x1e, 0x0f, 0, 0, 0, 0, 0, 0, 0, 5, number as u8][..]].concat();
            assert_eq!((&chunk[..11], usize::from(chunk[11])), (&head[..], chunks.len()));
            packed.extend_from_slice(&chunk[CHUNK_HEADER_BYTES..]);
        }
        let mut got = Vec::new();
        ZlibDecoder::new(&packed[..]).read_to_end(&mut got).unwrap();
        assert_eq!(got, message);
        let huge: Vec<u8> = std::iter::repeat_with(&mut noise).take(300_000).collect();
        assert!(datagrams(&huge, SiemFormat::Gelf, 5).is_empty());
    }
}
