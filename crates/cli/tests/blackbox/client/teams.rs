//! Two people in a team: who joins, who may do what, who leaves.

use super::Person;
use crate::support::{Ran, text};
use serde_json::Value;

const ADA: &str = "ada@example.com";

/// Somebody else with an account on the server of a person.
struct Other<'p> {
    person: &'p Person,
    token: String,
}

impl<'p> Other<'p> {
    fn create(person: &'p Person) -> Self {
        let args = [
            "account",
            "create",
            "--email",
            ADA,
            "--fullname",
            "Ada",
            "--password-stdin",
        ];
        person
            .home
            .run_with_input(args, "correct horse\n")
            .assert(0);
        let token = person.home.create_token(ADA);
        Self { person, token }
    }

    fn run(&self, args: &[&str]) -> Ran {
        let mut command = self.person.command(args);
        command
            .env("ESTRADE_URL", &self.person.server.platform)
            .env("ESTRADE_TOKEN", &self.token);
        Ran::of(&command.output().unwrap())
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.run(args).assert(0).stdout).unwrap()
    }
}

#[test]
fn a_member_joins_gets_another_role_and_is_removed() {
    let person = Person::logged_in();
    let other = Other::create(&person);
    let team = person.run(&["teams", "create", "Web crew"]);
    let team = team.assert(0).stdout.trim_end().to_owned();
    let link = person.run(&["teams", "invite", "Web crew", ADA, "--role", "viewer"]);
    let link = link.assert(0).stdout.trim_end().to_owned();
    let joined = other.run(&["teams", "join", &link]);
    assert_eq!(joined.assert(0).stdout, format!("{team} Web crew\n"));
    other.run(&["teams", "join", &link]).assert(4);

    let members = person.json(&["teams", "members", "Web crew"]);
    let members = members["members"].as_array().unwrap();
    let ada = members.iter().find(|it| it["email"] == ADA).unwrap();
    assert_eq!(ada["role"], "viewer");
    let ada = text(&ada["_id"]);

    // Who may not read values sees that there are some, and cannot take masks for them.
    let in_team = |args: &[&'static str]| [args, &["-p", "hello", "--team", "Web crew"]].concat();
    person
        .run(&[
            "projects",
            "create",
            "hello",
            "--platform",
            "static",
            "--team",
            "Web crew",
        ])
        .assert(0);
    person.run(&in_team(&["env", "set", "A=secret"])).assert(0);
    let masked = other.run(&in_team(&["env", "list"]));
    assert_eq!(masked.assert(0).stdout, "NAME  VALUE\nA     ***\n");
    let masked = other.json(&in_team(&["env", "list", "--json"]));
    assert_eq!(masked["variables"][0]["value"], "***");
    for args in [
        &["env", "export"][..],
        &["env", "export", "--json"],
        &["env", "set", "B=1"],
    ] {
        let refused = other.run(&in_team(args));
        refused.assert(3).assert_says("may not read the values");
        assert_eq!(refused.stdout, "", "{args:?}");
    }

    let changed = person.run(&["teams", "role", "Web crew", &ada, "developer"]);
    changed
        .assert(0)
        .assert_says(&format!("{ada} is developer"));
    let exported = other.run(&in_team(&["env", "export"]));
    assert_eq!(exported.assert(0).stdout, "A=\"secret\"\n");

    let removed = person.json(&["teams", "remove", "Web crew", &ada]);
    assert_eq!(removed["removed"], true);
    other
        .run(&["teams", "members", "Web crew"])
        .assert(4)
        .assert_says("you are in no team `Web crew`");
    person
        .run(&[
            "projects", "delete", "hello", "--yes", "--purge", "--team", "Web crew",
        ])
        .assert(0);
    person
        .run(&["teams", "delete", "Web crew"])
        .assert(2)
        .assert_says("Add --yes");
    person
        .run(&["teams", "delete", "Web crew", "--yes"])
        .assert(0);
    let left = person.json(&["teams", "list"]);
    assert_eq!(left["teams"].as_array().unwrap().len(), 0);
    person.server.stop();
}
