//! `/v2/projects/{project_id}/sources`, and releases that are made from archives.

use crate::support::{
    assert_id, deploy, deploy_site, ended, fields, gzip, new_project, new_source, tar_gz, upload,
};
use estrade_blobs::Digest;
use estrade_store::{Record, Row, StoreError, artifacts};
use estrade_testkit::{Setup, TestApp, User, on_both_backends};
use serde_json::{Value, json};
use std::io::{Cursor, Write};
use std::time::Duration;

on_both_backends! {
    an_archive_becomes_a_site;
    a_zip_does_too;
    clients_of_this_family_work_unmodified;
    a_source_belongs_to_its_project;
    what_is_no_archive_is_refused_at_once;
    too_large_an_archive_leaves_nothing_behind with small_caps;
    a_hostile_archive_fails_its_release_only;
    a_bomb_fails_its_release with small_caps;
    a_repeated_upload_is_one_source;
    roll_back_to_an_archive;
    settings_decide_what_is_served_and_how;
    a_canceled_release_stops_unpacking;
}

const PATH: &str = "/v2/projects/shop/releases";

fn small_caps() -> Setup {
    Setup::with(|setup| setup.settings.max_release_bytes = 100_000)
}

struct Built {
    artifact: Option<String>,
    site: Option<String>,
}

impl Record for Built {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            artifact: row.take()?,
            site: row.take()?,
        })
    }
}

/// The paths that a release serves, and how.
async fn built(app: &TestApp, release: &str) -> (Vec<String>, Value) {
    let db = &app.core().db;
    let row: Built = db
        .read("SELECT artifact_id, site FROM releases WHERE id = $1")
        .bind(release)
        .fetch_one()
        .await
        .unwrap();
    let artifact = row.artifact.unwrap().parse().unwrap();
    let manifest = artifacts::read_manifest(db, artifact)
        .await
        .unwrap()
        .unwrap();
    let paths = manifest.files().iter().map(|file| file.path.to_string());
    let site = row
        .site
        .map_or(Value::Null, |site| serde_json::from_str(&site).unwrap());
    (paths.collect(), site)
}

fn zip(files: &[(&str, &str)]) -> Vec<u8> {
    let mut out = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in files {
        let usual = zip::write::SimpleFileOptions::default();
        out.start_file(*name, usual).unwrap();
        out.write_all(content.as_bytes()).unwrap();
    }
    out.finish().unwrap().into_inner()
}

async fn deploy_source(user: &User, archive: &[u8]) -> String {
    let source = new_source(user, "shop", archive).await;
    deploy(user, "shop", &json!({ "sourceID": source })).await
}

async fn an_archive_becomes_a_site(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let archive = tar_gz(&[
        ("shop/index.html", "<h1>Packed</h1>"),
        ("shop/css/a.css", "h1 {}"),
    ]);
    let uploaded = upload(&ada, "shop", "source", &archive).await.assert(200);
    assert_eq!(fields(&uploaded.json()), ["sourceID"]);
    assert_id(&uploaded.json()["sourceID"]);
    let body = json!({"sourceID": uploaded.json()["sourceID"], "message": "from an archive"});
    let release = deploy(&ada, "shop", &body).await;
    let read = ended(&ada, &release).await;
    assert_eq!(read["state"], "READY", "{read}");
    assert_eq!(read["sourceAvailable"], true);
    assert_eq!(read["current"], true);
    let (paths, site) = built(app, &release).await;
    assert_eq!(paths, ["css/a.css", "index.html"]);
    assert_eq!(site, Value::Null);
    // The archive comes back as it went in.
    let source = ada
        .get(&format!("/v2/releases/{release}/source"))
        .await
        .assert(200);
    assert_eq!(source.header("content-type"), "application/gzip");
    assert_eq!(source.header("content-length"), archive.len().to_string());
    let name = format!("attachment; filename=\"{release}.tar.gz\"");
    assert_eq!(source.header("content-disposition"), name);
    assert!(source.body() == archive);
    // Its files are known by their digests.
    let content = "<h1>Packed</h1>";
    let file =
        json!({"path": "a", "digest": Digest::of(content.as_bytes()), "size": content.len()});
    deploy(&ada, "shop", &json!({ "files": [file] })).await;
    // One source may make several releases.
    deploy(&ada, "shop", &body).await;
}

async fn a_zip_does_too(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let archive = zip(&[
        ("index.html", "1"),
        ("a/b.html", "2"),
        ("__MACOSX/a/._b.html", "junk"),
    ]);
    let release = deploy_source(&ada, &archive).await;
    assert_eq!(ended(&ada, &release).await["state"], "READY");
    assert_eq!(built(app, &release).await.0, ["a/b.html", "index.html"]);
    let source = ada
        .get(&format!("/v2/releases/{release}/source"))
        .await
        .assert(200);
    assert_eq!(source.header("content-type"), "application/zip");
    assert!(source.body() == archive);
}

async fn clients_of_this_family_work_unmodified(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let source = new_source(&ada, "shop", &tar_gz(&[("index.html", "1")])).await;
    let body = json!({
        "build": {"cache": true}, "port": 80, "type": "static", "disks": [], "cron": ["0 * * * *"],
        "gitInfo": {"branch": "main", "commit": "abc", "committedAt": "2026-11-15", "message": "x",
                    "remote": "git@example.com:a/b", "author": {"name": "Ada"}},
        "platformConfig": {}, "args": ["--x"], "sourceID": source,
    });
    let release = deploy(&ada, "shop", &body).await;
    let logs = format!("/v2/releases/{release}/build-logs?since=undefined");
    ada.get(&logs).await.assert(200);
    let read = ended(&ada, &release).await;
    assert_eq!(read["state"], "READY");
    assert_eq!(read["gitInfo"]["branch"], "main");
    let logs = ada.get(&logs).await.assert(200).json();
    assert_eq!(logs["release"], json!({"state": "READY"}));
    assert_eq!(
        logs["buildOutput"][0]["line"],
        "Unpacked 1 files, 1 bytes\n"
    );
}

async fn a_source_belongs_to_its_project(app: &TestApp) {
    let (ada, eve) = (app.new_account("ada").await, app.new_account("eve").await);
    new_project(&ada, "shop").await;
    new_project(&ada, "second").await;
    new_project(&eve, "other").await;
    let source = new_source(&ada, "shop", &tar_gz(&[("a", "1")])).await;
    let told = async |user: &User, project: &str, source: &str| {
        let path = format!("/v2/projects/{project}/releases");
        let response = user.post(&path, &json!({ "sourceID": source })).await;
        response.refused(400, "source_unknown").text()
    };
    let nothing = told(&eve, "other", "0123456789abcdef01234567").await;
    assert_eq!(told(&eve, "other", &source).await, nothing);
    assert_eq!(told(&ada, "second", &source).await, nothing);
    assert_eq!(told(&ada, "shop", "nonsense").await, nothing);
    let both = json!({"sourceID": source, "image": "nginx"});
    ada.post(PATH, &both)
        .await
        .refused(400, "invalid")
        .naming("exactly one");
    upload(&eve, "shop", "file", &tar_gz(&[("a", "1")]))
        .await
        .refused(404, "not_found");
}

async fn what_is_no_archive_is_refused_at_once(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let before = app.blobs();
    for bad in [&b"plain text"[..], b"", b"PK", b"\x1f", b"Rar!\x1a\x07"] {
        let response = upload(&ada, "shop", "file", bad).await;
        response.refused(400, "archive_unknown").naming(".tar.gz");
    }
    let good = tar_gz(&[("a", "1")]);
    upload(&ada, "shop", "other", &good)
        .await
        .refused(400, "invalid")
        .naming("file");
    let path = "/v2/projects/shop/sources";
    let call = |kind: &str| {
        let call = ada.call(http::Method::POST, path);
        call.header("content-type", kind).bytes(good.clone())
    };
    for kind in [
        "application/gzip",
        "application/json",
        "multipart/form-data",
    ] {
        let refused = call(kind).await.refused(415, "unsupported_media_type");
        refused.naming("multipart/form-data");
    }
    let cut = call("multipart/form-data; boundary=x").await;
    cut.refused(400, "invalid").naming("early");
    assert_eq!(app.blobs(), before);
}

async fn too_large_an_archive_leaves_nothing_behind(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let before = app.blobs();
    let mut large = gzip(b"");
    large.resize(100_001, 7);
    upload(&ada, "shop", "file", &large)
        .await
        .refused(413, "too_large");
    large.resize(3_000_000, 7);
    upload(&ada, "shop", "file", &large)
        .await
        .refused(413, "too_large");
    assert_eq!(app.blobs(), before);
}

async fn a_hostile_archive_fails_its_release_only(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let live = deploy_site(&ada, "shop").await;
    let mut link = tar::Header::new_gnu();
    link.set_entry_type(tar::EntryType::Symlink);
    link.set_size(0);
    let mut builder = tar::Builder::new(Vec::new());
    builder
        .append_link(&mut link, "secrets", "/etc/passwd")
        .unwrap();
    let leaving = gzip(&builder.into_inner().unwrap());
    let clash = zip(&[("a", ""), ("a/b", "")]);
    for (archive, reason) in [
        (leaving, "archive_unsafe"),
        (clash, "archive_invalid"),
        (gzip(b"no tar file"), "archive_invalid"),
        (gzip(&[0; 1024]), "archive_empty"),
        (
            tar_gz(&[("estrade.json", "{"), ("a", "")]),
            "config_invalid",
        ),
    ] {
        let release = deploy_source(&ada, &archive).await;
        let before = app.blobs();
        let read = ended(&ada, &release).await;
        assert_eq!(read["state"], "FAILED", "{read}");
        assert_eq!(read["failReason"], reason, "{read}");
        let message = read["failMessage"].as_str().unwrap();
        let logs = ada
            .get(&format!("/v2/releases/{release}/build-logs"))
            .await
            .json();
        assert_eq!(logs["release"]["failReason"], reason);
        let lines = logs["buildOutput"].as_array().unwrap();
        assert_eq!(
            lines.last().unwrap()["line"],
            format!("Failed: {message}\n")
        );
        assert_eq!(app.blobs(), before, "nothing is left but the archive");
        // What could not be unpacked can still be looked at.
        let source = ada.get(&format!("/v2/releases/{release}/source")).await;
        assert!(source.assert(200).body() == archive);
    }
    let list = ada.get("/v1/projects/shop/releases").await.json();
    assert_eq!(list["currentRelease"], live);
}

async fn a_bomb_fails_its_release(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let zeros = "\0".repeat(100_001);
    for archive in [tar_gz(&[("bomb", &zeros)]), zip(&[("bomb", &zeros)])] {
        assert!(archive.len() < 2000);
        let read = ended(&ada, &deploy_source(&ada, &archive).await).await;
        assert_eq!(read["failReason"], "archive_too_large", "{read}");
    }
}

async fn a_repeated_upload_is_one_source(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let archive = tar_gz(&[("a", "1")]);
    let send = async |field: &str, archive: &[u8]| {
        let call = upload(&ada, "shop", field, archive);
        call.header("idempotency-key", "once").await
    };
    let first = send("file", &archive).await.assert(200);
    // Another form around the same archive, as a client that repeats makes it.
    let second = send("source", &archive).await.assert(200);
    assert_eq!(second.header("idempotency-replayed"), "true");
    assert_eq!(second.json(), first.json());
    let other = tar_gz(&[("b", "1")]);
    send("file", &other)
        .await
        .refused(422, "idempotency_mismatch");
}

async fn roll_back_to_an_archive(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let archive = tar_gz(&[("index.html", "1"), ("estrade.json", r#"{"spa": true}"#)]);
    let first = deploy_source(&ada, &archive).await;
    assert_eq!(ended(&ada, &first).await["state"], "READY");
    deploy_site(&ada, "shop").await;
    let path = format!("/v1/releases/{first}/rollback");
    let back = ada.post_empty(&path).await.assert(200).field("/releaseID");
    let read = ended(&ada, &back).await;
    assert_eq!(
        (&read["state"], &read["type"]),
        (&json!("READY"), &json!("ROLLBACK"))
    );
    assert_eq!(built(app, &back).await, built(app, &first).await);
    assert_eq!(built(app, &back).await.1["spa"], true);
    // Nothing was unpacked again.
    let logs = ada
        .get(&format!("/v2/releases/{back}/build-logs"))
        .await
        .json();
    assert_eq!(logs["buildOutput"], json!([]));
}

async fn settings_decide_what_is_served_and_how(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let headers = json!([{"path": "/*", "headers": {"x-a": "1"}}]);
    let project_file = json!({"static": {"root": "dist", "spa": true}, "headers": headers});
    let project_file = project_file.to_string();
    let files = [
        ("liara.json", project_file.as_str()),
        ("dist/index.html", "1"),
        ("src/main.js", "2"),
    ];
    let as_json = |(path, data): &(&str, &str)| json!({"path": path, "data": data});
    let sent: Vec<_> = files.iter().map(as_json).collect();
    let as_named = |(path, data): &(&str, &str)| json!({"path": path, "digest": Digest::of(data.as_bytes()), "size": data.len()});
    let named: Vec<_> = files.iter().map(as_named).collect();
    let source = new_source(&ada, "shop", &tar_gz(&files)).await;
    for (_, content) in &files {
        let path = format!("/v2/projects/shop/blobs/{}", Digest::of(content.as_bytes()));
        ada.call(http::Method::PUT, &path)
            .bytes(*content)
            .await
            .assert(201);
    }
    for mut body in [
        json!({ "files": sent }),
        json!({ "files": named }),
        json!({ "sourceID": source }),
    ] {
        let release = deploy(&ada, "shop", &body).await;
        assert_eq!(ended(&ada, &release).await["state"], "READY");
        let (paths, site) = built(app, &release).await;
        assert_eq!(paths, ["index.html"]);
        let headers = json!([{"path": "/*", "headers": [["x-a", "1"]]}]);
        assert_eq!(
            site,
            json!({"spa": true, "cleanUrls": true, "headers": headers})
        );
        // What is sent with the release counts more than what lies in it.
        body["platformConfig"] = json!({"root": ".", "cleanUrls": false, "headers": []});
        let release = deploy(&ada, "shop", &body).await;
        assert_eq!(ended(&ada, &release).await["state"], "READY");
        let (paths, site) = built(app, &release).await;
        assert_eq!(paths, ["dist/index.html", "src/main.js"]);
        assert_eq!(site, json!({"spa": true, "cleanUrls": false}));
    }
    for (config, named) in [
        (json!({"spa": 1}), "platformConfig: spa"),
        (json!({"root": "../x"}), "platformConfig: root"),
        (json!({"root": "none"}), "none"),
        (json!([]), "platformConfig"),
    ] {
        let body = json!({"files": sent, "platformConfig": config});
        ada.post(PATH, &body)
            .await
            .refused(400, "invalid")
            .naming(named);
    }
    let bad = json!({"files": [{"path": "estrade.json", "data": "{"}, {"path": "a", "data": ""}]});
    ada.post(PATH, &bad)
        .await
        .refused(400, "invalid")
        .naming("estrade.json");
}

async fn a_canceled_release_stops_unpacking(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let mut header = tar::Header::new_gnu();
    header.set_path("zeros").unwrap();
    header.set_size(192 << 20);
    header.set_cksum();
    let zeros = gzip(&vec![0; 64 << 20]).repeat(3);
    let archive = [gzip(header.as_bytes()), zeros].concat();
    let release = deploy_source(&ada, &archive).await;
    let path = format!("/v1/releases/{release}?wait=BUILDING&timeout=30");
    let read = ada.get(&path).await.assert(200).json();
    assert_eq!(read["release"]["state"], "BUILDING", "{read}");
    ada.post_empty(&format!("/v2/releases/{release}/cancel"))
        .await
        .assert(200);
    assert_eq!(ended(&ada, &release).await["state"], "CANCELED");
    // The next one does not wait for it, and what was written is gone.
    deploy_site(&ada, "shop").await;
    let temporary = app.directory().join("blobs/tmp");
    for _ in 0..100 {
        if std::fs::read_dir(&temporary).unwrap().count() == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
    let large = std::fs::read_dir(app.directory().join("blobs/files")).unwrap();
    let lengths = large.map(|file| file.unwrap().metadata().unwrap().len());
    // The archive itself may be large enough for a file of its own; its content never got there.
    let others: Vec<_> = lengths.filter(|it| *it != archive.len() as u64).collect();
    assert_eq!(others, [0; 0]);
}
