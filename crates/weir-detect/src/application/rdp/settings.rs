//! What a client wants to connect with: its settings (MS-RDPBCGR s2.2.1.3).

use super::super::names::{Names, name_of};
use super::{layouts, put_flags};
use crate::value::{Object, Value};

/// What stands before a client's settings: whom they are for (s2.2.1.3).
const KEY: &[u8] = b"Duca";
/// Blocks of settings: of the client itself, and of its channels.
const CORE: u16 = 0xc001;
const NET: u16 = 0xc003;
/// Channels that are told of, at most (s2.2.1.3.4 allows 31).
const CHANNELS_MAX: usize = 64;

const VERSIONS: Names = &[
    ("v4", 0x8_0001),
    ("v5", 0x8_0004),
    ("v10.0", 0x8_0005),
    ("v10.1", 0x8_0006),
    ("v10.2", 0x8_0007),
    ("v10.3", 0x8_0008),
    ("v10.4", 0x8_0009),
    ("v10.5", 0x8_000a),
    ("v10.6", 0x8_000b),
    ("v10.7", 0x8_000c),
];
/// Builds of Windows.
const BUILDS: Names = &[
    ("Windows NT 3.1", 528),
    ("Windows NT 3.5", 807),
    ("Windows NT 3.51", 1057),
    ("Windows NT 4.0", 1381),
    ("Windows 2000", 2195),
    ("Windows XP", 2600),
    ("Windows Server 2003", 3790),
    ("Windows Vista RTM", 6000),
    ("Windows Vista SP1", 6001),
    ("Windows Vista SP2", 6002),
    ("Windows 7 RTM", 7600),
    ("Windows 7 SP1", 7601),
    ("Windows 8", 9200),
    ("Windows 8.1", 9600),
    ("Windows 10 TH1", 10_240),
    ("Windows 10 TH2", 10_586),
    ("Windows 10 RS1", 14_393),
    ("Windows 10 RS2", 15_063),
    ("Windows 10 RS3", 16_299),
    ("Windows 10 RS4", 17_134),
    ("Windows 10 RS5", 17_763),
];
const KEYBOARDS: Names =
    &[("xt", 1), ("ico", 2), ("at", 3), ("enhanced", 4), ("1050", 5), ("9140", 6), ("jp", 7)];
const CAPABILITIES: Names = &[
    ("support_errinfo_pdf", 0x1),
    ("want_32bpp_session", 0x2),
    ("support_statusinfo_pdu", 0x4),
    ("strong_asymmetric_keys", 0x8),
    ("valid_connection_type", 0x20),
    ("support_monitor_layout_pdu", 0x40),
    ("support_netchar_autodetect", 0x80),
    ("support_dynvc_gfx_protocol", 0x100),
    ("support_dynamic_time_zone", 0x200),
    ("support_heartbeat_pdu", 0x400),
];
const CONNECTIONS: Names = &[
    ("modem", 1),
    ("low_broadband", 2),
    ("satellite", 3),
    ("high_broadband", 4),
    ("wan", 5),
    ("lan", 6),
    ("autodetect", 7),
];

/// What is told of settings; `None`: they are cut off.
pub(super) fn described(data: &[u8]) -> Option<Object> {
    let from = memchr::memmem::find(data, KEY)? + KEY.len();
    let mut blocks = per_length(data.get(from..)?)?;
    let mut object = Object::default().with("event_type", "connect_request");
    while let [a, b, c, d, rest @ ..] = blocks {
        let kind = u16::from_le_bytes([*a, *b]);
        let length = usize::from(u16::from_le_bytes([*c, *d])).checked_sub(4);
        let Some((block, behind)) = length.and_then(|it| rest.split_at_checked(it)) else { break };
        blocks = behind;
        match kind {
            CORE => match core(block) {
                Some(client) => object.put("client", client),
                None => break,
            },
            NET => match channels(block) {
                Some(names) if !names.is_empty() => object.put("channels", names),
                Some(_) => {}
                None => break,
            },
            _ => {}
        }
    }
    Some(object)
}

/// What stands behind its length (X.691 s10.9).
fn per_length(bytes: &[u8]) -> Option<&[u8]> {
    match bytes {
        [length @ 0..=0x7f, rest @ ..] => rest.get(..usize::from(*length)),
        [high @ 0x80..=0xbf, low, rest @ ..] => {
            rest.get(..usize::from(u16::from_be_bytes([high & 0x3f, *low])))
        }
        _ => None,
    }
}

/// Numbers of a block, one behind the other, the lowest byte first.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn next<const LEN: usize>(&mut self) -> Option<u32> {
        let (digits, rest) = self.0.split_first_chunk::<LEN>()?;
        self.0 = rest;
        Some(digits.iter().rev().fold(0, |all, it| all << 8 | u32::from(*it)))
    }

    /// The next one if it is one of those that there are; else it is left.
    fn next_of<const LEN: usize>(&mut self, is_known: impl Fn(u32) -> bool) -> Option<u32> {
        let before = self.0;
        let number = self.next::<LEN>().filter(|it| is_known(*it));
        if number.is_none() {
            self.0 = before;
        }
        number
    }

    /// A text of 16-bit characters up to a zero.
    fn text<const LEN: usize>(&mut self) -> Option<String> {
        let (bytes, rest) = self.0.split_first_chunk::<LEN>()?;
        self.0 = rest;
        let characters = bytes.chunks_exact(2).map(|it| u16::from_le_bytes([it[0], it[1]]));
        let characters: Vec<u16> = characters.take_while(|it| *it != 0).collect();
        String::from_utf16(&characters).ok()
    }
}

/// The client itself (s2.2.1.3.2).
fn core(block: &[u8]) -> Option<Object> {
    let mut numbers = Numbers(block);
    let mut client = Object::default();
    let version = name_of(VERSIONS, numbers.next::<4>()?);
    client.put("version", version.unwrap_or("unknown"));
    client.put("desktop_width", numbers.next::<2>()?);
    client.put("desktop_height", numbers.next::<2>()?);
    let depth = numbers.next::<2>()?;
    let _sequence = numbers.next::<2>()?;
    client.put("keyboard_layout", layouts::name(numbers.next::<4>()?).unwrap_or("unknown"));
    client.put("build", name_of(BUILDS, numbers.next::<4>()?).unwrap_or("unknown"));
    let put_text = |client: &mut Object, name: &'static str, text: String| {
        client.put_some(name, Some(text).filter(|it| !it.is_empty()));
    };
    put_text(&mut client, "client_name", numbers.text::<32>()?);
    client.put_some("keyboard_type", name_of(KEYBOARDS, numbers.next::<4>()?));
    for name in ["keyboard_subtype", "function_keys"] {
        client.put_some(name, numbers.next::<4>().map(|it| (it != 0).then_some(it))?);
    }
    put_text(&mut client, "ime", numbers.text::<64>()?);
    let depths = further(&mut numbers, &mut client);
    // The latest of the fields that tells one counts.
    let [later, latest] = depths.map(Option::unwrap_or_default);
    let depth = match (latest, later, depth) {
        (1.., _, _) => Some(latest),
        (_, 0xca02 | 0xca03, _) => Some(later - 0xca02 + 15),
        (_, 0xca04, _) => Some(24),
        (_, 0xca00, _) | (_, 0, 0xca00) => Some(4),
        (_, 0xca01, _) | (_, 0, 0xca01) => Some(8),
        _ => None,
    };
    client.put_some("color_depth", depth);
    Some(client)
}

/// What clients may add, each of it only behind the one before; what two of them say of the depth
/// of colours.
fn further(numbers: &mut Numbers<'_>, client: &mut Object) -> [Option<u32>; 2] {
    let mut depths = [None; 2];
    let mut read = || {
        depths[0] = numbers.next_of::<2>(|it| matches!(it, 0 | 0xca00..=0xca04));
        depths[0]?;
        client.put("product_id", numbers.next::<2>()?);
        let serial = numbers.next::<4>()?;
        client.put_some("serial_number", (serial != 0).then_some(serial));
        depths[1] = numbers.next_of::<2>(|it| matches!(it, 0 | 4 | 8 | 15 | 16 | 24));
        depths[1]?;
        numbers.next_of::<2>(|it| it <= 0xf)?;
        let capabilities = numbers.next_of::<2>(|it| it <= 0x7ff)?;
        put_flags(client, "capabilities", CAPABILITIES, capabilities);
        let product = numbers.text::<64>()?;
        client.put_some("id", Some(product).filter(|it| !it.is_empty()));
        let connection = numbers.next_of::<1>(|it| it <= 7)?;
        client.put_some("connection_hint", name_of(CONNECTIONS, connection));
        let _padding = numbers.next::<1>()?;
        numbers.next_of::<4>(|it| it <= 0xf)?;
        let is_size = |it: u32| (10..=10_000).contains(&it);
        client.put("physical_width", numbers.next_of::<4>(is_size)?);
        client.put("physical_height", numbers.next_of::<4>(is_size)?);
        let is_turn = |it: u32| matches!(it, 0 | 90 | 180 | 270);
        client.put("desktop_orientation", numbers.next_of::<2>(is_turn)?);
        client.put("scale_factor", numbers.next_of::<4>(|it| (100..=500).contains(&it))?);
        let scale = numbers.next_of::<4>(|it| matches!(it, 100 | 140 | 180))?;
        client.put("device_scale_factor", scale);
        Some(())
    };
    let _all_is_there = read();
    depths
}

/// Names of the channels that the client wants (s2.2.1.3.4).
fn channels(block: &[u8]) -> Option<Vec<Value>> {
    let (count, list) = block.split_first_chunk::<4>()?;
    let count = u32::from_le_bytes(*count) as usize;
    let mut names = Vec::new();
    let mut all = list.chunks_exact(12);
    for _ in 0..count.min(CHANNELS_MAX) {
        let name = &all.next()?[..8];
        let end = name.iter().position(|it| *it == 0).unwrap_or(name.len());
        names.push(std::str::from_utf8(&name[..end]).ok()?.into());
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block of the client itself, up to the fields that it may leave out.
    fn block() -> Vec<u8> {
        let mut block = b"\x0c\0\x08\0\x80\x07\x38\x04\x01\xca\x03\xaa\x07\x04\0\0".to_vec();
        block.extend(17_763_u32.to_le_bytes());
        let mut name = b"P\0C\0".to_vec();
        name.resize(32, 0);
        block.extend(name);
        block.extend(b"\x04\0\0\0\0\0\0\0\x0c\0\0\0");
        block.resize(block.len() + 64, 0);
        block
    }

    #[test]
    fn a_client_tells_what_it_is_and_what_it_shows() {
        let client = core(&block()).unwrap();
        let value = |name: &str| client.value(name).cloned();
        assert_eq!(value("version"), Some("v10.7".into()));
        assert_eq!(value("desktop_width"), Some(1920_u32.into()));
        assert_eq!(value("keyboard_layout"), Some("de-DE".into()));
        assert_eq!(value("build"), Some("Windows 10 RS5".into()));
        assert_eq!(value("client_name"), Some("PC".into()));
        assert_eq!(value("keyboard_type"), Some("enhanced".into()));
        assert_eq!(value("keyboard_subtype"), None, "0 is none");
        assert_eq!(value("function_keys"), Some(12_u32.into()));
        assert_eq!(value("color_depth"), Some(8_u32.into()));
        assert_eq!(core(&block()[..100]), None, "cut off");
    }

    #[test]
    fn a_later_depth_of_colours_counts_more() {
        for (further, depth) in [
            (b"\x02\xca".to_vec(), 15_u32),
            (b"\x01\xca\x01\0\0\0\0\0\x18\0".to_vec(), 24),
            (b"\x04\xca\x01\0\0\0\0\0\0\0".to_vec(), 24),
        ] {
            let client = core(&[block(), further].concat()).unwrap();
            assert_eq!(client.value("color_depth"), Some(&depth.into()));
        }
    }

    #[test]
    fn channels_have_names_of_eight_bytes() {
        let block = b"\x02\0\0\0rdpdr\0\0\0\0\0\x80\x80cliprdr\0\0\0\xa0\xc0";
        let names: Vec<Value> = vec!["rdpdr".into(), "cliprdr".into()];
        assert_eq!(channels(block), Some(names));
        assert_eq!(channels(b"\x02\0\0\0rdpdr"), None);
    }
}
