//! Lines that nobody wrote, in blocks as the keeper makes them.

use estrade_model::{ProjectId, ReleaseId};
use estrade_service::Core;
use estrade_store::log_blocks::{NewLogBlock, insert_block};

pub(crate) const SECOND: i64 = 1_000_000_000;

pub(crate) fn release(digit: char) -> ReleaseId {
    digit.to_string().repeat(24).parse().unwrap()
}

/// Stores lines, each with its moment, as one block; false: the project is gone.
pub(crate) async fn store(
    core: &Core,
    project: ProjectId,
    release: ReleaseId,
    lines: &[(i64, &str)],
) -> bool {
    let (mut raw, mut previous) = (Vec::new(), 0);
    for (at, text) in lines {
        raw.extend((at - previous).to_be_bytes());
        raw.push(u8::from(text.starts_with('!')));
        raw.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
        raw.extend(text.as_bytes());
        previous = *at;
    }
    let mut data = vec![1];
    data.extend(zstd::bulk::compress(&raw, 3).unwrap());
    let block = NewLogBlock {
        project,
        release,
        instance: format!("instance of {release}"),
        first_at: lines.iter().map(|(at, _)| *at).min().unwrap(),
        last_at: lines.iter().map(|(at, _)| *at).max().unwrap(),
        lines: u32::try_from(lines.len()).unwrap(),
        data,
    };
    let now = core.now();
    let stored = core.db.transact(move |tx| {
        let block = block.clone();
        Box::pin(async move { insert_block(tx, &block, now).await })
    });
    stored.await.unwrap()
}
