//! `/v1/exec`

use crate::socket::{Closed, Socket};
use crate::support::{
    CALM, clean, deploy, engine, eventually, new_live, new_project, running, scale,
};
use estrade_runtime::Instance;
use estrade_testkit::{Backend, TestApp, User, on_both_backends};
use serde_json::json;
use std::time::Duration;
use tokio::task::JoinSet;

on_both_backends! {
    a_shell_at_a_terminal with engine;
    a_line_is_run_by_sh with engine;
    streams_are_kept_apart_without_a_terminal with engine;
    who_may_open_one with engine;
    a_token_may_be_a_subprotocol with engine;
    it_is_a_websocket_or_nothing;
    without_an_instance_there_is_none with engine;
    a_token_that_is_revoked_before_the_first_frame_opens_none;
    only_instances_of_the_live_release_count with engine;
    frames_are_small_and_make_sense with engine;
    who_leaves_hangs_up with engine;
    a_token_that_is_revoked_ends_its_shells with engine;
    much_goes_through_in_both_directions with engine;
}

fn query(user: &User, more: &str) -> String {
    format!("token={}&project_id=shop{more}", user.token())
}

async fn open(app: &TestApp, user: &User, more: &str) -> Socket {
    let opened = Socket::open(app, &query(user, more), &[]).await;
    opened.expect("a WebSocket")
}

fn closed(code: u16, reason: &str) -> Closed {
    let reason = reason.to_owned();
    Closed { code, reason }
}

async fn a_shell_at_a_terminal(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_live(app, &ada, "shop").await;
    let mut shell = open(app, &ada, "").await;
    shell.start(101, 31).await;
    shell.type_in("stty size; echo té''st\n").await;
    let shown = shell.read_until("tést").await;
    assert!(shown.contains("31 101"), "{shown}");
    shell
        .send(json!({"type": "resize", "cols": 77, "rows": 22}))
        .await;
    shell.type_in("stty size\n").await;
    shell.read_until("22 77").await;
    shell.type_in("exit 3\n").await;
    assert_eq!(shell.closed().await, closed(1000, "exit code 3"));
    // It is counted by its route, and nothing of its query is told to anybody.
    let numbers = app.stranger().get("/metrics").await.assert(200).text();
    assert!(
        numbers.contains(r#"route="/v1/exec",status="101""#),
        "{numbers}"
    );
    assert!(!numbers.contains(ada.token()));
    assert!(!app.log().contains("project_id=shop"));
    clean(app, &ada).await;
}

async fn a_line_is_run_by_sh(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_live(app, &ada, "shop").await;
    for (command, shown, code) in [
        ("echo+%22$((6*7))%22;+exit+4", "42", 4),
        ("true", "", 0),
        ("no-such-command", "no-such-command", 127),
        ("kill+-9+$$", "", 137),
    ] {
        let mut shell = open(app, &ada, &format!("&cmd={command}")).await;
        shell.start(80, 24).await;
        let (text, end) = shell.read_to_end().await;
        assert!(text.contains(shown), "{command}: {text}");
        assert_eq!(end, closed(1000, &format!("exit code {code}")), "{command}");
    }
    clean(app, &ada).await;
}

/// The subprotocol `estrade.streams`: bytes in, bytes out behind one that names their stream, and an end of the input.
async fn streams_are_kept_apart_without_a_terminal(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_live(app, &ada, "shop").await;
    let bearer = format!("Bearer {}", ada.token());
    let headers = [
        ("authorization", bearer.as_str()),
        ("sec-websocket-protocol", "estrade, estrade.streams"),
    ];
    let open = async |command: &str| {
        let query = format!("project_id=shop&cmd={command}");
        let opened = Socket::open(app, &query, &headers).await;
        opened.expect("a WebSocket")
    };
    let mut shell = open("cat;+echo+err+%3E%262;+tty;+exit+7").await;
    shell.send(json!({"action": "start"})).await;
    shell.send_bytes(b"a\r\n\x03\x04{\"type\":\"eof\"}").await;
    shell.send(json!({"type": "input", "data": "."})).await;
    shell.send(json!({"type": "eof"})).await;
    let (mut text, end) = shell.read_to_end().await;
    text.retain(|c| c != '\u{1}');
    assert_eq!(
        text.replacen("\u{2}err\n", "", 1),
        "a\r\n\u{3}\u{4}{\"type\":\"eof\"}.not a tty\n"
    );
    assert!(text.contains("\u{2}err\n"), "{text:?}");
    assert_eq!(end, closed(1000, "exit code 7"));
    // What means something at a terminal only is refused.
    for frame in [
        json!({"type": "resize", "cols": 1, "rows": 1}),
        json!({"action": "start"}),
    ] {
        let mut shell = open("cat").await;
        shell.send(json!({"action": "start"})).await;
        shell.send(frame).await;
        assert_eq!(shell.closed().await.code, 4400);
    }
    // Without the subprotocol there is a terminal, whose input never ends.
    let query = "project_id=shop&cmd=tty";
    let opened = Socket::open(app, query, &headers[..1]).await;
    let mut shell = opened.expect("a WebSocket");
    shell.start(80, 24).await;
    let (text, end) = shell.read_to_end().await;
    assert!(text.starts_with("/dev/pts/"), "{text}");
    assert_eq!(end, closed(1000, "exit code 0"));
    let mut shell = open_terminal(app, &ada).await;
    shell.send(json!({"type": "eof"})).await;
    assert_eq!(shell.closed().await.code, 4400);
    clean(app, &ada).await;
}

async fn open_terminal(app: &TestApp, user: &User) -> Socket {
    let mut shell = open(app, user, "").await;
    shell.start(80, 24).await;
    shell
}

async fn who_may_open_one(app: &TestApp) {
    let (ada, eve) = (app.new_account("ada").await, app.new_account("eve").await);
    let team = app.new_team(&ada, "Shop").await;
    let (dev, viewer) = (
        app.new_account("dev").await,
        app.new_account("viewer").await,
    );
    app.join(&team, &ada, &dev, "developer").await;
    app.join(&team, &ada, &viewer, "viewer").await;
    let owner = ada.in_team(&team);
    new_live(app, &owner, "shop").await;
    let in_team = format!("&teamID={team}");
    for (user, more, status) in [
        (&dev, "", 404),
        (&ada, "", 404),
        (&viewer, in_team.as_str(), 403),
        (&eve, in_team.as_str(), 403),
        (&eve, "", 404),
    ] {
        let refused = Socket::open(app, &query(user, more), &[]).await;
        assert_eq!(refused.err(), Some(status), "{} {more}", user.email);
    }
    let bearer = format!("Bearer {}", dev.token());
    let plain = "project_id=shop&cmd=true";
    for (query, headers) in [
        (query(&dev, &in_team), vec![]),
        (query(&dev, ""), vec![("x-teamid", team.as_str())]),
        (
            format!("{plain}{in_team}"),
            vec![("authorization", bearer.as_str())],
        ),
        // Both: what is in the head counts.
        (
            format!("{plain}{in_team}&token=nonsense"),
            vec![("authorization", bearer.as_str())],
        ),
    ] {
        let mut shell = Socket::open(app, &query, &headers).await.expect("a shell");
        shell.start(80, 24).await;
        shell.type_in("exit\n").await;
        assert_eq!(shell.closed().await, closed(1000, "exit code 0"));
    }
    let twice = format!("{}&token={}", query(&dev, &in_team), dev.token());
    for (query, headers) in [
        (format!("{plain}{in_team}"), vec![]),
        (format!("{plain}{in_team}&token="), vec![]),
        (format!("{plain}{in_team}&token=x.y.z"), vec![]),
        (twice, vec![]),
        (
            query(&dev, &in_team),
            vec![("authorization", "Bearer x.y.z")],
        ),
    ] {
        let refused = Socket::open(app, &query, &headers).await;
        assert_eq!(refused.err(), Some(401), "{query}");
    }
    clean(app, &owner).await;
}

async fn it_is_a_websocket_or_nothing(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let plain = ada.get("/v1/exec?project_id=shop").await;
    plain.refused(400, "invalid").naming("WebSocket");
    for query in ["", "?project_id=", "?cmd=sh"] {
        let refused = ada.get(&format!("/v1/exec{query}")).await;
        refused.refused(400, "invalid").naming("project_id");
    }
    let nul = ada.get("/v1/exec?project_id=shop&cmd=a%00b").await;
    nul.refused(400, "invalid").naming("cmd");
    ada.get("/v1/exec?project_id=nothing")
        .await
        .refused(404, "not_found");
    let query = format!("/v1/exec?project_id=shop&token={}", ada.token());
    app.stranger().get(&query).await.refused(400, "invalid");
}

async fn without_an_instance_there_is_none(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let mut shell = open(app, &ada, "").await;
    shell.start(80, 24).await;
    let end = shell.closed().await;
    assert_eq!(end.code, 4404);
    assert!(
        end.reason
            .starts_with("no instance of this project is running"),
        "{end:?}"
    );
}

/// Where a shell is.
async fn whereabouts(app: &TestApp, user: &User) -> String {
    let mut shell = open(app, user, "&cmd=hostname").await;
    shell.start(80, 24).await;
    let (shown, end) = shell.read_to_end().await;
    assert_eq!(end, closed(1000, "exit code 0"), "{shown}");
    shown.trim().to_owned()
}

async fn only_instances_of_the_live_release_count(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let first = new_live(app, &ada, "shop").await;
    let project = first.key.project;
    assert_eq!(whereabouts(app, &ada).await, format!("{:?}", first.id));
    deploy(&ada, "shop", CALM).await;
    let there = whereabouts(app, &ada).await;
    let new = running(app, project, 1).await.remove(0);
    assert_ne!(new.key.release, first.key.release);
    assert_eq!(there, format!("{:?}", new.id));
    scale(&ada, "shop", 0).await;
    running(app, project, 0).await;
    let mut shell = open(app, &ada, "").await;
    shell.start(80, 24).await;
    assert_eq!(shell.closed().await.code, 4404);
    clean(app, &ada).await;
}

async fn frames_are_small_and_make_sense(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_live(app, &ada, "shop").await;
    for first in [json!({"type": "input", "data": "x"}), json!([]), json!({})] {
        let mut shell = open(app, &ada, "").await;
        shell.send(first).await;
        assert_eq!(shell.closed().await.code, 4400);
    }
    for later in [json!({"type": "nothing"}), json!({"action": "start"})] {
        let mut shell = open(app, &ada, "").await;
        shell.start(80, 24).await;
        shell.send(later).await;
        assert_eq!(shell.closed().await.code, 4400);
    }
    let mut shell = open(app, &ada, "").await;
    shell.start(80, 24).await;
    shell.type_in(&"x".repeat(65 * 1024)).await;
    assert_eq!(shell.closed().await.code, 1009);
    clean(app, &ada).await;
}

/// Whether a process of an instance has this word among its arguments.
async fn runs(app: &TestApp, instance: &Instance, word: &str) -> bool {
    // Not the word itself, which would find the one who looks.
    let (first, rest) = word.split_at(1);
    let look = format!("grep -qa '[{first}]{rest}' /proc/[0-9]*/cmdline");
    let command = ["sh", "-c", &look].map(str::to_owned).into();
    let limit = Duration::from_secs(10);
    let end = app.core().runtime.run_command(&instance.id, command, limit);
    end.await.unwrap().code == 0
}

async fn who_leaves_hangs_up(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let instance = new_live(app, &ada, "shop").await;
    for (number, politely) in [(7771, true), (7772, false)] {
        let word = number.to_string();
        let mut shell = open(app, &ada, &format!("&cmd=sleep+{word}")).await;
        shell.start(80, 24).await;
        eventually("the command runs", async || {
            runs(app, &instance, &word).await
        })
        .await;
        if politely {
            shell.0.close(None).await.unwrap();
        }
        drop(shell);
        eventually("it was hung up", async || {
            !runs(app, &instance, &word).await
        })
        .await;
    }
    clean(app, &ada).await;
}

async fn a_token_that_is_revoked_ends_its_shells(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_live(app, &ada, "shop").await;
    let made = ada.post("/v1/api-token", &json!({"name": "laptop"})).await;
    let made = made.assert(201);
    let laptop = ada.with_token(&made.field("/api_token"));
    let mut shell = open(app, &laptop, "").await;
    shell.start(80, 24).await;
    shell.type_in("echo he''llo\n").await;
    shell.read_until("hello").await;
    let mut other = open(app, &ada, "").await;
    other.start(80, 24).await;
    let path = format!("/v1/tokens/{}", made.field("/_id"));
    ada.delete(&path).await.assert(204);
    assert_eq!(shell.closed().await.code, 4401);
    // Those of others go on.
    other.type_in("echo he''llo\n").await;
    other.read_until("hello").await;
    clean(app, &ada).await;
}

/// A client may wait with its first frame; what was allowed when it connected need not be any more.
async fn a_token_that_is_revoked_before_the_first_frame_opens_none(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let made = ada.post("/v1/api-token", &json!({"name": "laptop"})).await;
    let made = made.assert(201);
    let laptop = ada.with_token(&made.field("/api_token"));
    let mut shell = open(app, &laptop, "").await;
    let path = format!("/v1/tokens/{}", made.field("/_id"));
    ada.delete(&path).await.assert(204);
    shell.start(80, 24).await;
    assert_eq!(shell.closed().await.code, 4401);
}

async fn much_goes_through_in_both_directions(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_live(app, &ada, "shop").await;
    // Shows everything as soon as it is typed, while nobody reads yet.
    let mut shell = open(app, &ada, "&cmd=stty+raw+-echo;+echo+go;+cat").await;
    shell.start(80, 24).await;
    shell.read_until("go").await;
    let piece = "0123456789abcdef".repeat(1024);
    for _ in 0..32 {
        shell.type_in(&piece).await;
    }
    shell.type_in("END").await;
    let shown = shell.read_until("END").await;
    assert!(shown.len() >= 32 * piece.len(), "{}", shown.len());
    clean(app, &ada).await;
}

/// A client that sends its token as browsers can: among the subprotocols.
async fn a_token_may_be_a_subprotocol(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_live(app, &ada, "shop").await;
    let plain = "project_id=shop&cmd=true";
    let offer = format!("estrade, estrade.token.{}", ada.token());
    let headers = [("sec-websocket-protocol", offer.as_str())];
    for query in [plain.to_owned(), format!("{plain}&token=nonsense")] {
        let opened = Socket::open(app, &query, &headers).await;
        let mut shell = opened.expect("a shell");
        shell.start(80, 24).await;
        assert_eq!(shell.closed().await, closed(1000, "exit code 0"));
    }
    for offer in ["estrade, estrade.token.x.y.z", "estrade", "estrade.token."] {
        let headers = [("sec-websocket-protocol", offer)];
        let refused = Socket::open(app, plain, &headers).await;
        assert_eq!(refused.err(), Some(401), "{offer}");
    }
    assert!(!app.log().contains(ada.token()), "the token was logged");
    clean(app, &ada).await;
}

/// Sixteen of an owner; a client that has not begun, or whose project does not run, takes no room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shells_are_limited_and_close_when_the_server_stops() {
    let app = TestApp::start_with(Backend::Sqlite, engine()).await;
    let ada = app.new_account("ada").await;
    new_live(&app, &ada, "shop").await;
    let mut first = open(&app, &ada, "").await;
    first.start(80, 24).await;
    first.type_in("echo he''llo\n").await;
    first.read_until("hello").await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(open(&app, &ada, "").await);
    }
    new_project(&ada, "nothing").await;
    let idle = format!("token={}&project_id=nothing", ada.token());
    for _ in 0..20 {
        let mut shell = Socket::open(&app, &idle, &[]).await.expect("a socket");
        shell.start(80, 24).await;
        assert_eq!(shell.closed().await.code, 4404);
    }
    let mut others = Vec::new();
    for _ in 1..16 {
        let mut shell = open(&app, &ada, "").await;
        shell.start(80, 24).await;
        shell.type_in("echo he''llo\n").await;
        shell.read_until("hello").await;
        others.push(shell);
    }
    let mut one_more = open(&app, &ada, "").await;
    one_more.start(80, 24).await;
    let refused = one_more.closed().await;
    assert_eq!(refused.code, 4429);
    assert!(refused.reason.contains("of this owner"), "{refused:?}");
    // Somebody else is not concerned.
    let bob = app.new_account("bob").await;
    new_live(&app, &bob, "their-shop").await;
    let theirs = format!("token={}&project_id=their-shop&cmd=true", bob.token());
    let mut shell = Socket::open(&app, &theirs, &[]).await.expect("a socket");
    shell.start(80, 24).await;
    assert_eq!(shell.closed().await.code, 1000);
    drop(silent);
    let mut left = others.pop().unwrap();
    left.0.close(None).await.unwrap();
    eventually("there is room again", async || {
        let mut again = open(&app, &ada, "&cmd=true").await;
        again.start(80, 24).await;
        again.closed().await.code == 1000
    })
    .await;
    let mut closing = JoinSet::new();
    closing.spawn(first.closed());
    closing.spawn(others.pop().unwrap().closed());
    let core = std::sync::Arc::clone(app.core());
    let started = std::time::Instant::now();
    app.finish().await;
    assert!(started.elapsed() < Duration::from_secs(20));
    for end in closing.join_all().await {
        assert_eq!(end.code, 1001);
    }
    for instance in core.runtime.instances().await.unwrap() {
        core.runtime.remove_instance(&instance.id).await.unwrap();
    }
    for owner in core.runtime.network_owners().await.unwrap() {
        core.runtime.remove_network(owner).await.unwrap();
    }
    for entry in core.image_builder.list_images().await.unwrap() {
        core.image_builder.remove_image(entry.image).await.unwrap();
    }
}
