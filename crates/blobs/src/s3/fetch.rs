//! Fetching whole objects into the cache.

use std::io::ErrorKind;
use std::time::Duration;

use futures_util::StreamExt;
use object_store::GetResult;
use tokio::fs::File;
use tokio::io::{AsyncWriteExt, BufWriter};
use tokio::time::{sleep, timeout};

use super::cache::Cache;
use super::client::{Client, checksum};
use super::failure::Failure;
use super::flights::Fetched;
use crate::ObjectId;

/// Between two pieces of an object.
const PIECE_TIMEOUT: Duration = Duration::from_secs(10);
const WRITE_BUFFER_BYTES: usize = 1 << 20;

/// An object whose transfer broke off, or that arrived damaged, is fetched again, this often at most.
const MAX_ATTEMPTS: u32 = 3;
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Fetches an object and compares it with the hash that was put with it.
pub(super) async fn fetch(
    client: &Client,
    cache: &Cache,
    id: ObjectId,
) -> Result<Fetched, Failure> {
    cache.count_miss();
    let _permit = client.read_permit().await?;
    let mut attempt = 1;
    loop {
        let failure = match fetch_once(client, cache, id).await {
            Ok(fetched) => return Ok(fetched),
            Err(failure) => failure,
        };
        if matches!(failure, Failure::Local(ErrorKind::StorageFull, _)) && cache.shrink() {
            continue;
        }
        let may_pass = failure.is_transient() || matches!(failure, Failure::Damaged);
        if attempt == MAX_ATTEMPTS || !may_pass || client.is_out() {
            return Err(failure);
        }
        sleep(RETRY_DELAY.mul_f64(fastrand::f64()) * attempt).await;
        attempt += 1;
    }
}

async fn fetch_once(client: &Client, cache: &Cache, id: ObjectId) -> Result<Fetched, Failure> {
    let object = client.get(&client.names.object(id)).await?;
    let Some(expected) = checksum(&object.attributes) else {
        tracing::error!(object = %id, "an object of the bucket has lost its checksum");
        return Err(Failure::Damaged);
    };
    let size = object.meta.size;
    let reservation = cache.reserve(size);
    let temporary = cache.create_temporary()?;
    let file = File::from_std(temporary.reopen()?);
    if receive(object, file).await? != (expected, size) {
        return Err(Failure::Damaged);
    }
    let file = temporary.into_temp_path();
    Ok(cache.insert(id, &expected, file, reservation)?)
}

/// Writes an object to a file; returns what it hashes to, and its length.
async fn receive(object: GetResult, file: File) -> Result<(blake3::Hash, u64), Failure> {
    let mut file = BufWriter::with_capacity(WRITE_BUFFER_BYTES, file);
    let mut hasher = blake3::Hasher::new();
    let mut pieces = object.into_stream();
    loop {
        let piece = timeout(PIECE_TIMEOUT, pieces.next()).await;
        let Some(piece) = piece.map_err(|_| Failure::timeout())? else {
            break;
        };
        let piece = piece?;
        hasher.update(&piece);
        file.write_all(&piece).await?;
    }
    file.flush().await?;
    Ok((hasher.finalize(), hasher.count()))
}
