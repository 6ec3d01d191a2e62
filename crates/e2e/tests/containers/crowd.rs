//! Many visitors at once, none of whom may notice anything.

use crate::support::{AppReply, ContainerFixture};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// Between two visits of one client: what they visit must get its share of a small machine.
const PAUSE: Duration = Duration::from_millis(20);

/// Clients that visit a project all the time, each on one connection.
pub(crate) struct Crowd {
    stop: Arc<AtomicBool>,
    clients: JoinSet<Seen>,
}

/// What clients have seen; every one of their requests was answered well.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) pages: usize,
    pub(crate) versions: BTreeSet<String>,
    pub(crate) hosts: BTreeSet<String>,
}

impl Crowd {
    pub(crate) async fn gather(fixture: &ContainerFixture, project: &str, count: usize) -> Self {
        let (stop, mut clients) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        for _ in 0..count {
            let (stop, mut visitor) = (Arc::clone(&stop), fixture.visitor(project).await);
            clients.spawn(async move {
                let mut seen = Seen::default();
                loop {
                    // A client that is sent away comes once more: what was switched before that is seen.
                    let last = stop.load(Ordering::Relaxed);
                    let page = visitor.get("/").await;
                    assert_eq!(page.status, 200, "page {}: {}", seen.pages, page.text());
                    let said = AppReply::read(page.text());
                    seen.pages += 1;
                    seen.versions.insert(said.version);
                    seen.hosts.insert(said.host);
                    if last {
                        return seen;
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            });
        }
        Self { stop, clients }
    }

    /// Sends everybody home.
    pub(crate) async fn leave(mut self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Seen::default();
        while let Some(client) = self.clients.join_next().await {
            let seen = client.expect("a client that saw nothing wrong");
            assert!(seen.pages > 0, "a client that saw nothing");
            all.pages += seen.pages;
            all.versions.extend(seen.versions);
            all.hosts.extend(seen.hosts);
        }
        all
    }
}
