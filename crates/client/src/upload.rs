//! Sends contents that the server does not have, several at once, each within constant memory.

use crate::error::{ClientError, Result};
use crate::folder::FolderFile;
use crate::http::Client;
use crate::url::segment;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use reqwest::header::{self, HeaderValue};
use reqwest::{Body, Method};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio_util::io::ReaderStream;

/// How many contents are on their way at once.
const PARALLEL_UPLOADS: usize = 8;
/// Up to this size a content is read whole, so that it needs no framing of its own.
const MAX_WHOLE_BYTES: u64 = 256 << 10;
const STREAM_BUFFER: usize = 64 << 10;
/// A connection that is slower than this has stalled.
const MIN_BYTES_PER_SECOND: u64 = 8 << 10;
const BASE_TIMEOUT: Duration = Duration::from_mins(1);
const MAX_ATTEMPTS: u32 = 4;
const RETRY_DELAY: Duration = Duration::from_millis(300);

/// A file and its hash.
#[derive(Debug, Clone)]
pub struct Content {
    pub file: FolderFile,
    pub digest: String,
}

/// Is told how many bytes went out; less than nothing when some have to be sent again.
pub type SentBytes = Arc<dyn Fn(i64) + Send + Sync>;

/// Sends all of them.
pub async fn send_contents(
    client: &Client,
    project: &str,
    contents: Vec<Content>,
    sent: &SentBytes,
) -> Result<()> {
    let project = segment(project)?;
    let project = project.as_str();
    stream::iter(contents.into_iter().map(Ok))
        .try_for_each_concurrent(PARALLEL_UPLOADS, |content| async move {
            send_content(client, project, &content, sent).await
        })
        .await
}

async fn send_content(
    client: &Client,
    project: &str,
    content: &Content,
    sent: &SentBytes,
) -> Result<()> {
    let mut attempt = 1;
    loop {
        let count = Arc::new(AtomicI64::new(0));
        let (total, report) = (Arc::clone(&count), Arc::clone(sent));
        let report_attempt: SentBytes = Arc::new(move |bytes| {
            total.fetch_add(bytes, Ordering::Relaxed);
            report(bytes);
        });
        let error = match send_once(client, project, content, report_attempt).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        sent(-count.load(Ordering::Relaxed));
        if error.has_code("digest_mismatch") || has_other_size(&content.file).await {
            return Err(ClientError::Failed(format!(
                "{} changed while it was sent; deploy again when nothing writes to the folder",
                content.file.path
            )));
        }
        if attempt == MAX_ATTEMPTS || !error.may_pass() {
            return Err(error);
        }
        tokio::time::sleep(RETRY_DELAY * attempt).await;
        attempt += 1;
    }
}

/// A file that grew or shrank breaks its upload off; the connection is not to blame.
async fn has_other_size(file: &FolderFile) -> bool {
    let found = tokio::fs::metadata(&file.source).await;
    found.is_ok_and(|found| found.len() != file.size)
}

async fn send_once(
    client: &Client,
    project: &str,
    content: &Content,
    sent: SentBytes,
) -> Result<()> {
    let path = format!("/v2/projects/{project}/blobs/{}", segment(&content.digest)?);
    let size = content.file.size;
    let request = client
        .request(Method::PUT, &path)
        .header(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/octet-stream"),
        )
        .timeout(Some(
            BASE_TIMEOUT + Duration::from_secs(size / MIN_BYTES_PER_SECOND),
        ));
    let source = &content.file.source;
    let file = tokio::fs::File::open(source)
        .await
        .map_err(ClientError::file(source))?;
    // What was written to it since its size was read is not sent.
    let mut file = file.take(size);
    if size <= MAX_WHOLE_BYTES {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)
            .await
            .map_err(ClientError::file(source))?;
        let length = bytes.len() as u64;
        request
            .send_streamed(Body::from(Bytes::from(bytes)))
            .await?;
        sent(as_count(length));
        return Ok(());
    }
    let stream = ReaderStream::with_capacity(file, STREAM_BUFFER).inspect(move |piece| {
        if let Ok(piece) = piece {
            sent(as_count(piece.len() as u64));
        }
    });
    let request = request.header(header::CONTENT_LENGTH, HeaderValue::from(size));
    request.send_streamed(Body::wrap_stream(stream)).await?;
    Ok(())
}

fn as_count(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
