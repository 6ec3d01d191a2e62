//! Heads of responses.

use crate::server::response_writer::BodyEncoding;
use http::StatusCode;
use std::io::Write;

/// Writes the status line and the date.
pub fn begin_head(head: &mut Vec<u8>, status: StatusCode, date: &str) {
    begin_status(head, status);
    head.extend_from_slice(b"date: ");
    head.extend_from_slice(date.as_bytes());
    head.extend_from_slice(b"\r\n");
}

/// Writes what ends a head: how the body is delimited (a `content-length` stands among the other headers), whether the
/// connection closes after it, and the empty line.
pub fn end_head(head: &mut Vec<u8>, body: BodyEncoding, close: bool) {
    if body == BodyEncoding::Chunked {
        head.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    if close {
        head.extend_from_slice(b"connection: close\r\n");
    }
    head.extend_from_slice(b"\r\n");
}

/// Writes the status line, for a head that has a date already.
pub fn begin_status(head: &mut Vec<u8>, status: StatusCode) {
    match status.as_u16() {
        200 => head.extend_from_slice(b"HTTP/1.1 200 OK\r\n"),
        code => {
            let reason = status.canonical_reason().unwrap_or_default();
            // Writing into memory does not fail.
            let _ = write!(head, "HTTP/1.1 {code} {reason}\r\n");
        }
    }
}
