//! What `auto` takes sources for: trees that look like others, other languages, settings for other hosts.

use crate::expectations::Becomes::{self, App, Refused, Runs};
use crate::expectations::{becomes, check, package, tree};
use crate::support::{files, planned, text};
use estrade_buildpacks::{Outcome, Settings, detect};
use estrade_model::platform::Platform;
use serde_json::json;

#[test]
fn what_only_looks_like_a_framework_is_not_taken_for_it() {
    let vite = json!({"build": "vite build", "start": "node server.js"});
    let react = json!({"build": "vite build", "build-storybook": "storybook build"});
    let page = ("index.html", "");
    for (name, files, expected) in [
        (
            "a server that builds its front end with Vite",
            tree(
                &package(&vite, &["express", "react"], &["vite"]),
                &[page, ("server.js", "")],
            ),
            Runs("node server.js"),
        ),
        (
            "a front end whose tests use Express",
            tree(
                &package(
                    &json!({"build": "vite build"}),
                    &["react"],
                    &["vite", "express"],
                ),
                &[page],
            ),
            App("dist"),
        ),
        (
            "Vitest brings Vite, and there is no page",
            tree(
                &package(
                    &json!({"start": "node a.js", "test": "vitest"}),
                    &[],
                    &["vite", "vitest"],
                ),
                &[("a.js", "")],
            ),
            Runs("node a.js"),
        ),
        (
            "Storybook beside React",
            tree(
                &package(&react, &["react"], &["vite", "storybook"]),
                &[page],
            ),
            App("dist"),
        ),
        (
            "a manual with VitePress beside an application",
            tree(
                &package(
                    &json!({"build": "vite build", "docs:build": "vitepress build docs"}),
                    &["vue"],
                    &["vite", "vitepress"],
                ),
                &[page, ("docs/.vitepress/config.ts", "")],
            ),
            App("dist"),
        ),
        (
            "the root of a workspace",
            {
                let root = json!({"private": true, "workspaces": ["apps/*"], "scripts": {"build": "turbo run build"}});
                tree(
                    &root.to_string(),
                    &[
                        ("apps/web/package.json", "{}"),
                        ("apps/api/package.json", "{}"),
                    ],
                )
            },
            Refused("this is the root of a workspace (apps/api, apps/web)"),
        ),
        (
            "Laravel has a package.json with Vite",
            tree(
                &package(&json!({"build": "vite build"}), &[], &["vite"]),
                &[
                    ("artisan", ""),
                    (
                        "composer.json",
                        r#"{"require": {"laravel/framework": "^12"}}"#,
                    ),
                ],
            ),
            Runs("apache2-foreground"),
        ),
        (
            "Flask with styles that npm makes",
            tree(
                &package(
                    &json!({"build": "tailwindcss -o x.css"}),
                    &[],
                    &["tailwindcss"],
                ),
                &[
                    ("requirements.txt", "flask==3.1 # not django\n"),
                    ("app.py", "app = Flask(__name__)"),
                ],
            ),
            Runs("python3 -m gunicorn --threads 4 app:app"),
        ),
    ] {
        let got = becomes(Platform::Auto, &files);
        if matches!(expected, Runs("apache2-foreground")) {
            // Its command is Apache's own affair.
            assert!(matches!(got, Ok((kind, ..)) if kind == "server"), "{name}");
        } else {
            check(Platform::Auto, name, &files, &expected);
        }
    }
}

/// They would be served as they are, for everybody to read.
#[test]
fn sources_that_nothing_here_builds_are_no_site() {
    for manifest in ["Gemfile", "pom.xml", "Cargo.toml", "mix.exs"] {
        let sources = [(manifest, ""), ("config/secrets.yml", "")];
        let settings = Settings::default();
        let refused = detect(&files(&sources), &settings).unwrap_err().to_string();
        assert!(
            refused.starts_with(&format!("{manifest}: nothing here builds")),
            "{refused}"
        );
        let planned = planned(Platform::Auto, &files(&sources), &json!({}));
        assert_eq!(planned.unwrap_err().to_string(), refused);
        for shown in [
            ("index.html", ""),
            ("netlify.toml", "[build]\npublish = \"public\""),
        ] {
            let found = detect(&files(&[sources[0], shown]), &settings).unwrap();
            assert_eq!(found.platform, Platform::Static, "{shown:?}");
        }
        let own = files(&[sources[0], ("Dockerfile", "")]);
        assert_eq!(detect(&own, &settings).unwrap().platform, Platform::Docker);
    }
}

#[test]
fn other_languages_are_detected_too() {
    for (list, platform, name) in [
        (&[("index.html", "")][..], Platform::Static, "a static site"),
        (&[("docs/a.md", "")], Platform::Static, "a static site"),
        (
            &[("Dockerfile", ""), ("package.json", "{}")],
            Platform::Docker,
            "a Dockerfile",
        ),
        (&[("package.json", "{}")], Platform::Node, "Node.js"),
        (&[("package.json", "not JSON")], Platform::Node, "Node.js"),
        (
            &[("package.json", "{}"), ("index.html", "")],
            Platform::Static,
            "a static site",
        ),
        (
            &[("manage.py", ""), ("requirements.txt", "flask")],
            Platform::Django,
            "Django",
        ),
        (
            &[("requirements.txt", "Django>=5\n")],
            Platform::Django,
            "Django",
        ),
        (
            &[("requirements.txt", "Flask==3.1\n")],
            Platform::Flask,
            "Flask",
        ),
        (
            &[("requirements.txt", "flask-login\n")],
            Platform::Python,
            "Python",
        ),
        (
            &[("pyproject.toml", "dependencies = [\"fastapi[standard]\"]")],
            Platform::Python,
            "FastAPI",
        ),
        (
            &[("requirements.txt", "streamlit")],
            Platform::Python,
            "Streamlit",
        ),
        (&[("main.py", "")], Platform::Python, "Python"),
        (
            &[(
                "composer.json",
                r#"{"require":{"laravel/framework":"^12"}}"#,
            )],
            Platform::Laravel,
            "Laravel",
        ),
        (&[("artisan", "")], Platform::Laravel, "Laravel"),
        (&[("composer.json", "{}")], Platform::Php, "PHP"),
        (&[("index.php", "")], Platform::Php, "PHP"),
        (&[("go.mod", "module x")], Platform::Go, "Go"),
        (&[("src/App.csproj", "")], Platform::Dotnet, ".NET"),
    ] {
        let detected = detect(&files(list), &Settings::default()).unwrap();
        assert_eq!(
            (detected.platform, detected.name),
            (platform, name),
            "{list:?}"
        );
    }
}

#[test]
fn small_applications_of_python_listen_where_they_are_told_to() {
    for (list, command) in [
        (
            &[
                ("requirements.txt", "streamlit"),
                ("app.py", "import streamlit as st"),
            ][..],
            "exec python3 -m streamlit run app.py --server.address=0.0.0.0 --server.port=\"$PORT\" --server.headless=true",
        ),
        (
            &[
                ("requirements.txt", "gradio"),
                ("app.py", "import gradio as gr"),
            ],
            "GRADIO_SERVER_NAME=0.0.0.0 GRADIO_SERVER_PORT=\"$PORT\" exec python3 app.py",
        ),
        (
            &[
                ("requirements.txt", "fastapi\ngradio"),
                ("main.py", "import gradio\napp = FastAPI()"),
            ],
            "exec python3 -m uvicorn main:app --host 0.0.0.0 --port \"$PORT\"",
        ),
        (
            &[
                ("requirements.txt", "starlette"),
                ("main.py", "app = Starlette(routes=[])"),
            ],
            "exec python3 -m uvicorn main:app --host 0.0.0.0 --port \"$PORT\"",
        ),
    ] {
        for platform in [Platform::Auto, Platform::Python] {
            check(platform, command, &files(list), &Runs(command));
        }
    }
}

/// Lists with all that is installed name Flask for what others need of it.
#[test]
fn the_framework_that_was_found_is_started_though_flask_is_there_too() {
    let uvicorn = "exec python3 -m uvicorn main:app --host 0.0.0.0 --port \"$PORT\"";
    let streamlit = "exec python3 -m streamlit run app.py --server.address=0.0.0.0 --server.port=\"$PORT\" --server.headless=true";
    let gradio = "GRADIO_SERVER_NAME=0.0.0.0 GRADIO_SERVER_PORT=\"$PORT\" exec python3 app.py";
    let gunicorn = "python3 -m gunicorn --threads 4 app:app";
    for (package, file, code, command) in [
        ("fastapi", "main.py", "app = FastAPI()", uvicorn),
        ("starlette", "main.py", "app = Starlette()", uvicorn),
        ("streamlit", "app.py", "import streamlit", streamlit),
        ("gradio", "app.py", "import gradio", gradio),
        // Nothing of it can be started, but Flask's app can.
        ("fastapi", "app.py", "app = Flask(__name__)", gunicorn),
    ] {
        let list = format!("flask\n{package}\n");
        let tree = files(&[("requirements.txt", &list), (file, code)]);
        check(Platform::Auto, package, &tree, &Runs(command));
    }
}

#[test]
fn platforms_keep_their_meaning_or_say_what_would_fit() {
    let kit = |adapter: &str| {
        let dev = ["@sveltejs/kit", "vite", adapter];
        tree(&package(&json!({"build": "vite build"}), &[], &dev), &[])
    };
    let nuxt = json!({"build": "nuxt build", "generate": "nuxt generate"});
    let nuxt = tree(&package(&nuxt, &["nuxt"], &[]), &[]);
    let eleventy = tree(
        &package(&json!({"build": "eleventy"}), &[], &["@11ty/eleventy"]),
        &[],
    );
    let served = package(
        &json!({"build": "vite build", "start": "vite preview"}),
        &[],
        &["vite"],
    );
    for (name, platform, files, expected) in [
        (
            "a server is no site",
            Platform::React,
            kit("@sveltejs/adapter-node"),
            Refused("SvelteKit needs a server here"),
        ),
        (
            "another host's",
            Platform::Node,
            kit("@sveltejs/adapter-vercel"),
            Refused("install @sveltejs/adapter-node"),
        ),
        (
            "its usual start",
            Platform::Node,
            kit("@sveltejs/adapter-node"),
            Runs("node build"),
        ),
        (
            "a site is no server",
            Platform::Node,
            eleventy.clone(),
            Refused("Eleventy makes a static site here"),
        ),
        (
            "an application, as ever",
            Platform::React,
            eleventy,
            App("_site"),
        ),
        (
            "written instead of started",
            Platform::Vue,
            nuxt.clone(),
            App(".output/public"),
        ),
        (
            "started",
            Platform::Node,
            nuxt,
            Runs("node .output/server/index.mjs"),
        ),
        (
            "as its script says",
            Platform::Node,
            tree(&served, &[("index.html", "")]),
            Runs("vite preview"),
        ),
    ] {
        check(platform, name, &files, &expected);
    }
    let plan = planned(
        Platform::Vue,
        &tree(
            &package(
                &json!({"build": "nuxt build", "generate": "nuxt generate"}),
                &["nuxt"],
                &[],
            ),
            &[],
        ),
        &json!({}),
    );
    assert!(text(&plan.unwrap()).contains("RUN npm run generate\n"));
}

#[test]
fn settings_for_other_hosts_count_where_they_mean_the_same() {
    let package = package(&json!({"build": "vite build"}), &["react"], &["vite"]);
    let page = ("index.html", "");
    let netlify = (
        "netlify.toml",
        "[build]\ncommand = \"vite build --outDir web\"\npublish = \"web\"",
    );
    let sources = tree(&package, &[page, netlify]);
    check(
        Platform::Auto,
        "netlify.toml",
        &sources,
        &Becomes::App("web"),
    );
    let plan = planned(Platform::Auto, &sources, &json!({})).unwrap();
    assert!(
        text(&plan).contains("RUN [\"vite\",\"build\",\"--outDir\",\"web\"]\n"),
        "{}",
        text(&plan)
    );
    let notes = plan.notes.join("\n");
    assert!(
        notes.starts_with(
            "platform auto: this is Vite with React, because of `vite` in package.json"
        ),
        "{notes}"
    );
    assert!(
        notes.contains("built with `vite build --outDir web` from netlify.toml"),
        "{notes}"
    );
    // What is said here comes first.
    let sent = json!({"platformConfig": {"outputDir": "mine"}, "build": {"command": "make"}});
    let plan = planned(Platform::Auto, &sources, &sent).unwrap();
    assert!(matches!(&plan.outcome, Outcome::Static { looked_in, .. } if looked_in == &["mine"]));
    assert!(!text(&plan).contains("--outDir"), "{}", text(&plan));

    let hugo = (
        "netlify.toml",
        "[build]\ncommand = \"hugo\"\npublish = \"public\"",
    );
    let refused = detect(&files(&[hugo, ("content/a.md", "")]), &Settings::default()).unwrap_err();
    assert!(
        refused
            .to_string()
            .starts_with("netlify.toml: builds with `hugo`"),
        "{refused}"
    );
    let built = ("netlify.toml", "[build]\npublish = \"public\"");
    let detected = detect(
        &files(&[built, ("public/index.html", "")]),
        &Settings::default(),
    );
    assert_eq!(detected.unwrap().root.as_deref(), Some("public"));
}
