//! What is told of a transaction of HTTP/2.

use super::Frames;
use super::frame::{ERROR_NAMES, SETTINGS_NAMES};
use crate::buffers::http::half::Half;
use crate::buffers::http::told::headers;
use crate::value::{Object, Value};

/// What is known of a stream, of its frames and of its messages; nothing of one whose frames only
/// keep the connection going.
pub(in crate::buffers::http) fn object(
    (stream, frames): &(u32, [Frames; 2]),
    halves: [Option<&Half>; 2],
) -> Object {
    let mut object = Object::default();
    object.put("version", "2");
    let [request, response] = halves;
    for (name, half) in [("request_headers", request), ("response_headers", response)] {
        object.put_some(name, half.map(|it| headers(&it.fields)).filter(|it| !it.is_empty()));
    }
    let own = |bytes: &[u8]| (!bytes.is_empty()).then(|| bytes.to_vec());
    let texts = [
        ("http_method", request.and_then(|it| own(&it.method))),
        ("url", request.and_then(|it| own(&it.target))),
        ("hostname", request.and_then(|it| own(it.header(b":authority").or(it.header(b"host"))?))),
        ("http_user_agent", request.and_then(|it| own(it.header(b"user-agent")?))),
    ];
    for (name, text) in &texts {
        object.put_some(name, text.as_ref());
    }
    let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse::<u64>().ok();
    object.put_some("status", response.and_then(|it| number(&it.status)));
    let length = |half: Option<&Half>| number(half?.header(b"content-length")?);
    object.put_some("length", length(response).or_else(|| length(request)));
    let sides = [("request", &frames[0]), ("response", &frames[1])];
    let sides: Vec<_> = sides.map(|(name, it)| (name, side(it, *stream))).into_iter().collect();
    let is_idle = halves.iter().all(Option::is_none) && sides.iter().all(|it| it.1.is_empty());
    if is_idle {
        return Object::default();
    }
    let mut http2 = Object::default().with("stream_id", *stream);
    for (name, side) in sides {
        http2.put_some(name, Some(side).filter(|it| !it.is_empty()));
    }
    object.put("http2", http2);
    object
}

/// What came in a side's frames.
fn side(frames: &Frames, stream: u32) -> Object {
    let mut object = Object::default();
    let settings = frames.settings.iter().map(|(id, value)| {
        let known = SETTINGS_NAMES.iter().find(|it| it.0 == *id);
        let name = known.map_or_else(|| format!("SETTINGS({id})"), |it| it.1.replace('_', ""));
        Value::from(Object::default().with("settings_id", name).with("settings_value", *value))
    });
    let settings: Vec<Value> = settings.collect();
    object.put_some("settings", Some(settings).filter(|it| !it.is_empty()));
    if let Some(code) = frames.error_codes.first() {
        object.put("error_code", error_name(*code, stream == 0));
    }
    object.put_some("priority", frames.priorities.first().copied());
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
