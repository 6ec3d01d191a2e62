//! `estrade shell` where there is no shell: refusals, wrong arguments, other servers.

use super::scripted_server::{Reply, ScriptedServer};
use super::{Person, client_command};
use crate::support::{Home, Ran};

#[test]
fn a_shell_that_cannot_be_opened_says_why() {
    let person = Person::logged_in();
    person.create_project("hello");
    for (args, code, says) in [
        (&["shell"][..], 2, "which project? name it with --project"),
        (&["shell", "-p", "hello", "--json"], 2, "--json prints one"),
        (&["shell", "-p", "hello", "--", " "], 2, "command is empty"),
        (&["shell", "-p", "nothing"], 4, "estrade projects list"),
        (&["shell", "-p", "hello"], 5, "no instance of this project"),
        (&["shell", "hello"], 2, "unexpected argument 'hello'"),
    ] {
        let ran = person.run(args);
        ran.assert(code).assert_says(says);
        assert_eq!(ran.stdout, "", "{args:?}");
    }
    let read_only = person.run(&["tokens", "create", "reader", "--scope", "read"]);
    let read_only = read_only.assert(0).stdout.trim().to_owned();
    let refused = person
        .command(&["shell", "-p", "hello"])
        .env("ESTRADE_URL", &person.server.platform)
        .env("ESTRADE_TOKEN", read_only)
        .output();
    Ran::of(&refused.unwrap()).assert(3).assert_says("error: ");
    person.server.stop();
}

#[test]
fn the_token_is_in_no_address_and_only_a_websocket_will_do() {
    for (status, code, says) in [
        (
            200,
            1,
            "does not answer like an Estrade server: it does not open a WebSocket",
        ),
        (101, 1, "it has not read the request for a WebSocket"),
        (401, 3, "hint: the token is wrong"),
    ] {
        let server = ScriptedServer::start(move |_| Reply::status(status));
        let mut command = client_command(&Home::new(), &["shell", "-p", "a&b", "--", "ls -l"]);
        command
            .current_dir("/")
            .env("ESTRADE_URL", server.url())
            .env("ESTRADE_TOKEN", "the-token");
        let ran = Ran::of(&command.output().unwrap());
        ran.assert(code).assert_says(says);
        let request = &server.requests()[0];
        assert_eq!(
            request.line,
            "GET /v1/exec?project_id=a%26b&cmd=ls+-l HTTP/1.1"
        );
        assert_eq!(request.header("authorization"), "Bearer the-token");
        assert_eq!(request.header("sec-websocket-protocol"), "estrade.streams");
    }
}
