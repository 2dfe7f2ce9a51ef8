//! The columns of the API's rows, from the schema of their type: the same whatever the rows hold,
//! so that files of several days fit each other.

use utoipa::PartialSchema;
use utoipa::openapi::schema::{Schema, SchemaType, Type};
use utoipa::openapi::{Object, RefOr};
use weir_store::sqlite::LABEL_KINDS;

/// What a column holds. Each may be absent in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// UTF-8; what is no table itself is text of JSON.
    Text,
    /// An integer without sign.
    Number,
    /// A number with a fraction.
    Float,
    /// Yes or no.
    Flag,
}

/// The columns of a list of `T`, by name; names of ends as columns of their own, as in CSV.
pub fn of<T: PartialSchema>() -> Vec<(String, Kind)> {
    let RefOr::T(Schema::Object(object)) = T::schema() else { return Vec::new() };
    let mut columns = Vec::new();
    for (name, property) in &object.properties {
        if name.ends_with("names") {
            columns.extend(LABEL_KINDS.map(|kind| (format!("{name}.{kind}"), Kind::Text)));
            continue;
        }
        let kind = match property {
            RefOr::T(Schema::Object(object)) => kind(object),
            _ => Kind::Text,
        };
        columns.push((name.clone(), kind));
    }
    columns
}

fn kind(object: &Object) -> Kind {
    let named = match &object.schema_type {
        SchemaType::Type(named) => Some(named),
        SchemaType::Array(named) => named.iter().find(|it| **it != Type::Null),
        SchemaType::AnyValue => None,
    };
    match named {
        Some(Type::Integer) => Kind::Number,
        Some(Type::Number) => Kind::Float,
        Some(Type::Boolean) => Kind::Flag,
        _ => Kind::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dto::{Alert, Conversation, Flow, Talker};

    #[test]
    fn columns_are_those_of_the_type() {
        let flow = of::<Flow>();
        let kind = |name: &str| flow.iter().find(|(it, _)| it == name).map(|(_, kind)| *kind);
        assert_eq!(kind("bytes"), Some(Kind::Number));
        assert_eq!(kind("source_port"), Some(Kind::Number));
        assert_eq!(kind("side"), Some(Kind::Text));
        assert_eq!(kind("source_names.tenant"), Some(Kind::Text));
        let conversation = of::<Conversation>();
        assert!(conversation.contains(&("response_ns".to_owned(), Kind::Number)));
        assert!(of::<Alert>().contains(&("acknowledged".to_owned(), Kind::Flag)));
        assert!(of::<Talker>().len() > 8);
    }
}
