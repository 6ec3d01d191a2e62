//! Conditional requests on static files: what the client has already, and what it insists on.

use crate::static_files::request::Headers;
use estrade_blobs::Digest;
use estrade_model::coding::Coding;
use std::time::SystemTime;

/// What the conditions of a request come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Send,
    /// The client has it, in this coding: 304.
    NotModified(Coding),
    /// The client insists on another one: 412.
    Failed,
}

/// A content as it would be sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Validators {
    /// Hash of the content, not of its coding.
    pub digest: Digest,
    /// How it would be coded.
    pub coding: Coding,
    /// When the release went live, to the second.
    pub modified: SystemTime,
    /// Whether that tells it from all other releases.
    pub dated: bool,
}

#[cfg(test)]
fn tag(digest: &Digest, coding: Coding) -> String {
    format!("\"{digest}{}\"", coding.tag_suffix())
}

impl Validators {
    /// Holds the conditions against the content. `takes` says which codings the client could be
    /// sent: having any of them is as good as having the one that we would choose.
    pub(crate) fn check(&self, headers: &Headers<'_>, takes: impl Fn(Coding) -> bool) -> Verdict {
        let ours = |text: &str| coding_of(text, &self.digest);
        if let Some(list) = &headers.if_match {
            let strong = |text| text == "*" || ours(text).is_some_and(&takes);
            if !tags(list).any(strong) {
                return Verdict::Failed;
            }
        } else if let Some(since) = date(headers.if_unmodified_since.as_deref())
            && self.modified > since
        {
            return Verdict::Failed;
        }
        if let Some(list) = &headers.if_none_match {
            for text in tags(list) {
                if text == "*" {
                    return Verdict::NotModified(self.coding);
                }
                let known = ours(text.strip_prefix("W/").unwrap_or(text));
                if let Some(coding) = known.filter(|coding| takes(*coding)) {
                    return Verdict::NotModified(coding);
                }
            }
        } else if self.is_from(headers.if_modified_since.as_deref()) {
            // Equal and not "not after": a roll-back makes older content live at a later time, and
            // a copy from the time between must not pass for it.
            return Verdict::NotModified(self.coding);
        }
        Verdict::Send
    }

    /// Whether a `Range` of the content as it is may be followed: `If-Range` must name exactly it.
    pub(crate) fn allows_range(&self, headers: &Headers<'_>) -> bool {
        match headers.if_range.as_deref() {
            None => true,
            Some(text) if text.ends_with('"') => {
                coding_of(text, &self.digest) == Some(Coding::Identity)
            }
            text => self.is_from(text),
        }
    }

    /// Whether a date can only mean this content.
    fn is_from(&self, text: Option<&str>) -> bool {
        self.dated && date(text) == Some(self.modified)
    }
}

/// Which coding of the content an entity tag names, if any.
fn coding_of(text: &str, digest: &Digest) -> Option<Coding> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    let (hash, suffix) = inner.split_at_checked(64)?;
    let all = [Coding::Identity, Coding::Gzip, Coding::Zstd, Coding::Brotli];
    let coding = all.into_iter().find(|it| it.tag_suffix() == suffix)?;
    (hash.parse() == Ok(*digest)).then_some(coding)
}

fn tags(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim)
}

fn date(text: Option<&str>) -> Option<SystemTime> {
    httpdate::parse_http_date(text?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn headers<'r>(list: &[(&str, &'r str)]) -> Headers<'r> {
        let mut headers = Headers::default();
        for (name, value) in list {
            headers.add(name, value);
        }
        headers
    }

    #[test]
    fn conditions_are_held_against_the_content() {
        let digest = Digest::of(b"x");
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let it = Validators {
            digest,
            coding: Coding::Gzip,
            modified,
            dated: true,
        };
        let (plain, gzip, brotli) = (
            tag(&digest, Coding::Identity),
            tag(&digest, Coding::Gzip),
            tag(&digest, Coding::Brotli),
        );
        let (weak, several) = (format!("W/{plain}"), format!("\"other\", {gzip}"));
        let date = httpdate::fmt_http_date(modified);
        let later = httpdate::fmt_http_date(modified + Duration::from_secs(5));
        let before = httpdate::fmt_http_date(modified - Duration::from_secs(5));
        for (list, verdict) in [
            (vec![], Verdict::Send),
            (
                vec![("if-none-match", gzip.as_str())],
                Verdict::NotModified(Coding::Gzip),
            ),
            (
                vec![("if-none-match", &weak)],
                Verdict::NotModified(Coding::Identity),
            ),
            (vec![("if-none-match", &brotli)], Verdict::Send),
            (
                vec![("if-none-match", &several)],
                Verdict::NotModified(Coding::Gzip),
            ),
            (
                vec![("if-none-match", "*")],
                Verdict::NotModified(Coding::Gzip),
            ),
            (
                vec![("if-none-match", "\"x\""), ("if-modified-since", &date)],
                Verdict::Send,
            ),
            (
                vec![("if-modified-since", &date)],
                Verdict::NotModified(Coding::Gzip),
            ),
            (vec![("if-modified-since", &later)], Verdict::Send),
            (vec![("if-match", &gzip)], Verdict::Send),
            (vec![("if-match", "*")], Verdict::Send),
            (vec![("if-match", &weak)], Verdict::Failed),
            (vec![("if-match", "\"x\"")], Verdict::Failed),
            (vec![("if-unmodified-since", &before)], Verdict::Failed),
            (vec![("if-unmodified-since", &date)], Verdict::Send),
        ] {
            let takes = |coding| coding != Coding::Brotli;
            assert_eq!(it.check(&headers(&list), takes), verdict, "{list:?}");
        }
        for (value, allowed) in [
            (&plain, true),
            (&gzip, false),
            (&weak, false),
            (&date, true),
            (&later, false),
        ] {
            assert_eq!(
                it.allows_range(&headers(&[("if-range", value)])),
                allowed,
                "{value}"
            );
        }
        let one_of_two = Validators { dated: false, ..it };
        let asked = headers(&[("if-modified-since", &date), ("if-range", &date)]);
        assert_eq!(one_of_two.check(&asked, |_| true), Verdict::Send);
        assert!(!one_of_two.allows_range(&asked));
    }
}
