//! The log says a lot and no secret.

use crate::support::{ADMIN, Home, Postgres, Server, text};
use reqwest::Method;
use serde_json::{Value, json};

const PASSWORD: &str = "correct-horse-battery-71";
const ENV_VALUE: &str = "env-value-staple-72";
const WRONG_PASSWORD: &str = "wrong-horse-73";
const DATABASE_PASSWORD: &str = "database-horse-74";
const BODY_SECRET: &str = "body-horse-75";

/// Does everything that handles a secret; returns the secrets that it met.
async fn handle_secrets(home: &Home, server: &Server) -> Vec<String> {
    let mut secrets: Vec<String> = [
        PASSWORD,
        ENV_VALUE,
        WRONG_PASSWORD,
        DATABASE_PASSWORD,
        BODY_SECRET,
    ]
    .map(str::to_owned)
    .into();
    secrets.push(server.token.clone());
    let args = ["account", "create", "--email", "ada@example.com"];
    let args = [&args[..], &["--fullname", "Ada", "--password-stdin"]].concat();
    let args: [&str; 7] = args.try_into().unwrap();
    home.run_with_input(args, PASSWORD).assert(0);
    let log_in = |password: &str| {
        let body = json!({"email": "ada@example.com", "password": password});
        server.ask(&server.platform, "", Method::POST, "/v1/login", body)
    };
    let session = log_in(PASSWORD).await.unwrap();
    secrets.push(text(&session.assert(200).json()["api_token"]));
    log_in(WRONG_PASSWORD).await.unwrap().assert(401);

    let token = server
        .platform(Method::POST, "/v1/api-token", json!({"name": "t"}))
        .await;
    secrets.push(text(&token.assert(201).json()["api_token"]));
    secrets.push(home.create_token(ADMIN));
    let (id, key) = server.create_key("noisy").await;
    server.authorize(&key).await;
    let rotated = server
        .ai(Method::POST, &format!("/v1/keys/{id}/rotate"), json!({}))
        .await;
    secrets.push(text(&rotated.assert(200).json()["key"]));
    let verify = json!({"key": key});
    server
        .ai(Method::POST, "/v1/keys/verify", verify)
        .await
        .assert(200);
    secrets.push(key);

    server.create_project("noisy").await;
    let body = json!({"files": [{"path": "index.html", "data": BODY_SECRET}],
                      "envs": [{"key": "A", "value": ENV_VALUE}]});
    let path = "/v2/projects/noisy/releases";
    let made = server.platform(Method::POST, path, body).await;
    let release = text(&made.assert(201).json()["releaseID"]);
    let path = format!("/v1/releases/{release}?wait=READY&timeout=10");
    server.platform(Method::GET, &path, Value::Null).await;
    let body = json!({"project": "noisy", "variables": [{"key": "A", "value": ENV_VALUE}]});
    server
        .platform(Method::POST, "/v1/projects/update-envs", body)
        .await
        .assert(201);
    send_bad_requests(server).await;
    secrets
}

async fn send_bad_requests(server: &Server) {
    for body in [
        json!({"name": BODY_SECRET, "platform": BODY_SECRET}),
        json!({"email": [BODY_SECRET]}),
        json!(BODY_SECRET),
    ] {
        for path in ["/v1/projects", "/v1/login"] {
            let response = server.platform(Method::POST, path, body.clone()).await;
            assert!(response.status.is_client_error(), "{response:?}");
        }
        server.ai(Method::POST, "/v1/keys", body).await.assert(400);
    }
    // A good token that was cut: almost a secret, and only the last bytes are missing.
    let cut = &server.token[..server.token.len() - 4];
    assert_eq!(server.me(cut).await, 401);
    let url = format!("{}/v1/me?token={}", server.platform, server.token);
    let asked = server.client.get(url).send().await.unwrap();
    assert_eq!(asked.status().as_u16(), 401);
    let broken = server
        .client
        .post(format!("{}/v1/projects", server.platform))
        .bearer_auth(&server.token)
        .header("content-type", "application/json")
        .body(format!("{{\"name\": \"{BODY_SECRET}"));
    assert_eq!(broken.send().await.unwrap().status().as_u16(), 400);
}

async fn check_log(home: Home) {
    let server = Server::start(&home);
    let secrets = handle_secrets(&home, &server).await;
    let greeting = server.greeting.clone();
    let log = server.stop();
    assert!(log.lines().count() > 1, "{log}");
    for line in log.lines() {
        let entry: Value =
            serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"));
        assert!(
            entry["message"].is_string() && entry["level"].is_string(),
            "{line}"
        );
    }
    for secret in secrets {
        // Also parts: the signature of a token, the second half of a password.
        let tail = secret.rsplit('.').next().unwrap();
        for (what, text) in [("log", &log), ("greeting", &greeting)] {
            for part in [secret.as_str(), tail] {
                let line = text.lines().find(|line| line.contains(part));
                assert_eq!(line, None, "the {what} holds {part}");
            }
        }
    }
}

#[tokio::test]
async fn no_secret_is_in_the_log() {
    let home = Home::new()
        .with("ESTRADE_LOG_LEVEL", "trace")
        .with("ESTRADE_LOG_FORMAT", "json");
    check_log(home).await;
}

#[tokio::test]
async fn no_secret_is_in_the_log_on_postgres() {
    let database = Postgres::create().await;
    let (user, rest) = database.url.split_once('@').unwrap();
    let user = user
        .rsplit_once(':')
        .filter(|(scheme, _)| scheme.contains("//"))
        .map_or(user, |(user, _)| user);
    let home = Home::new()
        .with("ESTRADE_LOG_LEVEL", "trace")
        .with("ESTRADE_LOG_FORMAT", "json")
        .with(
            "ESTRADE_DATABASE_URL",
            format!("{user}:{DATABASE_PASSWORD}@{rest}"),
        );
    check_log(home).await;
    database.drop().await;
}
