//! Query strings read into structs; an error names the parameter and what it must be.
//!
//! A serde format of its own, because the errors of a ready-made one are in the words of its types.

use estrade_service::Error;
use serde::de::value::StringDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Expected, IntoDeserializer, MapAccess,
    Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use std::fmt;
use std::num::IntErrorKind;
use std::str::FromStr;

/// Reads the parameters of a query string. An optional one that is there and empty counts as absent.
pub(crate) fn parse<T: DeserializeOwned>(query: &str) -> Result<T, Error> {
    let pairs: Vec<(String, String)> = serde_urlencoded::from_str(query)
        .map_err(|_| Error::invalid("the query string cannot be decoded"))?;
    let parameters = Parameters {
        rest: pairs.into_iter(),
        value: None,
    };
    T::deserialize(parameters).map_err(|error| Error::invalid(error.to_string()))
}

/// What is wrong, and with which parameter.
#[derive(Debug)]
struct QueryError {
    parameter: Option<String>,
    message: String,
}

impl QueryError {
    fn new(message: impl Into<String>) -> Self {
        Self {
            parameter: None,
            message: message.into(),
        }
    }

    fn about(self, parameter: &str) -> Self {
        Self {
            parameter: self.parameter.or_else(|| Some(parameter.to_owned())),
            ..self
        }
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parameter) = &self.parameter {
            write!(f, "{parameter}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for QueryError {}

impl serde::de::Error for QueryError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("must be {expected}"))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("must be {expected}"))
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("must be one of {}", expected.join(", ")))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new("is missing; add it to the query string").about(field)
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::new("is given twice; send it once").about(field)
    }
}

/// All parameters, as the fields of a struct.
struct Parameters {
    rest: std::vec::IntoIter<(String, String)>,
    /// The parameter whose name was read last.
    value: Option<(String, String)>,
}

impl<'de> Deserializer<'de> for Parameters {
    type Error = QueryError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        visitor.visit_map(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de> MapAccess<'de> for Parameters {
    type Error = QueryError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, QueryError> {
        self.value = self.rest.next();
        let Some((name, _)) = &self.value else {
            return Ok(None);
        };
        let name: StringDeserializer<QueryError> = name.clone().into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, QueryError> {
        let (name, value) = self.value.take().unwrap_or_default();
        let read = seed.deserialize(Value(value));
        read.map_err(|error| error.about(&name))
    }
}

/// The value of one parameter.
struct Value(String);

impl Value {
    fn number<N>(&self) -> Result<N, QueryError>
    where
        N: FromStr<Err = std::num::ParseIntError>,
    {
        self.0.parse().map_err(|error: N::Err| {
            QueryError::new(match error.kind() {
                IntErrorKind::PosOverflow => "is too large",
                IntErrorKind::NegOverflow => "is too small",
                _ => "must be a whole number",
            })
        })
    }
}

macro_rules! numbers {
    ($($deserialize:ident $visit:ident,)+) => {
        $(fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
            visitor.$visit(self.number()?)
        })+
    };
}

impl<'de> Deserializer<'de> for Value {
    type Error = QueryError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        visitor.visit_string(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        if self.0.is_empty() {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        match self.0.as_str() {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            _ => Err(QueryError::new("must be true or false")),
        }
    }

    numbers! {
        deserialize_i8 visit_i8,
        deserialize_i16 visit_i16,
        deserialize_i32 visit_i32,
        deserialize_i64 visit_i64,
        deserialize_u8 visit_u8,
        deserialize_u16 visit_u16,
        deserialize_u32 visit_u32,
        deserialize_u64 visit_u64,
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, QueryError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, QueryError> {
        let name: StringDeserializer<QueryError> = self.0.into_deserializer();
        visitor.visit_enum(name)
    }

    forward_to_deserialize_any! {
        i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct
        identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use estrade_model::KeyId;
    use serde::Deserialize;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Order {
        Up,
        Down,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Query {
        text: Option<String>,
        small: Option<u16>,
        signed: Option<i64>,
        flag: Option<bool>,
        order: Option<Order>,
        #[serde(rename = "keyID")]
        key: Option<KeyId>,
    }

    #[derive(Debug, Deserialize)]
    struct Needed {
        #[serde(rename = "project_id")]
        _project: String,
    }

    fn refusal<T: DeserializeOwned + fmt::Debug>(query: &str) -> String {
        parse::<T>(query).unwrap_err().to_string()
    }

    #[test]
    fn parameters_are_decoded_and_empty_ones_are_absent() {
        let read: Query =
            parse("text=a%20b+c&small=7&signed=-5&flag=true&order=down&other=%FF&other=2").unwrap();
        assert_eq!(read.text.as_deref(), Some("a b c"));
        assert_eq!((read.small, read.signed), (Some(7), Some(-5)));
        assert_eq!((read.flag, read.order), (Some(true), Some(Order::Down)));
        let empty: Query = parse("text=&small=&signed=&flag=&order=&keyID=").unwrap();
        assert_eq!(empty, parse("").unwrap());
    }

    #[test]
    fn an_error_names_the_parameter_in_our_words() {
        for (query, message) in [
            ("small=x", "small: must be a whole number"),
            ("small=1.5", "small: must be a whole number"),
            ("small=65536", "small: is too large"),
            ("signed=-9223372036854775809", "signed: is too small"),
            ("flag=yes", "flag: must be true or false"),
            ("order=left", "order: must be one of up, down"),
            (
                "keyID=x",
                "keyID: must be 24 lowercase hexadecimal characters",
            ),
            ("small=1&small=2", "small: is given twice; send it once"),
        ] {
            assert_eq!(refusal::<Query>(query), message);
        }
        assert_eq!(
            refusal::<Needed>("project=x"),
            "project_id: is missing; add it to the query string"
        );
    }
}
