//! Disks, domains, projects and releases on a real server: what is done, seen afterwards.

use super::{Person, write_files};
use crate::support::Home;
use std::net::UdpSocket;

/// A DNS server that knows no name.
fn empty_dns() -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut query = [0; 1500];
        while let Ok((length, asker)) = socket.recv_from(&mut query) {
            // The question comes back as a response with the code NXDOMAIN.
            query[2] |= 0x80;
            query[3] = 3;
            let _ = socket.send_to(&query[..length], asker);
        }
    });
    address
}

#[test]
fn a_disk_is_made_enlarged_and_deleted() {
    let person = Person::logged_in();
    person
        .run(&[
            "projects",
            "create",
            "shop",
            "--platform",
            "docker",
            "--plan",
            "micro",
        ])
        .assert(0);
    let made = person.snapshot(&["disks", "create", "data", "--size", "1", "-p", "shop"]);
    assert_eq!(made, "0\nNAME  SIZE  MADE\ndata  1 GB  [ago]\n--\n");
    let resized = person.snapshot(&["disks", "resize", "data", "--size", "2", "-p", "shop"]);
    assert_eq!(resized, "0\nNAME  SIZE  MADE\ndata  2 GB  [ago]\n--\n");
    let list = person.json(&["disks", "list", "-p", "shop"]);
    assert_eq!(
        (&list["disks"][0]["name"], &list["disks"][0]["size"]),
        (&"data".into(), &2.into())
    );
    let again = person.run(&["disks", "create", "data", "--size", "1", "-p", "shop"]);
    again.assert(5).assert_says("error: ");
    let delete = ["disks", "delete", "data", "-p", "shop"];
    person.run(&delete).assert(2).assert_says("Add --yes");
    let deleted = person.snapshot(&[&delete[..], &["--yes"]].concat());
    assert_eq!(deleted, "0\n--\ndeleted data\n");
    let left = person.json(&["disks", "list", "-p", "shop"]);
    assert_eq!(left["disks"].as_array().unwrap().len(), 0);
    person.server.stop();
}

#[test]
fn a_domain_is_checked() {
    let home = Home::new().with("ESTRADE_EDGE_DNS_SERVER", empty_dns());
    let person = Person::with_server(home);
    person.create_project("hello");
    let name = "www.example.test";
    person
        .run(&["domains", "add", name, "-p", "hello"])
        .assert(0);
    let checked = person.run(&["domains", "check", name]);
    let stdout = &checked.assert(0).stdout;
    assert!(stdout.contains("status   PENDING"), "{checked:?}");
    assert!(stdout.contains("problem  "), "{checked:?}");
    let document = person.json(&["domains", "check", name]);
    assert_eq!(document["domain"]["status"], "PENDING");
    person.server.stop();
}

#[test]
fn a_purged_name_is_free_at_once() {
    let person = Person::logged_in();
    person.create_project("hello");
    let purged = person.snapshot(&["projects", "delete", "hello", "--purge", "--yes"]);
    assert_eq!(purged, "0\n--\ndeleted hello\n");
    let owner = person.home.run_with_input(
        [
            "account",
            "create",
            "--email",
            "ada@example.com",
            "--fullname",
            "Ada",
            "--password-stdin",
        ],
        "correct horse\n",
    );
    owner.assert(0);
    let token = person.home.create_token("ada@example.com");
    let create = ["projects", "create", "hello", "--platform", "static"];
    let mut command = person.command(&create);
    command
        .env("ESTRADE_URL", &person.server.platform)
        .env("ESTRADE_TOKEN", token);
    crate::support::Ran::of(&command.output().unwrap()).assert(0);
    person.server.stop();
}

#[test]
fn going_back_does_not_have_to_be_waited_for() {
    let person = Person::logged_in();
    let home = person.home.path();
    for text in ["one", "two"] {
        write_files(home, &[("site/index.html", text)]);
        let deploy = ["deploy", "site", "-p", "hello", "--create"];
        person.run(&deploy).assert(0);
    }
    let back = person.run(&["releases", "rollback", "--detach", "-p", "hello"]);
    let id = back.assert(0).stdout.trim_end().to_owned();
    assert!(id.len() == 24 && back.stderr.is_empty(), "{back:?}");
    let shown = person.run(&["releases", "watch", &id]);
    let stdout = &shown.assert(0).stdout;
    assert!(stdout.contains("type      ROLLBACK"), "{shown:?}");
    let list = person.json(&["releases", "list", "-p", "hello"]);
    assert_eq!(list["currentRelease"], id.as_str());
    person.server.stop();
}
