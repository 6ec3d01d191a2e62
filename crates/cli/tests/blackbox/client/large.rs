//! Folders as large as they get: 10,000 files and, with `./test --full`, 1 GiB, within the memory of a small one.

use super::scripted_server::{Reply, ScriptedServer};
use super::{Person, client_command, write_files};
use crate::support::{Home, Ran};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const FILES: usize = 10_000;
/// What a list of that many files may take, in KiB: their names, hashes and requests, ten times over.
const MAX_LIST_KIB: u64 = 24 << 10;
/// What sending any file may take besides, in KiB: buffers of a few uploads.
const MAX_SEND_KIB: u64 = 8 << 10;

fn is_full() -> bool {
    std::env::var_os("ESTRADE_TEST_FULL").is_some_and(|value| value == "1")
}

/// Runs a command to its end; the most memory that it had, in KiB. What it had in its last millisecond is not seen.
fn peak_of(mut command: Command) -> (Ran, u64) {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = child.spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let ended = std::thread::spawn(move || child.wait_with_output().unwrap());
    let mut peak = 0;
    while !ended.is_finished() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        peak = peak.max(kib.map_or(0, |kib| kib.parse().unwrap()));
        std::thread::sleep(Duration::from_millis(1));
    }
    (Ran::of(&ended.join().unwrap()), peak)
}

/// A server that takes these folders, and how much memory a deploy of one small file needs there.
fn person() -> (Person, u64) {
    let home = Home::new()
        .with("ESTRADE_LIMITS_RELEASE_FILES", "20000")
        .with("ESTRADE_LIMITS_RELEASE_BYTES", (2_u64 << 30).to_string())
        .with("ESTRADE_LIMITS_REQUESTS_PER_SECOND", "0");
    let person = Person::with_server(home);
    person.create_project("large");
    write_files(person.home.path(), &[("small/index.html", "small")]);
    let (ran, peak) = peak_of(person.command(&["deploy", "small", "-p", "large"]));
    ran.assert(0);
    assert!(peak > 0, "its memory was not seen");
    (person, peak)
}

#[test]
fn ten_thousand_files_are_deployed_in_bounded_memory() {
    let (person, small) = person();
    // Each content that is sent costs the server a file; without --full ten files share one.
    let contents = if is_full() { FILES } else { FILES / 10 };
    write_many(&person.home.path().join("many"), FILES, contents);
    for sends in [true, false] {
        let (ran, peak) = peak_of(person.command(&["deploy", "many", "-p", "large"]));
        ran.assert(0);
        assert_eq!(
            ran.stderr.contains(&format!("sending {contents} files")),
            sends,
            "{ran:?}"
        );
        eprintln!("10,000 files: {peak} KiB, one file: {small} KiB");
        assert!(peak < small + MAX_LIST_KIB, "{peak} KiB after {small} KiB");
    }
    let release = person.json(&["projects", "show", "large"]);
    assert_eq!(release["project"]["isDeployed"], true, "{release}");
    person.server.stop();
}

#[test]
fn a_large_file_is_deployed_in_constant_memory() {
    let (person, small) = person();
    let mib = if is_full() { 1024 } else { 96 };
    let folder = person.home.path().join("heavy");
    std::fs::create_dir(&folder).unwrap();
    write_noise(&folder.join("video.bin"), mib);
    let (ran, peak) = peak_of(person.command(&["deploy", "heavy", "-p", "large"]));
    ran.assert(0).assert_says("sending 1 file");
    eprintln!("{mib} MiB: {peak} KiB, one small file: {small} KiB");
    assert!(peak < small + MAX_SEND_KIB, "{peak} KiB after {small} KiB");
    person.server.stop();
}

#[test]
fn what_the_server_does_not_take_is_not_even_read() {
    let server = ScriptedServer::start(|request| match request.line.as_str() {
        line if line.starts_with("GET /.well-known/estrade.json ") => Reply::json(
            200,
            r#"{"version":"1","ai":{"url":"http://127.0.0.1:1"},"limits":{"releaseBytes":1073741824,"releaseFiles":999}}"#,
        ),
        line if line.starts_with("GET /v1/projects/large") => Reply::json(
            200,
            r#"{"project":{"project_id":"large","type":"static","url":"http://large.localhost"}}"#,
        ),
        _ => Reply::status(500),
    });
    let home = Home::new();
    write_many(&home.path().join("many"), 1000, 1);
    // A hole in a file takes no disk; a terabyte of it takes longer to hash than any test.
    let heavy = home.path().join("heavy");
    std::fs::create_dir(&heavy).unwrap();
    let sparse = File::create(heavy.join("hole.bin")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    for (folder, says) in [
        (
            "many",
            "the folder has 1000 files, and this server takes 999",
        ),
        ("heavy", "the folder has 1099511627776 bytes"),
    ] {
        let mut command = client_command(&home, &["deploy", folder, "-p", "large"]);
        command
            .env("ESTRADE_URL", server.url())
            .env("ESTRADE_TOKEN", "t");
        let ran = Ran::of(&command.output().unwrap());
        ran.assert(2).assert_says(says);
    }
    let requests = server.requests();
    let asked = requests.iter().map(|request| request.line.as_str());
    assert!(
        requests.len() == 4 && asked.clone().all(|line| line.starts_with("GET ")),
        "{:?}",
        asked.collect::<Vec<_>>()
    );
}

/// So many small files with so many different contents.
fn write_many(folder: &Path, files: usize, contents: usize) {
    for file in 0..files {
        let below = folder.join(format!("section-{}", file / 100));
        if file % 100 == 0 {
            std::fs::create_dir_all(&below).unwrap();
        }
        let text = format!("<p>content {}</p>", file % contents);
        std::fs::write(below.join(format!("page-{file}.html")), text).unwrap();
    }
}

/// A file that cannot be compressed.
fn write_noise(path: &Path, mib: usize) {
    let mut file = BufWriter::new(File::create(path).unwrap());
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..mib << 17 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        file.write_all(&state.to_le_bytes()).unwrap();
    }
    file.flush().unwrap();
}
