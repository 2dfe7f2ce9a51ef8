//! What is told of a message of multicast DNS: EVE's `mdns`.

use super::tell::type_name;
use super::{Message, Record};
use crate::value::{Object, Value};

const TEXT: u16 = 16;
/// The type of options of the message itself.
const OPTIONS: u16 = 41;
/// Types that are told of as what they say; others as the bytes that they are.
const READ: [u16; 12] = [1, 2, 5, 6, 10, 12, 15, 16, 28, 33, 41, 44];
/// Bits of a message's flags (RFC 1035 s4.1.1, RFC 4035 s3).
const FLAGS: [(&str, u16); 7] = [
    ("aa", 0x400),
    ("tc", 0x200),
    ("rd", 0x100),
    ("ra", 0x80),
    ("z", 0x40),
    ("ad", 0x20),
    ("cd", 0x10),
];

impl Message {
    /// What is told of it.
    pub(crate) fn multicast_object(&self) -> Object {
        let kind = if self.is_response { "response" } else { "request" };
        let mut object = Object::default().with("type", kind).with("id", self.id);
        let flags = FLAGS.iter().filter(|it| self.flags & it.1 != 0);
        let flags: Vec<&str> = flags.map(|it| it.0).collect();
        object.put_some("flags", Some(flags).filter(|it| !it.is_empty()));
        object.put("opcode", self.opcode);
        object.put("rcode", self.response_code);
        object.put_some("queries", self.queries(|it| type_name(it).to_lowercase()));
        let names = ["answers", "authorities", "additionals"];
        for (place, (name, records)) in names.into_iter().zip(&self.records).enumerate() {
            // Options are additional; of none nothing is told.
            let is_told =
                |it: &&Record| place < 2 || it.kind != OPTIONS || !self.bytes_of(it).is_empty();
            let told: Vec<Value> =
                records.iter().filter(is_told).map(|it| self.multicast_record(it)).collect();
            object.put_some(name, Some(told).filter(|it| !it.is_empty()));
        }
        object
    }

    /// A record, what it says by the name of its type.
    fn multicast_record(&self, record: &Record) -> Value {
        let mut object = Object::default();
        record.put_name(&mut object);
        let value = match record.kind {
            TEXT => Some(Value::List(self.data(record))),
            OPTIONS => Some(Value::List(self.option_list(record))),
            kind if READ.contains(&kind) => self.data(record).into_iter().next(),
            _ => Some(self.bytes_of(record).into()),
        };
        if let Some(value) = value {
            object.put(type_name(record.kind).to_lowercase(), value);
        }
        object.put_some("rdata_truncated", self.is_data_cut(record).then_some(true));
        object.into()
    }
}
