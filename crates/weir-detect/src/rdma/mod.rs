//! Keywords of RDMA: what rules ask of a packet's transport headers and management datagrams; and
//! operations whose payload several packets bring.

pub(crate) mod operation;

use weir_wire::bth::{Opcode, Operation};
use weir_wire::icrc::{self, IcrcStatus};
use weir_wire::parse::Parsed;
use weir_wire::{ext, mad};

use crate::rule::Numbers;
use operation::Head;

/// One thing asked of an RDMA packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RdmaTest {
    Opcode { is_negated: bool, any_of: Vec<OpcodeIs> },
    DestinationQp(Numbers),
    SourceQp(Numbers),
    PartitionKey(Numbers),
    QueueKey(Numbers),
    RemoteKey(Numbers),
    Psn(Numbers),
    Syndrome(Numbers),
    Length(Numbers),
    Icrc { is_valid: bool },
    Cm(Vec<u16>),
    Mad { class: Option<Numbers>, method: Option<Numbers>, attribute: Option<Numbers> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpcodeIs {
    Value(u8),
    Operation(Operation),
}

/// Operations by the words that rules use; `rdma.opcode:write` is every opcode of a WRITE.
const OPERATIONS: &[(&str, Operation)] = &[
    ("send", Operation::Send),
    ("write", Operation::Write),
    ("read_request", Operation::ReadRequest),
    ("read_response", Operation::ReadResponse),
    ("atomic", Operation::Atomic),
    ("acknowledge", Operation::Acknowledge),
    ("atomic_acknowledge", Operation::AtomicAcknowledge),
    ("resync", Operation::Resync),
    ("flush", Operation::Flush),
    ("atomic_write", Operation::AtomicWrite),
    ("cnp", Operation::CongestionNotification),
    ("reserved", Operation::Reserved),
];

/// Messages of connection management by their attribute (IBTA Vol 1 s12.6).
const CM_MESSAGES: &[(&str, u16)] = &[
    ("req", 0x10),
    ("mra", 0x11),
    ("rej", 0x12),
    ("rep", 0x13),
    ("rtu", 0x14),
    ("dreq", 0x15),
    ("drep", 0x16),
    ("sidr_req", 0x17),
    ("sidr_rep", 0x18),
    ("lap", 0x19),
    ("apr", 0x1a),
];

/// The test that a keyword makes; `None` if it is not one of RDMA.
pub(crate) fn test(name: &str, value: &str) -> Option<Result<RdmaTest, String>> {
    let name = name.strip_prefix("rdma.")?;
    let value = value.trim().trim_matches('"');
    let numbers = |bits| numbers(value, bits);
    Some(match name {
        "opcode" => opcode(value),
        "dest_qp" => numbers(24).map(RdmaTest::DestinationQp),
        "src_qp" => numbers(24).map(RdmaTest::SourceQp),
        "pkey" => numbers(16).map(RdmaTest::PartitionKey),
        "qkey" => numbers(32).map(RdmaTest::QueueKey),
        "rkey" => numbers(32).map(RdmaTest::RemoteKey),
        "psn" => numbers(24).map(RdmaTest::Psn),
        "syndrome" => syndrome(value).map(RdmaTest::Syndrome),
        "length" => numbers(32).map(RdmaTest::Length),
        "icrc" => match value {
            "valid" => Ok(RdmaTest::Icrc { is_valid: true }),
            "invalid" => Ok(RdmaTest::Icrc { is_valid: false }),
            other => Err(format!("`{other}` behind rdma.icrc: valid or invalid")),
        },
        "cm" => cm(value),
        "mad" => mad_header(value),
        _ => return None,
    })
}

/// Numbers of so many bits; the ends of `3-9` belong to it, as nobody wrote rules of RDMA for
/// Suricata, where they do not.
fn numbers(text: &str, bits: u32) -> Result<Numbers, String> {
    match text.contains('-') {
        true => Numbers::with_ends(text, bits)
            .ok_or_else(|| format!("`{text}` where a range like 3-9 is expected")),
        false => Numbers::parse(text, bits),
    }
}

/// What a list says without its brackets, and whether `!` stands before it.
fn list(value: &str) -> (bool, &str) {
    let (is_negated, list) = match value.strip_prefix('!') {
        Some(rest) => (true, rest.trim()),
        None => (false, value),
    };
    (is_negated, list.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(list))
}

fn opcode(value: &str) -> Result<RdmaTest, String> {
    let (is_negated, list) = list(value);
    let any_of = list.split(',').map(|it| one_opcode(it.trim())).collect::<Result<_, _>>()?;
    Ok(RdmaTest::Opcode { is_negated, any_of })
}

fn one_opcode(text: &str) -> Result<OpcodeIs, String> {
    if let Ok(numbers) = Numbers::parse(text, 64) {
        let only = numbers.only().and_then(|it| u8::try_from(it).ok());
        return only.map(OpcodeIs::Value).ok_or_else(|| format!("`{text}` is not an opcode"));
    }
    let word = text.to_ascii_lowercase();
    if let Some((_, operation)) = OPERATIONS.iter().find(|(name, _)| *name == word) {
        return Ok(OpcodeIs::Operation(*operation));
    }
    let spelt = |opcode: &&Opcode| opcode.name().replace(' ', "_").eq_ignore_ascii_case(&word);
    let known = Opcode::DEFINED.iter().find(spelt);
    known.map(|it| OpcodeIs::Value(it.0)).ok_or_else(|| {
        let names: Vec<&str> = OPERATIONS.iter().map(|it| it.0).collect();
        format!("`{text}` is not an opcode; operations are {}", names.join(", "))
    })
}

fn syndrome(value: &str) -> Result<Numbers, String> {
    match value {
        "ack" => Ok(Numbers::between(0, 0x1f, false)),
        "rnr" => Ok(Numbers::between(0x20, 0x3f, false)),
        "nak" => Ok(Numbers::between(0x60, 0x7f, false)),
        other => numbers(other, 8),
    }
}

fn cm(value: &str) -> Result<RdmaTest, String> {
    let one = |text: &str| {
        let known = CM_MESSAGES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        known.map(|it| it.1).ok_or_else(|| format!("`{text}` is no message of rdma.cm"))
    };
    let (is_negated, list) = list(value);
    let named = list.split(',').map(|it| one(it.trim())).collect::<Result<Vec<_>, _>>()?;
    let all = CM_MESSAGES.iter().map(|it| it.1);
    Ok(RdmaTest::Cm(all.filter(|it| named.contains(it) != is_negated).collect()))
}

fn mad_header(value: &str) -> Result<RdmaTest, String> {
    let (mut class, mut method, mut attribute) = (None, None, None);
    for part in value.split(',').map(str::trim).filter(|it| !it.is_empty()) {
        let wrong = || format!("`{part}` behind rdma.mad: class, method or attribute and a number");
        let (word, number) = part.split_once(char::is_whitespace).ok_or_else(wrong)?;
        let numbers = Some(numbers(number, if word == "attribute" { 16 } else { 8 })?);
        match word {
            "class" => class = numbers,
            "method" => method = numbers,
            "attribute" => attribute = numbers,
            _ => return Err(wrong()),
        }
    }
    Ok(RdmaTest::Mad { class, method, attribute })
}

impl RdmaTest {
    /// Whether the packet is as the rule says. A field that the packet lacks is none.
    /// `head`: what the first packet of the operation said, where that is looked at.
    pub(crate) fn holds(&self, bytes: &[u8], parsed: &Parsed, head: Option<Head>) -> bool {
        let Some(rdma) = &parsed.rdma else { return false };
        let head = head.unwrap_or_default();
        let has =
            |numbers: &Numbers, field: Option<u64>| field.is_some_and(|it| numbers.contain(it));
        match self {
            Self::Opcode { is_negated, any_of } => {
                let is = |one: &OpcodeIs| match *one {
                    OpcodeIs::Value(value) => rdma.opcode.0 == value,
                    OpcodeIs::Operation(operation) => rdma.opcode.operation() == operation,
                };
                any_of.iter().any(is) != *is_negated
            }
            Self::DestinationQp(numbers) => numbers.contain(rdma.destination_qp.value().into()),
            Self::SourceQp(numbers) => {
                has(numbers, ext::deth(bytes, rdma).map(|it| it.source_qp().value().into()))
            }
            Self::PartitionKey(numbers) => numbers.contain(rdma.partition_key.0.into()),
            Self::QueueKey(numbers) => {
                has(numbers, ext::deth(bytes, rdma).map(|it| it.queue_key.get().into()))
            }
            Self::RemoteKey(numbers) => {
                has(numbers, remote_key(bytes, parsed).or(head.remote_key).map(u64::from))
            }
            Self::Psn(numbers) => numbers.contain(rdma.psn.value().into()),
            Self::Syndrome(numbers) => {
                has(numbers, ext::aeth(bytes, rdma).map(|it| it.syndrome_byte().into()))
            }
            Self::Length(numbers) => {
                let own = ext::reth(bytes, rdma).map(|it| it.dma_length.get());
                has(numbers, own.or(head.length).map(u64::from))
            }
            Self::Icrc { is_valid } => match icrc::check(bytes, parsed) {
                IcrcStatus::Valid => *is_valid,
                IcrcStatus::Invalid => !*is_valid,
                _ => false,
            },
            Self::Cm(messages) => mad::header(bytes, parsed).is_some_and(|header| {
                header.management_class == mad::class::COMMUNICATION
                    && messages.contains(&header.attribute_id.get())
            }),
            Self::Mad { class, method, attribute } => {
                mad::header(bytes, parsed).is_some_and(|header| {
                    let holds = |numbers: &Option<Numbers>, field: u64| {
                        numbers.is_none_or(|it| it.contain(field))
                    };
                    holds(class, header.management_class.into())
                        && holds(method, header.method.into())
                        && holds(attribute, header.attribute_id.get().into())
                })
            }
        }
    }
}

/// The R_Key that the packet brings: of a READ or WRITE, an atomic, or one to invalidate.
pub(crate) fn remote_key(bytes: &[u8], parsed: &Parsed) -> Option<u32> {
    let rdma = parsed.rdma.as_ref()?;
    let reth = ext::reth(bytes, rdma).map(|it| it.remote_key.get());
    let atomic = || ext::atomic_eth(bytes, rdma).map(|it| it.remote_key.get());
    let invalidate = || ext::ieth(bytes, rdma).map(|it| it.remote_key.get());
    reth.or_else(atomic).or_else(invalidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_are_named_by_number_operation_and_specification() {
        let read = |text: &str| test("rdma.opcode", text).unwrap();
        let list = vec![OpcodeIs::Value(0x0c)];
        for text in ["12", "0x0c", "RC_RDMA_READ_Request"] {
            assert_eq!(
                read(text),
                Ok(RdmaTest::Opcode { is_negated: false, any_of: list.clone() }),
                "{text}"
            );
        }
        let several = vec![
            OpcodeIs::Operation(Operation::Write),
            OpcodeIs::Operation(Operation::CongestionNotification),
        ];
        assert_eq!(
            read("![write, cnp]"),
            Ok(RdmaTest::Opcode { is_negated: true, any_of: several })
        );
        assert!(read("256").is_err() && read("rites").is_err());
        assert!(test("rdma.lunch", "1").is_none());
    }

    #[test]
    fn words_of_cm_mad_and_syndromes_are_read() {
        assert_eq!(test("rdma.cm", "req,rej").unwrap(), Ok(RdmaTest::Cm(vec![0x10, 0x12])));
        assert_eq!(test("rdma.cm", "[req, rej]").unwrap(), test("rdma.cm", "req,rej").unwrap());
        let Ok(RdmaTest::Cm(others)) = test("rdma.cm", "![req,rej]").unwrap() else { panic!() };
        assert!(others.contains(&0x13) && !others.contains(&0x10) && !others.contains(&0x12));
        assert!(test("rdma.cm", "hello").unwrap().is_err());
        assert!(test("rdma.mad", "class 0x81, method 1").unwrap().is_ok());
        assert!(test("rdma.mad", "class").unwrap().is_err());
        let Ok(RdmaTest::Syndrome(numbers)) = test("rdma.syndrome", "nak").unwrap() else {
            panic!("nak is a range of syndromes")
        };
        assert!(numbers.contain(0x62) && !numbers.contain(0x1f));
    }
}
