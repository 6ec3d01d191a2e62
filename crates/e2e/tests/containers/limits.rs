//! What an instance may use, and what becomes of one that wants more.

use crate::sources::server;
use crate::support::{ContainerFixture, create, eventually};
use estrade_model::plan::Plan;
use estrade_testkit::Docker;
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_memory_hog_is_killed_inside_its_limit_and_reported() {
    let fixture = ContainerFixture::new().await;
    fixture.serve("hog").await;
    let container = &fixture.docker.running()[0]["HostConfig"];
    assert_eq!(container["Memory"], 512 << 20);
    assert_eq!(
        container["MemorySwap"], container["Memory"],
        "there is no swap"
    );
    let before = fixture.reply("hog").await.host;
    let page = fixture.page("hog", "/hog").await;
    assert_eq!(page.status, 502, "{}", page.text());
    eventually("it says that memory was short", || async {
        let shown = fixture.shown("hog").await;
        shown.contains("out_of_memory") || shown.contains("OUT_OF_MEMORY")
    })
    .await;
    eventually("it runs again", || async {
        fixture.page("hog", "/").await.status == 200
    })
    .await;
    assert_eq!(fixture.reply("hog").await.version, "one", "{before}");
    assert_eq!(fixture.docker.running().len(), 1);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_bomb_stays_inside_its_number_of_processes() {
    let fixture = ContainerFixture::new().await;
    fixture.serve("fork").await;
    let most = fixture.docker.running()[0]["HostConfig"]["PidsLimit"].as_u64();
    let most = most.expect("a limit of processes");
    let said = fixture.text("fork", "/fork").await;
    let (forks, end) = said.split_once(' ').unwrap();
    let forks: u64 = forks.parse().unwrap();
    assert_eq!(end, "EAGAIN");
    assert!((16..most).contains(&forks), "{forks} of {most}");
    // It has not hurt itself, or anybody else.
    assert_eq!(fixture.reply("fork").await.version, "one");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_filler_gets_no_more_than_its_plan() {
    let fixture = ContainerFixture::with(|setup| {
        let plan = Plan {
            memory_mb: 512,
            cpus: 1,
            disk_gb: 1,
            hourly_price: 0,
        };
        setup.settings.plans.set("nano".into(), plan);
    })
    .await;
    fixture.serve("fill").await;
    // What is in memory ends before the memory does.
    let said = fixture.text("fill", "/fill?folder=/tmp&most=1000").await;
    let (written, end) = said.split_once(' ').unwrap();
    assert_eq!(end, "ENOSPC", "{said}");
    assert!(written.parse::<u64>().unwrap() < 512, "{said}");
    assert_eq!(fixture.reply("fill").await.version, "one");

    // The rest is refused by the file system, or the instance is stopped.
    let page = fixture
        .page("fill", "/fill?folder=/var/tmp&most=1500")
        .await;
    if page.status == 200 && page.text().ends_with("ENOSPC") {
        let written: u64 = page.text().split(' ').next().unwrap().parse().unwrap();
        assert!(written <= 1024, "{}", page.text());
    } else {
        eventually("it is stopped, and says why", || async {
            fixture.shown("fill").await.contains("disk_full")
        })
        .await;
    }
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_of_an_image_has_a_limit_too() {
    let fixture = ContainerFixture::new().await;
    create(&fixture.ada, "volume", "docker").await;
    let dockerfile = format!("FROM {}\nVOLUME /data\n", Docker::BASE);
    let mut release = server("one");
    release.as_object_mut().unwrap().remove("image");
    release["files"] = json!([{"path": "Dockerfile", "data": dockerfile}]);
    fixture.deploy("volume", &release).await;
    let said = fixture.text("volume", "/fill?folder=/data&most=1000").await;
    let (written, end) = said.split_once(' ').unwrap();
    assert_eq!(end, "ENOSPC", "{said}");
    assert!(written.parse::<u64>().unwrap() < 512, "{said}");
    assert_eq!(fixture.reply("volume").await.version, "one");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_has_no_more_rights_than_a_web_app_needs() {
    let fixture = ContainerFixture::new().await;
    let new = json!({
        "name": "strict", "platform": "docker", "planID": "nano", "readOnlyRootFilesystem": true,
    });
    fixture.ada.post("/v1/projects", &new).await.assert(200);
    fixture.deploy("strict", &server("one")).await;
    let page = fixture
        .page("strict", "/write?path=/var/tmp/x&text=y")
        .await;
    assert_eq!(page.status, 500, "{}", page.text());
    assert!(page.text().contains("Read-only"), "{}", page.text());
    fixture.text("strict", "/write?path=/tmp/x&text=y").await;
    assert_eq!(fixture.text("strict", "/read?path=/tmp/x").await, "y");
    let status = fixture.text("strict", "/read?path=/proc/self/status").await;
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    assert!(status.contains("Seccomp:\t2"), "{status}");
    // Neither the right to administer the machine, nor its network, nor to make devices.
    let held = status
        .lines()
        .find_map(|line| line.strip_prefix("CapBnd:\t"));
    let held = u64::from_str_radix(held.unwrap(), 16).unwrap();
    for right in [12, 13, 19, 21, 27] {
        assert_eq!(held >> right & 1, 0, "capability {right} of {held:x}");
    }
    create(&fixture.ada, "loose", "docker").await;
    fixture.deploy("loose", &server("one")).await;
    fixture.text("loose", "/write?path=/var/tmp/x&text=y").await;
    fixture.end().await;
}
