//! Why something could not be read from the bucket or put there, told apart as far as somebody acts on it.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use object_store::client::{HttpError, HttpErrorKind};

use crate::BlobError;

/// Cheap to clone: all who wait for one fetch are told the same.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// There is no such object.
    Missing,
    /// The object ends before the range does.
    BeyondEnd,
    /// The bytes are not those that were put.
    Damaged,
    /// A quota of the bucket is used up.
    Quota(Arc<str>),
    Unavailable {
        problem: Arc<str>,
        /// What the server or the network said, for a log. No header and no body of a response: some servers
        /// repeat there what was signed.
        detail: Option<Arc<str>>,
        /// Whether it may succeed in a moment.
        is_transient: bool,
    },
    /// This node's disk, or what this node is able to do.
    Local(ErrorKind, Arc<str>),
}

impl Failure {
    pub(super) fn transient(problem: &str) -> Self {
        Self::Unavailable {
            problem: problem.into(),
            detail: None,
            is_transient: true,
        }
    }

    pub(super) fn timeout() -> Self {
        Self::transient("it did not answer in time")
    }

    pub(super) fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Unavailable {
                is_transient: true,
                ..
            }
        )
    }
}

impl From<object_store::Error> for Failure {
    fn from(error: object_store::Error) -> Self {
        let is_missing = matches!(error, object_store::Error::NotFound { .. });
        if let object_store::Error::InvalidPath { source } = &error {
            return Self::Unavailable {
                problem: "it has an object that is not ours, under a name that cannot be read"
                    .into(),
                detail: Some(source.to_string().into()),
                is_transient: false,
            };
        }
        let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
        while let Some(it) = cause {
            if let Some(http) = it.downcast_ref::<HttpError>() {
                return of_transport(http);
            }
            let text = it.to_string();
            if let Some(answer) = text.strip_prefix("Server returned non-2xx status code: ") {
                return of_status(answer);
            }
            if let Some(body) = text.strip_prefix("Server returned error response: ") {
                return of_status(&format!("500 : {body}"));
            }
            if text.starts_with("Received redirect without LOCATION") {
                return refused("it is in another region");
            }
            cause = it.source();
        }
        if is_missing {
            return Self::Missing;
        }
        Self::Unavailable {
            problem: "it answered what this server does not understand".into(),
            detail: Some(error.to_string().into()),
            is_transient: true,
        }
    }
}

fn of_transport(error: &HttpError) -> Failure {
    let problem = match error.kind() {
        HttpErrorKind::Connect => "no connection to it",
        HttpErrorKind::Timeout => "it did not answer in time",
        _ => "the connection to it broke",
    };
    let mut detail = error.to_string();
    let mut cause = error.source();
    while let Some(it) = cause {
        detail = format!("{detail}: {it}");
        cause = it.source();
    }
    Failure::Unavailable {
        problem: problem.into(),
        detail: Some(detail.into()),
        is_transient: true,
    }
}

/// `answer` is a status code, its name and the body: XML with a code of S3.
fn of_status(answer: &str) -> Failure {
    let mut failure = classify(answer);
    if let Failure::Unavailable { detail, .. } = &mut failure {
        let status = answer.get(..3).unwrap_or_default();
        *detail = Some(format!("status {status} {}", error_code(answer)).into());
    }
    failure
}

fn classify(answer: &str) -> Failure {
    let status: u16 = answer.get(..3).and_then(|it| it.parse().ok()).unwrap_or(0);
    let code = error_code(answer);
    match (status, code) {
        (_, "NoSuchBucket") => refused("there is no such bucket"),
        (_, "NoSuchUpload") | (404, _) => Failure::Missing,
        (416, _) => Failure::BeyondEnd,
        (_, "QuotaExceeded") | (507, _) => Failure::Quota(describe(status, code).into()),
        (_, "InvalidAccessKeyId") => refused("it does not know the access key id"),
        (_, "SignatureDoesNotMatch") => {
            refused("it refuses the signature: the secret access key or the region is wrong")
        }
        (_, "RequestTimeTooSkewed") => {
            refused("its clock and that of this machine differ by more than 15 minutes")
        }
        (_, "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired") => {
            refused("the session token has expired or is wrong")
        }
        (301 | 307 | 308, _) | (_, "AuthorizationHeaderMalformed" | "PermanentRedirect") => {
            refused("it is in another region")
        }
        (401 | 403, _) => refused(
            "the keys do not allow it: they must be able to read, write, list and delete objects",
        ),
        (408 | 429 | 500.., _) | (_, "SlowDown" | "RequestTimeout" | "InternalError") => {
            Failure::transient(&describe(status, code))
        }
        _ => refused(&describe(status, code)),
    }
}

fn refused(problem: &str) -> Failure {
    Failure::Unavailable {
        problem: problem.into(),
        detail: None,
        is_transient: false,
    }
}

fn describe(status: u16, code: &str) -> String {
    if code.is_empty() {
        format!("it answered with status {status}")
    } else {
        format!("it answered with status {status} ({code})")
    }
}

/// The code of an error document; empty if there is none that looks like one.
fn error_code(document: &str) -> &str {
    let code = document
        .split_once("<Code>")
        .and_then(|(_, rest)| rest.split_once("</Code>"))
        .map_or("", |(code, _)| code);
    let is_code = code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_code { code } else { "" }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Local(error.kind(), error.to_string().into())
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Missing => ErrorKind::NotFound.into(),
            Failure::BeyondEnd => ErrorKind::UnexpectedEof.into(),
            Failure::Damaged => BlobError::Damaged.into(),
            Failure::Quota(problem) => Self::new(ErrorKind::QuotaExceeded, problem.to_string()),
            Failure::Unavailable {
                problem, detail, ..
            } => BlobError::Unavailable {
                problem: problem.to_string(),
                source: detail.map(|detail| detail.to_string().into()),
            }
            .into(),
            Failure::Local(kind, problem) => Self::new(kind, problem.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(answer: &str) -> String {
        io::Error::from(of_status(answer)).to_string()
    }

    #[test]
    fn answers_become_sentences() {
        let denied = "403 Forbidden: <Error><Code>AccessDenied</Code></Error>";
        assert!(told(denied).contains("the keys do not allow it"));
        let missing = "404 Not Found: <Error><Code>NoSuchKey</Code></Error>";
        assert!(matches!(of_status(missing), Failure::Missing));
        let no_bucket = "404 Not Found: <Error><Code>NoSuchBucket</Code></Error>";
        assert!(told(no_bucket).contains("no such bucket"));
        let slow = of_status("503 Slow: <Error><Code>SlowDown</Code></Error>");
        assert!(slow.is_transient());
        assert!(io::Error::from(slow).to_string().contains("503 (SlowDown)"));
        assert!(!of_status("400 Bad Request: ").is_transient());
        let full = "403 Forbidden: <Error><Code>QuotaExceeded</Code></Error>";
        let full = BlobError::from(io::Error::from(of_status(full)));
        assert!(matches!(full, BlobError::NoSpace(_)));
    }

    #[test]
    fn what_a_server_repeats_is_not_shown() {
        let body = "403 Forbidden: <Error><Code>SignatureDoesNotMatch</Code>\
            <StringToSign>AWS4-HMAC-SHA256 AKID</StringToSign></Error>";
        assert!(!format!("{:?}", of_status(body)).contains("AKID"));
        assert_eq!(error_code("<Code>a b</Code>"), "");
    }
}
