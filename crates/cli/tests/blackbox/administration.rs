//! `estrade account` and `estrade token`, with and without a running server.

use crate::support::{ADMIN, Home, Postgres, Server, time_until};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

const ADA: &str = "ada@example.com";

/// Makes an account and returns its id.
fn create_account(home: &Home, password: &str) -> String {
    let args = [
        "account",
        "create",
        "--email",
        ADA,
        "--fullname",
        "Ada Lovelace",
        "--password-stdin",
    ];
    let made = home.run_with_input(args, password);
    let id = made.assert(0).stdout.trim_end().to_owned();
    assert!(
        id.len() == 24 && id.chars().all(|c| c.is_ascii_hexdigit()),
        "{made:?}"
    );
    assert!(!made.stderr.contains(password.trim_end()), "{made:?}");
    let twice = home.run_with_input(args, password);
    assert_eq!(twice.assert(1).stdout, "");
    id
}

/// The line of a table that holds this.
fn line_with(table: &str, part: &str) -> Option<String> {
    table
        .lines()
        .find(|line| line.contains(part))
        .map(str::to_owned)
}

fn token_id(home: &Home, email: &str, name: &str) -> String {
    let list = home.run(["token", "list", "--account", email]);
    let line = line_with(&list.assert(0).stdout, name).unwrap();
    line.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn accounts_and_tokens_are_managed_without_a_server() {
    let home = Home::new();
    let id = create_account(&home, "correct horse\n");
    let list = home.run(["account", "list"]);
    let line = line_with(&list.assert(0).stdout, ADA).unwrap();
    for part in [&id, "Ada Lovelace", "active"] {
        assert!(line.contains(part), "{line}");
    }
    assert!(line_with(&list.stdout, ADMIN).unwrap().contains("admin"));

    let args = ["token", "create", "--account", ADA, "--name", "laptop"];
    home.run(args).assert(0);
    let laptop = token_id(&home, ADA, "laptop");
    home.run(["token", "revoke", &laptop]).assert(0);
    home.run(["token", "revoke", &laptop]).assert(1);
    home.run(["token", "revoke", "nonsense"]).assert(1);
    let left = home.run(["token", "list", "--account", ADA]);
    assert_eq!(line_with(&left.assert(0).stdout, "laptop"), None);

    let args = ["account", "password", "--email", ADA, "--password-stdin"];
    home.run_with_input(args, "another horse").assert(0);
    home.run_with_input(args, "").assert(1);
    home.run(["account", "password", "--email", ADA])
        .assert(1)
        .assert_says("--password-stdin");
    home.run(["account", "disable", "--email", ADA]).assert(0);
    let list = home.run(["account", "list"]);
    assert!(line_with(&list.stdout, ADA).unwrap().contains("disabled"));
    home.run(["account", "disable", "--email", "nobody@example.com"])
        .assert(1);
}

async fn log_in(server: &Server, password: &str) -> u16 {
    let body = json!({"email": ADA, "password": password});
    let response = server.ask(&server.platform, "", Method::POST, "/v1/login", body);
    response.await.unwrap().status.as_u16()
}

/// The token of a new login.
async fn session(server: &Server, password: &str) -> String {
    let body = json!({"email": ADA, "password": password});
    let response = server.ask(&server.platform, "", Method::POST, "/v1/login", body);
    let body = response.await.unwrap().json();
    body["api_token"].as_str().unwrap().to_owned()
}

/// Everything that an administrator changes is in force in the running server.
async fn check_changes_reach_the_server(home: &Home, within: Duration, engine: &str) {
    let server = Server::start(home);
    create_account(home, "correct horse");
    assert_eq!(log_in(&server, "correct horse").await, 200);

    let args = ["token", "create", "--account", ADA, "--name", "laptop"];
    let laptop = home.run(args).assert(0).stdout.trim_end().to_owned();
    assert_eq!(server.me(&laptop).await, 200);
    let id = token_id(home, ADA, "laptop");
    let mut slowest = Duration::ZERO;
    for _ in 0..5 {
        let token = home.create_token(ADA);
        let id = token_id(home, ADA, "command line");
        assert_eq!(server.me(&token).await, 200);
        home.run(["token", "revoke", &id]).assert(0);
        slowest = slowest.max(time_until(401, || server.me(&token)).await);
    }
    eprintln!("{engine}: a revoked token stopped after {slowest:?} at most");
    assert!(slowest < within, "{slowest:?}");
    assert_eq!(server.me(&laptop).await, 200, "it was not this one: {id}");

    let login = session(&server, "correct horse").await;
    assert_eq!(server.me(&login).await, 200);
    let args = ["account", "password", "--email", ADA, "--password-stdin"];
    home.run_with_input(args, "another horse").assert(0);
    let took = time_until(401, || server.me(&login)).await;
    assert!(took < within, "{took:?}");
    assert_eq!(server.me(&laptop).await, 200, "it is no login");
    assert_eq!(log_in(&server, "correct horse").await, 401);
    assert_eq!(log_in(&server, "another horse").await, 200);

    home.run(["account", "disable", "--email", ADA]).assert(0);
    let took = time_until(401, || server.me(&laptop)).await;
    eprintln!("{engine}: the tokens of a disabled account stopped after {took:?}");
    assert!(took < within, "{took:?}");
    assert_eq!(log_in(&server, "another horse").await, 401);
    assert_eq!(server.me(&server.token).await, 200);

    home.run(["account", "enable", "--email", ADA]).assert(0);
    let took = time_until(200, || server.me(&laptop)).await;
    assert!(took < within, "{took:?}");
    assert_eq!(log_in(&server, "another horse").await, 200);
    let args = [
        "account",
        "password",
        "--email",
        ADA,
        "--password-stdin",
        "--revoke-tokens",
    ];
    home.run_with_input(args, "a third horse").assert(0);
    let took = time_until(401, || server.me(&laptop)).await;
    assert!(took < within, "{took:?}");

    let token = home.create_token(ADA);
    let revoke = ["token", "revoke", "--all", "--account", ADA];
    home.run(revoke).assert(0).assert_says("1 tokens revoked");
    let took = time_until(401, || server.me(&token)).await;
    assert!(took < within, "{took:?}");
    assert_eq!(server.me(&server.token).await, 200);
    home.run(["token", "revoke", "--all"])
        .assert(0)
        .assert_says("estrade token create --account admin@localhost");
    let took = time_until(401, || server.me(&server.token)).await;
    assert!(took < within, "{took:?}");
    assert_eq!(server.me(&home.create_token(ADMIN)).await, 200);
    server.stop();
}

#[tokio::test]
async fn changes_are_in_force_at_once_on_sqlite() {
    let within = Duration::from_secs(1);
    check_changes_reach_the_server(&Home::new(), within, "sqlite").await;
}

#[tokio::test]
async fn changes_are_in_force_within_a_second_on_postgres() {
    let database = Postgres::create().await;
    let home = Home::new().with("ESTRADE_DATABASE_URL", &*database.url);
    let within = Duration::from_secs(1);
    check_changes_reach_the_server(&home, within, "postgres").await;
    database.drop().await;
}

#[tokio::test]
async fn a_token_made_beside_the_server_has_its_own_end() {
    let home = Home::new();
    let server = Server::start(&home);
    let args = ["token", "create", "--account", ADMIN, "--expires-in", "2s"];
    let short = home.run(args).assert(0).stdout.trim_end().to_owned();
    assert_eq!(server.me(&short).await, 200);
    let took = time_until(401, || server.me(&short)).await;
    assert!(took < Duration::from_secs(3), "{took:?}");
    let tokens = server
        .platform(Method::GET, "/v1/tokens", Value::Null)
        .await;
    tokens.assert(200);
    server.stop();
}
