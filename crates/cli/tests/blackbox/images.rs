//! `estrade images list` and `estrade images pull`, as far as they need no engine.

use crate::support::Home;

/// A home whose engine is nowhere.
fn home() -> Home {
    Home::new().with("ESTRADE_DOCKER_HOST", "unix:///nonexistent/docker.sock")
}

/// The name of an image, of which a release may know the digest.
fn without_digest(image: &str) -> String {
    image.split('@').next().unwrap_or_default().to_owned()
}

#[test]
fn the_list_has_every_image_once_and_says_what_it_is_for() {
    let listed = home().run(["images", "list"]);
    // A release may know digests, which are part of the names.
    let words = |text: &str| -> Vec<Vec<String>> {
        let row = |line: &str| line.split_whitespace().map(without_digest).collect();
        text.lines().map(row).collect()
    };
    let expected = "\
IMAGE                                STATE    PLATFORMS                            DIGEST
node:22-slim                         unknown  node next react vue angular laravel
python:3.13-slim                     unknown  python django flask
php:8.4-apache                       unknown  php laravel
composer:2                           unknown  php laravel
golang:1.25                          unknown  go
debian:trixie-slim                   unknown  go
mcr.microsoft.com/dotnet/sdk:9.0     unknown  dotnet
mcr.microsoft.com/dotnet/aspnet:9.0  unknown  dotnet
";
    assert_eq!(words(&listed.assert(0).stdout), words(expected));
    listed.assert_says("warning: whether they are present is not known");
}

#[test]
fn a_mirror_has_all_that_is_not_configured() {
    let home = home()
        .with("ESTRADE_DOCKER_MIRROR", "registry.example:5000/mirror")
        .with("ESTRADE_DOCKER_IMAGES_PYTHON", "own.example/python:1")
        .with("ESTRADE_DOCKER_IMAGES_GO", "golang:1.25");
    let listed = home.run(["images", "list", "dotnet", "django", "go"]);
    let names: Vec<_> = listed
        .assert(0)
        .stdout
        .lines()
        .skip(1)
        .filter_map(|line| line.split(' ').next().map(without_digest))
        .collect();
    assert_eq!(
        names,
        [
            "own.example/python:1",
            "golang:1.25",
            "registry.example:5000/mirror/debian:trixie-slim",
            "registry.example:5000/mirror/dotnet/sdk:9.0",
            "registry.example:5000/mirror/dotnet/aspnet:9.0",
        ]
    );
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = home().with("ESTRADE_DOCKER_MIRROR", "mirror");
    let refused = refused.run(["images", "list"]);
    refused.assert(2);
    refused.assert_says("ESTRADE_DOCKER_MIRROR");
    refused.assert_says("registry.example:5000/mirror");

    let refused = home().run(["images", "list", "cobol"]);
    refused
        .assert(2)
        .assert_says("choose one of static, docker");
    let refused = home().run(["images", "pull", "static"]);
    refused.assert(1).assert_says("need no image of ours");
    let refused = home().run(["images", "pull"]);
    refused.assert(1).assert_says("/nonexistent/docker.sock");
}
