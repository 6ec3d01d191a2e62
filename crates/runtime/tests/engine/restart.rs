//! The engine is killed and returns.

use crate::support::{EngineFixture, eventually};
use estrade_runtime::Runtime as _;
use estrade_runtime::{Error, Instance, InstanceState, Probe};
use futures_util::StreamExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// An engine of one's own. It leaves the firewall alone, which belongs to the engine of the other tests.
struct OwnEngine {
    directory: tempfile::TempDir,
    process: Child,
}

impl OwnEngine {
    async fn start() -> Self {
        // Short, because it holds sockets.
        let directory = tempfile::Builder::new()
            .prefix("estrade-dk.")
            .tempdir_in("/tmp")
            .unwrap();
        let process = Self::spawn(&directory);
        let engine = Self { directory, process };
        engine.wait().await;
        engine
    }

    fn spawn(directory: &tempfile::TempDir) -> Child {
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(path("log"))
            .unwrap();
        Command::new("dockerd")
            .args(["--data-root", &path("data"), "--exec-root", &path("exec")])
            .args([
                "--pidfile",
                &path("pid"),
                "-H",
                &format!("unix://{}", path("sock")),
            ])
            .args(["--bridge=none", "--iptables=false", "--ip-masq=false"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("dockerd can be started: install docker.io, and run the tests as root")
    }

    fn socket(&self) -> String {
        self.directory
            .path()
            .join("sock")
            .to_str()
            .unwrap()
            .to_owned()
    }

    async fn wait(&self) {
        let fixture = EngineFixture::on(&self.socket());
        eventually("the engine answers", || async {
            fixture.engine.info().await.is_ok()
        })
        .await;
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    async fn start_again(&mut self) {
        // Of processes that are gone; in a container nobody may have buried them.
        for left in ["pid", "exec/containerd/containerd.pid"] {
            let _ = std::fs::remove_file(self.directory.path().join(left));
        }
        self.process = Self::spawn(&self.directory);
        self.wait().await;
    }
}

/// Orderly, so that nothing of it is left: containers, mounts.
impl Drop for OwnEngine {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.process.wait();
        // What the engine had mounted when it was killed.
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let ours = mounts
            .lines()
            .rev()
            .filter_map(|line| line.split(' ').nth(1));
        for path in
            ours.filter(|path| std::path::Path::new(path).starts_with(self.directory.path()))
        {
            let _ = rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

async fn import_base(fixture: &EngineFixture) {
    let tar = std::env::var("ESTRADE_TEST_IMAGE").expect(
        "ESTRADE_TEST_IMAGE is not set: run `./test tests`, or set it to the tar of tests/docker/base-image",
    );
    let file = tokio::fs::File::open(&tar).await.expect(&tar);
    let pieces = tokio_util::io::ReaderStream::with_capacity(file, 1 << 20);
    fixture
        .engine
        .import(&crate::support::base(), pieces)
        .await
        .unwrap();
}

async fn ready(fixture: &EngineFixture, instance: &Instance) {
    let ready = fixture
        .engine
        .wait_until_ready(instance, &Probe::Tcp, Duration::from_secs(20));
    ready.await.unwrap();
}

#[tokio::test]
async fn an_engine_that_was_killed_returns_and_tells_what_is_left() {
    let mut own = OwnEngine::start().await;
    let fixture = EngineFixture::on(&own.socket());
    let engine = &fixture.engine;
    import_base(&fixture).await;
    let spec =
        fixture.python("import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8000)");
    let instance = fixture.run(&spec).await;
    ready(&fixture, &instance).await;
    let mut done = fixture.spec(&["sh", "-c", "exit 4"]);
    done.key.number = 2;
    let done = fixture.run(&done).await;
    engine.wait_for_exit(&done.id).await.unwrap();

    let mut events = Box::pin(engine.events());
    assert!(
        tokio::time::timeout(Duration::from_millis(300), events.next())
            .await
            .is_err()
    );
    let waiting = engine.wait_for_exit(&instance.id);
    let (broken, ()) = tokio::join!(waiting, async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        own.kill();
    });
    // Who was listening hears of it, and who asks is told that it is away.
    assert!(broken.unwrap_err().is_engine_away());
    assert!(!matches!(events.next().await, Some(Ok(_))));
    assert!(matches!(
        engine.instances().await,
        Err(Error::NoEngine { .. })
    ));

    own.start_again().await;
    let listed = engine.instances().await.unwrap();
    assert_eq!(listed.len(), 2);
    let find = |key| listed.iter().find(|found| found.key == key).unwrap();
    assert!(
        matches!(&find(done.key).state, InstanceState::Exited(exit) if exit.code == 4),
        "{listed:?}"
    );
    // Without live restore the engine ends at its start what ran when it died.
    let left = find(instance.key);
    assert!(matches!(&left.state, InstanceState::Exited(_)), "{left:?}");
    assert_eq!(left.address, None);
    // The same call as at first brings it back.
    let again = fixture.run(&spec).await;
    assert_eq!(again.id, instance.id);
    ready(&fixture, &again).await;
    drop(events);
    fixture.clean().await;
}
