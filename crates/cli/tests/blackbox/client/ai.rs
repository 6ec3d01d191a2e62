//! Keys, workspaces, models, usage, chat, domains and disks.

use super::Person;
use crate::support::Ran;

#[test]
fn a_key_is_made_used_and_managed() {
    let person = Person::logged_in();
    let made = person.run(&[
        "keys",
        "create",
        "ci-bot",
        "--workspace",
        "main",
        "--rpm",
        "60",
    ]);
    let key = made.assert(0).stdout.trim_end().to_owned();
    assert!(
        key.starts_with("eyJ") && made.stdout.lines().count() == 1 && made.stderr.is_empty(),
        "{made:?}"
    );
    let ask = |args: &[&str]| {
        Ran::of(
            &person
                .command(args)
                .env("ESTRADE_AI_KEY", &key)
                .env("ESTRADE_URL", &person.server.platform)
                .output()
                .unwrap(),
        )
    };
    let answer = ask(&["chat", "--model", "estrade/echo", "Hello", "there"]);
    assert!(
        answer.assert(0).stdout.contains("You said: Hello there"),
        "{answer:?}"
    );
    let document = ask(&["chat", "--workspace", "main", "Hello", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&document.assert(0).stdout).unwrap();
    assert!(document["choices"][0]["message"]["content"].is_string());
    person
        .run(&["chat", "Hello"])
        .assert(2)
        .assert_says("ESTRADE_AI_KEY");

    assert_eq!(person.json(&["keys", "list"])[0]["rpm"], 60);
    assert_eq!(
        person.snapshot(&["keys", "disable", "ci-bot"]),
        "0\n--\nci-bot is disabled\n"
    );
    ask(&["chat", "Hello"]).assert(3).assert_says("error: ");
    assert_eq!(
        person.snapshot(&["keys", "enable", "ci-bot"]),
        "0\n--\nci-bot is enabled\n"
    );
    person
        .run(&[
            "keys", "update", "ci-bot", "--name", "other", "-w", "main", "-w", "second",
        ])
        .assert(0);
    let list = person.snapshot(&["keys", "list"]);
    assert!(
        list.contains("other") && list.contains("main, second") && list.contains("enabled"),
        "{list}"
    );
    let rotated = person.run(&["keys", "rotate", "other"]);
    assert!(rotated.assert(0).stdout.starts_with("eyJ"));
    ask(&["chat", "--workspace", "main", "Hello"]).assert(3);
    assert_eq!(
        person.json(&["keys", "delete", "other", "--yes"])["deleted"],
        true
    );
    person
        .run(&["keys", "delete", "other", "--yes"])
        .assert(4)
        .assert_says("there is no key `other`");
    person
        .run(&["keys", "create", "x"])
        .assert(2)
        .assert_says("--workspace NAME");
    person
        .run(&["keys", "update", "other"])
        .assert(2)
        .assert_says("nothing to change");

    assert_eq!(
        person.json(&["workspaces", "list"])["workspaces"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    person.run(&["workspaces", "create", "third"]).assert(0);
    assert_eq!(
        person.json(&["workspaces", "delete", "third", "-y"])["deleted"],
        true
    );
    let models = person.run(&["models"]);
    assert!(
        models
            .assert(0)
            .stdout
            .lines()
            .any(|line| line.starts_with("estrade/echo")),
        "{models:?}"
    );
    assert!(person.json(&["usage", "main"]).is_array());
    usage_has_the_date_of_each_period(&person);
    person.server.stop();
}

fn usage_has_the_date_of_each_period(person: &Person) {
    for (period, length) in [("hour", 16), ("day", 10), ("week", 10), ("month", 7)] {
        let usage = person.run(&["usage", "main", "--by", period]);
        let stdout = usage.assert(0).stdout.clone();
        let date = stdout.lines().nth(1).and_then(|row| row.split("  ").next());
        assert_eq!(date.map(str::len), Some(length), "{stdout}");
    }
}

#[test]
fn a_domain_is_added_checked_and_removed() {
    let person = Person::logged_in();
    person.create_project("hello");
    let added = person.run(&["domains", "add", "www.example.test", "--project", "hello"]);
    let added = added
        .assert(0)
        .assert_says("set one of these DNS records")
        .stdout
        .clone();
    assert!(
        added.contains("status   PENDING") && added.contains("_estrade.www.example.test"),
        "{added}"
    );
    assert_eq!(person.json(&["domains", "list", "-p", "hello"])["total"], 1);
    let list = person.run(&["domains", "list"]).stdout;
    let cells: Vec<_> = list
        .lines()
        .nth(1)
        .unwrap()
        .split_whitespace()
        .take(3)
        .collect();
    assert_eq!(cells, ["www.example.test", "hello", "PENDING"]);
    person
        .run(&["domains", "remove", "nothing.example.test"])
        .assert(4)
        .assert_says("there is no domain");
    assert_eq!(
        person.json(&["domains", "remove", "www.example.test"])["removed"],
        true
    );
    assert_eq!(
        person.json(&["disks", "list", "-p", "hello"])["disks"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
    person.server.stop();
}
