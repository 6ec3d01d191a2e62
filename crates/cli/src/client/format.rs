//! Times and sizes as people read them.

use estrade_model::Timestamp;
use std::time::{SystemTime, UNIX_EPOCH};

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// The present time, for what is shown.
#[expect(
    clippy::disallowed_methods,
    reason = "a client has no service, and so no Clock"
)]
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = since.map_or(0, |since| since.as_millis());
    Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}

/// `12 min ago`, `in 3 d`.
pub fn relative(at: Timestamp, now: Timestamp) -> String {
    let seconds = (now.millis() - at.millis()).div_euclid(1000);
    let span = match seconds.abs() {
        0..5 => return "just now".to_owned(),
        seconds @ 5..MINUTE => format!("{seconds} s"),
        seconds @ MINUTE..HOUR => format!("{} min", seconds / MINUTE),
        seconds @ HOUR..DAY => format!("{} h", seconds / HOUR),
        seconds => format!("{} d", seconds / DAY),
    };
    if seconds < 0 {
        format!("in {span}")
    } else {
        format!("{span} ago")
    }
}

/// The same for a time that may be absent.
pub fn relative_or(at: Option<Timestamp>, now: Timestamp, absent: &str) -> String {
    at.map_or_else(|| absent.to_owned(), |at| relative(at, now))
}

/// `3.1 MiB`
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (count as f64, UNITS[0]);
    for larger in &UNITS[1..] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    if unit == UNITS[0] || value >= 100.0 {
        format!("{value:.0} {unit}")
    } else {
        format!("{value:.1} {unit}")
    }
}

/// `1 file`, `3 files`
pub fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_relative() {
        let now = Timestamp::from_millis(10_000_000_000);
        let ago =
            |seconds: i64| relative(Timestamp::from_millis(now.millis() - seconds * 1000), now);
        for (seconds, text) in [
            (0, "just now"),
            (59, "59 s ago"),
            (61, "1 min ago"),
            (7200, "2 h ago"),
            (200_000, "2 d ago"),
            (-90, "in 1 min"),
        ] {
            assert_eq!(ago(seconds), text);
        }
    }

    #[test]
    fn sizes_have_three_digits() {
        for (count, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (3 << 20, "3.0 MiB"),
            (200 << 30, "200 GiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }
}
