//! Going through all objects of the bucket, a page at a time. Each page is a request of its own that begins behind
//! the last key of the one before, so that it can be repeated.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};

use super::blocking::BlockingClient;
use super::failure::Failure;
use crate::ObjectEntry;

/// What a server puts in one answer.
const PAGE_KEYS: usize = 1000;
const PAGE_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct Listing<'s> {
    client: &'s BlockingClient,
    folders: VecDeque<Path>,
    /// The last key that was met in the first of the folders.
    after: Option<Path>,
    page: VecDeque<ObjectMeta>,
}

impl<'s> Listing<'s> {
    pub(super) fn new(client: &'s BlockingClient) -> Self {
        Self {
            folders: client.local().names.folders().into(),
            client,
            after: None,
            page: VecDeque::new(),
        }
    }

    fn next_page(&mut self, folder: Path) -> io::Result<()> {
        let after = self.after.take();
        let page = self.client.request(|client| async move {
            let request = || async {
                let keys = match &after {
                    Some(after) => client.s3.list_with_offset(Some(&folder), after),
                    None => client.s3.list(Some(&folder)),
                };
                let page: Vec<_> = keys.take(PAGE_KEYS).try_collect().await?;
                Ok::<_, Failure>(page)
            };
            client.retry(PAGE_TIMEOUT, request).await
        })?;
        self.after = page.last().map(|last| last.location.clone());
        if page.len() < PAGE_KEYS {
            self.after = None;
            self.folders.pop_front();
        }
        self.page = page.into();
        Ok(())
    }
}

impl Iterator for Listing<'_> {
    type Item = io::Result<ObjectEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(object) = self.page.pop_front() {
                if let Some(id) = self.client.local().names.parse(&object.location) {
                    return Some(Ok(ObjectEntry {
                        id,
                        size: object.size,
                        written: self.client.local().local_time(object.last_modified),
                    }));
                }
                continue;
            }
            let folder = self.folders.front()?.clone();
            if let Err(error) = self.next_page(folder) {
                self.folders.clear();
                return Some(Err(error));
            }
        }
    }
}
