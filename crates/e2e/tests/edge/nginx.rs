//! The same files on nginx and here: the same requests must get the same answers.
//!
//! Where we differ on purpose is in [`better`], each with its reason; everything else is compared:
//! status, body, and the headers that say what the body is.

use crate::support::{deploy_body, new_project};
use base64::Engine as _;
use estrade_testkit::{Backend, TestApp, free_port};
use estrade_testkit::{EdgeClient, Page};
use serde_json::json;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Requests that are made and sent to both.
const REQUESTS: usize = 1500;

/// The host of both.
const HOST: &str = "same.localhost";

/// nginx, for as long as the value lives.
struct Nginx {
    child: Child,
    address: SocketAddr,
    root: TempDir,
}

impl Nginx {
    fn start() -> Self {
        let root = TempDir::new().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        fs::create_dir(root.path().join("site")).unwrap();
        let folder = root.path().display();
        let configuration = format!(
            "daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
             events {{}}
             http {{
                 access_log off; keepalive_requests 1000000; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;
                 fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
                 charset utf-8; charset_types text/plain text/css; gzip_static on; gzip_vary on;
                 types {{ text/html html; text/plain txt; text/css css; image/png png; }}
                 default_type application/octet-stream;
                 server {{ listen {address}; root {folder}/site; index index.html; }}
             }}"
        );
        fs::write(root.path().join("nginx.conf"), configuration).unwrap();
        let program = if Path::new("/usr/sbin/nginx").exists() {
            "/usr/sbin/nginx"
        } else {
            "nginx"
        };
        let child = Command::new(program)
            .arg("-p")
            .arg(root.path())
            .arg("-c")
            .arg(root.path().join("nginx.conf"))
            .stderr(Stdio::null())
            .spawn()
            .expect("nginx: run ./test, which installs it");
        Self {
            child,
            address,
            root,
        }
    }

    fn write(&self, path: &str, content: &[u8]) {
        let path = self.root.path().join("site").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    async fn wait(&self) {
        for _ in 0..200 {
            if tokio::net::TcpStream::connect(self.address).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let log = fs::read_to_string(self.root.path().join("error.log"));
        panic!("nginx does not answer: {log:?}");
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn files() -> Vec<(&'static str, Vec<u8>)> {
    let text = |words: &str, times| words.repeat(times).into_bytes();
    vec![
        ("index.html", text("<p>home</p>", 30)),
        ("docs/index.html", text("<p>docs</p>", 40)),
        ("empty.txt", Vec::new()),
        ("one.txt", b"x".to_vec()),
        ("ten.txt", b"0123456789".to_vec()),
        ("long.txt", text("All work and no play. ", 500)),
        ("huge.txt", text("0123456789abcdef", 10_000)),
        ("style.css", text("body { margin: 0 }\n", 50)),
        ("dots.png", (0..=255).cycle().take(3000).collect()),
        ("na me+é.txt", text("named", 60)),
        ("no-extension", b"plain".to_vec()),
    ]
}

/// A deterministic choice.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    fn pick<'p, T: ?Sized>(&mut self, list: &[&'p T]) -> &'p T {
        list[self.roll(list.len())]
    }
}

const PATHS: [&str; 20] = [
    "/",
    "/index.html",
    "/docs",
    "/docs/",
    "/docs/index.html",
    "/empty.txt",
    "/one.txt",
    "/ten.txt",
    "/ten.txt",
    "/long.txt",
    "/long.txt",
    "/huge.txt",
    "/style.css",
    "/dots.png",
    "/na%20me+%C3%A9.txt",
    "/no-extension",
    "/missing",
    "/docs/missing.txt",
    "/./ten.txt",
    "/docs/../ten.txt",
];
const RANGES: [&str; 30] = [
    "bytes=0-0",
    "bytes=0-3",
    "bytes=1-",
    "bytes=-1",
    "bytes=-5",
    "bytes=0-",
    "bytes=5-5",
    "bytes=9-",
    "bytes=10-",
    "bytes=10-20",
    "bytes=5-2",
    "bytes=-0",
    "bytes=0-99999999",
    "bytes=100-199",
    "bytes=9999-",
    "bytes=-99999999",
    "bytes=0-1,3-4",
    "bytes=0-0,-1",
    "bytes=1-2, 5-6, 8-8",
    "bytes=0-5,2-7",
    "bytes=0-9,0-9",
    "bytes=50-60,0-1",
    "bytes=500-600,700-800,900-",
    "bytes=",
    "bytes=-",
    "bytes=a-b",
    "bytes=1-2-3",
    "items=0-3",
    "bytes=99999999999999999999-",
    "BYTES=0-3",
];

/// A request as it is sent to both; `TAG` and `DATE` stand for each server's own validators.
#[derive(Debug, Clone)]
struct Request {
    method: &'static str,
    path: &'static str,
    headers: Vec<(&'static str, &'static str)>,
}

fn request(dice: &mut Dice) -> Request {
    let mut headers = Vec::new();
    if dice.roll(2) == 0 {
        headers.push(("Range", dice.pick(&RANGES)));
        if dice.roll(3) == 0 {
            headers.push((
                "If-Range",
                dice.pick(&[
                    "TAG",
                    "DATE",
                    "\"other\"",
                    "W/TAG",
                    "Thu, 01 Jan 1970 00:00:00 GMT",
                ]),
            ));
        }
    }
    match dice.roll(6) {
        0 => headers.push((
            "If-None-Match",
            dice.pick(&[
                "TAG",
                "\"other\"",
                "*",
                "W/TAG",
                "\"a\", TAG, \"b\"",
                "nonsense",
            ]),
        )),
        1 => headers.push((
            "If-Modified-Since",
            dice.pick(&[
                "DATE",
                "Thu, 01 Jan 1970 00:00:00 GMT",
                "Fri, 01 Jan 2100 00:00:00 GMT",
                "nonsense",
            ]),
        )),
        2 => headers.push((
            "If-Match",
            dice.pick(&["TAG", "\"other\"", "*", "\"a\", TAG"]),
        )),
        3 => headers.push((
            "If-Unmodified-Since",
            dice.pick(&[
                "DATE",
                "Thu, 01 Jan 1970 00:00:00 GMT",
                "Fri, 01 Jan 2100 00:00:00 GMT",
            ]),
        )),
        _ => {}
    }
    if dice.roll(3) == 0 {
        headers.push((
            "Accept-Encoding",
            dice.pick(&[
                "gzip",
                "gzip, deflate",
                "identity",
                "gzip;q=0",
                "deflate",
                "gzip;q=0.5",
            ]),
        ));
    }
    Request {
        method: if dice.roll(5) == 0 { "HEAD" } else { "GET" },
        path: dice.pick(&PATHS),
        headers,
    }
}

/// What we answer differently, because it is better; the reason why.
fn better(request: &Request) -> Option<&'static str> {
    let value = |name| {
        request
            .headers
            .iter()
            .find(|(it, _)| *it == name)
            .map(|(_, value)| *value)
    };
    let takes_gzip =
        value("Accept-Encoding").is_some_and(|it| it.contains("gzip") && !it.ends_with("q=0"));
    if takes_gzip && value("Range").is_some() {
        return Some("a range is of the content as it is; nginx sends all of the compressed one");
    }
    None
}

/// One server as a client sees it: with its own validators.
struct Side {
    visitor: EdgeClient,
    address: SocketAddr,
    may_close: bool,
}

impl Side {
    async fn new(address: SocketAddr, may_close: bool) -> Self {
        let visitor = EdgeClient::connect(address, HOST).await;
        Self {
            visitor,
            address,
            may_close,
        }
    }

    async fn request(&mut self, request: &Request) -> Page {
        let coding = |(name, _): &(&str, &str)| *name == "Accept-Encoding";
        let coding: Vec<_> = request.headers.iter().copied().filter(coding).collect();
        let first = self.exchange("HEAD", request.path, &coding).await;
        let tag = first.header("etag").unwrap_or("\"none\"");
        let date = first.header("last-modified").unwrap_or("none");
        let own = |(name, value): &(&'static str, &str)| {
            (*name, value.replace("TAG", tag).replace("DATE", date))
        };
        let headers: Vec<_> = request.headers.iter().map(own).collect();
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (*name, &**value))
            .collect();
        self.exchange(request.method, request.path, &headers).await
    }

    async fn exchange(&mut self, method: &str, path: &str, headers: &[(&str, &str)]) -> Page {
        let page = match self.visitor.try_ask(method, path, headers).await {
            // nginx closes connections after some errors without saying so.
            Err(_) if self.may_close => {
                self.visitor = EdgeClient::connect(self.address, HOST).await;
                self.visitor.request(method, path, headers).await
            }
            other => other.unwrap_or_else(|error| panic!("{method} {path} {headers:?}: {error}")),
        };
        if page.header("connection") == Some("close") {
            self.visitor = EdgeClient::connect(self.address, HOST).await;
        }
        page
    }
}

/// What is compared of a response.
#[derive(Debug, PartialEq, Eq)]
struct Compared {
    status: u16,
    headers: Vec<(&'static str, Option<String>)>,
    has: Vec<(&'static str, bool)>,
    body: Option<String>,
}

fn compared(page: &Page) -> Compared {
    let kind = page.header("content-type").unwrap_or_default();
    let boundary = kind
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap_or("\0");
    let normal = |text: &str| text.replace(boundary, "BOUNDARY");
    let is_error = page.status >= 400;
    let is_redirect = page.status == 301;
    let header = |name: &'static str| (name, page.header(name).map(normal));
    let mut headers = vec![header("content-range")];
    if !is_error && !is_redirect {
        headers.extend(
            [
                "content-type",
                "content-length",
                "content-encoding",
                "accept-ranges",
            ]
            .map(header),
        );
    }
    if let Some(location) = page.header("location") {
        // nginx writes the whole URL; a path is right behind any proxy.
        let path = location
            .split_once("://")
            .and_then(|(_, rest)| rest.find('/').map(|at| &rest[at..]));
        headers.push(("location", Some(path.unwrap_or(location).to_owned())));
    }
    let has = |name: &'static str| (name, page.header(name).is_some());
    // Bytes as characters, one to one, so that the boundary can be replaced in any content.
    let body: String = page.body.iter().map(|byte| char::from(*byte)).collect();
    let body = normal(&body);
    Compared {
        status: page.status,
        headers,
        has: if is_error || is_redirect {
            Vec::new()
        } else {
            vec![has("etag"), has("last-modified")]
        },
        body: (!is_error && !is_redirect).then_some(body),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_agree_with_nginx() {
    let app = TestApp::start(Backend::Sqlite).await;
    let ada = app.new_account("ada").await;
    new_project(&ada, "same").await;
    let encode = |content: &[u8]| base64::engine::general_purpose::STANDARD.encode(content);
    let file = |(path, content): &(&str, Vec<u8>)| json!({"path": path, "data": encode(content), "encoding": "base64"});
    let body: Vec<_> = files().iter().map(file).collect();
    deploy_body(&ada, "same", &json!({ "files": body })).await;

    let nginx = Nginx::start();
    let mut visitor = EdgeClient::connect(app.edge(), HOST).await;
    for (path, content) in files() {
        nginx.write(path, &content);
        // nginx gets our compressed variant: where there is none, it has none either.
        let url = format!("/{}", path.replace(' ', "%20").replace('é', "%C3%A9"));
        let gzip = visitor.get_with(&url, &[("Accept-Encoding", "gzip")]).await;
        if gzip.header("content-encoding") == Some("gzip") {
            nginx.write(&format!("{path}.gz"), &gzip.body);
        }
    }
    nginx.wait().await;
    let (mut ours, mut theirs) = (
        Side::new(app.edge(), false).await,
        Side::new(nginx.address, true).await,
    );
    let (mut dice, mut agreed, mut differed) = (Dice(0x9e37_79b9_7f4a_7c15), 0, Vec::new());
    for _ in 0..REQUESTS {
        let request = request(&mut dice);
        if better(&request).is_some() {
            continue;
        }
        let (our, their) = (
            compared(&ours.request(&request).await),
            compared(&theirs.request(&request).await),
        );
        if our == their {
            agreed += 1;
        } else {
            differed.push(format!(
                "{request:?}\n  ours   {}\n  theirs {}",
                shown(&our),
                shown(&their)
            ));
        }
    }
    assert!(
        differed.is_empty(),
        "{} differ:\n{}",
        differed.len(),
        differed[..differed.len().min(20)].join("\n")
    );
    assert!(agreed >= 300, "{agreed}");
    drop(nginx);
    app.finish().await;
}

fn shown(it: &Compared) -> String {
    let body = it
        .body
        .as_ref()
        .map(|body| body.chars().take(80).collect::<String>());
    format!("{} {:?} {:?} {body:?}", it.status, it.headers, it.has)
}
