//! Amounts of money, exact.

use crate::Invalid;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A non-negative decimal amount with up to nine digits on each side of the point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Amount {
    nanos: i64,
}

const NANOS: i64 = 1_000_000_000;

impl Amount {
    pub const ZERO: Self = Self { nanos: 0 };

    /// From billionths of the currency's unit.
    pub fn from_nanos(nanos: i64) -> Self {
        Self {
            nanos: nanos.max(0),
        }
    }

    /// Billionths of the currency's unit.
    pub fn nanos(self) -> i64 {
        self.nanos
    }
}

impl FromStr for Amount {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let refused = || {
            Invalid::from(
                "must be a decimal string such as \"12.50\", at most nine digits on each side",
            )
        };
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits =
            |part: &str| (1..=9).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(fraction) {
            return Err(refused());
        }
        let whole: i64 = whole.parse().map_err(|_| refused())?;
        let fraction: i64 = format!("{fraction:0<9}").parse().map_err(|_| refused())?;
        Ok(Self {
            nanos: whole * NANOS + fraction,
        })
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.nanos / NANOS, self.nanos % NANOS);
        let fraction = format!("{fraction:09}");
        let shown = fraction.trim_end_matches('0');
        // Money is read with two decimals; more only where they say something.
        write!(f, "{whole}.{shown:0<2}")
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl utoipa::PartialSchema for Amount {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::SchemaType::Type(
                utoipa::openapi::Type::String,
            ))
            .pattern(Some("^[0-9]{1,9}(\\.[0-9]{1,9})?$"))
            .description(Some("A decimal amount in the configured currency."))
            .into()
    }
}
impl utoipa::ToSchema for Amount {
    fn name() -> std::borrow::Cow<'static, str> {
        "Amount".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_round_trip_exactly() {
        for (text, shown) in [
            ("0", "0.00"),
            ("12.5", "12.50"),
            ("0.000000001", "0.000000001"),
            ("999999999.999999999", "999999999.999999999"),
        ] {
            assert_eq!(text.parse::<Amount>().unwrap().to_string(), shown);
            assert_eq!(shown.parse::<Amount>(), text.parse::<Amount>());
        }
        for bad in [
            "",
            "-1",
            "1.",
            ".5",
            "1e3",
            "1,5",
            "1234567890",
            "0.0000000001",
            "+1",
            " 1",
            "NaN",
        ] {
            assert!(bad.parse::<Amount>().is_err(), "{bad:?}");
        }
    }
}
