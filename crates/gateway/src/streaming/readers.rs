//! The tasks of detached reads of one worker.

use estrade_model::sync::MutexExt;
use std::sync::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// The detached reads of one worker. None once it has ended.
pub(crate) struct Readers(Mutex<Option<JoinSet<()>>>);

impl Default for Readers {
    fn default() -> Self {
        Self(Mutex::new(Some(JoinSet::new())))
    }
}

impl Readers {
    fn tasks(&self) -> MutexGuard<'_, Option<JoinSet<()>>> {
        self.0.lock_ignoring_poison()
    }

    /// Spawns a detached read. Dropped after shutdown, which charges the call.
    pub(crate) fn spawn(&self, read: impl Future<Output = ()> + Send + 'static) {
        let (mut tasks, runtime) = (self.tasks(), Handle::try_current());
        if let (Some(tasks), Ok(runtime)) = (&mut *tasks, runtime) {
            while tasks.try_join_next().is_some() {}
            tasks.spawn_on(read, &runtime);
        }
    }

    /// Aborts all of them and accepts no more: each is charged what was reserved for it.
    pub(crate) async fn shutdown(&self) {
        let tasks = self.tasks().take();
        if let Some(mut tasks) = tasks {
            tasks.shutdown().await;
        }
    }
}
