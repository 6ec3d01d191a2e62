//! A local response: a head that is ready to be sent, and where the body comes from.

use crate::static_files::content_cache::Content;
use crate::static_files::response_cache::FileFlags;
use crate::static_files::site::ContentLocation;
use bytes::Bytes;
use estrade_blobs::Digest;
use estrade_model::coding::Coding;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use std::io::Write;

/// What is sent back.
#[derive(Debug)]
pub struct StaticResponse {
    pub status: StatusCode,
    /// Header lines, each with its line end.
    lines: Vec<u8>,
    /// The body, in pieces; HEAD has the same head and no body.
    pub body: Body,
    /// The cacheable form of the response, if equal requests get the same.
    pub(crate) cacheable: Option<Cacheable>,
}

/// A file that equal requests get in the same way, for as long as its release is live.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cacheable {
    pub(crate) digest: Digest,
    pub(crate) stored: ContentLocation,
    pub(crate) coding: Coding,
    pub(crate) flags: FileFlags,
}

/// The body of a response.
#[derive(Debug)]
pub enum Body {
    Empty,
    /// One content, or a part of one.
    One(Content),
    /// Several pieces, one after the other.
    Many(Vec<Content>),
}

impl Body {
    /// From bytes in memory.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Self {
        Self::One(Content::Bytes(bytes.into()))
    }

    /// How long it is.
    pub fn length(&self) -> u64 {
        self.pieces().iter().map(Content::length).sum()
    }

    pub fn pieces(&self) -> &[Content] {
        match self {
            Self::Empty => &[],
            Self::One(content) => std::slice::from_ref(content),
            Self::Many(contents) => contents,
        }
    }
}

impl StaticResponse {
    /// Without headers and body.
    pub fn new(status: StatusCode) -> Self {
        Self {
            status,
            lines: Vec::with_capacity(512),
            body: Body::Empty,
            cacheable: None,
        }
    }

    /// Adds a header. The value must be one line; ours are, and those of sites were checked.
    pub fn header(&mut self, name: &str, value: impl AsRef<[u8]>) -> &mut Self {
        self.lines.extend_from_slice(name.as_bytes());
        self.lines.extend_from_slice(b": ");
        self.lines.extend_from_slice(value.as_ref());
        self.lines.extend_from_slice(b"\r\n");
        self
    }

    /// Adds a header whose value is a number.
    pub fn number(&mut self, name: &str, value: u64) -> &mut Self {
        self.header(name, itoa::Buffer::new().format(value))
    }

    /// Adds the entity tag of a content in a coding.
    pub fn tag(&mut self, digest: &Digest, coding: Coding) -> &mut Self {
        self.lines.extend_from_slice(b"etag: \"");
        self.lines.extend_from_slice(&digest.to_hex());
        self.lines.extend_from_slice(coding.tag_suffix().as_bytes());
        self.lines.extend_from_slice(b"\"\r\n");
        self
    }

    /// Adds a header whose value is put together.
    pub fn formatted(&mut self, name: &str, value: std::fmt::Arguments<'_>) -> &mut Self {
        let _ = write!(self.lines, "{name}: {value}\r\n");
        self
    }

    /// The header lines as they are sent.
    pub fn lines(&self) -> &[u8] {
        &self.lines
    }

    /// The headers as a map.
    pub fn header_map(&self) -> HeaderMap {
        header_map(&self.lines)
    }

    /// Replaces the headers.
    pub fn set_headers(&mut self, headers: &HeaderMap) {
        self.lines.clear();
        for (name, value) in headers {
            self.header(name.as_str(), value);
        }
    }
}

/// Header lines as a map.
pub(crate) fn header_map(lines: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(16);
    for line in lines.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            continue;
        };
        let value = line[colon + 1..].trim_ascii_start();
        if let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(&line[..colon]),
            HeaderValue::from_bytes(value),
        ) {
            headers.append(name, value);
        }
    }
    headers
}
