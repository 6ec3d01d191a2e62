//! The rules of RFC 9112, by section. Each test names the rule that it checks.
//!
//! The fast path refuses nothing itself: what it does not accept goes to hyper, which answers it. `left_to_hyper` is
//! therefore how a rule shows that makes a request invalid.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, which may fail like tests"
)]

use bytes::BytesMut;
use estrade_http1::framing::{BodyHeaders, Decoded, Framing, FramingError};
use estrade_http1::server::{Parsed, StrictHeads, parse_connection, parse_head};
use tokio::io::AsyncReadExt;

/// What the fast path sees of a head: its method, its target and its headers.
fn parse(bytes: &str) -> Parsed<String> {
    parse_head(bytes.as_bytes(), |request, length| {
        let mut seen = format!(
            "{} {} 1.{} {length}",
            request.method?, request.path?, request.version?
        );
        for header in request.headers.iter() {
            let value = std::str::from_utf8(header.value).ok()?;
            seen = format!("{seen} {}={value}", header.name);
        }
        Some(seen)
    })
}

fn supported(bytes: &str) -> String {
    match parse(bytes) {
        Parsed::Supported(seen) => seen,
        other => panic!("{bytes:?}: {other:?}"),
    }
}

#[track_caller]
fn left_to_hyper(bytes: &str) {
    assert_eq!(parse(bytes), Parsed::Unsupported, "{bytes:?}");
}

/// What hyper gets to read.
async fn scanned(bytes: &str) -> Vec<u8> {
    let mut read = Vec::new();
    let mut stream = StrictHeads::new(bytes.as_bytes(), || false);
    stream.read_to_end(&mut read).await.unwrap();
    read
}

/// The framing of a body by its `Content-Length` and `Transfer-Encoding` fields.
fn body_headers(lengths: &[&str], codings: &[&str]) -> Result<BodyHeaders, FramingError> {
    let mut headers = BodyHeaders::default();
    for length in lengths {
        headers.add_content_length(length.as_bytes())?;
    }
    for coding in codings {
        headers.add_transfer_encoding(coding.as_bytes())?;
    }
    Ok(headers)
}

/// The data of a body, whether it is complete, and what is left of the bytes.
fn decode(mut framing: Framing, bytes: &[u8]) -> Result<(String, bool, usize), FramingError> {
    let (mut buffer, mut data) = (BytesMut::from(bytes), Vec::new());
    loop {
        match framing.decode(&mut buffer)? {
            Decoded::Data(part) => data.extend_from_slice(&part),
            Decoded::NeedMore => {
                let complete = framing.on_eof().is_ok();
                return Ok((String::from_utf8(data).unwrap(), complete, buffer.len()));
            }
            Decoded::Done => return Ok((String::from_utf8(data).unwrap(), true, buffer.len())),
        }
    }
}

mod section_2_2_message_parsing {
    use super::*;

    #[test]
    fn empty_lines_before_a_request_line_are_ignored() {
        let seen = supported("\r\n\r\nGET / HTTP/1.1\r\n\r\n");
        assert_eq!(seen, "GET / 1.1 22");
    }

    #[test]
    fn a_bare_lf_is_no_line_end_of_a_head() {
        left_to_hyper("GET / HTTP/1.1\nHost: a\r\n\r\n");
        left_to_hyper("GET / HTTP/1.1\r\nHost: a\n\r\n");
        left_to_hyper("GET / HTTP/1.1\r\nHost: a\r\n\n");
    }

    #[tokio::test]
    async fn a_bare_lf_is_replaced_by_what_hyper_refuses() {
        let good = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(scanned(good).await, good.as_bytes());
        let bad = format!("{good}GET / HTTP/1.1\nHost: a\r\n\r\n{good}");
        let expected = format!("{good}GET / HTTP/1.1\0\r\n\r\n");
        assert_eq!(scanned(&bad).await, expected.as_bytes());
    }

    #[test]
    fn a_bare_cr_is_invalid() {
        left_to_hyper("GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n");
        left_to_hyper("GET /\r HTTP/1.1\r\n\r\n");
    }

    #[test]
    fn no_whitespace_is_allowed_between_start_line_and_first_field() {
        left_to_hyper("GET / HTTP/1.1\r\n Host: a\r\n\r\n");
    }

    #[test]
    fn an_incomplete_head_is_waited_for_up_to_a_limit() {
        let head = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        for at in 0..head.len() {
            assert_eq!(parse(&head[..at]), Parsed::Partial, "{at}");
        }
        let long = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(16 * 1024));
        left_to_hyper(&long);
        left_to_hyper(&format!("{long}\r\n\r\n"));
    }
}

mod section_3_request_line {
    use super::*;

    #[test]
    fn method_target_and_version_are_separated_by_single_spaces() {
        assert_eq!(supported("GET /a?b HTTP/1.1\r\n\r\n"), "GET /a?b 1.1 21");
        left_to_hyper("GET\t/ HTTP/1.1\r\n\r\n");
        left_to_hyper("GET / HTTP/1.1 x\r\n\r\n");
        left_to_hyper(" GET / HTTP/1.1\r\n\r\n");
    }

    #[test]
    fn a_method_is_a_token() {
        left_to_hyper("G@T / HTTP/1.1\r\n\r\n");
        left_to_hyper("GE(T / HTTP/1.1\r\n\r\n");
    }

    #[test]
    fn a_version_has_one_form() {
        left_to_hyper("GET / HTTP/2.0\r\n\r\n");
        left_to_hyper("GET / HTTP/1.11\r\n\r\n");
        left_to_hyper("GET / http/1.1\r\n\r\n");
        left_to_hyper("GET /\r\n\r\n");
    }
}

mod section_3_2_request_target {
    use super::*;

    #[test]
    fn a_target_has_no_whitespace() {
        left_to_hyper("GET /a b HTTP/1.1\r\n\r\n");
        left_to_hyper("GET /a\tb HTTP/1.1\r\n\r\n");
    }

    #[test]
    fn every_host_field_is_seen_so_that_two_can_be_refused() {
        let seen = supported("GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n");
        assert_eq!(seen, "GET / 1.1 36 Host=a host=b");
    }
}

mod section_5_field_syntax {
    use super::*;

    #[test]
    fn whitespace_around_a_value_is_no_part_of_it() {
        let seen = supported("GET / HTTP/1.1\r\nX: \t a b \t\r\n\r\n");
        assert!(seen.ends_with(" X=a b"), "{seen}");
    }

    #[test]
    fn no_whitespace_is_allowed_between_name_and_colon() {
        left_to_hyper("GET / HTTP/1.1\r\nHost : a\r\n\r\n");
        left_to_hyper("GET / HTTP/1.1\r\nContent-Length : 5\r\n\r\n");
    }

    #[test]
    fn a_name_is_a_token_and_not_empty() {
        left_to_hyper("GET / HTTP/1.1\r\n: a\r\n\r\n");
        left_to_hyper("GET / HTTP/1.1\r\nX(: a\r\n\r\n");
        left_to_hyper("GET / HTTP/1.1\r\nno colon\r\n\r\n");
    }

    #[test]
    fn obs_fold_is_not_accepted() {
        left_to_hyper("GET / HTTP/1.1\r\nX: a\r\n b\r\n\r\n");
        left_to_hyper("GET / HTTP/1.1\r\nTransfer-Encoding:\r\n\tchunked\r\n\r\n");
    }

    #[test]
    fn a_value_has_no_nul() {
        left_to_hyper("GET / HTTP/1.1\r\nX: a\0b\r\n\r\n");
    }

    #[test]
    fn more_fields_than_the_fast_path_takes_are_left_to_hyper() {
        let fields = |count| format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(count));
        supported(&fields(64));
        left_to_hyper(&fields(65));
    }
}

mod section_6_1_transfer_encoding {
    use super::*;

    #[test]
    fn the_name_of_a_coding_is_case_insensitive() {
        let headers = body_headers(&[], &["ChUnKeD"]).unwrap();
        assert_eq!(headers.response_framing(false), Framing::ChunkSize);
        assert_eq!(headers.request_framing(), Ok(Framing::ChunkSize));
    }

    #[test]
    fn chunked_is_applied_once() {
        assert!(body_headers(&[], &["chunked", "chunked"]).is_err());
        assert!(body_headers(&[], &["chunked, chunked"]).is_err());
    }

    #[test]
    fn other_codings_are_refused() {
        for coding in [
            "gzip",
            "gzip, chunked",
            "identity",
            "",
            "x-chunked",
            "chunked;q=1",
        ] {
            assert!(body_headers(&[], &[coding]).is_err(), "{coding}");
        }
    }
}

mod section_6_2_content_length {
    use super::*;

    #[test]
    fn a_length_is_digits_and_nothing_else() {
        for length in [
            "",
            "+5",
            "-5",
            "5 ",
            "0x5",
            "5.0",
            "5,5",
            "５",
            "99999999999999999999",
        ] {
            assert!(body_headers(&[length], &[]).is_err(), "{length}");
        }
        let largest = u64::MAX.to_string();
        let headers = body_headers(&[&largest], &[]).unwrap();
        assert_eq!(headers.content_length(), Some(u64::MAX));
    }
}

mod section_6_3_message_body_length {
    use super::*;

    #[test]
    fn rules_1_and_2_a_response_without_a_body_has_none_whatever_its_fields_say() {
        for headers in [body_headers(&["5"], &[]), body_headers(&[], &["chunked"])] {
            assert_eq!(headers.unwrap().response_framing(true), Framing::Done);
        }
    }

    #[test]
    fn rule_3_transfer_encoding_wins_over_content_length_and_makes_the_message_ambiguous() {
        let headers = body_headers(&["5"], &["chunked"]).unwrap();
        assert_eq!(headers.response_framing(false), Framing::ChunkSize);
        assert!(headers.is_ambiguous());
    }

    #[test]
    fn rule_5_lengths_that_differ_are_refused_and_equal_ones_are_one() {
        assert!(body_headers(&["5", "6"], &[]).is_err());
        let headers = body_headers(&["5", "5"], &[]).unwrap();
        assert_eq!(headers.response_framing(false), Framing::Length(5));
    }

    #[test]
    fn rule_6_a_body_has_as_many_bytes_as_its_length_says() {
        let body = decode(Framing::Length(3), b"abcd");
        assert_eq!(body, Ok(("abc".into(), true, 1)));
        let body = decode(Framing::Length(5), b"abcd");
        assert_eq!(body, Ok(("abcd".into(), false, 0)));
        let none = body_headers(&["0"], &[]).unwrap();
        assert_eq!(none.response_framing(false), Framing::Done);
        assert_eq!(none.request_framing(), Ok(Framing::Done));
    }

    #[test]
    fn rule_7_a_request_without_fields_has_no_body() {
        let none = BodyHeaders::default();
        assert_eq!(none.request_framing(), Ok(Framing::Done));
    }

    #[test]
    fn rule_8_a_response_without_fields_ends_with_its_connection() {
        let none = BodyHeaders::default();
        assert_eq!(none.response_framing(false), Framing::UntilClose);
        let body = decode(Framing::UntilClose, b"abcd");
        assert_eq!(body, Ok(("abcd".into(), true, 0)));
    }
}

mod section_7_1_chunked {
    use super::*;

    fn chunked(bytes: &[u8]) -> Result<(String, bool, usize), FramingError> {
        decode(Framing::ChunkSize, bytes)
    }

    #[test]
    fn chunks_are_joined_up_to_the_last_one() {
        let body = chunked(b"5\r\nhello\r\n1\r\n \r\nA\r\n0123456789\r\n0\r\n\r\nrest");
        assert_eq!(body, Ok(("hello 0123456789".into(), true, 4)));
    }

    #[test]
    fn sizes_are_hexadecimal_digits() {
        for size in ["", "x", "-1", "+1", "0x5", "5 5", " 5", "5\u{a0}"] {
            let body = chunked(format!("{size}\r\nhello\r\n").as_bytes());
            assert_eq!(body, Err(FramingError::Malformed), "{size:?}");
        }
    }

    #[test]
    fn a_size_does_not_overflow() {
        let body = chunked(b"ffffffffffffffff\r\n");
        assert_eq!(body, Err(FramingError::Malformed));
        let body = chunked(b"10000000000000005\r\nhello\r\n0\r\n\r\n");
        assert_eq!(body, Err(FramingError::Malformed));
    }

    #[test]
    fn data_is_followed_by_a_line_end() {
        for bad in ["5\r\nhelloX", "5\r\nhello\n", "5\r\nhelloXX0\r\n\r\n"] {
            assert_eq!(chunked(bad.as_bytes()), Err(FramingError::Malformed));
        }
    }

    #[test]
    fn section_7_1_1_unknown_extensions_are_ignored_up_to_a_limit() {
        let body = chunked(b"5;a=b;c=\"d;e\"\r\nhello\r\n0;x\r\n\r\n");
        assert_eq!(body, Ok(("hello".into(), true, 0)));
        let long = format!("5;{}", "x".repeat(1100));
        let bad = Err(FramingError::Malformed);
        assert_eq!(chunked(long.as_bytes()), bad);
        assert_eq!(chunked(format!("{long}\r\nhello\r\n").as_bytes()), bad);
    }

    #[test]
    fn section_7_1_2_trailer_fields_are_discarded_up_to_a_limit() {
        let body = chunked(b"0\r\nA: b\r\nC: d\r\n\r\n");
        assert_eq!(body, Ok((String::new(), true, 0)));
        let trailers = format!("0\r\n{}\r\n", "A: b\r\n".repeat(5000));
        assert_eq!(chunked(trailers.as_bytes()), Err(FramingError::Malformed));
    }
}

mod section_8_incomplete_messages {
    use super::*;

    #[test]
    fn a_chunked_body_without_its_last_chunk_is_incomplete() {
        let whole = b"5\r\nhello\r\n0\r\n\r\n";
        for at in 0..whole.len() {
            let (_, complete, _) = decode(Framing::ChunkSize, &whole[..at]).unwrap();
            assert!(!complete, "{at}");
        }
    }
}

mod section_9_3_persistence {
    use super::*;

    #[test]
    fn options_of_a_connection_are_case_insensitive_and_others_are_left_to_hyper() {
        assert_eq!(parse_connection(b"Keep-Alive"), Some(false));
        for other in ["upgrade", "close, x", "keep-alive, te", ""] {
            assert_eq!(parse_connection(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn section_9_3_2_what_follows_a_message_is_the_next_one() {
        let two = "GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\n";
        assert_eq!(supported(two), "GET /1 1.1 19");
        assert_eq!(supported(&two[19..]), "GET /2 1.1 19");
    }
}

mod section_9_6_tear_down {
    use super::*;

    #[test]
    fn close_ends_a_connection() {
        assert_eq!(parse_connection(b"close"), Some(true));
        assert_eq!(parse_connection(b"CLOSE"), Some(true));
    }
}

mod section_11_2_request_smuggling {
    use super::*;

    #[test]
    fn a_request_with_both_fields_is_refused() {
        let headers = body_headers(&["5"], &["chunked"]).unwrap();
        assert_eq!(headers.request_framing(), Err(FramingError::Malformed));
    }

    #[tokio::test]
    async fn a_bare_lf_hides_no_request_in_chunk_lines_and_trailers() {
        let head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        for body in [
            "5\nhello\r\n0\r\n\r\n",
            "0\nX: y\r\n\r\n",
            "0\r\nX: y\n\r\n",
        ] {
            let read = scanned(&format!("{head}{body}")).await;
            assert!(read.ends_with(b"\0\r\n\r\n"), "{body:?}");
        }
    }

    #[tokio::test]
    async fn line_feeds_in_a_body_are_data() {
        let length = "POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n\n\n\n\n";
        let chunks = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n\n\n\r\n0\r\n\r\n";
        let all = format!("{length}{chunks}GET / HTTP/1.1\r\n\r\n");
        assert_eq!(scanned(&all).await, all.as_bytes());
    }
}
