//! Logging in, projects, releases, variables, tokens, teams: what people and scripts read.

use super::{Person, client_command, write_files};
use crate::support::{Home, Ran, Server};
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_person_logs_in_and_manages_projects() {
    let person = Person::logged_in();
    let see = |args: &[&str]| person.snapshot(args);
    assert_eq!(
        see(&["context", "list"]),
        "0\n   NAME  SERVER                  ACCOUNT\n*  test  [server]  admin@localhost\n--\n"
    );
    assert_eq!(
        see(&["projects", "list"]),
        "0\n--\nno projects yet; `estrade projects create NAME --platform static` makes one\n"
    );
    let made = person.run(&[
        "projects",
        "create",
        "hello",
        "--platform",
        "static",
        "--plan",
        "nano",
    ]);
    made.assert(0)
        .assert_says("made hello; `estrade deploy --project hello`");
    assert!(
        made.stdout.starts_with("url  http://hello.localhost:"),
        "{made:?}"
    );
    let list = person.run(&["projects", "list"]).stdout;
    let lines: Vec<Vec<_>> = list
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines[0],
        ["NAME", "PLATFORM", "PLAN", "SCALE", "STATUS", "MADE", "URL"]
    );
    assert_eq!(
        &lines[1][..6],
        ["hello", "static", "nano", "1", "not", "deployed"]
    );
    assert_eq!(
        see(&["projects", "scale", "hello", "0"]),
        "0\n--\nhello is switched off\n"
    );
    assert_eq!(
        see(&["projects", "scale", "2", "--project", "hello"]),
        "0\n--\nhello runs 2 times\n"
    );
    assert_eq!(see(&["projects", "restart", "hello", "-q"]), "0\n--\n");
    assert_eq!(
        see(&["projects", "resize", "hello", "--plan", "micro"]),
        "0\n--\nhello has the plan micro\n"
    );
    let shown = person
        .run(&["projects", "show", "--project", "hello"])
        .stdout;
    for line in ["name       hello", "plan       micro", "scale      2"] {
        assert!(
            shown.lines().any(|it| it == line),
            "{line:?} is not in {shown}"
        );
    }
    let opened = person.run(&["projects", "open", "hello"]);
    assert!(
        opened
            .assert(0)
            .stdout
            .starts_with("http://hello.localhost:"),
        "{opened:?}"
    );
    assert_eq!(
        see(&["projects", "delete", "hello"]),
        "2\n--\nerror: Delete hello with all of its releases? Add --yes to do it without being asked\n"
    );
    assert_eq!(
        see(&["projects", "delete", "hello", "--yes"]),
        "0\n--\ndeleted hello\n"
    );
    assert_eq!(see(&["logout"]), "0\n--\nforgot test\n");
    assert!(
        see(&["projects", "list"]).starts_with(
            "3\n--\nerror: not logged in to http://127.0.0.1:3000\nhint: `estrade login"
        )
    );
    person.server.stop();
}

#[test]
fn every_command_prints_one_document_when_asked() {
    let person = Person::logged_in();
    let made = person.json(&["projects", "create", "hello", "--platform", "static"]);
    assert_eq!(made["project"]["project_id"], "hello");
    assert_eq!(
        person.json(&["projects", "list"])["projects"][0]["project_id"],
        "hello"
    );
    assert_eq!(
        person.json(&["projects", "show", "hello"])["project"]["scale"],
        1
    );
    assert_eq!(
        person.json(&["projects", "open", "hello"])["project"],
        "hello"
    );
    assert_eq!(
        person.json(&["projects", "scale", "hello", "3"])["scale"],
        3
    );
    assert_eq!(
        person.json(&["projects", "resize", "hello", "micro"])["planID"],
        "micro"
    );
    assert_eq!(
        person.json(&["projects", "restart", "hello"])["restarted"],
        true
    );
    assert_eq!(
        person.json(&["env", "set", "A=1", "-p", "hello"])["variables"][0],
        "A"
    );
    assert_eq!(
        person.json(&["env", "list", "-p", "hello"])["variables"][0]["value"],
        "1"
    );
    assert_eq!(
        person.json(&["releases", "list", "-p", "hello"])["total"],
        0
    );
    assert_eq!(
        person.json(&["logs", "-p", "hello"])["data"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
    let team = person.json(&["teams", "create", "Web crew"]);
    assert_eq!(person.json(&["teams", "list"])["teams"][0], team);
    let id = team["_id"].as_str().unwrap();
    assert_eq!(
        person.json(&["teams", "members", id])["members"][0]["role"],
        "owner"
    );
    assert_eq!(
        person.json(&["teams", "members", "Web crew"])["members"],
        person.json(&["teams", "members", id])["members"]
    );
    assert!(person.json(&["teams", "invite", id, "ada@example.com"])["link"].is_string());
    assert_eq!(
        person.json(&["projects", "list", "--team", "Web crew"])["projects"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
    let token = person.json(&["tokens", "create", "ci", "--scope", "read"]);
    let tokens = person.json(&["tokens", "list"]);
    assert_eq!(tokens["tokens"][0]["name"], "ci");
    assert_eq!(
        person.json(&["tokens", "revoke", token["_id"].as_str().unwrap()])["revoked"],
        true
    );
    assert_eq!(
        person.json(&["context", "list"])["contexts"][0]["current"],
        true
    );
    assert_eq!(person.json(&["context", "use", "test"])["context"], "test");
    assert_eq!(
        person.json(&["api", "GET", "/v1/me"])["user"]["email"],
        "admin@localhost"
    );
    assert!(person.json(&["api", "GET", "/v1/models", "--ai"])["data"].is_array());
    assert!(
        person
            .json(&["api", "POST", "/v1/projects/hello/actions/restart"])
            .is_null()
    );
    assert_eq!(
        person.json(&["projects", "delete", "hello", "-y"])["deleted"],
        true
    );
    assert_eq!(person.json(&["logout", "--all"])["removed"][0], "test");
    person.server.stop();
}

#[test]
fn variables_travel_through_a_file() {
    let person = Person::logged_in();
    person.create_project("hello");
    write_files(
        person.home.path(),
        &[
            ("estrade.json", r#"{"project": "hello"}"#),
            (".env", "A='one # two'\nB=\"x\\ny\"\n"),
        ],
    );
    assert_eq!(
        person.snapshot(&["env", "import"]),
        "0\n--\nhello has 2 variables\n"
    );
    assert_eq!(
        person.snapshot(&["env", "set", "C=$HOME", "A=three"]),
        "0\n--\nhello has 3 variables\n"
    );
    let exported = person.run(&["env", "export"]).assert(0).stdout.clone();
    assert_eq!(exported, "A=\"three\"\nB=\"x\\ny\"\nC=\"\\$HOME\"\n");
    write_files(person.home.path(), &[("copy.env", &exported)]);
    person
        .run(&["env", "import", "copy.env", "--replace"])
        .assert(0);
    assert_eq!(person.run(&["env", "export"]).stdout, exported);
    assert_eq!(
        person.snapshot(&["env", "unset", "A", "B"]),
        "0\n--\nhello has 1 variable\n"
    );
    assert_eq!(
        person.snapshot(&["env", "list"]),
        "0\nNAME  VALUE\nC     $HOME\n--\n"
    );
    let unknown = person.snapshot(&["env", "unset", "NOPE"]);
    assert_eq!(
        unknown,
        "4\n--\nerror: hello has no variable `NOPE`; nothing was changed\n"
    );
    write_files(person.home.path(), &[("bad.env", "A=1\nnonsense\n")]);
    let bad = person.snapshot(&["env", "import", "bad.env"]);
    assert_eq!(
        bad,
        "2\n--\nerror: bad.env: line 2: there is no = in this line; write NAME=value\n"
    );
    person.server.stop();
}

#[test]
fn a_token_is_kept_private_and_sent_to_its_server_only() {
    let person = Person::logged_in();
    let file = person.home.path().join("xdg/estrade/contexts.json");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    assert!(
        std::fs::read_to_string(&file)
            .unwrap()
            .contains(&person.server.token)
    );
    let other = super::scripted_server::ScriptedServer::start(|_| {
        super::scripted_server::Reply::status(401)
    });
    let refused = person.run(&["projects", "list", "--url", &other.url()]);
    refused
        .assert(3)
        .assert_says("not logged in to http://127.0.0.1:");
    assert!(other.requests().is_empty());
    let from_environment = person
        .command(&["projects", "list"])
        .env("ESTRADE_URL", other.url())
        .env("ESTRADE_TOKEN", "other-token")
        .output();
    Ran::of(&from_environment.unwrap())
        .assert(3)
        .assert_says("error: ");
    let requests = other.requests();
    assert_eq!(requests[0].header("authorization"), "Bearer other-token");
    assert!(
        !requests
            .iter()
            .any(|request| request.head.contains(&person.server.token))
    );
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    person
        .run(&["projects", "list"])
        .assert(2)
        .assert_says("chmod 600");
    person.server.stop();
}

#[test]
fn variables_of_the_environment_are_enough() {
    let home = Home::new();
    let server = Server::start(&home);
    let mut command = client_command(&home, &["api", "GET", "/v1/me"]);
    command.env_remove("HOME").env_remove("XDG_CONFIG_HOME");
    command
        .env("ESTRADE_URL", &server.platform)
        .env("ESTRADE_TOKEN", &server.token);
    let ran = Ran::of(&command.output().unwrap());
    assert!(ran.assert(0).stdout.contains("admin@localhost"), "{ran:?}");
    assert_eq!(ran.stderr, "");
    let mut login = client_command(&home, &["login", &server.platform, "--token", "-"]);
    let file = home.path().join("token");
    std::fs::write(&file, format!("{}\n", server.token)).unwrap();
    let ran = Ran::of(
        &login
            .stdin(std::fs::File::open(file).unwrap())
            .output()
            .unwrap(),
    );
    ran.assert(0).assert_says("as admin@localhost");
    assert!(!ran.stderr.contains(&server.token));
    server.stop();
}

#[test]
fn the_help_has_both_kinds_of_commands_apart() {
    let home = Home::new();
    let help = Ran::of(&client_command(&home, &["--help"]).output().unwrap());
    let text = &help.assert(0).stdout;
    let remote = text.find("Commands that talk to a server:").unwrap();
    let local = text
        .find("Commands of the installation on this machine:")
        .unwrap();
    for (command, range) in [
        ("deploy", remote..local),
        ("projects", remote..local),
        ("serve", local..text.len()),
    ] {
        let line = format!("\n  {command} ");
        assert!(text[range].contains(&line), "{command} in {text}");
    }
    let deploy = Ran::of(
        &client_command(&home, &["deploy", "--help"])
            .output()
            .unwrap(),
    );
    let deploy = &deploy.assert(0).stdout;
    assert!(
        deploy.contains("--json") && !deploy.contains("--data-dir"),
        "{deploy}"
    );
    let serve = Ran::of(
        &client_command(&home, &["serve", "--help"])
            .output()
            .unwrap(),
    );
    let serve = &serve.assert(0).stdout;
    assert!(
        serve.contains("--data-dir") && !serve.contains("--json"),
        "{serve}"
    );
    for (args, part) in [
        (&["completions", "bash"][..], "_estrade"),
        (&["completions", "zsh"], "#compdef estrade"),
        (&["completions", "fish"], "complete -c estrade"),
        (&["completions", "powershell"], "Register-ArgumentCompleter"),
        (&["man"], ".TH estrade"),
    ] {
        let ran = Ran::of(&client_command(&home, args).output().unwrap());
        assert!(ran.assert(0).stdout.contains(part), "{args:?}");
    }
    let pages = home.path().join("man");
    let pages = pages.to_str().unwrap();
    Ran::of(
        &client_command(&home, &["man", "--dir", pages])
            .output()
            .unwrap(),
    )
    .assert(0);
    assert!(
        crate::support::names_in(std::path::Path::new(pages))
            .contains(&"estrade-deploy.1".to_owned())
    );
}
