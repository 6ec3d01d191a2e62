//! The files of releases: what is taken, what is refused without a trace, what comes back.

use crate::support::{deploy, deploy_site, ended, new_project, site};
use estrade_model::plan::Plan;
use estrade_store::{Record, Row, StoreError};
use estrade_testkit::{Disk, Setup, TestApp, User, on_both_backends};
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Read;

on_both_backends! {
    the_download_is_the_input;
    the_download_is_the_same_every_time;
    a_release_from_an_image_has_no_source;
    paths_that_lead_astray_are_refused;
    a_refused_release_leaves_nothing_behind with small_caps;
    too_many_files with small_caps;
    too_many_bytes with small_caps;
    the_disk_of_the_plan_is_a_hard_cap with tiny_plan;
    encodings;
    a_content_is_stored_once;
    a_body_larger_than_memory_holds;
    a_large_document_is_read_whichever_way with room_for_600_kilobytes;
}

const PATH: &str = "/v2/projects/shop/releases";

fn small_caps() -> Setup {
    Setup::with(|setup| {
        setup.settings.max_files = 3;
        setup.settings.max_release_bytes = 2000;
    })
}

fn room_for_600_kilobytes() -> Setup {
    Setup::with(|setup| setup.settings.max_release_bytes = 600_000)
}

fn tiny_plan() -> Setup {
    Setup::with(|setup| {
        let plan = Plan {
            memory_mb: 1,
            cpus: 1,
            disk_gb: 0,
            hourly_price: 0,
        };
        setup.settings.plans.set("tiny".into(), plan);
    })
}

pub(super) fn unpack(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(GzDecoder::new(archive));
    let mut files = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        assert!(files.insert(path, content).is_none());
    }
    files
}

async fn the_download_is_the_input(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let deep = format!("{}/{}", vec!["d"; 100].join("/"), "f".repeat(200));
    let files = [
        ("index.html", "<h1>Hello</h1>"),
        ("empty", ""),
        ("a/b/c.txt", "Größe ✓\r\n"),
        ("name with spaces & ünïcode.txt", "x"),
        (".hidden/..dots..", "y"),
        (deep.as_str(), "deep"),
    ];
    let list: Vec<_> = files
        .iter()
        .map(|(path, data)| json!({"path": path, "data": data}))
        .collect();
    let release = deploy(&ada, "shop", &json!({"files": list})).await;
    assert_eq!(ended(&ada, &release).await["state"], "READY");
    let response = ada
        .get(&format!("/v2/releases/{release}/source"))
        .await
        .assert(200);
    assert_eq!(response.header("content-type"), "application/gzip");
    let expected: BTreeMap<_, _> = files
        .iter()
        .map(|(path, data)| ((*path).to_owned(), data.as_bytes().to_vec()))
        .collect();
    assert_eq!(unpack(response.body()), expected);
}

async fn the_download_is_the_same_every_time(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let first = deploy_site(&ada, "shop").await;
    let mut turned = site();
    turned["files"].as_array_mut().unwrap().reverse();
    let second = deploy(&ada, "shop", &turned).await;
    let source = async |id: &str| {
        let path = format!("/v2/releases/{id}/source");
        ada.get(&path).await.assert(200).body().to_vec()
    };
    let bytes = source(&first).await;
    app.core()
        .clock
        .advance(std::time::Duration::from_secs(100));
    assert_eq!(source(&first).await, bytes);
    assert_eq!(
        source(&second).await,
        bytes,
        "the order of the request does not matter"
    );
}

async fn a_release_from_an_image_has_no_source(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let release = deploy(
        &ada,
        "shop",
        &json!({"type": "docker", "image": "nginx:1.27"}),
    )
    .await;
    let response = ada.get(&format!("/v2/releases/{release}/source")).await;
    response.refused(404, "not_found");
    let read = ada.get(&format!("/v1/releases/{release}")).await.json();
    assert_eq!(read["release"]["sourceAvailable"], false);
}

async fn paths_that_lead_astray_are_refused(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let (long, long_segment) = ("a/".repeat(600) + "a", "s".repeat(256));
    let before = app.blobs();
    for bad in [
        "",
        "/",
        "/etc/passwd",
        "..",
        "../a",
        "a/..",
        "a/../b",
        "a/./b",
        ".",
        "./a",
        "a//b",
        "a/",
        "//a",
        "a\\b",
        "..\\a",
        "a\u{0}b",
        "a\nb",
        "\u{7f}",
        &long,
        &long_segment,
    ] {
        let body = json!({"files": [{"path": "ok", "data": "1"}, {"path": bad, "data": "2"}]});
        ada.post(PATH, &body)
            .await
            .refused(400, "invalid")
            .naming("files");
    }
    for clash in [["a", "a"], ["a", "a/b"], ["a/b", "a"], ["a/b/c", "a/b"]] {
        let files = clash.map(|path| json!({"path": path, "data": path}));
        let response = ada.post(PATH, &json!({"files": files})).await;
        response.refused(400, "invalid").naming("files");
    }
    let list = ada.get("/v1/projects/shop/releases").await.json();
    assert_eq!(list["total"], 0);
    assert_eq!(app.blobs(), before);
}

/// What there is before and after a refusal.
async fn traces(app: &TestApp, user: &User) -> (Value, Value, i64, Disk) {
    let list = user.get("/v1/projects/shop/releases").await.json();
    let events = user
        .get("/v1/projects/shop/events")
        .await
        .assert(200)
        .json();
    let sql = "SELECT (SELECT count(*) FROM blobs) + (SELECT count(*) FROM artifacts)";
    let Rows(rows) = app.core().db.read(sql).fetch_one().await.unwrap();
    (list, events, rows, app.blobs())
}

struct Rows(i64);

impl Record for Rows {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        row.take().map(Self)
    }
}

async fn a_refused_release_leaves_nothing_behind(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    deploy_site(&ada, "shop").await;
    let before = traces(app, &ada).await;
    let good = json!({"path": "new.html", "data": "a content that is not there yet"});
    for bad in [
        json!({"files": [good, {"path": "../x", "data": ""}]}),
        json!({"files": [good, good]}),
        json!({"files": [good, {"path": "b", "data": "?", "encoding": "base64"}]}),
        json!({"files": [good, {"path": "b"}]}),
        json!({"files": [good], "port": 0}),
        json!({"files": [good], "image": "nginx"}),
        json!({"files": [good], "message": "x".repeat(1001)}),
    ] {
        ada.post(PATH, &bad).await.refused(400, "invalid");
    }
    let cut = r#"{"files": [{"path": "new.html", "data": "a content that is not there yet"}"#;
    ada.call("POST".parse().unwrap(), PATH)
        .bytes(cut)
        .await
        .refused(400, "invalid");
    assert_eq!(traces(app, &ada).await, before);
}

async fn too_many_files(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let files = |count: usize| -> Vec<_> {
        (0..count)
            .map(|i| json!({"path": format!("f{i}"), "data": "x"}))
            .collect()
    };
    let before = app.blobs();
    let response = ada.post(PATH, &json!({"files": files(4)})).await;
    response.refused(413, "too_large").naming("3 files");
    assert_eq!(app.blobs(), before);
    ada.post(PATH, &json!({"files": files(3)}))
        .await
        .assert(201);
}

async fn too_many_bytes(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let before = app.blobs();
    let body = |bytes: usize| json!({"files": [{"path": "big", "data": "x".repeat(bytes)}]});
    ada.post(PATH, &body(2000)).await.refused(413, "too_large");
    ada.get(PATH)
        .json(&body(2000))
        .await
        .refused(413, "too_large");
    // Not announced: found out on the way.
    let text = body(2000).to_string();
    let request = format!(
        "POST {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         transfer-encoding: chunked\r\n\r\n{:x}\r\n{text}\r\n0\r\n\r\n",
        ada.token(),
        text.len(),
    );
    let response = app.raw(estrade_testkit::Api::Platform, request).await;
    response.refused(413, "too_large");
    assert_eq!(app.blobs(), before);
    ada.post(PATH, &body(1900)).await.assert(201);
}

async fn the_disk_of_the_plan_is_a_hard_cap(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let new = json!({"name": "shop", "platform": "static", "planID": "tiny"});
    ada.post("/v1/projects", &new).await.assert(200);
    let before = app.blobs();
    let body = json!({"files": [{"path": "a", "data": "x"}]});
    ada.post(PATH, &body)
        .await
        .refused(413, "too_large")
        .naming("plan");
    assert_eq!(app.blobs(), before);
    ada.post("/v1/projects/shop/resize", &json!({"planID": "nano"}))
        .await
        .assert(200);
    ada.post(PATH, &body).await.assert(201);
}

async fn encodings(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let files = json!([
        {"path": "binary", "data": "AP8Q", "encoding": "base64"},
        {"path": "none", "data": "", "encoding": "base64"},
        {"path": "text", "data": "AP8Q"},
    ]);
    let release = deploy(&ada, "shop", &json!({"files": files})).await;
    let response = ada
        .get(&format!("/v2/releases/{release}/source"))
        .await
        .assert(200);
    let found = unpack(response.body());
    assert_eq!(found["binary"], [0x00, 0xff, 0x10]);
    assert_eq!(found["none"], b"");
    assert_eq!(found["text"], b"AP8Q");
    for (data, encoding) in [
        ("A", "base64"),
        ("AP8Q\n", "base64"),
        ("é", "base64"),
        ("", "hex"),
    ] {
        let body = json!({"files": [{"path": "bad", "data": data, "encoding": encoding}]});
        ada.post(PATH, &body)
            .await
            .refused(400, "invalid")
            .naming("files");
    }
}

async fn a_content_is_stored_once(app: &TestApp) {
    let (ada, bob) = (app.new_account("ada").await, app.new_account("bob").await);
    new_project(&ada, "shop").await;
    new_project(&bob, "other").await;
    let marker = "a content that is easy to find on disk";
    let body = json!({"files": [
        {"path": "a", "data": marker}, {"path": "b", "data": marker},
    ]});
    deploy(&ada, "shop", &body).await;
    deploy(&ada, "shop", &body).await;
    deploy(&bob, "other", &body).await;
    let disk = app.blobs();
    let files = disk.holding(marker.as_bytes());
    assert_eq!(files.len(), 1, "{files:?}");
    let content = std::fs::read(files[0]).unwrap();
    assert_eq!(String::from_utf8_lossy(&content).matches(marker).count(), 1);
}

async fn a_body_larger_than_memory_holds(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let big: String = "0123456789abcdef\n".repeat(150_000);
    let files = json!([{"path": "big.txt", "data": big}, {"path": "small", "data": "s"}]);
    let release = deploy(&ada, "shop", &json!({"files": files})).await;
    assert_eq!(ended(&ada, &release).await["state"], "READY");
    let response = ada
        .get(&format!("/v2/releases/{release}/source"))
        .await
        .assert(200);
    assert_eq!(unpack(response.body())["big.txt"], big.as_bytes());
}

/// Files of a document are mostly taken out of it ahead; what is odd about it must make no difference.
async fn a_large_document_is_read_whichever_way(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let send = async |document: String| {
        let call = ada.post(PATH, &json!({})).bytes(document);
        call.header("content-type", "application/json").await
    };
    let text = |number: usize| format!("file {number} \\ud83d\\ude00\\n").repeat(3500);
    let file = |number: usize| format!(r#"{{"data":"{}","path":"{number}"}}"#, text(number));
    let files: Vec<_> = (0..8).map(file).collect();
    let base64 = r#"{"data":"AP8Q","path":"binary","encoding":"base64"}"#;
    for (last, more) in [
        (base64, ""),
        (base64, r#","message":"\ud83d\ude00""#),
        // From here on it is read as it stands.
        (base64, r#","m\u0065ssage":"x""#),
        (
            r#"{"d\u0061ta":"AP8Q","path":"binary","encoding":"base64"}"#,
            "",
        ),
    ] {
        let document = format!(r#"{{"files":[{},{last}]{more}}}"#, files.join(","));
        let release: String = send(document).await.assert(201).field("/releaseID");
        let path = format!("/v2/releases/{release}/source");
        let found = unpack(ada.get(&path).await.assert(200).body());
        assert_eq!(found.len(), 9);
        assert_eq!(found["binary"], [0x00, 0xff, 0x10]);
        for number in 0..8 {
            let expected = format!("file {number} 😀\n").repeat(3500);
            assert!(found[&number.to_string()] == expected.as_bytes(), "{more}");
        }
    }
    // Faults are found where they are in what was sent.
    let document = format!(r#"{{"files":[{},]}}"#, files.join(","));
    let at = format!("trailing comma at line 1 column {}", document.len() - 1);
    send(document).await.refused(400, "invalid").naming(&at);
    let larger: Vec<_> = (0..20).map(file).collect();
    let document = format!(r#"{{"files":[{}]}}"#, larger.join(","));
    let refused = send(document).await.assert(413);
    refused.naming("600000 bytes");
}
