//! Instances on a real engine, and who keeps what they write.

use crate::support::Installation;
use crate::{create, owner, texts};
use estrade_model::log::Direction;
use estrade_model::{ProjectId, ReleaseId};
use estrade_runtime::{
    Engine, EngineHost, InstanceId, InstanceKey, InstanceSpec, Limits, SubnetPool,
};
use estrade_service::platform::containers::logs::{
    ContainerLogs, LogCollector, LogQuery, read_logs,
};
use estrade_service::{Core, Scope, Settings};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const MIB: u64 = 1 << 20;

/// A project whose instances write.
pub(crate) struct LogFixture {
    pub(crate) core: Arc<Core>,
    pub(crate) logs: Arc<ContainerLogs>,
    pub(crate) ada: Scope,
    pub(crate) project: ProjectId,
}

impl LogFixture {
    /// Fails when there is no engine: a test that was not run has not passed.
    pub(crate) async fn new(at: &Installation) -> Self {
        let socket = std::env::var("ESTRADE_TEST_DOCKER").expect(
            "ESTRADE_TEST_DOCKER is not set: run `./test tests`, or set it to the socket of an engine that has \
             the image of tests/docker/base-image as estrade-test/base:2",
        );
        let mut settings = Settings::default();
        settings.containers.host = EngineHost::Unix(socket.into());
        let core = at.another_core(settings).await;
        let ada = owner(at, "ada").await;
        let project = create(&core, &ada, "shop", "nano").await;
        core.runtime
            .ensure_network(ada.caller.account.cast())
            .await
            .unwrap();
        Self {
            core,
            logs: Arc::default(),
            ada,
            project,
        }
    }

    fn spec(&self, release: ReleaseId, number: u32, program: &str) -> InstanceSpec {
        InstanceSpec {
            key: InstanceKey {
                owner: self.ada.caller.account.cast(),
                project: self.project,
                release,
                number,
            },
            revision: 0,
            image: "estrade-test/base:2".parse().unwrap(),
            command: Some(["python3", "-c", program].map(str::to_owned).into()),
            env: Vec::new(),
            port: 8000,
            limits: Limits {
                memory: 128 * MIB,
                nano_cpus: 2_000_000_000,
                pids: 64,
                disk: 64 * MIB,
                tmp: 16 * MIB,
            },
            user: None,
            read_only_root: false,
            tmpfs: Vec::new(),
            mounts: Vec::new(),
            hosts: Vec::new(),
        }
    }

    /// Starts an instance that runs a program in Python.
    pub(crate) async fn run(&self, release: ReleaseId, number: u32, program: &str) -> InstanceId {
        let spec = self.spec(release, number, program);
        self.core.runtime.run_instance(&spec).await.unwrap()
    }

    /// Starts an instance that has ended once more, as an operator may do it behind our back.
    pub(crate) async fn start_again(&self, id: &InstanceId) {
        let host = self.core.settings.containers.host.clone();
        let installation = self.core.runtime.installation().clone();
        let engine = Engine::new(host, installation, SubnetPool::default()).unwrap();
        engine.start_instance(id).await.unwrap();
    }

    pub(crate) async fn ended(&self, id: &InstanceId) {
        let waiting = self.core.runtime.wait_for_exit(id);
        let ended = tokio::time::timeout(Duration::from_mins(1), waiting).await;
        ended.expect("it ends").unwrap();
    }

    /// Every line that is stored, in the order of time, up to 5000.
    pub(crate) async fn lines(&self) -> Vec<String> {
        let query = LogQuery {
            direction: Direction::Forward,
            last_lines: Some(5000),
            ..LogQuery::default()
        };
        let lines = read_logs(&self.core, &self.logs, &self.ada, "shop", &query)
            .await
            .unwrap();
        texts(&lines).into_iter().map(str::to_owned).collect()
    }

    /// Waits until there are so many lines.
    pub(crate) async fn wait_for_lines(&self, count: usize) -> Vec<String> {
        for _ in 0..300 {
            let lines = self.lines().await;
            if lines.len() >= count {
                return lines;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{count} lines do not come: {:?}", self.lines().await.len());
    }

    /// Removes everything of this installation.
    pub(crate) async fn clean(self) {
        let runtime = &self.core.runtime;
        for instance in runtime.instances().await.unwrap() {
            runtime.remove_instance(&instance.id).await.unwrap();
        }
        for owner in runtime.network_owners().await.unwrap() {
            runtime.remove_network(owner).await.unwrap();
        }
        let limit = Duration::from_secs(20);
        tokio::time::timeout(limit, runtime.shutdown())
            .await
            .expect("every task ends");
    }
}

/// A keeper that runs until it is stopped.
pub(crate) struct RunningKeeper {
    pub(crate) keeper: Arc<LogCollector>,
    stop: CancellationToken,
    task: JoinSet<()>,
}

impl RunningKeeper {
    pub(crate) fn start(fixture: &LogFixture) -> Self {
        let keeper = LogCollector::new(&fixture.core, &fixture.logs);
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        task.spawn(Arc::clone(&keeper).run(stop.clone()));
        Self { keeper, stop, task }
    }

    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(10), self.task.join_next()).await;
        ended.expect("it ends").unwrap().unwrap();
    }
}
