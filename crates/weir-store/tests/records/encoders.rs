//! Properties of the encoders, on messages taken apart by the formats' own length fields.

use super::traffic;
use proptest::prelude::*;
use weir_store::sink::encoder::MESSAGE_BYTES_MIN;
use weir_store::sink::{Encoder, EncoderOptions, Format, Item, Message, TemplateRefresh, rdma};
use weir_wire::frame::Time;

const START: Time = Time(1_700_000_000_000_000_000);

struct Taken {
    sequence: u32,
    records: u32,
    has_templates: bool,
}

/// Checks a message's lengths and says what it holds.
fn take_apart(format: Format, message: Message<'_>, bytes_max: usize) -> Taken {
    let bytes = message.bytes;
    let u16_at = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    let u32_at = |at: usize| (u16_at(at) << 16 | u16_at(at + 2)) as u32;
    assert!(bytes.len() <= bytes_max, "{} of {bytes_max} bytes", bytes.len());
    let (header, sequence, template_set) = match format {
        Format::Netflow5 => {
            assert_eq!((u16_at(0), bytes.len()), (5, 24 + 48 * u16_at(2)));
            assert_eq!(u16_at(2) as u32, message.records);
            return Taken { sequence: u32_at(16), records: message.records, has_templates: false };
        }
        Format::Netflow9 => (20, u32_at(12), 0),
        Format::Ipfix => {
            assert_eq!((u16_at(0), u16_at(2)), (10, bytes.len()));
            (16, u32_at(8), 2)
        }
    };
    let (mut at, mut has_templates) = (header, false);
    while at < bytes.len() {
        has_templates |= u16_at(at) == template_set;
        assert!(u16_at(at + 2) > 4, "no set is empty");
        at += u16_at(at + 2);
    }
    assert_eq!(at, bytes.len(), "the sets fill the message");
    Taken { sequence, records: message.records, has_templates }
}

fn formats() -> impl Strategy<Value = Format> {
    prop_oneof![Just(Format::Netflow5), Just(Format::Netflow9), Just(Format::Ipfix)]
}

fn conversations() -> Vec<Item> {
    ["rc-write-rdmacm.pcap", "rping-ipv6-cm.pcap", "ud-send.pcap"]
        .into_iter()
        .flat_map(traffic::capture)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn messages_fit_and_are_numbered_as_the_format_says(
        format in formats(),
        message_bytes_max in MESSAGE_BYTES_MIN..9000,
        biflow in any::<bool>(),
        count in 0u32..400,
        flush_each in 1usize..200,
        refresh_messages in 1u32..9,
    ) {
        let mut items = traffic::flows(count, true, START).0;
        items.extend(conversations());
        let refresh = TemplateRefresh { messages: refresh_messages, interval_ns: u64::MAX };
        let options = EncoderOptions {
            message_bytes_max,
            biflow,
            refresh: Some(refresh),
            ..EncoderOptions::datagrams(format)
        };
        let mut encoder = Encoder::new(&options, START);
        let (mut expected, mut sent, mut since_templates) = (0u32, 0u32, None);
        let mut check = |message: Message<'_>| {
            let taken = take_apart(format, message, message_bytes_max);
            assert_eq!(taken.sequence, expected);
            expected += if format == Format::Netflow9 { 1 } else { taken.records };
            sent += taken.records;
            if format != Format::Netflow5 {
                // The templates of one refresh may take two messages.
                since_templates = match (taken.has_templates, since_templates) {
                    (true, _) => Some(0),
                    (false, since) => Some(since.expect("templates come first") + 1),
                };
                assert!(since_templates <= Some(refresh_messages));
            }
        };
        let mut added = 0;
        for (index, item) in items.iter().enumerate() {
            let now = START.plus_ns(index as u64 * 1_000_000);
            added += encoder.add(item, now, &mut check).records;
            if index % flush_each == 0 {
                encoder.flush(now, &mut check);
            }
        }
        encoder.flush(START, &mut check);
        prop_assert_eq!(sent, added);
    }
}

#[test]
fn templates_come_again_after_the_interval_and_when_the_clock_was_set_back() {
    let (items, _) = traffic::flows(1, false, START);
    let refresh = TemplateRefresh { messages: u32::MAX, interval_ns: 60_000_000_000 };
    let options =
        EncoderOptions { refresh: Some(refresh), ..EncoderOptions::datagrams(Format::Ipfix) };
    let mut encoder = Encoder::new(&options, START);
    let has_templates: Vec<bool> = [0u64, 1, 59, 60, 61, 3, 4]
        .into_iter()
        .map(|seconds| {
            let now = START.plus_ns(seconds * 1_000_000_000);
            let mut found = false;
            let mut note = |message: Message<'_>| {
                found |= take_apart(Format::Ipfix, message, 1400).has_templates;
            };
            encoder.add(&items[0], now, &mut note);
            encoder.flush(now, &mut note);
            found
        })
        .collect();
    assert_eq!(has_templates, [true, false, false, true, false, true, false]);
}

#[test]
fn what_a_format_has_no_form_for_is_told() {
    let items = conversations();
    let without_form = |format| {
        let mut encoder = Encoder::new(&EncoderOptions::datagrams(format), START);
        let told = |item: &&Item| encoder.add(item, START, &mut |_| ()).is_without_form;
        items.iter().filter(told).count()
    };
    let conversations = items.iter().filter(|it| matches!(it, Item::Conversation(..))).count();
    assert!(conversations > 0);
    assert_eq!(without_form(Format::Ipfix), 0);
    assert_eq!(without_form(Format::Netflow9), conversations);
    assert!(without_form(Format::Netflow5) > conversations, "IPv6 flows too");
}

#[test]
fn the_document_describes_every_rdma_element() {
    let document = include_str!("../../../../docs/ipfix-rdma.md");
    let rows: Vec<Vec<&str>> = document
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(|line| line.split('|').map(str::trim).skip(1).take(3).collect())
        .collect();
    for field in rdma::ELEMENTS {
        if let weir_store::sink::fields::Element::Rdma(number) = field.element {
            let row = [number.to_string(), field.name.to_owned(), field.length.to_string()];
            assert!(rows.iter().any(|it| *it == row), "{row:?} is not in the document");
        }
    }
}
