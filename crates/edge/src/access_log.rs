//! The access log: one line of JSON per request, written in batches, without delaying requests.
//!
//! Each serving thread writes into a buffer of its own; a task empties the buffers into the file.
//! When the disk cannot keep up, lines are dropped and counted: a log must not stop the service.

use crate::static_files::request::StaticRequest;
use estrade_http1::DateCache;
use estrade_model::Timestamp;
use estrade_model::sync::MutexExt;
use futures_util::future::BoxFuture;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How often lines reach the file while there are any.
const FLUSH_INTERVAL: Duration = Duration::from_millis(50);
/// Bytes that wait per thread at most.
const MAX_BUFFERED_BYTES: usize = 4 << 20;
/// Room that is kept for the next lines.
const MAX_SPARE_BYTES: usize = 1 << 20;
/// A file that is larger than this is put aside…
const MAX_FILE_BYTES: u64 = 64 << 20;
/// …and so many of those are kept.
const MAX_ROTATED_FILES: u32 = 4;
/// Longest part of a header or path that is kept.
const MAX_TEXT_BYTES: usize = 1024;

/// Where requests are noted. Without a file nothing is.
pub struct AccessLog {
    file: Option<PathBuf>,
    buffers: Box<[Mutex<Vec<u8>>]>,
    /// An empty buffer with room, for the next exchange.
    spare: Mutex<Vec<u8>>,
    dropped: AtomicU64,
    /// Notified when a thread's buffer gets its first line.
    some: Notify,
}

/// One request with its response.
pub struct LogEntry<'n> {
    pub request: &'n StaticRequest<'n>,
    /// Which project it was for.
    pub project: Option<&'n str>,
    pub client: &'n str,
    /// The status of the response.
    pub status: u16,
    /// How long its body was.
    pub bytes: u64,
    /// How long it took.
    pub duration: Duration,
}

impl AccessLog {
    /// For so many threads, into this file.
    pub fn new(file: Option<PathBuf>, threads: usize) -> Self {
        Self {
            file,
            buffers: (0..threads.max(1)).map(|_| Mutex::default()).collect(),
            spare: Mutex::default(),
            dropped: AtomicU64::new(0),
            some: Notify::new(),
        }
    }

    /// Records a request that this thread has served.
    pub fn record(&self, thread: usize, date: &DateCache, now: Timestamp, entry: &LogEntry<'_>) {
        if self.file.is_none() {
            return;
        }
        let buffer = &self.buffers[thread % self.buffers.len()];
        let mut buffer = buffer.lock_ignoring_poison();
        if buffer.len() > MAX_BUFFERED_BYTES {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let first = buffer.is_empty();
        write_line(&mut buffer, date, now, entry);
        drop(buffer);
        if first {
            self.some.notify_one();
        }
    }

    /// Writes lines to the file until `stop`, and those that are left then.
    pub fn run(self: Arc<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let Some(path) = self.file.clone() else {
                return;
            };
            let mut failing = false;
            loop {
                let lines = async {
                    // Without lines nothing wakes up; the first one waits for others.
                    self.some.notified().await;
                    tokio::time::sleep(FLUSH_INTERVAL).await;
                };
                let stopped = stop.run_until_cancelled(lines).await.is_none();
                if !stopped && !self.has_lines() {
                    continue;
                }
                let (log, path) = (Arc::clone(&self), path.clone());
                let written = tokio::task::spawn_blocking(move || log.flush(&path)).await;
                let Ok(written) = written else { return };
                if let Err(error) = &written {
                    if !failing {
                        tracing::warn!(%error, "cannot write the access log");
                    }
                    // Other threads may still have lines, and tell only of their first.
                    self.some.notify_one();
                }
                failing = written.is_err();
                if stopped {
                    return;
                }
            }
        })
    }

    fn has_lines(&self) -> bool {
        let is_empty = |buffer: &Mutex<Vec<u8>>| {
            let buffer = buffer.lock_ignoring_poison();
            buffer.is_empty()
        };
        !self.buffers.iter().all(is_empty)
    }

    fn flush(&self, path: &Path) -> io::Result<()> {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            tracing::warn!(
                dropped,
                "the disk is too slow for the access log: lines are missing"
            );
        }
        let mut file = None;
        // Room goes back and forth, so that a busy thread does not grow its buffer anew each time.
        let mut spare = self.spare.lock_ignoring_poison();
        for buffer in &self.buffers {
            let waiting = || buffer.lock_ignoring_poison();
            spare.clear();
            std::mem::swap(&mut *waiting(), &mut *spare);
            if !spare.is_empty() {
                let file = match &mut file {
                    Some(file) => file,
                    none => none.insert(open(path)?),
                };
                file.write_all(&spare)?;
            }
        }
        spare.clear();
        spare.shrink_to(MAX_SPARE_BYTES);
        match file {
            Some(file) if file.metadata()?.len() > MAX_FILE_BYTES => rotate(path),
            _ => Ok(()),
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    if let Some(directory) = path.parent() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
}

/// `access.log` becomes `access.log.1`, that one `access.log.2`, and the oldest goes.
fn rotate(path: &Path) -> io::Result<()> {
    let aside = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    for number in (1..MAX_ROTATED_FILES).rev() {
        match fs::rename(aside(number), aside(number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::rename(path, aside(1))
}

fn write_line(out: &mut Vec<u8>, date: &DateCache, now: Timestamp, entry: &LogEntry<'_>) {
    let LogEntry {
        request,
        project,
        client,
        status,
        bytes,
        duration,
    } = entry;
    let mut number = itoa::Buffer::new();
    let mut put = |name: &str, value: u64| {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(number.format(value).as_bytes());
    };
    put("{\"status\":", (*status).into());
    put(",\"bytes\":", *bytes);
    put(
        ",\"us\":",
        u64::try_from(duration.as_micros()).unwrap_or(u64::MAX),
    );
    let millis = u16::try_from(now.millis().rem_euclid(1000)).unwrap_or_default();
    let digit = |value: u16| b'0' + u8::try_from(value % 10).unwrap_or_default();
    out.extend_from_slice(b",\"time\":\"");
    out.extend_from_slice(date.iso_seconds().as_bytes());
    out.extend_from_slice(&[b'.', digit(millis / 100), digit(millis / 10), digit(millis)]);
    out.extend_from_slice(b"Z\"");
    let headers = &request.headers;
    for (name, value) in [
        ("method", Some(request.verb)),
        ("client", Some(*client)),
        ("project", *project),
        ("host", Some(request.host)),
        ("path", Some(request.path)),
        ("query", request.query),
        ("agent", headers.user_agent.as_deref()),
        ("referer", headers.referer.as_deref()),
    ] {
        if let Some(value) = value {
            out.extend_from_slice(b",\"");
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":\"");
            write_text(out, value);
            out.push(b'"');
        }
    }
    out.extend_from_slice(b"}\n");
}

/// A text inside JSON quotes.
fn write_text(out: &mut Vec<u8>, text: &str) {
    let text = &text[..text.floor_char_boundary(MAX_TEXT_BYTES)];
    let special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
    if !text.as_bytes().iter().any(special) {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0..=0x1f => {
                // Writing into memory does not fail.
                let _ = write!(out, "\\u{byte:04x}");
            }
            _ => out.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::static_files::request::{Headers, Method};

    #[test]
    fn a_line_is_json_whatever_the_client_sends() {
        let mut headers = Headers::default();
        headers.add("user-agent", "x\"\\\u{1}é");
        let request = StaticRequest {
            method: Method::Get,
            verb: "GET",
            secure: false,
            host: "a.localhost",
            path: "/p\"",
            query: None,
            headers,
        };
        let mut date = DateCache::default();
        let now = Timestamp::from_millis(1_700_000_000_007);
        date.update(now);
        let mut out = Vec::new();
        let entry = LogEntry {
            request: &request,
            project: Some("a"),
            client: "127.0.0.1",
            status: 200,
            bytes: 5,
            duration: Duration::from_micros(42),
        };
        write_line(&mut out, &date, now, &entry);
        let line: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(line["time"], "2023-11-14T22:13:20.007Z");
        assert_eq!(line["agent"], "x\"\\\u{1}é");
        assert_eq!(
            (&line["path"], &line["us"], &line["project"]),
            (&"/p\"".into(), &42.into(), &"a".into())
        );
        assert_eq!(
            out.iter().position(|byte| *byte == b'\n'),
            Some(out.len() - 1)
        );
    }
}
