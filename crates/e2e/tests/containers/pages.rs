//! Platforms whose build ends as a static site.

use crate::sources::{as_json, files};
use crate::support::{ContainerFixture, ended};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_react_app_ends_as_files_on_the_edge() {
    let fixture = ContainerFixture::new().await;
    fixture.create("pages", "react").await;
    let mut body = as_json(&files("react", "one"));
    body["build"] = json!({"args": {"API_URL": "https://api.example.com"}});
    let release = fixture.deploy("pages", &body).await;
    let log = fixture.build_log(&release).await;
    assert!(log.contains("built one"), "{log}");

    let home = fixture.page("pages", "/").await;
    assert_eq!(
        home.text(),
        "<title>Made of parts</title><p>one https://api.example.com</p>"
    );
    assert_eq!(
        home.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert_eq!(
        fixture.text("pages", "/assets/app.js").await,
        "console.log(\"one\")"
    );
    // It is an application: its own paths show it. Its sources are not on the web.
    assert_eq!(fixture.text("pages", "/some/view").await, home.text());
    assert_eq!(fixture.page("pages", "/build.js").await.status, 404);
    let again = fixture.page("pages", "/").await;
    assert!(again.header("etag").is_some(), "served as a file");
    assert_eq!(fixture.docker.running().len(), 0, "nothing has to run");

    fixture
        .deploy("pages", &as_json(&files("react", "two")))
        .await;
    assert!(fixture.text("pages", "/").await.contains("two"));
    fixture.delete("pages").await;
    fixture.nothing_left().await;
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_site_is_found_where_its_tool_writes_it_or_missed_in_one_sentence() {
    let fixture = ContainerFixture::new().await;
    let sources = |folder: &str| {
        let build = format!("mkdir -p {folder} && echo hello >{folder}/index.html");
        let package = json!({ "scripts": { "build": build } });
        as_json(&[("package.json".to_owned(), package.to_string())])
    };
    fixture.create("pages", "react").await;
    for folder in ["_site", "public", ".output/public"] {
        fixture.deploy("pages", &sources(folder)).await;
        assert_eq!(fixture.text("pages", "/").await, "hello\n", "{folder}");
    }
    let id = fixture.release("pages", &sources("elsewhere")).await;
    let release = ended(&fixture.ada, &id).await;
    assert_eq!(release["failReason"], "build_failed", "{release:#}");
    let message = release["failMessage"].as_str().unwrap();
    assert!(
        message.starts_with("the build wrote no index.html to dist, build, out, _site,"),
        "{message}"
    );
    let (first, _) = message.split_once('\n').unwrap();
    let advice = "there is one in elsewhere; set platformConfig.outputDir to \"elsewhere\"";
    assert!(first.contains(advice), "{first}");
    let log = fixture.build_log(&id).await;
    assert!(log.contains("an index.html is in: elsewhere"), "{log}");
    assert!(!log.contains("for folder do"), "{log}");
    fixture.end().await;
}
