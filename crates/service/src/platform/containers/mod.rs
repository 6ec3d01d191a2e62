//! Projects that run in containers: the desired instances, and their reconciliation.
//!
//! ```text
//! workload     what the instances of a release are made from, out of the database
//! launch       one instance: made, started, healthy
//! deploy       all instances of a new release, for the release worker
//! reconciler   the loop that makes the engine's instances equal to the desired state in the database
//! reconcile    one project of it
//! fleet        in-memory state: which instances are healthy, shutting down or crashed
//! disk_watch   stops instances that have written too much
//! disk_room    how much room the engine's disk has
//! gc           garbage collection of images, networks and volumes
//! logs         what instances write, kept and read
//! ```
//!
//! The desired state is in the database and the actual state in the engine; nothing else decides. What a
//! process has in memory can be lost with it.

mod crash_loop;
mod crashes;
mod deploy;
mod disk_room;
mod disk_watch;
mod fleet;
mod gc;
mod health;
mod launch;
pub mod logs;
mod rebuild;
mod rebuild_attempts;
mod reconcile;
mod reconciler;
mod restart;
pub mod shell;
mod shutdown;
pub mod usage;
mod workload;

pub use crate::settings::ContainerSettings;
pub(crate) use deploy::{BringUpError, bring_up};
pub(crate) use disk_room::{is_low as is_disk_low, ran_out};
pub use fleet::Fleet;
pub use reconciler::Reconciler;
