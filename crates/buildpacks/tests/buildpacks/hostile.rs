//! Contents, names and settings are somebody else's. Whatever they are, a plan is either refused or
//! has the same instructions as for harmless values, and hostile text is only inside of JSON.

use crate::support::{Files, Instruction, files, planned, read, text};
use estrade_model::platform::Platform;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Pieces that mean something to a shell, a Dockerfile, JSON, TOML or XML.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("\nRUN evil".to_owned()),
        Just("\r\nUSER root\r\n".to_owned()),
        Just("\\\nRUN evil".to_owned()),
        Just(" && evil".to_owned()),
        Just("; evil #".to_owned()),
        Just("$(evil)".to_owned()),
        Just("`evil`".to_owned()),
        Just("${PATH}".to_owned()),
        Just("$HOME".to_owned()),
        Just("<<EOF".to_owned()),
        Just(" <<'EOF'".to_owned()),
        Just("\"]\nCMD [\"evil".to_owned()),
        Just("\", \"evil".to_owned()),
        Just("' || evil || '".to_owned()),
        Just("--mount=type=bind".to_owned()),
        Just("--from=evil".to_owned()),
        Just(" AS evil".to_owned()),
        Just("../../etc".to_owned()),
        Just("\u{2028}RUN evil".to_owned()),
        Just("\0".to_owned()),
        Just("\u{feff}# escape=`".to_owned()),
        Just("*".to_owned()),
        Just("a".to_owned()),
        Just("1".to_owned()),
        Just(" ".to_owned()),
        any::<String>(),
    ]
}

fn hostile() -> impl Strategy<Value = String> {
    prop::collection::vec(piece(), 1..5).prop_map(|pieces| pieces.concat())
}

/// A place in which a user can put a text, and the plan that comes of it.
type Slot = (&'static str, Platform, fn(&str) -> (Files, Value));

/// A text as TOML has it; what TOML does not know is left as it is.
fn toml_text(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "")
}

fn package(value: &Value) -> String {
    value.to_string()
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn slots() -> Vec<Slot> {
    vec![
        ("start script", Platform::Node, |x| {
            let package = package(
                &json!({"scripts": {"start": x, "build": "b"}, "dependencies": {"a": "1"}}),
            );
            (files(&[("package.json", &package)]), json!({}))
        }),
        ("main", Platform::Node, |x| {
            let package = package(&json!({"main": x}));
            (files(&[("package.json", &package), (x, "")]), json!({}))
        }),
        ("engines", Platform::Node, |x| {
            let package = package(&json!({"engines": {"node": x}, "main": "a.js"}));
            (
                files(&[("package.json", &package), ("a.js", "")]),
                json!({}),
            )
        }),
        ("packageManager", Platform::Node, |x| {
            let package = package(
                &json!({"packageManager": format!("pnpm@{x}"), "scripts": {"start": "a"}, "dependencies": {"a": "1"}}),
            );
            (files(&[("package.json", &package)]), json!({}))
        }),
        (".nvmrc", Platform::Node, |x| {
            (
                files(&[("package.json", "{}"), ("index.js", ""), (".nvmrc", x)]),
                json!({}),
            )
        }),
        ("Procfile", Platform::Node, |x| {
            (
                files(&[("package.json", "{}"), ("Procfile", &format!("web: {x}"))]),
                json!({}),
            )
        }),
        ("lock file", Platform::Node, |x| {
            let lock = format!("lockfileVersion: '{x}'\n");
            let package = r#"{"scripts": {"start": "a"}, "dependencies": {"a": "1"}}"#;
            (
                files(&[("package.json", package), ("pnpm-lock.yaml", &lock)]),
                json!({}),
            )
        }),
        ("name of a file", Platform::Node, |x| {
            (
                files(&[("package.json", "{}"), ("index.js", ""), (x, "x")]),
                json!({}),
            )
        }),
        ("build.command", Platform::Node, |x| {
            (
                files(&[("package.json", "{}"), ("index.js", "")]),
                json!({"build": {"command": x}}),
            )
        }),
        ("build.command as words", Platform::Node, |x| {
            (
                files(&[("package.json", "{}"), ("index.js", "")]),
                json!({"build": {"command": [x, x]}}),
            )
        }),
        ("startCommand", Platform::Node, |x| {
            (
                files(&[("package.json", "{}")]),
                json!({"platformConfig": {"startCommand": [x, x]}}),
            )
        }),
        ("build.args value", Platform::Node, |x| {
            (
                files(&[("package.json", "{}"), ("index.js", "")]),
                json!({"build": {"args": {"A": x}}}),
            )
        }),
        ("build.args name", Platform::Python, |x| {
            (
                files(&[("main.py", ""), ("requirements.txt", "a")]),
                json!({"build": {"args": {x: "v"}}}),
            )
        }),
        ("version", Platform::Node, |x| {
            (
                files(&[("package.json", "{}"), ("index.js", "")]),
                json!({"platformConfig": {"version": x}}),
            )
        }),
        ("timezone", Platform::Node, |x| {
            (
                files(&[("package.json", "{}"), ("index.js", "")]),
                json!({"platformConfig": {"timezone": x}}),
            )
        }),
        ("packages", Platform::Node, |x| {
            (
                files(&[("package.json", "{}"), ("index.js", "")]),
                json!({"platformConfig": {"packages": [x]}}),
            )
        }),
        ("outputDir", Platform::React, |x| {
            let package = r#"{"scripts": {"build": "b"}}"#;
            (
                files(&[("package.json", package)]),
                json!({"platformConfig": {"outputDir": x}}),
            )
        }),
        ("vite outDir", Platform::Vue, |x| {
            let config = format!("outDir: '{x}'");
            (
                files(&[
                    ("package.json", r#"{"scripts": {"build": "b"}}"#),
                    ("vite.config.js", &config),
                ]),
                json!({}),
            )
        }),
        ("angular.json", Platform::Angular, |x| {
            let config =
                json!({"projects": {x: {"architect": {"build": {"options": {"outputPath": x}}}}}});
            (
                files(&[
                    ("package.json", r#"{"scripts": {"build": "b"}}"#),
                    ("angular.json", &config.to_string()),
                ]),
                json!({}),
            )
        }),
        ("vercel.json", Platform::Auto, |x| {
            let config = json!({"installCommand": x, "buildCommand": x, "outputDirectory": x});
            (
                files(&[
                    ("package.json", r#"{"dependencies": {"vite": "1"}}"#),
                    ("index.html", ""),
                    ("vercel.json", &config.to_string()),
                ]),
                json!({}),
            )
        }),
        ("netlify.toml", Platform::Auto, |x| {
            let config = toml_text(x);
            (
                files(&[
                    ("package.json", r#"{"dependencies": {"vite": "1"}}"#),
                    ("index.html", ""),
                    (
                        "netlify.toml",
                        &format!("[build]\ncommand = {config}\npublish = {config}\n"),
                    ),
                ]),
                json!({}),
            )
        }),
        ("folder around VitePress", Platform::Auto, |x| {
            let page = format!("{x}/.vitepress/config.js");
            (
                files(&[
                    ("package.json", r#"{"devDependencies": {"vitepress": "1"}}"#),
                    (&page, ""),
                ]),
                json!({}),
            )
        }),
        ("script of a framework", Platform::Auto, |x| {
            let package = package(&json!({
                "dependencies": {"@angular/ssr": "1"},
                "scripts": {format!("serve:ssr:{x}"): x, "build": "b"},
            }));
            (
                files(&[("package.json", &package), ("angular.json", "{}")]),
                json!({}),
            )
        }),
        ("main that is built", Platform::Auto, |x| {
            let package = package(&json!({"main": format!("dist/{x}"), "scripts": {"build": "b"}}));
            (files(&[("package.json", &package)]), json!({}))
        }),
        ("requirements", Platform::Python, |x| {
            (
                files(&[("main.py", ""), ("requirements.txt", x), ("x.txt", "")]),
                json!({}),
            )
        }),
        ("included list", Platform::Python, |x| {
            (
                files(&[
                    ("main.py", ""),
                    ("requirements.txt", &format!("-r {x}")),
                    (x, ""),
                ]),
                json!({}),
            )
        }),
        ("dependency", Platform::Python, |x| {
            let project = format!(
                "[project]\ndependencies = [{}]\n",
                Value::from(format!("a{x}"))
            );
            (
                files(&[("main.py", ""), ("pyproject.toml", &project)]),
                json!({}),
            )
        }),
        (".python-version", Platform::Python, |x| {
            (files(&[("main.py", ""), (".python-version", x)]), json!({}))
        }),
        ("manage.py", Platform::Django, |x| {
            let manage = format!("setdefault('DJANGO_SETTINGS_MODULE', '{x}.settings')");
            let wsgi = format!("{x}/wsgi.py");
            (
                files(&[
                    ("requirements.txt", "django"),
                    ("manage.py", &manage),
                    (&wsgi, ""),
                ]),
                json!({}),
            )
        }),
        ("folder of manage.py", Platform::Django, |x| {
            let (manage, wsgi) = (format!("{x}/manage.py"), format!("{x}/shop/wsgi.py"));
            let code = "setdefault('DJANGO_SETTINGS_MODULE', 'shop.settings')";
            (
                files(&[("requirements.txt", "django"), (&manage, code), (&wsgi, "")]),
                json!({}),
            )
        }),
        ("settingsFile", Platform::Django, |x| {
            let tree = [
                ("requirements.txt", "django"),
                ("manage.py", ""),
                ("a/wsgi.py", ""),
            ];
            (files(&tree), json!({"platformConfig": {"settingsFile": x}}))
        }),
        ("appModule", Platform::Flask, |x| {
            let tree = [("requirements.txt", "flask")];
            (files(&tree), json!({"platformConfig": {"appModule": x}}))
        }),
        ("Flask package", Platform::Flask, |x| {
            let init = format!("{x}/__init__.py");
            (
                files(&[("requirements.txt", "flask"), (&init, "app = Flask(x)")]),
                json!({}),
            )
        }),
        ("Flask variable", Platform::Flask, |x| {
            (
                files(&[
                    ("requirements.txt", "flask"),
                    ("app.py", &format!("{x} = Flask(x)")),
                ]),
                json!({}),
            )
        }),
        ("document root", Platform::Php, |x| {
            let index = format!("{x}/index.php");
            (
                files(&[(&index, "")]),
                json!({"platformConfig": {"root": x}}),
            )
        }),
        ("extension", Platform::Php, |x| {
            let composer = json!({"require": {format!("ext-{x}"): "*"}}).to_string();
            (files(&[("composer.json", &composer)]), json!({}))
        }),
        ("php range", Platform::Php, |x| {
            let composer = json!({"require": {"php": format!("^8.1{x}")}}).to_string();
            (files(&[("composer.json", &composer)]), json!({}))
        }),
        ("folder of main.go", Platform::Go, |x| {
            let main = format!("cmd/{x}/main.go");
            (
                files(&[("go.mod", "module x"), (&main, "package main")]),
                json!({}),
            )
        }),
        ("go.mod", Platform::Go, |x| {
            (
                files(&[
                    ("go.mod", &format!("go 1.2{x}")),
                    ("main.go", "package main"),
                ]),
                json!({}),
            )
        }),
        ("name of a project", Platform::Dotnet, |x| {
            (
                files(&[(&format!("{x}/{x}.csproj"), "<Project/>")]),
                json!({}),
            )
        }),
        ("TargetFramework", Platform::Dotnet, |x| {
            (
                files(&[(
                    "a.csproj",
                    &format!("<TargetFramework>net8.0{x}</TargetFramework>"),
                )]),
                json!({}),
            )
        }),
        ("AssemblyName", Platform::Dotnet, |x| {
            (
                files(&[("a.csproj", &format!("<AssemblyName>{x}</AssemblyName>"))]),
                json!({}),
            )
        }),
        ("finalDllName", Platform::Dotnet, |x| {
            (
                files(&[("a.csproj", "")]),
                json!({"platformConfig": {"finalDllName": x}}),
            )
        }),
    ]
}

/// What may be in an instruction that is not JSON: nothing that only a user could have written.
fn check(slot: &str, instructions: &[Instruction]) {
    for instruction in instructions {
        let Instruction { name, rest, json } = instruction;
        if json.is_some() {
            continue;
        }
        for bad in ["<<", "`", "${PATH}", "root"] {
            assert!(!rest.contains(bad), "{slot}: {name} {rest}");
        }
        assert!(
            name == "RUN" || !rest.contains("/../"),
            "{slot}: {name} {rest}"
        );
        // A name may be odd, as long as it is a name: one word, which is no flag and no program.
        let plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./_-".contains(c);
        for (at, word) in rest.split(' ').enumerate() {
            let odd = word.contains("evil") || word.contains("--mount");
            let harmless =
                (name != "RUN" || at > 0) && word.chars().all(plain) && !word.starts_with('-');
            assert!(!odd || harmless, "{slot}: {name} {rest}");
        }
    }
    let names: Vec<_> = instructions
        .iter()
        .map(|instruction| instruction.name.as_str())
        .collect();
    assert_eq!(
        names.iter().filter(|name| **name == "CMD").count(),
        usize::from(names.contains(&"USER")),
        "{slot}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_text_leaves_the_instruction_that_it_is_put_into(text_of_user in hostile()) {
        for (slot, platform, make) in slots() {
            let (sources, sent) = make(&text_of_user);
            let Ok(plan) = planned(platform, &sources, &sent) else {
                continue;
            };
            check(slot, &read(text(&plan)));
            for note in &plan.notes {
                prop_assert!(!note.chars().any(char::is_control), "{slot}: {note:?}");
            }
        }
    }

    #[test]
    fn an_error_is_one_line(text_of_user in hostile()) {
        for (slot, platform, make) in slots() {
            let (sources, sent) = make(&text_of_user);
            if let Err(error) = planned(platform, &sources, &sent) {
                let error = error.to_string();
                prop_assert!(!error.chars().any(char::is_control), "{slot}: {error:?}");
            }
        }
    }

    #[test]
    fn rules_of_users_never_take_long_or_panic(rules in "[a*?/!\\[\\]\\\\^.#-]{0,80}", path in "[a./-]{1,60}") {
        let sources = files(&[("Dockerfile", "FROM app"), (".dockerignore", &rules)]);
        let plan = planned(Platform::Docker, &sources, &json!({})).unwrap();
        let _ = plan.ignore.excludes(&path);
        prop_assert!(!plan.ignore.excludes("Dockerfile"));
    }
}

/// Each slot is alive: with a harmless value there is a plan, and where the value belongs into the
/// Dockerfile it arrives there.
#[test]
fn harmless_values_arrive() {
    for (slot, platform, make) in slots() {
        let good = match slot {
            "engines" | ".nvmrc" | "version" => "20",
            "packageManager" => "9.1.0",
            "lock file" => "9.0",
            ".python-version" => "3.12",
            "timezone" => "Europe/Paris",
            "extension" => "intl",
            "php range" => " | ^8.2",
            "go.mod" => "2",
            "TargetFramework" => "-linux",
            _ => "shop",
        };
        let (sources, sent) = make(good);
        let plan =
            planned(platform, &sources, &sent).unwrap_or_else(|error| panic!("{slot}: {error}"));
        check(slot, &read(text(&plan)));
        let expected = match slot {
            // These decide about nothing that can be seen, or are passed beside the Dockerfile.
            "name of a file" | "build.args value" | "requirements" => continue,
            "lock file" => "pnpm@9",
            "php range" => "php:8.4",
            "go.mod" => "golang:1.22",
            "TargetFramework" => "sdk:8.0",
            _ => good,
        };
        assert!(text(&plan).contains(expected), "{slot}: {}", text(&plan));
    }
}
