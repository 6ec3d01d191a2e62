//! Points in time, as milliseconds and as the ISO 8601 text of the wire.

use crate::Invalid;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, SchemaType, Type};

/// Milliseconds since the Unix epoch; `2026-11-15T01:02:03.004Z` on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// From year 1 to the end of 9999 (less a day of time zones): what ISO 8601 writes with four digits.
const RANGE: std::ops::RangeInclusive<i64> = -62_135_596_800_000..=253_402_207_200_000;

impl Timestamp {
    /// From milliseconds since the epoch, held within the years that can be written.
    pub fn from_millis(millis: i64) -> Self {
        Self(millis.clamp(*RANGE.start(), *RANGE.end()))
    }

    /// Milliseconds since the epoch.
    pub fn millis(self) -> i64 {
        self.0
    }

    /// Whole seconds since the epoch, as JWTs count.
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// This moment plus a span.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self::from_millis(
            self.0
                .saturating_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)),
        )
    }

    /// This moment minus a span.
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self::from_millis(
            self.0
                .saturating_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)),
        )
    }
}

/// Calendar arithmetic, in UTC.
impl Timestamp {
    /// Midnight before this moment, or this moment.
    #[must_use]
    pub fn start_of_day(self) -> Self {
        Self::from_millis(self.0 - self.0.rem_euclid(DAY_MS))
    }

    /// Midnight of the last Monday.
    #[must_use]
    pub fn start_of_week(self) -> Self {
        // The epoch was a Thursday.
        let day = self.start_of_day().0;
        Self::from_millis(day - (day.div_euclid(DAY_MS) + 3).rem_euclid(7) * DAY_MS)
    }

    /// The beginning of the month that is so many after this moment's; negative: before.
    #[must_use]
    pub fn start_of_month(self, months: i64) -> Self {
        let (year, month) = self.year_and_month();
        let count = year * 12 + (month - 1) + months;
        let (year, month) = (count.div_euclid(12), count.rem_euclid(12) + 1);
        Self::from_millis(days_from_epoch(year, month) * DAY_MS)
    }

    fn year_and_month(self) -> (i64, i64) {
        // The inverse of `days_from_epoch`: close, then corrected.
        let days = self.0.div_euclid(DAY_MS);
        let mut year = 1970 + days.div_euclid(366);
        while days_from_epoch(year + 1, 1) <= days {
            year += 1;
        }
        let month = (1..=12)
            .rev()
            .find(|month| days_from_epoch(year, *month) <= days);
        (year, month.unwrap_or(1))
    }
}

const DAY_MS: i64 = 86_400_000;

/// Days from the epoch to the first of a month, in the Gregorian calendar.
fn days_from_epoch(year: i64, month: i64) -> i64 {
    const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let leaps = |year: i64| year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let is_leap = leaps(year) > leaps(year - 1);
    let before = usize::try_from(month - 1)
        .ok()
        .and_then(|month| BEFORE.get(month));
    let leap_day = i64::from(is_leap && month > 2);
    (year - 1970) * 365 + leaps(year - 1) - leaps(1969) + before.unwrap_or(&0) + leap_day
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = jiff::Timestamp::from_millisecond(self.0).map_err(|_| fmt::Error)?;
        write!(f, "{moment:.3}")
    }
}

impl FromStr for Timestamp {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let moment: jiff::Timestamp = text.parse().map_err(|_| {
            Invalid::from("must be an ISO 8601 timestamp such as 2026-11-15T01:02:03.004Z")
        })?;
        Ok(Self::from_millis(moment.as_millisecond()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl utoipa::PartialSchema for Timestamp {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::String))
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .description(Some("ISO 8601, UTC, with milliseconds."))
            .into()
    }
}
impl utoipa::ToSchema for Timestamp {
    fn name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }
}

/// How long a credential lives: `1h`, `30d`, `1y`, or `never`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime(pub Option<Duration>);

impl FromStr for Lifetime {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        if text == "never" {
            return Ok(Self(None));
        }
        let refused = || {
            Invalid::from("must be a number with s, m, h, d or y, such as 1h or 30d, or `never`")
        };
        let unit = text.chars().last().ok_or_else(refused)?;
        let seconds = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            'y' => 365 * 86_400,
            _ => return Err(refused()),
        };
        let digits = &text[..text.len() - unit.len_utf8()];
        let count: u32 = digits.parse().map_err(|_| refused())?;
        let longest = 100 * 365 * 86_400;
        match u64::from(count) * seconds {
            total @ 1.. if total <= longest && digits.bytes().all(|b| b.is_ascii_digit()) => {
                Ok(Self(Some(Duration::from_secs(total))))
            }
            _ => Err(refused()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_text_has_milliseconds_and_z() {
        assert_eq!(
            Timestamp::from_millis(1_794_704_523_004).to_string(),
            "2026-11-15T01:02:03.004Z"
        );
        assert_eq!(
            Timestamp::from_millis(0).to_string(),
            "1970-01-01T00:00:00.000Z"
        );
        assert_eq!(
            "2026-11-15T01:02:03.004Z".parse(),
            Ok(Timestamp(1_794_704_523_004))
        );
        assert_eq!(
            "2026-11-15T02:02:03.004+01:00".parse(),
            Ok(Timestamp(1_794_704_523_004))
        );
        assert!("yesterday".parse::<Timestamp>().is_err());
        assert_eq!(Timestamp::from_millis(i64::MAX).to_string().len(), 24);
    }

    #[test]
    fn the_calendar_is_the_one_on_the_wall() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let moment = at("2026-11-15T01:02:03.004Z");
        assert_eq!(moment.start_of_day(), at("2026-11-15T00:00:00Z"));
        assert_eq!(moment.start_of_week(), at("2026-11-09T00:00:00Z"));
        for day in 1..400_000_i64 {
            let moment = Timestamp::from_millis(day * DAY_MS - 1);
            let text = moment.to_string();
            assert_eq!(
                moment.start_of_month(0),
                at(&format!("{}-01T00:00:00Z", &text[..7]))
            );
        }
        for (months, text) in [
            (0, "2026-11-01"),
            (1, "2026-12-01"),
            (2, "2027-01-01"),
            (-10, "2026-01-01"),
            (-11, "2025-12-01"),
            (-81, "2020-02-01"),
        ] {
            let start = at(&format!("{text}T00:00:00Z"));
            assert_eq!(moment.start_of_month(months), start, "{months}");
            assert_eq!(start.start_of_month(0), start);
        }
    }

    #[test]
    fn lifetimes() {
        assert_eq!("30d".parse(), Ok(Lifetime(Some(Duration::from_hours(720)))));
        assert_eq!("never".parse(), Ok(Lifetime(None)));
        for bad in [
            "",
            "d",
            "0d",
            "-1d",
            "+1d",
            "1w",
            "99999999999d",
            "101y",
            "1é",
        ] {
            assert!(bad.parse::<Lifetime>().is_err(), "{bad:?}");
        }
    }
}
