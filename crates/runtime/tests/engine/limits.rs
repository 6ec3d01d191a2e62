//! Limits hold, whatever runs inside.

use crate::support::{EngineFixture, MIB, eventually, stranger};
use bollard::query_parameters::RemoveVolumeOptions;
use estrade_runtime::{EventKind, InstanceState, Mount, Tmpfs, VolumeKey};
use futures_util::StreamExt;
use std::process::Command;
use std::time::{Duration, Instant};

#[tokio::test]
async fn the_engine_of_the_tests_can_hold_limits() {
    let info = EngineFixture::new().engine.info().await.unwrap();
    assert!(
        info.limits_memory && info.limits_cpu && info.limits_pids,
        "{info:?}"
    );
    assert!(info.cpus > 0 && info.memory > 0 && !info.version.is_empty());
}

#[tokio::test]
async fn a_memory_hog_is_killed_and_that_is_told() {
    let fixture = EngineFixture::new();
    let mut events = Box::pin(fixture.engine.events());
    let first = tokio::time::timeout(Duration::from_millis(500), events.next());
    assert!(first.await.is_err(), "nothing has happened yet");
    let mut spec = fixture.python("x = bytearray(400 << 20); print('I have it')");
    spec.limits.memory = 64 * MIB;
    let (ended, said) = fixture.run_to_end(&spec).await;
    let InstanceState::Exited(exit) = &ended.state else {
        panic!("{ended:?}")
    };
    assert_eq!((exit.code, exit.oom_killed), (137, true), "{said}");
    assert!(!said.contains("I have it"));
    let mut kinds = Vec::new();
    while !kinds.contains(&EventKind::Ended(137)) {
        kinds.push(events.next().await.unwrap().unwrap().kind);
    }
    assert!(kinds.contains(&EventKind::OutOfMemory), "{kinds:?}");
    drop(events);
    fixture.clean().await;
}

#[tokio::test]
async fn files_in_tmp_are_memory_and_no_swap() {
    let fixture = EngineFixture::new();
    // More room in /tmp than memory: it must not go to swap.
    let mut spec =
        fixture.python("open('/tmp/x', 'wb').write(bytes(1 << 20) * 200); print('I have it')");
    spec.limits.memory = 64 * MIB;
    spec.limits.tmp = 512 * MIB;
    let (ended, said) = fixture.run_to_end(&spec).await;
    assert!(
        matches!(&ended.state, InstanceState::Exited(exit) if exit.code == 137),
        "{ended:?}"
    );
    assert!(!said.contains("I have it"));
    fixture.clean().await;
}

#[tokio::test]
async fn a_fork_bomb_stays_inside() {
    let fixture = EngineFixture::new();
    let bomb = "import os, time
born = 0
for _ in range(2000):
    try:
        if os.fork() == 0: time.sleep(600)
        born += 1
    except OSError as error:
        print('refused after', born, error.errno)
        break
time.sleep(600)";
    let mut spec = fixture.python(bomb);
    spec.limits.pids = 40;
    let instance = fixture.run(&spec).await;
    let from = estrade_runtime::LogsFrom {
        after: 0,
        last: None,
        follow: true,
    };
    let line = Box::pin(fixture.engine.logs(&instance.id, from))
        .next()
        .await
        .unwrap()
        .unwrap();
    let words: Vec<_> = line.text.split(' ').collect();
    assert_eq!(words[..2], ["refused", "after"], "{line:?}");
    assert!(words[2].parse::<u64>().unwrap() < 40);
    let stats = fixture.engine.stats(&instance.id).await.unwrap().unwrap();
    assert!((30..=40).contains(&stats.pids), "{stats:?}");
    fixture
        .engine
        .stop_instance(&instance.id, Duration::ZERO)
        .await
        .unwrap();
    fixture.clean().await;
}

#[tokio::test]
async fn powers_are_dropped() {
    let fixture = EngineFixture::new();
    let show = "
for line in open('/proc/self/status'):
    if line.split(':')[0] in ('CapEff', 'CapBnd', 'NoNewPrivs', 'Seccomp', 'Uid'): print(*line.split()[:2])";
    let (_, said) = fixture.run_to_end(&fixture.python(show)).await;
    // chown, dac_override, fowner, kill, setgid, setuid, net_bind_service
    let few = (1 << 0) | (1 << 1) | (1 << 3) | (1 << 5) | (1 << 6) | (1 << 7) | (1 << 10);
    let few = format!("{few:016x}");
    let expected = format!("Uid: 0\nCapEff: {few}\nCapBnd: {few}\nNoNewPrivs: 1\nSeccomp: 2");
    assert_eq!(said, expected);

    let mut spec = fixture.python(show);
    spec.user = Some("1000:1000".into());
    let (_, said) = fixture.run_to_end(&spec).await;
    assert!(
        said.starts_with("Uid: 1000\nCapEff: 0000000000000000\n"),
        "{said}"
    );

    // A program that would make root of its caller does not.
    let su = fixture.spec(&["sh", "-c", "cp /usr/bin/id /usr/local/bin/rootid; chmod 4755 /usr/local/bin/rootid; setpriv --reuid=1000 --clear-groups /usr/local/bin/rootid -u"]);
    let (_, said) = fixture.run_to_end(&su).await;
    assert_eq!(said, "1000");

    for forbidden in [
        "mknod /tmp/d b 8 0",
        "mount -t tmpfs x /mnt",
        "hostname x",
        "cat /dev/kmsg",
        "ls /var/run/docker.sock",
        "unshare -r true",
    ] {
        let (ended, said) = fixture
            .run_to_end(&fixture.spec(&["sh", "-c", forbidden]))
            .await;
        let failed = matches!(&ended.state, InstanceState::Exited(exit) if exit.code != 0);
        assert!(failed, "{forbidden}: {said}");
    }
    fixture.clean().await;
}

#[tokio::test]
async fn a_read_only_root_and_sized_directories() {
    let fixture = EngineFixture::new();
    let fill = "
def fill(path):
    n = 0
    try:
        with open(path, 'wb', buffering=0) as file:
            while n < 100: n += file.write(bytes(1 << 20)) >> 20
    except OSError as error: print(path, n, error.strerror)
    else: print(path, n, 'full')
for path in '/x', '/tmp/x', '/var/cache/x': fill(path)";
    let mut spec = fixture.python(fill);
    spec.read_only_root = true;
    spec.limits.memory = 256 * MIB;
    spec.limits.tmp = 8 * MIB;
    spec.tmpfs = vec![Tmpfs {
        path: "/var/cache".into(),
        size: 4 * MIB,
    }];
    let (_, said) = fixture.run_to_end(&spec).await;
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "/x 0 Read-only file system",
            "/tmp/x 8 No space left on device",
            "/var/cache/x 4 No space left on device"
        ]
    );
    fixture.clean().await;
}

#[tokio::test]
async fn what_is_written_to_the_root_is_measured() {
    let fixture = EngineFixture::new();
    let write = "open('/x', 'wb').write(bytes(9 << 20)); open('/tmp/x', 'wb').write(bytes(1 << 20)); print('ok')";
    let (ended, said) = fixture.run_to_end(&fixture.python(write)).await;
    assert_eq!(said, "ok");
    let used = fixture.engine.disk_use(&ended.id).await.unwrap().unwrap();
    assert!((9 * MIB..10 * MIB).contains(&used), "{used}");
    let info = fixture.engine.info().await.unwrap();
    assert!(!ended.disk_limited || info.may_limit_disk);
    fixture.engine.remove_instance(&ended.id).await.unwrap();
    assert_eq!(fixture.engine.disk_use(&ended.id).await.unwrap(), None);
    fixture.clean().await;
}

#[tokio::test]
async fn cpu_time_is_limited_and_measured() {
    let fixture = EngineFixture::new();
    let mut spec = fixture.python("print('up')\nwhile True: pass");
    spec.limits.nano_cpus = 250_000_000;
    let instance = fixture.run(&spec).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (begin, before) = (
        Instant::now(),
        fixture.engine.stats(&instance.id).await.unwrap().unwrap(),
    );
    // The engine hands out CPU time in periods of 100 ms: ten of them are enough for a share.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let after = fixture.engine.stats(&instance.id).await.unwrap().unwrap();
    let (used, passed) = (after.cpu_ns - before.cpu_ns, begin.elapsed().as_nanos());
    let percent = u128::from(used) * 100 / passed;
    assert!((2..40).contains(&percent), "{percent}");
    assert!(after.memory > MIB && after.memory < 64 * MIB, "{after:?}");
    assert!(after.received > 0 || after.sent > 0, "{after:?}");

    fixture
        .engine
        .stop_instance(&instance.id, Duration::ZERO)
        .await
        .unwrap();
    assert_eq!(fixture.engine.stats(&instance.id).await.unwrap(), None);
    fixture.engine.remove_instance(&instance.id).await.unwrap();
    assert_eq!(fixture.engine.stats(&instance.id).await.unwrap(), None);
    fixture.clean().await;
}

#[tokio::test]
async fn a_volume_of_a_fixed_size_gets_full() {
    let directory = tempfile::Builder::new()
        .prefix("estrade-disks.")
        .tempdir_in("/tmp")
        .unwrap();
    let mut fixture = EngineFixture::new();
    fixture.engine = fixture.engine.with_disks(directory.path().to_owned());
    let engine = &fixture.engine;
    let key = VolumeKey {
        owner: fixture.owner,
        project: fixture.project,
        name: "data".parse().unwrap(),
    };
    for _ in 0..2 {
        assert!(engine.ensure_volume(&key, 32 * MIB).await.unwrap());
    }
    let fill = "import os
os.mkdir('/data/sub'); n = 0
try:
    with open('/data/sub/x', 'wb', buffering=0) as file:
        while n < 100: n += file.write(bytes(1 << 20)) >> 20
except OSError as error: print(n, error.strerror)";
    let mut spec = fixture.python(fill);
    spec.mounts = vec![Mount {
        volume: key.clone(),
        path: "/data".into(),
        read_only: false,
    }];
    let (ended, said) = fixture.run_to_end(&spec).await;
    let (written, why) = said.split_once(' ').unwrap();
    assert!(
        (20..32).contains(&written.parse::<u64>().unwrap()),
        "{said}"
    );
    assert_eq!(why, "No space left on device");
    let used = engine.used_space(&key).await.unwrap().unwrap();
    assert!((20 * MIB..32 * MIB).contains(&used), "{used}");
    assert!(engine.remove_volume(&key).await.unwrap_err().is_conflict());
    engine.remove_instance(&ended.id).await.unwrap();

    // As after a restart of the machine: what was written is there again.
    let mounted = || {
        directory
            .path()
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.is_dir())
    };
    rustix::mount::unmount(mounted().unwrap(), rustix::mount::UnmountFlags::empty()).unwrap();
    assert_eq!(engine.used_space(&key).await.unwrap(), None, "not mounted");
    // Containers of other tests that are starting just now keep it mounted for a moment more.
    let is_attached = || {
        let list = Command::new("losetup").arg("--list").output().unwrap();
        String::from_utf8_lossy(&list.stdout).contains(directory.path().to_str().unwrap())
    };
    eventually("it is detached", || async { !is_attached() }).await;
    // It has become larger meanwhile, and never becomes smaller.
    for size in [96 * MIB, 32 * MIB] {
        engine.ensure_volume(&key, size).await.unwrap();
    }
    let look = "ls /data/sub && df --output=size --block-size=1M /data | tail -n 1";
    spec.command = Some(["sh", "-c", look].map(str::to_owned).into());
    let (ended, said) = fixture.run_to_end(&spec).await;
    let (listed, size) = said.split_once('\n').unwrap();
    assert_eq!(listed, "x");
    assert!(
        (70..96).contains(&size.trim().parse::<u64>().unwrap()),
        "{said}"
    );
    engine.remove_instance(&ended.id).await.unwrap();

    let strays = || async { engine.stray_disks().await.unwrap() };
    assert!(strays().await.is_empty(), "it has its volume");
    // As after a crash between the removal of the volume and of its disk.
    let name = mounted()
        .unwrap()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let force = RemoveVolumeOptions { force: true };
    stranger().remove_volume(&name, Some(force)).await.unwrap();
    let [stray] = strays().await.try_into().unwrap();
    assert_eq!(stray.volume, "data");
    engine.remove_stray_disk(stray).await.unwrap();
    assert_eq!(directory.path().read_dir().unwrap().count(), 0);

    engine.ensure_volume(&key, 32 * MIB).await.unwrap();
    for _ in 0..2 {
        engine.remove_volume(&key).await.unwrap();
    }
    assert_eq!(directory.path().read_dir().unwrap().count(), 0);
    fixture.clean().await;
}
