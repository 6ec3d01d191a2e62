//! Steps that many tests take.

use estrade_testkit::{ApiResponse, Call, TestApp, User};
use serde_json::{Value, json};

/// Demands an id: 24 lower-case hexadecimal characters.
#[track_caller]
pub(crate) fn assert_id(value: &Value) {
    let text = value.as_str().expect("an id is a string");
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    assert!(text.len() == 24 && text.bytes().all(hex), "{text}");
}

/// Demands a timestamp such as `2026-11-15T01:02:03.004Z`.
#[track_caller]
pub(crate) fn assert_time(value: &Value) {
    let text = value.as_str().expect("a timestamp is a string");
    let shape: String = text
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    assert_eq!(shape, "0000-00-00T00:00:00.000Z", "{text}");
}

/// The names of an object's fields, sorted.
pub(crate) fn fields(value: &Value) -> Vec<&str> {
    let mut names: Vec<_> = value
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    names
}

/// The texts at one field of an array's items.
pub(crate) fn column(items: &Value, field: &str) -> Vec<String> {
    let text = |item: &Value| item[field].as_str().expect("a text").to_owned();
    items
        .as_array()
        .expect("an array")
        .iter()
        .map(text)
        .collect()
}

/// Makes a static project; returns its id.
pub(crate) async fn new_project(user: &User, name: &str) -> String {
    let new = json!({"name": name, "platform": "static", "planID": "nano"});
    let made = user.platform().post("/v1/projects", &new).await.assert(200);
    made.field("/projectID")
}

/// Makes a key for the workspace `main`; returns its id and its JWT.
pub(crate) async fn new_key(user: &User, name: &str) -> (String, String) {
    let new = json!({"name": name, "workspaces": ["main"]});
    let made = user.ai().post("/v1/keys", &new).await.assert(201);
    (made.field("/_id"), made.field("/key"))
}

/// The files of a small site.
pub(crate) fn site() -> Value {
    json!({"type": "static", "port": 80, "files": [
        {"path": "index.html", "data": "<h1>Hello</h1>"},
        {"path": "css/site.css", "data": "h1 { color: teal }"},
    ]})
}

/// Asks for a release; returns its id.
pub(crate) async fn deploy(user: &User, project: &str, body: &Value) -> String {
    let path = format!("/v2/projects/{project}/releases");
    let made = user.platform().post(&path, body).await.assert(201);
    made.field("/releaseID")
}

/// Waits until a release has ended; returns it.
pub(crate) async fn ended(user: &User, release: &str) -> Value {
    let path = format!("/v1/releases/{release}?wait=READY&timeout=60");
    let release = user.platform().get(&path).await.assert(200).json()["release"].clone();
    assert_ne!(release["finishedAt"], Value::Null, "{release}");
    release
}

/// Deploys a small site and waits until it serves; returns the release's id.
pub(crate) async fn deploy_site(user: &User, project: &str) -> String {
    let release = deploy(user, project, &site()).await;
    assert_eq!(ended(user, &release).await["state"], "READY");
    release
}

/// What a proxy hears of a key.
pub(crate) async fn authorize(user: &User, key: &str) -> ApiResponse {
    user.ai().get("/v1/keys/authorize").bearer(key).await
}

/// A `.tar.gz` of these files.
pub(crate) fn tar_gz(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder
            .append_data(&mut header, path, content.as_bytes())
            .expect("a file");
    }
    gzip(&builder.into_inner().expect("an archive"))
}

/// Compresses bytes.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let level = flate2::Compression::fast();
    let mut out = flate2::write::GzEncoder::new(Vec::new(), level);
    out.write_all(bytes).expect("compressed");
    out.finish().expect("compressed")
}

/// Sends an archive in a form, as browsers and command lines do.
pub(crate) fn upload(user: &User, project: &str, field: &str, archive: &[u8]) -> Call {
    let head = format!(
        "--x-y-z\r\ncontent-disposition: form-data; name=\"{field}\"; filename=\"a.tar.gz\"\r\n\
         content-type: application/gzip\r\n\r\n"
    );
    let body = [head.as_bytes(), archive, b"\r\n--x-y-z--\r\n"].concat();
    let path = format!("/v2/projects/{project}/sources");
    user.platform()
        .call(http::Method::POST, &path)
        .header("content-type", "multipart/form-data; boundary=x-y-z")
        .bytes(body)
}

/// Uploads an archive; returns the id of the source.
pub(crate) async fn new_source(user: &User, project: &str, archive: &[u8]) -> String {
    let uploaded = upload(user, project, "file", archive).await.assert(200);
    uploaded.field("/sourceID")
}

/// Makes a release look as if another server were building it, and would for long.
pub(crate) async fn hold(app: &TestApp, release: &str) {
    let release = release.to_owned();
    let held = app.core().db.transact(move |tx| {
        let release = release.clone();
        Box::pin(async move {
            tx.query(
                "UPDATE releases SET state = 'BUILDING', finished_at = NULL, fail_reason = NULL,
                 lease_owner = 'somebody', lease_until = 99999999999999, deadline = 99999999999999
                 WHERE id = $1",
            )
            .bind(release.as_str())
            .execute()
            .await
        })
    });
    assert_eq!(held.await.unwrap(), 1);
}
