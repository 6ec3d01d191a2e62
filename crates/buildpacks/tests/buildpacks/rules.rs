//! What holds for all platforms: settings, images, own Dockerfiles, errors that help.

use crate::support::{Files, files, planned, planned_on, text};
use estrade_buildpacks::{BaseImages, Dockerfile, Outcome, PlanError, Settings, plan};
use estrade_model::platform::Platform;
use serde_json::{Map, Value, json};

fn node() -> Files {
    files(&[
        ("package.json", r#"{"scripts": {"start": "node a.js"}}"#),
        (".nvmrc", "20"),
    ])
}

fn refusal(platform: Platform, list: &[(&str, &str)], sent: &Value) -> String {
    match planned(platform, &files(list), sent) {
        Err(PlanError::Refused { place, advice }) => format!("{place}: {advice}"),
        Err(error) => panic!("{error}"),
        Ok(plan) => panic!("{platform} has a plan: {:?}", plan.dockerfile),
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn errors_name_the_file_and_say_what_to_add() {
    let none = json!({});
    let django = [("requirements.txt", "django")];
    for (platform, list, place, advice) in [
        (
            Platform::Docker,
            &[][..],
            "Dockerfile: ",
            "build.dockerfile",
        ),
        (Platform::Node, &[][..], "package.json: ", "missing"),
        (
            Platform::Node,
            &[("package.json", "{")],
            "package.json: ",
            "JSON",
        ),
        (
            Platform::Node,
            &[("package.json", "[]")],
            "package.json: ",
            "object",
        ),
        (
            Platform::Node,
            &[("package.json", "{}")],
            "package.json: ",
            "\"start\"",
        ),
        (
            Platform::Node,
            &[("package.json", r#"{"engines": {"node": "soon"}}"#)],
            "package.json: ",
            "engines.node",
        ),
        (
            Platform::Node,
            &[("package.json", "{}"), (".nvmrc", "new")],
            ".nvmrc: ",
            "22",
        ),
        (
            Platform::Node,
            &[("package.json", "{}"), ("Procfile", "x")],
            "Procfile: ",
            "web:",
        ),
        (
            Platform::Next,
            &[("package.json", "{}")],
            "package.json: ",
            "`next`",
        ),
        (
            Platform::React,
            &[("package.json", "{}")],
            "package.json: ",
            "`build`",
        ),
        (
            Platform::Angular,
            &[("package.json", "{}")],
            "angular.json: ",
            "missing",
        ),
        (
            Platform::Python,
            &[("x.txt", "")],
            "Procfile: ",
            "web: python3",
        ),
        (
            Platform::Python,
            &[(".python-version", "pypy3"), ("main.py", "")],
            ".python-version: ",
            "3.13",
        ),
        (
            Platform::Django,
            &[("manage.py", "")],
            "requirements.txt: ",
            "django",
        ),
        (Platform::Django, &django, "manage.py: ", "missing"),
        (
            Platform::Django,
            &[("requirements.txt", "django"), ("manage.py", "")],
            "wsgi.py: ",
            "Procfile",
        ),
        (
            Platform::Flask,
            &[("app.py", "")],
            "requirements.txt: ",
            "flask",
        ),
        (
            Platform::Flask,
            &[("requirements.txt", "flask")],
            "app.py: ",
            "appModule",
        ),
        (
            Platform::Php,
            &[("composer.json", r#"{"require": {"ext-quantum": "*"}}"#)],
            "composer.json: ",
            "ext-quantum",
        ),
        (
            Platform::Php,
            &[("composer.json", r#"{"require": {"php": "^5.2"}}"#)],
            "composer.json: ",
            "require.php",
        ),
        (
            Platform::Laravel,
            &[("composer.json", "{}")],
            "composer.json: ",
            "laravel/framework",
        ),
        (
            Platform::Go,
            &[("main.go", "package main")],
            "go.mod: ",
            "go mod init",
        ),
        (
            Platform::Go,
            &[("go.mod", "module x")],
            "main.go: ",
            "package main",
        ),
        (
            Platform::Go,
            &[
                ("go.mod", "module x"),
                ("cmd/a/x.go", "package main"),
                ("cmd/b/x.go", "package main"),
            ],
            "platformConfig.mainFile: ",
            "cmd/a, cmd/b",
        ),
        (Platform::Dotnet, &[("x", "")], "*.csproj: ", "add one"),
        (
            Platform::Dotnet,
            &[("a.csproj", ""), ("b.csproj", "")],
            "platformConfig.csprojectFile: ",
            "a.csproj, b.csproj",
        ),
        (
            Platform::Dotnet,
            &[("a.csproj", "<TargetFramework>net48</TargetFramework>")],
            "a.csproj: ",
            "net9.0",
        ),
        (
            Platform::Static,
            &[("index.html", "")],
            "type: ",
            "nothing to build",
        ),
    ] {
        let error = refusal(platform, list, &none);
        assert!(
            error.starts_with(place) && error.contains(advice),
            "{platform}: {error}"
        );
    }
}

#[test]
fn settings_that_make_no_sense_are_named() {
    let flask = [("requirements.txt", "flask"), ("app.py", "app = Flask(x)")];
    let django = [
        ("requirements.txt", "django"),
        ("manage.py", ""),
        ("a/wsgi.py", ""),
    ];
    let php = [("index.php", "")];
    let go = [("go.mod", "module x"), ("main.go", "package main")];
    let dotnet = [("a.csproj", "")];
    for (platform, list, field, value) in [
        (Platform::Flask, &flask[..], "appModule", json!("a b:c")),
        (
            Platform::Flask,
            &flask,
            "pythonVersion",
            json!("3.12-alpine"),
        ),
        (Platform::Django, &django, "settingsFile", json!("a;b")),
        (Platform::Django, &django, "collectStatic", json!("yes")),
        (Platform::Php, &php, "root", json!("nope")),
        (Platform::Php, &php, "timezone", json!("a b")),
        (Platform::Go, &go, "mainFile", json!("../x.go")),
        (Platform::Go, &go, "mainFile", json!("nope/x.go")),
        (
            Platform::Dotnet,
            &dotnet,
            "csprojectFile",
            json!("b.csproj"),
        ),
        (Platform::Dotnet, &dotnet, "version", json!("latest")),
        (
            Platform::Node,
            &[("package.json", "{}")],
            "startCommand",
            json!([]),
        ),
        (
            Platform::Node,
            &[("package.json", "{}"), ("index.js", "")],
            "packages",
            json!(["a b"]),
        ),
    ] {
        let sent = json!({"platformConfig": {field: value.clone()}});
        let error = refusal(platform, list, &sent);
        assert!(
            error.starts_with(&format!("platformConfig.{field}: ")),
            "{value}: {error}"
        );
    }
}

#[test]
fn an_own_dockerfile_is_taken_as_it_is() {
    let sources = files(&[
        (
            "Dockerfile",
            "FROM app\nEXPOSE 3000\nRUN --mount=type=cache,target=/x make\n",
        ),
        ("deploy/App.Dockerfile", "FROM base\nEXPOSE 8080\n"),
        (".dockerignore", "*\n!src\n"),
        ("package.json", "{}"),
    ]);
    let sent = json!({"args": ["serve", "$X"], "build": {"args": {"A": "secret"}, "cache": false}});
    let plan = planned(Platform::Docker, &sources, &sent).unwrap();
    let Dockerfile::Theirs { path, bases } = &plan.dockerfile else {
        panic!("{:?}", plan.dockerfile);
    };
    assert_eq!(path, "Dockerfile");
    let names: Vec<_> = bases.images().iter().map(|base| base.name).collect();
    assert_eq!(names, ["app"]);
    let command = Some(vec!["serve".to_owned(), "$X".to_owned()]);
    assert_eq!(
        plan.outcome,
        Outcome::Runs {
            command,
            port: 8080
        }
    );
    assert!(!plan.cache);
    let pinned = ("Dockerfile".to_owned(), "FROM x".to_owned());
    assert_eq!(plan.added_files("FROM x".to_owned()), [pinned]);
    assert_eq!(
        (plan.build_args[0].name(), plan.build_args[0].value()),
        ("A", "secret")
    );
    assert!(!format!("{plan:?}").contains("secret"));
    assert!(
        plan.notes
            .iter()
            .any(|note| note.contains("exposes port 3000")),
        "{:?}",
        plan.notes
    );
    let left_out = "Dockerfile: `RUN --mount=type=cache` is left out: ";
    assert!(
        plan.notes.iter().any(|note| note.starts_with(left_out)),
        "{:?}",
        plan.notes
    );
    assert!(plan.ignore.excludes("package.json") && !plan.ignore.excludes("src/a"));
    assert!(!plan.ignore.excludes("Dockerfile") && !plan.ignore.excludes(".dockerignore"));

    let sent = json!({"build": {"dockerfile": "./deploy/App.Dockerfile"}});
    for platform in [Platform::Docker, Platform::Node] {
        let plan = planned(platform, &sources, &sent).unwrap();
        assert_eq!(plan.dockerfile_path(), "deploy/App.Dockerfile");
        assert!(!plan.ignore.excludes("deploy/App.Dockerfile"));
    }
    let missing = json!({"build": {"dockerfile": "dockerfile"}});
    let error = planned(Platform::Docker, &sources, &missing)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("build.dockerfile: ") && error.contains("`dockerfile`"),
        "{error}"
    );
}

#[test]
fn a_dockerfile_of_another_platform_is_mentioned_and_left_alone() {
    let mut sources = node();
    sources.insert("Dockerfile".into(), b"FROM app".to_vec());
    sources.insert("index.js".into(), Vec::new());
    let plan = planned(Platform::Node, &sources, &json!({})).unwrap();
    assert!(text(&plan).contains("FROM node:20-slim"));
    assert!(
        plan.notes
            .iter()
            .any(|note| note.contains("Dockerfile is not used")),
        "{:?}",
        plan.notes
    );
}

#[test]
fn what_we_add_to_the_context_takes_itself_away() {
    let plan = planned(Platform::Node, &node(), &json!({})).unwrap();
    let added = plan.added_files(text(&plan).to_owned());
    let names: Vec<_> = added.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, [plan.dockerfile_path(), ".dockerignore"]);
    assert_eq!(added[0].1, text(&plan));
    for (name, _) in &added {
        assert!(
            added[1].1.lines().any(|line| line == *name),
            "{name} stays in the context"
        );
    }
}

#[test]
fn the_configured_image_decides_and_says_so() {
    let mut images = BaseImages::default();
    images.set("node", "registry.example/own:1").unwrap();
    let plan = planned_on(Platform::Node, &node(), &json!({}), &images).unwrap();
    assert!(
        text(&plan).contains("FROM registry.example/own:1\nUSER 0:0\n"),
        "{}",
        text(&plan)
    );
    let said = plan
        .notes
        .iter()
        .any(|note| note.contains("registry.example/own:1") && note.contains("20 from .nvmrc"));
    assert!(said, "{:?}", plan.notes);
}

#[test]
fn a_base_image_that_has_everything_needs_no_network() {
    let mut images = BaseImages::default();
    for name in ["node", "python"] {
        images.set(name, "local/base:1").unwrap();
    }
    let django = files(&[
        (
            "manage.py",
            "setdefault('DJANGO_SETTINGS_MODULE', 'a.settings')",
        ),
        ("a/wsgi.py", ""),
        ("a/settings.py", "DEBUG = False"),
    ]);
    let flask = files(&[("app.py", "app = Flask(__name__)")]);
    for (platform, sources) in [
        (Platform::Django, django),
        (Platform::Flask, flask),
        (Platform::Node, node()),
    ] {
        let plan = planned_on(platform, &sources, &json!({}), &images).unwrap();
        for tool in ["pip", "npm", "apt-get", "venv"] {
            assert!(
                !text(&plan).contains(tool),
                "{platform} uses {tool}: {}",
                text(&plan)
            );
        }
        assert_eq!(text(&plan).matches("FROM ").count(), 1);
    }
}

#[test]
fn the_port_comes_from_the_release_then_the_project_file_then_the_platform() {
    let port = |given: Option<u16>, sources: &Files| {
        let settings = Settings::from_release(given, &Map::new()).unwrap();
        let plan = plan(Platform::Node, sources, &settings, &BaseImages::default()).unwrap();
        let Outcome::Runs { port, .. } = plan.outcome else {
            panic!()
        };
        assert!(text(&plan).contains(&format!("ENV PORT={port}\nEXPOSE {port}\n")));
        port
    };
    let mut sources = node();
    assert_eq!(port(None, &sources), 3000);
    sources.insert("estrade.json".into(), br#"{"port": 4000}"#.to_vec());
    assert_eq!(port(None, &sources), 4000);
    assert_eq!(port(Some(5000), &sources), 5000);
}

#[test]
fn overrides_replace_what_the_platform_would_do() {
    let sources = files(&[
        (
            "package.json",
            r#"{"scripts": {"start": "node a.js", "build": "x"}, "dependencies": {"a": "1"}}"#,
        ),
        ("package-lock.json", "{}"),
    ]);
    let sent = json!({
        "build": {"command": "make all", "install": ["npm", "ci", "--ignore-scripts"]},
        "platformConfig": {"startCommand": "node $MAIN"},
    });
    let plan = planned(Platform::Node, &sources, &sent).unwrap();
    let text = text(&plan);
    for line in [
        "RUN [\"npm\",\"ci\",\"--ignore-scripts\"]\n",
        "RUN [\"make\",\"all\"]\n",
        "CMD [\"/bin/sh\",\"-c\",\"exec node $MAIN\"]\n",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    assert!(
        !text.contains("npm run build") && !text.contains("--no-audit"),
        "{text}"
    );
}

#[test]
fn secrets_of_the_sources_stay_out_of_images_that_run() {
    let app = planned(Platform::Node, &node(), &json!({})).unwrap();
    let react = files(&[("package.json", r#"{"scripts": {"build": "vite build"}}"#)]);
    let site = planned(Platform::React, &react, &json!({})).unwrap();
    for path in [
        ".env",
        "a/.env",
        ".env.local",
        ".git/config",
        "node_modules/x/y.js",
    ] {
        assert!(app.ignore.excludes(path), "{path}");
    }
    assert!(!app.ignore.excludes(".env.production") && !app.ignore.excludes("src/a.js"));
    // Front ends are built with it, and nothing but the site leaves the build.
    assert!(!site.ignore.excludes(".env") && site.ignore.excludes("node_modules/x"));
}

#[test]
fn what_the_build_does_not_see_is_not_copied() {
    let sources = files(&[
        (
            "package.json",
            r#"{"scripts": {"start": "node a.js"}, "dependencies": {"a": "1"}}"#,
        ),
        ("package-lock.json", "{}"),
        (".nvmrc", "18"),
        (".dockerignore", "*lock*\n.nvmrc\n"),
    ]);
    let plan = planned(Platform::Node, &sources, &json!({})).unwrap();
    assert!(
        !text(&plan).contains("package-lock.json"),
        "{}",
        text(&plan)
    );
    assert!(text(&plan).contains("COPY package.json ./\nRUN npm install "));
    // It says something all the same.
    assert!(text(&plan).contains("FROM node:18-slim"));
    for (platform, manifest) in [
        (Platform::Node, "package.json"),
        (Platform::Php, "composer.json"),
        (Platform::Go, "go.mod"),
    ] {
        let error = refusal(
            platform,
            &[(manifest, "{}"), (".dockerignore", manifest)],
            &json!({}),
        );
        assert!(
            error.starts_with(".dockerignore: ") && error.contains(manifest),
            "{error}"
        );
    }
}
