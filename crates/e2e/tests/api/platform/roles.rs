//! What each role in a team may do: every kind of action, every role.

use crate::support::{deploy_site, new_key, new_project, site, tar_gz, upload};
use estrade_blobs::Digest;
use estrade_testkit::{ApiResponse, TestApp, User, on_both_backends};
use serde_json::json;

on_both_backends! {
    viewers_read;
    developers_also_change;
    admins_also_manage_and_delete;
    only_owners_delete_the_team_and_handle_owners;
}

const ROLES: [&str; 4] = ["viewer", "developer", "admin", "owner"];

/// A team with things of its own, and one member of each role.
struct Team {
    id: String,
    members: Vec<User>,
    key: String,
    old_release: String,
    domain: String,
}

impl Team {
    async fn new(app: &TestApp) -> Self {
        let ada = app.new_account("ada").await;
        let id = app.new_team(&ada, "Shop").await;
        let owner = ada.in_team(&id);
        let mut members = Vec::new();
        for role in &ROLES[..3] {
            let member = app.new_account(role).await;
            app.join(&id, &ada, &member, role).await;
            members.push(member.in_team(&id));
        }
        members.push(owner.clone());
        new_project(&owner, "shop").await;
        let old_release = deploy_site(&owner, "shop").await;
        deploy_site(&owner, "shop").await;
        let (key, _) = new_key(&owner, "ci-bot").await;
        let new = json!({"name": "shop.example.com", "project": "shop"});
        let domain = owner.post("/v1/domains", &new).await.assert(201);
        Self {
            id,
            members,
            key,
            old_release,
            domain: format!("/v1/domains/{}", domain.field("/domain/_id")),
        }
    }

    fn owner(&self) -> &User {
        &self.members[3]
    }

    /// Tries something as every member: those below `least` are refused, the others are not.
    async fn try_all(
        &self,
        what: &str,
        least: &str,
        action: impl AsyncFn(&User, usize) -> ApiResponse,
    ) {
        let least = ROLES.iter().position(|role| *role == least).unwrap();
        for (rank, member) in self.members.iter().enumerate() {
            let response = action(member, rank).await;
            if rank < least {
                response.refused(403, "no_permission");
            } else {
                let role = ROLES[rank];
                assert!(
                    response.status() < 300,
                    "{role} {what}: {}",
                    response.describe()
                );
            }
        }
    }
}

async fn viewers_read(app: &TestApp) {
    let team = Team::new(app).await;
    for path in [
        "/v1/projects".to_owned(),
        "/v1/projects/shop".to_owned(),
        "/v1/projects/shop/releases".to_owned(),
        "/v2/projects/shop/releases".to_owned(),
        "/v1/projects/shop/events".to_owned(),
        "/v1/projects/shop/disks".to_owned(),
        "/v1/projects/shop/metrics".to_owned(),
        "/v1/projects/shop/metrics.svg".to_owned(),
        format!("/v1/releases/{}", team.old_release),
        format!("/v2/releases/{}/build-logs", team.old_release),
        "/v1/networks".to_owned(),
        "/v1/domains".to_owned(),
        team.domain.clone(),
        format!("{}/check", team.domain),
        format!("/v2/teams/{}/members", team.id),
    ] {
        team.try_all(&path, "viewer", async |user, _| user.get(&path).await)
            .await;
    }
    for path in [
        "/v1/keys".to_owned(),
        format!("/v1/keys/{}", team.key),
        "/v1/workspaces".to_owned(),
    ] {
        team.try_all(&path, "viewer", async |user, _| user.ai().get(&path).await)
            .await;
    }
}

async fn developers_also_change(app: &TestApp) {
    let team = Team::new(app).await;
    let dev = "developer";
    // Sources may hold what is masked for viewers.
    let source = format!("/v2/releases/{}/source", team.old_release);
    team.try_all("downloads a source", dev, async |user, _| {
        user.get(&source).await
    })
    .await;
    team.try_all("creates a project", dev, async |user, rank| {
        let new = json!({"name": format!("new-{rank}"), "platform": "static", "planID": "nano"});
        user.post("/v1/projects", &new).await
    })
    .await;
    team.try_all("deploys", dev, async |user, _| {
        user.post("/v2/projects/shop/releases", &site()).await
    })
    .await;
    team.try_all("deploys with GET", dev, async |user, _| {
        user.get("/v2/projects/shop/releases").json(&site()).await
    })
    .await;
    team.try_all("uploads a source", dev, async |user, _| {
        upload(user, "shop", "file", &tar_gz(&[("a", "1")])).await
    })
    .await;
    team.try_all("sends a content ahead", dev, async |user, _| {
        let path = format!("/v2/projects/shop/blobs/{}", Digest::of(b"x"));
        user.call(http::Method::PUT, &path).bytes("x").await
    })
    .await;
    team.try_all("sets envs", dev, async |user, _| {
        let set = json!({"project": "shop", "variables": [{"key": "A", "value": "1"}]});
        user.post("/v1/projects/update-envs", &set).await
    })
    .await;
    for (path, body) in [
        ("/v1/projects/shop/actions/scale", json!({"scale": 2})),
        ("/v1/projects/shop/actions/restart", json!({})),
        ("/v1/projects/shop/resize", json!({"planID": "micro"})),
    ] {
        team.try_all(path, dev, async |user, _| user.post(path, &body).await)
            .await;
    }
    team.try_all("rolls back", dev, async |user, _| {
        user.post_empty(&format!("/v1/releases/{}/rollback", team.old_release))
            .await
    })
    .await;
    team.try_all("creates a network", dev, async |user, rank| {
        user.post("/v1/networks", &json!({"name": format!("net-{rank}")}))
            .await
    })
    .await;
    team.try_all("adds a domain", dev, async |user, rank| {
        let new = json!({"name": format!("d{rank}.example.com"), "project": "shop"});
        user.post("/v1/domains", &new).await
    })
    .await;
    team.try_all("creates a disk", dev, async |user, rank| {
        let new = json!({"name": format!("disk-{rank}"), "size": 1});
        user.post("/v1/projects/shop/disks", &new).await
    })
    .await;
    team.try_all("creates a key", dev, async |user, rank| {
        let new = json!({"name": format!("key {rank}"), "workspaces": ["main"]});
        user.ai().post("/v1/keys", &new).await
    })
    .await;
    team.try_all("creates a workspace", dev, async |user, rank| {
        user.ai()
            .post("/v1/workspaces", &json!({"name": format!("space-{rank}")}))
            .await
    })
    .await;
    let path = format!("/v1/keys/{}", team.key);
    team.try_all("updates a key", dev, async |user, _| {
        user.ai().put(&path, &json!({"enabled": true})).await
    })
    .await;
    team.try_all("rotates a key", dev, async |user, _| {
        user.ai()
            .post(&format!("{path}/rotate"), &json!({"grace": 1}))
            .await
    })
    .await;
    let viewer = team.members[0].ai();
    viewer.delete(&path).await.refused(403, "no_permission");
    team.members[1].ai().delete(&path).await.assert(204);
    // A viewer learns nothing of what is not there either.
    viewer
        .delete("/v1/keys/0123456789abcdef01234567")
        .await
        .refused(403, "no_permission");
}

async fn admins_also_manage_and_delete(app: &TestApp) {
    let team = Team::new(app).await;
    let bob = app.new_account("bob").await;
    let invitations = format!("/v2/teams/{}/invitations", team.id);
    team.try_all("invites", "admin", async |user, _| {
        user.post(&invitations, &json!({"email": bob.email, "role": "viewer"}))
            .await
    })
    .await;
    app.join(&team.id, team.owner(), &bob, "viewer").await;
    let member = format!("/v2/teams/{}/members/{}", team.id, bob.account);
    team.try_all("changes a role", "admin", async |user, _| {
        user.post(&format!("{member}/role"), &json!({"role": "developer"}))
            .await
    })
    .await;
    let (disks, disk) = ("/v1/projects/shop/disks", "/v1/projects/shop/disks/media");
    let new = json!({"name": "media", "size": 1});
    team.owner().post(disks, &new).await.assert(201);
    for user in &team.members[..2] {
        user.delete(disk).await.refused(403, "no_permission");
        user.delete(&member).await.refused(403, "no_permission");
        user.delete(&team.domain)
            .await
            .refused(403, "no_permission");
        user.delete("/v1/projects/shop")
            .await
            .refused(403, "no_permission");
    }
    let admin = &team.members[2];
    admin.delete(disk).await.assert(204);
    admin.delete(&member).await.assert(200);
    admin.delete(&team.domain).await.assert(204);
    admin.delete("/v1/projects/shop").await.assert(200);
    let spare = admin
        .ai()
        .post("/v1/workspaces", &json!({"name": "spare"}))
        .await
        .assert(200);
    let spare = format!("/v1/workspaces/{}", spare.field("/workspace/_id"));
    for user in &team.members[..2] {
        user.ai().delete(&spare).await.refused(403, "no_permission");
    }
    admin.ai().delete(&spare).await.assert(204);
}

async fn only_owners_delete_the_team_and_handle_owners(app: &TestApp) {
    let team = Team::new(app).await;
    let admin = &team.members[2];
    let path = format!("/v2/teams/{}", team.id);
    for user in &team.members[..3] {
        user.delete(&path).await.refused(403, "no_permission");
    }
    let owner = format!("{path}/members/{}", team.owner().account);
    admin.delete(&owner).await.refused(403, "no_permission");
    let response = admin
        .post(&format!("{owner}/role"), &json!({"role": "viewer"}))
        .await;
    response.refused(403, "no_permission");
    let own = format!("{path}/members/{}/role", admin.account);
    admin
        .post(&own, &json!({"role": "owner"}))
        .await
        .refused(403, "no_permission");
    let invite = json!({"email": "x@example.com", "role": "owner"});
    let response = admin.post(&format!("{path}/invitations"), &invite).await;
    response.refused(403, "no_permission");
    team.owner()
        .post(&own, &json!({"role": "owner"}))
        .await
        .assert(200);
    admin.delete(&owner).await.assert(200);
}
