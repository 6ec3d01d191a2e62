//! The package manager's cache of a build: what decides about it, and where it is.

use crate::support::{Files, files, planned, read, text};
use estrade_buildpacks::{CACHE_FOLDER, PackageCache};
use estrade_model::platform::Platform;
use serde_json::{Value, json};

const PACKAGE: &str = r#"{"dependencies": {"a": "1"}, "scripts": {"start": "node x.js"}}"#;

fn node(more: &[(&str, &str)]) -> Files {
    let mut all = files(&[
        ("package.json", PACKAGE),
        ("package-lock.json", "{}"),
        ("x.js", ""),
    ]);
    all.extend(files(more));
    all
}

fn cache(platform: Platform, files: &Files, sent: &Value) -> Option<PackageCache> {
    planned(platform, files, sent).unwrap().package_cache
}

#[test]
fn only_what_is_installed_decides() {
    let key = |files: &Files, sent: &Value| cache(Platform::Node, files, sent).unwrap().key;
    let first = key(&node(&[]), &json!({}));
    assert_eq!(first.len(), 32);
    assert_eq!(
        first,
        key(&node(&[("x.js", "changed"), ("y.js", "")]), &json!({}))
    );
    for (change, sent) in [
        (("package-lock.json", "{\"a\": 1}"), json!({})),
        (
            (
                "package.json",
                r#"{"dependencies": {"b": "1"}, "scripts": {"start": "node x.js"}}"#,
            ),
            json!({}),
        ),
        ((".npmrc", "a=b"), json!({})),
        (("patches/a.patch", "x"), json!({})),
        (("z", ""), json!({"build": {"args": {"A": "1"}}})),
        (("z", ""), json!({"platformConfig": {"version": "20"}})),
    ] {
        assert_ne!(first, key(&node(&[change]), &sent), "{change:?} {sent}");
    }
    let patched = |text| key(&node(&[("patches/a.patch", text)]), &json!({}));
    assert_ne!(patched("x"), patched("y"));
    // The name of a file beside a folder of manifests begins like it.
    assert_eq!(first, key(&node(&[("patches-of-others", "x")]), &json!({})));
}

#[test]
fn there_is_none_where_all_files_or_nothing_decides() {
    for (platform, sources, sent) in [
        (
            Platform::Node,
            node(&[(
                "package.json",
                r#"{"workspaces": ["x"], "dependencies": {"a": "1"}, "scripts": {"start": "node x.js"}}"#,
            )]),
            json!({}),
        ),
        (
            Platform::Node,
            node(&[]),
            json!({"platformConfig": {"installCommand": "npm i"}}),
        ),
        (
            Platform::Node,
            files(&[
                ("package.json", r#"{"scripts": {"start": "node x.js"}}"#),
                ("x.js", ""),
            ]),
            json!({}),
        ),
        (
            Platform::Python,
            files(&[("setup.py", ""), ("main.py", "")]),
            json!({}),
        ),
        (
            Platform::Go,
            files(&[("go.mod", "module a\n"), ("main.go", "package main\n")]),
            json!({}),
        ),
        (
            Platform::Docker,
            files(&[("Dockerfile", "FROM node:22 AS build\nRUN npm ci\n")]),
            json!({}),
        ),
    ] {
        assert_eq!(cache(platform, &sources, &sent), None, "{platform} {sent}");
    }
}

type Case = (Platform, Files, &'static [&'static str], &'static str);

/// Sources with the variables that their package manager gets, and how its step begins.
fn cases() -> Vec<Case> {
    let python = |more: &[(&str, &str)]| {
        let mut all = files(&[("main.py", "")]);
        all.extend(files(more));
        all
    };
    let composer = [
        ("composer.json", "{}"),
        ("composer.lock", "{}"),
        ("index.php", ""),
    ];
    let pyproject = (
        "pyproject.toml",
        "[project]\nname = \"a\"\ndependencies = [\"requests\"]\n",
    );
    vec![
        (
            Platform::Node,
            node(&[]),
            &["npm_config_cache"],
            "RUN npm ci",
        ),
        (
            Platform::Node,
            node(&[("pnpm-lock.yaml", "lockfileVersion: '9.0'\n")]),
            &["npm_config_cache", "npm_config_store_dir"],
            "RUN pnpm install",
        ),
        (
            Platform::Node,
            node(&[("yarn.lock", "# yarn lockfile v1\n")]),
            &["npm_config_cache", "YARN_CACHE_FOLDER"],
            "RUN yarn install",
        ),
        (
            Platform::Node,
            node(&[("yarn.lock", "__metadata:\n  version: 8\n")]),
            &["npm_config_cache", "YARN_GLOBAL_FOLDER"],
            "RUN yarn install",
        ),
        (
            Platform::Python,
            python(&[("requirements.txt", "requests\n")]),
            &["PIP_CACHE_DIR"],
            "RUN pip install -r",
        ),
        (
            Platform::Flask,
            files(&[
                ("app.py", "from flask import Flask\napp = Flask(__name__)\n"),
                ("requirements.txt", "flask\n"),
            ]),
            &["PIP_CACHE_DIR"],
            "RUN pip install gunicorn",
        ),
        (
            Platform::Python,
            python(&[pyproject, ("uv.lock", "")]),
            &["PIP_CACHE_DIR", "UV_CACHE_DIR"],
            "RUN UV_PROJECT_ENVIRONMENT",
        ),
        (
            Platform::Python,
            python(&[pyproject, ("poetry.lock", "")]),
            &["PIP_CACHE_DIR", "POETRY_CACHE_DIR"],
            "RUN /opt/tools/bin/poetry",
        ),
        (
            Platform::Go,
            files(&[
                ("go.mod", "module a\n"),
                ("go.sum", ""),
                ("main.go", "package main\n"),
            ]),
            &["GOMODCACHE", "GOCACHE"],
            "RUN go mod download",
        ),
        (
            Platform::Php,
            files(&composer),
            &["COMPOSER_CACHE_DIR"],
            "RUN composer install",
        ),
    ]
}

#[test]
fn it_is_in_the_stage_that_builds_and_nowhere_else() {
    for (platform, sources, variables, installs) in cases() {
        let plan = planned(platform, &sources, &json!({})).unwrap();
        let instructions = read(text(&plan));
        let installs_at = plan.package_cache.as_ref().unwrap().installs;
        let install = &instructions[installs_at - 1];
        let line = format!("{} {}", install.name, install.rest);
        assert!(line.starts_with(installs), "{platform}: {line}");
        let stage = plan.bases().build_stage().unwrap();
        let mut number = 0;
        let mut found = Vec::new();
        for instruction in &instructions {
            if instruction.name == "FROM" {
                number += 1;
            }
            assert!(
                !instruction.rest.contains("--no-cache"),
                "{}",
                instruction.rest
            );
            if instruction.rest.contains(CACHE_FOLDER) {
                assert_eq!(
                    (number - 1, instruction.name.as_str()),
                    (stage.number, "ENV"),
                    "{platform}"
                );
                found.extend(instruction.rest.split('=').next().map(str::to_owned));
            }
        }
        assert_eq!(found, variables, "{platform}");
    }
}

#[test]
fn a_build_begins_with_the_cache_and_the_app_without() {
    let plan = planned(Platform::Node, &node(&[]), &json!({})).unwrap();
    let stage = plan.bases().build_stage().unwrap();
    let ids = [(stage.base.to_owned(), "sha256:aa".to_owned())];
    let pin = |cache| plan.bases().pin(&ids.clone().into(), "of=me", cache);
    let (cold, warm) = (pin(None), pin(Some("sha256:cc")));
    assert!(
        cold.text.contains("FROM sha256:aa AS build\n"),
        "{}",
        cold.text
    );
    assert_eq!(
        warm.text,
        cold.text
            .replace("FROM sha256:aa AS build\n", "FROM sha256:cc AS build\n")
    );
    assert!(
        warm.text.contains("\nFROM sha256:aa\nLABEL of=me\n"),
        "{}",
        warm.text
    );
    let step = warm
        .step_of(plan.package_cache.as_ref().unwrap().installs)
        .unwrap();
    let line = warm.text.lines().nth(step - 1).unwrap();
    assert!(line.starts_with("RUN npm ci"), "{line}");

    // A stage on an earlier one of the same build.
    let sources = files(&[("composer.json", "{}"), ("index.php", "")]);
    let plan = planned(Platform::Php, &sources, &json!({})).unwrap();
    assert_eq!(plan.bases().build_stage().unwrap().number, 1);
    let warm = plan.bases().pin(&ids.into(), "of=me", Some("sha256:cc"));
    let copy =
        "FROM base AS build\nCOPY --from=sha256:cc /var/cache/estrade/ /var/cache/estrade/\n";
    assert!(warm.text.contains(copy), "{}", warm.text);
    assert_eq!(warm.text.matches("sha256:cc").count(), 1);
    let step = warm.step_of(plan.package_cache.unwrap().installs).unwrap();
    let line = warm.text.lines().nth(step - 1).unwrap();
    assert!(line.starts_with("RUN composer install"), "{line}");
    assert_eq!(warm.step_of(0), None);
}
