//! `[blobs]`: where the files of releases are stored.

use super::secret::Secret;
use super::text::{Invalid, serde_as_text};
use super::url::HttpUrl;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The lengths of a bucket's name.
const BUCKET_BYTES: std::ops::RangeInclusive<usize> = 3..=63;
/// The longest prefix: keys have at most 1,024 bytes, and the names of objects need some.
const MAX_PREFIX_BYTES: usize = 512;

/// Where blobs are kept. What belongs together is checked when serving starts, because the parts may come from
/// different sources: a key from the file, its secret from the environment.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Blobs {
    /// Absent: a directory inside `data_dir`; see [`Config::blob_store`](super::Config::blob_store).
    pub url: Option<BlobUrl>,
    /// The server of the bucket; absent: Amazon's of the region.
    pub endpoint: Option<HttpUrl>,
    /// The region that requests are signed for.
    pub region: Option<Region>,
    /// Whether the bucket is named in the path of a URL, and not in its host.
    pub path_style: Option<bool>,
    /// Where the credentials come from.
    pub credentials: CredentialSource,
    /// The public half of the key.
    pub access_key_id: Option<AccessKeyId>,
    /// Its secret half.
    pub secret_access_key: Option<Secret>,
    /// How many MB of objects each node keeps on its disk.
    pub cache_mb: NonZeroU64,
}

impl Default for Blobs {
    fn default() -> Self {
        Self {
            url: None,
            endpoint: None,
            region: None,
            path_style: None,
            credentials: CredentialSource::default(),
            access_key_id: None,
            secret_access_key: None,
            cache_mb: NonZeroU64::MIN.saturating_add(10_239),
        }
    }
}

/// Where the credentials for a bucket come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CredentialSource {
    /// The configuration, or the variables that the tools of AWS read.
    #[default]
    Keys,
    /// The metadata service of the machine.
    Instance,
}

/// Where blobs are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlobUrl {
    /// `s3://bucket/prefix`; the prefix may be empty.
    S3 { bucket: String, prefix: String },
    /// `file:///directory`.
    Directory(PathBuf),
}

impl FromStr for BlobUrl {
    type Err = Invalid;

    // The messages never repeat the value: people write keys into such URLs.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        if let Some(path) = text.strip_prefix("file://") {
            return if Path::new(path).is_absolute() {
                Ok(Self::Directory(path.into()))
            } else {
                Err("file:// needs an absolute path, as in file:///var/lib/estrade/blobs".into())
            };
        }
        let Some(rest) = text.strip_prefix("s3://") else {
            return Err("write s3://BUCKET/PREFIX or file:///DIRECTORY".into());
        };
        if rest.contains(['@', '?', '#']) {
            return Err(
                "s3:// takes a bucket and a prefix only; set blobs.endpoint, blobs.region, \
                 blobs.access_key_id and blobs.secret_access_key beside it"
                    .into(),
            );
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        check_bucket(bucket)?;
        let prefix = prefix.trim_end_matches('/');
        check_prefix(prefix)?;
        Ok(Self::S3 {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
        })
    }
}

fn check_bucket(bucket: &str) -> Result<(), Invalid> {
    let is_edge = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = bucket.as_bytes();
    let ends = [bytes.first(), bytes.last()].into_iter().flatten();
    if BUCKET_BYTES.contains(&bytes.len())
        && ends.copied().all(is_edge)
        && bytes.iter().all(|c| is_edge(*c) || b".-".contains(c))
    {
        return Ok(());
    }
    Err(
        "the name of a bucket has 3 to 63 lower-case letters, digits, dots and hyphens, \
         and begins and ends with a letter or digit"
            .into(),
    )
}

fn check_prefix(prefix: &str) -> Result<(), Invalid> {
    if prefix.is_empty() {
        return Ok(());
    }
    let is_plain = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
    let is_segment =
        |segment: &str| !matches!(segment, "" | "." | "..") && segment.bytes().all(is_plain);
    if prefix.len() <= MAX_PREFIX_BYTES && prefix.split('/').all(is_segment) {
        return Ok(());
    }
    Err(
        "the prefix of s3:// is made of letters, digits, `-`, `_` and `.`, with single slashes between its parts"
            .into(),
    )
}

impl fmt::Display for BlobUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::S3 { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            Self::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
            Self::Directory(path) => write!(f, "file://{}", path.display()),
        }
    }
}

serde_as_text!(BlobUrl);

/// The name of a region, such as `eu-central-1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region(String);

impl Region {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Region {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let is_plain = |c: u8| c.is_ascii_alphanumeric() || b"-_".contains(&c);
        if text.is_empty() || text.len() > 64 || !text.bytes().all(is_plain) {
            return Err(
                "a region is named by letters, digits and hyphens, such as eu-central-1".into(),
            );
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

serde_as_text!(Region);

/// The public half of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessKeyId(String);

impl AccessKeyId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for AccessKeyId {
    type Err = Invalid;

    // It is part of a header that is signed. Not repeated: people mix up the two halves.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let is_plain = |c: u8| c.is_ascii_graphic() && !b"/,=".contains(&c);
        if text.is_empty() || text.len() > 256 || !text.bytes().all(is_plain) {
            return Err("an access key id has no spaces, slashes, commas or equals signs".into());
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for AccessKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

serde_as_text!(AccessKeyId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_live_in_a_bucket_or_a_directory() {
        let shown = |text: &str| text.parse::<BlobUrl>().map(|url| url.to_string());
        assert_eq!(shown("s3://bucket/a/b/").unwrap(), "s3://bucket/a/b");
        assert_eq!(shown("s3://bucket/").unwrap(), "s3://bucket");
        assert_eq!(shown("file:///var/b").unwrap(), "file:///var/b");
        for bad in [
            "",
            "s3://",
            "s3:///p",
            "s3://ab",
            "s3://Bucket",
            "s3://-bucket",
            "s3://bucket//p",
            "s3://bucket/../p",
            "s3://bucket/a b",
            "file://b",
            "gs://b",
            "/var/b",
        ] {
            assert!(shown(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_key_in_the_url_is_refused_without_repeating_it() {
        for url in [
            "s3://key:hunter2@bucket/prefix",
            "s3://bucket/prefix?secret_access_key=hunter2",
        ] {
            let refused = url.parse::<BlobUrl>().unwrap_err();
            assert!(refused.0.contains("blobs.secret_access_key"), "{refused}");
            assert!(!refused.0.contains("hunter2"), "{refused}");
        }
    }

    #[test]
    fn regions_and_keys_hold_nothing_that_could_break_a_header() {
        assert!("eu-central-1".parse::<Region>().is_ok());
        assert!("AKIAIOSFODNN7EXAMPLE".parse::<AccessKeyId>().is_ok());
        for bad in ["", "eu central", "a/b", "a\nb"] {
            assert!(bad.parse::<Region>().is_err(), "{bad:?}");
            assert!(bad.parse::<AccessKeyId>().is_err(), "{bad:?}");
        }
    }
}
