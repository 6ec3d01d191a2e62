//! `page` and `count`, and lists of any length

use estrade_store::Value as Cell;
use estrade_testkit::{Api, TestApp, User, on_both_backends};
use serde_json::Value;

on_both_backends! {
    long_lists_come_whole_and_in_order;
}

/// More than two chunks of what the server reads at once.
const ROWS: usize = 1234;

/// A list: where it is, where its rows are inside the response, and how its rows come to be.
struct List {
    api: Api,
    path: String,
    rows: &'static str,
    id: &'static str,
    /// Whether the ids fall; members are listed in the order of joining.
    falling: bool,
    /// How many rows there were before.
    extra: usize,
}

impl List {
    /// The path with a query, or with more of it.
    fn with(&self, query: &str) -> String {
        if self.path.contains('?') {
            format!("{}{}", self.path, query.replacen('?', "&", 1))
        } else {
            format!("{}{query}", self.path)
        }
    }
}

fn id(kind: usize, at: usize) -> String {
    format!("7fff{kind:04x}{at:016x}")
}

async fn fill(app: &TestApp, sql: &'static str, row: impl Fn(usize) -> Vec<Cell>) {
    let rows: Vec<_> = (0..ROWS).map(row).collect();
    let filled = app.core().db.transact(move |tx| {
        let rows = rows.clone();
        Box::pin(async move { tx.execute_many(sql, rows).await })
    });
    filled.await.unwrap();
}

async fn long_lists_come_whole_and_in_order(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let team = app.new_team(&ada, "Shop").await;
    let project = crate::support::new_project(&ada, "shop").await;
    fill_owner(app, &ada.account).await;
    fill_project(app, &project).await;
    fill_domains(app, &ada.account, &project).await;
    fill_teams(app, &ada.account, &team).await;
    for list in lists(&team) {
        check(&ada, &list).await;
    }
}

fn lists(team: &str) -> [List; 13] {
    let list = |api, path: &str, rows, extra| List {
        api,
        path: path.to_owned(),
        rows,
        id: "_id",
        falling: true,
        extra,
    };
    let members = format!("/v2/teams/{team}/members");
    [
        list(Api::Ai, "/v1/workspaces", "/workspaces", 0),
        list(Api::Ai, "/v1/keys", "", 0),
        list(Api::Platform, "/v1/networks", "/networks", 1),
        list(Api::Platform, "/v1/tokens", "/tokens", 1),
        list(Api::Platform, "/v1/domains", "/domains", 0),
        list(Api::Platform, "/v1/domains?project=shop", "/domains", 0),
        list(Api::Platform, "/v1/projects", "/projects", 1),
        list(Api::Platform, "/v1/projects/shop/releases", "/releases", 0),
        list(Api::Platform, "/v2/projects/shop/releases", "/releases", 0),
        list(Api::Platform, "/v1/projects/shop/disks", "/disks", 0),
        list(Api::Platform, "/v2/teams", "/teams", 1),
        List {
            id: "id",
            ..list(Api::Platform, "/v1/projects/shop/events", "/data", 0)
        },
        List {
            falling: false,
            ..list(Api::Platform, &members, "/members", 1)
        },
    ]
}

fn name(at: usize) -> Cell {
    Cell::from(format!("name-{at:05}"))
}

/// An id, whose it is, and a name.
fn row(kind: usize, at: usize, of: &str) -> Vec<Cell> {
    vec![
        Cell::from(id(kind, at)),
        Cell::from(of.to_owned()),
        name(at),
    ]
}

async fn fill_owner(app: &TestApp, owner: &str) {
    let hash = || Cell::from(vec![0_u8; 32]);
    let insert = "INSERT INTO workspaces (id, owner_id, name, created_at, version) VALUES ($1, $2, $3, 1, 1)";
    fill(app, insert, |at| row(1, at, owner)).await;
    let insert = "INSERT INTO networks VALUES ($1, $2, $3, 1)";
    fill(app, insert, |at| row(2, at, owner)).await;
    let insert = "INSERT INTO keys
        (id, owner_id, name, enabled, secret_hash, created_by, created_at, version)
        VALUES ($1, $2, $3, $4, $5, $2, 1, 1)";
    let key = |at| [row(3, at, owner), vec![Cell::from(true), hash()]].concat();
    fill(app, insert, key).await;
    let insert = "INSERT INTO tokens (id, account_id, name, secret_hash, created_at)
        VALUES ($1, $2, $3, $4, 1)";
    fill(app, insert, |at| [row(4, at, owner), vec![hash()]].concat()).await;
    let insert = "INSERT INTO projects (id, owner_id, name, platform, plan, bundle_plan, scale,
        status, read_only_root, releases, ready_releases, created_at, version)
        VALUES ($1, $2, $3, 'static', 'nano', 'free', 1, 'ACTIVE', $4, 0, 0, 1, 1)";
    let project = |at| [row(5, at, owner), vec![Cell::from(false)]].concat();
    fill(app, insert, project).await;
}

async fn fill_project(app: &TestApp, project: &str) {
    let insert = "INSERT INTO events (id, project_id, action, status, at)
        VALUES ($1, $2, $3, 'X', 1)";
    fill(app, insert, |at| row(6, at, project)).await;
    let insert = "INSERT INTO disks (id, project_id, name, size_gb, created_at)
        VALUES ($1, $2, $3, 1, 1)";
    fill(app, insert, |at| row(11, at, project)).await;
    let insert = "INSERT INTO releases (id, project_id, number, kind, state, platform, port,
        settings, created_at, finished_at, deadline, lease_until, version)
        VALUES ($1, $2, $3, 'DEPLOY', 'FAILED', 'static', 80, $4, 1, 1, 1, 0, 1)";
    let release = |at| {
        let number = i64::try_from(at + 1).unwrap();
        let (number, settings) = (Cell::from(number), Cell::from(vec![0_u8; 32]));
        let project = Cell::from(project.to_owned());
        vec![Cell::from(id(7, at)), project, number, settings]
    };
    fill(app, insert, release).await;
}

async fn fill_domains(app: &TestApp, owner: &str, project: &str) {
    let insert = "INSERT INTO domains
        (id, owner_id, name, project_id, token, active, created_at, checks, version)
        VALUES ($1, $2, $3, $4, 'x', $5, 1, 0, 1)";
    let domain = |at| {
        let (id, owner) = (Cell::from(id(10, at)), Cell::from(owner.to_owned()));
        let name = Cell::from(format!("name-{at:05}.example"));
        vec![
            id,
            owner,
            name,
            Cell::from(project.to_owned()),
            Cell::from(false),
        ]
    };
    fill(app, insert, domain).await;
}

/// Teams of one account, and members of one team.
async fn fill_teams(app: &TestApp, account: &str, team: &str) {
    for kind in [8, 9] {
        let insert = "INSERT INTO owners (id) VALUES ($1)";
        fill(app, insert, |at| vec![Cell::from(id(kind, at))]).await;
    }
    let insert = "INSERT INTO teams VALUES ($1, $2, 1)";
    fill(app, insert, |at| vec![Cell::from(id(8, at)), name(at)]).await;
    let insert = "INSERT INTO team_members VALUES ($1, $2, 'owner', 1)";
    let membership = |at| vec![Cell::from(id(8, at)), Cell::from(account.to_owned())];
    fill(app, insert, membership).await;
    let insert = "INSERT INTO accounts (id, email, fullname, admin, disabled, created_at)
        VALUES ($1, $2, $2, $3, $3, 1)";
    let member = |at| vec![Cell::from(id(9, at)), name(at), Cell::from(false)];
    fill(app, insert, member).await;
    let insert = "INSERT INTO team_members VALUES ($1, $2, 'viewer', 99999999999999)";
    let membership = |at| vec![Cell::from(team.to_owned()), Cell::from(id(9, at))];
    fill(app, insert, membership).await;
}

async fn ids(user: &User, list: &List, query: &str) -> Vec<String> {
    let response = user.on(list.api).get(&list.with(query)).await.assert(200);
    let json = response.json();
    let rows = json
        .pointer(list.rows)
        .and_then(Value::as_array)
        .expect("an array")
        .clone();
    rows.iter()
        .map(|row| row[list.id].as_str().unwrap().to_owned())
        .collect()
}

async fn check(user: &User, list: &List) {
    let whole = ids(user, list, "").await;
    assert_eq!(whole.len(), ROWS + list.extra, "{}", list.path);
    let mut sorted = whole.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), whole.len(), "{}: each row once", list.path);
    if list.falling {
        sorted.reverse();
        assert_eq!(sorted, whole, "{}: newest first", list.path);
    }
    assert_eq!(ids(user, list, "?page=1&count=10").await, whole[..10]);
    assert_eq!(ids(user, list, "?page=3&count=7").await, whole[14..21]);
    assert_eq!(
        ids(user, list, "?page=2").await,
        whole[100..200],
        "100 to a page"
    );
    assert_eq!(ids(user, list, "?count=5").await, whole[..5]);
    assert_eq!(ids(user, list, "?page=13&count=100").await, whole[1200..]);
    assert_eq!(
        ids(user, list, "?page=14&count=100").await,
        Vec::<String>::new()
    );
    // Out of range is moved into it, never refused.
    assert_eq!(ids(user, list, "?count=1000000").await, whole[..100]);
    assert_eq!(
        ids(user, list, "?count=99999999999999999999999").await,
        whole[..100]
    );
    assert_eq!(ids(user, list, "?count=0&page=0").await, whole[..1]);
    assert_eq!(ids(user, list, "?count=-5&page=-5").await, whole[..1]);
    assert_eq!(
        ids(user, list, "?page=99999999999999999999999").await,
        Vec::<String>::new()
    );
    assert_eq!(ids(user, list, "?page=&count=").await, whole);
    for bad in ["?page=x", "?count=1.5", "?count=%00", "?page=1&page=2"] {
        let response = user.on(list.api).get(&list.with(bad)).await;
        response.refused(400, "invalid");
    }
}
