//! One installation for each test, on the engine that `./test` starts.

use bollard::{API_DEFAULT_VERSION, Docker};
use bytes::Bytes;
pub(crate) use estrade_fixtures::eventually;
use estrade_model::secret::Secret;
use estrade_model::{OwnerId, ProjectId, ReleaseId, Timestamp};
use estrade_runtime::{
    Engine, EngineHost, ImageRef, Instance, InstanceKey, InstanceSpec, Limits, LogsFrom, SubnetPool,
};
use futures_util::{Stream, TryStreamExt, stream};
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub(crate) const MIB: u64 = 1 << 20;
const BASE: &str = "estrade-test/base:2";

/// An installation of its own.
pub(crate) struct EngineFixture {
    pub(crate) engine: Engine,
    pub(crate) owner: OwnerId,
    pub(crate) project: ProjectId,
    pub(crate) release: ReleaseId,
}

impl EngineFixture {
    /// Fails when there is no engine: a test that was not run has not passed.
    pub(crate) fn new() -> Self {
        Self::on(&socket())
    }

    /// On an engine of one's own.
    pub(crate) fn on(socket: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let installation = format!("t{}x{count}", std::process::id());
        let engine = Engine::new(
            EngineHost::Unix(socket.into()),
            installation.parse().unwrap(),
            SubnetPool::default(),
        );
        // Two processes of tests must not have the same owner: names of bridges come from it.
        let random = u64::from(std::process::id()) << 20;
        let now = now().millis();
        Self {
            engine: engine.unwrap(),
            owner: OwnerId::generate(now, random),
            project: ProjectId::generate(now, random),
            release: ReleaseId::generate(now, random),
        }
    }

    /// An instance of the base image that runs this command.
    pub(crate) fn spec(&self, command: &[&str]) -> InstanceSpec {
        InstanceSpec {
            key: InstanceKey {
                owner: self.owner,
                project: self.project,
                release: self.release,
                number: 1,
            },
            revision: 0,
            image: base(),
            command: Some(command.iter().map(|word| (*word).to_owned()).collect()),
            env: Vec::new(),
            port: 8000,
            limits: Limits {
                memory: 128 * MIB,
                nano_cpus: 1_000_000_000,
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

    /// An instance that runs a program in Python.
    pub(crate) fn python(&self, program: &str) -> InstanceSpec {
        self.spec(&["python3", "-u", "-c", program])
    }

    /// Starts it, in its owner's network.
    pub(crate) async fn run(&self, spec: &InstanceSpec) -> Instance {
        self.engine.ensure_network(spec.key.owner).await.unwrap();
        let id = self.engine.run_instance(spec).await.unwrap();
        self.engine.instance(&id).await.unwrap().unwrap()
    }

    /// Runs it to its end; everything it wrote.
    pub(crate) async fn run_to_end(&self, spec: &InstanceSpec) -> (Instance, String) {
        let started = self.run(spec).await;
        let waiting = self.engine.wait_for_exit(&started.id);
        let ended = tokio::time::timeout(Duration::from_mins(1), waiting).await;
        let ended = ended.expect("it ends").unwrap().unwrap();
        let from = LogsFrom {
            after: 0,
            last: None,
            follow: false,
        };
        let lines: Vec<_> = self
            .engine
            .logs(&ended.id, from)
            .try_collect()
            .await
            .unwrap();
        let text: Vec<_> = lines.into_iter().map(|line| line.text).collect();
        (ended, text.join("\n"))
    }

    /// Removes everything of this installation, and looks whether that was all.
    pub(crate) async fn clean(self) {
        let engine = &self.engine;
        for instance in engine.instances().await.unwrap() {
            engine.remove_instance(&instance.id).await.unwrap();
        }
        for network in &engine.networks().await.unwrap() {
            // The engine ends the container of a build that was given up in its own time.
            eventually("the network is removed", || async move {
                match engine.remove_network(network).await {
                    Err(error) if error.is_conflict() => false,
                    removed => removed.map(|()| true).unwrap(),
                }
            })
            .await;
        }
        for volume in engine.volumes().await.unwrap() {
            engine.remove_volume(&volume).await.unwrap();
        }
        for entry in engine.images().await.unwrap() {
            engine.remove_image(entry.image).await.unwrap();
        }
        let later = now().after(Duration::from_hours(1));
        engine.prune_images(later).await.unwrap();
        assert!(engine.instances().await.unwrap().is_empty());
        assert!(engine.networks().await.unwrap().is_empty());
        assert!(engine.volumes().await.unwrap().is_empty());
        assert!(engine.images().await.unwrap().is_empty());
        let limit = Duration::from_secs(20);
        tokio::time::timeout(limit, engine.shutdown())
            .await
            .expect("every task ends");
    }
}

pub(crate) fn base() -> ImageRef {
    BASE.parse().unwrap()
}

pub(crate) fn socket() -> String {
    std::env::var("ESTRADE_TEST_DOCKER").expect(
        "ESTRADE_TEST_DOCKER is not set: run `./test tests`, which starts a Docker Engine, or set it to the socket \
         of an engine that has the image of tests/docker/base-image as estrade-test/base:2",
    )
}

/// The engine without any of our rules, as a stranger uses it.
pub(crate) fn stranger() -> Docker {
    let socket = socket();
    let carry = move |mut request: bollard::BollardRequest| {
        let socket = socket.clone();
        async move {
            let stream = tokio::net::UnixStream::connect(socket).await?;
            let stream = hyper_util::rt::TokioIo::new(stream);
            let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
            let mut tasks = tokio::task::JoinSet::new();
            tasks.spawn(connection);
            tasks.detach_all();
            let host = http::HeaderValue::from_static("docker");
            request.headers_mut().insert(http::header::HOST, host);
            let path = request.uri().path_and_query().unwrap().as_str().to_owned();
            *request.uri_mut() = path.parse().unwrap();
            Ok(sender.send_request(request).await?)
        }
    };
    Docker::connect_with_custom_transport(carry, Some("http://docker"), 60, API_DEFAULT_VERSION)
        .unwrap()
}

pub(crate) fn now() -> Timestamp {
    #[expect(
        clippy::disallowed_methods,
        reason = "the engine's clock is the real one"
    )]
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap())
}

/// Files as a tar, in pieces.
pub(crate) fn context(
    files: &[(&str, &str)],
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, path, text.as_bytes()).unwrap();
    }
    let tar = tar.into_inner().unwrap();
    let pieces: Vec<_> = tar
        .chunks(1000)
        .map(|piece| Ok(Bytes::copy_from_slice(piece)))
        .collect();
    stream::iter(pieces)
}

pub(crate) fn secret(text: &str) -> Secret {
    Secret(text.to_owned())
}
