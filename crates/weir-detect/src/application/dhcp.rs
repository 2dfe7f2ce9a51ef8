//! DHCP (RFC 2131, 2132): who is given which address.

use super::Parser;
use super::unit::{Record, Said, Unit};
use crate::buffers::event::AppEvent;
use crate::heap::no_heap;
use crate::rule::{Field, Protocol};
use crate::value::{Object, Value, hex};

/// Bytes before the options, the cookie included.
const HEAD_LEN: usize = 240;
/// What EVE's event has.
const BRIEF: [&str; 6] = ["type", "id", "client_mac", "assigned_ip", "dhcp_type", "renewal_time"];
/// Options of a message, at most.
const OPTIONS_MAX: usize = 256;

/// A flow between a client and a server.
#[derive(Debug, Default)]
pub(crate) struct Dhcp {
    count: u64,
}
no_heap!(Dhcp);

impl Parser for Dhcp {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        let Some((head, options)) = bytes.split_at_checked(HEAD_LEN) else {
            said.has_failed = true;
            return;
        };
        let mut unit = Unit::new(Protocol::Dhcp, self.count);
        self.count += 1;
        let object = object(head, options, &mut unit);
        // Unless asked for more, EVE has what was lent to whom.
        if said.dhcp_extended {
            said.records.push(Record::new("dhcp", unit.number, object.clone()).from(side));
        } else if object.value("dhcp_type") == Some(&"ack".into()) {
            let mut brief = Object::default();
            let told = object.iter().filter(|it| BRIEF.contains(&it.0));
            told.for_each(|(name, value)| brief.put(name.to_owned(), value.clone()));
            said.records.push(Record::new("dhcp", unit.number, brief).from(side));
        }
        unit.tells("dhcp", object);
        said.units.push(unit);
    }
}

fn object(head: &[u8], mut rest: &[u8], unit: &mut Unit) -> Object {
    let kind = if head[0] == 1 { "request" } else { "reply" };
    let identifier = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
    let mut object = Object::default()
        .with("type", kind)
        .with("id", identifier)
        .with("client_mac", hex(&head[28..34], ":"))
        .with("assigned_ip", address(&head[16..20]))
        .with("client_ip", address(&head[12..16]));
    if kind == "reply" {
        object.put("relay_ip", address(&head[24..28]));
        object.put("next_server_ip", address(&head[20..24]));
    }
    for _ in 0..OPTIONS_MAX {
        let (code, behind) = match rest {
            [255, ..] => return object,
            [0, behind @ ..] => {
                rest = behind;
                continue;
            }
            [code, behind @ ..] => (*code, behind),
            [] => break,
        };
        let content = behind
            .split_first()
            .and_then(|(length, behind)| behind.split_at_checked(usize::from(*length)));
        let Some((content, behind)) = content else {
            unit.odd(AppEvent::DhcpTruncated);
            return object;
        };
        rest = behind;
        option(code, content, unit, &mut object);
    }
    unit.odd(AppEvent::DhcpTruncated);
    object
}

fn option(code: u8, content: &[u8], unit: &mut Unit, object: &mut Object) {
    let number = || content.first_chunk::<4>().map(|it| u32::from_be_bytes(*it));
    let addresses = || content.chunks_exact(4).map(address).collect::<Vec<_>>();
    let mut time = |name: &'static str, field: Field| {
        if let Some(seconds) = number() {
            unit.number(field, seconds);
            object.put(name, seconds);
        }
    };
    let least = match code {
        51 | 58 | 59 => 4,
        61 => 2,
        _ => 0,
    };
    if content.len() < least {
        unit.odd(AppEvent::DhcpMalformed);
        return;
    }
    match code {
        51 => time("lease_time", Field::DhcpLease),
        58 => time("renewal_time", Field::DhcpRenewal),
        59 => time("rebinding_time", Field::DhcpRebinding),
        1 if content.len() == 4 => object.put("subnet_mask", address(content)),
        3 => object.put("routers", addresses()),
        6 => object.put("dns_servers", addresses()),
        12 if !content.is_empty() => object.put("hostname", content),
        50 if content.len() == 4 => object.put("requested_ip", address(content)),
        53 => {
            let name = content.first().and_then(|it| kind(*it));
            object.put_some("dhcp_type", name);
        }
        55 => {
            let names = content.iter().filter_map(|it| parameter(*it));
            object.put("params", names.map(Value::from).collect::<Vec<_>>());
        }
        60 => object.put("vendor_class_identifier", content),
        61 if content.len() > 1 => object.put("client_id", hex(&content[1..], ":")),
        _ => {}
    }
}

fn address(bytes: &[u8]) -> String {
    let numbers: Vec<String> = bytes.iter().map(u8::to_string).collect();
    numbers.join(".")
}

/// RFC 2132 s9.6.
fn kind(number: u8) -> Option<&'static str> {
    const NAMES: [&str; 8] =
        ["discover", "offer", "request", "decline", "ack", "nak", "release", "inform"];
    NAMES.get(usize::from(number).checked_sub(1)?).copied()
}

/// Options that clients ask for, as EVE names them.
fn parameter(number: u8) -> Option<&'static str> {
    Some(match number {
        1 => "subnet_mask",
        3 => "router",
        6 => "dns_server",
        12 => "hostname",
        15 => "domain",
        35 => "arp_timeout",
        42 => "ntp_server",
        66 => "tftp_server_name",
        67 => "tftp_server_name",
        120 => "sip_server",
        252 => "wpad",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_tells_what_is_lent_for_how_long() {
        let mut bytes = vec![0; HEAD_LEN];
        (bytes[0], bytes[7], bytes[16], bytes[19]) = (2, 9, 10, 5);
        bytes.extend([53, 1, 5, 51, 4, 0, 0, 14, 16, 255]);
        let (mut dhcp, mut said) = (Dhcp::default(), Said::default());
        dhcp.take(1, &bytes, &mut said);
        let object = &said.records[0].objects[0].1;
        assert_eq!(object.value("dhcp_type"), Some(&"ack".into()));
        assert_eq!(object.value("assigned_ip"), Some(&"10.0.0.5".into()));
        assert_eq!(said.units[0].numbers(Field::DhcpLease).collect::<Vec<_>>(), [3600]);
        bytes.truncate(bytes.len() - 3);
        dhcp.take(1, &bytes, &mut said);
        assert!(said.units[1].events.has(AppEvent::DhcpTruncated));
    }
}
