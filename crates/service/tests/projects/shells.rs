//! Shells, as far as they need no instance: who may open one, and that it is written down first.

use crate::acting::{code, create, owner};
use crate::support::{Installation, on_both_backends};
use estrade_model::audit::{Action, AuditEntry};
use estrade_model::team::{CreateTeam, Invite, Role};
use estrade_service::audit::{AuditFilter, list_entries};
use estrade_service::identity::access::scope_of;
use estrade_service::identity::invitations::{create_invitation, join_team};
use estrade_service::identity::{members, teams};
use estrade_service::platform::containers::shell::{NoShell, request_shell};
use estrade_service::{Core, Scope};

on_both_backends! {
    no_shell_begins_that_is_not_written_down
    who_was_demoted_since_opens_none
}

async fn shells_in_log(core: &Core, scope: &Scope) -> Vec<AuditEntry> {
    let entries = list_entries(core, scope, &AuditFilter::default(), None, 50, 0).await;
    let mut entries = entries.unwrap();
    entries.retain(|entry| entry.action == Action::OpenShell);
    entries
}

async fn no_shell_begins_that_is_not_written_down(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    let project = create(core, &ada, "shop").await;
    let command = Some("psql -W hunter22");
    let request = request_shell(core, ada.clone(), "shop", command).await;
    let request = request.unwrap();
    assert!(shells_in_log(core, &ada).await.is_empty());
    let opened = request.open(core, Vec::new(), None).await;
    assert!(matches!(opened, Err(NoShell::NothingRuns)));
    let entries = shells_in_log(core, &ada).await;
    assert_eq!(entries.len(), 1);
    let entry = &entries[0];
    assert_eq!(entry.subject, project.id.to_string());
    assert_eq!(
        (entry.name.as_str(), entry.by.email.as_str()),
        ("shop", "ada@example.com")
    );
    let told = serde_json::to_string(entry).unwrap();
    assert!(!told.contains("hunter22"), "{told}");
}

async fn who_was_demoted_since_opens_none(at: &Installation) {
    let (core, ada, dev) = (&at.core, at.person("ada").await, at.person("dev").await);
    let new = CreateTeam {
        name: "Shop".parse().unwrap(),
    };
    let team = teams::create_team(core, &ada, new).await.unwrap().id;
    let invite = Invite {
        email: dev.email.parse().unwrap(),
        role: Role::Developer,
    };
    let link = create_invitation(core, &ada, team, invite).await.unwrap();
    let link = link.link.unwrap();
    let token = link.expose().split_once("?token=").unwrap().1.to_owned();
    join_team(core, &dev, &token).await.unwrap();
    let own = scope_of(core, ada.clone(), Some(team)).await.unwrap();
    create(core, &own, "shop").await;
    let scope = scope_of(core, dev.clone(), Some(team)).await.unwrap();
    let request = request_shell(core, scope, "shop", None).await.unwrap();
    let demoted = members::set_role(core, &ada, team, dev.account, Role::Viewer).await;
    assert_eq!(code(demoted), "ok");
    let opened = request.open(core, Vec::new(), None).await;
    assert!(matches!(opened, Err(NoShell::Failed(reason)) if reason.contains("developer")));
    assert!(shells_in_log(core, &own).await.is_empty());
}
