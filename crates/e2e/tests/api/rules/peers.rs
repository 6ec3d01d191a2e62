//! What runs here cannot manage anything: instances reach the edge and models, and nothing else.

use crate::support::new_key;
use estrade_testkit::{Api, Setup, TestApp, on_both_backends};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::time::timeout;

on_both_backends! {
    instances_do_not_reach_the_platform with pool;
    instances_call_models_and_manage_nothing with pool;
    instances_visit_sites with pool;
}

/// An address of an instance, and addresses that are none.
const INSTANCE: Ipv4Addr = Ipv4Addr::new(127, 77, 3, 5);
const OTHERS: [Ipv4Addr; 2] = [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 78, 0, 1)];

fn pool() -> Setup {
    Setup::with(|setup| setup.settings.containers.subnets = "127.77.0.0/16".parse().unwrap())
}

/// What is answered to a request from an address; empty when the connection is just closed.
async fn request(from: Ipv4Addr, to: SocketAddr, request: &str) -> String {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((IpAddr::from(from), 0).into()).unwrap();
    let mut stream = socket.connect(to).await.unwrap();
    // The other side may be gone already.
    let _ = stream.write_all(request.as_bytes()).await;
    let mut response = Vec::new();
    let reading = timeout(Duration::from_secs(20), stream.read_to_end(&mut response));
    match reading.await.expect("it is closed") {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    String::from_utf8(response).unwrap()
}

fn get(path: &str, token: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    )
}

fn status(response: &str) -> &str {
    response.get(9..12).unwrap_or("nothing")
}

async fn instances_do_not_reach_the_platform(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let to = app.address(Api::Platform);
    for path in ["/healthz", "/v1/projects", "/docs", "/metrics", "/v1/exec"] {
        let response = request(INSTANCE, to, &get(path, ada.token())).await;
        assert_eq!(response, "", "{path}");
    }
    // Nothing needs to be sent for that.
    assert_eq!(request(INSTANCE, to, "").await, "");
    for other in OTHERS {
        let response = request(other, to, &get("/v1/projects", ada.token())).await;
        assert_eq!(status(&response), "200", "{other}");
    }
}

async fn instances_call_models_and_manage_nothing(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let (key, token) = new_key(&ada, "app").await;
    let to = app.address(Api::Ai);
    let body = r#"{"model":"estrade/echo","messages":[{"role":"user","content":"hi"}]}"#;
    for path in ["/v1/chat/completions", "/api/main/v1/chat/completions"] {
        for unusual in ["", "expect: 100-continue\r\n"] {
            let call = format!(
                "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-length: {}\r\n\
                 {unusual}connection: close\r\n\r\n{body}",
                body.len()
            );
            let response = request(INSTANCE, to, &call).await;
            let last = response.rsplit("HTTP/1.1 ").next().unwrap();
            assert!(last.starts_with("200"), "{path}: {response}");
        }
    }
    for path in [
        "/v1/models",
        "/v1/models/",
        "/v1/models/estrade/echo",
        "/api/main/v1/models",
    ] {
        let response = request(INSTANCE, to, &get(path, &token)).await;
        assert_eq!(status(&response), "200", "{path}: {response}");
    }
    let managing = [
        "/v1/keys",
        &format!("/v1/keys/{key}"),
        "/v1/keys/authorize",
        "/v1/workspaces",
        "/v1/audit",
        "/v1/providers",
        "/.well-known/jwks.json",
        "/healthz",
        "/readyz",
        "/metrics",
        "/docs",
        "/openapi.json",
        "/v1/models-more",
        "//v1/models",
        "/",
    ];
    for path in managing {
        for token in [ada.token(), &token] {
            let response = request(INSTANCE, to, &get(path, token)).await;
            assert_eq!(status(&response), "403", "{path}: {response}");
            assert!(
                response.contains("\r\nx-error-code: no_permission\r\n"),
                "{response}"
            );
            assert!(response.contains("\r\nx-request-id: "), "{response}");
            assert!(response.ends_with("\r\n\r\n"), "no body: {response}");
        }
    }
    let delete = get("/v1/models", &token).replacen("GET", "DELETE", 1);
    let response = request(INSTANCE, to, &delete).await;
    assert!(matches!(status(&response), "403" | "405"), "{response}");
    for other in OTHERS {
        let response = request(other, to, &get("/v1/keys", ada.token())).await;
        assert_eq!(status(&response), "200", "{other}");
    }
}

async fn instances_visit_sites(app: &TestApp) {
    let ada = app.new_account("ada").await;
    crate::support::new_project(&ada, "shop").await;
    crate::support::deploy_site(&ada, "shop").await;
    let visit = "GET / HTTP/1.1\r\nhost: shop.localhost\r\nconnection: close\r\n\r\n";
    for visitor in [INSTANCE, Ipv4Addr::LOCALHOST] {
        let response = request(visitor, app.edge(), visit).await;
        assert_eq!(status(&response), "200", "{visitor}: {response}");
    }
}
