//! `estrade deploy` to a real server.

use super::{Person, write_files};
use crate::support::{Home, Ran};
use std::fmt::Write;

#[test]
fn a_folder_is_deployed_and_then_only_what_changed() {
    let person = Person::logged_in();
    let home = person.home.path();
    write_files(
        home,
        &[
            ("site/index.html", "<h1>Hello</h1>"),
            ("site/about.html", "<h1>About</h1>"),
            ("site/.gitignore", "*.log\n"),
            ("site/a.log", "not sent"),
            ("site/node_modules/x/index.js", "not sent"),
        ],
    );
    let refused = person.run(&["deploy", "site", "--project", "hello"]);
    refused.assert(4).assert_says("--create makes the project");
    let first = person.run(&[
        "deploy",
        "site",
        "--project",
        "hello",
        "--create",
        "--message",
        "first",
    ]);
    first
        .assert(0)
        .assert_says("made hello (static, plan nano)")
        .assert_says("sending 3 files")
        .assert_says("v1 is live");
    assert!(
        first.stdout.starts_with("http://hello.localhost:") && first.stdout.lines().count() == 1,
        "{first:?}"
    );
    let again = person.run(&["deploy", "site", "--project", "hello"]);
    again.assert(0).assert_says("v2 is live");
    assert!(!again.stderr.contains("sending"), "{again:?}");
    write_files(home, &[("site/about.html", "<h1>Changed</h1>")]);
    let changed = person.json(&["deploy", "site", "--project", "hello"]);
    assert_eq!(
        (&changed["release"]["tag"], &changed["release"]["state"]),
        (&"v3".into(), &"READY".into())
    );
    assert!(
        changed["url"]
            .as_str()
            .unwrap()
            .starts_with("http://hello.localhost:")
    );

    let list = person.snapshot(&["releases", "list", "--project", "hello"]);
    let lines: Vec<Vec<_>> = list
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines[1], ["TAG", "ID", "TYPE", "STATE", "MADE", "MESSAGE"]);
    assert_eq!(
        lines[2],
        ["v3", "[id]", "DEPLOY", "READY", "(live)", "[ago]"]
    );
    assert_eq!(
        lines[4],
        ["v1", "[id]", "DEPLOY", "READY", "[ago]", "first"]
    );
    let back = person.json(&["releases", "rollback", "v1", "-p", "hello"]);
    assert_eq!(back["release"]["type"], "ROLLBACK");
    let shown = person
        .run(&["releases", "show", "v4", "-p", "hello"])
        .stdout;
    assert!(shown.contains("state     READY (live)"), "{shown}");
    person
        .run(&["releases", "watch", "v1", "-p", "hello"])
        .assert(0);
    person
        .run(&["releases", "cancel", "v1", "-p", "hello"])
        .assert(5);
    person.server.stop();
}

#[test]
fn the_project_file_names_the_project() {
    let person = Person::logged_in();
    write_files(
        person.home.path(),
        &[
            (
                "site/estrade.json",
                r#"{"project": "named", "platform": "static"}"#,
            ),
            ("site/index.html", "x"),
        ],
    );
    let unnamed = person.run(&["deploy", "site", "--create", "--detach"]);
    assert_eq!(unnamed.assert(0).stdout.trim_end().len(), 24, "{unnamed:?}");
    assert_eq!(
        person.json(&["projects", "show", "named"])["project"]["type"],
        "static"
    );
    write_files(person.home.path(), &[("other/index.html", "x")]);
    for arguments in [&["deploy", "other"][..], &["deploy", "other", "--watch"]] {
        person
            .run(arguments)
            .assert(2)
            .assert_says("which project?");
    }
    person
        .run(&["deploy", "nowhere", "-p", "named"])
        .assert(1)
        .assert_says("nowhere: ");
    person.server.stop();
}

#[test]
fn a_folder_belongs_to_the_project_that_it_was_first_deployed_to() {
    let person = Person::logged_in();
    write_files(person.home.path(), &[("site/index.html", "x")]);
    let deploy = |arguments: &[&str]| {
        let ran = person.run(&[&["deploy", "site"], arguments].concat());
        ran.assert(0).stdout.clone()
    };
    let first = deploy(&["--project", "first", "--create"]);
    assert_eq!(deploy(&[]), first);
    // Without a terminal, where nobody is asked.
    let second = deploy(&["--project", "second", "--yes"]);
    assert_ne!(second, first);
    assert_eq!(deploy(&[]), first);
    person.server.stop();
}

#[test]
fn a_folder_over_the_limit_is_refused_before_anything_is_sent() {
    let home = Home::new()
        .with("ESTRADE_LIMITS_RELEASE_FILES", "3")
        .with("ESTRADE_LIMITS_RELEASE_BYTES", "1048576");
    let person = Person::with_server(home);
    person.create_project("hello");
    write_files(
        person.home.path(),
        &[
            ("many/a", "1"),
            ("many/b", "2"),
            ("many/c", "3"),
            ("many/d", "4"),
        ],
    );
    let large = "x".repeat(1_048_577);
    write_files(
        person.home.path(),
        &[("large/a", &large), ("empty/.gitignore", "*\n")],
    );
    for (folder, says) in [
        ("many", "the folder has 4 files, and this server takes 3"),
        ("large", "the folder has 1048577 bytes"),
        ("empty", "there is nothing to deploy"),
    ] {
        person
            .run(&["deploy", folder, "-p", "hello"])
            .assert(2)
            .assert_says(says);
    }
    assert_eq!(
        person.json(&["releases", "list", "-p", "hello"])["total"],
        0
    );
    person.server.stop();
}

#[test]
fn large_files_are_streamed_and_many_small_ones_arrive() {
    let person = Person::logged_in();
    let mut text = String::new();
    for line in 0..400_000 {
        writeln!(text, "line {line}").unwrap();
    }
    write_files(
        person.home.path(),
        &[("site/large.txt", &text), ("site/index.html", "x")],
    );
    for file in 0..150 {
        write_files(
            person.home.path(),
            &[(&format!("site/files/{file}.txt"), &format!("file {file}"))],
        );
    }
    let ran = person.run(&["deploy", "site", "-p", "hello", "--create"]);
    ran.assert(0).assert_says("sending 152 files");
    let source = person
        .command(&["api", "GET", "/v1/projects/hello"])
        .output()
        .unwrap();
    assert!(Ran::of(&source).stdout.contains("\"isDeployed\":true"));
    person.server.stop();
}
