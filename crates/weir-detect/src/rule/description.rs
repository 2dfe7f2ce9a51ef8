//! What rules say of themselves: number, message, class, and keywords that ask nothing.

use super::FlowTest;
use super::keywords::Collected;
use super::spoken::Spoken;
use super::syntax::{quoted, unquoted};
use super::tag::tag;

impl Collected {
    pub(super) fn take_description(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let is_quoted = |value| matches!(quoted(value), Some((false, _)));
        let text = || unquoted(value).1.replace("\\;", ";").replace("\\\"", "\"");
        let number = || value.parse::<u32>().map_err(|_| format!("`{value}` is not a number"));
        match name {
            "msg" if !is_quoted(value) => return Err("a message stands in quotes".to_owned()),
            "msg" => self.message = text().replace("\\:", ":").replace("\\\\", "\\"),
            "sid" | "rev" if number()? == 0 => return Err("0 is no such number".to_owned()),
            "sid" => self.sid = Some(number()?),
            "gid" => self.generator = Some(number()?),
            "rev" => self.revision = number()?,
            "classtype" => self.class = text(),
            "priority" => self.priority = Some(priority(value)?),
            "metadata" => self.metadata.extend(pairs(value, ' ')),
            "reference" => self.references.extend(pairs_of_one(value)),
            "target" => match (value, self.target.as_deref()) {
                (_, Some(other)) if other != value => {
                    return Err(format!("`{value}`, and {other} before"));
                }
                ("src_ip" | "dest_ip", _) => self.target = Some(value.to_owned()),
                _ => return Err(format!("`{value}` behind target: src_ip or dest_ip")),
            },
            "noalert" => self.is_silent = true,
            // How fast the rule is found: ours are found by their own fast pattern.
            "prefilter" if self.spoken.iter().any(Spoken::is_list) => {
                return Err("of one application".to_owned());
            }
            "prefilter" if !self.asks_something() => {
                return Err("of nothing: it goes behind a keyword".to_owned());
            }
            "rawbytes" | "prefilter" => {}
            "tag" => self.tags.push(tag(value)?),
            // A mark for netfilter's queues, by which no packet comes here.
            "nfq_set_mark" => marks(value)?,
            // Certificates are in the packets that are kept.
            "tls.store" | "tls_store" => {}
            "alert" if value.is_empty() => (self.tells_pass, self.is_silent) = (true, false),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether it has asked something of packets, or of what is said.
    fn asks_something(&self) -> bool {
        let Self { tests, buffers, bits, stream_sizes, texts, flow_counts, .. } = self;
        let Self { spoken, messages, units, app_events, flow, .. } = self;
        let of_packets = tests.len() + stream_sizes.len() + flow_counts.len();
        let of_flows = bits.len() + texts.len() + spoken.len();
        let of_messages = buffers.len() + messages.len() + units.len() + app_events.len();
        of_packets + of_flows + of_messages > 0 || *flow != FlowTest::default()
    }
}

/// `priority:2`, of digits alone.
fn priority(value: &str) -> Result<u32, String> {
    let is_number = value.bytes().all(|it| it.is_ascii_digit());
    let number = value.parse().ok().filter(|_| is_number);
    number.ok_or_else(|| format!("`{value}` is not a number to {}", u32::MAX))
}

/// `nfq_set_mark:0x10/0xff`
fn marks(value: &str) -> Result<(), String> {
    let mut numbers = value.split('/').map(super::number::number);
    let is_mark = numbers.clone().count() <= 2 && numbers.all(|it| it.is_some());
    is_mark.then_some(()).ok_or_else(|| format!("`{value}` is no mark"))
}

fn pairs(value: &str, separator: char) -> impl Iterator<Item = (String, String)> + '_ {
    value.split(',').map(str::trim).filter(|it| !it.is_empty()).map(move |it| {
        let (key, value) = it.split_once(separator).unwrap_or((it, ""));
        (key.trim().to_owned(), value.trim().to_owned())
    })
}

fn pairs_of_one(value: &str) -> Option<(String, String)> {
    let (kind, name) = value.split_once(',')?;
    Some((kind.trim().to_owned(), name.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_rule_says_of_itself_is_read_or_refused() {
        let take = |name, value| Collected::of(None).take_description(name, value);
        for (name, good) in [("sid", "1"), ("rev", "7"), ("msg", "\"a\""), ("priority", "256")] {
            assert_eq!(take(name, good), Ok(true), "{name}:{good}");
        }
        for (name, wrong) in [
            ("sid", "0"),
            ("rev", "0"),
            ("msg", "a"),
            ("msg", "\"a"),
            ("msg", "!\"a\""),
            ("priority", "+5"),
            ("priority", "0x10"),
            ("priority", "4294967296"),
        ] {
            assert!(take(name, wrong).is_err(), "{name}:{wrong}");
        }
        let mut collected = Collected::of(None);
        assert!(collected.take_description("target", "src_ip").is_ok());
        assert!(collected.take_description("target", "src_ip").is_ok());
        assert!(collected.take_description("target", "dest_ip").is_err());
    }
}
