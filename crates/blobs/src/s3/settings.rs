//! Where a bucket is, and how this node signs its requests.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use http::Uri;
use secrecy::SecretString;

/// A bucket and this node's cache of it.
#[derive(Clone, Debug)]
pub struct S3Settings {
    pub bucket: String,
    /// Every key begins with it and a slash; nothing but slashes or empty: none.
    pub prefix: String,
    /// The server, if it is not AWS.
    pub endpoint: Option<S3Endpoint>,
    pub region: String,
    /// `endpoint/bucket/key` instead of `bucket.endpoint/key`.
    pub path_style: bool,
    pub credentials: S3Credentials,
    /// A directory of this node's own: spool files, and objects that were fetched.
    pub cache_dir: PathBuf,
    /// How much the fetched objects may take together. One object that is longer is never kept.
    pub cache_bytes: u64,
}

/// What requests are signed with.
#[derive(Clone, Debug)]
pub enum S3Credentials {
    Keys {
        access_key_id: String,
        secret_access_key: SecretString,
        session_token: Option<SecretString>,
    },
    /// Keys that change, from the metadata service of the machine. Nothing is asked of it otherwise.
    Instance,
}

/// The address of an S3 server: `http` or `https`, a host and perhaps a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Endpoint(Uri);

/// A text that is no [`S3Endpoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the address of an S3 server, such as https://s3.example.com")]
pub struct InvalidS3Endpoint;

impl S3Endpoint {
    /// Whether requests travel unencrypted.
    pub fn is_plain(&self) -> bool {
        self.0.scheme_str() == Some("http")
    }

    /// The address that has the bucket in its name.
    pub(super) fn of_bucket(&self, bucket: &str) -> String {
        let scheme = self.0.scheme_str().unwrap_or("https");
        let authority = self.0.authority().map_or("", |it| it.as_str());
        format!("{scheme}://{bucket}.{authority}")
    }
}

impl FromStr for S3Endpoint {
    type Err = InvalidS3Endpoint;

    fn from_str(text: &str) -> Result<Self, InvalidS3Endpoint> {
        let uri: Uri = text.parse().map_err(|_| InvalidS3Endpoint)?;
        let has_host = uri.host().is_some_and(|host| !host.is_empty());
        let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
        let is_bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
        // Keys do not belong into an address: it is shown in logs.
        let has_user = uri.authority().is_some_and(|it| it.as_str().contains('@'));
        if has_host && is_web && is_bare && !has_user {
            Ok(Self(uri))
        } else {
            Err(InvalidS3Endpoint)
        }
    }
}

/// Without a slash at the end.
impl fmt::Display for S3Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.to_string().trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_bare_web_address() {
        for (text, shown) in [
            ("https://s3.example.com", "https://s3.example.com"),
            ("http://127.0.0.1:9000/", "http://127.0.0.1:9000"),
            ("http://[::1]:9000", "http://[::1]:9000"),
        ] {
            let endpoint: Result<S3Endpoint, _> = text.parse();
            assert_eq!(endpoint.map(|it| it.to_string()), Ok(shown.to_owned()));
        }
        for text in [
            "",
            "s3.example.com",
            "ftp://s3.example.com",
            "https://s3.example.com/bucket",
            "https://s3.example.com/?region=a",
            "https://key:secret@s3.example.com",
            "https://",
        ] {
            assert_eq!(text.parse::<S3Endpoint>(), Err(InvalidS3Endpoint), "{text}");
        }
    }

    #[test]
    fn a_secret_is_not_shown() {
        let credentials = S3Credentials::Keys {
            access_key_id: "AK".into(),
            secret_access_key: "very-secret".into(),
            session_token: Some("token-secret".into()),
        };
        assert!(!format!("{credentials:?}").contains("secret\""));
        assert!(!format!("{credentials:?}").contains("very-secret"));
        assert!(!format!("{credentials:?}").contains("token-secret"));
    }
}
