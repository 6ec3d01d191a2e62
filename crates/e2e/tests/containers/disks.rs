//! Disks keep what instances wrote, whatever happens to the instances.

use crate::sources::server;
use crate::support::{World, eventually};
use serde_json::{Value, json};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_keeps_its_files_across_releases() {
    let world = World::new().await;
    world.create("keeper", "docker").await;
    let disks = "/v1/projects/keeper/disks";
    let disk = json!({"name": "data", "size": 1});
    let made = world.ada.post(disks, &disk).await;
    assert!(matches!(made.status(), 200 | 201), "{}", made.describe());
    world.deploy("keeper", &with_disk("one")).await;
    world
        .text("keeper", "/write?path=/data/note&text=kept")
        .await;
    world
        .text("keeper", "/write?path=/var/tmp/note&text=lost")
        .await;

    let second = world.deploy("keeper", &with_disk("two")).await;
    assert_eq!(world.text("keeper", "/read?path=/data/note").await, "kept");
    assert_eq!(
        world
            .page("keeper", "/read?path=/var/tmp/note")
            .await
            .status,
        500
    );
    world.scale("keeper", 0).await;
    eventually("it is off", || async { world.docker.running().is_empty() }).await;
    world.scale("keeper", 1).await;
    eventually("it is back", || async {
        world.page("keeper", "/").await.status == 200
    })
    .await;
    assert_eq!(world.text("keeper", "/read?path=/data/note").await, "kept");

    // It has a size.
    let said = world.text("keeper", "/fill?folder=/data&most=1100").await;
    assert!(said.ends_with("ENOSPC"), "{said}");

    // It becomes larger while it is used, with what is on it.
    let resize = format!("{disks}/data/resize");
    let grown = world.ada.post(&resize, &json!({"size": 2})).await;
    if may_resize_mounted() {
        assert_eq!(grown.assert(200).json()["disk"]["size"], 2);
        let said = world.text("keeper", "/fill?folder=/data&most=1100").await;
        assert!(!said.ends_with("ENOSPC"), "{said}");
    } else {
        grown.refused(409, "disk_fixed");
        assert_eq!(world.project("keeper").await["disks"][0]["size"], 1);
    }
    assert_eq!(world.text("keeper", "/read?path=/data/note").await, "kept");

    let listed = world.ada.get(disks).await.assert(200).text();
    assert!(listed.contains("data"), "{listed}");
    // One that is in use stays.
    let refused = world.ada.delete(&format!("{disks}/data")).await.status();
    assert_eq!(refused, 409);
    // One that is gone is missed by those who come back.
    world.deploy("keeper", &server("three")).await;
    world.ada.delete(&format!("{disks}/data")).await.assert(204);
    let back = format!("/v1/releases/{second}/rollback");
    let refused = world.ada.post_empty(&back).await;
    refused.refused(409, "disk_missing");
    world.delete("keeper").await;
    world.nothing_left().await;
    world.end().await;
}
