//! What a staging puts, and how it gets into the cache of the node that put it.

use std::fs::{self, File};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use tempfile::TempPath;

use super::S3Storage;
use super::cache::{Cache, hash_file};
use super::client::{Client, checksum_attributes};
use super::failure::Failure;
use super::upload::{self, Spooled};
use crate::ObjectId;

/// How many files of one staging are put at a time; all stagings together share the permits of the [`Client`].
const PARALLEL_FILES: usize = 8;

/// A file on its way to the bucket.
struct OnTheWay {
    id: ObjectId,
    file: TempPath,
    hash: blake3::Hash,
    length: u64,
}

impl S3Storage {
    /// Puts sealed spool files, and moves them into the cache.
    pub(super) fn put_files(&self, objects: Vec<(ObjectId, TempPath)>) -> Result<(), Failure> {
        let mut files = Vec::with_capacity(objects.len());
        for (id, file) in objects {
            let (hash, length) = hash_file(&File::open(&file)?)?;
            files.push(OnTheWay {
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
        for put in self.request(put)? {
            keep(&self.cache, put.id, put.hash, put.length, Ok(put.file));
        }
        Ok(())
    }

    /// Puts a pack that several stagings share.
    pub(super) fn put_shared(&self, id: ObjectId, body: Bytes) -> Result<(), Failure> {
        let (hash, sent) = (blake3::hash(&body), body.clone());
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
        self.request(put)?;
        let file = self.cache.create_temporary().and_then(|file| {
            fs::write(&file, &body)?;
            Ok(file.into_temp_path())
        });
        keep(&self.cache, id, hash, body.len() as u64, file);
        Ok(())
    }
}

/// After a failure what has begun is ended, so that no upload in parts stays behind, and nothing else begins.
async fn put_all(client: &Client, files: &[OnTheWay]) -> Result<(), Failure> {
    let stopped = AtomicBool::new(false);
    let puts: Vec<_> = files
        .iter()
        .map(|it| put_one(client, it, &stopped))
        .collect();
    let failed = stream::iter(puts)
        .buffer_unordered(PARALLEL_FILES)
        .filter_map(async |outcome| outcome.err())
        .collect::<Vec<_>>()
        .await;
    // The first one is the cause of the others.
    failed.into_iter().next().map_or(Ok(()), Err)
}

async fn put_one(client: &Client, it: &OnTheWay, stopped: &AtomicBool) -> Result<(), Failure> {
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
