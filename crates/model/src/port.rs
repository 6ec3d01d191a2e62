//! The port that a release listens on, as requests write it.

use crate::serde_rules::WholeNumber;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};

/// A port from 1 to 65535, as a number or a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port(pub u16);

// By hand: the derive does not know that it may be a text.
impl utoipa::PartialSchema for Port {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::from_iter([Type::Integer, Type::String]))
            .minimum(Some(1))
            .maximum(Some(u16::MAX))
            .pattern(Some("^[0-9]+$"))
            .into()
    }
}
impl utoipa::ToSchema for Port {}

impl<'de> Deserialize<'de> for Port {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let port = source.deserialize_any(WholeNumber {
            range: 1..=u64::from(u16::MAX),
            expected: "a port from 1 to 65535",
        })?;
        u16::try_from(port).map(Self).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    #[test]
    fn a_port_is_a_number_however_it_is_written() {
        for (written, port) in [(json!(1), 1), (json!(65535), 65535), (json!("8000"), 8000)] {
            assert_eq!(from_value::<Port>(written).unwrap(), Port(port));
        }
        for bad in [
            json!(0),
            json!("0"),
            json!(65536),
            json!("65536"),
            json!(-1),
            json!("+1"),
            json!(80.5),
            json!(""),
            json!("http"),
            json!(null),
        ] {
            assert!(from_value::<Port>(bad.clone()).is_err(), "{bad}");
        }
    }
}
