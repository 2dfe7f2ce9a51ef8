//! What is told of a message: names and values, as EVE's objects have them.

use std::borrow::Cow;
use std::fmt::Write;

use base64ct::{Base64, Encoding};

use crate::heap::HeapSize;

/// A value of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Yes or no.
    Bool(bool),
    /// A whole number.
    Number(i64),
    /// Another number, by its bits (IEEE 754).
    Fraction(u64),
    /// Text; bytes that are none stand there as `\xNN`.
    Text(String),
    /// Several, in the order in which they were said.
    List(Vec<Value>),
    /// Values with names.
    Object(Object),
}

/// Values with names, in the order in which they were put.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object(Vec<(Cow<'static, str>, Value)>);

impl HeapSize for Object {
    fn heap_size(&self) -> usize {
        self.0.heap_size()
    }
}

impl HeapSize for Value {
    fn heap_size(&self) -> usize {
        match self {
            Self::Bool(_) | Self::Number(_) | Self::Fraction(_) => 0,
            Self::Text(text) => text.heap_size(),
            Self::List(list) => list.heap_size(),
            Self::Object(object) => object.heap_size(),
        }
    }
}

impl Object {
    /// Puts a value behind those that are there; one of the same name stays as it is.
    pub fn put(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Value>) {
        let name = name.into();
        if !self.0.iter().any(|it| it.0 == name) {
            self.0.push((name, value.into()));
        }
    }

    /// The same with a value more.
    pub(crate) fn with(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<Value>,
    ) -> Self {
        self.put(name, value);
        self
    }

    /// Puts a value if there is one.
    pub(crate) fn put_some(&mut self, name: &'static str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }

    /// Cuts texts that are longer.
    pub(crate) fn shorten(&mut self, most: usize) {
        self.0.iter_mut().for_each(|it| it.1.shorten(most));
    }

    /// Whether nothing was put.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of that name.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|it| it.0 == name).map(|it| &it.1)
    }

    /// All, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value))
    }
}

impl Value {
    fn shorten(&mut self, most: usize) {
        match self {
            Self::Text(text) if text.len() > most => {
                text.truncate(text.floor_char_boundary(most));
            }
            Self::List(list) => list.iter_mut().for_each(|it| it.shorten(most)),
            Self::Object(object) => object.shorten(most),
            _ => {}
        }
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

macro_rules! numbers {
    ($($kind:ty)+) => {
        $(impl From<$kind> for Value {
            fn from(value: $kind) -> Self {
                Self::Number(value.into())
            }
        })+
    };
}

numbers! { u8 u16 u32 i32 i64 }

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Number(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Self::Number(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        /// Up to here, each whole number is one of these.
        const WHOLE_MAX: f64 = (1_i64 << 53) as f64;
        if value.fract() == 0.0 && value.abs() <= WHOLE_MAX {
            return Self::Number(value as i64);
        }
        Self::Fraction(value.to_bits())
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self::Text(text(bytes))
    }
}

impl From<&Vec<u8>> for Value {
    fn from(bytes: &Vec<u8>) -> Self {
        Self::Text(text(bytes))
    }
}

impl From<Object> for Value {
    fn from(value: Object) -> Self {
        Self::Object(value)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(values: Vec<T>) -> Self {
        Self::List(values.into_iter().map(Into::into).collect())
    }
}

/// Bytes as text; where they are no UTF-8, those beyond ASCII as `\xNN`.
pub(crate) fn text(bytes: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.to_owned();
    }
    let mut text = String::new();
    for byte in bytes {
        if byte.is_ascii() {
            text.push(char::from(*byte));
        } else {
            // Writing to memory does not fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Bytes as hexadecimal digits, `between` each two of them.
pub(crate) fn hex(bytes: &[u8], between: &str) -> String {
    let mut digits = String::with_capacity(bytes.len() * (2 + between.len()));
    for (place, byte) in bytes.iter().enumerate() {
        if place > 0 {
            digits.push_str(between);
        }
        digits.extend([byte >> 4, byte & 0xf].map(hex_digit));
    }
    digits
}

fn hex_digit(nibble: u8) -> char {
    char::from(b"0123456789abcdef"[usize::from(nibble & 0xf)])
}

/// Bytes as letters, a dot for each that cannot be printed.
pub fn printable(bytes: &[u8]) -> String {
    let shown = |byte: &u8| match byte {
        b'\r' | b'\n' | b' '..=b'~' => *byte,
        _ => b'.',
    };
    String::from_utf8(bytes.iter().map(shown).collect()).unwrap_or_default()
}

/// Bytes in base 64 (RFC 4648 s4).
pub(crate) fn base64(bytes: &[u8]) -> String {
    Base64::encode_string(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_first_stays() {
        let object = Object::default().with("a", 1_u8).with("b", "x").with("a", 2_u8);
        assert_eq!(object.value("a"), Some(&Value::Number(1)));
        assert_eq!(object.iter().count(), 2);
    }

    #[test]
    fn bytes_that_are_no_text_are_spelt() {
        assert_eq!(text("ä".as_bytes()), "ä");
        assert_eq!(text(b"a\xff"), "a\\xff");
        assert_eq!(hex(&[1, 0xab], ":"), "01:ab");
    }

    #[test]
    fn bytes_are_written_in_base_64() {
        let texts =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (bytes, text) in texts {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
