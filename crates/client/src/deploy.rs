//! Makes a release of a folder: the server is told the hashes of all files, and sent what it does not have.

use crate::error::{ClientError, Refusal, Result};
use crate::folder::Folder;
use crate::http::{Client, new_idempotency_key};
use crate::server_info::Limits;
use crate::upload::{Content, SentBytes, send_contents};
use crate::url::segment;
use crate::wire::ReleaseCreated;
use reqwest::Method;
use serde::Serialize;
use std::collections::HashMap;
use std::time::Duration;

/// How often the server is told of the files. Between two rounds contents can be missing again that were there, when
/// garbage collection removed them meanwhile.
const MAX_ROUNDS: u32 = 4;
/// The server writes the manifest of a large folder before it answers.
const CREATE_TIMEOUT: Duration = Duration::from_mins(5);

/// What a release says besides its files.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ReleaseOptions {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Serialize)]
struct ReleaseRequest<'r> {
    files: Vec<FileEntry<'r>>,
    #[serde(flatten)]
    options: &'r ReleaseOptions,
}

#[derive(Serialize)]
struct FileEntry<'r> {
    path: &'r str,
    digest: &'r str,
    size: u64,
}

/// Refuses what the server would refuse, before anything is sent.
pub fn check_limits(folder: &Folder, limits: Limits) -> Result<()> {
    let refused = |reason: String| Err(ClientError::Usage(reason));
    let (files, bytes) = (folder.files.len() as u64, folder.bytes());
    if files == 0 {
        return refused(
            "there is nothing to deploy: the folder is empty, or everything in it is ignored"
                .to_owned(),
        );
    }
    if limits.release_files != 0 && files > limits.release_files {
        return refused(format!(
            "the folder has {files} files, and this server takes {} in a release; name what it can do without in .estradeignore",
            limits.release_files
        ));
    }
    if limits.release_bytes != 0 && bytes > limits.release_bytes {
        return refused(format!(
            "the folder has {bytes} bytes, and this server takes {} in a release; name what it can do without in .estradeignore",
            limits.release_bytes
        ));
    }
    Ok(())
}

/// What is told while a release is made.
pub trait SendProgress: Send + Sync {
    /// The server is asked for the release: it may make one until [`Self::answered`], and also when that does not come.
    fn asked(&self);
    /// The server has made the release, or has refused to for good. Not after a failure that leaves open whether it did.
    fn answered(&self, release: Option<&str>);
    /// So many contents are missing, of so many bytes together; called once per round.
    fn begin(&self, contents: usize, bytes: u64);
    /// Counts the bytes that are sent.
    fn sent_bytes(&self) -> SentBytes;
}

/// Creates the release and returns its id. All rounds carry one idempotency key: a lost response does not make a
/// second release, because the server stores what it answered to the first.
pub async fn create_release(
    client: &Client,
    project: &str,
    folder: &Folder,
    digests: &[String],
    options: &ReleaseOptions,
    progress: &dyn SendProgress,
) -> Result<String> {
    let path = format!("/v2/projects/{}/releases", segment(project)?);
    let files = folder.files.iter().zip(digests);
    let files = files.map(|(file, digest)| FileEntry {
        path: &file.path,
        digest,
        size: file.size,
    });
    let body = ReleaseRequest {
        files: files.collect(),
        options,
    };
    let request = client
        .request(Method::POST, &path)
        .idempotency_key(&new_idempotency_key())
        .timeout(Some(CREATE_TIMEOUT))
        .body(&body)?;
    for _ in 0..MAX_ROUNDS {
        progress.asked();
        let missing = match request.clone().json::<ReleaseCreated>().await {
            Ok(created) => {
                progress.answered(Some(&created.release));
                // Whoever waits for the answer, to stop everything then, gets to do so before anything else is done.
                tokio::task::yield_now().await;
                return Ok(created.release);
            }
            Err(ClientError::Refused(refusal)) => {
                let is_missing_files = refusal.code == "missing_files";
                if is_missing_files || is_final(&refusal) {
                    progress.answered(None);
                    tokio::task::yield_now().await;
                }
                if !is_missing_files {
                    return Err(ClientError::Refused(refusal));
                }
                refusal.missing
            }
            Err(error) => return Err(error),
        };
        let by_digest: HashMap<_, _> = digests.iter().zip(&folder.files).collect();
        let contents = missing.into_iter().map(|missing| {
            let file = by_digest
                .get(&missing.digest)
                .ok_or_else(|| ClientError::Malformed {
                    url: client.server().to_owned(),
                    reason: "it misses a content that was not announced".to_owned(),
                })?;
            Ok(Content {
                file: (*file).clone(),
                digest: missing.digest,
            })
        });
        let contents = contents.collect::<Result<Vec<_>>>()?;
        let bytes = contents.iter().map(|content| content.file.size).sum();
        progress.begin(contents.len(), bytes);
        send_contents(client, project, contents, &progress.sent_bytes()).await?;
    }
    Err(ClientError::Failed(
        "the server still misses files; deploy again in a moment".to_owned(),
    ))
}

/// Whether no release was made, nor will be by this request. A 5xx leaves that open, and so does one that says when to
/// try again: an earlier attempt may still be carried out.
fn is_final(refusal: &Refusal) -> bool {
    (400..500).contains(&refusal.status) && !refusal.has_retry_after
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::FolderFile;

    #[test]
    fn a_folder_over_the_limit_is_refused() {
        let file = |size| FolderFile {
            path: "a".to_owned(),
            source: "a".into(),
            size,
            modified: None,
        };
        let folder = |sizes: &[u64]| Folder {
            files: sizes.iter().copied().map(file).collect(),
            skipped: Vec::new(),
        };
        let limits = |release_bytes, release_files| Limits {
            release_bytes,
            release_files,
        };
        assert!(check_limits(&folder(&[5, 5]), limits(10, 2)).is_ok());
        assert!(check_limits(&folder(&[5, 5]), limits(0, 0)).is_ok());
        for (sizes, limits, says) in [
            (&[][..], limits(10, 2), "nothing to deploy"),
            (&[5, 6], limits(10, 2), "11 bytes"),
            (&[1, 1, 1], limits(10, 2), "3 files"),
        ] {
            let refused = check_limits(&folder(sizes), limits)
                .unwrap_err()
                .to_string();
            assert!(refused.contains(says), "{refused}");
        }
    }
}
