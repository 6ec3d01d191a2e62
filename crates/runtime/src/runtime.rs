//! The interface to a container runtime.
//!
//! # What every method guarantees
//!
//! - **Scope.** A runtime sees only objects of its [`Installation`]. Nothing of another installation, or of other users
//!   of the engine, can be listed, stopped or removed.
//! - **Idempotence.** Every call may be repeated: it is no error to run what runs, to stop what is stopped or to remove
//!   what is gone. So a caller that crashed, or lost a response, repeats the call.
//! - **Bounded time.** Every call ends, with [`Error::TimedOut`] if need be, except [`Runtime::wait_for_exit`] and the
//!   streams, which last as long as what they watch.
//! - **The engine may be away.** No value of this trait holds a connection. If the engine is away, restarts or breaks
//!   off, a call fails with an error of which [`Error::is_engine_away`] is true. Then it is not known whether anything
//!   was done; what runs goes on running, and the caller repeats the call later. Any other error is the engine's
//!   response, and repeating the same call gets the same one.
//!
//! A runtime decides nothing: its caller decides what to run, when to restart it and what to remove.

use crate::error::Error;
use crate::event::Event;
use crate::exec::{CommandEnd, Shell, ShellSpec};
use crate::installation::Installation;
use crate::instance::{Instance, InstanceId};
use crate::instance_spec::InstanceSpec;
use crate::log_line::{LogLine, LogsFrom};
use crate::network_policy::{NetworkPolicy, NetworkPolicyError};
use crate::probe::{self, Probe, Unhealthy};
use crate::stats::Stats;
use crate::volume::{StrayDisk, VolumeKey};
use estrade_model::OwnerId;
use estrade_model::ip_range::IpRange;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use std::fmt;
use std::time::Duration;

/// The future of one call to a runtime.
pub type Call<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// Runs instances: their networks, volumes, logs and shells. See the module's text for what every method guarantees.
pub trait Runtime: fmt::Debug + Send + Sync {
    /// The installation whose things are seen.
    fn installation(&self) -> &Installation;

    /// Every address that an instance can have. A listener that refuses peers from here is closed to all of them.
    fn address_range(&self) -> IpRange;

    /// Waits for what is still done in the background; to be called last.
    fn shutdown(&self) -> BoxFuture<'_, ()>;

    /// Makes an instance and starts it, unless the same one runs: instances are the same if their key and
    /// [`InstanceSpec::digest`] are. One that was made earlier and cannot be started is made anew. Its owner's network
    /// and its volumes must be there.
    fn run_instance<'a>(&'a self, spec: &'a InstanceSpec) -> Call<'a, InstanceId>;

    /// Stops an instance: SIGTERM, and SIGKILL when the grace is over. Resolves when it has stopped; one that is gone
    /// is no error.
    fn stop_instance<'a>(&'a self, id: &'a InstanceId, grace: Duration) -> Call<'a, ()>;

    /// Removes an instance, at once if it runs, with what it wrote outside of its volumes, and with its log.
    fn remove_instance<'a>(&'a self, id: &'a InstanceId) -> Call<'a, ()>;

    /// Every instance of this installation, running or not. [`Instance::started_at`] may be missing.
    fn instances(&self) -> Call<'_, Vec<Instance>>;

    /// One instance; none: it is gone.
    fn instance<'a>(&'a self, id: &'a InstanceId) -> Call<'a, Option<Instance>>;

    /// Whether an instance is reported as running, but its program has never begun or it cannot be reached. Such a one
    /// is to be removed and created again. False when the engine is away.
    fn is_half_started<'a>(&'a self, _id: &'a InstanceId) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(false))
    }

    /// Waits until an instance does not run any more, however long that takes. None: it is gone. Fails when the engine
    /// goes away meanwhile.
    fn wait_for_exit<'a>(&'a self, id: &'a InstanceId) -> Call<'a, Option<Instance>>;

    /// Waits until an instance is ready, probed from outside of the container. It does not see that the instance has
    /// ended: run [`Runtime::wait_for_exit`] beside it. An engine that is away counts as not ready.
    fn wait_until_ready<'a>(
        &'a self,
        instance: &'a Instance,
        probe: &'a Probe,
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), Unhealthy>> {
        Box::pin(probe::wait_until_ready(self, instance, probe, limit))
    }

    /// How many bytes an instance has added to its root, outside of volumes; none: it is gone. This counts files and is
    /// slow. Needed only where [`Instance::disk_limited`] is false.
    fn disk_use<'a>(&'a self, id: &'a InstanceId) -> Call<'a, Option<u64>>;

    /// Resource usage of an instance; none: it does not run, or is gone. May take a second: query many concurrently.
    fn stats<'a>(&'a self, id: &'a InstanceId) -> Call<'a, Option<Stats>>;

    /// What happens to this installation's instances from now on. The stream ends, or fails, when the engine goes away,
    /// and events between two streams are lost: list [`Runtime::instances`] after each beginning.
    fn events(&self) -> BoxStream<'static, Result<Event, Error>>;

    /// The lines of an instance's log, oldest first. To drop the stream is to stop. It ends with the instance, or with
    /// an error when the engine breaks off: begin again after the last line then. Lines may come twice or be missing
    /// around a restart of the engine; [`LogLine::at`] tells which.
    fn logs(&self, id: &InstanceId, from: LogsFrom) -> BoxStream<'static, Result<LogLine, Error>>;

    /// Runs a command in a running instance and waits for its end. A command that takes longer than the limit is left
    /// alone, not ended. The one method that does its work again when it is repeated.
    fn run_command<'a>(
        &'a self,
        id: &'a InstanceId,
        command: Vec<String>,
        limit: Duration,
    ) -> Call<'a, CommandEnd>;

    /// Opens a shell in a running instance; its image must have `sh`. An instance that has ended is
    /// [`Error::NotFound`] or [`Error::Conflict`].
    fn open_shell<'a>(&'a self, id: &'a InstanceId, spec: &'a ShellSpec) -> Call<'a, Shell>;

    /// Creates the network of an owner, in which the owner's instances and builds run and reach only each other, if it
    /// does not exist.
    fn ensure_network(&self, owner: OwnerId) -> Call<'_, ()>;

    /// The owners that have a network.
    fn network_owners(&self) -> Call<'_, Vec<OwnerId>>;

    /// Removes the network of an owner. One with instances is a conflict.
    fn remove_network(&self, owner: OwnerId) -> Call<'_, ()>;

    /// Sets what instances and steps of builds may reach, now and later. Replaces the earlier policy atomically.
    fn apply_network_policy<'a>(
        &'a self,
        policy: &'a NetworkPolicy,
    ) -> BoxFuture<'a, Result<(), NetworkPolicyError>>;

    /// Takes the policy away. What the engine holds by itself stays: owners do not reach each other.
    fn remove_network_policy(&self) -> BoxFuture<'_, Result<(), NetworkPolicyError>>;

    /// Makes a volume of this size in bytes, unless it is there; whether the size is held. To be called before each
    /// start of an instance that has it: what holds the size may have to be set up again after a restart of the
    /// machine.
    fn ensure_volume<'a>(&'a self, key: &'a VolumeKey, size: u64) -> Call<'a, bool>;

    /// Whether a volume exists whose size cannot be changed.
    fn has_fixed_size<'a>(&'a self, key: &'a VolumeKey) -> Call<'a, bool>;

    /// Makes a volume larger, with what is in it, if it exists and its size is held. It never becomes smaller.
    fn grow_volume<'a>(&'a self, key: &'a VolumeKey, size: u64) -> Call<'a, ()>;

    /// How many bytes a volume holds. None: to know it, files would have to be counted, or it is not here.
    fn used_space<'a>(&'a self, _key: &'a VolumeKey) -> Call<'a, Option<u64>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Every volume of this installation.
    fn volumes(&self) -> Call<'_, Vec<VolumeKey>>;

    /// Removes a volume with what is in it. One that an instance has is a conflict.
    fn remove_volume<'a>(&'a self, key: &'a VolumeKey) -> Call<'a, ()>;

    /// Contents whose volume is gone, as after a crash between the removal of the two. None where the two are one.
    fn stray_disks(&self) -> Call<'_, Vec<StrayDisk>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Removes such contents.
    fn remove_stray_disk(&self, _stray: StrayDisk) -> Call<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}
