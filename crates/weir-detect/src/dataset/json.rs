//! Sets in JSON (RFC 8259): objects, each with a value at a key, and all else that is known of it.
//!
//! Objects are kept as they are written; whoever tells of one reads it again.

use std::sync::Arc;

use super::options::{Format, Options};
use super::values::Values;
use super::{Kind, VALUES_MAX};

/// Values within each other, at most.
const DEPTH_MAX: u8 = 64;

/// Reads the values of a file. What has nothing at the key is passed over, as by Suricata; what has
/// something else there than a value of the kind is wrong.
pub(super) fn read(
    set: &str,
    kind: Kind,
    text: &str,
    options: &Options<'_>,
) -> Result<Values, String> {
    let wrong = || format!("dataset {set}: this is no JSON");
    let mut values = Values::default();
    let mut is_full = false;
    let mut bad = None;
    let mut take = |object: &str, number: usize| {
        let found = options.value_key.and_then(|key| at(object, key));
        let Some(found) = found else { return };
        let Some((value, context)) = known(kind, object, found, options) else {
            bad.get_or_insert(number);
            return;
        };
        match values.len() < VALUES_MAX {
            true => values.put_known(value, context),
            false => is_full = true,
        }
    };
    if options.format == Format::JsonLines {
        let lines = text.lines().map(str::trim).zip(1..).filter(|it| !it.0.is_empty());
        for (line, number) in lines {
            take(whole(line).ok_or_else(wrong)?, number);
        }
    } else {
        let whole = whole(text).ok_or_else(wrong)?;
        let array = options.array_key.map_or(Some(whole), |key| at(whole, key));
        let objects = array.and_then(elements).ok_or_else(|| {
            let place = options.array_key.unwrap_or("the file's beginning");
            format!("dataset {set}: no array at {place}")
        })?;
        objects.into_iter().zip(1..).for_each(|(object, number)| take(object, number));
    }
    // What stands there is told nobody: the file may be another than was meant.
    if let Some(number) = bad {
        let place = if options.format == Format::JsonLines { "line" } else { "element" };
        let (key, kind) = (options.value_key.unwrap_or_default(), kind.written_as());
        return Err(format!("dataset {set}: {place} {number} has no {kind} at {key}"));
    }
    if is_full {
        return Err(format!("dataset {set}: more than {VALUES_MAX} values"));
    }
    if values.is_empty() {
        let key = options.value_key.unwrap_or_default();
        return Err(format!("dataset {set}: nothing has a value at {key}"));
    }
    Ok(values)
}

/// The value of an object that was found in it, and what is known of it.
fn known(
    kind: Kind,
    object: &str,
    found: &str,
    options: &Options<'_>,
) -> Option<(Vec<u8>, Arc<str>)> {
    let key = options.value_key?;
    let text = string(found)?;
    let value = match kind {
        Kind::String => kind.seen(text.as_bytes())?,
        _ => kind.written(&text)?,
    };
    let context = match options.removes_key {
        true => without(object, key)?.into(),
        false => object.into(),
    };
    Some((value, context))
}

/// What stands at a path of keys with dots between them.
fn at<'t>(value: &'t str, path: &str) -> Option<&'t str> {
    path.split('.').try_fold(value, |value, key| {
        let is_meant = |it: &(&str, &str)| string(it.0).is_some_and(|it| it == key);
        members(value)?.into_iter().rev().find(is_meant).map(|it| it.1)
    })
}

/// An object without what stands at a path.
fn without(object: &str, path: &str) -> Option<String> {
    let (first, rest) = match path.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (path, None),
    };
    let mut left = Vec::new();
    for (key, value) in members(object)? {
        match rest {
            _ if string(key)? != first => left.push(format!("{key}:{value}")),
            Some(rest) => left.push(format!("{key}:{}", without(value, rest)?)),
            None => {}
        }
    }
    Some(format!("{{{}}}", left.join(",")))
}

/// The only value of a text.
fn whole(text: &str) -> Option<&str> {
    let text = text.trim();
    (end(text.as_bytes(), 0, 0)? == text.len()).then_some(text)
}

/// The values of an object, with their names as they are written.
fn members(object: &str) -> Option<Vec<(&str, &str)>> {
    if !object.starts_with('{') {
        return None;
    }
    let mut found = Vec::new();
    nested(object.as_bytes(), 0, 0, &mut |first, colon, last| {
        found.push((object[first..colon].trim(), object[colon + 1..last].trim()));
        Some(())
    })?;
    Some(found)
}

/// The values of an array.
fn elements(array: &str) -> Option<Vec<&str>> {
    if !array.starts_with('[') {
        return None;
    }
    let mut found = Vec::new();
    nested(array.as_bytes(), 0, 0, &mut |first, _, last| {
        found.push(array[first..last].trim());
        Some(())
    })?;
    Some(found)
}

/// Text between quotes.
fn string(quoted: &str) -> Option<String> {
    let inner = quoted.strip_prefix('"')?.strip_suffix('"')?;
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner.chars();
    let mut high: Option<u32> = None;
    while let Some(letter) = rest.next() {
        if letter != '\\' {
            // The second half of a pair must follow the first.
            high.is_none().then_some(())?;
            text.push(letter);
            continue;
        }
        let letter = match rest.next()? {
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'u' => {
                let digits: String = rest.by_ref().take(4).collect();
                let unit = u32::from_str_radix(&digits, 16).ok()?;
                match (high.take(), unit) {
                    (None, 0xd800..=0xdbff) => {
                        high = Some(unit);
                        continue;
                    }
                    (Some(high), 0xdc00..=0xdfff) => {
                        char::from_u32(0x10000 + ((high - 0xd800) << 10) + (unit - 0xdc00))?
                    }
                    (_, unit) => char::from_u32(unit)?,
                }
            }
            plain => plain,
        };
        text.push(letter);
    }
    high.is_none().then_some(text)
}

/// Where the value ends that begins at a place, behind spaces.
fn end(bytes: &[u8], at: usize, depth: u8) -> Option<usize> {
    let at = behind_spaces(bytes, at);
    match bytes.get(at)? {
        b'"' => {
            let mut place = at + 1;
            loop {
                match bytes.get(place)? {
                    b'"' => return Some(place + 1),
                    b'\\' => place += 2,
                    0..0x20 => return None,
                    _ => place += 1,
                }
            }
        }
        b'{' | b'[' => nested(bytes, at, depth, &mut |_, _, _| Some(())),
        _ => {
            let rest = &bytes[at..];
            let is_of_word = |it: &&u8| it.is_ascii_alphanumeric() || b"+-.".contains(it);
            let length = rest.iter().take_while(is_of_word).count();
            let word = std::str::from_utf8(&rest[..length]).ok()?;
            let is_number = word.starts_with(|it: char| it.is_ascii_digit() || it == '-')
                && word.parse::<f64>().is_ok();
            (is_number || matches!(word, "true" | "false" | "null")).then_some(at + length)
        }
    }
}

/// Takes an object or an array apart that begins at a place: `take` hears where each part begins,
/// where an object's has its colon, and where it ends. Returns where the whole ends.
fn nested(
    bytes: &[u8],
    at: usize,
    depth: u8,
    take: &mut dyn FnMut(usize, usize, usize) -> Option<()>,
) -> Option<usize> {
    let closes = match bytes.get(at)? {
        b'{' => b'}',
        b'[' => b']',
        _ => return None,
    };
    let mut place = behind_spaces(bytes, at + 1);
    if *bytes.get(place)? == closes {
        return Some(place + 1);
    }
    if depth == DEPTH_MAX {
        return None;
    }
    loop {
        let first = place;
        if closes == b'}' {
            let is_key = *bytes.get(place)? == b'"';
            place = behind_spaces(bytes, end(bytes, place, depth + 1).filter(|_| is_key)?);
            (*bytes.get(place)? == b':').then_some(())?;
        }
        let colon = place;
        let last = end(bytes, place + usize::from(closes == b'}'), depth + 1)?;
        take(first, colon, last)?;
        place = behind_spaces(bytes, last);
        match *bytes.get(place)? {
            b',' => place = behind_spaces(bytes, place + 1),
            byte => return (byte == closes).then_some(place + 1),
        }
    }
}

fn behind_spaces(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().take_while(|it| b" \t\r\n".contains(it)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_at_a_path_is_found_and_left_out() {
        let object =
            r#" {"a" : {"b": [1, -2.5e3, {"c": null}], "d": "x\"\u00e9\ud83d\ude00"}, "e": true} "#;
        let object = whole(object).unwrap();
        assert_eq!(
            at(object, "a.b").and_then(elements).unwrap(),
            ["1", "-2.5e3", r#"{"c": null}"#]
        );
        assert_eq!(at(object, "a.d").and_then(string).unwrap(), "x\"é😀");
        assert_eq!(at(object, "a.none"), None);
        assert_eq!(at(object, "e.f"), None);
        assert_eq!(
            without(object, "a.b").unwrap(),
            r#"{"a":{"d":"x\"\u00e9\ud83d\ude00"},"e":true}"#
        );
        assert_eq!(without(object, "a").unwrap(), r#"{"e":true}"#);
        assert_eq!(elements("[]").unwrap(), Vec::<&str>::new());
    }

    #[test]
    fn what_is_no_json_is_refused() {
        let deep = "[".repeat(1000) + &"]".repeat(1000);
        for wrong in
            ["", "{", "[1,]", "{\"a\"}", "{a:1}", "nul", "[1 2]", "\"a", "\"a\nb\"", "1 2", &deep]
        {
            assert_eq!(whole(wrong), None, "{wrong}");
        }
    }
}
