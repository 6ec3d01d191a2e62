//! Teams, their members and invitations: every role boundary, and what strangers see (nothing).

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step is a failed test"
)]

#[path = "accounts_support/mod.rs"]
mod support;

use estrade_model::TeamId;
use estrade_model::team::{CreateTeam, Invite, Role, Team};
use estrade_service::ai::keys::{create_key, delete_key};
use estrade_service::identity::access::scope_of;
use estrade_service::identity::accounts::disable_account;
use estrade_service::identity::invitations::{create_invitation, join_team};
use estrade_service::identity::members::{delete_member, list_members, set_role};
use estrade_service::identity::teams::{count_teams, create_team, delete_team, list_teams};
use estrade_service::platform::projects::{create_project, delete_project};
use estrade_service::{Caller, Error, Result};
use estrade_store::networks;
use serde_json::{from_value, json};
use std::sync::Arc;
use std::time::Duration;
use support::{Installation, on_both_backends};
use tokio::task::JoinSet;

const ROLES: [Role; 4] = [Role::Viewer, Role::Developer, Role::Admin, Role::Owner];

on_both_backends! {
    who_makes_a_team_owns_it
    teams_are_listed_in_pages
    a_stranger_finds_no_team
    members_are_listed_in_the_order_of_joining
    only_an_owner_deletes_a_team
    a_team_that_owns_something_stays
    who_may_remove_whom
    who_may_give_which_role
    anyone_may_leave_but_the_last_owner
    an_owner_who_is_locked_out_is_none_to_be_left_with
    owners_who_leave_together_do_not_both_get_away
    who_may_invite_as_what
    an_invitation_is_for_one_address_one_use_and_one_week
    a_newer_invitation_replaces_the_older
    who_was_removed_cannot_come_back_with_an_old_link
    the_invitations_of_a_former_admin_are_void
    a_link_used_many_times_at_once_works_once
}

fn code<T: std::fmt::Debug>(answer: Result<T>) -> &'static str {
    answer.map_or_else(|error| error.code(), |_| "ok")
}

async fn new_team(at: &Installation, owner: &Caller) -> Team {
    let new = CreateTeam {
        name: "The Analysts".parse().unwrap(),
    };
    create_team(&at.core, owner, new).await.unwrap()
}

async fn invite(at: &Installation, by: &Caller, team: TeamId, who: &Caller, role: Role) -> String {
    let invite = Invite {
        email: who.email.parse().unwrap(),
        role,
    };
    let invited = create_invitation(&at.core, by, team, invite).await.unwrap();
    let link = invited.link.unwrap();
    let (page, token) = link.expose().split_once("?token=").unwrap();
    assert_eq!(page, "http://127.0.0.1:3000/panel/join");
    assert_eq!(token.len(), 43);
    token.to_owned()
}

/// A team of four: one member per role.
struct Four {
    team: TeamId,
    people: Vec<(Role, Caller)>,
}

impl Four {
    async fn new(at: &Installation) -> Self {
        let owner = at.person("owner").await;
        let team = new_team(at, &owner).await.id;
        let mut people = Vec::new();
        for role in [Role::Viewer, Role::Developer, Role::Admin] {
            let person = at.person(role.as_str()).await;
            add(at, &owner, team, &person, role).await;
            people.push((role, person));
        }
        people.push((Role::Owner, owner));
        Self { team, people }
    }

    fn who(&self, role: Role) -> &Caller {
        let found = self.people.iter().find(|(has, _)| *has == role);
        &found.unwrap().1
    }
}

async fn add(at: &Installation, owner: &Caller, team: TeamId, person: &Caller, role: Role) {
    let token = invite(at, owner, team, person, role).await;
    join_team(&at.core, person, &token).await.unwrap();
}

async fn role_in(at: &Installation, team: TeamId, person: &Caller) -> Option<Role> {
    let scope = scope_of(&at.core, person.clone(), Some(team)).await;
    scope.ok().map(|scope| scope.role)
}

async fn who_makes_a_team_owns_it(at: &Installation) {
    let ada = at.person("ada").await;
    let team = new_team(at, &ada).await;
    assert_eq!(team.name, "The Analysts");
    assert_eq!(role_in(at, team.id, &ada).await, Some(Role::Owner));
    let networks = networks::list_networks(&at.core.db, team.id.cast(), None, 10, 0)
        .await
        .unwrap();
    assert_eq!(networks.len(), 1);
    assert_eq!(networks[0].name, "default");
}

async fn teams_are_listed_in_pages(at: &Installation) {
    let ada = at.person("ada").await;
    new_team(at, &at.person("bob").await).await;
    let mut made = Vec::new();
    for _ in 0..5 {
        made.insert(0, new_team(at, &ada).await.id);
    }
    let list = async |before, count, skip| {
        let teams = list_teams(&at.core, &ada, before, count, skip).await;
        teams
            .unwrap()
            .iter()
            .map(|team| team.id)
            .collect::<Vec<_>>()
    };
    assert_eq!(count_teams(&at.core, &ada).await.unwrap(), 5);
    assert_eq!(list(None, 100, 0).await, made);
    assert_eq!(list(None, 2, 1).await, made[1..3]);
    assert_eq!(list(Some(made[2]), 100, 0).await, made[3..]);
}

async fn a_stranger_finds_no_team(at: &Installation) {
    let four = Four::new(at).await;
    let (mallory, victim) = (at.person("mallory").await, four.who(Role::Viewer).account);
    let unknown: TeamId = "0123456789abcdef01234567".parse().unwrap();
    for team in [four.team, unknown] {
        let core = &at.core;
        assert_eq!(
            code(list_members(core, &mallory, team, None, 9, 0).await),
            "not_found"
        );
        assert_eq!(code(delete_team(core, &mallory, team).await), "not_found");
        assert_eq!(
            code(delete_member(core, &mallory, team, victim).await),
            "not_found"
        );
        let own = mallory.account;
        assert_eq!(
            code(delete_member(core, &mallory, team, own).await),
            "not_found"
        );
        let role = set_role(core, &mallory, team, victim, Role::Viewer).await;
        assert_eq!(code(role), "not_found");
        let invite = Invite {
            email: "mallory@example.com".parse().unwrap(),
            role: Role::Viewer,
        };
        let invited = create_invitation(core, &mallory, team, invite).await;
        assert_eq!(code(invited), "not_found");
        // Named beside the request instead of in its path, both are refused alike.
        let scope = scope_of(core, mallory.clone(), Some(team)).await;
        assert_eq!(code(scope), "no_permission");
    }
    assert!(
        list_teams(&at.core, &mallory, None, 9, 0)
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        list_members(&at.core, four.who(Role::Owner), four.team, None, 9, 0)
            .await
            .unwrap()
            .len(),
        4
    );
}

async fn members_are_listed_in_the_order_of_joining(at: &Installation) {
    let four = Four::new(at).await;
    for role in ROLES {
        let members = list_members(&at.core, four.who(role), four.team, None, 100, 0).await;
        let roles: Vec<_> = members.unwrap().iter().map(|member| member.role).collect();
        assert_eq!(
            roles,
            [Role::Owner, Role::Viewer, Role::Developer, Role::Admin]
        );
    }
    let page = list_members(&at.core, four.who(Role::Viewer), four.team, None, 2, 1)
        .await
        .unwrap();
    let emails: Vec<_> = page.iter().map(|member| member.email.as_str()).collect();
    assert_eq!(emails, ["viewer@example.com", "developer@example.com"]);
    let (viewer, last) = (four.who(Role::Viewer), Some(page[1].id));
    let rest = list_members(&at.core, viewer, four.team, last, 9, 0).await;
    assert_eq!(rest.unwrap()[0].role, Role::Admin);
}

async fn only_an_owner_deletes_a_team(at: &Installation) {
    let four = Four::new(at).await;
    let viewer = four.who(Role::Viewer);
    let later = at.person("later").await;
    let token = invite(at, four.who(Role::Owner), four.team, &later, Role::Viewer).await;
    for role in [Role::Viewer, Role::Developer, Role::Admin] {
        let answer = delete_team(&at.core, four.who(role), four.team).await;
        assert_eq!(code(answer), "no_permission");
    }
    delete_team(&at.core, four.who(Role::Owner), four.team)
        .await
        .unwrap();
    let again = delete_team(&at.core, four.who(Role::Owner), four.team).await;
    assert_eq!(code(again), "not_found");
    assert_eq!(count_teams(&at.core, viewer).await.unwrap(), 0);
    assert_eq!(code(join_team(&at.core, &later, &token).await), "not_found");
    let owner = four.team.cast();
    let networks = networks::list_networks(&at.core.db, owner, None, 9, 0)
        .await
        .unwrap();
    assert!(networks.is_empty());
}

async fn a_team_that_owns_something_stays(at: &Installation) {
    let (core, ada) = (&at.core, at.person("ada").await);
    let team = new_team(at, &ada).await.id;
    let scope = scope_of(core, ada.clone(), Some(team)).await.unwrap();

    let new = json!({"name": "the-site", "platform": "static", "planID": "nano"});
    create_project(core, &scope, from_value(new).unwrap())
        .await
        .unwrap();
    assert_eq!(code(delete_team(core, &ada, team).await), "team_not_empty");
    delete_project(core, &scope, "the-site", None)
        .await
        .unwrap();

    let new = json!({"name": "ci-bot", "workspaces": ["main"]});
    let key = create_key(core, &scope, from_value(new).unwrap())
        .await
        .unwrap();
    assert_eq!(code(delete_team(core, &ada, team).await), "team_not_empty");
    delete_key(core, &scope, key.id, None).await.unwrap();

    // Its workspace and network go with it.
    delete_team(core, &ada, team).await.unwrap();
}

async fn who_may_remove_whom(at: &Installation) {
    let four = Four::new(at).await;
    let owner = four.who(Role::Owner);
    for actor in ROLES {
        for target in ROLES {
            let victim = at
                .person(&format!("{}-{}", actor.as_str(), target.as_str()))
                .await;
            add(at, owner, four.team, &victim, target).await;
            let answer = delete_member(&at.core, four.who(actor), four.team, victim.account).await;
            let allowed = actor == Role::Owner || actor == Role::Admin && target < Role::Owner;
            let expected = if allowed { "ok" } else { "no_permission" };
            assert_eq!(code(answer), expected, "{actor:?} removes {target:?}");
            let still = role_in(at, four.team, &victim).await;
            assert_eq!(still.is_some(), !allowed);
        }
    }
    let stranger = at.person("stranger").await.account;
    let answer = delete_member(&at.core, owner, four.team, stranger).await;
    assert_eq!(code(answer), "not_found");
}

async fn who_may_give_which_role(at: &Installation) {
    let four = Four::new(at).await;
    let owner = four.who(Role::Owner);
    for actor in ROLES {
        for before in ROLES {
            let member = at
                .person(&format!("{}-{}", actor.as_str(), before.as_str()))
                .await;
            add(at, owner, four.team, &member, before).await;
            for after in ROLES {
                let answer =
                    set_role(&at.core, four.who(actor), four.team, member.account, after).await;
                let about_owners = before == Role::Owner || after == Role::Owner;
                let allowed = actor == Role::Owner || actor == Role::Admin && !about_owners;
                let expected = if allowed { "ok" } else { "no_permission" };
                assert_eq!(
                    code(answer),
                    expected,
                    "{actor:?} makes {before:?} {after:?}"
                );
                if allowed {
                    assert_eq!(role_in(at, four.team, &member).await, Some(after));
                    let back = set_role(&at.core, owner, four.team, member.account, before).await;
                    back.unwrap();
                }
            }
        }
    }
    let stranger = at.person("stranger").await.account;
    let answer = set_role(&at.core, owner, four.team, stranger, Role::Viewer).await;
    assert_eq!(code(answer), "not_found");
}

async fn anyone_may_leave_but_the_last_owner(at: &Installation) {
    let four = Four::new(at).await;
    let owner = four.who(Role::Owner);
    let own = owner.account;
    assert_eq!(
        code(delete_member(&at.core, owner, four.team, own).await),
        "last_owner"
    );
    let demoted = set_role(&at.core, owner, four.team, own, Role::Admin).await;
    assert_eq!(code(demoted), "last_owner");
    set_role(&at.core, owner, four.team, own, Role::Owner)
        .await
        .expect("no change");
    for role in [Role::Viewer, Role::Developer, Role::Admin] {
        let member = four.who(role);
        delete_member(&at.core, member, four.team, member.account)
            .await
            .unwrap();
    }
    let second = at.person("second").await;
    add(at, owner, four.team, &second, Role::Owner).await;
    delete_member(&at.core, owner, four.team, own)
        .await
        .unwrap();
    assert_eq!(role_in(at, four.team, owner).await, None);
}

async fn an_owner_who_is_locked_out_is_none_to_be_left_with(at: &Installation) {
    let (ada, bob) = (at.person("ada").await, at.person("bob").await);
    let team = new_team(at, &ada).await.id;
    add(at, &ada, team, &bob, Role::Owner).await;
    disable_account(&at.core, &bob.email.parse().unwrap())
        .await
        .unwrap();
    let leaves = delete_member(&at.core, &ada, team, ada.account).await;
    assert_eq!(code(leaves), "last_owner");
    let demoted = set_role(&at.core, &ada, team, ada.account, Role::Admin).await;
    assert_eq!(code(demoted), "last_owner");
    // The one who is locked out can go.
    delete_member(&at.core, &ada, team, bob.account)
        .await
        .unwrap();
    assert_eq!(role_in(at, team, &ada).await, Some(Role::Owner));
}

async fn owners_who_leave_together_do_not_both_get_away(at: &Installation) {
    let (ada, bob) = (at.person("ada").await, at.person("bob").await);
    for _ in 0..10 {
        let team = new_team(at, &ada).await.id;
        add(at, &ada, team, &bob, Role::Owner).await;
        let (first, second) = tokio::join!(
            delete_member(&at.core, &ada, team, ada.account),
            delete_member(&at.core, &bob, team, bob.account),
        );
        let mut codes = [code(first), code(second)];
        codes.sort_unstable();
        assert_eq!(codes, ["last_owner", "ok"]);
    }
}

async fn who_may_invite_as_what(at: &Installation) {
    let four = Four::new(at).await;
    for actor in ROLES {
        for role in ROLES {
            let invite = Invite {
                email: "new@example.com".parse().unwrap(),
                role,
            };
            let answer = create_invitation(&at.core, four.who(actor), four.team, invite).await;
            let allowed = actor >= Role::Admin && role <= actor;
            let expected = if allowed { "ok" } else { "no_permission" };
            assert_eq!(code(answer), expected, "{actor:?} invites {role:?}");
        }
    }
}

async fn an_invitation_is_for_one_address_one_use_and_one_week(at: &Installation) {
    let (ada, bob) = (at.person("ada").await, at.person("bob").await);
    let mallory = at.person("mallory").await;
    let team = new_team(at, &ada).await;
    let token = invite(at, &ada, team.id, &bob, Role::Developer).await;
    let unknown = join_team(&at.core, &bob, "no-such-token")
        .await
        .unwrap_err();
    let foreign = join_team(&at.core, &mallory, &token).await.unwrap_err();
    assert_eq!(unknown.to_string(), foreign.to_string());
    assert!(matches!(foreign, Error::NotFound(_)));

    let joined = join_team(&at.core, &bob, &token).await.unwrap();
    assert_eq!((joined.id, joined.name), (team.id, team.name));
    assert_eq!(role_in(at, team.id, &bob).await, Some(Role::Developer));
    assert_eq!(code(join_team(&at.core, &bob, &token).await), "not_found");
    let again = invite(at, &ada, team.id, &bob, Role::Admin).await;
    assert_eq!(
        code(join_team(&at.core, &bob, &again).await),
        "already_member"
    );
    assert_eq!(role_in(at, team.id, &bob).await, Some(Role::Developer));

    let late = invite(at, &ada, team.id, &mallory, Role::Viewer).await;
    let week = Duration::from_hours(7 * 24);
    at.core.clock.advance(week);
    assert_eq!(
        code(join_team(&at.core, &mallory, &late).await),
        "not_found"
    );
    let fresh = invite(at, &ada, team.id, &mallory, Role::Viewer).await;
    at.core
        .clock
        .advance(week.saturating_sub(Duration::from_mins(1)));
    join_team(&at.core, &mallory, &fresh).await.unwrap();
}

async fn a_newer_invitation_replaces_the_older(at: &Installation) {
    let (ada, bob) = (at.person("ada").await, at.person("bob").await);
    let team = new_team(at, &ada).await.id;
    let old = invite(at, &ada, team, &bob, Role::Admin).await;
    let new = invite(at, &ada, team, &bob, Role::Viewer).await;
    assert_eq!(code(join_team(&at.core, &bob, &old).await), "not_found");
    join_team(&at.core, &bob, &new).await.unwrap();
    assert_eq!(role_in(at, team, &bob).await, Some(Role::Viewer));
}

async fn who_was_removed_cannot_come_back_with_an_old_link(at: &Installation) {
    let (ada, bob) = (at.person("ada").await, at.person("bob").await);
    let team = new_team(at, &ada).await.id;
    add(at, &ada, team, &bob, Role::Admin).await;
    let kept = invite(at, &bob, team, &bob, Role::Admin).await;
    delete_member(&at.core, &ada, team, bob.account)
        .await
        .unwrap();
    assert_eq!(code(join_team(&at.core, &bob, &kept).await), "not_found");
}

async fn the_invitations_of_a_former_admin_are_void(at: &Installation) {
    let owner = at.person("owner").await;
    let team = new_team(at, &owner).await.id;
    for (name, removed) in [("ada", true), ("bob", false)] {
        let admin = at.person(name).await;
        add(at, &owner, team, &admin, Role::Admin).await;
        let friend = at.person(&format!("friend-of-{name}")).await;
        let link = invite(at, &admin, team, &friend, Role::Admin).await;
        if removed {
            delete_member(&at.core, &owner, team, admin.account)
                .await
                .unwrap();
        } else {
            set_role(&at.core, &owner, team, admin.account, Role::Viewer)
                .await
                .unwrap();
        }
        assert_eq!(code(join_team(&at.core, &friend, &link).await), "not_found");
    }
}

async fn a_link_used_many_times_at_once_works_once(at: &Installation) {
    let (ada, bob) = (at.person("ada").await, at.person("bob").await);
    let team = new_team(at, &ada).await.id;
    let token = invite(at, &ada, team, &bob, Role::Developer).await;
    let mut joins = JoinSet::new();
    for _ in 0..50 {
        let (core, bob, token) = (Arc::clone(&at.core), bob.clone(), token.clone());
        joins.spawn(async move { code(join_team(&core, &bob, &token).await) });
    }
    let codes = joins.join_all().await;
    assert_eq!(codes.iter().filter(|code| **code == "ok").count(), 1);
    assert!(
        codes.iter().all(|code| ["ok", "not_found"].contains(code)),
        "{codes:?}"
    );
}
