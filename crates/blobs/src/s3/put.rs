//! What a staging puts, and how it gets into the cache of the node that put it.

use std::fs::{self, File};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use tempfile::TempPath;

use super::blocking::BlockingClient;
use super::cache::{Cache, hash_file};
use super::client::{Client, checksum_attributes};
use super::failure::Failure;
use super::upload::{self, Spooled};
use crate::ObjectId;

/// How many files of one staging are put at a time; all stagings together share the permits of the [`Client`].
const PARALLEL_FILES: usize = 8;

/// A file that is about to be put.
struct PendingFile {
    id: ObjectId,
    file: TempPath,
    hash: blake3::Hash,
    length: u64,
}

/// Puts sealed spool files, and moves them into the cache.
pub(super) fn put_files(
    client: &BlockingClient,
    cache: &Cache,
    objects: Vec<(ObjectId, TempPath)>,
) -> Result<(), Failure> {
    let mut files = Vec::with_capacity(objects.len());
    for (id, file) in objects {
        let (hash, length) = hash_file(&File::open(&file)?)?;
        files.push(PendingFile {
            id,
            file,
            hash,
            length,
        });
    }
    let put = |client: Arc<Client>| async move {
        put_all(&client, &files).await?;
        Ok(files)
    };
    for put in client.request(put)? {
        keep(cache, put.id, put.hash, put.length, Ok(put.file));
    }
    Ok(())
}

/// Puts a pack that several stagings share.
pub(super) fn put_shared(
    client: &BlockingClient,
    cache: &Cache,
    id: ObjectId,
    body: &Bytes,
) -> Result<(), Failure> {
    let (hash, sent) = (blake3::hash(body), body.clone());
    let put = |client: Arc<Client>| async move {
        let _permit = client.body_permit(sent.len() as u64).await?;
        let key = client.names.object(id);
        let outcome = client.put(&key, sent, &checksum_attributes(&hash)).await;
        if outcome.is_err() {
            // It may be there all the same, and no staging will name it.
            let _ = client.delete(&key).await;
        }
        outcome
    };
    client.request(put)?;
    let file = cache.create_temporary().and_then(|file| {
        fs::write(&file, body)?;
        Ok(file.into_temp_path())
    });
    keep(cache, id, hash, body.len() as u64, file);
    Ok(())
}

/// After a failure what has begun is ended, so that no upload in parts stays behind, and nothing else begins.
async fn put_all(client: &Client, files: &[PendingFile]) -> Result<(), Failure> {
    let stopped = AtomicBool::new(false);
    let puts: Vec<_> = files
        .iter()
        .map(|it| put_one(client, it, &stopped))
        .collect();
    let outcomes: Vec<_> = stream::iter(puts)
        .buffer_unordered(PARALLEL_FILES)
        .collect()
        .await;
    // The first failure is the cause of the others.
    outcomes.into_iter().collect()
}

async fn put_one(client: &Client, it: &PendingFile, stopped: &AtomicBool) -> Result<(), Failure> {
    if stopped.load(Ordering::Relaxed) {
        return Ok(());
    }
    let file = Spooled {
        path: &it.file,
        length: it.length,
        hash: it.hash,
    };
    upload::put(client, &client.names.object(it.id), &file, stopped)
        .await
        .inspect_err(|_| stopped.store(true, Ordering::Relaxed))
}

/// What is in the bucket is stored, whether the cache has it or not.
fn keep(cache: &Cache, id: ObjectId, hash: blake3::Hash, size: u64, file: io::Result<TempPath>) {
    let kept = file.and_then(|file| {
        let reservation = cache.reserve(size);
        cache.insert(id, &hash, file, reservation)
    });
    if let Err(error) = kept {
        tracing::warn!(object = %id, %error, "cannot cache what was stored");
    }
}
