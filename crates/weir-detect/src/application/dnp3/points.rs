//! Points of objects: what each kind of object says of one (IEEE 1815 Annex A).

use crate::value::{Object, Value};

use Part::{Bits, Float, Signed, Status, Unsigned};

/// A part of a point; numbers have their lowest byte first.
enum Part {
    /// A byte: a bit for each of [`STATUS`], then these, by their widths.
    Status(Widths),
    /// A byte, by widths, the lowest bits first.
    Bits(Widths),
    /// Numbers of so many bytes.
    Unsigned(&'static str, usize),
    Signed(&'static str, usize),
    Float(&'static str, usize),
}

type Widths = &'static [(&'static str, u32)];

/// What most points begin with: whether they are as they should be.
const STATUS: Widths =
    &[("online", 1), ("restart", 1), ("comm_lost", 1), ("remote_forced", 1), ("local_forced", 1)];
const BINARY: Part = Status(&[("chatter_filter", 1), ("reserved", 1), ("state", 1)]);
const DOUBLE: Part = Status(&[("chatter_filter", 1), ("state", 2)]);
const OUTPUT: Part = Status(&[("reserved0", 1), ("reserved1", 1), ("state", 1)]);
const COUNTER: Part = Status(&[("rollover", 1), ("discontinuity", 1), ("reserved0", 1)]);
const COUNTER_EVENT: Part = Status(&[("rollover", 1), ("discontinuity", 1), ("reserved1", 1)]);
const OLD_COUNTER: Part = Status(&[("rollover", 1), ("reserved0", 1), ("reserved1", 1)]);
const ANALOG: Part = Status(&[("over_range", 1), ("reference_err", 1), ("reserved0", 1)]);
const SECURITY: Part = Status(&[("reserved0", 1), ("discontinuity", 1), ("reserved1", 1)]);
const CONTROL: Part = Bits(&[("op_type", 4), ("qu", 1), ("cr", 1), ("tcc", 2)]);
const CONTROL_STATUS: Part = Bits(&[("status_code", 7), ("reserved", 1)]);
const COMMAND: Part = Bits(&[("status_code", 7), ("commanded_state", 1)]);
const ANALOG_COMMAND: Part = Bits(&[("status_code", 7), ("reserved0", 1)]);
const FILL: Part = Bits(&[("fill_percentage", 7), ("overflow_state", 1)]);
const ATTRIBUTES: Part = Bits(&[
    ("rd", 1),
    ("wr", 1),
    ("st", 1),
    ("ev", 1),
    ("df", 1),
    ("padding0", 1),
    ("padding1", 1),
    ("padding2", 1),
]);
const TIME: Part = Unsigned("timestamp", 6);
const COUNT_4: Part = Unsigned("count", 4);
const COUNT_2: Part = Unsigned("count", 2);
const VALUE_4: Part = Signed("value", 4);
const VALUE_2: Part = Signed("value", 2);
const FLOAT_4: Part = Float("value", 4);
const FLOAT_8: Part = Float("value", 8);
const STATUS_CODE: Part = Unsigned("control_status", 1);

/// What a point of such an object is made of; `None`: it is not known, or not of one length.
fn parts(group: u8, variation: u8) -> Option<&'static [Part]> {
    Some(match (group, variation) {
        (1, 2) => &[BINARY],
        (2, 1) => &[Unsigned("state", 1)],
        (2, 2) => &[BINARY, TIME],
        (2, 3) => &[BINARY, Unsigned("timestamp", 2)],
        (3, 2) | (4, 1) => &[DOUBLE],
        (4, 2) => &[DOUBLE, TIME],
        (4, 3) => &[DOUBLE, Unsigned("relative_time_ms", 2)],
        (10, 2) | (11, 1) => &[OUTPUT],
        (11, 2) => &[OUTPUT, TIME],
        (12, 1 | 2) => &[
            CONTROL,
            Unsigned("count", 1),
            Unsigned("ontime", 4),
            Unsigned("offtime", 4),
            CONTROL_STATUS,
        ],
        (13, 1) => &[COMMAND],
        (13, 2) => &[COMMAND, TIME],
        (20..=23, _) => return counter(group, variation),
        (30..=33 | 40 | 42, _) => return analog(group, variation),
        (34, 1) => &[Unsigned("deadband_value", 2)],
        (34, 2) => &[Unsigned("deadband_value", 4)],
        (34, 3) => &[Float("deadband_value", 4)],
        (41, 1) => &[VALUE_4, STATUS_CODE],
        (41, 2) => &[VALUE_2, STATUS_CODE],
        (41, 3) => &[FLOAT_4, STATUS_CODE],
        (41, 4) => &[FLOAT_8, STATUS_CODE],
        (43, 1) => &[ANALOG_COMMAND, Signed("commanded_value", 4)],
        (43, 2) => &[ANALOG_COMMAND, Signed("commanded_value", 2)],
        (43, 3) => &[ANALOG_COMMAND, Signed("commanded_value", 4), TIME],
        (43, 4) => &[ANALOG_COMMAND, Signed("commanded_value", 2), TIME],
        (43, 5) => &[ANALOG_COMMAND, Float("commanded_value", 4)],
        (43, 6) => &[ANALOG_COMMAND, Float("commanded_value", 8)],
        (43, 7) => &[ANALOG_COMMAND, Float("commanded_value", 4), TIME],
        (43, 8) => &[ANALOG_COMMAND, Float("commanded_value", 8), TIME],
        (50, 1 | 3) | (51, 1 | 2) => &[TIME],
        (50, 2) => &[TIME, Unsigned("interval", 4)],
        (50, 4) => &[TIME, Unsigned("interval_count", 4), Unsigned("interval_units", 1)],
        (52, 1) => &[Unsigned("delay_secs", 2)],
        (52, 2) => &[Unsigned("delay_ms", 2)],
        (81, 1) => &[FILL, Unsigned("group", 1), Unsigned("variation", 1)],
        (86, 2) => &[ATTRIBUTES],
        (102, 1) => &[Unsigned("value", 1)],
        (120, 3) => &[Unsigned("csq", 4), Unsigned("user_number", 2)],
        (120, 4) => &[Unsigned("user_number", 2)],
        (121 | 122, 1) => &[SECURITY, Unsigned("association_id", 2), Unsigned("count_value", 4)],
        (122, 2) => &[SECURITY, Unsigned("association_id", 2), Unsigned("count_value", 4), TIME],
        _ => return None,
    })
}

/// Counters, frozen ones, and events of either.
fn counter(group: u8, variation: u8) -> Option<&'static [Part]> {
    Some(match (group, variation) {
        // As Suricata names the bits of these.
        (22, 5) => &[OLD_COUNTER, COUNT_4, TIME],
        (23, 2) => &[OLD_COUNTER, COUNT_2],
        (_, 1) => &[COUNTER, COUNT_4],
        (_, 2) => &[COUNTER, COUNT_2],
        (_, 3) => &[OLD_COUNTER, COUNT_4],
        (_, 4) => &[OLD_COUNTER, COUNT_2],
        (20, 5 | 7) | (21, 9 | 11) => &[COUNT_4],
        (20, 6 | 8) | (21, 10 | 12) => &[COUNT_2],
        (21, 5) => &[COUNTER_EVENT, COUNT_4, TIME],
        (21, 6) => &[COUNTER_EVENT, COUNT_2, TIME],
        (23, 5) => &[COUNTER, COUNT_4, TIME],
        (22 | 23, 6) => &[COUNTER, COUNT_2, TIME],
        (21..=23, 7) => &[OLD_COUNTER, COUNT_4, TIME],
        (21..=23, 8) => &[OLD_COUNTER, COUNT_2, TIME],
        _ => return None,
    })
}

/// Analog inputs and outputs, frozen ones, and events of them.
fn analog(group: u8, variation: u8) -> Option<&'static [Part]> {
    Some(match (group, variation) {
        (_, 1) => &[ANALOG, VALUE_4],
        (_, 2) => &[ANALOG, VALUE_2],
        (30, 3) | (31, 5) => &[VALUE_4],
        (30, 4) | (31, 6) => &[VALUE_2],
        (40, 3) => &[ANALOG, FLOAT_4],
        (40, 4) => &[ANALOG, FLOAT_8],
        (31..=33 | 42, 3) => &[ANALOG, VALUE_4, TIME],
        (31..=33 | 42, 4) => &[ANALOG, VALUE_2, TIME],
        (30 | 32 | 33 | 42, 5) | (31, 7) => &[ANALOG, FLOAT_4],
        (30 | 32 | 33 | 42, 6) | (31, 8) => &[ANALOG, FLOAT_8],
        (32 | 33 | 42, 7) => &[ANALOG, FLOAT_4, TIME],
        (32 | 33 | 42, 8) => &[ANALOG, FLOAT_8, TIME],
        _ => return None,
    })
}

/// Points that are bits, one behind the other: how many each, and what they say.
fn packed(group: u8, variation: u8) -> Option<(usize, &'static str)> {
    Some(match (group, variation) {
        (1 | 10 | 80, 1) => (1, "state"),
        (3, 1) => (2, "state"),
        (12, 3) => (1, "point"),
        _ => return None,
    })
}

/// What an object's head says of its points.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) group: u8,
    pub(super) variation: u8,
    /// What stands before each point.
    pub(super) prefix: u8,
    /// The number of the first.
    pub(super) start: u32,
    pub(super) count: u32,
}

impl Head {
    /// Bytes before each point.
    fn prefix_len(self) -> Option<usize> {
        [0, 1, 2, 4].get(usize::from(self.prefix)).copied()
    }

    /// Bytes of all points, with what stands before each; `None`: a kind that is not known.
    pub(super) fn content_len(self) -> Option<usize> {
        let count = self.count as usize;
        if let Some((width, _)) = packed(self.group, self.variation) {
            return Some((count * width).div_ceil(8));
        }
        if self.variation == 0 || self.group == 60 {
            return count.checked_mul(self.prefix_len()?);
        }
        let size: usize = parts(self.group, self.variation)?.iter().map(Part::size).sum();
        count.checked_mul(size + self.prefix_len()?)
    }

    /// What is told of its points, of the first `most`.
    pub(super) fn points(self, content: &[u8], most: usize) -> Vec<Value> {
        let numbers = self.start..=self.start.saturating_add(self.count.saturating_sub(1));
        let numbers = numbers.take(most.min(self.count as usize));
        if let Some((width, name)) = packed(self.group, self.variation) {
            let state = |place: usize| {
                let byte = content.get(place * width / 8).copied().unwrap_or_default();
                u32::from(byte) >> (place * width % 8) & ((1 << width) - 1)
            };
            let point = |(place, number): (usize, u32)| {
                Object::default()
                    .with("prefix", 0_u8)
                    .with("index", number)
                    .with(name, state(place))
            };
            return numbers.enumerate().map(|it| point(it).into()).collect();
        }
        let (Some(parts), Some(before)) = (parts(self.group, self.variation), self.prefix_len())
        else {
            return Vec::new();
        };
        let mut rest = content;
        let mut points = Vec::new();
        for number in numbers {
            let Some((prefix, behind)) = rest.split_at_checked(before) else { break };
            let prefix = unsigned(prefix);
            let index = if before > 0 { prefix } else { number.into() };
            let mut point = Object::default().with("prefix", prefix).with("index", index);
            rest = behind;
            for part in parts {
                let Some((bytes, behind)) = rest.split_at_checked(part.size()) else {
                    return points;
                };
                part.put(bytes, &mut point);
                rest = behind;
            }
            points.push(point.into());
        }
        points
    }
}

impl Part {
    fn size(&self) -> usize {
        match self {
            Status(_) | Bits(_) => 1,
            Unsigned(_, size) | Signed(_, size) | Float(_, size) => *size,
        }
    }

    fn put(&self, bytes: &[u8], point: &mut Object) {
        let number = unsigned(bytes);
        match self {
            Status(widths) => put_bits(number, &[STATUS, widths], point),
            Bits(widths) => put_bits(number, &[widths], point),
            Unsigned(name, _) => point.put(*name, number),
            Signed(name, size) => {
                let unused = 64 - 8 * *size as u32;
                point.put(*name, (number << unused).cast_signed() >> unused);
            }
            Float(name, 4) => point.put(*name, f64::from(f32::from_bits(number as u32))),
            Float(name, _) => point.put(*name, f64::from_bits(number)),
        }
    }
}

fn put_bits(byte: u64, lists: &[Widths], point: &mut Object) {
    let mut rest = byte;
    for (name, width) in lists.iter().copied().flatten() {
        point.put(*name, rest & ((1 << width) - 1));
        rest >>= width;
    }
}

fn unsigned(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(group: u8, variation: u8, prefix: u8, count: u32, content: &[u8]) -> Vec<Value> {
        let head = Head { group, variation, prefix, start: 3, count };
        assert_eq!(head.content_len(), Some(content.len()));
        head.points(content, 100)
    }

    fn value(point: &Value, name: &str) -> Option<Value> {
        let Value::Object(point) = point else { return None };
        point.value(name).cloned()
    }

    #[test]
    fn points_without_a_prefix_are_counted_from_the_first() {
        let points = told(1, 1, 0, 10, b"\x55\x02");
        let states = points.iter().map(|it| value(it, "state").unwrap());
        let expected = [1_u8, 0, 1, 0, 1, 0, 1, 0, 0, 1].map(Value::from);
        assert_eq!(states.collect::<Vec<_>>(), expected);
        assert_eq!(value(&points[9], "index"), Some(12_u8.into()));
    }

    #[test]
    fn what_stands_before_a_point_is_its_number() {
        let [point] = &told(12, 1, 2, 1, b"\x04\0\x41\x01\x64\0\0\0\xc8\0\0\0\x83")[..] else {
            panic!()
        };
        for (name, number) in [
            ("prefix", 4_u8),
            ("index", 4),
            ("op_type", 1),
            ("tcc", 1),
            ("ontime", 100),
            ("offtime", 200),
            ("status_code", 3),
            ("reserved", 1),
        ] {
            assert_eq!(value(point, name), Some(number.into()), "{name}");
        }
    }

    #[test]
    fn numbers_are_signed_or_have_fractions() {
        let point = &told(30, 2, 0, 1, b"\x01\xfe\xff")[0];
        assert_eq!(value(point, "value"), Some((-2).into()));
        assert_eq!(value(point, "online"), Some(1_u8.into()));
        let point = &told(30, 5, 0, 1, &[b"\x01".as_slice(), &1.5_f32.to_le_bytes()].concat())[0];
        assert_eq!(value(point, "value"), Some(1.5.into()));
    }

    #[test]
    fn no_more_points_are_told_than_may_be() {
        let head = Head { group: 80, variation: 1, prefix: 0, start: 0, count: 64 };
        assert_eq!(head.points(&[0xff; 8], 5).len(), 5);
    }
}
