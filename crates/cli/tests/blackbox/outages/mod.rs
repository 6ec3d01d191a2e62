//! Installations of several nodes that lose something: a node, the network, the database.
//!
//! Clients deploy and call through every node all the time. Whatever was lost: nothing that was acknowledged is, no
//! release is stuck, none runs twice, and keys that a node knows go on. Each test prints how long it took to recover.

mod database;
mod installation;
mod kills;
mod load;
mod namespaces;
mod partition;
mod pauses;
mod restarts;

use std::time::Duration;

/// How long a worker holds a release that it does not renew, and a node what it leased of a budget.
const RELEASE_LEASE: Duration = Duration::from_secs(5);
const LEDGER_LEASE: Duration = Duration::from_secs(10);
/// What a busy machine may add to any of them.
const SLACK: Duration = Duration::from_secs(15);

/// With `./test --full`, what is lost stays lost for longer.
fn duration(usual: u64, full: u64) -> Duration {
    let is_full = std::env::var_os("ESTRADE_TEST_FULL").is_some_and(|value| value == "1");
    Duration::from_secs(if is_full { full } else { usual })
}
