//! Deploying from the panel: what its script sends, and its plain form.

use super::support::{Person, multipart, new_project, wait_ready};
use estrade_blobs::Digest;
use estrade_testkit::{EdgeClient, TestApp, on_both_backends};
use http::Method;
use serde_json::json;
use std::io::Write;
use zip::write::SimpleFileOptions;

on_both_backends! {
    an_archive_is_deployed_with_the_plain_form;
    only_missing_files_are_sent;
    a_form_that_is_not_ours_stores_nothing;
}

const DEPLOY: &str = "/panel/projects/shop/deploy";

fn archive(text: &str) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    zip.start_file("index.html", SimpleFileOptions::default())
        .unwrap();
    zip.write_all(text.as_bytes()).unwrap();
    zip.finish().unwrap().into_inner()
}

async fn an_archive_is_deployed_with_the_plain_form(app: &TestApp) {
    let ada = Person::sign_in(app, "ada").await;
    new_project(&ada.user, "shop", "static").await;
    let form = ada.get(DEPLOY).await.assert(200).text();
    assert!(
        form.contains("enctype=\"multipart/form-data\"") && form.contains("blake3."),
        "{form}"
    );
    let made = ada
        .upload(DEPLOY, "from a <b>form</b>", &archive("hello"))
        .await
        .assert(303);
    let path = made.header("location").to_owned();
    wait_ready(&ada.user, path.rsplit('/').next().unwrap()).await;
    let mut visitor = EdgeClient::connect(app.edge(), "shop.localhost").await;
    assert_eq!(visitor.get("/").await.text(), "hello");
    let page = ada.get(&path).await.assert(200).text();
    assert!(
        page.contains("from a &lt;b&gt;form") || page.contains("from a &#60;b&#62;form"),
        "{page}"
    );
    // What is no archive, or nothing, is told on the same page.
    for (file, said) in [
        (&b"plain"[..], "neither a .tar.gz nor a .zip"),
        (b"", "Choose a .zip or .tar.gz first"),
    ] {
        let refused = ada.upload(DEPLOY, "", file).await.assert(400).text();
        assert!(refused.contains(said), "{refused}");
    }
}

async fn only_missing_files_are_sent(app: &TestApp) {
    let ada = Person::sign_in(app, "ada").await;
    new_project(&ada.user, "shop", "static").await;
    let digest = Digest::of(b"one").to_string();
    let manifest =
        json!({"message": "drop", "files": [{"path": "index.html", "digest": digest, "size": 3}]});
    let files = "/panel/projects/shop/deploy/files";
    let asked = ada.script(Method::POST, files).json(&manifest).await;
    let asked = asked.assert(200).json();
    assert_eq!(asked["data"]["code"], "missing_files");
    assert_eq!(asked["data"]["files"][0]["digest"], digest);
    let blob = format!("/panel/projects/shop/deploy/blobs/{digest}");
    let wrong = ada.script(Method::PUT, &blob).bytes("two").await;
    wrong.refused(400, "digest_mismatch");
    ada.script(Method::PUT, &blob)
        .bytes("one")
        .await
        .assert(201);
    let made = ada
        .script(Method::POST, files)
        .json(&manifest)
        .await
        .assert(201);
    wait_ready(&ada.user, &made.field("/releaseID")).await;
    // The next release needs nothing.
    ada.script(Method::POST, files)
        .json(&manifest)
        .await
        .assert(201);
}

async fn a_form_that_is_not_ours_stores_nothing(app: &TestApp) {
    let ada = Person::sign_in(app, "ada").await;
    new_project(&ada.user, "shop", "static").await;
    let zip = archive("forged");
    let forged = [
        multipart(&[("file", &zip), ("csrf", b"")]),
        multipart(&[("csrf", &[b'0'; 64]), ("file", &zip)]),
        multipart(&[("file", &zip)]),
    ];
    for body in forged {
        let call = ada.unsigned(Method::POST, "/panel/projects/shop/deploy");
        let call = call.header("content-type", "multipart/form-data; boundary=xyz");
        call.bytes(body).await.assert(403);
    }
    let digest = Digest::of(b"one");
    let blob = format!("/panel/projects/shop/deploy/blobs/{digest}");
    ada.unsigned(Method::PUT, &blob)
        .bytes("one")
        .await
        .assert(403);
    let files = "/panel/projects/shop/deploy/files";
    ada.unsigned(Method::POST, files)
        .json(&json!({}))
        .await
        .assert(403);
    for site in ["same-site", "cross-site"] {
        let call = ada
            .script(Method::PUT, &blob)
            .header("sec-fetch-site", site);
        call.bytes("one").await.assert(403);
    }
    let list = ada.user.get("/v1/projects/shop/releases").await.assert(200);
    assert_eq!(list.json()["total"], 0);
}
