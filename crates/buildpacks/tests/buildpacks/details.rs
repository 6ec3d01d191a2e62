//! One thing at a time: small differences in the sources and what they change.

use crate::support::{files, planned, text, without_digests};
use estrade_buildpacks::Outcome;
use estrade_model::platform::Platform;
use serde_json::{Value, json};

type Files = &'static [(&'static str, &'static str)];
type Parts = &'static [&'static str];

/// What a plan must contain, and what it must not.
struct Case {
    platform: Platform,
    files: Files,
    config: Value,
    has: Parts,
    lacks: Parts,
}

fn check(cases: Vec<Case>) {
    for case in cases {
        let sent = json!({"platformConfig": case.config});
        let plan = planned(case.platform, &files(case.files), &sent);
        let plan = plan.unwrap_or_else(|error| panic!("{:?}: {error}", case.files));
        let text = without_digests(text(&plan));
        for part in case.has {
            assert!(
                text.contains(part),
                "no {part:?} for {:?}:\n{text}",
                case.files
            );
        }
        for part in case.lacks {
            assert!(
                !text.contains(part),
                "{part:?} for {:?}:\n{text}",
                case.files
            );
        }
    }
}

fn case(platform: Platform, files: Files, config: Value, has: Parts, lacks: Parts) -> Case {
    Case {
        platform,
        files,
        config,
        has,
        lacks,
    }
}

const NEXT: &str = r#"{"dependencies": {"next": "15"}}"#;
const MANAGE: (&str, &str) = (
    "manage.py",
    "setdefault('DJANGO_SETTINGS_MODULE', 'conf.settings.local')",
);
const LARAVEL: (&str, &str) = (
    "composer.json",
    r#"{"require": {"laravel/framework": "11"}}"#,
);
const MAIN: (&str, &str) = ("main.go", "package main");
const PROJECT: &str = "<Project Sdk=\"Microsoft.NET.Sdk.Web\"><AssemblyName>Shop.Web</AssemblyName><TargetFrameworks>net6.0;net8.0</TargetFrameworks></Project>";
const START: &str = r#"{"scripts": {"start": "node a.js"}, "dependencies": {"a": "1"}}"#;

#[test]
fn node() {
    let case = |files, config, has, lacks| case(Platform::Node, files, config, has, lacks);
    check(vec![
        // Where the version is asked for, in order.
        case(
            &[
                ("package.json", START),
                (".nvmrc", "18"),
                (".node-version", "20"),
            ],
            json!({}),
            &["node:18-slim"],
            &[],
        ),
        case(
            &[("package.json", START), (".node-version", "v20.11.1")],
            json!({}),
            &["node:20.11.1-slim"],
            &[],
        ),
        case(
            &[("package.json", START), (".nvmrc", "18")],
            json!({"version": "16"}),
            &["node:16-slim"],
            &[],
        ),
        case(
            &[("package.json", START), (".nvmrc", "lts/*")],
            json!({}),
            &["node:22-slim"],
            &[],
        ),
        // What the usual image lacks.
        case(
            &[
                (
                    "package.json",
                    r#"{"main": "a.js", "dependencies": {"b": "github:x/b"}}"#,
                ),
                ("a.js", ""),
            ],
            json!({}),
            &["--no-install-recommends ca-certificates git "],
            &["openssl"],
        ),
        // Hooks around the start need the manager.
        case(
            &[(
                "package.json",
                r#"{"scripts": {"prestart": "x", "start": "node a.js"}}"#,
            )],
            json!({}),
            &[r#"CMD ["npm","run","start"]"#],
            &[],
        ),
        case(
            &[
                (
                    "package.json",
                    r#"{"scripts": {"start": "a && b"}, "dependencies": {"a": "1"}}"#,
                ),
                ("yarn.lock", ""),
            ],
            json!({}),
            &[
                r#"CMD ["yarn","run","start"]"#,
                "RUN npm install --global --force yarn@1\nENV NODE_ENV",
            ],
            &[],
        ),
        // Local packages need all files; Yarn's folders come along with the manifests.
        case(
            &[
                (
                    "package.json",
                    r#"{"main": "a.js", "dependencies": {"b": "file:./b"}}"#,
                ),
                ("a.js", ""),
            ],
            json!({}),
            &["COPY . ./\nRUN npm install"],
            &["COPY package.json"],
        ),
        case(
            &[
                ("package.json", START),
                ("yarn.lock", "__metadata:"),
                (".yarn/releases/yarn.cjs", ""),
            ],
            json!({}),
            &[
                "ENV YARN_NODE_LINKER=node-modules",
                "COPY .yarn .yarn/\nRUN yarn install --immutable",
                "/app/node_modules ./node_modules",
            ],
            &[],
        ),
        case(
            &[
                ("package.json", r#"{"main": "./lib/x.js"}"#),
                ("lib/x.js", ""),
            ],
            json!({}),
            &[r#"CMD ["node","lib/x.js"]"#],
            &[],
        ),
    ]);
}

#[test]
fn next_and_pages() {
    check(vec![
        case(
            Platform::Next,
            &[("package.json", NEXT)],
            json!({}),
            &[
                "RUN node_modules/.bin/next build",
                r#"CMD ["next","start"]"#,
            ],
            &["standalone"],
        ),
        case(
            Platform::Next,
            &[
                ("package.json", NEXT),
                ("next.config.js", "// output: 'standalone'"),
            ],
            json!({}),
            &["/out ./"],
            &["standalone"],
        ),
        case(
            Platform::Next,
            &[
                ("package.json", NEXT),
                ("next.config.js", "output: 'standalone'"),
            ],
            json!({"nodeVersion": "20"}),
            &["node:20-slim", "HOSTNAME=0.0.0.0"],
            &["/app/public"],
        ),
        case(
            Platform::React,
            &[(
                "package.json",
                r#"{"scripts": {"build": "b"}, "dependencies": {"react-scripts": "5"}}"#,
            )],
            json!({}),
            &[r#""sh","build","dist","out","_site",".output/public","www","public/build"]"#],
            &[],
        ),
        case(
            Platform::Vue,
            &[
                ("package.json", r#"{"scripts": {"build": "b"}}"#),
                ("vue.config.js", "outputDir: 'www'"),
            ],
            json!({}),
            &[r#""sh","www"]"#],
            &[],
        ),
        case(
            Platform::React,
            &[("package.json", r#"{"scripts": {"build": "b"}}"#)],
            json!({}),
            &[
                r#""sh","dist","build","out","_site",".output/public","www","public/build","public"]"#,
            ],
            &["npm ci", "npm install"],
        ),
    ]);
}

#[test]
fn django() {
    check(vec![
        case(
            Platform::Django,
            &[
                ("requirements.txt", "django\nchannels\n"),
                MANAGE,
                ("conf/asgi.py", ""),
                ("conf/wsgi.py", ""),
            ],
            json!({}),
            &[
                "daphne -b 0.0.0.0 -p \\\"$PORT\\\" conf.asgi:application",
                "pip install daphne",
            ],
            &["collectstatic"],
        ),
        // Without Uvicorn or Daphne, asgi.py alone changes nothing.
        case(
            Platform::Django,
            &[
                ("requirements.txt", "django"),
                MANAGE,
                ("conf/asgi.py", ""),
                ("conf/wsgi.py", ""),
            ],
            json!({}),
            &["conf.wsgi:application"],
            &["asgi"],
        ),
        case(
            Platform::Django,
            &[
                ("requirements.txt", "django"),
                MANAGE,
                ("conf/wsgi.py", ""),
                ("conf/settings/base.py", "STATIC_ROOT = 'x'"),
            ],
            json!({}),
            &["collectstatic"],
            &[],
        ),
        case(
            Platform::Django,
            &[
                ("requirements.txt", "django"),
                MANAGE,
                ("conf/wsgi.py", ""),
                ("conf/settings/local.py", "STATIC_ROOT = 'x'"),
            ],
            json!({"collectStatic": false}),
            &["conf.wsgi"],
            &["collectstatic"],
        ),
        case(
            Platform::Django,
            &[("requirements.txt", "django"), MANAGE, ("site/wsgi.py", "")],
            json!({"geospatial": true, "settingsFile": "conf.settings.live"}),
            &[
                "site.wsgi:application",
                "gdal-bin",
                "ENV DJANGO_SETTINGS_MODULE=conf.settings.live",
            ],
            &[],
        ),
    ]);
}

#[test]
fn python_and_flask() {
    check(vec![
        case(
            Platform::Flask,
            &[("requirements.txt", "flask\nx @ git+https://example.com/x\n")],
            json!({"appModule": "web.main:create_app()"}),
            &[
                r#""web.main:create_app()""#,
                "apt-get install -y --no-install-recommends git ",
            ],
            &[],
        ),
        // Somebody's own configuration of Gunicorn is not overruled.
        case(
            Platform::Flask,
            &[
                ("requirements.txt", "flask"),
                ("app.py", "app = Flask(x)"),
                ("gunicorn.conf.py", ""),
            ],
            json!({}),
            &[r#"CMD ["python3","-m","gunicorn","app:app"]"#],
            &["--threads"],
        ),
        case(
            Platform::Python,
            &[
                ("requirements.txt", "Flask"),
                ("wsgi.py", "from shop import app\n"),
            ],
            json!({}),
            &[r#""wsgi:app""#],
            &[],
        ),
        case(
            Platform::Python,
            &[
                ("pyproject.toml", "[project]\nrequires-python = '<3.12'"),
                ("main.py", ""),
            ],
            json!({}),
            &["python:3.11-slim"],
            &["pip"],
        ),
        case(
            Platform::Python,
            &[("setup.py", ""), ("main.py", "")],
            json!({}),
            &["COPY . ./\nRUN pip install .\n"],
            &[],
        ),
        case(
            Platform::Python,
            &[("requirements.txt", "mysqlclient"), ("main.py", "")],
            json!({}),
            &["default-libmysqlclient-dev", "libmariadb3 "],
            &[],
        ),
    ]);
}

#[test]
fn php() {
    check(vec![
        // Since 8.5 it cannot be installed again.
        case(
            Platform::Php,
            &[("index.php", "")],
            json!({"version": "8.5"}),
            &["php:8.5-apache"],
            &["opcache"],
        ),
        case(
            Platform::Php,
            &[("web/index.php", "")],
            json!({}),
            &["APACHE_DOCUMENT_ROOT=/app/web\n"],
            &["composer"],
        ),
        case(
            Platform::Php,
            &[("index.php", ""), ("a/x.php", "")],
            json!({"root": "a"}),
            &["APACHE_DOCUMENT_ROOT=/app/a\n"],
            &[],
        ),
        case(
            Platform::Php,
            &[(
                "composer.json",
                r#"{"repositories": [{"type": "path", "url": "lib"}]}"#,
            )],
            json!({"installDevDependencies": true}),
            &["COPY . ./\nRUN composer install"],
            &["--no-dev", "COPY composer.json"],
        ),
        case(
            Platform::Php,
            &[(
                "composer.json",
                r#"{"config": {"platform": {"php": "8.1.2"}}, "require": {"php": "^8.2"}}"#,
            )],
            json!({}),
            &["php:8.1.2-apache"],
            &[],
        ),
        case(
            Platform::Laravel,
            &[LARAVEL, ("artisan", "")],
            json!({}),
            &[r#"CMD ["apache2-foreground"]"#, "/app/public"],
            &["assets", "node:"],
        ),
        case(
            Platform::Laravel,
            &[
                LARAVEL,
                ("artisan", ""),
                ("package.json", r#"{"scripts": {"build": "b"}}"#),
            ],
            json!({"buildAssets": false}),
            &[],
            &["AS assets"],
        ),
        case(
            Platform::Laravel,
            &[
                LARAVEL,
                ("artisan", ""),
                ("package.json", r#"{"scripts": {"production": "mix"}}"#),
            ],
            json!({"nodeVersion": "18"}),
            &["FROM node:18-slim AS assets", "RUN npm run production"],
            &[],
        ),
    ]);
}

#[test]
fn go_and_dotnet() {
    check(vec![
        case(
            Platform::Go,
            &[("go.mod", "go 1.22\ntoolchain go1.23.4\n"), MAIN],
            json!({}),
            &["golang:1.23 ", "/out/app .\n"],
            &["go mod download"],
        ),
        case(
            Platform::Go,
            &[("go.mod", "go 1.13"), MAIN],
            json!({}),
            &["golang:1.25 "],
            &[],
        ),
        case(
            Platform::Go,
            &[("go.mod", "replace x => ./x"), ("go.sum", ""), MAIN],
            json!({"cgoEnabled": true}),
            &["CGO_ENABLED=1\nCOPY . ./\nRUN go build"],
            &["go mod download"],
        ),
        case(
            Platform::Go,
            &[
                ("go.mod", ""),
                ("go.sum", ""),
                ("vendor/modules.txt", ""),
                MAIN,
            ],
            json!({}),
            &["CGO_ENABLED=0\nCOPY . ./"],
            &["go mod download"],
        ),
        case(
            Platform::Go,
            &[
                ("go.mod", ""),
                ("cmd/a/x.go", "package main"),
                ("cmd/b/x.go", "package main"),
            ],
            json!({"mainFile": "./cmd/b/x.go"}),
            &["/out/app ./cmd/b\n"],
            &[],
        ),
        case(
            Platform::Go,
            &[
                ("go.mod", ""),
                ("gen.go", "//go:build ignore\n\npackage main"),
                ("cmd/a/x.go", "package main"),
            ],
            json!({}),
            &["./cmd/a\n"],
            &[],
        ),
        case(
            Platform::Dotnet,
            &[
                ("a/Shop.csproj", PROJECT),
                ("global.json", r#"{"sdk": {"version": "9.0.100"}}"#),
                ("a/packages.lock.json", ""),
            ],
            json!({}),
            &[
                "sdk:9.0 AS",
                "aspnet:8.0\n",
                "\"Shop.Web.dll\"",
                "--locked-mode",
            ],
            &[],
        ),
        case(
            Platform::Dotnet,
            &[("a.csproj", ""), ("b.csproj", PROJECT)],
            json!({"csprojectFile": "a.csproj", "version": 7}),
            &["sdk:7.0", "a.dll"],
            &["Shop"],
        ),
        case(
            Platform::Dotnet,
            &[(
                "a.fsproj",
                "<TargetFramework>netcoreapp3.1</TargetFramework>",
            )],
            json!({"finalDllName": "x.dll"}),
            &["sdk:3.1", "\"x.dll\""],
            &[],
        ),
    ]);
}

#[test]
fn a_site_is_an_application_unless_it_says_otherwise() {
    let sources = files(&[("package.json", r#"{"scripts": {"build": "b"}}"#)]);
    let spa = |config: Value| {
        let plan = planned(Platform::Vue, &sources, &json!({"platformConfig": config})).unwrap();
        let Outcome::Static { folder, spa, .. } = plan.outcome else {
            panic!("it runs");
        };
        assert_eq!(folder, "/site");
        spa
    };
    assert!(spa(json!({})) && !spa(json!({"spa": false})));
}
