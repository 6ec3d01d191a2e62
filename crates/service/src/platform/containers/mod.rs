//! Projects that run: which instances there shall be, and making it so.
//!
//! ```text
//! workload     what the instances of a release are made from, out of the database
//! launch       one instance: made, started, healthy
//! deploy       all instances of a new release, for the release worker
//! reconciler   the loop that makes the engine's instances equal to what the database says
//! reconcile    one project of it
//! fleet        what this process knows: who is healthy, who is leaving, who crashed
//! disk_watch   stops instances that have written too much
//! disk_room    how much room the engine's disk has
//! gc           when and how images, networks and volumes that nobody needs are removed
//! logs         what instances write, kept and read
//! ```
//!
//! What shall run is in the database and what runs in the engine; nothing else decides. What a process
//! knows besides can be lost with it.

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
pub(crate) use disk_room::ran_out;
pub use fleet::Fleet;
pub use reconciler::Reconciler;
