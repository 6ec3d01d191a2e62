//! `multipart/form-data`, read piece by piece in bounded memory.
//!
//! At most one chunk of the body and the head of one part are held, however fast a client sends and
//! however long it makes its headers.
//!
//! Not `multer`: it bounds the number of a part's headers but not their length. It collects the body until the empty
//! line that ends them, and only the limit of the whole body, here the size of a release, stops that.

use crate::api_error::ApiError;
use crate::body_reader::{BodyLimits, BodyReader};
use axum::extract::Request;
use axum::http::{HeaderMap, header};
use bytes::{Buf, Bytes, BytesMut};
use estrade_service::Error;
use memchr::memmem;

/// Longest head of a part.
const MAX_PART_HEAD: usize = 8 * 1024;
/// Longest boundary (RFC 2046).
const MAX_BOUNDARY: usize = 70;
/// What the parts may take besides their contents.
pub const MAX_OVERHEAD: u64 = 64 * 1024;

/// A body of several parts that is being read.
pub struct Multipart {
    reader: BodyReader,
    /// Bytes that were received and not yet returned.
    buffer: BytesMut,
    /// What stands between two parts.
    delimiter: Vec<u8>,
    is_over: bool,
}

impl Multipart {
    /// Starts to read; 415 for another type of body.
    pub fn new(request: Request, limits: BodyLimits) -> Result<Self, ApiError> {
        let Some(boundary) = boundary(request.headers()) else {
            return Err(Error::UnsupportedMediaType("multipart/form-data with a boundary").into());
        };
        let mut reader = BodyReader::new(request, limits)?;
        reader.reserve_buffer()?;
        Ok(Self {
            reader,
            // The first boundary begins the body, all others a line.
            buffer: BytesMut::from(&b"\r\n"[..]),
            delimiter: format!("\r\n--{boundary}").into_bytes(),
            is_over: false,
        })
    }

    /// Goes on to the next part and returns the name of its field; none after the last one.
    pub async fn next_part(&mut self) -> Result<Option<String>, ApiError> {
        while self.next_piece().await?.is_some() {}
        if self.is_over {
            return Ok(None);
        }
        self.buffer.advance(self.delimiter.len());
        self.fill(2).await?;
        if self.buffer.starts_with(b"--") {
            self.is_over = true;
            // What follows the end means nothing; it is read so that the connection can go on.
            while self.reader.next().await?.is_some() {}
            return Ok(None);
        }
        let head = self.take_head().await?;
        Ok(Some(field_name(&head).unwrap_or_default()))
    }

    /// The next piece of the part; none at its end.
    pub async fn next_piece(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            if self.is_over {
                return Ok(None);
            }
            let ready = match memmem::find(&self.buffer, &self.delimiter) {
                Some(0) => return Ok(None),
                Some(end) => end,
                // The end of what has come may be the beginning of a delimiter.
                None => self.buffer.len().saturating_sub(self.delimiter.len() - 1),
            };
            if ready > 0 {
                return Ok(Some(self.buffer.split_to(ready).freeze()));
            }
            self.fill(self.buffer.len() + 1).await?;
        }
    }

    /// The headers of a part, up to the empty line.
    async fn take_head(&mut self) -> Result<Bytes, ApiError> {
        loop {
            if let Some(end) = memmem::find(&self.buffer, b"\r\n\r\n") {
                let head = self.buffer.split_to(end).freeze();
                self.buffer.advance(4);
                if head.len() > MAX_PART_HEAD {
                    return Err(too_long());
                }
                return Ok(head);
            }
            if self.buffer.len() > MAX_PART_HEAD {
                return Err(too_long());
            }
            self.fill(self.buffer.len() + 1).await?;
        }
    }

    /// Reads on until so many bytes wait.
    async fn fill(&mut self, count: usize) -> Result<(), ApiError> {
        while self.buffer.len() < count {
            match self.reader.next().await? {
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None => return Err(Error::invalid("the body ended early").into()),
            }
        }
        Ok(())
    }
}

fn too_long() -> ApiError {
    Error::invalid("the body has a part with headers that are far too long").into()
}

fn boundary(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let (essence, _) = value.split_once(';')?;
    if !essence.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let found = parameter(value, "boundary")?;
    (1..=MAX_BOUNDARY).contains(&found.len()).then_some(found)
}

fn field_name(head: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(head);
    let named = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let is_ours = name.trim().eq_ignore_ascii_case("content-disposition");
        is_ours.then(|| parameter(value, "name"))?
    };
    head.split("\r\n").find_map(named)
}

/// A parameter of a header such as `form-data; name="file"; filename="a;b.zip"`.
fn parameter(value: &str, wanted: &str) -> Option<String> {
    let mut rest = value;
    loop {
        rest = rest[rest.find(';')? + 1..].trim_start();
        let end = rest.find(['=', ';'])?;
        let (name, after) = rest.split_at(end);
        let Some(after) = after.strip_prefix('=') else {
            continue;
        };
        let (text, after) = take_value(after.trim_start());
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(text);
        }
        rest = after;
    }
}

/// A word, or a text in quotes, and what follows it.
fn take_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(';').unwrap_or(text.len());
        return (text[..end].trim().to_owned(), &text[end..]);
    };
    let mut found = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (found, &quoted[at + 1..]),
            '\\' => found.extend(chars.next().map(|(_, escaped)| escaped)),
            c => found.push(c),
        }
    }
    (found, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use futures_util::stream;
    use std::io;

    fn request(content_type: &str, body: &[u8], chunk: usize) -> Request {
        let chunks: Vec<_> = body
            .chunks(chunk)
            .map(|it| io::Result::Ok(it.to_vec()))
            .collect();
        Request::builder()
            .header("content-type", content_type)
            .body(Body::from_stream(stream::iter(chunks)))
            .unwrap()
    }

    async fn read(body: &[u8], chunk: usize) -> Result<Vec<(String, Vec<u8>)>, ApiError> {
        let request = request("multipart/form-data; boundary=xyz", body, chunk);
        let mut parts = Multipart::new(request, BodyLimits::default())?;
        let mut found = Vec::new();
        while let Some(name) = parts.next_part().await? {
            let mut content = Vec::new();
            while let Some(piece) = parts.next_piece().await? {
                content.extend_from_slice(&piece);
            }
            found.push((name, content));
        }
        Ok(found)
    }

    #[tokio::test]
    async fn parts_are_found_however_they_are_cut() {
        let body = b"ignored\r\n--xyz\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\n\r\n--xy\r\n\
            --xyz \r\ncontent-type: application/gzip\r\ncontent-disposition: form-data; filename=\"a;\\\"name=b.tgz\"; name=file\r\n\r\n\
            \r\n\r\n--xyyz\r--xyz\r\n--xyz--\r\nignored";
        for chunk in 1..body.len() {
            let found = read(body, chunk).await.unwrap();
            assert_eq!(found.len(), 2);
            assert_eq!(found[0], ("note".into(), b"\r\n--xy".to_vec()), "{chunk}");
            assert_eq!(
                found[1],
                ("file".into(), b"\r\n\r\n--xyyz\r--xyz".to_vec()),
                "{chunk}"
            );
        }
        assert!(read(b"--xyz--", 3).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_body_that_ends_early_is_told_so() {
        let whole = b"--xyz\r\ncontent-disposition: form-data; name=file\r\n\r\nabc\r\n--xyz--";
        for end in 0..whole.len() {
            let refused = read(&whole[..end], 7).await.unwrap_err();
            assert_eq!(refused.message(), "the body ended early", "{end}");
        }
        assert_eq!(read(whole, 7).await.unwrap()[0].1, b"abc");
    }

    #[tokio::test]
    async fn long_headers_are_refused_early() {
        let body = [b"--xyz\r\n".to_vec(), vec![b'x'; 100_000]].concat();
        let refused = read(&body, 1000).await.unwrap_err();
        assert!(refused.message().contains("far too long"));
    }

    #[tokio::test]
    async fn other_types_are_refused() {
        for bad in [
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "multipart/mixed; boundary=x",
            "application/json",
        ] {
            let made = Multipart::new(request(bad, b"", 1), BodyLimits::default());
            assert_eq!(made.err().unwrap().status(), 415, "{bad}");
        }
    }
}
