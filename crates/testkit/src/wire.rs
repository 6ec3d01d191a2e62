//! Requests that no HTTP client would send.

use crate::api_response::ApiResponse;
use crate::call::Api;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends bytes as they are, and reads one response with a `Content-Length` or until the end.
pub(crate) async fn exchange(api: Api, address: SocketAddr, request: &[u8]) -> ApiResponse {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(request).await.expect("a request");
    let mut read = Vec::new();
    let head = loop {
        if let Some(end) = find(&read, b"\r\n\r\n") {
            break end + 4;
        }
        assert!(more(&mut stream, &mut read).await, "no response");
    };
    let text = String::from_utf8(read[..head].to_vec()).expect("a head in ASCII");
    let (status, headers) = parse_head(&text);
    let length = headers.get("content-length");
    let length = length.map(|value| value.to_str().expect("ASCII").parse::<usize>());
    match length {
        Some(length) => {
            let end = head + length.expect("a number");
            while read.len() < end && more(&mut stream, &mut read).await {}
            read.truncate(end);
        }
        None => while more(&mut stream, &mut read).await {},
    }
    let first = String::from_utf8_lossy(request);
    let what = first.lines().next().unwrap_or_default().to_owned();
    ApiResponse::new(api, what, status, headers, read.split_off(head))
}

async fn more(stream: &mut TcpStream, read: &mut Vec<u8>) -> bool {
    stream.read_buf(read).await.is_ok_and(|count| count > 0)
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

fn parse_head(text: &str) -> (StatusCode, HeaderMap) {
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    let status = status.expect("a status line").parse().expect("a status");
    let header = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        Some((
            name.parse::<HeaderName>().expect("a name"),
            HeaderValue::from_str(value).expect("a value"),
        ))
    };
    (status, lines.filter_map(header).collect())
}
