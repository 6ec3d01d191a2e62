//! What has ended is removed, however much of it there is; what has not stays.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

#[path = "accounts_support/mod.rs"]
mod support;

use estrade_model::Timestamp;
use estrade_service::Origin;
use estrade_service::ai::key_check::KeyCheck;
use estrade_service::gc::rows::{prune_surplus_entries, run, sweep};
use estrade_service::identity::credentials::AccountTokens;
use estrade_service::identity::tokens::{TokenRequest, create_any_token, list_any_tokens};
use estrade_store::{Record, Row, StoreError};
use std::sync::Arc;
use std::time::Duration;
use support::{Installation, on_both_backends};
use tokio_util::sync::CancellationToken;

on_both_backends! {
    everything_that_has_ended_is_removed_and_nothing_else
    the_newest_entries_of_an_owner_stay
    a_last_use_is_written_down_when_the_server_stops
}

/// How to count and how to fill each table: `$1` is the time, `$2` a hash, `$3` a text.
const TABLES: [(&str, &str); 7] = [
    (
        "SELECT COUNT(*) FROM changes",
        "INSERT INTO changes (kind, id, at) VALUES ('key', 'id', $1)",
    ),
    (
        "SELECT COUNT(*) FROM idempotency",
        "INSERT INTO idempotency (scope, request, holder, expires_at) VALUES ($2, $2, 'me', $1)",
    ),
    (
        "SELECT COUNT(*) FROM login_failures",
        "INSERT INTO login_failures (scope, weight, last_at) VALUES ($2, 1000, $1)",
    ),
    (
        "SELECT COUNT(*) FROM invitations",
        "INSERT INTO invitations (id, team_id, email, role, invited_by, secret_hash, expires_at)
         VALUES ($3, 'team', $3, 'viewer', 'owner', $2, $1)",
    ),
    (
        "SELECT COUNT(*) FROM key_old_secrets",
        "INSERT INTO key_old_secrets (key_id, secret_hash, valid_until) VALUES ('key', $2, $1)",
    ),
    (
        "SELECT COUNT(*) FROM sessions",
        "INSERT INTO sessions (id, account_id, secret_hash, created_at, last_seen_at, authenticated_at, address, user_agent)
         VALUES ($3, 'account', $2, 0, $1, 0, '', '')",
    ),
    (
        "SELECT COUNT(*) FROM tokens WHERE name = 'test'",
        "INSERT INTO tokens (id, account_id, name, secret_hash, created_at, expires_at)
         VALUES ($3, 'account', 'test', $2, 0, $1)",
    ),
];

/// Adds so many rows with that time to a table.
async fn fill(at: &Installation, sql: &'static str, from: u32, count: u32, time: Timestamp) {
    at.core
        .db
        .transact(move |tx| {
            let parameters = ["$1", "$2", "$3"]
                .iter()
                .filter(|name| sql.contains(**name));
            let parameters = parameters.count();
            let row = move |number: u32| {
                let hash = *blake3::hash(&number.to_le_bytes()).as_bytes();
                let mut row = vec![time.into(), hash.into(), number.to_string().into()];
                row.truncate(parameters);
                row
            };
            Box::pin(async move {
                let rows = (from..from + count).map(row).collect();
                tx.execute_many(sql, rows).await
            })
        })
        .await
        .unwrap();
}

/// How many entries are left, and the id of the oldest.
struct Remaining(u64, String);

impl Record for Remaining {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self(row.take()?, row.take()?))
    }
}

/// The rows that others refer to.
async fn add_referred(at: &Installation) {
    at.core
        .db
        .transact(|tx| {
            Box::pin(async move {
                for sql in [
                    "INSERT INTO owners (id) VALUES ('team'), ('account')",
                    "INSERT INTO teams (id, name, created_at) VALUES ('team', 'team', 0)",
                    "INSERT INTO accounts (id, email, fullname, admin, disabled, created_at) VALUES ('account', 'a@b', 'a', FALSE, FALSE, 0)",
                    "INSERT INTO keys (id, owner_id, name, enabled, secret_hash, created_by, created_at, version) VALUES ('key', 'team', 'key', TRUE, '', '', 0, 1)",
                ] {
                    tx.query(sql).execute().await?;
                }
                Ok::<_, StoreError>(())
            })
        })
        .await
        .unwrap();
}

async fn everything_that_has_ended_is_removed_and_nothing_else(at: &Installation) {
    add_referred(at).await;
    let now = at.core.now();
    let ended = now.before(Duration::from_hours(8 * 24));
    let future = now.after(Duration::from_hours(1));
    for (_, insert) in TABLES {
        fill(at, insert, 0, 2500, ended).await;
        fill(at, insert, 2500, 3, future).await;
    }
    sweep(&at.core, &CancellationToken::new()).await;
    for (count, _) in TABLES {
        let left: u64 = at.core.db.read(count).fetch_one().await.unwrap();
        assert_eq!(left, 3, "{count}");
    }
}

/// Adds entries to the log of an owner, with ids that rise with their numbers.
async fn add_entries(
    at: &Installation,
    owner: &'static str,
    kind: &'static str,
    (first, last): (u32, u32),
) {
    let now = at.core.now();
    let added = at.core.db.transact(move |tx| {
        Box::pin(async move {
            tx.query(
                "WITH RECURSIVE numbers (number) AS
                     (SELECT CAST($4 AS BIGINT) UNION ALL SELECT number + 1 FROM numbers WHERE number < $1)
                 INSERT INTO audit (owner_id, id, at, kind, action, subject, name, detail, fields, account_id,
                                    token_id, email, by_session)
                 SELECT CAST($2 AS TEXT), '0000000000000000' || CAST(10000000 + number AS TEXT), CAST($3 AS BIGINT),
                        CAST($5 AS TEXT), 'env.update', '', '', '', '', '', '', '', FALSE FROM numbers",
            )
            .bind(last)
            .bind(owner)
            .bind(now)
            .bind(first)
            .bind(kind)
            .execute()
            .await
        })
    });
    assert_eq!(added.await.unwrap(), u64::from(last - first + 1));
}

async fn the_newest_entries_of_an_owner_stay(at: &Installation) {
    const MANY: &str = "0123456789abcdef00000001";
    const FEW: &str = "0123456789abcdef00000002";
    add_entries(at, MANY, "member", (1, 3)).await;
    add_entries(at, MANY, "release", (4, 10)).await;
    add_entries(at, MANY, "env", (11, 102_500)).await;
    add_entries(at, FEW, "env", (1, 3)).await;
    prune_surplus_entries(&at.core, &CancellationToken::new())
        .await
        .unwrap();
    let left = async |owner: &'static str, kind: &'static str| {
        let sql =
            "SELECT COUNT(*), COALESCE(MIN(id), '') FROM audit WHERE owner_id = $1 AND kind = $2";
        let read = at.core.db.read(sql).bind(owner).bind(kind);
        let Remaining(count, oldest) = read.fetch_one().await.unwrap();
        (count, oldest)
    };
    let id = |number: u32| format!("0000000000000000{}", 10_000_000 + number);
    assert_eq!(left(MANY, "env").await, (100_000, id(2501)));
    assert_eq!(left(MANY, "release").await, (0, String::new()));
    // However much is changed, it stays known who got in.
    assert_eq!(left(MANY, "member").await, (3, id(1)));
    assert_eq!(left(FEW, "env").await, (3, id(1)));
    add_entries(at, FEW, "session", (4, 100_005)).await;
    prune_surplus_entries(&at.core, &CancellationToken::new())
        .await
        .unwrap();
    assert_eq!(left(FEW, "session").await, (100_000, id(6)));
    assert_eq!(left(FEW, "env").await, (3, id(1)));
}

async fn a_last_use_is_written_down_when_the_server_stops(at: &Installation) {
    let ada = at.person("ada").await;
    let lifetime = "30d".parse().unwrap();
    let token = create_any_token(&at.core, ada.account, TokenRequest::full("ci", lifetime))
        .await
        .unwrap();
    let tokens = Arc::new(AccountTokens::new(&at.core));
    let text = token.api_token.unwrap();
    let origin = Origin {
        address: Some("192.0.2.7".parse().unwrap()),
        request: None,
    };
    tokens.authenticate(text.expose(), origin).await.unwrap();
    let used = async || {
        let listed = list_any_tokens(&at.core, ada.account, None, 9, 0).await;
        let token = listed.unwrap().remove(0);
        token.last_used_at.zip(token.last_used_from)
    };
    assert_eq!(used().await, None);
    let stop = CancellationToken::new();
    stop.cancel();
    run(
        Arc::clone(&at.core),
        tokens,
        Arc::clone(&at.services.sessions),
        Arc::new(KeyCheck::new(&at.core)),
        Arc::clone(&at.services.logins),
        Arc::clone(&at.services.idempotency),
        stop,
    )
    .await;
    let (_, address) = used().await.unwrap();
    assert_eq!(address, "192.0.2.7");
}
