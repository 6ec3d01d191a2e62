//! Platforms whose build ends as a static site.

use crate::sources::{as_json, files};
use crate::support::World;
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_react_app_ends_as_files_on_the_edge() {
    let world = World::new().await;
    world.create("pages", "react").await;
    let mut body = as_json(&files("react", "one"));
    body["build"] = json!({"args": {"API_URL": "https://api.example.com"}});
    let release = world.deploy("pages", &body).await;
    let log = world.build_log(&release).await;
    assert!(log.contains("built one"), "{log}");

    let home = world.page("pages", "/").await;
    assert_eq!(
        home.text(),
        "<title>Made of parts</title><p>one https://api.example.com</p>"
    );
    assert_eq!(
        home.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert_eq!(
        world.text("pages", "/assets/app.js").await,
        "console.log(\"one\")"
    );
    // It is an application: its own paths show it. Its sources are not on the web.
    assert_eq!(world.text("pages", "/some/view").await, home.text());
    assert_eq!(world.page("pages", "/build.js").await.status, 404);
    let again = world.page("pages", "/").await;
    assert!(again.header("etag").is_some(), "served as a file");
    assert_eq!(world.docker.running().len(), 0, "nothing has to run");

    world
        .deploy("pages", &as_json(&files("react", "two")))
        .await;
    assert!(world.text("pages", "/").await.contains("two"));
    world.delete("pages").await;
    world.nothing_left().await;
    world.end().await;
}
