//! Dates as text, formatted once a second and not once a request.

use estrade_model::Timestamp;
use std::time::{Duration, SystemTime};

/// The present second, as `Date` and as the access log write it.
#[derive(Debug, Clone)]
pub struct DateCache {
    /// Seconds since the epoch.
    at: i64,
    /// As `Date` has it.
    http_date: String,
    /// As the access log has it, up to the seconds.
    iso_seconds: String,
}

impl Default for DateCache {
    fn default() -> Self {
        Self {
            at: i64::MIN,
            http_date: String::new(),
            iso_seconds: String::new(),
        }
    }
}

impl DateCache {
    /// Formats the second of `now`, if it is another one than before.
    pub fn update(&mut self, now: Timestamp) {
        let second = now.millis().div_euclid(1000);
        if self.at != second {
            let since = Duration::from_secs(u64::try_from(second).unwrap_or_default());
            self.http_date = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + since);
            // `2026-11-15T01:02:03.004Z` without its fraction.
            self.iso_seconds = now.to_string().chars().take(19).collect();
            self.at = second;
        }
    }

    /// As the `Date` field has it.
    #[inline]
    pub fn http_date(&self) -> &str {
        &self.http_date
    }

    /// As the access log has it, up to the seconds.
    #[inline]
    pub fn iso_seconds(&self) -> &str {
        &self.iso_seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_follow_the_time() {
        let mut second = DateCache::default();
        second.update(Timestamp::from_millis(1_700_000_000_999));
        assert_eq!(second.http_date(), "Tue, 14 Nov 2023 22:13:20 GMT");
        assert_eq!(second.iso_seconds(), "2023-11-14T22:13:20");
        second.update(Timestamp::from_millis(1_700_000_001_000));
        assert_eq!(second.iso_seconds(), "2023-11-14T22:13:21");
    }
}
