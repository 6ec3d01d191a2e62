//! Small example trees of each platform, with the Dockerfile that is expected for each.
//!
//! The expected texts are in `tests/dockerfiles`. With `ESTRADE_WRITE_EXPECTED=1` they are written
//! instead of compared, so that a change can be read as a diff.

use crate::support::{Instruction, files, last_stage, planned, read, text, without_digests};
use estrade_buildpacks::{Outcome, RUN_AS};
use estrade_model::platform::Platform;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

struct Example {
    name: &'static str,
    platform: Platform,
    files: &'static [(&'static str, &'static str)],
    sent: Value,
    /// Parts of notes that must be there.
    notes: &'static [&'static str],
}

const EXPRESS: &str = r#"{"scripts": {"start": "node server.js"}, "dependencies": {"express": "^4"},
    "engines": {"node": ">=18 <21"}}"#;
const BUILT: &str = r#"{"scripts": {"start": "NODE_ENV=production node dist/main.js", "build": "tsc"},
    "dependencies": {"express": "^4"}, "devDependencies": {"typescript": "5"}}"#;
const NEXT: &str = r#"{"scripts": {"build": "next build", "start": "next start"}, "dependencies": {"next": "15"}}"#;
const VITE: &str = r#"{"scripts": {"build": "vite build"}, "devDependencies": {"vite": "6"}}"#;
const MANAGE: &str =
    "import os\nos.environ.setdefault('DJANGO_SETTINGS_MODULE', 'shop.settings')\n";
const LARAVEL: &str = r#"{"require": {"php": "^8.2", "laravel/framework": "^11.0", "ext-gd": "*", "ext-redis": "*", "ext-json": "*"}}"#;
const ANGULAR: &str = r#"{"projects": {"shop": {"projectType": "application", "architect": {"build": {
    "builder": "@angular/build:application", "options": {"outputPath": "dist/shop"}}}}}}"#;
const WEB: &str = r#"<Project Sdk="Microsoft.NET.Sdk.Web"><PropertyGroup><TargetFramework>net8.0</TargetFramework></PropertyGroup></Project>"#;

#[expect(clippy::too_many_lines, reason = "a table")]
fn examples() -> Vec<Example> {
    let example = |name, platform, files, sent, notes| Example {
        name,
        platform,
        files,
        sent,
        notes,
    };
    vec![
        example(
            "node-npm",
            Platform::Node,
            &[
                ("package.json", EXPRESS),
                ("package-lock.json", "{}"),
                ("server.js", ""),
                (".env", "A=1"),
            ],
            json!({}),
            &[
                "Node.js 20 from engines in package.json (>=18 <21)",
                "versions as in package-lock.json",
                "starts with `node server.js`",
                "port 3000",
                ".env is left out",
            ],
        ),
        example(
            "node-pnpm-build",
            Platform::Node,
            &[
                ("package.json", BUILT),
                ("pnpm-lock.yaml", "lockfileVersion: '9.0'\n"),
                (".npmrc", ""),
                (".nvmrc", "lts/jod\n"),
            ],
            json!({"build": {"args": ["TOKEN=s3cret"]}}),
            &["Node.js 22 from .nvmrc", "script `build`", "pnpm run start"],
        ),
        example(
            "node-nothing-to-install",
            Platform::Node,
            &[("package.json", "{}"), ("index.js", "")],
            json!({"platformConfig": {"version": 18, "timezone": "Asia/Tehran", "packages": ["ffmpeg"]}}),
            &["Node.js 18 from platformConfig", "no dependencies"],
        ),
        example(
            "node-yarn-workspaces",
            Platform::Node,
            &[
                (
                    "package.json",
                    r#"{"workspaces": ["a"], "scripts": {"start": "node a/x.js"}}"#,
                ),
                ("yarn.lock", "__metadata:\n  version: 8\n"),
                (".yarnrc.yml", ""),
                ("a/package.json", "{}"),
            ],
            json!({}),
            &["all files are copied before"],
        ),
        example(
            "node-prisma",
            Platform::Node,
            &[
                (
                    "package.json",
                    r#"{"scripts": {"postinstall": "prisma generate", "start": "tsx main.ts"}, "dependencies": {"prisma": "5"}, "devDependencies": {"tsx": "4"}}"#,
                ),
                ("package-lock.json", "{}"),
            ],
            json!({}),
            &["dependencies for development are kept"],
        ),
        example(
            "next-server",
            Platform::Next,
            &[
                ("package.json", NEXT),
                ("package-lock.json", "{}"),
                ("next.config.js", "module.exports = {}"),
            ],
            json!({}),
            &["starts with `next start`"],
        ),
        example(
            "next-standalone",
            Platform::Next,
            &[
                ("package.json", NEXT),
                ("yarn.lock", "# yarn lockfile v1\n"),
                ("public/a.svg", ""),
                (
                    "next.config.mjs",
                    "export default {\n  output: \"standalone\",\n}\n",
                ),
            ],
            json!({}),
            &["standalone", "node server.js"],
        ),
        example(
            "next-export",
            Platform::Next,
            &[
                ("package.json", NEXT),
                ("next.config.ts", "const c = { output: 'export' }"),
            ],
            json!({}),
            &["static site", "no lock file"],
        ),
        example(
            "react-vite",
            Platform::React,
            &[
                ("package.json", VITE),
                ("bun.lock", "{}"),
                ("vite.config.ts", "build: { outDir: 'web' },"),
            ],
            json!({"build": {"args": {"VITE_API": "https://api.example.com"}}}),
            &["the site is in web"],
        ),
        example(
            "vue-settings",
            Platform::Vue,
            &[("package.json", VITE), ("package-lock.json", "{}")],
            json!({"build": {"command": "npm run build -- --mode staging && ls"}, "platformConfig": {"outputDir": "./out dir/"}}),
            &[
                "the site is in out dir (platformConfig)",
                "from the settings",
            ],
        ),
        example(
            "angular",
            Platform::Angular,
            &[
                (
                    "package.json",
                    r#"{"scripts": {"build": "ng build"}, "dependencies": {"@angular/core": "19"}}"#,
                ),
                ("package-lock.json", "{}"),
                ("angular.json", ANGULAR),
            ],
            json!({}),
            &["the site is in dist/shop/browser, or dist/shop (angular.json)"],
        ),
        example(
            "auto-vitepress",
            Platform::Auto,
            &[
                (
                    "package.json",
                    r#"{"scripts": {"docs:build": "vitepress build docs"}, "devDependencies": {"vitepress": "1"}}"#,
                ),
                ("package-lock.json", "{}"),
                ("docs/.vitepress/config.mts", "export default {}"),
                ("docs/index.md", "# Manual"),
            ],
            json!({}),
            &[
                "platform auto: this is VitePress, because of `vitepress` in package.json",
                "the site is in docs/.vitepress/dist",
                "built with the script `docs:build`",
            ],
        ),
        example(
            "auto-nuxt",
            Platform::Auto,
            &[
                (
                    "package.json",
                    r#"{"scripts": {"build": "nuxt build", "postinstall": "nuxt prepare"}, "dependencies": {"nuxt": "4"}}"#,
                ),
                ("package-lock.json", "{}"),
                ("nuxt.config.ts", "export default defineNuxtConfig({})"),
            ],
            json!({}),
            &[
                "this is Nuxt",
                "nothing says what to start; Nuxt usually starts so",
                "starts with `node .output/server/index.mjs`",
            ],
        ),
        example(
            "auto-sveltekit",
            Platform::Auto,
            &[
                (
                    "package.json",
                    r#"{"scripts": {"build": "vite build", "prepare": "svelte-kit sync || echo ''"}, "devDependencies": {"@sveltejs/kit": "2", "@sveltejs/adapter-node": "5", "vite": "7"}}"#,
                ),
                ("package-lock.json", "{}"),
                ("svelte.config.js", "adapter: adapter()"),
            ],
            json!({"port": 4000}),
            &[
                "this is SvelteKit, because of `@sveltejs/kit` in package.json and `@sveltejs/adapter-node` in package.json",
            ],
        ),
        example(
            "auto-astro-server",
            Platform::Auto,
            &[
                (
                    "package.json",
                    r#"{"scripts": {"build": "astro build"}, "dependencies": {"astro": "6", "@astrojs/node": "11"}}"#,
                ),
                ("package-lock.json", "{}"),
            ],
            json!({}),
            &["starts with `node dist/server/entry.mjs`"],
        ),
        example(
            "python-fastapi",
            Platform::Python,
            &[
                ("requirements.txt", "fastapi\nuvicorn\n-r more/x.txt\n"),
                ("more/x.txt", "psycopg2\n"),
                ("main.py", "app = FastAPI()\n"),
                (".python-version", "3.12.4\n"),
            ],
            json!({}),
            &[
                "Python 3.12.4 from .python-version",
                "ASGI app `app` in main.py",
            ],
        ),
        example(
            "python-plain",
            Platform::Python,
            &[("main.py", "print(1)")],
            json!({}),
            &["nothing is installed", "python3 main.py", "port 8000"],
        ),
        example(
            "python-uv-procfile",
            Platform::Python,
            &[
                (
                    "pyproject.toml",
                    "[project]\nrequires-python = '>=3.10,<3.13'\ndependencies = ['gunicorn']",
                ),
                ("uv.lock", ""),
                ("Procfile", "web: gunicorn -b 0.0.0.0:$PORT shop.web:app\n"),
                ("src/shop/__init__.py", ""),
            ],
            json!({}),
            &[
                "Python 3.12 from pyproject.toml",
                "start command from Procfile",
                "uv.lock",
            ],
        ),
        example(
            "django-wsgi",
            Platform::Django,
            &[
                ("requirements.txt", "Django==5.1\nwhitenoise\n"),
                ("manage.py", MANAGE),
                ("shop/wsgi.py", ""),
                ("shop/settings.py", "STATIC_ROOT = BASE_DIR / 'static'\n"),
                ("runtime.txt", "python-3.11.9\n"),
            ],
            json!({}),
            &[
                "Python 3.11.9 from runtime.txt",
                "WSGI with Gunicorn: shop.wsgi",
                "collected during the build",
                "gunicorn is added",
            ],
        ),
        example(
            "django-asgi-poetry",
            Platform::Django,
            &[
                (
                    "pyproject.toml",
                    "[tool.poetry.dependencies]\npython = '^3.11'\ndjango = '*'\nuvicorn = '*'\ngunicorn = '*'\n",
                ),
                ("poetry.lock", ""),
                ("backend/manage.py", MANAGE),
                ("backend/shop/asgi.py", ""),
                ("backend/shop/wsgi.py", ""),
            ],
            json!({"platformConfig": {"settingsFile": "backend/shop/settings/live.py", "collectStatic": true, "compileMessages": true}}),
            &[
                "Django project in backend",
                "ASGI with Gunicorn and Uvicorn: shop.asgi",
                "add whitenoise",
            ],
        ),
        example(
            "flask-factory",
            Platform::Flask,
            &[
                (
                    "Pipfile",
                    "[packages]\nflask = '*'\ngunicorn = '*'\n[requires]\npython_version = '3.10'\n",
                ),
                ("Pipfile.lock", "{}"),
                (
                    "shop/__init__.py",
                    "from flask import Flask\ndef create_app():\n    return Flask(__name__)\n",
                ),
            ],
            json!({}),
            &["Python 3.10 from Pipfile", "shop:create_app()"],
        ),
        example(
            "flask-listed",
            Platform::Flask,
            &[
                (
                    "pyproject.toml",
                    "[project]\ndependencies = ['flask>=3', 'requests ; python_version < \"3.9\"']\n",
                ),
                ("app.py", "app = Flask(__name__)\n"),
                ("gunicorn.conf.py", "workers = 3\n"),
            ],
            json!({}),
            &["app:app", "no lock file"],
        ),
        example(
            "php-plain",
            Platform::Php,
            &[("index.php", "<?php"), ("style.css", "")],
            json!({}),
            &[
                "PHP 8.4, because nothing asks",
                "serves the folder .",
                "port 80",
            ],
        ),
        example(
            "php-composer",
            Platform::Php,
            &[
                (
                    "composer.json",
                    r#"{"require": {"php": "~7.4 | ^8.0 <8.3", "ext-intl": "*"}}"#,
                ),
                ("composer.lock", "{}"),
                ("public/index.php", ""),
            ],
            json!({"platformConfig": {"timezone": "Europe/Berlin"}}),
            &[
                "PHP 8.2 from require.php",
                "serves the folder public",
                "composer.lock",
            ],
        ),
        example(
            "laravel",
            Platform::Laravel,
            &[
                ("composer.json", LARAVEL),
                ("composer.lock", "{}"),
                ("artisan", ""),
                ("public/index.php", ""),
                (
                    "package.json",
                    r#"{"scripts": {"build": "vite build"}, "devDependencies": {"vite": "6"}}"#,
                ),
                ("package-lock.json", "{}"),
            ],
            json!({"platformConfig": {"configCache": true, "routeCache": true}}),
            &["PHP 8.4 from require.php", "script `build`"],
        ),
        example(
            "go",
            Platform::Go,
            &[
                ("go.mod", "module x\n\ngo 1.22.3\n"),
                ("go.sum", ""),
                ("cmd/server/main.go", "// x\npackage main\n"),
                ("shop.go", "package shop\n"),
            ],
            json!({}),
            &["Go 1.22 from go.mod", "./cmd/server", "port 8080"],
        ),
        example(
            "dotnet",
            Platform::Dotnet,
            &[
                ("Shop.sln", ""),
                ("Shop/My Shop.csproj", WEB),
                ("Lib/Lib.csproj", "<Project Sdk=\"Microsoft.NET.Sdk\"/>"),
                ("Directory.Build.props", "<Project/>"),
            ],
            json!({}),
            &[
                "builds Shop/My Shop.csproj",
                ".NET 8.0 from Shop/My Shop.csproj",
            ],
        ),
    ]
}

#[test]
fn each_example_becomes_the_expected_dockerfile() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dockerfiles");
    let writes = std::env::var_os("ESTRADE_WRITE_EXPECTED").is_some();
    for example in examples() {
        let name = example.name;
        let plan = planned(example.platform, &files(example.files), &example.sent);
        let plan = plan.unwrap_or_else(|error| panic!("{name}: {error}"));
        let path = folder.join(format!("{name}.Dockerfile"));
        let written = without_digests(text(&plan));
        if writes {
            fs::write(&path, &written).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(written, expected, "{name}");
        for note in example.notes {
            let found = plan.notes.iter().any(|line| line.contains(note));
            assert!(found, "{name}: no {note:?} in {:#?}", plan.notes);
        }
    }
    let there = fs::read_dir(&folder).unwrap().count();
    assert_eq!(there, examples().len(), "expected texts without an example");
}

#[test]
fn every_dockerfile_is_sound() {
    let mut platforms = Vec::new();
    for example in examples() {
        let name = example.name;
        let plan = planned(example.platform, &files(example.files), &example.sent).unwrap();
        let instructions = read(text(&plan));
        let last = last_stage(&instructions);
        let has = |name: &str, rest: &str| {
            last.iter()
                .any(|instruction| instruction.name == name && instruction.rest.starts_with(rest))
        };
        match &plan.outcome {
            Outcome::Runs { port, .. } => {
                assert!(
                    has("USER", &format!("{RUN_AS}:{RUN_AS}")),
                    "{name} runs as root"
                );
                assert!(
                    has("EXPOSE", &port.to_string()) && has("CMD", "["),
                    "{name}"
                );
                assert_eq!(last.last().unwrap().name, "CMD", "{name}");
                assert_eq!(
                    last.iter().filter(|one| one.name == "CMD").count(),
                    1,
                    "{name}"
                );
            }
            Outcome::Static { folder, .. } => {
                assert!(has("FROM", "scratch") && last.len() == 2, "{name}");
                assert!(last[1].rest.ends_with(folder), "{name}");
            }
        }
        // Arguments may be secrets, and the last stage keeps its history.
        assert!(
            !last.iter().any(|instruction| instruction.name == "ARG"),
            "{name}"
        );
        assert!(!text(&plan).contains("s3cret"), "{name}");
        platforms.push(example.platform);
    }
    for (platform, name) in Platform::ALL {
        let without = matches!(platform, Platform::Static | Platform::Docker);
        assert!(
            without || platforms.contains(&platform),
            "no example of {name}"
        );
    }
}

#[test]
fn dependencies_are_installed_before_the_rest_is_copied() {
    for (name, install) in [
        ("node-npm", "npm ci"),
        ("next-standalone", "yarn install"),
        ("python-fastapi", "pip install"),
        ("django-asgi-poetry", "/opt/tools/bin/poetry install"),
        ("php-composer", "composer install"),
        ("go", "go mod download"),
        ("dotnet", "[\"dotnet\",\"restore\""),
    ] {
        let example = examples()
            .into_iter()
            .find(|example| example.name == name)
            .unwrap();
        let plan = planned(example.platform, &files(example.files), &example.sent).unwrap();
        let instructions = read(text(&plan));
        let at = |wanted: &dyn Fn(&Instruction) -> bool| {
            let found = instructions.iter().position(wanted);
            found.unwrap_or_else(|| panic!("{name}: {}", text(&plan)))
        };
        let installed = at(&|one| one.name == "RUN" && one.rest.starts_with(install));
        let copied = at(&|one| one.name == "COPY" && format!(" {}", one.rest).ends_with(" . ./"));
        assert!(installed < copied, "{name}");
    }
}

#[test]
fn every_script_is_one_that_a_shell_understands() {
    for example in examples() {
        let plan = planned(example.platform, &files(example.files), &example.sent).unwrap();
        for instruction in read(text(&plan)).iter().filter(|one| one.name == "RUN") {
            let script = match instruction.json.as_deref() {
                None => instruction.rest.clone(),
                Some([shell, flag, script, ..]) if shell == "/bin/sh" && flag == "-c" => {
                    script.clone()
                }
                Some(_) => continue,
            };
            let checked = Command::new("/bin/sh")
                .args(["-n", "-c", &script])
                .output()
                .unwrap();
            assert!(
                checked.status.success(),
                "{}: {script}: {checked:?}",
                example.name
            );
        }
    }
}

#[test]
fn the_same_sources_give_the_same_plan() {
    for example in examples() {
        let once = planned(example.platform, &files(example.files), &example.sent).unwrap();
        let again = planned(example.platform, &files(example.files), &example.sent).unwrap();
        assert_eq!(
            format!("{once:?}"),
            format!("{again:?}"),
            "{}",
            example.name
        );
    }
}
