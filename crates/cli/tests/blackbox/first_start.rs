//! What the first start makes, and what later ones leave alone.

use crate::support::{ADMIN, Home, Server, random, serve_args};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Duration;

fn mode(home: &Home, name: &str) -> u32 {
    fs::metadata(home.data().join(name))
        .unwrap()
        .permissions()
        .mode()
        & 0o777
}

#[test]
fn a_first_start_makes_what_is_needed_and_a_second_changes_none_of_it() {
    let home = Home::new();
    fs::create_dir(home.data()).unwrap();
    fs::write(home.data().join("notes.txt"), "mine").unwrap();
    fs::create_dir(home.data().join("photos")).unwrap();

    Server::start(&home).stop();
    let made = ["master.key", "admin.token", "estrade.db"];
    for name in made {
        assert_eq!(mode(&home, name), 0o600, "{name}");
    }
    assert_eq!(home.file("master.key").len(), 32);
    assert_eq!(home.admin_token().split('.').count(), 3);
    let before = made.map(|name| home.file(name));
    let tokens = home.run(["token", "list", "--account", ADMIN]);

    Server::start(&home).stop();
    assert!(
        before == made.map(|name| home.file(name)),
        "a second start changed something"
    );
    let again = home.run(["token", "list", "--account", ADMIN]);
    assert_eq!(again.assert(0).stdout, tokens.assert(0).stdout);
    assert_eq!(home.file("notes.txt"), b"mine");
    assert!(home.data().join("photos").is_dir());
}

#[tokio::test]
async fn the_first_token_works_and_only_the_first_start_makes_one() {
    let home = Home::new();
    let server = Server::start(&home);
    assert_eq!(server.me(&home.admin_token()).await, 200);
    server.stop();
    fs::remove_file(home.data().join("admin.token")).unwrap();
    let server = Server::start(&home);
    assert!(!home.data().join("admin.token").exists());
    assert_eq!(server.me(&home.create_token(ADMIN)).await, 200);
    server.stop();
}

#[test]
fn without_its_master_key_a_database_is_not_opened() {
    let home = Home::new();
    Server::start(&home).stop();
    let path = home.data().join("master.key");
    let right = home.file("master.key");

    fs::remove_file(&path).unwrap();
    let missing = home.fail_to_serve();
    missing.assert(2).assert_says("master.key is missing");
    assert!(!path.exists(), "a new key would lock the data out for good");
    home.run(["account", "list"])
        .assert(2)
        .assert_says("master.key is missing");

    fs::write(&path, [7; 32]).unwrap();
    let wrong = home.fail_to_serve();
    wrong.assert(2).assert_says("does not open this database");
    assert_eq!(wrong.stdout, "");

    fs::write(&path, [7; 31]).unwrap();
    home.fail_to_serve()
        .assert(2)
        .assert_says("exactly 32 bytes");

    fs::write(&path, right).unwrap();
    Server::start(&home).stop();
}

#[tokio::test]
async fn the_master_key_may_live_elsewhere() {
    let home = Home::new().with("ESTRADE_MASTER_KEY_FILE", "elsewhere.key");
    let server = Server::start(&home);
    assert_eq!(server.me(&home.admin_token()).await, 200);
    server.stop();
    assert!(!home.data().join("master.key").exists());
    let elsewhere = home.path().join("elsewhere.key");
    let metadata = fs::metadata(&elsewhere).unwrap();
    assert_eq!(
        (metadata.len(), metadata.permissions().mode() & 0o777),
        (32, 0o600)
    );

    let given = Home::new().with("ESTRADE_MASTER_KEY_FILE", "given.key");
    fs::write(given.path().join("given.key"), [9; 32]).unwrap();
    Server::start(&given).stop();
    assert_eq!(fs::read(given.path().join("given.key")).unwrap(), [9; 32]);

    let nowhere = Home::new().with("ESTRADE_MASTER_KEY_FILE", "no/such/place.key");
    nowhere
        .fail_to_serve()
        .assert(2)
        .assert_says("no/such/place.key");
}

#[tokio::test]
async fn a_first_start_that_is_killed_is_made_good_by_the_next() {
    for _ in 0..10 {
        let home = Home::new();
        let mut first = home.command(serve_args());
        let mut first = first
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(random() % 60));
        first.kill().unwrap();
        first.wait().unwrap();
        let server = Server::start(&home);
        assert_eq!(server.me(&home.admin_token()).await, 200);
        server.stop();
    }
}

#[tokio::test]
async fn a_second_server_on_the_same_directory_is_refused() {
    let home = Home::new();
    let first = Server::start(&home);
    let second = home.fail_to_serve();
    second
        .assert(2)
        .assert_says("another Estrade server is using");
    assert_eq!(second.stdout, "");
    assert_eq!(first.me(&first.token).await, 200);
    first.stop();
    // The lock ends with the process, whatever way that ends.
    Server::start(&home).kill();
    Server::start(&home).stop();
}

#[test]
fn a_port_that_is_taken_is_named() {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (position, name) in [(2, "platform"), (4, "ai"), (6, "edge")] {
        let mut args: [&str; 7] = serve_args();
        args[position] = &address;
        let ran = home.run(args);
        ran.assert(1)
            .assert_says(&format!("cannot listen on {address} ({name})"));
        assert_eq!(ran.stdout, "");
        assert_eq!(ran.stderr.matches("error:").count(), 1, "{ran:?}");
    }
    drop(taken);
    Server::start(&home).stop();
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let home = Home::new();
    fs::write(home.data(), "a file").unwrap();
    home.fail_to_serve().assert(2).assert_says("estrade-data");
}

#[test]
fn a_setting_for_something_that_does_not_exist_yet_is_refused() {
    let home = Home::new().with("ESTRADE_BLOBS_URL", "s3://key:hunter2@bucket/prefix");
    let ran = home.fail_to_serve();
    ran.assert(2).assert_says("blobs.url is not supported yet");
    assert!(!ran.stderr.contains("hunter2"));
    assert!(!home.data().exists());
}

#[test]
fn a_database_that_does_not_answer_is_named_without_its_password() {
    let home = Home::new().with(
        "ESTRADE_DATABASE_URL",
        "postgres://estrade:hunter2@127.0.0.1:1/estrade",
    );
    let ran = home.fail_to_serve();
    assert!(matches!(ran.code, Some(1 | 2)), "{ran:?}");
    assert!(ran.stderr.contains("database"), "{ran:?}");
    assert!(!ran.stderr.contains("hunter2"), "{ran:?}");
}
