//! What is told of a transaction of HTTP/2.

use super::frame::{ERROR_NAMES, SETTINGS, SETTINGS_NAMES};
use super::{Frames, Note};
use crate::buffers::http::half::Half;
use crate::value::{Object, Value};

/// Fields, by the headers that say what they tell, a response's before a request's.
const FIELDS: [(&str, &[&[u8]]); 6] = [
    ("http_method", &[b":method"]),
    ("url", &[b":path"]),
    ("hostname", &[b":authority", b"host"]),
    ("http_user_agent", &[b"user-agent"]),
    ("status", &[b":status"]),
    ("length", &[b"content-length"]),
];

/// Whether there is something to tell of a stream beside what it carried: not of one whose frames
/// only keep the connection going.
pub(in crate::buffers::http) fn is_telling(frames: &[Frames; 2]) -> bool {
    frames.iter().any(|it| it.has_headers() || !side(it).is_empty())
}

/// What is known of a stream, of its frames and of its messages.
pub(in crate::buffers::http) fn object(
    (stream, frames): &(u32, [Frames; 2]),
    halves: [Option<&Half>; 2],
) -> Object {
    let mut object = Object::default();
    object.put("version", "2");
    let names = ["request_headers", "response_headers"];
    for ((name, half), frames) in names.into_iter().zip(halves).zip(frames) {
        let headers = half.map(headers).unwrap_or_default();
        object.put_some(name, Some(headers).filter(|it| !it.is_empty() || frames.has_headers()));
    }
    for (name, headers) in FIELDS {
        let halves = halves.into_iter().rev().flatten();
        let Some(value) = halves.filter_map(|it| last(it, headers)).next() else { continue };
        match name {
            "status" | "length" => {
                let number = std::str::from_utf8(value).ok().and_then(|it| it.parse::<u64>().ok());
                object.put_some(name, number);
            }
            _ => object.put(name, value),
        }
    }
    let mut http2 = Object::default().with("stream_id", *stream);
    for (name, frames) in ["request", "response"].into_iter().zip(frames) {
        http2.put_some(name, Some(side(frames)).filter(|it| !it.is_empty()));
    }
    object.put("http2", http2);
    object
}

/// The value that the last header has that is called so; a name counts before those behind it.
fn last<'a>(half: &'a Half, names: &[&[u8]]) -> Option<&'a [u8]> {
    names.iter().find_map(|name| {
        let found = half.fields.iter().rev().find(|it| it.0.eq_ignore_ascii_case(name));
        found.map(|it| it.1.as_slice())
    })
}

/// A message's headers as they came.
fn headers(half: &Half) -> Vec<Value> {
    let mut notes = half.notes.iter().peekable();
    let header = |(place, (name, value)): (usize, &(Vec<u8>, Vec<u8>))| {
        let object = Object::default();
        let object = match notes.next_if(|it| it.0 == place) {
            Some((_, Note::Size(size))) => object.with("table_size_update", *size),
            Some((_, Note::Fault(name))) => object.with("error", *name),
            Some((_, Note::Again)) => return None,
            None => object.with("name", name).with("value", value),
        };
        Some(object.into())
    };
    half.fields.iter().enumerate().filter_map(header).collect()
}

/// What came in a side's frames.
fn side(frames: &Frames) -> Object {
    let mut object = Object::default();
    let known = |id: u16| SETTINGS_NAMES.iter().find(|it| it.0 == id);
    // As Suricata reads them: up to one that it does not know.
    let settings = frames.settings.iter().map_while(|(id, value)| {
        let name = known(*id)?.1.replace('_', "");
        Some(Object::default().with("settings_id", name).with("settings_value", *value).into())
    });
    let settings: Vec<Value> = settings.collect();
    let has_settings = frames.kinds.contains(&SETTINGS);
    object.put_some("settings", Some(settings).filter(|_| has_settings));
    let mut put = |name: &'static str, values: Option<(Value, usize)>| {
        let Some((value, count)) = values else { return };
        object.put(name, value);
        if count > 1 {
            object.put("has_multiple", name);
        }
    };
    let error = frames.error_codes.first().map(|it| error_name(*it, frames.is_away));
    put("error_code", error.map(|it| (it.into(), frames.error_codes.len())));
    let priority = frames.priorities.first().map(|it| u64::from(*it));
    put("priority", priority.map(|it| (it.into(), frames.priorities.len())));
    object
}

/// An error's name, as Suricata writes that of a connection and that of a stream.
fn error_name(code: u32, is_of_connection: bool) -> String {
    let Some(name) = ERROR_NAMES.get(code as usize) else { return code.to_string() };
    if is_of_connection {
        return name.replace('_', "");
    }
    let word = |word: &str| {
        let (first, rest) = word.split_at(1);
        first.to_owned() + &rest.to_ascii_lowercase()
    };
    name.split('_').map(word).collect()
}
