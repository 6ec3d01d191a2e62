//! Heads of requests, as the fast path reads them (RFC 9112, sections 2.2, 3 and 5).

use std::mem::MaybeUninit;

/// A head that has not ended after so many bytes is left to hyper, and so is one with more headers.
const MAX_HEAD: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;

/// What the fast path makes of the bytes that were read.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed<T> {
    /// A request that the fast path supports.
    Supported(T),
    /// The rest of the head has to come.
    Partial,
    /// Anything else, invalid requests included: hyper answers it.
    Unsupported,
}

/// Parses a head. `supported` gets it with its length in bytes, and returns what is needed for the response, or
/// none when it has something about it that the fast path does not handle.
///
/// The fast path refuses nothing itself: whatever httparse, the limits or the check for bare LF do not accept is
/// [`Parsed::Unsupported`], so that there is one place with error responses.
#[inline]
pub fn parse_head<'i, T>(
    input: &'i [u8],
    supported: impl FnOnce(&httparse::Request<'_, 'i>, usize) -> Option<T>,
) -> Parsed<T> {
    if input.is_empty() {
        return Parsed::Partial;
    }
    let mut slots = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut []);
    let known = match request.parse_with_uninit_headers(input, &mut slots) {
        // However it was split: a part of it would have been refused already.
        Ok(httparse::Status::Complete(length)) if length > MAX_HEAD => None,
        // httparse takes a bare LF for a line end; StrictHeads refuses it in front of hyper.
        Ok(httparse::Status::Complete(length)) if has_bare_lf(&input[..length]) => None,
        Ok(httparse::Status::Complete(length)) => supported(&request, length),
        Ok(httparse::Status::Partial) if input.len() < MAX_HEAD => return Parsed::Partial,
        Ok(httparse::Status::Partial) | Err(_) => None,
    };
    known.map_or(Parsed::Unsupported, Parsed::Supported)
}

fn has_bare_lf(head: &[u8]) -> bool {
    let is_bare = |at: usize| at == 0 || head[at - 1] != b'\r';
    memchr::memchr_iter(b'\n', head).any(is_bare)
}

/// Whether a `Connection` field asks to close; none when it says anything but `close` or `keep-alive`. The field may
/// come twice: then one `close` is enough (section 9.6).
#[inline]
pub fn parse_connection(value: &[u8]) -> Option<bool> {
    let close = value.eq_ignore_ascii_case(b"close");
    (close || value.eq_ignore_ascii_case(b"keep-alive")).then_some(close)
}
