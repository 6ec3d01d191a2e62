//! What package managers have downloaded is there for the next build of the project, and for nobody else.

use crate::support::{ContainerFixture, create, deploy, ended, eventually};
use estrade_testkit::{Docker, User, eventually_or};
use serde_json::{Value, json};

/// Stands in for npm, because there is no registry: keeps a file for each dependency in its cache, and says what was there.
const NPM: &str = r#"#!/bin/sh
case "$1" in
ci)
    mkdir -p "$npm_config_cache" node_modules
    echo "found in the cache:" $(ls "$npm_config_cache") end
    for name in $(grep -o 'part-[a-z]*' package.json); do
        echo "$name" >"$npm_config_cache/$name"
        cp "$npm_config_cache/$name" node_modules/
    done
    if grep -q junk package.json; then head -c 6000000 /dev/urandom >"$npm_config_cache/junk"; fi
    if grep -q broken package.json; then exit 1; fi
    ;;
run) mkdir -p dist && cp page.html dist/index.html ;;
esac
"#;

/// The image that sites of this test are built on, and those who build.
struct PackageFixture {
    inner: ContainerFixture,
    image: String,
}

impl PackageFixture {
    async fn new(cache_bytes: u64) -> Self {
        let unique = format!("{}-{cache_bytes}", std::process::id());
        let image = format!("estrade-test/npm:{unique}");
        let inner = ContainerFixture::with(|setup| {
            let containers = &mut setup.settings.containers;
            containers.build_cache = cache_bytes;
            containers.images.set("react", &image).unwrap();
        })
        .await;
        let dockerfile = format!(
            "FROM {}\nCOPY npm /usr/local/bin/npm\nCMD [\"/bin/sh\",\"-c\",\"exec python3 -m http.server 8000\"]\n",
            Docker::BASE
        );
        let tools = inner.create("tools", "docker").await;
        let body = json!({"type": "docker", "port": 8000, "files": [
            {"path": "Dockerfile", "data": dockerfile}, {"path": "npm", "data": NPM},
        ]});
        let release = inner.deploy("tools", &body).await;
        let installation = inner.app.core().runtime.installation().to_string();
        let path = format!("/images/estrade-{installation}/{tools}:{release}/tag");
        let query = format!("repo=estrade-test/npm&tag={unique}");
        let (status, said) = inner.docker.request("POST", &format!("{path}?{query}"));
        assert_eq!(status, 201, "{said}");
        inner.delete("tools").await;
        Self { inner, image }
    }

    /// Deploys a site of Ada's, and waits until what it has installed is kept. What the step that installs has found.
    async fn install(&self, project: &str, packages: &str) -> String {
        let before = self.kept(project).await;
        let found = self.build(project, packages, "page").await;
        let found = found.unwrap_or_else(|| panic!("nothing was installed for {packages}"));
        let describe = || {
            let log = self.inner.app.log();
            let about = log.lines().filter(|line| line.contains("cache"));
            let about = about.collect::<Vec<_>>().join("\n");
            format!("the packages of {packages} are not kept, and the log says:\n{about}")
        };
        eventually_or(describe, || async {
            let now = self.kept(project).await;
            now.is_some() && now != before
        })
        .await;
        found
    }

    /// Deploys a site of Ada's; what the step that installs has found, unless it was not run.
    async fn build(&self, project: &str, packages: &str, page: &str) -> Option<String> {
        let release = self.inner.deploy(project, &site(packages, page)).await;
        let text = self.inner.text(project, "/").await;
        assert!(text.contains(page), "{text}");
        found(&self.inner.build_log(&release).await)
    }

    /// The newest cache that a build of Ada's project has left behind.
    async fn kept(&self, project: &str) -> Option<String> {
        let project = self.inner.project(project).await;
        let id = project["_id"].as_str().unwrap();
        let begin = format!("/caches:{id}-out-");
        let caches = self.inner.docker.package_caches();
        caches.into_iter().rfind(|name| name.contains(&begin))
    }

    async fn end(self) {
        let path = format!("/images/{}", self.image);
        self.inner.docker.request("DELETE", &path);
        self.inner.end().await;
    }
}

fn site(packages: &str, page: &str) -> Value {
    let package = json!({
        "dependencies": packages.split(' ').map(|name| (name, "1")).collect::<std::collections::BTreeMap<_, _>>(),
        "scripts": {"build": "build"},
    });
    json!({"files": [
        {"path": "package.json", "data": package.to_string()},
        {"path": "package-lock.json", "data": "{}"},
        {"path": "page.html", "data": page},
    ]})
}

/// What the step that installs has found in the cache; none: a layer of an earlier build was used.
fn found(log: &str) -> Option<String> {
    let (_, install) = log.split_once("npm ci").unwrap();
    let (_, install) = install.split_once('\n').unwrap();
    let (install, _) = install.split_once("Step ").unwrap();
    if install.contains("Using cache") {
        return None;
    }
    let (_, found) = install.split_once("found in the cache:").unwrap();
    let (found, _) = found.split_once("end").unwrap();
    Some(found.trim().to_owned())
}

async fn first_install(user: &User, project: &str) -> String {
    let release = deploy(user, project, &site("part-a", "page")).await;
    let log = user
        .get(&format!("/v2/releases/{release}/build-logs"))
        .await;
    let log = log.assert(200).json();
    let lines = log["buildOutput"].as_array().unwrap().iter();
    let lines: String = lines.map(|line| line["line"].as_str().unwrap()).collect();
    found(&lines).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_build_has_downloaded_is_there_for_the_next_of_its_project_only() {
    let fixture = PackageFixture::new(1 << 30).await;
    let inner = &fixture.inner;
    let id = inner.create("shop", "react").await;
    assert_eq!(fixture.install("shop", "part-a").await, "");
    // Sources that changed install nothing, with or without a cache.
    assert_eq!(fixture.build("shop", "part-a", "second").await, None);
    assert_eq!(fixture.install("shop", "part-a part-b").await, "part-a");
    assert_eq!(fixture.build("shop", "part-a part-b", "fourth").await, None);
    assert_eq!(fixture.build("shop", "part-a part-b", "fifth").await, None);
    assert_eq!(fixture.install("shop", "part-c").await, "part-a part-b");

    // Neither another project of the same owner nor another owner sees anything of it.
    inner.create("other", "react").await;
    assert_eq!(first_install(&inner.ada, "other").await, "");
    let bob = inner.app.new_account("bob").await;
    create(&bob, "theirs", "react").await;
    assert_eq!(first_install(&bob, "theirs").await, "");

    // Nobody can name it, not even its owner.
    let name = fixture.kept("shop").await.unwrap();
    let body = json!({"type": "docker", "image": &name});
    inner.create("thief", "docker").await;
    let refused = inner.ada.post("/v2/projects/thief/releases", &body).await;
    assert_eq!(refused.status(), 400, "{}", refused.text());
    for text in [
        format!("FROM {name}\nRUN false\n"),
        format!(
            "FROM {}\nCOPY --from={name} /var/cache/estrade /x\nRUN false\n",
            Docker::BASE
        ),
    ] {
        let body = json!({"type": "docker", "port": 8000, "files": [{"path": "Dockerfile", "data": text}]});
        let release = inner.release("thief", &body).await;
        let release = ended(&inner.ada, &release).await;
        assert_eq!(release["failReason"], "build_refused", "{release:#}");
    }

    // It goes with its project.
    inner.delete("shop").await;
    eventually("the caches of the project are removed", || async {
        let caches = inner.docker.package_caches();
        !caches.iter().any(|name| name.contains(&id))
    })
    .await;
    for project in ["other", "thief"] {
        inner.delete(project).await;
    }
    bob.delete("/v1/projects/theirs").await.assert(200);
    inner.nothing_left().await;
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_that_is_too_large_and_one_of_a_failed_build_are_not_kept() {
    let fixture = PackageFixture::new(2_000_000).await;
    let inner = &fixture.inner;
    inner.create("shop", "react").await;
    let release = inner.release("shop", &site("part-a broken", "page")).await;
    let release = ended(&inner.ada, &release).await;
    assert_eq!(release["failReason"], "build_failed", "{release:#}");
    assert_eq!(fixture.install("shop", "part-a").await, "");
    assert_eq!(fixture.install("shop", "part-a junk").await, "part-a");
    assert_eq!(fixture.build("shop", "part-a junk", "again").await, None);
    // What a script has filled it with is gone, and so is the rest.
    assert_eq!(fixture.install("shop", "part-b").await, "");
    assert_eq!(fixture.install("shop", "part-c").await, "part-b");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_size_no_cache_is_kept() {
    let fixture = PackageFixture::new(0).await;
    fixture.inner.create("shop", "react").await;
    assert_eq!(
        fixture.build("shop", "part-a", "one").await.as_deref(),
        Some("")
    );
    assert_eq!(fixture.build("shop", "part-a", "two").await, None);
    assert_eq!(
        fixture.build("shop", "part-b", "three").await.as_deref(),
        Some("")
    );
    assert_eq!(fixture.inner.docker.package_caches(), Vec::<String>::new());
    fixture.end().await;
}
