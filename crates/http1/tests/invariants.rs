//! What the fuzz targets check, for a bounded time and on stable Rust.

use estrade_http1::framing::Framing;
use estrade_http1::invariants;
use proptest::collection::vec;
use proptest::prelude::*;

/// Bytes that resemble messages: random ones would hardly ever get past the first line.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => prop::sample::select(vec![
            "GET / HTTP/1.1\r\n", "POST /v1/chat/completions HTTP/1.1\r\n", "Host: a\r\n",
            "Content-Length: 5\r\n", "content-length: 5, 5\r\n", "Content-Length: +5\r\n",
            "Transfer-Encoding: chunked\r\n", "transfer-encoding: gzip, chunked\r\n",
            "Connection: close\r\n", "X: y\n", " folded\r\n", "X : y\r\n", "\r\n", "\n", "\r", "\0",
            "5\r\nhello\r\n", "5;x=\"\n\"\r\nhello\r\n", "005 \r\nhello\r\n", "0\r\n\r\n", "0\r\nT: x\r\n\r\n",
            "ffffffffffffffff\r\n", "fffffffffffffff\r\n", "hello", "PRI * HTTP/2.0\r\n\r\n",
        ]).prop_map(|text| text.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..6),
    ];
    vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    vec(0..300_usize, 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn request_heads_do_not_depend_on_how_they_are_split(bytes in message(), cuts in cuts()) {
        prop_assert_eq!(invariants::check_request_head(&bytes, &cuts), Ok(()));
    }

    #[test]
    fn requests_end_at_one_place(bytes in message(), cuts in cuts()) {
        prop_assert_eq!(invariants::check_request(&bytes, &cuts), Ok(()));
    }

    #[test]
    fn bodies_do_not_depend_on_how_they_are_split(
        bytes in message(),
        cuts in cuts(),
        length in 0..50_u64,
    ) {
        for framing in [Framing::ChunkSize, Framing::Length(length), Framing::UntilClose] {
            prop_assert_eq!(invariants::check_body(framing, &bytes, &cuts), Ok(()));
        }
    }
}
