//! Decimal numbers, exact: what prices are written in.

use super::text::{Invalid, serde_as_text};
use std::fmt;
use std::str::FromStr;

/// A number of 0 or more with up to nine digits after the point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Decimal {
    nanos: u64,
}

const NANOS: u64 = 1_000_000_000;
const DIGITS: usize = 9;

impl Decimal {
    /// The number in billionths, so that sums stay exact.
    pub fn nanos(self) -> u64 {
        self.nanos
    }
}

impl FromStr for Decimal {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let parse = || {
            let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
            if !digits(whole) || !digits(fraction) || fraction.len() > DIGITS {
                return None;
            }
            let whole: u64 = whole.parse().ok()?;
            let fraction: u64 = format!("{fraction:0<DIGITS$}").parse().ok()?;
            let nanos = whole.checked_mul(NANOS)?.checked_add(fraction)?;
            Some(Self { nanos })
        };
        parse().ok_or_else(|| {
            Invalid(format!(
                "`{text}` is not a decimal number such as 0.15, with nine digits after the point \
                 at most"
            ))
        })
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.nanos / NANOS, self.nanos % NANOS);
        if fraction == 0 {
            return write!(f, "{whole}");
        }
        let fraction = format!("{fraction:0DIGITS$}");
        write!(f, "{whole}.{}", fraction.trim_end_matches('0'))
    }
}

serde_as_text!(Decimal);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        for (text, nanos, shown) in [
            ("0", 0, "0"),
            ("0.15", 150_000_000, "0.15"),
            ("0.60", 600_000_000, "0.6"),
            ("12.000000001", 12_000_000_001, "12.000000001"),
            ("18446744073", 18_446_744_073_000_000_000, "18446744073"),
        ] {
            let decimal: Decimal = text.parse().unwrap();
            assert_eq!(
                (decimal.nanos(), decimal.to_string()),
                (nanos, shown.to_owned())
            );
        }
    }

    #[test]
    fn what_is_not_a_plain_decimal_is_refused() {
        for bad in [
            "",
            ".",
            "1.",
            ".5",
            "-1",
            "+1",
            "1e3",
            "1,5",
            "0.0000000001",
            "18446744074",
            " 1",
        ] {
            assert!(bad.parse::<Decimal>().is_err(), "{bad}");
        }
    }
}
