//! What can be reached from inside of an instance, and what cannot.

use crate::sources::server;
use crate::support::{ContainerFixture, create, deploy, ended, eventually};
use estrade_runtime::{Engine, EngineHost, SubnetPool};
use estrade_testkit::{Api, free_port};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Where an instance of a project is, and the host as it sees it.
fn addresses(fixture: &ContainerFixture, project: &str) -> (String, String) {
    let running = fixture.docker.running();
    let of_project =
        |container: &&Value| container["Config"]["Labels"]["estrade.project"] == project;
    let container = running.iter().find(of_project).expect("an instance");
    let networks = container["NetworkSettings"]["Networks"]
        .as_object()
        .unwrap();
    let network = networks.values().next().expect("a network");
    let text = |field: &str| network[field].as_str().unwrap().to_owned();
    (text("IPAddress"), text("Gateway"))
}

/// What an instance of a project is told when it asks somebody for `/`.
async fn reach(fixture: &ContainerFixture, from: &str, host: &str, port: u16) -> String {
    fetch(fixture, from, host, port, "/").await
}

async fn fetch(
    fixture: &ContainerFixture,
    from: &str,
    host: &str,
    port: u16,
    path: &str,
) -> String {
    let path = format!("/reach?host={host}&port={port}&path={path}");
    fixture.text(from, &path).await
}

async fn only_inference_is_reached(firewall: bool) {
    let ai_port = free_port();
    let fixture = ContainerFixture::with(|setup| {
        // As on a machine that serves its users from outside.
        setup.host = Ipv4Addr::UNSPECIFIED.into();
        setup.ai_port = ai_port;
        setup.settings.containers.firewall = firewall;
        setup.settings.containers.inference_port = Some(ai_port);
    })
    .await;
    let bob = fixture.app.new_account("bob").await;
    let mine = fixture.create("mine", "docker").await;
    fixture.deploy("mine", &server("one")).await;
    let also_mine = fixture.create("also-mine", "docker").await;
    fixture.deploy("also-mine", &server("one")).await;
    let theirs = create(&bob, "theirs", "docker").await;
    deploy(&bob, "theirs", &server("one")).await;

    // Projects of one owner reach each other, and nobody else's.
    let (address, gateway) = addresses(&fixture, &mine);
    let (sibling, _) = addresses(&fixture, &also_mine);
    assert_eq!(
        reach(&fixture, "mine", &sibling, 8000).await,
        "answered HTTP/1.1 200 OK"
    );
    let (other, other_gateway) = addresses(&fixture, &theirs);
    assert_ne!(gateway, other_gateway, "every owner has a network");
    let said = reach(&fixture, "mine", &other, 8000).await;
    assert!(said.starts_with("nobody"), "{said}");
    let said = reach(&fixture, "theirs", &address, 8000).await;
    assert!(said.starts_with("nobody"), "{said}");

    // Of the host, only the AI API answers, and of that no management.
    let platform = fixture.app.address(Api::Platform).port();
    for host in [&gateway, &other_gateway] {
        let said = reach(&fixture, "mine", host, platform).await;
        assert!(!said.starts_with("answered"), "the platform API: {said}");
    }
    for (path, status) in [
        ("/v1/models", " 401 "),
        ("/v1/keys", " 403 "),
        ("/docs", " 403 "),
    ] {
        let said = fetch(&fixture, "mine", &gateway, ai_port, path).await;
        assert!(
            said.starts_with("answered") && said.contains(status),
            "{path}: {said}"
        );
    }
    if firewall {
        let stranger = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = stranger.local_addr().unwrap().port();
        let said = reach(&fixture, "mine", &gateway, port).await;
        assert!(
            said.starts_with("nobody"),
            "another service of the host: {said}"
        );
    }
    assert_eq!(fixture.text("mine", "/sockets").await, "none");

    fixture.delete("mine").await;
    fixture.delete("also-mine").await;
    bob.delete("/v1/projects/theirs").await.assert(200);
    fixture.nothing_left().await;
    let chain = chain_to_host(&fixture);
    assert_eq!(has_rules(&chain), firewall);
    fixture.end().await;
    assert!(!has_rules(&chain), "rules are left after a clean stop");
}

/// The chain of rules for packets to the host.
fn chain_to_host(fixture: &ContainerFixture) -> String {
    let installation = fixture.app.core().runtime.installation().clone();
    let engine = Engine::new(EngineHost::default(), installation, SubnetPool::default()).unwrap();
    let rules = format!("{:?}", engine.firewall(&[]));
    let mut words = rules.split('"');
    let chain = words.find(|word| word.starts_with("ESTRADE-HOST"));
    chain.unwrap().to_owned()
}

/// Steps of builds are containers, although no project runs yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_that_were_flushed_come_back_while_something_is_built() {
    let fixture = ContainerFixture::with(|setup| {
        setup.settings.containers.firewall = true;
        setup.settings.containers.firewall_interval = Duration::from_secs(1);
    })
    .await;
    let chain = chain_to_host(&fixture);
    eventually("there are rules", || async { has_rules(&chain) }).await;
    fixture.create("slow", "docker").await;
    let base = estrade_testkit::Docker::BASE;
    let dockerfile = format!("FROM {base}\nRUN sleep 30; exit 1\n");
    let body = json!({"type": "docker", "port": 8000, "files": [{"path": "Dockerfile", "data": dockerfile}]});
    let release = fixture.release("slow", &body).await;
    eventually("it is built", || async {
        fixture.build_log(&release).await.contains("sleep 30")
    })
    .await;
    fixture
        .app
        .core()
        .runtime
        .remove_network_policy()
        .await
        .unwrap();
    assert!(!has_rules(&chain));
    eventually("the rules are back", || async { has_rules(&chain) }).await;
    let path = format!("/v2/releases/{release}/cancel");
    fixture.ada.post_empty(&path).await.assert(200);
    fixture.end().await;
}

/// Whether the kernel's firewall has a chain of ours, for either family.
fn has_rules(chain: &str) -> bool {
    ["iptables", "ip6tables"].iter().any(|program| {
        let listed = std::process::Command::new(program)
            .args(["--wait", "-t", "mangle", "-S"])
            .output()
            .unwrap();
        String::from_utf8_lossy(&listed.stdout).contains(chain)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_others_and_the_host_only_inference_is_reached() {
    only_inference_is_reached(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_listeners_do_not_rely_on_the_firewall() {
    only_inference_is_reached(false).await;
}

/// An image on the engine that does something to those who build on it.
pub(crate) fn image_with_trigger(fixture: &ContainerFixture, trigger: &str) -> String {
    let container = fixture.docker.running()[0]["Id"]
        .as_str()
        .unwrap()
        .to_owned();
    let tag = container[..12].to_owned();
    let trigger = trigger.replace(' ', "%20").replace('=', "%3D");
    let (status, made) = fixture.docker.request(
        "POST",
        &format!(
            "/commit?pause=0&container={container}&repo=estrade-test/trigger&tag={tag}&changes=ONBUILD%20{trigger}"
        ),
    );
    assert_eq!(status, 201, "{made}");
    format!("estrade-test/trigger:{tag}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_takes_nothing_from_others_when_somebody_builds_on_it() {
    let fixture = ContainerFixture::new().await;
    fixture.serve("shop").await;
    let built = |image: &str| {
        let dockerfile = format!("FROM {image} AS one\nRUN cat /greeting || echo no greeting\n");
        json!({"type": "docker", "port": 8000, "files": [{"path": "Dockerfile", "data": dockerfile}]})
    };
    let evil = image_with_trigger(&fixture, "COPY --from=ea8a /etc/passwd /greeting");
    fixture.create("thief", "docker").await;
    let release = fixture.release("thief", &built(&evil)).await;
    let release = ended(&fixture.ada, &release).await;
    assert_eq!(release["state"], "FAILED", "{release:#}");
    assert_eq!(release["failReason"], "build_refused", "{release:#}");
    assert!(
        !fixture
            .build_log(release["_id"].as_str().unwrap())
            .await
            .contains("Step 1")
    );
    fixture.docker.request("DELETE", &format!("/images/{evil}"));

    // What it does to itself is its own business.
    let fine = image_with_trigger(&fixture, "RUN echo hello >/greeting");
    let release = fixture.release("thief", &built(&fine)).await;
    ended(&fixture.ada, &release).await;
    let log = fixture.build_log(&release).await;
    assert!(log.contains("\nhello\n"), "{log}");
    fixture.docker.request("DELETE", &format!("/images/{fine}"));
    fixture.end().await;
}
