//! What administrators do with accounts, people who join without one, and projects that move to a team.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step is a failed test"
)]

#[path = "accounts_support/mod.rs"]
mod support;

use estrade_model::audit::{ActionFilter, AuditEntry};
use estrade_model::secret::Secret;
use estrade_model::team::{CreateTeam, Invite, Role, Team};
use estrade_service::audit::list_entries;
use estrade_service::identity::access::{Origin, Scope, scope_of};
use estrade_service::identity::accounts::{
    create_account_by, find_account, rename_account, search_accounts, set_disabled_by,
};
use estrade_service::identity::invitations::{
    create_invitation, delete_invitation, join_as_new, list_invitations, peek_invitation,
};
use estrade_service::identity::members::list_members;
use estrade_service::identity::teams::create_team;
use estrade_service::platform::domains::{create_domain, list_domains};
use estrade_service::platform::move_project::move_project;
use estrade_service::platform::projects::{create_project, list_projects, read_project};
use estrade_service::{Caller, Error, Result, Settings};
use estrade_store::audit::AuditFilter;
use serde_json::{from_value, json};
use support::{Installation, on_both_backends};

on_both_backends! {
    only_administrators_manage_accounts
    accounts_are_searched_in_pages
    an_invitation_of_an_administrator_makes_an_account_once
    an_invitation_of_anybody_else_makes_no_account
    an_invitation_of_a_former_administrator_makes_no_account
    every_invitation_makes_an_account_where_it_is_configured
    a_new_name_is_noted_once
    an_invitation_is_withdrawn
    a_project_moves_to_a_team_with_its_domains
    a_domain_that_is_added_meanwhile_moves_along
    who_may_not_move_a_project
}

fn code<T: std::fmt::Debug>(answer: Result<T>) -> &'static str {
    answer.map_or_else(|error| error.code(), |_| "ok")
}

/// An account that is an administrator in the database, too.
async fn administrator(at: &Installation) -> Caller {
    let mut root = at.person("root").await;
    root.admin = true;
    let account = root.account;
    let made = at.core.db.transact(move |tx| {
        Box::pin(async move {
            tx.query("UPDATE accounts SET admin = TRUE WHERE id = $1")
                .bind(account)
                .execute()
                .await
        })
    });
    assert_eq!(made.await.unwrap(), 1);
    root
}

async fn team_of(at: &Installation, owner: &Caller) -> (Team, Scope) {
    let new = CreateTeam {
        name: "The Analysts".parse().unwrap(),
    };
    let team = create_team(&at.core, owner, new).await.unwrap();
    let scope = scope_of(&at.core, owner.clone(), Some(team.id))
        .await
        .unwrap();
    (team, scope)
}

async fn own(at: &Installation, caller: &Caller) -> Scope {
    scope_of(&at.core, caller.clone(), None).await.unwrap()
}

async fn invite(at: &Installation, by: &Caller, team: &Team, email: &str) -> String {
    let invite = Invite {
        email: email.parse().unwrap(),
        role: Role::Viewer,
    };
    let invited = create_invitation(&at.core, by, team.id, invite)
        .await
        .unwrap();
    let link = invited.link.unwrap();
    link.expose().split_once("?token=").unwrap().1.to_owned()
}

async fn log(at: &Installation, scope: &Scope, action: &str) -> Vec<AuditEntry> {
    let filter = AuditFilter {
        action: action.parse::<ActionFilter>().unwrap(),
        ..AuditFilter::default()
    };
    list_entries(&at.core, scope, &filter, None, 100, 0)
        .await
        .unwrap()
}

async fn only_administrators_manage_accounts(at: &Installation) {
    let (root, eve) = (administrator(at).await, at.person("eve").await);
    let create = |by: Caller, email: &'static str| async move {
        let (email, name) = (email.parse().unwrap(), "New".parse().unwrap());
        create_account_by(&at.core, &by, email, name, false).await
    };
    assert_eq!(
        code(create(eve.clone(), "a@example.com").await),
        "no_permission"
    );
    // A caller that only says so is none in the transaction.
    let mut liar = eve.clone();
    liar.admin = true;
    assert_eq!(
        code(create(liar.clone(), "a@example.com").await),
        "no_permission"
    );
    let made = create(root.clone(), "new@example.com").await.unwrap();
    let again = create(root.clone(), "new@example.com").await;
    assert_eq!(code(again), "account_exists");
    let refused = set_disabled_by(&at.core, &liar, made, true).await;
    assert_eq!(code(refused), "no_permission");
    let refused = set_disabled_by(&at.core, &root, root.account, true).await;
    assert_eq!(code(refused), "own_account");
    let email = set_disabled_by(&at.core, &root, made, true).await.unwrap();
    assert_eq!(email, "new@example.com");
    set_disabled_by(&at.core, &root, made, false).await.unwrap();
    // The account's own log says who it was.
    let mut owner = root.clone();
    owner.account = made;
    let entries = log(at, &own(at, &owner).await, "account").await;
    let actions: Vec<_> = entries.iter().map(|entry| entry.action.as_str()).collect();
    assert_eq!(
        actions,
        ["account.enable", "account.disable", "account.create"]
    );
    assert!(entries.iter().all(|entry| entry.by.email == root.email));
}

async fn accounts_are_searched_in_pages(at: &Installation) {
    let root = administrator(at).await;
    let eve = at.person("eve").await;
    for name in ["ann", "anna", "bob_1", "bobx1"] {
        at.person(name).await;
    }
    let find = |text: &'static str| {
        let root = &root;
        async move {
            let found = search_accounts(&at.core, root, text, None, 50)
                .await
                .unwrap();
            found
                .into_iter()
                .map(|row| row.fullname)
                .collect::<Vec<_>>()
        }
    };
    assert_eq!(find("ANN").await, ["anna", "ann"]);
    // A pattern of the database is a text like any other.
    assert_eq!(find("b_1").await, ["bob_1"]);
    assert_eq!(find("%").await, [""; 0]);
    let all = find("").await;
    let first = search_accounts(&at.core, &root, "", None, 3).await.unwrap();
    let rest = search_accounts(&at.core, &root, "", Some(first[2].id), 50)
        .await
        .unwrap();
    let paged: Vec<_> = first
        .into_iter()
        .chain(rest)
        .map(|row| row.fullname)
        .collect();
    assert_eq!(paged, all);
    let refused = search_accounts(&at.core, &eve, "", None, 50).await;
    assert_eq!(code(refused), "no_permission");
}

async fn join(at: &Installation, token: &str, password: &str) -> Result<String> {
    let (name, password) = ("New Person".parse().unwrap(), Secret(password.to_owned()));
    let origin = Origin {
        address: Some("192.0.2.9".parse().unwrap()),
        request: None,
    };
    join_as_new(&at.core, token, name, password, origin).await
}

/// The log of whoever has that address.
async fn log_of(at: &Installation, email: &str, action: &str) -> Vec<AuditEntry> {
    let found = find_account(&at.core, &email.parse().unwrap()).await;
    let mut owner = at.person("reader").await;
    owner.account = found.unwrap().id;
    log(at, &own(at, &owner).await, action).await
}

async fn an_invitation_of_an_administrator_makes_an_account_once(at: &Installation) {
    let ada = administrator(at).await;
    let (team, scope) = team_of(at, &ada).await;
    let token = invite(at, &ada, &team, "new@example.com").await;
    let offer = peek_invitation(&at.core, &token).await.unwrap().unwrap();
    assert_eq!(offer.invitation.team_name, "The Analysts");
    assert_eq!(offer.invitation.email, "new@example.com");
    assert!(offer.creates_account);
    assert!(peek_invitation(&at.core, "x").await.unwrap().is_none());
    assert_eq!(code(join(at, "x", "correct horse").await), "not_found");
    // A password that is not acceptable leaves the link good.
    assert_eq!(code(join(at, &token, "short").await), "invalid");
    let both = tokio::join!(
        join(at, &token, "correct horse"),
        join(at, &token, "other horse")
    );
    let answers = [code(both.0), code(both.1)];
    assert!(
        answers.contains(&"ok") && answers.contains(&"not_found"),
        "{answers:?}"
    );
    let members = list_members(&at.core, &ada, team.id, None, 10, 0)
        .await
        .unwrap();
    let joined = members
        .iter()
        .find(|member| member.email == "new@example.com")
        .unwrap();
    assert_eq!(
        (joined.role, joined.fullname.as_str()),
        (Role::Viewer, "New Person")
    );
    assert_eq!(log(at, &scope, "member.join").await.len(), 1);
    let made = log_of(at, "new@example.com", "account.create").await;
    assert_eq!(made.len(), 1);
    assert_eq!(made[0].detail, format!("invited by {}", ada.email));
    assert_eq!(made[0].address.as_deref(), Some("192.0.2.9"));
    // For an address that has an account, the account joins.
    let token = invite(at, &ada, &team, "reader@example.com").await;
    let offer = peek_invitation(&at.core, &token).await.unwrap().unwrap();
    assert!(!offer.creates_account);
    let refused = join(at, &token, "correct horse").await;
    assert_eq!(code(refused), "no_permission");
    assert!(peek_invitation(&at.core, &token).await.unwrap().is_some());
}

async fn an_invitation_of_anybody_else_makes_no_account(at: &Installation) {
    let (eve, _) = (at.person("eve").await, at.person("bob").await);
    let (team, _) = team_of(at, &eve).await;
    // Nothing tells the address that has an account from the one that has none.
    for email in ["bob@example.com", "ceo@example.com"] {
        let token = invite(at, &eve, &team, email).await;
        let offer = peek_invitation(&at.core, &token).await.unwrap().unwrap();
        assert!(!offer.creates_account, "{email}");
        let refused = join(at, &token, "correct horse").await.unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("ask the administrator"), "{email}: {text}");
        // It stays good for the account that the administrator makes.
        assert!(peek_invitation(&at.core, &token).await.unwrap().is_some());
    }
    let found = find_account(&at.core, &"ceo@example.com".parse().unwrap()).await;
    assert!(matches!(found, Err(Error::NotFound(_))));
}

async fn an_invitation_of_a_former_administrator_makes_no_account(at: &Installation) {
    let ada = administrator(at).await;
    let (team, _) = team_of(at, &ada).await;
    let token = invite(at, &ada, &team, "new@example.com").await;
    let demote = at.core.db.transact(|tx| {
        let sql = "UPDATE accounts SET admin = FALSE WHERE email = 'root@example.com'";
        Box::pin(async move { tx.query(sql).execute().await })
    });
    assert_eq!(demote.await.unwrap(), 1);
    let refused = join(at, &token, "correct horse").await;
    assert_eq!(code(refused), "no_permission");
    assert!(peek_invitation(&at.core, &token).await.unwrap().is_some());
}

async fn every_invitation_makes_an_account_where_it_is_configured(at: &Installation) {
    let ada = at.person("ada").await;
    let (team, _) = team_of(at, &ada).await;
    let token = invite(at, &ada, &team, "new@example.com").await;
    let core = at
        .another_core(Settings {
            invitations_create_accounts: true,
            ..at.core.settings.clone()
        })
        .await;
    let (name, password) = (
        "New Person".parse().unwrap(),
        Secret("correct horse".into()),
    );
    let joined = join_as_new(&core, &token, name, password, Origin::default()).await;
    assert_eq!(joined.unwrap(), "new@example.com");
    let made = log_of(at, "new@example.com", "account.create").await;
    assert_eq!(made[0].detail, "invited by ada@example.com");
}

async fn a_new_name_is_noted_once(at: &Installation) {
    let ada = at.person("ada").await;
    for name in ["Ada Lovelace", "Ada Lovelace"] {
        rename_account(&at.core, &ada, name.parse().unwrap())
            .await
            .unwrap();
    }
    let entries = log(at, &own(at, &ada).await, "account.rename").await;
    assert_eq!(entries.len(), 1);
    assert_eq!(
        (entries[0].name.as_str(), entries[0].detail.as_str()),
        (ada.email.as_str(), "Ada Lovelace")
    );
}

async fn an_invitation_is_withdrawn(at: &Installation) {
    let (ada, bob) = (at.person("ada").await, at.person("bob").await);
    let (team, scope) = team_of(at, &ada).await;
    let (_, other) = team_of(at, &bob).await;
    let token = invite(at, &ada, &team, "new@example.com").await;
    let open = list_invitations(&at.core, &scope, None, 10).await.unwrap();
    assert_eq!(open.len(), 1);
    assert_eq!(open[0].email, "new@example.com");
    // An administrator of another team neither sees nor withdraws it.
    assert_eq!(
        list_invitations(&at.core, &other, None, 10)
            .await
            .unwrap()
            .len(),
        0
    );
    let refused = delete_invitation(&at.core, &other, open[0].id).await;
    assert_eq!(code(refused), "not_found");
    delete_invitation(&at.core, &scope, open[0].id)
        .await
        .unwrap();
    assert!(peek_invitation(&at.core, &token).await.unwrap().is_none());
    assert_eq!(log(at, &scope, "invitation.delete").await.len(), 1);
}

async fn new_project(at: &Installation, scope: &Scope, name: &str) {
    let new = json!({"name": name, "platform": "static", "planID": "nano"});
    create_project(&at.core, scope, from_value(new).unwrap())
        .await
        .unwrap();
}

async fn a_project_moves_to_a_team_with_its_domains(at: &Installation) {
    let ada = at.person("ada").await;
    let (team, in_team) = team_of(at, &ada).await;
    let own = own(at, &ada).await;
    new_project(at, &own, "shop").await;
    let domain = json!({"project": "shop", "name": "shop.example.com"});
    create_domain(&at.core, &own, from_value(domain).unwrap())
        .await
        .unwrap();
    let name = move_project(&at.core, &own, "shop", team.id).await.unwrap();
    assert_eq!(name, "shop");
    let gone = read_project(&at.core, &own, "shop").await;
    assert!(matches!(gone, Err(Error::NotFound(_))));
    assert_eq!(
        list_projects(&at.core, &own, None, 10, 0)
            .await
            .unwrap()
            .len(),
        0
    );
    let moved = list_projects(&at.core, &in_team, None, 10, 0)
        .await
        .unwrap();
    assert_eq!(moved[0].project_id, "shop");
    let network = moved[0].network.as_ref().expect("the team's network");
    assert_eq!(network.name, "default");
    let domains = list_domains(&at.core, &in_team, None, None, 10, 0)
        .await
        .unwrap();
    assert_eq!(domains.len(), 1);
    let entries = log(at, &in_team, "project.move").await;
    assert_eq!((entries.len(), entries[0].name.as_str()), (1, "shop"));
    let left = log(at, &own, "project.move").await;
    assert_eq!((left.len(), left[0].name.as_str()), (1, "shop"));
    let again = move_project(&at.core, &in_team, "shop", team.id).await;
    assert_eq!(code(again), "same_owner");
}

async fn a_domain_that_is_added_meanwhile_moves_along(at: &Installation) {
    let ada = at.person("ada").await;
    let (team, _) = team_of(at, &ada).await;
    let own = own(at, &ada).await;
    for round in 0..20 {
        let project = format!("shop-{round}");
        new_project(at, &own, &project).await;
        let add = async |number: usize| {
            // They arrive one after the other while the project moves.
            for _ in 0..number * 3 {
                tokio::task::yield_now().await;
            }
            let name = format!("d{number}.{project}.example.com");
            let domain = json!({"project": project, "name": name});
            let added = create_domain(&at.core, &own, from_value(domain).unwrap()).await;
            let code = code(added);
            assert!(code == "ok" || code == "not_found", "{code}");
        };
        let (moved, ..) = tokio::join!(
            move_project(&at.core, &own, &project, team.id),
            add(0),
            add(1),
            add(2),
            add(3)
        );
        moved.unwrap();
    }
    let strays = "SELECT COUNT(*) FROM domains d JOIN projects p ON p.id = d.project_id
                  WHERE d.owner_id <> p.owner_id";
    let strays: u64 = at.core.db.read(strays).fetch_one().await.unwrap();
    assert_eq!(strays, 0);
}

async fn who_may_not_move_a_project(at: &Installation) {
    let (ada, bob) = (at.person("ada").await, at.person("bob").await);
    let (of_bob, _) = team_of(at, &bob).await;
    let own = own(at, &ada).await;
    new_project(at, &own, "shop").await;
    // Into a team of others, and as a viewer.
    let refused = move_project(&at.core, &own, "shop", of_bob.id).await;
    assert_eq!(code(refused), "not_found");
    let (team, account) = (of_bob.id, ada.account);
    let now = at.core.now();
    let joined = at.core.db.transact(move |tx| {
        Box::pin(async move {
            estrade_store::members::insert_member(tx, team, account, Role::Viewer, now).await
        })
    });
    joined.await.unwrap();
    let refused = move_project(&at.core, &own, "shop", of_bob.id).await;
    assert_eq!(code(refused), "no_permission");
    assert_eq!(
        list_projects(&at.core, &own, None, 10, 0)
            .await
            .unwrap()
            .len(),
        1
    );
}
