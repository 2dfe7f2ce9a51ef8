//! A key that takes one value or a list of them.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{SeqAccess, Unexpected, Visitor, value};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

/// One value or a list of values, each with its place.
#[derive(Debug)]
pub struct Several<T>(pub Vec<Spanned<T>>);

impl<T> Default for Several<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Several<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Spanned::<OneOrMore<T>>::deserialize(deserializer)?;
        let span = value.span();
        Ok(Self(match value.into_inner() {
            OneOrMore::One(value) => vec![Spanned::new(span, value)],
            OneOrMore::More(values) => values,
        }))
    }
}

enum OneOrMore<T> {
    One(T),
    More(Vec<Spanned<T>>),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMore<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
            type Value = OneOrMore<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of strings")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                T::deserialize(value::StrDeserializer::new(text)).map(OneOrMore::One)
            }

            fn visit_bool<E: serde::de::Error>(self, is: bool) -> Result<Self::Value, E> {
                let taken = T::deserialize(value::BoolDeserializer::<value::Error>::new(is));
                taken.map(OneOrMore::One).map_err(|_| E::invalid_type(Unexpected::Bool(is), &self))
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Self::Value, E> {
                let taken = T::deserialize(value::I64Deserializer::<value::Error>::new(number));
                taken.map(OneOrMore::One).map_err(|error| match error.to_string() {
                    // Of values that are no numbers at all, a list may be meant.
                    said if said.starts_with("invalid type") => {
                        E::invalid_type(Unexpected::Signed(number), &self)
                    }
                    said => E::custom(said),
                })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = list.next_element()? {
                    values.push(value);
                }
                Ok(OneOrMore::More(values))
            }
        }
        deserializer.deserialize_any(Reader(PhantomData))
    }
}
