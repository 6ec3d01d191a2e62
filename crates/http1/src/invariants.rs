//! What holds for every input, for the fuzz targets in `fuzz/` and the property tests of this crate.
//!
//! Each function takes bytes as a network may bring them, and places where they are cut. It returns what does not hold.

use crate::framing::{BodyHeaders, Decoded, Framing, FramingError};
use crate::server::{Parsed, parse_head, scan_requests};
use bytes::BytesMut;

/// The headers that hyper's parser takes.
const HYPER_MAX_HEADERS: usize = 100;

/// How a body was decoded.
#[derive(Debug, PartialEq, Eq)]
struct DecodedBody {
    data: Vec<u8>,
    /// Whether it is complete, has to go on, or is refused.
    state: Result<bool, FramingError>,
    /// Bytes that are not part of it, once it is complete.
    rest: usize,
}

/// A head that is complete in a part of the bytes is the same head in all of them, and hyper sees its end at the same
/// place.
pub fn check_request_head(bytes: &[u8], cuts: &[usize]) -> Result<(), String> {
    let parse = |part: &[u8]| parse_head(part, |_, length| Some(length));
    let whole = parse(bytes);
    for &cut in cuts {
        let part = parse(&bytes[..cut.min(bytes.len())]);
        if part != Parsed::Partial && part != whole {
            return Err(format!("{part:?} in {cut} bytes, {whole:?} in all"));
        }
    }
    if let Parsed::Supported(length) = whole {
        let mut headers = [httparse::EMPTY_HEADER; HYPER_MAX_HEADERS];
        let by_hyper = httparse::Request::new(&mut headers).parse(bytes);
        if by_hyper != Ok(httparse::Status::Complete(length)) {
            return Err(format!("{length} bytes, {by_hyper:?} by hyper's parser"));
        }
    }
    Ok(())
}

/// A body is decoded to the same bytes however it is cut, and ends where a second decoder sees its end.
pub fn check_body(framing: Framing, bytes: &[u8], cuts: &[usize]) -> Result<(), String> {
    let whole = decode(framing, &[bytes]);
    let cut = decode(framing, &pieces(bytes, cuts));
    if whole != cut {
        return Err(format!("{whole:?} in one piece, {cut:?} cut at {cuts:?}"));
    }
    if framing == Framing::ChunkSize
        && whole.state == Ok(true)
        && let Some((data, rest)) = decode_chunks_with_httparse(bytes)
        && (data != whole.data || rest != whole.rest)
    {
        return Err(format!("{whole:?}, but {rest} left by httparse"));
    }
    Ok(())
}

/// Requests that are scanned for bare LFs are refused at the same byte however they are cut, and one that the fast path
/// would take ends where the scanner sees its end.
pub fn check_request(bytes: &[u8], cuts: &[usize]) -> Result<(), String> {
    let (whole, cut) = (
        scan_requests(&[bytes]).0,
        scan_requests(&pieces(bytes, cuts)).0,
    );
    if whole != cut {
        return Err(format!(
            "refused at {whole:?} in one piece, {cut:?} cut at {cuts:?}"
        ));
    }
    let Parsed::Supported((length, framing)) = parse_head(bytes, request_framing) else {
        return Ok(());
    };
    let body = decode(framing, &[&bytes[length..]]);
    if body.state != Ok(true) {
        return Ok(());
    }
    let end = bytes.len() - body.rest;
    match scan_requests(&[&bytes[..end]]) {
        (None, Some(false)) => Err(format!("a message ends at {end}, but not for the scanner")),
        _ => Ok(()),
    }
}

fn request_framing(request: &httparse::Request<'_, '_>, length: usize) -> Option<(usize, Framing)> {
    let mut body = BodyHeaders::default();
    for header in request.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            body.add_content_length(header.value).ok()?;
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            body.add_transfer_encoding(header.value).ok()?;
        }
    }
    Some((length, body.request_framing().ok()?))
}

fn pieces<'b>(bytes: &'b [u8], cuts: &[usize]) -> Vec<&'b [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| (*cut).min(bytes.len())).collect();
    cuts.sort_unstable();
    let (mut pieces, mut start) = (Vec::new(), 0);
    for cut in cuts {
        pieces.push(&bytes[start..cut]);
        start = cut;
    }
    pieces.push(&bytes[start..]);
    pieces
}

fn decode(mut framing: Framing, pieces: &[&[u8]]) -> DecodedBody {
    let (mut buffer, mut data) = (BytesMut::new(), Vec::new());
    let mut state = Ok(false);
    for piece in pieces {
        buffer.extend_from_slice(piece);
        while state == Ok(false) {
            match framing.decode(&mut buffer) {
                Ok(Decoded::Data(part)) => data.extend_from_slice(&part),
                Ok(Decoded::NeedMore) => break,
                Ok(Decoded::Done) => state = Ok(true),
                Err(error) => state = Err(error),
            }
        }
    }
    let rest = if state == Ok(true) { buffer.len() } else { 0 };
    DecodedBody { data, state, rest }
}

/// A chunked body as httparse reads its size lines; none when it is incomplete or refused.
fn decode_chunks_with_httparse(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut data, mut at) = (Vec::new(), 0);
    loop {
        let rest = bytes.get(at..)?;
        let Ok(httparse::Status::Complete((line, size))) = httparse::parse_chunk_size(rest) else {
            return None;
        };
        at += line;
        if size == 0 {
            break;
        }
        let size = usize::try_from(size).ok()?;
        let end = at.checked_add(size)?;
        data.extend_from_slice(bytes.get(at..end)?);
        at = bytes.get(end..)?.starts_with(b"\r\n").then_some(end + 2)?;
    }
    loop {
        let rest = bytes.get(at..)?;
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        at += end + 1;
        if rest[..end] == *b"\r" {
            return Some((data, bytes.len() - at));
        }
    }
}
