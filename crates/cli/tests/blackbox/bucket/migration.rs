//! The files of an installation move to a bucket and back, while its server runs and a client deploys.

use super::cluster::Node;
use super::forwarder::{Bucket, Forwarder};
use super::{LARGE_BYTES, form, large, page};
use crate::support::{Home, Ran, Reaped, Server, TIMEOUT, serve_args, text};
use reqwest::Method;
use serde_json::{Value, json};
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// More than is sent as one request.
const HUGE_BYTES: usize = 70 << 20;

/// The command, with what it needs to know of a bucket.
fn migrate(home: &Home, bucket: &Bucket, endpoint: &str, options: &[&str]) -> Command {
    let mut command = home.command(["blobs", "migrate", "--to", bucket.url()]);
    command.args(options).envs(bucket.variables(endpoint));
    command
}

fn run(mut command: Command) -> Ran {
    Ran::of(&command.output().unwrap())
}

/// Does something soon after it has begun to copy; the command, and what else it says.
fn in_the_middle(
    mut command: Command,
    after: Duration,
    then: impl FnOnce(),
) -> (Reaped, impl Iterator<Item = String>) {
    let child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Reaped(child);
    let stderr = BufReader::new(child.0.stderr.take().unwrap());
    let mut lines = stderr.lines().map_while(Result::ok);
    let began = lines.find(|line| line.starts_with("pass 1"));
    assert!(began.is_some(), "it ended early");
    std::thread::sleep(after);
    then();
    assert!(child.0.try_wait().unwrap().is_none(), "it was too quick");
    (child, lines)
}

/// How many objects a run has sent.
fn copied(ran: &Ran) -> u32 {
    let line = ran.stdout.lines().find_map(|it| it.strip_prefix("copied "));
    let count = line.and_then(|it| it.split(' ').next()).unwrap();
    count.parse().unwrap()
}

/// Many small files, and one that is an object of its own.
fn many(version: &str) -> Value {
    let small = (0..300).map(|number| {
        let data = format!("{version} {number} {}", "x".repeat(number * 7));
        json!({"path": format!("files/{number}.txt"), "data": data})
    });
    let page = json!({"path": "index.html", "data": page(version)});
    let large = json!({"path": "large.bin", "data": large(version)});
    small.chain([page, large]).collect()
}

async fn assert_many(node: &Node, version: &str) {
    node.await_content("site", "/", &page(version)).await;
    node.await_content("site", "/large.bin", &large(version))
        .await;
    for number in (0..300).step_by(37) {
        let (status, found) = node.visit("site", &format!("/files/{number}.txt")).await;
        let expected = format!("{version} {number} {}", "x".repeat(number * 7));
        assert_eq!((status, found), (200, expected));
    }
}

fn huge() -> String {
    let line = "a line of a large file that no pack takes\n";
    line.repeat(HUGE_BYTES / line.len() + 1)
}

/// Sources as `.tar.gz`: a page, and a file that is sent in parts.
fn huge_archive(directory: &Path) -> Vec<u8> {
    fs::write(directory.join("index.html"), "<h1>archived</h1>").unwrap();
    fs::write(directory.join("huge.bin"), huge()).unwrap();
    let packed = Command::new("tar")
        .args(["-cz", "-C"])
        .arg(directory)
        .args(["index.html", "huge.bin"])
        .output();
    packed.unwrap().stdout
}

async fn deploy_archive(server: &Server, archive: &[u8]) -> String {
    server.create_project("archived").await;
    let url = format!("{}/v2/projects/archived/sources", server.platform);
    let upload = server.client.post(url).bearer_auth(&server.token);
    let upload = upload
        .header("content-type", "multipart/form-data; boundary=x-y-z")
        .body(form(archive));
    let sent = upload.send().await.unwrap().text().await.unwrap();
    let sent: Value = serde_json::from_str(&sent).unwrap();
    let path = "/v2/projects/archived/releases";
    let body = json!({"sourceID": sent["sourceID"]});
    let made = server.platform(Method::POST, path, body).await;
    text(&made.assert(201).json()["releaseID"])
}

async fn download_source(server: &Server, release: &str) -> Vec<u8> {
    let url = format!("{}/v2/releases/{release}/source", server.platform);
    let source = server.client.get(url).bearer_auth(&server.token).send();
    let source = source.await.unwrap().error_for_status().unwrap();
    source.bytes().await.unwrap().to_vec()
}

/// Deploys one version after the other until it is stopped; the number of the last that was accepted. With
/// `until_refused` it ends when the server says that files are moving.
async fn deploy_on(node: &Node, from: u32, stop: &AtomicBool, until_refused: bool) -> u32 {
    let mut version = from;
    while !stop.load(Ordering::Relaxed) {
        let data = format!("{version}\n{}", "y".repeat(20_000));
        let files = json!([
            {"path": "index.html", "data": version.to_string()},
            {"path": "style.css", "data": data},
        ]);
        let made = node.deploy("busy", files).await;
        if until_refused && made.status.as_u16() == 503 {
            assert_eq!(made.json()["data"]["code"], "storage_unavailable");
            return version - 1;
        }
        let release = text(&made.assert(201).json()["releaseID"]);
        if !until_refused {
            // Else it may have to wait for the restart, like every release that was accepted before.
            node.await_ready(&release).await;
        }
        version += 1;
    }
    version - 1
}

async fn assert_busy(node: &Node, version: u32) {
    node.await_content("busy", "/", &version.to_string()).await;
    let style = format!("{version}\n{}", "y".repeat(20_000));
    node.await_content("busy", "/style.css", &style).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn files_move_into_a_bucket_while_a_client_deploys() {
    let bucket = Bucket::of_test();
    let forwarder = Forwarder::start(&bucket.endpoint).await;
    let scratch = tempfile::TempDir::new().unwrap();
    let mut node = Node::new(Home::new());
    node.start(None);
    let token = node.token();
    for project in ["site", "busy"] {
        node.server().create_project(project).await;
    }
    let first = node.deploy_site("site", many("one")).await;
    node.deploy_site("site", many("two")).await;
    let archive = huge_archive(scratch.path());
    let archived = deploy_archive(node.server(), &archive).await;
    node.await_ready(&archived).await;
    let source = download_source(node.server(), &archived).await;

    let node = Arc::new(tokio::sync::RwLock::new(node));
    let stop = Arc::new(AtomicBool::new(false));
    let deploying = |from: u32, until_refused: bool| {
        let (node, stop) = (Arc::clone(&node), Arc::clone(&stop));
        let mut tasks = tokio::task::JoinSet::new();
        tasks
            .spawn(async move { deploy_on(&*node.read().await, from, &stop, until_refused).await });
        tasks
    };
    let ended = async |mut tasks: tokio::task::JoinSet<u32>| {
        stop.store(true, Ordering::Relaxed);
        let version = tasks.join_next().await.unwrap().unwrap();
        stop.store(false, Ordering::Relaxed);
        version
    };
    let command = async |options: &[&str]| {
        let home = &node.read().await.home;
        migrate(home, &bucket, &forwarder.url(), options)
    };
    let in_background =
        async |command: Command| tokio::task::spawn_blocking(|| run(command)).await.unwrap();

    // Killed twice, then the bucket goes away, then it comes to an end, all beside a client that deploys.
    let client = deploying(1, false);
    for after in [100, 600] {
        let command = command(&["--parallel", "1"]).await;
        let kill = move || drop(in_the_middle(command, Duration::from_millis(after), || {}));
        tokio::task::spawn_blocking(kill).await.unwrap();
    }
    let copying = command(&["--parallel", "1"]).await;
    let (code, said) = tokio::task::block_in_place(|| {
        let (mut child, lines) =
            in_the_middle(copying, Duration::from_millis(50), || forwarder.cut());
        let said: Vec<_> = lines.collect();
        (child.wait().code(), said.join("\n"))
    });
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("cannot copy") && said.contains("again"),
        "{said}"
    );
    let failed = in_background(command(&[]).await).await;
    failed.assert(2).assert_says("cannot use");
    forwarder.mend();
    let whole = in_background(command(&[]).await).await;
    whole.assert(0).assert_says("Add --finish");
    assert!(copied(&whole) > 0, "{whole:?}");
    let version = ended(client).await;
    assert!(version > 3, "{version}");

    // What is there is not sent again, and a server does not take it for complete.
    in_background(command(&[]).await).await.assert(0);
    let nothing = in_background(command(&[]).await).await;
    assert_eq!(copied(nothing.assert(0)), 0, "{nothing:?}");
    let mut stopped = node.write().await;
    stopped.stop();
    assert_refuses_to_serve(&stopped.home, &bucket);
    stopped.start(Some(&token));
    drop(stopped);

    // The last step, beside a client. What was accepted is in the bucket, and from then on nothing is accepted.
    let client = deploying(version + 1, true);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let finished = in_background(command(&["--finish"]).await).await;
    finished.assert(0).assert_says("restart every server");
    let version = {
        let mut client = client;
        let ended = tokio::time::timeout(TIMEOUT, client.join_next()).await;
        ended.unwrap().unwrap().unwrap()
    };
    {
        let node = node.read().await;
        assert_eq!(node.visit("busy", "/").await.0, 200);
        assert_many(&node, "two").await;
    }

    let node = Arc::into_inner(node).unwrap().into_inner();
    let moved = Moved {
        node,
        token,
        scratch,
        version,
    };
    let moved = serve_from_bucket(moved, &bucket, &first).await;
    assert_eq!(
        download_source(moved.node.server(), &archived).await,
        source
    );
    move_back(moved).await;
}

fn assert_refuses_to_serve(home: &Home, bucket: &Bucket) {
    let mut serve = home.command(serve_args());
    serve.env("ESTRADE_BLOBS_URL", bucket.url());
    let early = run_to_its_end(serve.envs(bucket.variables(&bucket.endpoint)));
    early.assert(2).assert_says("is being filled from");
}

/// An installation whose files have moved.
struct Moved {
    node: Node,
    token: String,
    scratch: tempfile::TempDir,
    /// Of the site that was deployed all the while.
    version: u32,
}

/// Not with the old place any more, which nobody needs.
async fn serve_from_bucket(moved: Moved, bucket: &Bucket, first: &str) -> Moved {
    let Moved {
        mut node,
        token,
        scratch,
        version,
    } = moved;
    node.stop();
    let old = node.home.fail_to_serve();
    old.assert(2).assert_says("have moved from");
    let blobs = node.home.data().join("blobs");
    fs::rename(&blobs, scratch.path().join("blobs")).unwrap();
    let home = std::mem::replace(&mut node.home, Home::new());
    node.home = bucket.configure(home, &bucket.endpoint);
    node.start(Some(&token));
    assert_busy(&node, version).await;
    assert_many(&node, "two").await;
    node.await_content("archived", "/huge.bin", &huge()).await;
    let path = format!("/v1/releases/{first}/rollback");
    let rolled = node.server().platform(Method::POST, &path, Value::Null);
    let rolled = text(&rolled.await.json()["releaseID"]);
    node.await_ready(&rolled).await;
    assert_many(&node, "one").await;
    node.deploy_site("site", many("three")).await;
    assert_many(&node, "three").await;
    assert!(!fs::exists(blobs).unwrap());
    Moved {
        node,
        token,
        scratch,
        version,
    }
}

/// And back, into a directory.
async fn move_back(moved: Moved) {
    let Moved {
        mut node,
        token,
        scratch,
        version,
    } = moved;
    let back = scratch.path().join("back");
    let url = format!("file://{}", back.display());
    let args = ["blobs", "migrate", "--to", &url, "--finish"];
    node.home.run(args).assert(0);
    assert_many(&node, "three").await;
    node.stop();
    node.home.fail_to_serve().assert(2).assert_says(&url);
    let home = std::mem::replace(&mut node.home, Home::new());
    node.home = home
        .with("ESTRADE_BLOBS_URL", url)
        .with("ESTRADE_BLOBS_ENDPOINT", "")
        .with("ESTRADE_BLOBS_ACCESS_KEY_ID", "")
        .with("ESTRADE_BLOBS_SECRET_ACCESS_KEY", "");
    node.start(Some(&token));
    assert_many(&node, "three").await;
    assert_busy(&node, version).await;
    node.await_content("archived", "/huge.bin", &huge()).await;
    node.stop();
}

/// Runs a server that must not come up.
fn run_to_its_end(command: &mut Command) -> Ran {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Ran::of(&child.spawn().unwrap().wait_with_output().unwrap())
}

fn files_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_damaged_is_named_and_not_left_behind_unless_asked_for() {
    let bucket = Bucket::of_test();
    let mut node = Node::new(Home::new());
    node.start(None);
    for project in ["site", "small", "other"] {
        node.server().create_project(project).await;
    }
    node.deploy_site("site", many("one")).await;
    let files = json!([{"path": "index.html", "data": "a small page that gets damaged"}]);
    node.deploy_site("small", files).await;
    node.stop();

    // One byte of a small content, and the file of a large one.
    let blobs = node.home.data().join("blobs");
    let large_file = files_in(&blobs.join("files")).remove(0);
    assert!(fs::metadata(&large_file).unwrap().len() >= LARGE_BYTES as u64);
    fs::rename(&large_file, blobs.join("elsewhere")).unwrap();
    let needle = b"a small page that gets damaged";
    let find = |path: &PathBuf| {
        let content = fs::read(path).unwrap();
        let at = content
            .windows(needle.len())
            .position(|part| part == needle);
        at.map(|at| (path.clone(), at as u64))
    };
    let (pack, at) = files_in(&blobs.join("packs"))
        .iter()
        .find_map(find)
        .unwrap();
    let pack = OpenOptions::new().write(true).open(pack).unwrap();
    pack.write_all_at(b"A", at).unwrap();
    node.start(None);

    let run = |options: &[&str]| run(migrate(&node.home, &bucket, &bucket.endpoint, options));
    for options in [&[][..], &["--finish"]] {
        let refused = run(options);
        refused.assert(3).assert_says("2 files missing or damaged");
        let listed = refused.stdout.lines();
        let listed = listed.filter(|line| line.starts_with("damaged  ")).count();
        assert_eq!(listed, 2, "{refused:?}");
    }
    // Nothing was switched.
    let files = json!([{"path": "index.html", "data": "deployed after the refusal"}]);
    node.deploy_site("other", files).await;
    // What was found again is copied.
    fs::rename(blobs.join("elsewhere"), large_file).unwrap();
    let accepted = run(&["--finish", "--accept-damaged"]);
    accepted
        .assert(3)
        .assert_says("1 file missing or damaged")
        .assert_says("restart every server");
    let token = node.token();
    node.stop();
    let home = std::mem::replace(&mut node.home, Home::new());
    node.home = bucket.configure(home, &bucket.endpoint);
    node.start(Some(&token));
    assert_many(&node, "one").await;
    node.await_content("other", "/", "deployed after the refusal")
        .await;

    // Nobody else moves in, and no one finds an empty bucket in place of files.
    let other = Home::new();
    let server = Server::start(&other);
    server.create_project("site").await;
    let refused = run_other(&other, &bucket, &[]);
    refused.assert(2).assert_says("another installation");
    server.stop();
    node.stop();
    let empty = Bucket::of_test();
    let home = std::mem::replace(&mut node.home, Home::new());
    node.home = empty.configure(home, &empty.endpoint);
    let refused = node.home.fail_to_serve();
    refused.assert(2).assert_says("estrade blobs migrate");
}

fn run_other(home: &Home, bucket: &Bucket, options: &[&str]) -> Ran {
    run(migrate(home, bucket, &bucket.endpoint, options))
}
