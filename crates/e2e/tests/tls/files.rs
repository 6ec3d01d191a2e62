//! A certificate from files, for whoever comes.

use crate::{deploy, edge_client};
use estrade_listener::TlsFiles;
use estrade_testkit::{Backend, Setup, TestApp};

#[tokio::test(flavor = "multi_thread")]
async fn the_edge_shows_a_certificate_from_files_and_sends_visitors_to_it() {
    let place = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed([
        "shop.localhost".to_owned(),
        "nobody.localhost".to_owned(),
    ])
    .unwrap();
    let files = TlsFiles {
        cert: place.path().join("cert.pem"),
        key: place.path().join("key.pem"),
    };
    std::fs::write(&files.cert, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    let setup = Setup::with(|setup| setup.edge_certificate = Some(files));
    let app = TestApp::start_with(Backend::Sqlite, setup).await;
    let ada = app.new_account("ada").await;
    deploy(&ada, "shop").await;

    let root = made.cert.pem();
    let page = edge_client::secure(app.edge_tls(), "shop.localhost", "/", &root)
        .await
        .unwrap();
    assert_eq!((page.status, page.body.as_str()), (200, "I am shop"));

    // Through a port that is named, to the port that we have; else to the usual one.
    let port = app.edge_tls().port();
    for (host, target) in [
        (
            "shop.localhost:8080",
            format!("https://shop.localhost:{port}/a%20b?c=d"),
        ),
        (
            "Shop.Localhost",
            "https://shop.localhost/a%20b?c=d".to_owned(),
        ),
        (
            "nobody.localhost.",
            "https://nobody.localhost/a%20b?c=d".to_owned(),
        ),
    ] {
        let page = edge_client::plain(app.edge(), host, "/a%20b?c=d").await;
        assert_eq!(page.status, 308, "{page:?}");
        assert_eq!(page.header("location"), Some(target.as_str()));
    }
    // Where the certificate would not fit, and where ACME servers look, nobody is sent away.
    for (host, path) in [
        ("shop.example", "/"),
        ("127.0.0.1", "/"),
        ("a.shop.localhost", "/"),
        ("shop.localhost", "/.well-known/acme-challenge/x"),
    ] {
        let page = edge_client::plain(app.edge(), host, path).await;
        assert_eq!(page.status, 404, "{page:?}");
    }
    app.finish().await;
}
