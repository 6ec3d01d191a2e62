//! Heads that others may read differently are refused.

use crate::support::Server;
use estrade_listener::ListenerOptions;

const GET: &str = "GET /things/1 HTTP/1.1\r\nhost: x\r\n\r\n";

#[tokio::test]
async fn a_request_names_exactly_one_host() {
    let server = Server::start().await;
    for bad in [
        "GET /things/1 HTTP/1.1\r\n\r\n",
        "GET /things/1 HTTP/1.1\r\nhost: x\r\nHost: y\r\n\r\n",
        "GET http://x/things/1 HTTP/1.1\r\n\r\n",
        "GET /things/1 HTTP/1.0\r\nhost: x\r\nhost: x\r\n\r\n",
    ] {
        let response = server.send(bad).await;
        assert!(response.contains(" 400 Bad Request"), "{bad:?}: {response}");
        assert!(response.contains("host_invalid"), "{response}");
    }
    let old = server.send("GET /things/1 HTTP/1.0\r\n\r\n").await;
    assert!(old.ends_with("thing"), "{old}");
}

#[tokio::test]
async fn a_line_that_ends_with_a_bare_lf_is_refused() {
    let server = Server::start().await;
    let chunked = "POST /things HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n4\r\n{\"na\r\n8\r\nme\":\n\n\"a\r\n2\r\n\"}\r\n0\r\n\r\n";
    let sized = "POST /things HTTP/1.1\r\nhost: x\r\ncontent-length: 13\r\n\r\n{\"name\":\n\"a\"}";
    for before in ["", GET, chunked, sized] {
        for bad in [
            "GET /things/1 HTTP/1.1\nhost: x\r\n\r\n",
            "GET /things/1 HTTP/1.1\r\nhost: x\n\r\n",
            "GET /things/1 HTTP/1.1\r\nhost: x\r\n\n",
        ] {
            let response = server.send(format!("{before}{bad}{GET}")).await;
            let responses: Vec<_> = response.matches("HTTP/1.1 ").collect();
            assert_eq!(
                responses.len(),
                1 + usize::from(!before.is_empty()),
                "{response}"
            );
            assert_eq!(
                response.matches(" 400 Bad Request").count(),
                1,
                "{response}"
            );
            let good = response.matches(" 200 OK").count();
            assert_eq!(
                good,
                usize::from(!before.is_empty()),
                "{before:?}: {response}"
            );
        }
    }
}

#[tokio::test]
async fn a_listener_responds_to_its_configured_hosts() {
    let options = ListenerOptions {
        allowed_hosts: Some(std::iter::once("cloud.test".to_owned()).collect()),
        ..ListenerOptions::default()
    };
    let request =
        |host: &str| format!("GET /things/1 HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    let server = Server::start_with(options.clone()).await;
    for allowed in [
        "localhost:3000",
        "127.0.0.1",
        "[::1]:3000",
        "Cloud.Test:443",
    ] {
        let response = server.send(request(allowed)).await;
        assert!(response.ends_with("thing"), "{allowed}: {response}");
    }
    let rebound = server.send(request("evil.test:3000")).await;
    assert!(rebound.contains(" 421 Misdirected Request"), "{rebound}");
    assert!(rebound.contains("host_not_allowed"), "{rebound}");
    let absolute =
        "GET http://evil.test/things/1 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    assert!(server.send(absolute).await.contains(" 421 "));

    let behind_a_proxy = ListenerOptions {
        trusted_proxies: std::iter::once("127.0.0.1".parse().unwrap()).collect(),
        ..options
    };
    let server = Server::start_with(behind_a_proxy).await;
    assert!(server.send(request("any.test")).await.ends_with("thing"));
}
