//! The pages that the edge itself shows: for people, without anything to load.

use crate::static_files::response::{Body, StaticResponse};
use http::StatusCode;

/// Why there is nothing else to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Page {
    /// No project has this host name.
    UnknownHost,
    /// The project has no release that serves.
    NothingDeployed,
    /// The project is switched off.
    SwitchedOff,
    /// The site has no such file.
    NotFound,
    /// The request makes no sense.
    BadRequest,
    /// Files are only read.
    MethodNotAllowed,
    /// The client insists on another version.
    PreconditionFailed,
    /// The range lies outside the file.
    RangeNotSatisfiable,
    /// It cannot be served here and now.
    Unavailable,
    /// The project has no instance that runs.
    NotRunning,
    /// No instance of the project responds.
    BadGateway,
    /// An instance took too long.
    GatewayTimeout,
    /// The body of the request is too long.
    TooLarge,
    /// The client took too long to send its request.
    RequestTimeout,
}

/// How long a client should wait before it asks a project again that is switched off, in seconds.
const SWITCHED_OFF_RETRY: u64 = 60;
/// The same when something is broken.
const UNAVAILABLE_RETRY: u64 = 5;

impl Page {
    fn status(self) -> StatusCode {
        match self {
            Self::UnknownHost | Self::NothingDeployed | Self::NotFound => StatusCode::NOT_FOUND,
            Self::SwitchedOff | Self::Unavailable | Self::NotRunning => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::BadGateway => StatusCode::BAD_GATEWAY,
            Self::GatewayTimeout => StatusCode::GATEWAY_TIMEOUT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
            Self::RangeNotSatisfiable => StatusCode::RANGE_NOT_SATISFIABLE,
        }
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::UnknownHost => (
                "There is no site here",
                "No project answers to this address. If it is yours, check the project's name, or that its domain has been verified.",
            ),
            Self::NothingDeployed => (
                "Nothing deployed yet",
                "This project exists and waits for its first release. Deploy it, and this page makes way.",
            ),
            Self::SwitchedOff => (
                "This site is switched off",
                "Its owner has scaled it to zero. It comes back when it is scaled up again.",
            ),
            Self::NotFound => (
                "Page not found",
                "This site has no page at this address. It may have moved.",
            ),
            Self::BadRequest => ("Bad request", "This address cannot be read."),
            Self::MethodNotAllowed => (
                "Method not allowed",
                "Files can be read with GET and HEAD, and not changed.",
            ),
            Self::PreconditionFailed => (
                "Precondition failed",
                "The file is not the version that was asked for.",
            ),
            Self::RangeNotSatisfiable => (
                "Range not satisfiable",
                "The file does not have the bytes that were asked for.",
            ),
            Self::Unavailable => (
                "Not available at the moment",
                "This site cannot be shown right now. Please try again in a few seconds.",
            ),
            Self::NotRunning => (
                "Not running at the moment",
                "No instance of this application is up right now. Please try again in a few seconds.",
            ),
            Self::BadGateway => (
                "The application does not answer",
                "No instance of it could be reached, or what came back was no answer. If it is yours, its logs may say why.",
            ),
            Self::GatewayTimeout => (
                "The application took too long",
                "It has the request and did not answer in time. It may still be working on it.",
            ),
            Self::TooLarge => (
                "Too much at once",
                "What was sent is larger than this site accepts.",
            ),
            Self::RequestTimeout => (
                "The request took too long",
                "The rest of what was announced did not come in time.",
            ),
        }
    }

    /// The page as a response.
    pub(crate) fn response(self) -> StaticResponse {
        let (title, text) = self.words();
        let status = self.status();
        let html = format!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{title}</title><style>{STYLE}</style></head><body><main><p class=\"status\">{}</p><h1>{title}</h1><p>{text}</p></main></body></html>\n",
            status.as_u16(),
        );
        let mut response = StaticResponse::new(status);
        response.header("content-type", "text/html; charset=utf-8");
        response.number("content-length", html.len() as u64);
        response.header("cache-control", "no-store");
        response.header("x-content-type-options", "nosniff");
        match self {
            Self::SwitchedOff => response.number("retry-after", SWITCHED_OFF_RETRY),
            Self::Unavailable | Self::NotRunning => {
                response.number("retry-after", UNAVAILABLE_RETRY)
            }
            Self::MethodNotAllowed => response.header("allow", "GET, HEAD"),
            _ => &mut response,
        };
        response.body = Body::from_bytes(html);
        response
    }
}

const STYLE: &str = ":root{color-scheme:light dark}body{margin:0;min-height:100vh;display:grid;place-items:center;font:16px/1.6 system-ui,sans-serif;background:#f6f7f9;color:#1c2430}main{max-width:32rem;padding:2rem;text-align:center}.status{margin:0;font-size:.9rem;letter-spacing:.15em;color:#5f6b7a}h1{margin:.25rem 0 .5rem;font-size:1.6rem;line-height:1.25}p{margin:0;color:#46505f}@media(prefers-color-scheme:dark){body{background:#12161c;color:#e8ecf1}p{color:#b3bdca}.status{color:#8793a3}}";
