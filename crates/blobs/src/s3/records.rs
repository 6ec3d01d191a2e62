//! Records in the bucket. Not every server has conditional puts, and some ignore the condition: nothing here counts
//! on them.

use std::time::Duration;

use bytes::Bytes;
use object_store::Attributes;
use tokio::time::sleep;

use super::client::Client;
use super::failure::Failure;
use crate::storage::Record;

/// Longer than from another node's reading of a record that is not there to the end of its put, as a rule.
const SETTLE_DELAY: Duration = Duration::from_millis(500);

pub(super) async fn read(client: &Client, record: Record) -> Result<Option<Bytes>, Failure> {
    match client.get_small(&client.names.record(record)).await {
        Ok(content) => Ok(Some(content)),
        Err(Failure::Missing) => Ok(None),
        Err(failure) => Err(failure),
    }
}

pub(super) async fn replace(
    client: &Client,
    record: Record,
    content: Bytes,
) -> Result<(), Failure> {
    let _permit = client.body_permit(content.len() as u64).await?;
    let key = client.names.record(record);
    client.put(&key, content, &Attributes::new()).await
}

/// Read, write, wait, read back: of several who find nothing, all write, and the last one wins. Those who lost see it
/// unless they were slow; who does not see it learns of it from the next [`read`], which comes before anything is
/// removed.
pub(super) async fn create(
    client: &Client,
    record: Record,
    content: Bytes,
) -> Result<bool, Failure> {
    if read(client, record).await?.is_some() {
        return Ok(false);
    }
    replace(client, record, content.clone()).await?;
    sleep(SETTLE_DELAY).await;
    Ok(read(client, record).await?.as_ref() == Some(&content))
}
