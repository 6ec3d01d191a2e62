//! How each operation is tried by somebody who has no business with it.

use crate::rules::routes::Operation;
use crate::support::{deploy_site, new_key, new_project, site};
use estrade_testkit::{Api, ApiResponse, TestApp, User};
use serde_json::{Value, json};

/// A path and a body.
pub(crate) type Target = (String, Option<Value>);

/// The same request about a thing of somebody else, and about one that does not exist.
pub(crate) struct Try {
    pub(crate) theirs: Target,
    pub(crate) nobodys: Target,
}

/// What kind of operation it is.
pub(crate) enum Case {
    /// Open to everyone, and about nobody's things.
    Public,
    /// Open to AI keys.
    ForKeys,
    /// Open to AI keys and accounts, and about nobody's things.
    ForBoth,
    /// About the caller's own things only: it works, and shows nothing of others.
    Own(String, Option<Value>),
    /// Names a thing: one of somebody else answers like one that does not exist.
    Theirs(Vec<Try>),
}

/// An owner with one of each.
pub(crate) struct OwnerFixture {
    account: User,
    owner: User,
    /// A team that the owner is in, and the intruder is not.
    pub(crate) team: String,
    member: String,
    pub(crate) project: String,
    project_name: &'static str,
    release: String,
    token: String,
    network: String,
    domain: String,
    key: String,
    pub(crate) key_token: String,
    workspace: String,
    invitation: String,
}

const NOTHING: &str = "0123456789abcdef01234567";
const NO_PROJECT: &str = "no-such-project";
/// A disk of the owner's project.
const DISK: &str = "secret-disk";

/// A content of the owner's site.
fn site_digest() -> String {
    estrade_blobs::Digest::of(b"<h1>Hello</h1>").to_string()
}

impl OwnerFixture {
    /// Makes one of each for `owner`, who is `account` or a team of theirs.
    pub(crate) async fn new(app: &TestApp, account: &User, owner: &User) -> Self {
        let team = app.new_team(account, "Friends").await;
        let bob = app.new_account("bob").await;
        app.join(&team, account, &bob, "developer").await;
        let project_name = "secret-project";
        let project = new_project(owner, project_name).await;
        deploy_site(owner, project_name).await;
        let release = {
            let list = owner
                .get("/v1/projects/secret-project/releases")
                .await
                .json();
            list["releases"][0]["_id"].as_str().unwrap().to_owned()
        };
        deploy_site(owner, project_name).await;
        let envs = json!({"project": project, "variables": [{"key": "SECRET", "value": "hidden"}]});
        owner
            .post("/v1/projects/update-envs", &envs)
            .await
            .assert(201);
        let latest = owner
            .get("/v1/projects/secret-project/releases?count=1")
            .await
            .json();
        crate::support::ended(owner, latest["releases"][0]["_id"].as_str().unwrap()).await;
        let token = account
            .post("/v1/api-token", &json!({"name": "secret-token"}))
            .await;
        let network = owner
            .post("/v1/networks", &json!({"name": "secret-network"}))
            .await;
        let new = json!({"name": "secret-domain.example", "project": project});
        let domain = owner.post("/v1/domains", &new).await;
        let disk = json!({"name": DISK, "size": 1});
        owner
            .post("/v1/projects/secret-project/disks", &disk)
            .await
            .assert(201);
        let (key, key_token) = new_key(owner, "secret-key").await;
        let spaces = owner.ai().get("/v1/workspaces").await.json();
        let invite = json!({"email": "carol@example.com", "role": "viewer"});
        let invited = account
            .post(&format!("/v2/teams/{team}/invitations"), &invite)
            .await;
        let link = invited.assert(200).field("/link");
        Self {
            account: account.clone(),
            owner: owner.clone(),
            team,
            member: bob.account,
            project,
            project_name,
            release,
            token: token.assert(201).field("/_id"),
            network: network.assert(200).field("/network/_id"),
            domain: domain.assert(201).field("/domain/_id"),
            key,
            key_token,
            workspace: spaces["workspaces"][0]["_id"].as_str().unwrap().to_owned(),
            invitation: link.rsplit_once('=').unwrap().1.to_owned(),
        }
    }

    /// Everything that the owner sees of their own.
    pub(crate) async fn snapshot(&self) -> Vec<Value> {
        let mut seen = Vec::new();
        for (user, api, path) in [
            (&self.owner, Api::Platform, "/v1/projects".to_owned()),
            (
                &self.owner,
                Api::Platform,
                format!("/v1/projects/{}", self.project),
            ),
            (
                &self.owner,
                Api::Platform,
                format!("/v1/projects/{}/releases", self.project),
            ),
            (
                &self.owner,
                Api::Platform,
                format!("/v1/projects/{}/events", self.project),
            ),
            (
                &self.owner,
                Api::Platform,
                format!("/v1/projects/{}/disks", self.project),
            ),
            (&self.owner, Api::Platform, "/v1/networks".to_owned()),
            (&self.owner, Api::Platform, "/v1/domains".to_owned()),
            (&self.owner, Api::Ai, "/v1/keys".to_owned()),
            (&self.owner, Api::Ai, "/v1/workspaces".to_owned()),
            (&self.account, Api::Platform, "/v1/tokens".to_owned()),
            (&self.account, Api::Platform, "/v2/teams".to_owned()),
            (
                &self.account,
                Api::Platform,
                format!("/v2/teams/{}/members", self.team),
            ),
        ] {
            let mut json = user.on(api).get(&path).await.assert(200).json();
            forget_uses(&mut json);
            seen.push(json);
        }
        seen
    }

    /// Demands that a response holds nothing of the owner's.
    pub(crate) fn assert_hidden(&self, response: &ApiResponse) {
        let text = response.text();
        for secret in [
            self.team.as_str(),
            &self.member,
            &self.project,
            self.project_name,
            &self.release,
            &self.token,
            &self.network,
            &self.domain,
            &self.key,
            &self.workspace,
            &self.account.account,
            &self.account.email,
            "hidden",
            "secret-",
        ] {
            // What the caller wrote may come back.
            let echoed = matches!(secret, "secret-" | "secret-project") && response.status() < 300;
            assert!(
                echoed || !text.contains(secret),
                "{secret}: {}",
                response.describe()
            );
        }
    }

    /// The owner's ids in a path.
    pub(crate) fn fill(&self, path: &str) -> String {
        self.fill_with(path, &self.project)
    }

    fn fill_with(&self, path: &str, project: &str) -> String {
        let id = match path {
            path if path.starts_with("/v2/teams/") => &self.team,
            path if path.starts_with("/v1/tokens/") => &self.token,
            path if path.starts_with("/v1/workspaces/") => &self.workspace,
            path if path.starts_with("/v1/domains/") => &self.domain,
            path if path.starts_with("/v1/networks/") => &self.network,
            path if path.starts_with("/v1/providers/") => NOTHING,
            path if path.starts_with("/v1/models/") => "estrade%2Fecho",
            _ => "",
        };
        let filled = path
            .replace("{project_id}", project)
            .replace("{releaseID}", &self.release)
            .replace("{keyID}", &self.key)
            .replace("{memberID}", &self.member)
            .replace("{digest}", &site_digest())
            .replace("{name}", DISK)
            .replace("{action}", "disable")
            .replace("{callID}", NOTHING)
            .replace("{id}", id);
        assert!(
            !filled.contains('{') && !filled.contains("//"),
            "{path}: add its ids to `fill`"
        );
        filled
    }

    /// Ids of nothing in a path.
    fn empty(path: &str, project: &str) -> String {
        let mut filled = path
            .replace("{project_id}", project)
            .replace("{name}", DISK)
            .replace("{action}", "disable")
            .replace("{digest}", &site_digest());
        for id in ["{releaseID}", "{keyID}", "{memberID}", "{callID}", "{id}"] {
            filled = filled.replace(id, NOTHING);
        }
        filled
    }
}

/// When a token or key was last used, or a domain checked, is written down at any time.
fn forget_uses(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for field in ["lastUsedAt", "lastUsedFrom", "checkedAt", "problem"] {
                fields.remove(field);
            }
            fields.values_mut().for_each(forget_uses);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_uses),
        _ => {}
    }
}

/// How to try an operation; `number` keeps the names of what is made apart.
pub(crate) fn case(fixture: &OwnerFixture, operation: &Operation, number: usize) -> Case {
    let path = operation.path.as_str();
    let own = |body: Value| Case::Own(path.to_owned(), Some(body));
    let list = || Case::Own(path.to_owned(), None);
    let with = |path: &str, body: Option<Value>| (path.to_owned(), body);
    // The thing is named by the path.
    let named = |body: Option<Value>| {
        let mut tries = vec![Try {
            theirs: (fixture.fill(path), body.clone()),
            nobodys: (OwnerFixture::empty(path, NOTHING), body.clone()),
        }];
        if path.contains("{project_id}") {
            tries.push(Try {
                theirs: (fixture.fill_with(path, fixture.project_name), body.clone()),
                nobodys: (OwnerFixture::empty(path, NO_PROJECT), body),
            });
        }
        Case::Theirs(tries)
    };
    // The thing is named by the body.
    let in_body = |theirs: Value, nobodys: Value| {
        Case::Theirs(vec![Try {
            theirs: with(path, Some(theirs)),
            nobodys: with(path, Some(nobodys)),
        }])
    };
    // A project is named, by id or by name.
    let of_project = |target: &dyn Fn(&str) -> Target| {
        let pairs = [
            (fixture.project.as_str(), NOTHING),
            (fixture.project_name, NO_PROJECT),
        ];
        let tries = pairs.map(|(theirs, nobodys)| Try {
            theirs: target(theirs),
            nobodys: target(nobodys),
        });
        Case::Theirs(tries.into())
    };
    match (operation.api, operation.name().as_str()) {
        (_, "GET /healthz" | "GET /readyz")
        | (Api::Platform, "POST /v1/login" | "POST /v1/login/check-if-exists") => Case::Public,
        (Api::Platform, name) if name.starts_with("POST /v1/device/") => Case::Public,
        (_, name) if name.starts_with("GET /.well-known/") => Case::Public,
        (Api::Ai, "GET /v1/keys/authorize" | "POST /v1/keys/authorize") => Case::ForKeys,
        (Api::Ai, "GET /v1/models" | "GET /v1/models/{id}") => Case::ForBoth,

        (
            Api::Platform,
            "GET /v1/projects" | "GET /v1/networks" | "GET /v1/domains" | "GET /v1/me"
            | "GET /v1/tokens" | "GET /v2/teams" | "GET /v1/databases" | "GET /v1/audit",
        )
        | (Api::Ai, "GET /v1/keys" | "GET /v1/workspaces" | "GET /v1/audit") => list(),
        // Only administrators: whatever there is, the response is the same.
        (_, "GET /v1/providers" | "GET /v1/admin/nodes") => Case::Theirs(vec![Try {
            theirs: with(path, None),
            nobodys: with(path, None),
        }]),
        (Api::Ai, "POST /v1/providers") => {
            let new = json!({"name": "mine", "baseURL": "http://127.0.0.1:9/v1"});
            in_body(new.clone(), new)
        }
        // Refused for everybody alike.
        (Api::Platform, "POST /v1/databases") => in_body(json!({}), json!({})),
        (Api::Platform, "POST /v1/networks") => own(json!({"name": "secret-network"})),
        (Api::Platform, "POST /v1/api-token") => own(json!({"name": "mine"})),
        (Api::Platform, "POST /v2/teams") => own(json!({"name": "Mine"})),
        (Api::Ai, "POST /v1/keys") => own(json!({"name": "secret-key", "workspaces": ["main"]})),
        (Api::Ai, "POST /v1/workspaces") => own(json!({"name": format!("mine-{number}")})),
        // Whether a project's name is taken is the one thing that strangers may learn.
        (Api::Platform, "GET /v1/projects/{project_id}/check-availability") => Case::Own(
            format!("/v1/projects/mine-{number}/check-availability"),
            None,
        ),
        (Api::Platform, "POST /v1/projects") => {
            let new = |network: &str| json!({"name": "mine", "platform": "static", "planID": "nano", "network": network});
            in_body(new(&fixture.network), new(NOTHING))
        }
        (Api::Platform, "POST /v1/projects/update-envs") => {
            of_project(&|project| with(path, Some(json!({"project": project, "variables": []}))))
        }
        // A name that waits for its proof is not taken, so the owner's own one is as good as any.
        (Api::Platform, "POST /v1/domains") => {
            let new = |project: &str| json!({"project": project, "name": "secret-domain.example"});
            of_project(&|project| with(path, Some(new(project))))
        }
        (Api::Ai, "POST /v1/keys/verify") => {
            in_body(json!({"key": fixture.key_token}), json!({"key": "x.y.z"}))
        }
        // It would be a WebSocket, if it were one's own.
        (Api::Platform, "GET /v1/exec") => {
            of_project(&|project| with(&format!("{path}?project_id={project}"), None))
        }
        (Api::Platform, "POST /v2/teams/invitations/join") => Case::Theirs(vec![
            Try {
                theirs: (format!("{path}?token={}", fixture.invitation), None),
                nobodys: (format!("{path}?token=nothing"), None),
            },
            Try {
                theirs: (path.to_owned(), Some(json!({"token": fixture.invitation}))),
                nobodys: (path.to_owned(), Some(json!({"token": "nothing"}))),
            },
        ]),

        (api, name) => match body_about(api, name) {
            Some(body) => named(Some(body).filter(|body| !body.is_null())),
            None => {
                panic!("add an isolation case for {name} ({api:?}) to rules/isolation/cases.rs")
            }
        },
    }
}

/// The body of an operation whose path names a thing; null where it takes none.
fn body_about(api: Api, name: &str) -> Option<Value> {
    let body = match (api, name) {
        (
            Api::Platform,
            "GET /v1/projects/{project_id}"
            | "DELETE /v1/projects/{project_id}"
            | "POST /v1/projects/{project_id}/actions/restart"
            | "GET /v1/projects/{project_id}/events"
            | "GET /v1/projects/{project_id}/events/stream"
            | "GET /v1/projects/{project_id}/logs"
            | "GET /v2/projects/{project_id}/logs"
            | "GET /v1/projects/{project_id}/releases"
            | "GET /v1/releases/{releaseID}"
            | "POST /v1/releases/{releaseID}/rollback"
            | "POST /v2/releases/{releaseID}/cancel"
            | "GET /v2/releases/{releaseID}/source"
            | "GET /v1/projects/{project_id}/disks"
            | "DELETE /v1/projects/{project_id}/disks/{name}"
            | "GET /v1/projects/{project_id}/disks/{name}"
            | "POST /v1/projects/{project_id}/zero-downtime/{action}"
            | "POST /v1/projects/{project_id}/default-subdomain/{action}"
            | "POST /v1/projects/{project_id}/read-only/{action}"
            | "POST /v1/projects/{project_id}/fixed-ip/{action}"
            | "GET /v1/projects/{project_id}/metrics/summary"
            | "GET /v1/networks/{id}"
            | "DELETE /v1/networks/{id}"
            | "GET /v1/projects/{project_id}/metrics"
            | "GET /v1/projects/{project_id}/metrics.svg"
            | "GET /v1/domains/{id}"
            | "GET /v1/domains/{id}/check"
            | "DELETE /v1/domains/{id}"
            | "GET /v2/releases/{releaseID}/build-logs"
            | "DELETE /v1/tokens/{id}"
            | "DELETE /v2/teams/{id}"
            | "GET /v2/teams/{id}/members"
            | "DELETE /v2/teams/{id}/members/{memberID}",
        )
        | (
            Api::Ai,
            "GET /v1/keys/{keyID}"
            | "DELETE /v1/keys/{keyID}"
            | "GET /v1/workspaces/{id}"
            | "GET /v1/workspaces/{id}/activity"
            | "GET /v1/workspaces/{id}/logs"
            | "GET /v1/workspaces/{id}/logs/{callID}"
            | "DELETE /v1/workspaces/{id}"
            | "GET /v1/providers/{id}"
            | "DELETE /v1/providers/{id}",
        ) => Value::Null,
        (Api::Platform, "POST /v1/projects/{project_id}/actions/scale") => json!({"scale": 0}),
        (Api::Platform, "POST /v1/projects/{project_id}/disks") => {
            json!({"name": "mine", "size": 1})
        }
        (Api::Platform, "POST /v1/projects/{project_id}/disks/{name}/resize") => {
            json!({"size": 2})
        }
        (Api::Platform, "POST /v1/projects/{project_id}/resize") => json!({"planID": "micro"}),
        (
            Api::Platform,
            "POST /v2/projects/{project_id}/releases" | "GET /v2/projects/{project_id}/releases",
        ) => site(),
        (
            Api::Platform,
            "PUT /v2/projects/{project_id}/blobs/{digest}"
            | "POST /v2/projects/{project_id}/sources",
        ) => json!({}),
        (Api::Platform, "POST /v2/teams/{id}/members/{memberID}/role") => json!({"role": "viewer"}),
        (Api::Platform, "POST /v2/teams/{id}/invitations") => {
            json!({"email": "eve@example.com", "role": "owner"})
        }
        (Api::Ai, "PUT /v1/workspaces/{id}") => json!({"rpm": 1}),
        (Api::Ai, "PUT /v1/providers/{id}") => json!({"retries": 1}),
        (Api::Ai, "PUT /v1/keys/{keyID}") => json!({"enabled": false}),
        (Api::Ai, "POST /v1/keys/{keyID}/rotate") => json!({"grace": 0}),
        _ => return None,
    };
    Some(body)
}
