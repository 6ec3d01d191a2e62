//! How commands fail: the message, the next step, the exit code.

use super::Person;
use super::scripted_server::{Reply, ScriptedServer};
use std::net::TcpListener;

/// Command, exit code, what stderr says.
const FAILURES: [(&str, i32, &str); 27] = [
    (
        "projects show nothing",
        4,
        "hint: `estrade projects list` shows",
    ),
    (
        "projects create hello --platform static",
        5,
        "hint: choose another",
    ),
    ("projects create x --platform static", 1, "error: "),
    (
        "projects create other --platform cobol",
        1,
        "choose one of static,",
    ),
    (
        "projects show",
        2,
        "which project? name it with --project NAME",
    ),
    ("projects show ..", 2, "`..` is not a name or id"),
    ("projects scale hello many", 2, "`many` is not a number of"),
    ("projects scale hello", 2, "which project?"),
    ("projects show a --project b", 2, "name one project"),
    ("releases show v9 -p hello", 4, "hello has no release `v9`"),
    ("releases watch -p hello", 4, "hello has no release yet"),
    (
        "releases rollback -p hello",
        4,
        "hello has no earlier release to go back to",
    ),
    ("logs -p hello --release v9", 4, "hello has no release `v9`"),
    ("completions bash --json", 2, "--json prints one document"),
    ("man --json", 2, "--json prints one document"),
    ("chat --json", 2, "required arguments"),
    ("env set 1A=x -p hello", 2, "`1A`: "),
    ("logs -p hello --since yesterday", 2, "write how long ago"),
    (
        "logs -p hello --follow --json",
        2,
        "--json prints one document",
    ),
    ("context use nowhere", 2, "`nowhere`; there are test"),
    (
        "projects list --team nobody",
        4,
        "you are in no team `nobody`",
    ),
    (
        "projects list --team 0123456789abcdef01234567",
        3,
        "error: ",
    ),
    ("api GET /v1/nothing", 4, "the server answered 404"),
    ("api GET v1/projects", 2, "it begins with /"),
    (
        "api DELETE /v1/keys/0123456789abcdef01234567 --ai",
        4,
        "404",
    ),
    (
        "login ftp://x --token t",
        2,
        "it begins with http:// or https://",
    ),
    ("projects nonsense", 2, "unrecognized subcommand"),
];

#[test]
fn each_kind_of_failure_has_its_code_and_a_next_step() {
    let person = Person::logged_in();
    person.create_project("hello");
    for (line, code, says) in FAILURES {
        let ran = person.run(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(ran.code, Some(code), "{line}: {ran:?}");
        assert!(
            ran.stderr.contains(says),
            "{line}: {says:?} is not in {ran:?}"
        );
        if !line.starts_with("api ") {
            assert_eq!(ran.stdout, "", "{line}");
        }
    }
    let url = person.server.platform.clone();
    person
        .run(&["login", &url, "--token", "wrong"])
        .assert(3)
        .assert_says("hint: the token is wrong");
    person.server.stop();
}

#[test]
fn a_server_that_is_not_there_is_told_apart() {
    let person = Person::logged_in();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let ran = person
        .command(&["projects", "list", "--url", &nobody])
        .env("ESTRADE_TOKEN", "t")
        .output();
    let ran = crate::support::Ran::of(&ran.unwrap());
    ran.assert(6)
        .assert_says("cannot reach http://127.0.0.1:")
        .assert_says("hint: is the server running");
    let other = ScriptedServer::start(|_| Reply::json(200, "<html>"));
    let ran = person
        .command(&["projects", "list", "--url", &other.url()])
        .env("ESTRADE_TOKEN", "t")
        .output();
    let ran = crate::support::Ran::of(&ran.unwrap());
    ran.assert(1)
        .assert_says("does not answer like an Estrade server");
    person.server.stop();
}

/// The pieces that came are printed; that it is not the whole answer is a failure.
#[test]
fn a_response_that_breaks_off_is_a_failure() {
    let piece = |more: &str| {
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"Hal\"}}{more}}}]}}\n\n")
    };
    for (body, code) in [
        (piece(""), 6),
        (piece(",\"finish_reason\":\"stop\""), 0),
        (piece("") + "data: [DONE]\n\n", 0),
    ] {
        let server = ScriptedServer::start(move |request| {
            if request.line.starts_with("POST ") {
                Reply::json(200, &body)
            } else {
                Reply::json(404, "{}")
            }
        });
        let home = crate::support::Home::new();
        let ran = super::client_command(&home, &["chat", "Hello"])
            .env("ESTRADE_URL", server.url())
            .env("ESTRADE_AI_URL", server.url())
            .env("ESTRADE_TOKEN", "t")
            .env("ESTRADE_AI_KEY", "k")
            .output();
        let ran = crate::support::Ran::of(&ran.unwrap());
        assert_eq!(ran.assert(code).stdout, "Hal\n");
        assert_eq!(
            ran.stderr.contains("the answer broke off"),
            code == 6,
            "{ran:?}"
        );
    }
}

#[test]
fn a_response_that_breaks_off_says_why() {
    let server = ScriptedServer::start(|_| Reply::CutOff);
    let home = crate::support::Home::new();
    let ran = super::client_command(&home, &["chat", "Hello"])
        .env("ESTRADE_AI_URL", server.url())
        .env("ESTRADE_AI_KEY", "k")
        .output();
    let ran = crate::support::Ran::of(&ran.unwrap());
    ran.assert(6).assert_says("the answer broke off: ");
}

#[test]
fn what_others_wrote_cannot_steer_the_terminal() {
    let hostile = "\\u001b]0;owned\\u0007\\u001b[2Jx\\u202ey";
    let reply = format!(r#"{{"message":"{hostile}","data":{{"code":"x"}}}}"#);
    let server = ScriptedServer::start(move |_| Reply::json(400, &reply));
    let person = Person::logged_in();
    for args in [
        &["projects", "list"][..],
        &["tokens", "list"],
        &["releases", "show", "0123456789abcdef01234567"],
    ] {
        let ran = person
            .command(&[args, &["--url", &server.url()]].concat())
            .env("ESTRADE_TOKEN", "t")
            .output();
        let ran = crate::support::Ran::of(&ran.unwrap());
        assert_eq!(ran.assert(1).stderr, "error: x\u{fffd}y\n");
    }
    let projects = format!(r#"{{"teams":[{{"_id":"1","name":"{hostile}"}}]}}"#);
    let server = ScriptedServer::start(move |_| Reply::json(200, &projects));
    let ran = person
        .command(&["teams", "list", "--url", &server.url()])
        .env("ESTRADE_TOKEN", "t")
        .output();
    let ran = crate::support::Ran::of(&ran.unwrap());
    assert_eq!(ran.assert(0).stdout, "ID  NAME\n1   x\u{fffd}y\n");
    let team = format!(r#"{{"_id":"{hostile}","name":"n","link":"{hostile}"}}"#);
    let server = ScriptedServer::start(move |_| Reply::json(200, &team));
    let ran = person
        .command(&["teams", "create", "n", "--url", &server.url()])
        .env("ESTRADE_TOKEN", "t")
        .output();
    let ran = crate::support::Ran::of(&ran.unwrap());
    assert_eq!(ran.assert(0).stdout, "x\u{fffd}y\n");
    person.server.stop();
}
