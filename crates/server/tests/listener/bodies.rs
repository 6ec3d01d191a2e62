//! Bodies: too slow, too large, of the wrong kind, malformed, and very large but welcome.

use crate::support::Server;

#[track_caller]
fn assert_error(response: &str, status: u16, code: &str, message: &str) {
    assert!(
        response.starts_with(&format!("HTTP/1.1 {status}")),
        "{response}"
    );
    assert!(
        response.contains(&format!(r#""data":{{"code":"{code}"}}"#)),
        "{response}"
    );
    assert!(response.contains(message), "{response}");
}

#[tokio::test]
async fn a_good_body_is_read() {
    let server = Server::start().await;
    assert!(
        server
            .post("/things", r#"{"name":"a","count":3,"unknown":[]}"#)
            .await
            .ends_with("a 3")
    );
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_a_408() {
    let server = Server::start().await;
    let response = server
        .send("POST /impatient HTTP/1.1\r\nhost: x\r\ncontent-length: 20\r\n\r\n{\"name\":")
        .await;
    assert_error(&response, 408, "request_timeout", "did not arrive in time");
}

#[tokio::test]
async fn a_body_over_the_limit_is_a_413_that_the_client_gets_to_read() {
    let server = Server::start().await;
    let large = vec![b' '; 3 << 20];
    assert_error(
        &server.post("/things", &large).await,
        413,
        "too_large",
        "1048576 bytes",
    );
    let mut chunked =
        b"POST /things HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    chunked.extend_from_slice(format!("{:x}\r\n", large.len()).as_bytes());
    chunked.extend_from_slice(&large);
    chunked.extend_from_slice(b"\r\n0\r\n\r\n");
    assert_error(
        &server.send(chunked).await,
        413,
        "too_large",
        "1048576 bytes",
    );
}

#[tokio::test]
async fn a_response_before_the_body_was_read_reaches_the_client() {
    let server = Server::start().await;
    let response = server.post("/unread", vec![b' '; 3 << 20]).await;
    assert!(response.ends_with("not interested"), "{response}");
}

#[tokio::test]
async fn another_content_type_is_a_415() {
    let server = Server::start().await;
    let request = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
             content-type: text/plain\r\ncontent-length: 12\r\n\r\n{{\"name\":\"a\"}}"
        )
    };
    let response = server.send(request("/things")).await;
    assert_error(&response, 415, "unsupported_media_type", "application/json");
    assert!(server.send(request("/impatient")).await.ends_with("a 0"));
}

#[tokio::test]
async fn a_malformed_body_is_a_400_that_says_where() {
    let server = Server::start().await;
    let deep = format!(r#"{{"name":"a","x":{}{}}}"#, "[".repeat(70), "]".repeat(70));
    let cases: [(&[u8], &str); 8] = [
        (br#"{"name":"a","count":"x"}"#, "count: invalid type"),
        (br#"{"count":1}"#, "missing field `name`"),
        (
            br#"{"name":"a","x":{"b":1,"b":2}}"#,
            "x.b: the key is there twice",
        ),
        (deep.as_bytes(), "more than 64 levels deep"),
        (br#"{"name":"a\u0000b"}"#, "name: must not contain NUL"),
        (b"{\"name\":\"\xff\"}", "not UTF-8"),
        (br#"{"name":"a"} x"#, "not JSON: trailing characters"),
        (b"", "the body is empty"),
    ];
    for (body, message) in cases {
        assert_error(&server.post("/things", body).await, 400, "invalid", message);
    }
}

#[tokio::test]
async fn a_large_upload_goes_to_disk_and_leaves_nothing_there() {
    let server = Server::start().await;
    assert!(
        server
            .post("/upload", vec![7; 1000])
            .await
            .ends_with("1000 bytes, on disk: false")
    );
    assert!(
        server
            .post("/upload", vec![7; 9 << 20])
            .await
            .ends_with("9437184 bytes, on disk: true")
    );
    assert_error(
        &server.post("/upload", vec![7; 17 << 20]).await,
        413,
        "too_large",
        "16777216 bytes",
    );
    assert_eq!(std::fs::read_dir(server.spool.path()).unwrap().count(), 0);
}
