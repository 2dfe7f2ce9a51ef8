//! Keywords that read numbers from a buffer: `byte_test`, `byte_jump`, `byte_extract`, `byte_math`,
//! `isdataat`, `urilen`, and names for what they read.

use super::Buffer;
use super::number::{Numbers, digits, number, signed};
use super::step::{
    AS_WRITTEN, Arithmetic, ByteJump, ByteOrder, ByteTest, Comparison, Entropy, Origin, Read, Step,
    Value,
};

/// Variables of a rule, at most; a rule with more is refused.
pub(crate) const VARIABLES_MAX: usize = 16;
/// Bytes of a binary number, at most.
const BINARY_LEN_MAX: i64 = 8;
/// Digits of a number as text, at most: tested and jumped by, put into a name, and reckoned with.
const TEXT_LEN_MAX: i64 = 23;
const EXTRACTED_TEXT_LEN_MAX: i64 = 20;
const MATH_TEXT_LEN_MAX: i64 = 10;
/// How far offsets go, either way, and how much a multiplier is.
const OFFSET_MAX: i64 = u16::MAX as i64;
const EXTRACT_OFFSET_MAX: i64 = i16::MAX as i64;
const MULTIPLIER_MAX: u64 = u16::MAX as u64;

/// Names of what a rule has read so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(Vec<String>);

impl Names {
    /// The variable that `name` is from here on.
    pub(crate) fn define(&mut self, name: &str) -> Result<usize, String> {
        let is_name = name.starts_with(|it: char| it.is_ascii_alphabetic() || it == '_');
        if !is_name {
            return Err(format!("`{name}` is not a name"));
        }
        if let Some(known) = self.0.iter().position(|it| it == name) {
            return Ok(known);
        }
        if self.0.len() == VARIABLES_MAX {
            return Err(format!("more than {VARIABLES_MAX} variables"));
        }
        self.0.push(name.to_owned());
        Ok(self.0.len() - 1)
    }

    /// A number, or a variable that was read before.
    pub(crate) fn value(&self, text: &str) -> Result<Value, String> {
        let text = text.trim();
        match signed(text) {
            Some(fixed) => Ok(Value::Fixed(fixed)),
            None => self.variable(text),
        }
    }

    fn variable(&self, text: &str) -> Result<Value, String> {
        let known = self.0.iter().position(|it| it == text);
        known.map(Value::Variable).ok_or_else(|| format!("`{text}` was not read before"))
    }

    /// The same, but a number is of at most `most`, with either sign.
    pub(crate) fn within(&self, text: &str, most: i64) -> Result<Value, String> {
        match self.value(text)? {
            Value::Fixed(it) if it.abs() > most => Err(format!("`{text}`: {most} at most")),
            value => Ok(value),
        }
    }
}

fn multiplier(text: &str) -> Result<u64, String> {
    let found = digits(text).filter(|it| (1..=MULTIPLIER_MAX).contains(it));
    found.ok_or_else(|| format!("`{text}`: a multiplier is from 1 to {MULTIPLIER_MAX}"))
}

/// `isdataat:!10,relative`
pub(crate) fn is_data_at(value: &str, names: &Names) -> Result<Step, String> {
    let mut parts = value.split(',').map(str::trim);
    let first = parts.next().unwrap_or_default();
    let (is_negated, at) = match first.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, first),
    };
    let words: Vec<&str> = parts.collect();
    let is_relative = match words.as_slice() {
        [] => false,
        ["relative"] | ["relative", "rawbytes"] => true,
        _ => return Err(format!("`{value}` behind isdataat")),
    };
    let at = at.trim_start();
    let at = at.strip_prefix('+').unwrap_or(at);
    let at = match digits(at) {
        Some(at) if at <= u16::MAX.into() => Value::Fixed(at as i64),
        Some(_) => return Err(format!("`{at}`: {} at most", u16::MAX)),
        None => names.variable(at)?,
    };
    Ok(Step::IsDataAt { at, is_relative, is_negated })
}

fn read_at(offset: Value) -> Read {
    Read {
        bytes: Value::Fixed(0),
        offset,
        is_relative: false,
        order: ByteOrder::Big,
        text_base: None,
        mask: None,
    }
}

fn bit_mask(text: &str) -> Result<u64, String> {
    number(text).filter(|it| *it <= u32::MAX.into()).ok_or_else(|| format!("bitmask `{text}`"))
}

/// Takes a word that any of the keywords may have; whether it was one.
fn take_word(read: &mut Read, word: &str) -> Result<bool, String> {
    match word {
        "relative" => read.is_relative = true,
        "big" => read.order = ByteOrder::Big,
        "little" => read.order = ByteOrder::Little,
        "string" => read.text_base = read.text_base.or(Some(AS_WRITTEN)),
        "dec" => read.text_base = Some(10),
        "hex" => read.text_base = Some(16),
        "oct" => read.text_base = Some(8),
        "dce" => read.order = ByteOrder::OfCall,
        _ => {
            let Some(mask) = word.strip_prefix("bitmask") else { return Ok(false) };
            read.mask = Some(bit_mask(mask)?);
        }
    }
    Ok(true)
}

/// Whether the byte order is said once, and of what has one.
fn check_order(words: &[&str]) -> Result<(), String> {
    let is_other = |it: &&str| matches!(*it, "big" | "little" | "string");
    match words.contains(&"dce") && words.iter().any(is_other) {
        true => Err("dce beside another byte order, or text".to_owned()),
        false => Ok(()),
    }
}

/// Whether the number has at least so many bytes, and of text at most so many.
fn check(read: &Read, least: i64, text_most: i64) -> Result<(), String> {
    let Value::Fixed(bytes) = read.bytes else { return Ok(()) };
    let most = if read.text_base.is_some() { text_most } else { BINARY_LEN_MAX };
    if !(least..=most).contains(&bytes) {
        return Err(format!("{bytes} bytes of a number, {most} at most"));
    }
    Ok(())
}

/// `byte_test:4,!>,100,0,relative,little`
pub(crate) fn byte_test(value: &str, names: &Names) -> Result<Step, String> {
    let parts: Vec<&str> = value.split(',').map(str::trim).collect();
    let [bytes, operator, operand, offset, words @ ..] = parts.as_slice() else {
        return Err("byte_test takes bytes, operator, value and offset".to_owned());
    };
    let mut read = read_at(names.value(offset)?);
    read.bytes = names.value(bytes)?;
    for word in words {
        if !take_word(&mut read, word)? {
            return Err(format!("`{word}` behind byte_test"));
        }
    }
    check_order(words)?;
    check(&read, 0, TEXT_LEN_MAX)?;
    if read.text_base.is_some() && !words.contains(&"string") {
        return Err("a base of what is no text".to_owned());
    }
    let (is_negated, operator) = match operator.strip_prefix('!') {
        Some("") => (true, "="),
        Some(rest) => (true, rest.trim()),
        None => (false, *operator),
    };
    let comparison = match operator {
        "<" => Comparison::Less,
        "<=" => Comparison::LessOrEqual,
        ">" => Comparison::Greater,
        ">=" => Comparison::GreaterOrEqual,
        "=" => Comparison::Equal,
        "&" => Comparison::And,
        "^" => Comparison::Xor,
        other => return Err(format!("`{other}` compares nothing")),
    };
    let value = match number(operand) {
        Some(number) => Value::Fixed(number as i64),
        None => names.value(operand)?,
    };
    Ok(Step::ByteTest(ByteTest { read, comparison, is_negated, value }))
}

/// `byte_jump:4,12,relative,multiplier 4,post_offset -2`
pub(crate) fn byte_jump(value: &str, names: &Names) -> Result<Step, String> {
    let parts: Vec<&str> = value.split(',').map(str::trim).collect();
    let [bytes, offset, words @ ..] = parts.as_slice() else {
        return Err("byte_jump takes bytes and offset".to_owned());
    };
    let mut read = read_at(names.within(offset, OFFSET_MAX)?);
    read.bytes = names.value(bytes)?;
    let mut jump = ByteJump {
        read,
        multiplier: 1,
        aligns: false,
        from: Origin::Here,
        post_offset: Value::Fixed(0),
    };
    for word in words {
        if take_word(&mut jump.read, word)? {
            continue;
        }
        match word.split_once(char::is_whitespace).unwrap_or((word, "")) {
            ("align", "") => jump.aligns = true,
            ("from_beginning" | "from_end", "") if jump.from != Origin::Here => {
                return Err("a jump is from the beginning or from the end".to_owned());
            }
            ("from_beginning", "") => jump.from = Origin::Beginning,
            ("from_end", "") => jump.from = Origin::End,
            ("post_offset", offset) => {
                jump.post_offset = Names::default().within(offset, OFFSET_MAX)?;
            }
            ("multiplier", by) => jump.multiplier = multiplier(by)?,
            _ => return Err(format!("`{word}` behind byte_jump")),
        }
    }
    check_order(words)?;
    check(&jump.read, 0, TEXT_LEN_MAX)?;
    Ok(Step::ByteJump(jump))
}

/// `byte_extract:4,0,name,relative,multiplier 2`
pub(crate) fn byte_extract(value: &str, names: &mut Names) -> Result<Step, String> {
    let parts: Vec<&str> = value.split(',').map(str::trim).collect();
    let [bytes, offset, name, words @ ..] = parts.as_slice() else {
        return Err("byte_extract takes bytes, offset and a name".to_owned());
    };
    let mut read = read_at(names.within(offset, EXTRACT_OFFSET_MAX)?);
    read.bytes = Names::default().value(bytes)?;
    let (mut factor, mut align) = (1, 1);
    for word in words {
        if take_word(&mut read, word)? {
            continue;
        }
        match word.split_once(char::is_whitespace).unwrap_or((word, "")) {
            ("align", "2") => align = 2,
            ("align", "4") => align = 4,
            ("multiplier", by) => factor = multiplier(by)?,
            _ => return Err(format!("`{word}` behind byte_extract")),
        }
    }
    check_order(words)?;
    check(&read, 0, EXTRACTED_TEXT_LEN_MAX)?;
    let variable = names.define(name)?;
    Ok(Step::ByteExtract { read, variable, multiplier: factor, align })
}

/// `byte_math:bytes 4, offset 0, oper +, rvalue 10, result name, relative`
pub(crate) fn byte_math(value: &str, names: &mut Names) -> Result<Step, String> {
    let mut read = read_at(Value::Fixed(0));
    let (mut offset, mut operator, mut operand, mut result) = (None, None, None, None);
    for part in value.split(',').map(str::trim) {
        let (word, argument) = part.split_once(char::is_whitespace).unwrap_or((part, ""));
        let argument = argument.trim();
        match word {
            "bytes" => read.bytes = names.value(argument)?,
            "offset" => offset = Some(Names::default().within(argument, OFFSET_MAX)?),
            "oper" => operator = Some(arithmetic(argument)?),
            "rvalue" => {
                operand = Some(match digits(argument) {
                    Some(it) if it <= u32::MAX.into() => Value::Fixed(it as i64),
                    Some(_) => return Err(format!("`{argument}`: {} at most", u32::MAX)),
                    None => names.variable(argument)?,
                });
            }
            "result" => result = Some(argument),
            "endian" if matches!(argument, "big" | "little") => {
                take_word(&mut read, argument)?;
            }
            "string" if matches!(argument, "dec" | "hex" | "oct") => {
                take_word(&mut read, argument)?;
            }
            "bitmask" => read.mask = Some(bit_mask(argument)?),
            "relative" if argument.is_empty() => read.is_relative = true,
            _ => return Err(format!("`{part}` behind byte_math")),
        }
    }
    check(&read, 1, MATH_TEXT_LEN_MAX)?;
    let missing = |what: &str| format!("byte_math without {what}");
    read.offset = offset.ok_or_else(|| missing("offset"))?;
    let operand = operand.ok_or_else(|| missing("rvalue"))?;
    let operator = operator.ok_or_else(|| missing("oper"))?;
    let variable = names.define(result.ok_or_else(|| missing("result"))?)?;
    Ok(Step::ByteMath { read, operator, operand, variable })
}

fn arithmetic(text: &str) -> Result<Arithmetic, String> {
    Ok(match text {
        "+" => Arithmetic::Add,
        "-" => Arithmetic::Subtract,
        "*" => Arithmetic::Multiply,
        "/" => Arithmetic::Divide,
        "<<" => Arithmetic::ShiftLeft,
        ">>" => Arithmetic::ShiftRight,
        other => return Err(format!("`{other}` is no operator of byte_math")),
    })
}

/// `entropy:bytes 64, offset 8, value >= 4.5`, `value 2.5-4`
pub(crate) fn entropy(value: &str) -> Result<Step, String> {
    let (mut offset, mut bytes, mut range) = (0, None, None);
    for part in value.split(',').map(str::trim) {
        let wrong = || format!("`{part}` behind entropy");
        let (word, argument) = part.split_once(char::is_whitespace).ok_or_else(wrong)?;
        let argument = argument.trim();
        let length = || argument.parse::<usize>().map_err(|_| wrong());
        match word {
            "offset" => offset = length()?,
            "bytes" => bytes = Some(length()?).filter(|it| *it > 0),
            "value" => range = Some(bounds(argument).ok_or_else(wrong)?),
            _ => return Err(wrong()),
        }
    }
    let (first, last, with_ends, is_negated) = range.ok_or("entropy without value")?;
    Ok(Step::Entropy(Entropy { offset, bytes, first, last, with_ends, is_negated }))
}

/// Both ends of a range, whether they belong to it, and whether all but it is meant.
fn bounds(text: &str) -> Option<(f64, f64, bool, bool)> {
    const ALL: (f64, f64) = (f64::NEG_INFINITY, f64::INFINITY);
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let is_digit = |it: char| it.is_ascii_digit();
    let (sign, rest) = text.split_at(text.find(is_digit)?);
    if let Some((first, last)) = rest.split_once('-') {
        let is_range = sign.trim().is_empty() || sign.trim() == "!";
        // As in Suricata 8.0.7, the ends are outside.
        return is_range.then_some((number(first)?, number(last)?, false, !sign.trim().is_empty()));
    }
    let one = number(rest)?;
    Some(match sign.trim() {
        "" | "=" | "==" => (one, one, true, false),
        "!" | "!=" => (one, one, true, true),
        "<" => (ALL.0, one, false, false),
        "<=" => (ALL.0, one, true, false),
        ">" => (one, ALL.1, false, false),
        ">=" => (one, ALL.1, true, false),
        _ => return None,
    })
}

/// `base64_decode:bytes 12, offset 1, relative`
pub(crate) fn base64(value: &str) -> Result<Step, String> {
    let (mut bytes, mut offset, mut is_relative) = (None, 0, false);
    for part in value.split(',').map(str::trim).filter(|it| !it.is_empty()) {
        let wrong = || format!("`{part}` behind base64_decode");
        match part.split_once(char::is_whitespace) {
            None if part == "relative" => is_relative = true,
            Some(("bytes", count)) => {
                bytes = Some(count.trim().parse().map_err(|_| wrong())?);
            }
            Some(("offset", count)) => offset = count.trim().parse().map_err(|_| wrong())?,
            _ => return Err(wrong()),
        }
    }
    Ok(Step::Base64 { bytes, offset, is_relative, then: Vec::new() })
}

/// `urilen:5<>10,raw`; of what is no such number the beginning counts, as in Suricata 8.0.7.
pub(super) fn uri_length(value: &str) -> Result<(Buffer, Step), String> {
    let (size, which) = value.split_once(',').unwrap_or((value, "norm"));
    let buffer = match which.trim() {
        "raw" => Buffer::HttpUriRaw,
        "norm" => Buffer::HttpUri,
        other => return Err(format!("`{other}` behind urilen")),
    };
    let is_number = |it: char| it.is_ascii_digit() || "<>!= ".contains(it);
    let digits = size.find(|it: char| it.is_ascii_digit()).unwrap_or_default();
    let end = size[digits..].find(|it: char| !it.is_ascii_digit()).map(|it| digits + it);
    let beginning = end.map(|end| &size[..end]).filter(|it| it.chars().all(is_number));
    let sizes = Numbers::parse(size, 16);
    let sizes = sizes.or_else(|why| beginning.ok_or(why).and_then(|it| Numbers::parse(it, 16)));
    Ok((buffer, Step::Size(sizes?)))
}
