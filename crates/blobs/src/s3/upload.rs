//! Putting spool files into the bucket: short ones as one request, long ones in parts.

use std::io::{self, SeekFrom};
use std::path::Path as FilePath;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{Attributes, MultipartId, PutMultipartOptions, PutPayload};
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use super::client::{Client, checksum_attributes, upload_timeout};
use super::failure::Failure;

/// What is longer is put in parts.
const MAX_SINGLE_BYTES: u64 = 64 << 20;
const PART_BYTES: u64 = 16 << 20;
/// A server takes at most 10,000 of them.
const MAX_PARTS: u64 = 10_000;
const PARALLEL_PARTS: usize = 4;

/// A file that is complete, and what its bytes hash to.
#[derive(Clone, Debug)]
pub(super) struct Spooled<'f> {
    pub(super) path: &'f FilePath,
    pub(super) length: u64,
    pub(super) hash: blake3::Hash,
}

/// Puts a file; `stopped` is looked at between its parts, because another file of the same release failed.
pub(super) async fn put(
    client: &Client,
    key: &Path,
    file: &Spooled<'_>,
    stopped: &AtomicBool,
) -> Result<(), Failure> {
    let attributes = checksum_attributes(&file.hash);
    if file.length > MAX_SINGLE_BYTES {
        return put_in_parts(client, key, file, attributes, stopped).await;
    }
    let _permit = client.body_permit(file.length).await?;
    check_stopped(stopped)?;
    let body = read_part(file.path, 0, file.length).await?;
    client.put(key, body, &attributes).await
}

/// Parts of an upload that is not completed take room that no listing shows: so it is aborted when it fails. One that
/// a crash left is removed by the bucket, if it has a rule for that.
async fn put_in_parts(
    client: &Client,
    key: &Path,
    file: &Spooled<'_>,
    attributes: Attributes,
    stopped: &AtomicBool,
) -> Result<(), Failure> {
    let begin = || async {
        let options = PutMultipartOptions::from(attributes.clone());
        Ok(client.s3.create_multipart_opts(key, options).await?)
    };
    let upload = client.retry(upload_timeout(0), begin).await?;
    let outcome = put_parts(client, key, &upload, file, stopped).await;
    if outcome.is_err() {
        let abort = || async { Ok(client.s3.abort_multipart(key, &upload).await?) };
        if let Err(failure) = client.retry(upload_timeout(0), abort).await {
            tracing::warn!(%key, ?failure, "left an incomplete upload in the bucket");
        }
    }
    outcome
}

async fn put_parts(
    client: &Client,
    key: &Path,
    upload: &MultipartId,
    file: &Spooled<'_>,
    stopped: &AtomicBool,
) -> Result<(), Failure> {
    let part_bytes = PART_BYTES.max(file.length.div_ceil(MAX_PARTS));
    let starts = (0..file.length.div_ceil(part_bytes)).map(|index| index * part_bytes);
    let put = |(index, start): (usize, u64)| async move {
        let length = part_bytes.min(file.length - start);
        let _permit = client.body_permit(length).await?;
        check_stopped(stopped)?;
        let body = read_part(file.path, start, length).await?;
        put_part(client, key, upload, index, body)
            .await
            .inspect_err(|_| stopped.store(true, Ordering::Relaxed))
    };
    let parts: Vec<Result<PartId, Failure>> = stream::iter(starts.enumerate())
        .map(put)
        .buffered(PARALLEL_PARTS)
        .collect()
        .await;
    let parts = parts.into_iter().collect::<Result<Vec<_>, _>>()?;
    complete(client, key, upload, file.length, parts).await
}

async fn put_part(
    client: &Client,
    key: &Path,
    upload: &MultipartId,
    index: usize,
    body: Bytes,
) -> Result<PartId, Failure> {
    let request = || async {
        let payload = PutPayload::from(body.clone());
        Ok(client.s3.put_part(key, upload, index, payload).await?)
    };
    let limit = upload_timeout(body.len() as u64);
    match client.retry(limit, request).await {
        Err(Failure::Missing) => Err(lost_upload()),
        outcome => outcome,
    }
}

/// When the answer of a completion that succeeded gets lost, the next attempt finds no upload any more, but the
/// object.
async fn complete(
    client: &Client,
    key: &Path,
    upload: &MultipartId,
    length: u64,
    parts: Vec<PartId>,
) -> Result<(), Failure> {
    let request = || async {
        let parts = parts.clone();
        client.s3.complete_multipart(key, upload, parts).await?;
        Ok(())
    };
    match client.retry(upload_timeout(length), request).await {
        Err(Failure::Missing) => match client.length(key).await {
            Ok(found) if found == length => Ok(()),
            Ok(_) | Err(Failure::Missing) => Err(lost_upload()),
            Err(failure) => Err(failure),
        },
        outcome => outcome,
    }
}

fn lost_upload() -> Failure {
    Failure::transient("it lost the parts of an upload")
}

fn check_stopped(stopped: &AtomicBool) -> Result<(), Failure> {
    if stopped.load(Ordering::Relaxed) {
        return Err(Failure::transient("another part could not be put"));
    }
    Ok(())
}

async fn read_part(path: &FilePath, start: u64, length: u64) -> io::Result<Bytes> {
    let mut file = tokio::fs::File::open(path).await?;
    file.set_max_buf_size(1 << 20);
    file.seek(SeekFrom::Start(start)).await?;
    let mut body = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.read_exact(&mut body).await?;
    Ok(body.into())
}
