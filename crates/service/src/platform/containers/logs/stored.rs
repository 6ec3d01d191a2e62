//! What is stored, out of the database.

use crate::settings::LOG_RETENTION;
use crate::{Core, Error, Result};
use estrade_logs::{Cursor, LineFilter, StoredLine, Window, find_lines, nanos};
use estrade_store::log_blocks::{self, LogBlock};
use std::sync::Arc;

/// Which lines of an instance are stored.
pub(super) async fn load_window(core: &Core, instance: &str) -> Result<Window> {
    match log_blocks::last_line_at(&core.db, instance).await? {
        Some(last) => load_window_around(core, instance, last).await,
        None => Ok(Window::starting_at(nanos(core.now().before(LOG_RETENTION)))),
    }
}

/// The same from a little before this moment on: for when the clock was put back.
pub(super) async fn load_window_around(core: &Core, instance: &str, at: i64) -> Result<Window> {
    let from = Window::start_before(at);
    let blocks = log_blocks::list_instance_blocks(&core.db, instance, from).await?;
    Ok(Window::of_blocks(from, &blocks)?)
}

/// [`find_lines`] on a thread that may take its time.
pub(super) async fn find(
    blocks: Vec<LogBlock>,
    filter: &Arc<LineFilter>,
    after: Cursor,
) -> Result<(Vec<Vec<StoredLine>>, usize)> {
    let filter = Arc::clone(filter);
    let work = tokio::task::spawn_blocking(move || find_lines(&blocks, &filter, after));
    Ok(work.await.map_err(Error::internal)??)
}
