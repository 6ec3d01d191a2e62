//! Where responses end, by the sections of RFC 9112: 6.3 (message body length), 7.1 (chunked coding), 8 (incomplete
//! messages) and 9 (connections). Each case runs with the bytes in one piece and cut at each place.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use bytes::Bytes;
use estrade_http1::client::{Connection, Request, ResponseContext, ResponseHead, SendError};
use estrade_http1::framing::FramingError;
use std::future::poll_fn;
use std::time::Duration;
use tokio::io::{AsyncWriteExt, duplex};
use tokio::time::Instant;

const GET: ResponseContext = ResponseContext {
    head: false,
    upgrade: false,
};
const HEAD: ResponseContext = ResponseContext {
    head: true,
    upgrade: false,
};

/// A response as a client sees it.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    status: u16,
    body: Result<Vec<u8>, FramingError>,
    reusable: bool,
}

fn status(head: &ResponseHead<'_>) -> u16 {
    head.status.as_u16()
}

/// Reads a response that comes in two parts, and then the end of the connection. None: it was refused.
async fn read_parts(context: ResponseContext, first: &[u8], second: &[u8]) -> Option<Read> {
    let (near, mut far) = duplex(64 * 1024);
    let mut connection = Connection::new(near);
    let send = async move {
        far.write_all(first).await.unwrap();
        tokio::task::yield_now().await;
        far.write_all(second).await.unwrap();
    };
    let receive = async {
        let head = poll_fn(|cx| connection.poll_head(cx, context, status)).await;
        let status = head.ok()??;
        let mut body = Vec::new();
        let body = loop {
            match poll_fn(|cx| connection.poll_data(cx)).await {
                Ok(Some(data)) => body.extend_from_slice(&data),
                Ok(None) => break Ok(body),
                Err(error) => break Err(error),
            }
        };
        Some(Read {
            status,
            body,
            reusable: connection.is_reusable(),
        })
    };
    tokio::join!(send, receive).1
}

/// The same wherever the bytes are cut.
async fn read(context: ResponseContext, response: &str) -> Option<Read> {
    let bytes = response.as_bytes();
    let whole = read_parts(context, bytes, b"").await;
    for at in 0..bytes.len() {
        let (first, second) = bytes.split_at(at);
        let cut = read_parts(context, first, second).await;
        // What follows a response may come after the connection was found reusable.
        let same = |read: &Option<Read>| read.as_ref().map(|it| (it.status, it.body.clone()));
        assert_eq!(same(&cut), same(&whole), "cut at {at} of {response:?}");
    }
    whole
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "compared with what `read` returns"
)]
fn complete(status: u16, body: &str, reusable: bool) -> Option<Read> {
    Some(Read {
        status,
        body: Ok(body.as_bytes().to_vec()),
        reusable,
    })
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "compared with what `read` returns"
)]
fn broken(status: u16, error: FramingError) -> Option<Read> {
    Some(Read {
        status,
        body: Err(error),
        reusable: false,
    })
}

#[tokio::test]
async fn section_6_3_rule_1_no_body_after_head_1xx_204_and_304() {
    let text = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n";
    assert_eq!(read(HEAD, text).await, complete(200, "", true));
    let text = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    assert_eq!(read(HEAD, text).await, complete(200, "", true));
    assert_eq!(
        read(HEAD, "HTTP/1.1 200 OK\r\n\r\n").await,
        complete(200, "", true)
    );
    for status in [204, 304] {
        let text = format!("HTTP/1.1 {status} X\r\ncontent-length: 5\r\n\r\n");
        assert_eq!(read(GET, &text).await, complete(status, "", true));
    }
    let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\ncontent-length: 9\r\n\r\n\
        HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    assert_eq!(read(GET, text).await, complete(200, "ok", true));
}

#[tokio::test]
async fn section_6_3_rule_3_transfer_encoding_overrides_content_length_and_ends_the_connection() {
    for fields in [
        "content-length: 2\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 2\r\n",
    ] {
        let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n5\r\nhello\r\n0\r\n\r\n");
        assert_eq!(read(GET, &text).await, complete(200, "hello", false));
    }
}

#[tokio::test]
async fn section_6_3_rule_4_only_chunked_is_a_known_coding() {
    let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    assert_eq!(read(GET, text).await, complete(200, "ok", true));
    for value in [
        "gzip",
        "gzip, chunked",
        "chunked, gzip",
        "chunked, chunked",
        "identity",
        "",
    ] {
        let text = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: {value}\r\n\r\n0\r\n\r\n");
        assert_eq!(read(GET, &text).await, None, "{value}");
    }
    let twice = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(read(GET, twice).await, None);
}

#[tokio::test]
async fn section_6_3_rule_5_lengths_are_digits_and_agree() {
    let text = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nContent-Length: 2\r\n\r\nok";
    assert_eq!(read(GET, text).await, complete(200, "ok", true));
    for fields in [
        "content-length: 2\r\ncontent-length: 3\r\n",
        "content-length: 2, 2\r\n",
        "content-length: +2\r\n",
        "content-length: -2\r\n",
        "content-length: 2.0\r\n",
        "content-length: 0x2\r\n",
        "content-length: \r\n",
        "content-length: 99999999999999999999\r\n",
    ] {
        let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\nok");
        assert_eq!(read(GET, &text).await, None, "{fields}");
    }
}

#[tokio::test]
async fn section_6_3_rule_6_a_length_ends_the_body() {
    let text = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    assert_eq!(read(GET, text).await, complete(200, "ok", true));
    let text = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(read(GET, text).await, complete(200, "", true));
    // Bytes of no request: the connection is not used again.
    let text = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok!";
    assert_eq!(
        read_parts(GET, text.as_bytes(), b"").await,
        complete(200, "ok", false)
    );
}

#[tokio::test]
async fn section_6_3_rule_8_without_a_length_the_body_ends_with_the_connection() {
    for fields in ["", "connection: keep-alive\r\n"] {
        let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\nall of it");
        assert_eq!(read(GET, &text).await, complete(200, "all of it", false));
    }
}

#[tokio::test]
async fn section_7_1_chunks_have_hexadecimal_sizes_extensions_and_trailers() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    for (chunks, body) in [
        ("0\r\n\r\n", ""),
        ("000\r\n\r\n", ""),
        ("5\r\nhello\r\n0\r\n\r\n", "hello"),
        ("00A\r\n0123456789\r\n0\r\n\r\n", "0123456789"),
        ("a\r\n0123456789\r\n1\r\n!\r\n0\r\n\r\n", "0123456789!"),
        ("2;name=value\r\nok\r\n0;last\r\n\r\n", "ok"),
        ("2 ;name=\"a b\"\r\nok\r\n0\r\n\r\n", "ok"),
        ("2\r\nok\r\n0\r\nExpires: never\r\nx: y\r\n\r\n", "ok"),
        ("2\r\n\r\n\r\n0\r\n\r\n", "\r\n"),
    ] {
        let text = format!("{head}{chunks}");
        assert_eq!(
            read(GET, &text).await,
            complete(200, body, true),
            "{chunks:?}"
        );
    }
    for chunks in [
        "x\r\n",
        "\r\n",
        "-1\r\n",
        "+2\r\nok\r\n",
        "0x2\r\nok\r\n",
        "2 2\r\nok\r\n",
        "2\r\nokay\r\n",
        "2\r\nok!!0\r\n\r\n",
        "ffffffffffffffff\r\n",
        "10000000000000000\r\n",
    ] {
        let text = format!("{head}{chunks}");
        let found = read_parts(GET, text.as_bytes(), b"").await;
        assert_eq!(found, broken(200, FramingError::Malformed), "{chunks:?}");
    }
}

#[tokio::test]
async fn section_7_1_size_lines_and_trailers_are_bounded() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    for chunks in [
        format!("2;{}\r\nok\r\n0\r\n\r\n", "x".repeat(2000)),
        format!("0\r\n{}\r\n", "a: b\r\n".repeat(5000)),
        format!("0\r\na: {}", "b".repeat(20_000)),
    ] {
        let text = format!("{head}{chunks}");
        let found = read_parts(GET, text.as_bytes(), b"").await;
        assert_eq!(found, broken(200, FramingError::Malformed));
    }
}

#[tokio::test]
async fn section_8_what_ends_early_is_incomplete() {
    for text in [
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n",
    ] {
        let found = read(GET, text).await;
        assert_eq!(found, broken(200, FramingError::UnexpectedEof), "{text:?}");
    }
    for text in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 100 Continue\r\n\r\n"] {
        assert_eq!(read(GET, text).await, None, "{text:?}");
    }
}

#[tokio::test]
async fn section_9_3_connections_persist_as_the_version_and_connection_say() {
    for (version, fields, reusable) in [
        ("1.1", "", true),
        ("1.1", "connection: close\r\n", false),
        ("1.1", "Connection: Keep-Alive, Close\r\n", false),
        (
            "1.1",
            "connection: keep-alive\r\nconnection: close\r\n",
            false,
        ),
        ("1.0", "", false),
        ("1.0", "connection: keep-alive\r\n", true),
    ] {
        let text = format!("HTTP/{version} 200 OK\r\n{fields}content-length: 2\r\n\r\nok");
        assert_eq!(
            read(GET, &text).await,
            complete(200, "ok", reusable),
            "{version} {fields}"
        );
    }
}

#[tokio::test]
async fn section_9_3_a_response_to_a_part_of_a_request_ends_the_connection() {
    let (near, mut far) = duplex(64);
    far.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
        .await
        .unwrap();
    let mut connection = Connection::new(near);
    let request = Request {
        head: b"POST / HTTP/1.1\r\n",
        extra_headers: b"content-length: 1000\r\n\r\n",
        body: &Bytes::from_static(&[0; 1000]),
    };
    let now = Instant::now();
    let due = now + Duration::from_secs(10);
    let found = connection.send(&request, now, due, status).await;
    assert_eq!(found, Ok(413));
    assert!(!connection.is_fully_sent());
    assert!(!connection.is_reusable());
}

#[tokio::test(start_paused = true)]
async fn requests_without_a_response_fail_by_their_cause() {
    let request = Request {
        head: b"GET / HTTP/1.1\r\n",
        extra_headers: b"\r\n",
        body: &Bytes::new(),
    };
    let now = Instant::now();
    let due = now + Duration::from_secs(10);
    for (response, closes, expected) in [
        ("", true, SendError::Closed),
        ("HTTP/1.1 200 OK\r\n", true, SendError::Malformed),
        // A peer that has sent anything has the request: it must not be sent again.
        ("HTTP/1.1 100 Go on\r\n\r\n", true, SendError::Malformed),
        ("HTTP/1.1 103 Early\r\n\r\n", true, SendError::Malformed),
        ("\r\n", true, SendError::Malformed),
        ("HTTP/1.1 101 Up\r\n\r\n", false, SendError::Malformed),
        ("SSH-2.0-x\r\n\r\n", false, SendError::Malformed),
        ("HTTP/1.1 200 OK\r\n", false, SendError::Timeout),
    ] {
        let (near, mut far) = duplex(1024);
        far.write_all(response.as_bytes()).await.unwrap();
        let peer = (!closes).then_some(far);
        let mut connection = Connection::new(near);
        let found = connection.send(&request, now, due, status).await;
        assert_eq!(found, Err(expected), "{response:?}");
        drop(peer);
    }
}
