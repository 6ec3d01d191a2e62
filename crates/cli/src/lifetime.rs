//! How long something stays valid, as people write it: `15m`, `30d`, `never`.

use crate::config::Invalid;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How long a token stays valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// For this long.
    For(Duration),
    /// Until it is revoked.
    Never,
}

/// Seconds per unit, the largest first. A year is 365 days.
const UNITS: [(&str, u64); 6] = [
    ("y", 365 * 86_400),
    ("w", 7 * 86_400),
    ("d", 86_400),
    ("h", 3_600),
    ("m", 60),
    ("s", 1),
];

/// Whoever asks for more than a century means `never`.
const MAX_SECONDS: u64 = 100 * 365 * 86_400;

impl Lifetime {
    /// The time until expiry, if there is one.
    pub fn duration(self) -> Option<Duration> {
        match self {
            Self::For(duration) => Some(duration),
            Self::Never => None,
        }
    }
}

impl FromStr for Lifetime {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        if text == "never" {
            return Ok(Self::Never);
        }
        let seconds = UNITS.iter().find_map(|(unit, seconds)| {
            let number = text.strip_suffix(unit)?;
            // `parse` alone would also take `+7d`.
            let digits = number.bytes().all(|b| b.is_ascii_digit());
            let number: u64 = number.parse().ok().filter(|_| digits)?;
            number.checked_mul(*seconds)
        });
        match seconds {
            Some(seconds @ 1..=MAX_SECONDS) => Ok(Self::For(Duration::from_secs(seconds))),
            Some(0) => Err("must be longer than nothing".into()),
            Some(_) => Err("must be 100y at most; write `never` for no end".into()),
            None => Err(
                "write a number and a unit, such as 90s, 15m, 1h, 7d, 2w or 1y, or `never`".into(),
            ),
        }
    }
}

/// In the largest unit that divides it, so that it reads like what was written.
impl fmt::Display for Lifetime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::For(duration) = self else {
            return f.write_str("never");
        };
        let total = duration.as_secs();
        let (unit, seconds) = UNITS
            .into_iter()
            // Weeks are understood but not spoken: people say 7d and 30d.
            .find(|(unit, seconds)| *unit != "w" && total.is_multiple_of(*seconds))
            .unwrap_or(("s", 1));
        write!(f, "{}{unit}", total / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_write_a_number_and_a_unit() {
        for (text, seconds) in [
            ("90s", 90),
            ("15m", 900),
            ("1h", 3_600),
            ("1d", 86_400),
            ("7d", 604_800),
            ("2w", 1_209_600),
            ("30d", 2_592_000),
            ("1y", 31_536_000),
            ("100y", 3_153_600_000),
        ] {
            let lifetime: Lifetime = text.parse().unwrap();
            assert_eq!(
                lifetime.duration(),
                Some(Duration::from_secs(seconds)),
                "{text}"
            );
        }
        assert_eq!("never".parse::<Lifetime>().unwrap().duration(), None);
    }

    #[test]
    fn anything_else_is_refused_in_words() {
        for (bad, hint) in [
            ("", "number and a unit"),
            ("d", "number and a unit"),
            ("30", "number and a unit"),
            ("30 d", "number and a unit"),
            ("-1d", "number and a unit"),
            ("+1d", "number and a unit"),
            ("1.5h", "number and a unit"),
            ("1D", "number and a unit"),
            ("99999999999999999999s", "number and a unit"),
            ("0s", "longer than nothing"),
            ("101y", "`never`"),
        ] {
            let refused = bad.parse::<Lifetime>().unwrap_err();
            assert!(refused.0.contains(hint), "{bad}: {refused}");
        }
    }

    #[test]
    fn it_prints_like_it_was_written() {
        for text in ["90s", "15m", "1h", "7d", "30d", "1y", "never"] {
            assert_eq!(text.parse::<Lifetime>().unwrap().to_string(), text);
        }
        assert_eq!("60m".parse::<Lifetime>().unwrap().to_string(), "1h");
    }
}
