//! The Docker Engine as a [`Runtime`]. What only this engine has stays on [`Engine`]: importing an image, creating and
//! starting apart, measuring volumes, the subnets and the firewall as such.

use crate::docker::engine::Engine;
use crate::docker::resolvers::engine_resolvers;
use crate::error::Error;
use crate::event::Event;
use crate::exec::{CommandEnd, Shell, ShellSpec};
use crate::installation::Installation;
use crate::instance::{Instance, InstanceId};
use crate::instance_spec::InstanceSpec;
use crate::log_line::{LogLine, LogsFrom};
use crate::network_policy::{NetworkPolicy, NetworkPolicyError};
use crate::runtime::{Call, Runtime};
use crate::stats::Stats;
use crate::volume::{StrayDisk, VolumeKey};
use estrade_model::OwnerId;
use estrade_model::ip_range::IpRange;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use std::time::Duration;

impl Runtime for Engine {
    fn installation(&self) -> &Installation {
        &self.installation
    }

    fn address_range(&self) -> IpRange {
        self.pool.range()
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(Engine::shutdown(self))
    }

    fn run_instance<'a>(&'a self, spec: &'a InstanceSpec) -> Call<'a, InstanceId> {
        Box::pin(Engine::run_instance(self, spec))
    }

    fn stop_instance<'a>(&'a self, id: &'a InstanceId, grace: Duration) -> Call<'a, ()> {
        Box::pin(Engine::stop_instance(self, id, grace))
    }

    fn remove_instance<'a>(&'a self, id: &'a InstanceId) -> Call<'a, ()> {
        Box::pin(Engine::remove_instance(self, id))
    }

    fn instances(&self) -> Call<'_, Vec<Instance>> {
        Box::pin(Engine::instances(self))
    }

    fn instance<'a>(&'a self, id: &'a InstanceId) -> Call<'a, Option<Instance>> {
        Box::pin(Engine::instance(self, id))
    }

    fn is_half_started<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, bool> {
        Box::pin(Engine::is_half_started(self, id))
    }

    fn wait_for_exit<'a>(&'a self, id: &'a InstanceId) -> Call<'a, Option<Instance>> {
        Box::pin(Engine::wait_for_exit(self, id))
    }

    fn disk_use<'a>(&'a self, id: &'a InstanceId) -> Call<'a, Option<u64>> {
        Box::pin(Engine::disk_use(self, id))
    }

    fn stats<'a>(&'a self, id: &'a InstanceId) -> Call<'a, Option<Stats>> {
        Box::pin(Engine::stats(self, id))
    }

    fn events(&self) -> BoxStream<'static, Result<Event, Error>> {
        Engine::events(self).boxed()
    }

    fn logs(&self, id: &InstanceId, from: LogsFrom) -> BoxStream<'static, Result<LogLine, Error>> {
        Engine::logs(self, id, from).boxed()
    }

    fn run_command<'a>(
        &'a self,
        id: &'a InstanceId,
        command: Vec<String>,
        limit: Duration,
    ) -> Call<'a, CommandEnd> {
        Box::pin(Engine::run_command(self, id, command, limit))
    }

    fn open_shell<'a>(&'a self, id: &'a InstanceId, spec: &'a ShellSpec) -> Call<'a, Shell> {
        Box::pin(Engine::open_shell(self, id, spec))
    }

    fn ensure_network(&self, owner: OwnerId) -> Call<'_, ()> {
        Box::pin(async move { Engine::ensure_network(self, owner).await.map(drop) })
    }

    fn network_owners(&self) -> Call<'_, Vec<OwnerId>> {
        Box::pin(async move {
            let networks = self.networks().await?;
            Ok(networks.into_iter().map(|network| network.owner).collect())
        })
    }

    fn remove_network(&self, owner: OwnerId) -> Call<'_, ()> {
        Box::pin(async move {
            match self.network_of(owner).await? {
                Some(network) => Engine::remove_network(self, &network).await,
                None => Ok(()),
            }
        })
    }

    fn apply_network_policy<'a>(
        &'a self,
        policy: &'a NetworkPolicy,
    ) -> BoxFuture<'a, Result<(), NetworkPolicyError>> {
        Box::pin(async move {
            let firewall = self.firewall(&policy.open_ports).egress(policy.egress);
            let firewall = firewall.resolvers(engine_resolvers().await);
            firewall.apply().await.map_err(NetworkPolicyError::new)
        })
    }

    fn remove_network_policy(&self) -> BoxFuture<'_, Result<(), NetworkPolicyError>> {
        Box::pin(async move {
            let removed = self.firewall(&[]).remove().await;
            removed.map_err(NetworkPolicyError::new)
        })
    }

    fn ensure_volume<'a>(&'a self, key: &'a VolumeKey, size: u64) -> Call<'a, bool> {
        Box::pin(Engine::ensure_volume(self, key, size))
    }

    fn has_fixed_size<'a>(&'a self, key: &'a VolumeKey) -> Call<'a, bool> {
        Box::pin(Engine::has_fixed_size(self, key))
    }

    fn grow_volume<'a>(&'a self, key: &'a VolumeKey, size: u64) -> Call<'a, ()> {
        Box::pin(Engine::grow_volume(self, key, size))
    }

    fn used_space<'a>(&'a self, key: &'a VolumeKey) -> Call<'a, Option<u64>> {
        Box::pin(Engine::used_space(self, key))
    }

    fn volumes(&self) -> Call<'_, Vec<VolumeKey>> {
        Box::pin(Engine::volumes(self))
    }

    fn remove_volume<'a>(&'a self, key: &'a VolumeKey) -> Call<'a, ()> {
        Box::pin(Engine::remove_volume(self, key))
    }

    fn stray_disks(&self) -> Call<'_, Vec<StrayDisk>> {
        Box::pin(Engine::stray_disks(self))
    }

    fn remove_stray_disk(&self, stray: StrayDisk) -> Call<'_, ()> {
        Box::pin(Engine::remove_stray_disk(self, stray))
    }
}
