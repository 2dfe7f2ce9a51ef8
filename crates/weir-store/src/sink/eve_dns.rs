//! Version 2 of EVE's `dns` object, which Suricata wrote before version 8 and which Elastic's
//! integration for Suricata reads; the detector tells version 3.

use serde_json::{Map, Value};

use super::eve_record::Event;

/// How EVE's `dns` object is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DnsVersion {
    /// An event for each question, another for the answer with all its records.
    Two,
    /// An event for each message, with a list of its questions.
    #[default]
    Three,
}

/// What version 3 says of an answer that version 2 says likewise, in its order.
const ANSWERED: [&str; 12] =
    ["id", "flags", "qr", "aa", "tc", "rd", "ra", "z", "opcode", "rcode", "answers", "grouped"];

/// What version 3 says of a question, and version 2 beside the rest.
const QUESTION: [&str; 3] = ["rrname", "rrname_truncated", "rrtype"];

impl DnsVersion {
    /// The events for one of kind `dns`, as the detector tells it.
    pub fn events(self, event: Event) -> Vec<Event> {
        let Some(told) = event.get("dns").filter(|_| self == Self::Two) else { return vec![event] };
        let with = |object: Value| {
            let mut event = event.clone();
            event.insert("dns".into(), object);
            event
        };
        match is_request(told) {
            true => questions(told).into_iter().map(with).collect(),
            false => vec![client_first(with(answer(told)))],
        }
    }
}

/// Version 2 tells of answers too as of the client that asked.
fn client_first(mut event: Event) -> Event {
    for (one, other) in [("src_ip", "dest_ip"), ("src_port", "dest_port")] {
        if let [Some(first), Some(second)] = [one, other].map(|it| event.remove(it)) {
            event.insert(one.into(), second);
            event.insert(other.into(), first);
        }
    }
    event
}

fn is_request(told: &Value) -> bool {
    told["type"] == "request"
}

fn questions(told: &Value) -> Vec<Value> {
    let list = told["queries"].as_array().map(Vec::as_slice).unwrap_or_default();
    let question = |it: &Value| {
        let mut object = Map::new();
        object.insert("version".into(), 2.into());
        object.insert("type".into(), "query".into());
        put(&mut object, told, &["id"]);
        put(&mut object, it, &QUESTION);
        put(&mut object, told, &["tx_id", "z", "opcode"]);
        object.into()
    };
    list.iter().map(question).collect()
}

fn answer(told: &Value) -> Value {
    let mut object = Map::new();
    object.insert("version".into(), 2.into());
    object.insert("type".into(), "answer".into());
    put(&mut object, told, &ANSWERED);
    put(&mut object, &told["queries"][0], &QUESTION);
    put(&mut object, told, &["authorities", "additionals"]);
    object.into()
}

/// Puts the values of these names, as far as `from` has them.
fn put(object: &mut Map<String, Value>, from: &Value, names: &[&str]) {
    for name in names {
        if let Some(value) = from.get(name) {
            object.insert((*name).into(), value.clone());
        }
    }
}
