//! Keywords that read numbers from a buffer: `byte_test`, `byte_jump`, `byte_extract`, `byte_math`,
//! `isdataat`, and names for what they read.

use super::number::{number, signed};
use super::step::{Arithmetic, ByteJump, ByteTest, Comparison, Entropy, Origin, Read, Step, Value};

/// Variables of a rule, at most; a rule with more is refused.
pub(crate) const VARIABLES_MAX: usize = 16;
/// Bytes of a binary number, at most.
const BINARY_LEN_MAX: i64 = 8;
/// Digits of a number as text, at most.
const TEXT_LEN_MAX: i64 = 23;

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
        if let Some(fixed) = signed(text) {
            return Ok(Value::Fixed(fixed));
        }
        let known = self.0.iter().position(|it| it == text);
        known.map(Value::Variable).ok_or_else(|| format!("`{text}` was not read before"))
    }
}

/// `isdataat:!10,relative`
pub(crate) fn is_data_at(value: &str, names: &Names) -> Result<Step, String> {
    let mut parts = value.split(',').map(str::trim);
    let first = parts.next().unwrap_or_default();
    let (is_negated, at) = match first.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, first),
    };
    let mut is_relative = false;
    for part in parts {
        match part {
            "relative" => is_relative = true,
            "rawbytes" => {}
            other => return Err(format!("`{other}` behind isdataat")),
        }
    }
    Ok(Step::IsDataAt { at: names.value(at)?, is_relative, is_negated })
}

fn read_at(offset: Value) -> Read {
    Read {
        bytes: Value::Fixed(0),
        offset,
        is_relative: false,
        is_little: false,
        text_base: None,
        mask: None,
    }
}

/// Takes a word that any of the keywords may have; whether it was one.
fn take_word(read: &mut Read, word: &str) -> Result<bool, String> {
    match word {
        "relative" => read.is_relative = true,
        "big" => read.is_little = false,
        "little" => read.is_little = true,
        "string" => read.text_base = read.text_base.or(Some(10)),
        "dec" => read.text_base = Some(10),
        "hex" => read.text_base = Some(16),
        "oct" => read.text_base = Some(8),
        "dce" => return Err("dce: the byte order of DCE/RPC".to_owned()),
        _ => {
            let Some(mask) = word.strip_prefix("bitmask") else { return Ok(false) };
            read.mask = Some(number(mask).ok_or_else(|| format!("`{word}`"))?);
        }
    }
    Ok(true)
}

fn check(read: &Read, least: i64) -> Result<(), String> {
    let Value::Fixed(bytes) = read.bytes else { return Ok(()) };
    let most = if read.text_base.is_some() { TEXT_LEN_MAX } else { BINARY_LEN_MAX };
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
    check(&read, 0)?;
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
    let value = names.value(operand)?;
    Ok(Step::ByteTest(ByteTest { read, comparison, is_negated, value }))
}

/// `byte_jump:4,12,relative,multiplier 4,post_offset -2`
pub(crate) fn byte_jump(value: &str, names: &Names) -> Result<Step, String> {
    let parts: Vec<&str> = value.split(',').map(str::trim).collect();
    let [bytes, offset, words @ ..] = parts.as_slice() else {
        return Err("byte_jump takes bytes and offset".to_owned());
    };
    let mut read = read_at(names.value(offset)?);
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
            ("from_beginning", "") => jump.from = Origin::Beginning,
            ("from_end", "") => jump.from = Origin::End,
            ("post_offset", offset) => jump.post_offset = names.value(offset)?,
            ("multiplier", by) => {
                jump.multiplier = number(by).ok_or_else(|| format!("`{word}`"))?;
            }
            _ => return Err(format!("`{word}` behind byte_jump")),
        }
    }
    check(&jump.read, 0)?;
    Ok(Step::ByteJump(jump))
}

/// `byte_extract:4,0,name,relative,multiplier 2`
pub(crate) fn byte_extract(value: &str, names: &mut Names) -> Result<Step, String> {
    let parts: Vec<&str> = value.split(',').map(str::trim).collect();
    let [bytes, offset, name, words @ ..] = parts.as_slice() else {
        return Err("byte_extract takes bytes, offset and a name".to_owned());
    };
    let mut read = read_at(names.value(offset)?);
    read.bytes = names.value(bytes)?;
    let (mut multiplier, mut aligns) = (1, false);
    for word in words {
        if take_word(&mut read, word)? {
            continue;
        }
        match word.split_once(char::is_whitespace).unwrap_or((word, "")) {
            ("align", "4" | "2" | "") => aligns = true,
            ("multiplier", by) => multiplier = number(by).ok_or_else(|| format!("`{word}`"))?,
            _ => return Err(format!("`{word}` behind byte_extract")),
        }
    }
    check(&read, 1)?;
    let variable = names.define(name)?;
    Ok(Step::ByteExtract { read, variable, multiplier, aligns })
}

/// `byte_math:bytes 4, offset 0, oper +, rvalue 10, result name, relative`
pub(crate) fn byte_math(value: &str, names: &mut Names) -> Result<Step, String> {
    let mut read = read_at(Value::Fixed(0));
    let (mut operator, mut operand, mut result) = (None, None, None);
    for part in value.split(',').map(str::trim) {
        let (word, argument) = part.split_once(char::is_whitespace).unwrap_or((part, ""));
        let argument = argument.trim();
        match word {
            "bytes" => read.bytes = names.value(argument)?,
            "offset" => read.offset = names.value(argument)?,
            "oper" => operator = Some(arithmetic(argument)?),
            "rvalue" => operand = Some(names.value(argument)?),
            "result" => result = Some(argument),
            "endian" | "string" if !argument.is_empty() => {
                take_word(&mut read, argument)?;
            }
            "bitmask" => read.mask = number(argument),
            _ if take_word(&mut read, word)? => {}
            _ => return Err(format!("`{part}` behind byte_math")),
        }
    }
    check(&read, 1)?;
    let missing = |what: &str| format!("byte_math without {what}");
    let operand = operand.ok_or_else(|| missing("rvalue"))?;
    let operator = operator.ok_or_else(|| missing("oper"))?;
    if operator == Arithmetic::Divide && operand == Value::Fixed(0) {
        return Err("byte_math divides by zero".to_owned());
    }
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
        return is_range.then_some((number(first)?, number(last)?, true, !sign.trim().is_empty()));
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
