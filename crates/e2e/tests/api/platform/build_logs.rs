//! `/v2/releases/{releaseID}/build-logs`

use crate::support::{
    assert_id, assert_time, column, deploy, deploy_site, ended, fields, new_project, new_source,
    tar_gz,
};
use estrade_testkit::{TestApp, on_both_backends};
use serde_json::json;

on_both_backends! {
    lines_come_once_and_in_order;
    what_is_not_built_says_nothing;
    since_is_checked;
    sources_that_are_deployed_as_a_site_are_warned_of;
}

async fn lines_come_once_and_in_order(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let source = new_source(&ada, "shop", &tar_gz(&[("page.html", "x")])).await;
    let release = deploy(&ada, "shop", &json!({ "sourceID": source })).await;
    assert_eq!(ended(&ada, &release).await["state"], "READY");
    let path = format!("/v2/releases/{release}/build-logs");
    let all = ada.get(&path).await.assert(200).json();
    assert_eq!(fields(&all), ["buildOutput", "release"]);
    assert_eq!(all["release"], json!({"state": "READY"}));
    let lines = column(&all["buildOutput"], "line");
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(lines[0], "Unpacked 1 files, 1 bytes\n");
    assert!(lines[1].starts_with("Warning: ") && lines[1].ends_with('\n'));
    // Public clients look for these words, and do not cancel what has been built.
    assert_eq!(lines[2], format!("Successfully tagged {release}\n"));
    for line in all["buildOutput"].as_array().unwrap() {
        assert_eq!(
            fields(line),
            ["_id", "createdAt", "line", "releaseID", "stream"]
        );
        assert_id(&line["_id"]);
        assert_time(&line["createdAt"]);
        assert_eq!(line["releaseID"], release);
        assert_eq!(line["stream"], "STDOUT");
    }
    let times = column(&all["buildOutput"], "createdAt");
    assert!(times[0] < times[1] && times[1] < times[2]);
    assert_ne!(
        column(&all["buildOutput"], "_id")[0],
        column(&all["buildOutput"], "_id")[1]
    );
    // Strictly after, so that who follows sees each line once.
    let rest = ada.get(&format!("{path}?since={}", times[0])).await.json();
    assert_eq!(column(&rest["buildOutput"], "line"), lines[1..]);
    let none = ada.get(&format!("{path}?since={}", times[2])).await.json();
    assert_eq!(none["buildOutput"], json!([]));
    for absent in ["undefined", "", "null"] {
        let again = ada.get(&format!("{path}?since={absent}")).await.json();
        assert_eq!(again, all);
    }
}

async fn what_is_not_built_says_nothing(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let release = deploy_site(&ada, "shop").await;
    let path = format!("/v2/releases/{release}/build-logs");
    let logs = ada.get(&path).await.assert(200).json();
    assert_eq!(
        logs,
        json!({"release": {"state": "READY"}, "buildOutput": []})
    );
}

async fn since_is_checked(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let release = deploy_site(&ada, "shop").await;
    let path = format!("/v2/releases/{release}/build-logs?since=yesterday");
    ada.get(&path).await.refused(400, "invalid").naming("since");
    let path = "/v2/releases/0123456789abcdef01234567/build-logs";
    ada.get(path).await.refused(404, "not_found");
}

async fn sources_that_are_deployed_as_a_site_are_warned_of(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let sources = [
        "index.html",
        "package.json",
        "vite.config.js",
        "src/main.jsx",
    ];
    let file = |path: &&str| json!({"path": path, "data": "x"});
    let files: Vec<_> = sources.iter().map(file).collect();
    let contents = sources.map(|path| (path, "x"));
    let source = new_source(&ada, "shop", &tar_gz(&contents)).await;
    for body in [json!({ "files": files }), json!({ "sourceID": source })] {
        let release = deploy(&ada, "shop", &body).await;
        let read = ended(&ada, &release).await;
        assert_eq!(read["state"], "READY", "{read:#}");
        let warning = read["warnings"][0].as_str().unwrap_or_default();
        assert!(warning.contains("has to be built first"), "{read:#}");
        let path = format!("/v2/releases/{release}/build-logs");
        let log = ada.get(&path).await.assert(200).json();
        let lines = column(&log["buildOutput"], "line");
        let warned = |line: &String| line.starts_with("Warning: these look like");
        assert!(lines.iter().any(warned), "{lines:?}");
    }
    let release = deploy_site(&ada, "shop").await;
    assert_eq!(ended(&ada, &release).await.get("warnings"), None);
}
