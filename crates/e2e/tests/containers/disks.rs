//! Disks keep what instances wrote, whatever happens to the instances.

use crate::sources::server;
use crate::support::{ContainerFixture, eventually};
use estrade_store::disks::list_unused;
use serde_json::{Value, json};
use std::time::Duration;

fn with_disk(version: &str) -> Value {
    let mut body = server(version);
    body["disks"] = json!([{"name": "data", "mountTo": "/data"}]);
    body
}

/// Whether we have `CAP_SYS_RESOURCE`, which the kernel demands for it; root in a container may not.
fn may_resize_mounted() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    u64::from_str_radix(mask.unwrap().trim(), 16).unwrap() & (1 << 24) != 0
}

/// The volumes of the installation, by the ids of their disks.
fn volumes(fixture: &ContainerFixture) -> Vec<String> {
    let left = fixture.docker.left();
    let volumes = left.iter().filter(|name| name.starts_with("volume"));
    volumes
        .map(|name| {
            name.trim_end_matches('"')
                .rsplit('-')
                .next()
                .unwrap()
                .into()
        })
        .collect()
}

/// Makes a disk `data`; returns its id.
async fn make_disk(fixture: &ContainerFixture, project: &str) -> String {
    let path = format!("/v1/projects/{project}/disks");
    let new = json!({"name": "data", "size": 1});
    fixture.ada.post(&path, &new).await.assert(201);
    let disks = fixture.project(project).await["disks"].clone();
    disks[0]["_id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resizes_at_once_end_in_one_size() {
    let fixture = ContainerFixture::new().await;
    let new = json!({"name": "keeper", "platform": "docker", "planID": "standard-1x"});
    fixture.ada.post("/v1/projects", &new).await.assert(200);
    let id = make_disk(&fixture, "keeper").await;
    fixture.deploy("keeper", &with_disk("one")).await;
    let size = || async { fixture.project("keeper").await["disks"][0]["size"].clone() };
    for round in 0..4 {
        let ada = &fixture.ada;
        let resize = |size: u32| async move {
            let path = "/v1/projects/keeper/disks/data/resize";
            let response = ada.post(path, &json!({ "size": size })).await;
            (size, response.status())
        };
        let first = 2 + round * 2;
        let (a, b) = tokio::join!(resize(first), resize(first + 1));
        let done = [a, b].into_iter().filter(|(_, status)| *status == 200);
        let largest = done.map(|(size, _)| size).max();
        // Without the right to resize what is mounted, every one is refused and changes nothing.
        assert_eq!(largest.is_some(), may_resize_mounted(), "{a:?} {b:?}");
        assert_eq!(size().await, largest.unwrap_or(1), "{a:?} {b:?}");
    }
    let size = size().await.as_u64().unwrap();
    let files = fixture.app.directory().join("disks").read_dir().unwrap();
    let mut files = files.map(|file| file.unwrap().path());
    let file = files.find(|file| file.to_str().unwrap().ends_with(&format!("{id}.img")));
    assert!(file.unwrap().metadata().unwrap().len() >= size << 30);
    fixture.delete("keeper").await;
    fixture.nothing_left().await;
    fixture.end().await;
}

/// A database from an older backup does not know the newest disks. What they hold is kept for a day, until somebody
/// notices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_older_backup_does_not_know_is_kept_for_a_day() {
    let fixture = ContainerFixture::new().await;
    let mut ids = Vec::new();
    for project in ["newest", "older"] {
        fixture.create(project, "docker").await;
        ids.push(make_disk(&fixture, project).await);
        fixture.deploy(project, &with_disk("one")).await;
    }
    let (newest, older) = (ids[0].clone(), ids[1].clone());
    let both = volumes(&fixture);
    assert!(both.contains(&newest) && both.contains(&older), "{both:?}");
    let forgotten = fixture.app.core().db.transact(|tx| {
        Box::pin(async move {
            let sql = "DELETE FROM projects WHERE name = 'newest'";
            tx.query(sql).execute().await
        })
    });
    assert_eq!(forgotten.await.unwrap(), 1);

    // A disk that is deleted must be gone at once.
    fixture.delete("older").await;
    let gone = |id: String| {
        let fixture = &fixture;
        async move { !volumes(fixture).contains(&id) }
    };
    eventually("the deleted disk is gone", || gone(older.clone())).await;
    eventually("instances are gone", || async {
        fixture.docker.containers().is_empty()
    })
    .await;
    eventually("the unknown disk is noted", || async {
        let noted = list_unused(&fixture.app.core().db).await.unwrap();
        noted.iter().any(|disk| disk.id == newest)
    })
    .await;
    let sweep = |name: &'static str| {
        let fixture = &fixture;
        async move {
            fixture.serve(name).await;
            fixture.delete(name).await;
            eventually("it is swept", || async {
                fixture.docker.containers().is_empty() && fixture.docker.images().is_empty()
            })
            .await;
        }
    };
    sweep("first").await;
    assert_eq!(volumes(&fixture), std::slice::from_ref(&newest), "kept");
    fixture.app.core().clock.advance(Duration::from_hours(25));
    sweep("second").await;
    eventually("the unknown disk is gone", || gone(newest.clone())).await;
    fixture.nothing_left().await;
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_keeps_its_files_across_releases() {
    let fixture = ContainerFixture::new().await;
    fixture.create("keeper", "docker").await;
    let disks = "/v1/projects/keeper/disks";
    let disk = json!({"name": "data", "size": 1});
    let made = fixture.ada.post(disks, &disk).await;
    assert!(matches!(made.status(), 200 | 201), "{}", made.describe());
    fixture.deploy("keeper", &with_disk("one")).await;
    fixture
        .text("keeper", "/write?path=/data/note&text=kept")
        .await;
    fixture
        .text("keeper", "/write?path=/var/tmp/note&text=lost")
        .await;

    let second = fixture.deploy("keeper", &with_disk("two")).await;
    assert_eq!(
        fixture.text("keeper", "/read?path=/data/note").await,
        "kept"
    );
    assert_eq!(
        fixture
            .page("keeper", "/read?path=/var/tmp/note")
            .await
            .status,
        500
    );
    fixture.scale("keeper", 0).await;
    eventually("it is off", || async {
        fixture.docker.running().is_empty()
    })
    .await;
    fixture.scale("keeper", 1).await;
    eventually("it is back", || async {
        fixture.page("keeper", "/").await.status == 200
    })
    .await;
    assert_eq!(
        fixture.text("keeper", "/read?path=/data/note").await,
        "kept"
    );

    // It has a size.
    let said = fixture.text("keeper", "/fill?folder=/data&most=1100").await;
    assert!(said.ends_with("ENOSPC"), "{said}");

    // It becomes larger while it is used, with what is on it.
    let resize = format!("{disks}/data/resize");
    let grown = fixture.ada.post(&resize, &json!({"size": 2})).await;
    if may_resize_mounted() {
        assert_eq!(grown.assert(200).json()["disk"]["size"], 2);
        let said = fixture.text("keeper", "/fill?folder=/data&most=1100").await;
        assert!(!said.ends_with("ENOSPC"), "{said}");
    } else {
        grown.refused(409, "disk_fixed");
        assert_eq!(fixture.project("keeper").await["disks"][0]["size"], 1);
    }
    assert_eq!(
        fixture.text("keeper", "/read?path=/data/note").await,
        "kept"
    );

    let listed = fixture.ada.get(disks).await.assert(200).text();
    assert!(listed.contains("data"), "{listed}");
    // One that is in use stays.
    let refused = fixture.ada.delete(&format!("{disks}/data")).await.status();
    assert_eq!(refused, 409);
    // One that is gone is missed by those who come back.
    fixture.deploy("keeper", &server("three")).await;
    fixture
        .ada
        .delete(&format!("{disks}/data"))
        .await
        .assert(204);
    let back = format!("/v1/releases/{second}/rollback");
    let refused = fixture.ada.post_empty(&back).await;
    refused.refused(409, "disk_missing");
    fixture.delete("keeper").await;
    fixture.nothing_left().await;
    fixture.end().await;
}
