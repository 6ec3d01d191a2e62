//! All kinds of sources, in the order in which they are looked for.

use super::{
    FRAMEWORK, Framework, Output, PythonFile, Sign, VARIANT, Variant, servers, sites, universal,
};
use estrade_model::platform::Platform;

/// What decides whatever else is there: other languages often have a `package.json` for their assets.
const DECIDED: &[Framework] = &[
    Framework {
        name: "a Dockerfile",
        platform: Platform::Docker,
        signs: &[Sign::File("Dockerfile")],
        ..FRAMEWORK
    },
    Framework {
        name: "Laravel",
        platform: Platform::Laravel,
        signs: &[Sign::Any(&[
            Sign::File("artisan"),
            Sign::Text("composer.json", "\"laravel/framework\""),
        ])],
        ..FRAMEWORK
    },
    Framework {
        name: "Django",
        platform: Platform::Django,
        signs: &[Sign::File("manage.py")],
        ..FRAMEWORK
    },
    Framework {
        name: "Go",
        platform: Platform::Go,
        signs: &[Sign::File("go.mod"), Sign::File("main.go")],
        ..FRAMEWORK
    },
];

/// Files with a page of a small application of Python.
const PAGES: &[&str] = &[
    "streamlit_app.py",
    "app.py",
    "main.py",
    "demo.py",
    "server.py",
    "src/streamlit_app.py",
    "src/app.py",
    "src/main.py",
];
const PYTHON_FILE: PythonFile = PythonFile {
    files: &[],
    makers: &[],
    line: "",
    needs: None,
};
const UVICORN: Variant = python(PythonFile {
    files: &[
        "main.py",
        "app.py",
        "app/main.py",
        "server.py",
        "api.py",
        "src/main.py",
        "app/__init__.py",
    ],
    makers: &["FastAPI", "Starlette", "create_app"],
    line: "exec python3 -m uvicorn {app} --host 0.0.0.0 --port \"$PORT\"",
    needs: Some("uvicorn"),
});

const fn python(file: PythonFile) -> Variant {
    Variant {
        output: Output::Python(file),
        ..VARIANT
    }
}

/// What a `package.json` beside it is no sign against, unless it says what to start or has a framework.
const PYTHON: &[Framework] = &[
    Framework {
        name: "Django",
        platform: Platform::Django,
        signs: &[Sign::Python("django")],
        ..FRAMEWORK
    },
    Framework {
        name: "FastAPI",
        platform: Platform::Python,
        // Lists with all that is installed name it for Gradio, too.
        signs: &[
            Sign::Python("fastapi"),
            Sign::Not(&[Sign::Python("gradio")]),
        ],
        variants: &[UVICORN],
        ..FRAMEWORK
    },
    Framework {
        name: "Starlette",
        platform: Platform::Python,
        signs: &[
            Sign::Python("starlette"),
            Sign::Not(&[Sign::Python("gradio"), Sign::Python("streamlit")]),
        ],
        variants: &[UVICORN],
        ..FRAMEWORK
    },
    Framework {
        name: "Streamlit",
        platform: Platform::Python,
        signs: &[Sign::Python("streamlit")],
        variants: &[python(PythonFile {
            files: PAGES,
            line: "exec python3 -m streamlit run {file} --server.address=0.0.0.0 --server.port=\"$PORT\" --server.headless=true",
            ..PYTHON_FILE
        })],
        ..FRAMEWORK
    },
    Framework {
        name: "Gradio",
        platform: Platform::Python,
        signs: &[Sign::Python("gradio")],
        variants: &[python(PythonFile {
            files: PAGES,
            line: "GRADIO_SERVER_NAME=0.0.0.0 GRADIO_SERVER_PORT=\"$PORT\" exec python3 {file}",
            ..PYTHON_FILE
        })],
        ..FRAMEWORK
    },
    Framework {
        name: "Flask",
        platform: Platform::Flask,
        signs: &[Sign::Python("flask")],
        ..FRAMEWORK
    },
    Framework {
        name: "PHP",
        platform: Platform::Php,
        signs: &[
            Sign::File("composer.json"),
            Sign::Any(&[Sign::File("index.php"), Sign::File("public/index.php")]),
        ],
        ..FRAMEWORK
    },
];

const LAST: &[Framework] = &[
    Framework {
        name: "Python",
        platform: Platform::Python,
        signs: &[Sign::Any(&[
            Sign::File("requirements.txt"),
            Sign::File("pyproject.toml"),
            Sign::File("Pipfile"),
            Sign::File("setup.py"),
            Sign::File("main.py"),
            Sign::File("app.py"),
        ])],
        ..FRAMEWORK
    },
    Framework {
        name: "PHP",
        platform: Platform::Php,
        signs: &[Sign::Any(&[
            Sign::File("composer.json"),
            Sign::File("index.php"),
        ])],
        ..FRAMEWORK
    },
    Framework {
        name: "Go",
        platform: Platform::Go,
        signs: &[Sign::File("go.mod")],
        ..FRAMEWORK
    },
    Framework {
        name: ".NET",
        platform: Platform::Dotnet,
        signs: &[Sign::Any(&[
            Sign::Extension("csproj"),
            Sign::Extension("fsproj"),
            Sign::Extension("sln"),
            Sign::Extension("slnx"),
        ])],
        ..FRAMEWORK
    },
    Framework {
        name: "a static site",
        platform: Platform::Static,
        ..FRAMEWORK
    },
];

/// All kinds of sources; the first whose signs are there is what they are.
const TABLE: [&[Framework]; 8] = [
    DECIDED,
    universal::FRAMEWORKS,
    sites::GENERATORS,
    servers::LIBRARIES,
    sites::FRONT_ENDS,
    PYTHON,
    servers::PLAIN,
    LAST,
];

/// The same, one after the other.
pub(crate) fn all() -> impl Iterator<Item = &'static Framework> {
    TABLE.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frameworks::Start;
    use std::fmt::Write;

    /// The table as the documentation shows it: a line for each variant that is more than a platform.
    fn document() -> String {
        let mut text =
            String::from("| Framework | If | Built with | Result |\n|---|---|---|---|\n");
        for framework in all() {
            for variant in framework.variants {
                let (build, result) = match variant.output {
                    Output::Platform | Output::Refused(_) => continue,
                    Output::Python(python) => (
                        "nothing".to_owned(),
                        format!("server: `{}`", python.line.trim_start_matches("exec ")),
                    ),
                    Output::Site(site) => {
                        let folders: Vec<_> =
                            site.folders.iter().map(|it| format!("`{it}`")).collect();
                        let folders = if folders.is_empty() {
                            "the first usual folder".to_owned()
                        } else {
                            folders.join(", ")
                        };
                        let kind = if site.spa { "application" } else { "pages" };
                        (
                            built_with(variant.scripts, variant.build),
                            format!("{kind} in {folders}"),
                        )
                    }
                    Output::Server(server) => {
                        let start = server.start.first().map_or_else(
                            || "the script `start`".to_owned(),
                            |start| match start {
                                Start::Named(name) => format!("the script `{name}`"),
                                Start::Words(words) => format!("`{}`", words.join(" ")),
                                Start::Built(file) | Start::File(file) => {
                                    format!("`node {file}`, and the like")
                                }
                            },
                        );
                        (
                            built_with(variant.scripts, variant.build),
                            format!("server: {start}"),
                        )
                    }
                };
                let when: Vec<_> = variant.when.iter().filter_map(shown).collect();
                let _ = writeln!(
                    text,
                    "| {} | {} | {build} | {result} |",
                    framework.name,
                    when.join(", ")
                );
            }
        }
        text
    }

    fn built_with(scripts: &[&str], build: &[&str]) -> String {
        let scripts: Vec<_> = scripts.iter().map(|script| format!("`{script}`")).collect();
        let scripts = scripts.join(", ");
        if build.is_empty() {
            format!("script {scripts}")
        } else {
            format!("script {scripts}, else `{}`", build.join(" "))
        }
    }

    fn shown(sign: &Sign) -> Option<String> {
        Some(match *sign {
            Sign::Package(name) | Sign::Runtime(name) => format!("`{name}`"),
            Sign::PackagePrefix(start) => format!("`{start}*`"),
            Sign::Says(_, field, value) => format!("`{field}: {value}`"),
            Sign::Script(name, text) => format!("`{text}` in the script `{name}`"),
            Sign::Text(file, text) => format!("`{text}` in `{file}`"),
            Sign::Starts => "says what to start".to_owned(),
            Sign::Any(signs) => {
                let mut all: Vec<_> = signs.iter().filter_map(shown).collect();
                all.dedup();
                all.join(" or ")
            }
            _ => return None,
        })
    }

    #[test]
    fn the_documentation_has_the_same_table() {
        let document = document();
        let written = include_str!("../../../../docs/BUILDS.md");
        assert!(
            written.contains(&document),
            "docs/BUILDS.md must have this table:\n{document}"
        );
    }
}
