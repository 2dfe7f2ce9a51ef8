//! `content`: text with bytes in hex between bars, and the keywords that say where it stands.

use super::step::{Content, Fast, Step, Value};
use super::syntax::unquoted;
use super::{Buffer, BufferTest};

/// Bytes of one content, at most; a rule with a longer one is refused.
pub(crate) const CONTENT_LEN_MAX: usize = 255 * 16;

/// Reads the value of `content`.
pub(crate) fn parse(value: &str) -> Result<Content, String> {
    let (is_negated, text) = unquoted(value);
    let bytes = bytes(text)?;
    if bytes.is_empty() {
        return Err("an empty content".to_owned());
    }
    if bytes.len() > CONTENT_LEN_MAX {
        return Err(format!("a content of more than {CONTENT_LEN_MAX} bytes"));
    }
    Ok(Content {
        bytes: bytes.into(),
        is_nocase: false,
        is_negated,
        offset: None,
        depth: None,
        distance: None,
        within: None,
        starts: false,
        ends: false,
        skip: 0,
        fast: Fast::Free,
        replacement: None,
        leads: false,
    })
}

/// The bytes that `a|0d 0a|b\;` stands for.
pub(crate) fn bytes(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut digits: Option<Option<u8>> = None;
    let mut is_escaped = false;
    for byte in text.bytes() {
        match (&mut digits, byte) {
            (None, _) if is_escaped => {
                if !matches!(byte, b'"' | b';' | b'\\' | b':' | b'|') {
                    return Err(format!("`\\{}` escapes nothing", char::from(byte)));
                }
                bytes.push(byte);
                is_escaped = false;
            }
            (None, b'\\') => is_escaped = true,
            (None, b'"') => return Err("a quote without a backslash".to_owned()),
            (None, b'|') => digits = Some(None),
            (None, _) => bytes.push(byte),
            (Some(None), b'|') => digits = None,
            (Some(_), b' ') | (Some(None), b',') => {}
            (Some(half), _) => {
                let digit = char::from(byte).to_digit(16).and_then(|it| u8::try_from(it).ok());
                let digit = digit.ok_or_else(|| format!("`{}` in hex", char::from(byte)))?;
                match half.take() {
                    None => *half = Some(digit),
                    Some(high) => bytes.push(high << 4 | digit),
                }
            }
        }
    }
    match (digits, is_escaped) {
        (None, false) => Ok(bytes),
        (None, true) => Err("a backslash at the end".to_owned()),
        (Some(_), _) => Err("`|` without another".to_owned()),
    }
}

/// `fast_pattern`, `fast_pattern:only`, `fast_pattern:3,5`.
pub(crate) fn set_fast(content: &mut Content, value: &str) -> Result<(), String> {
    content.fast = match value.trim() {
        "" => Fast::Chosen,
        "only" => Fast::Only,
        part => {
            let wrong = || format!("`{part}` is no part of the content");
            let (first, length) = part.split_once(',').ok_or_else(wrong)?;
            let first: u16 = first.trim().parse().map_err(|_| wrong())?;
            let length: u16 = length.trim().parse().map_err(|_| wrong())?;
            let end = usize::from(first) + usize::from(length);
            match length {
                _ if end > content.bytes.len() => return Err(wrong()),
                0 => Fast::Chosen,
                _ => Fast::Part(first, length),
            }
        }
    };
    if content.is_negated && (content.fast == Fast::Only || has_place(content)) {
        return Err("a negated fast pattern with a place".to_owned());
    }
    Ok(())
}

fn has_place(content: &Content) -> bool {
    content.offset.is_some() || content.depth.is_some() || content.is_relative()
}

/// What contradicts itself in a content that is whole.
pub(crate) fn check(content: &Content) -> Result<(), String> {
    let len = content.bytes.len() as i64;
    let shorter = |value: Option<Value>| matches!(value, Some(Value::Fixed(it)) if it < len);
    if shorter(content.depth) {
        return Err("depth is less than the length of the content".to_owned());
    }
    if shorter(content.within) {
        return Err("within is less than the content".to_owned());
    }
    if content.starts && (content.is_relative() || content.offset.is_some()) {
        return Err("startswith beside another place".to_owned());
    }
    if content.fast == Fast::Only && has_place(content) {
        return Err("fast_pattern:only with a place".to_owned());
    }
    if content.is_relative() && (content.offset.is_some() || content.depth.is_some()) {
        return Err("offset or depth beside distance or within".to_owned());
    }
    Ok(())
}

/// Has contents spelled as their buffer is: digests in small letters, serial numbers in capitals.
pub(super) fn spell(test: &mut BufferTest) {
    let spelled: fn(&[u8]) -> Vec<u8> = match test.key.buffer {
        _ if !test.key.transforms.is_empty() => return,
        Buffer::TlsSerial => <[u8]>::to_ascii_uppercase,
        Buffer::TlsFingerprint | Buffer::Ja3Hash | Buffer::Ja3sHash => <[u8]>::to_ascii_lowercase,
        _ => return,
    };
    for step in &mut test.steps {
        if let Step::Content(content) = step {
            content.bytes = spelled(&content.bytes).into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_and_escapes_become_bytes() {
        assert_eq!(bytes("a|0d 0A|b").unwrap(), b"a\r\nb");
        assert_eq!(bytes(r#"\"\;\\\:"#).unwrap(), br#"";\:"#);
        assert_eq!(bytes("|414243|").unwrap(), b"ABC");
        assert_eq!(bytes("|3 a20|").unwrap(), b": ", "a space may stand anywhere");
        for wrong in ["|0|", "|0g|", "|00", "a\\", "\\n", "a\"b"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_negated_content_is_told() {
        assert!(parse("!\"GET\"").unwrap().is_negated);
        assert!(!parse("\"!GET\"").unwrap().is_negated);
        assert!(parse("\"\"").is_err());
    }
}
