//! Times, sizes, numbers and amounts as people read them.
//!
//! Templates use [`filters`] (`use crate::format::filters;` beside the template's struct).

use askama::filters::HtmlSafe;
use estrade_model::Timestamp;
use estrade_model::amount::Amount;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// The present time, for what is shown and decides nothing.
#[expect(
    clippy::disallowed_methods,
    reason = "a filter of a template has no access to the service's clock"
)]
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = since.map_or(0, |since| since.as_millis());
    Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}

/// `12 min ago`, `in 3 d`, `17 Nov`.
pub fn relative(at: Timestamp, now: Timestamp) -> String {
    let seconds = (now.millis() - at.millis()).div_euclid(1000);
    let span = match seconds.abs() {
        0..5 => return "just now".to_owned(),
        seconds @ 5..MINUTE => format!("{seconds} s"),
        seconds @ MINUTE..HOUR => format!("{} min", seconds / MINUTE),
        seconds @ HOUR..DAY => format!("{} h", seconds / HOUR),
        seconds if seconds < 14 * DAY => format!("{} d", seconds / DAY),
        _ => return date(at, now),
    };
    if seconds < 0 {
        format!("in {span}")
    } else {
        format!("{span} ago")
    }
}

/// `17 Nov`, with the year when it is another one.
fn date(at: Timestamp, now: Timestamp) -> String {
    let year = |at| strftime(at, "%Y");
    if year(at) == year(now) {
        strftime(at, "%-d %b")
    } else {
        strftime(at, "%-d %b %Y")
    }
}

/// `2026-11-17 21:04:11 UTC`
pub fn exact(at: Timestamp) -> String {
    strftime(at, "%Y-%m-%d %H:%M:%S UTC")
}

/// A time in UTC by a pattern of `strftime`.
pub fn strftime(at: Timestamp, pattern: &str) -> String {
    let moment = jiff::Timestamp::from_millisecond(at.millis()).unwrap_or_default();
    moment.strftime(pattern).to_string()
}

/// A relative time with the exact one as its title.
#[derive(Debug, Clone, Copy)]
pub struct TimeTag(Timestamp);

/// A relative time with the exact one as its title, for templates.
pub fn time_tag(at: &Timestamp) -> TimeTag {
    TimeTag(*at)
}

impl fmt::Display for TimeTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, text) = (self.0, relative(self.0, now()));
        write!(
            f,
            r#"<time datetime="{at}" title="{}">{text}</time>"#,
            exact(at)
        )
    }
}

// Digits and our own words.
impl HtmlSafe for TimeTag {}

/// `1.4 GiB`
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut units = UNITS.iter();
    let mut unit = units.next();
    while value >= 1023.95 {
        let Some(next) = units.next() else { break };
        (value, unit) = (value / 1024.0, Some(next));
    }
    let digits = usize::from(value < 99.95);
    format!("{value:.digits$} {}", unit.unwrap_or(&"EiB"))
}

/// The memory of a plan: `512 MB`, `2 GB`.
pub fn memory(mb: u64) -> String {
    match mb {
        mb if mb >= 1024 && mb.is_multiple_of(1024) => format!("{} GB", mb / 1024),
        mb => format!("{mb} MB"),
    }
}

/// `1,234,567`
pub fn number(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `184.2k`, `3.1M`; small ones as they are.
pub fn compact(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 999_950_000.0 => (value / 1e9, "G"),
        size if size >= 999_950.0 => (value / 1e6, "M"),
        size if size >= 1000.0 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = match scaled.abs() {
        size if size >= 100.0 => format!("{scaled:.0}"),
        size if size >= 10.0 => format!("{scaled:.1}"),
        _ => format!("{scaled:.2}"),
    };
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    format!("{text}{unit}")
}

/// `18.50`; of small amounts the first digits that say something.
pub fn money(amount: Amount) -> String {
    let nanos = amount.nanos();
    let (whole, fraction) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let digits = format!("{fraction:09}");
    let kept = match (whole, digits.find(|digit| digit != '0')) {
        (0, Some(first)) => (first + 2).clamp(2, 9),
        _ => 2,
    };
    let whole = number(u64::try_from(whole).unwrap_or(0));
    format!("{whole}.{}", &digits[..kept])
}

/// Filters of templates.
#[expect(clippy::inline_always, reason = "what askama makes of a filter")]
pub mod filters {
    use super::{Amount, TimeTag, Timestamp};
    use askama::{Result, Values};
    use std::borrow::Borrow;

    /// Relative time.
    #[askama::filter_fn]
    pub fn ago<T: Borrow<Timestamp>>(at: T, _: &dyn Values) -> Result<String> {
        Ok(super::relative(*at.borrow(), super::now()))
    }

    /// Exact time.
    #[askama::filter_fn]
    pub fn exact<T: Borrow<Timestamp>>(at: T, _: &dyn Values) -> Result<String> {
        Ok(super::exact(*at.borrow()))
    }

    /// `<time>` with the relative time, and the exact one as its title.
    #[askama::filter_fn]
    pub fn time<T: Borrow<Timestamp>>(at: T, _: &dyn Values) -> Result<TimeTag> {
        Ok(TimeTag(*at.borrow()))
    }

    /// A size with its unit.
    #[askama::filter_fn]
    pub fn bytes<T: Borrow<u64>>(count: T, _: &dyn Values) -> Result<String> {
        Ok(super::bytes(*count.borrow()))
    }

    /// A number with separators.
    #[askama::filter_fn]
    pub fn number<T: Borrow<u64>>(count: T, _: &dyn Values) -> Result<String> {
        Ok(super::number(*count.borrow()))
    }

    /// An amount of money.
    #[askama::filter_fn]
    pub fn money<T: Borrow<Amount>>(amount: T, _: &dyn Values) -> Result<String> {
        Ok(super::money(*amount.borrow()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_relative_and_then_dates() {
        let now: Timestamp = "2026-11-18T12:00:00Z".parse().unwrap();
        let text = |at: &str| relative(at.parse().unwrap(), now);
        assert_eq!(text("2026-11-18T11:59:58Z"), "just now");
        assert_eq!(text("2026-11-18T11:59:30Z"), "30 s ago");
        assert_eq!(text("2026-11-18T11:48:00Z"), "12 min ago");
        assert_eq!(text("2026-11-18T14:00:00Z"), "in 2 h");
        assert_eq!(text("2026-11-10T12:00:00Z"), "8 d ago");
        assert_eq!(text("2026-03-03T12:00:00Z"), "3 Mar");
        assert_eq!(text("2025-03-03T12:00:00Z"), "3 Mar 2025");
        assert_eq!(exact(now), "2026-11-18 12:00:00 UTC");
    }

    #[test]
    fn numbers_are_short_and_exact_enough() {
        assert_eq!(
            [
                bytes(0),
                bytes(1023),
                bytes(1024),
                bytes(1536),
                bytes(642 << 20),
                bytes(u64::MAX)
            ],
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "642 MiB", "16.0 EiB"]
        );
        assert_eq!(
            [number(0), number(999), number(1000), number(1_234_567)],
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(
            [
                compact(0.0),
                compact(7.25),
                compact(184_200.0),
                compact(3.1e6),
                compact(100.0)
            ],
            ["0", "7.25", "184k", "3.1M", "100"]
        );
        let amount = |text: &str| money(text.parse().unwrap());
        assert_eq!(
            [
                amount("18.5"),
                amount("0"),
                amount("0.000123"),
                amount("1234.005")
            ],
            ["18.50", "0.00", "0.00012", "1,234.00"]
        );
    }
}
