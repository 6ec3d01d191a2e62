//! What every request gets, whatever its route.

use crate::support::Server;

#[track_caller]
fn header<'a>(response: &'a str, name: &str) -> Option<&'a str> {
    let (head, _) = response.split_once("\r\n\r\n").unwrap();
    head.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[tokio::test]
async fn a_panic_is_a_500_and_the_server_goes_on() {
    let server = Server::start().await;
    let response = server.get("/panic").await;
    assert!(response.starts_with("HTTP/1.1 500"), "{response}");
    assert!(
        response.contains(r#""data":{"code":"internal"}"#) && !response.contains("mistake"),
        "{response}"
    );
    assert!(server.get("/things/1").await.ends_with("thing"));
}

#[tokio::test]
async fn unknown_paths_and_methods_have_the_shape_of_the_api() {
    let server = Server::start().await;
    let response = server.get("/nowhere").await;
    assert!(
        response.starts_with("HTTP/1.1 404") && response.contains(r#""data":{"code":"not_found"}"#),
        "{response}"
    );
    let response = server.post("/things/1", "{}").await;
    assert!(response.starts_with("HTTP/1.1 405"), "{response}");
    assert!(
        response.contains(r#""data":{"code":"method_not_allowed"}"#),
        "{response}"
    );
    assert_eq!(header(&response, "allow"), Some("GET,HEAD,DELETE"));
}

#[tokio::test]
async fn every_response_has_an_id_and_careful_headers() {
    let server = Server::start().await;
    for path in ["/things/1", "/things/1/", "/nowhere", "/panic"] {
        let response = server.get(path).await;
        assert_eq!(
            header(&response, "x-request-id").unwrap().len(),
            24,
            "{response}"
        );
        assert_eq!(header(&response, "x-content-type-options"), Some("nosniff"));
        assert_eq!(header(&response, "cache-control"), Some("no-store"));
    }
    let response = server
        .send("GET /things/1 HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-request-id: build-7.a\r\n\r\n")
        .await;
    assert_eq!(header(&response, "x-request-id"), Some("build-7.a"));
}

#[tokio::test]
async fn responses_are_compressed_only_for_who_asks() {
    let server = Server::start().await;
    assert_eq!(
        header(&server.get("/large").await, "content-length"),
        Some("6000")
    );
    let response = server
        .send(
            "GET /large HTTP/1.1\r\nhost: x\r\nconnection: close\r\naccept-encoding: gzip\r\n\r\n",
        )
        .await;
    assert_eq!(header(&response, "content-encoding"), Some("gzip"));
}

#[tokio::test]
async fn requests_are_counted_under_the_name_of_their_route() {
    let server = Server::start().await;
    server.get("/things/1").await;
    server.get("/things/2/").await;
    server.get("/secret-path?token=abc").await;
    server.post("/things/1", "{}").await;
    let text = server.metrics.render();
    for line in [
        r#"http_requests_total{listener="test",method="GET",route="/things/{id}",status="200"} 2"#,
        r#"http_requests_total{listener="test",method="GET",route="none",status="404"} 1"#,
        r#"http_requests_total{listener="test",method="POST",route="/things/{id}",status="405"} 1"#,
    ] {
        assert!(text.contains(line), "{line} not in {text}");
    }
    assert!(!text.contains("secret"));
}
