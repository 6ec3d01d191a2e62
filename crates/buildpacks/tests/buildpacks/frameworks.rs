//! What `auto` makes of the trees that the `create` commands of frameworks write, and of trees that look like others.

use crate::support::{Files, files, last_stage, planned, read, text};
use estrade_buildpacks::{Outcome, PlanError, Settings, detect};
use estrade_model::platform::Platform;
use serde_json::{Value, json};

/// What a tree becomes.
#[derive(Debug, PartialEq, Eq)]
enum Becomes {
    /// An application in this folder.
    App(&'static str),
    /// Pages in this folder.
    Pages(&'static str),
    /// Something that is started so.
    Runs(&'static str),
    /// Nothing, and why.
    Refused(&'static str),
}
use Becomes::{App, Pages, Refused, Runs};

fn becomes(platform: Platform, files: &Files) -> Result<(String, String, bool), String> {
    match planned(platform, files, &json!({})) {
        Ok(plan) => match &plan.outcome {
            Outcome::Static { spa, looked_in, .. } => {
                Ok(("site".to_owned(), looked_in[0].clone(), *spa))
            }
            Outcome::Runs { .. } => {
                let dockerfile = read(text(&plan));
                let command = last_stage(&dockerfile).last().unwrap().json.clone();
                let mut words = command.unwrap();
                if words.first().is_some_and(|word| word == "/bin/sh") {
                    words.drain(..2);
                }
                Ok(("server".to_owned(), words.join(" "), false))
            }
        },
        Err(PlanError::Refused { place, advice }) => Err(format!("{place}: {advice}")),
        Err(error) => panic!("{error}"),
    }
}

fn check(platform: Platform, name: &str, files: &Files, expected: &Becomes) {
    let got = becomes(platform, files);
    let wanted = match expected {
        App(folder) => Ok(("site".to_owned(), (*folder).to_owned(), true)),
        Pages(folder) => Ok(("site".to_owned(), (*folder).to_owned(), false)),
        Runs(command) => Ok(("server".to_owned(), (*command).to_owned(), false)),
        Refused(part) => {
            let Err(error) = &got else {
                panic!("{name} has a plan: {got:?}");
            };
            assert!(error.contains(part), "{name}: {error}");
            return;
        }
    };
    assert_eq!(got, wanted, "{name}");
}

/// A `package.json` with these scripts and dependencies, those for development apart.
fn package(scripts: &Value, runtime: &[&str], dev: &[&str]) -> String {
    let all = |names: &[&str]| {
        let names = names.iter().map(|name| ((*name).to_owned(), json!("*")));
        Value::Object(names.collect())
    };
    json!({
        "name": "app", "type": "module", "scripts": scripts,
        "dependencies": all(runtime), "devDependencies": all(dev),
    })
    .to_string()
}

fn tree(package: &str, more: &[(&str, &str)]) -> Files {
    let mut all = files(more);
    all.insert("package.json".to_owned(), package.as_bytes().to_vec());
    all
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn trees_of_frameworks_become_what_they_are() {
    let vite = json!({"dev": "vite", "build": "vite build", "preview": "vite preview"});
    let page = [
        ("index.html", "<div id=app></div>"),
        ("vite.config.ts", "export default {}"),
    ];
    let angular = |more: &str| {
        format!(
            r#"{{"projects": {{"shop": {{"projectType": "application", "architect": {{"build": {{
            "builder": "@angular/build:application", "options": {{"browser": "src/main.ts"{more}}}}}}}}}}}}}"#
        )
    };
    let cases: Vec<(&str, Files, Becomes)> = vec![
        (
            "Vite with React",
            tree(
                &package(
                    &vite,
                    &["react", "react-dom"],
                    &["vite", "@vitejs/plugin-react"],
                ),
                &page,
            ),
            App("dist"),
        ),
        (
            "Vite with Vue",
            tree(
                &package(&vite, &["vue"], &["vite", "@vitejs/plugin-vue"]),
                &page,
            ),
            App("dist"),
        ),
        (
            "Vite",
            tree(
                &package(&vite, &[], &["svelte", "vite"]),
                &[
                    ("index.html", ""),
                    ("vite.config.ts", "build: { outDir: 'web' }"),
                ],
            ),
            App("web"),
        ),
        (
            "Create React App",
            tree(
                &package(
                    &json!({"start": "react-scripts start", "build": "react-scripts build"}),
                    &["react", "react-scripts"],
                    &[],
                ),
                &[("public/index.html", "")],
            ),
            App("build"),
        ),
        (
            "Vue CLI",
            tree(
                &package(
                    &json!({"serve": "vue-cli-service serve", "build": "vue-cli-service build"}),
                    &["vue"],
                    &["@vue/cli-service"],
                ),
                &[("vue.config.js", "module.exports = { outputDir: 'out' }")],
            ),
            App("out"),
        ),
        (
            "Angular",
            tree(
                &package(
                    &json!({"ng": "ng", "start": "ng serve", "build": "ng build"}),
                    &["@angular/core"],
                    &["@angular/build", "@angular/cli"],
                ),
                &[("angular.json", &angular(""))],
            ),
            App("dist/shop/browser"),
        ),
        (
            "Angular",
            tree(
                &package(
                    &json!({"start": "ng serve", "build": "ng build", "serve:ssr:shop": "node dist/shop/server/server.mjs"}),
                    &["@angular/core", "@angular/ssr", "express"],
                    &["@angular/build"],
                ),
                &[(
                    "angular.json",
                    &angular(r#", "outputMode": "server", "ssr": {"entry": "src/server.ts"}"#),
                )],
            ),
            Runs("node dist/shop/server/server.mjs"),
        ),
        (
            "SvelteKit",
            tree(
                &package(
                    &json!({"dev": "vite dev", "build": "vite build", "prepare": "svelte-kit sync"}),
                    &[],
                    &["@sveltejs/adapter-auto", "@sveltejs/kit", "svelte", "vite"],
                ),
                &[(
                    "vite.config.ts",
                    "import adapter from '@sveltejs/adapter-auto'",
                )],
            ),
            Refused("install @sveltejs/adapter-node"),
        ),
        (
            "SvelteKit",
            tree(
                &package(
                    &vite,
                    &[],
                    &["@sveltejs/adapter-node", "@sveltejs/kit", "vite"],
                ),
                &[],
            ),
            Runs("node build"),
        ),
        (
            "SvelteKit",
            tree(
                &package(
                    &vite,
                    &[],
                    &["@sveltejs/adapter-static", "@sveltejs/kit", "vite"],
                ),
                &[(
                    "svelte.config.js",
                    "adapter: adapter({ fallback: '404.html' })",
                )],
            ),
            Pages("build"),
        ),
        (
            "SvelteKit",
            tree(
                &package(
                    &vite,
                    &[],
                    &["@sveltejs/adapter-static", "@sveltejs/kit", "vite"],
                ),
                &[(
                    "svelte.config.js",
                    "adapter: adapter({ fallback: 'index.html' })",
                )],
            ),
            App("build"),
        ),
        (
            "Next.js",
            tree(
                &package(
                    &json!({"dev": "next dev", "build": "next build", "start": "next start"}),
                    &["next", "react"],
                    &[],
                ),
                &[("next.config.ts", "const nextConfig: NextConfig = {}")],
            ),
            Runs("next start"),
        ),
        (
            "Next.js",
            tree(
                &package(
                    &json!({"build": "next build", "start": "next start"}),
                    &["next"],
                    &[],
                ),
                &[("next.config.mjs", "export default { output: 'standalone' }")],
            ),
            Runs("node server.js"),
        ),
        (
            "Next.js",
            tree(
                &package(&json!({"build": "next build"}), &["next"], &[]),
                &[("next.config.mjs", "export default { output: 'export' }")],
            ),
            Pages("out"),
        ),
        (
            "Nuxt",
            tree(
                &package(
                    &json!({"build": "nuxt build", "dev": "nuxt dev", "generate": "nuxt generate", "postinstall": "nuxt prepare"}),
                    &["nuxt", "vue"],
                    &[],
                ),
                &[("nuxt.config.ts", "export default defineNuxtConfig({})")],
            ),
            Runs("node .output/server/index.mjs"),
        ),
        (
            "Nuxt",
            tree(
                &package(&json!({"build": "nuxt generate"}), &["nuxt"], &[]),
                &[],
            ),
            Pages(".output/public"),
        ),
        (
            "Astro",
            tree(
                &package(
                    &json!({"dev": "astro dev", "start": "astro dev", "build": "astro build"}),
                    &["astro"],
                    &[],
                ),
                &[("astro.config.mjs", "export default defineConfig({})")],
            ),
            Pages("dist"),
        ),
        (
            "Astro",
            tree(
                &package(
                    &json!({"build": "astro build"}),
                    &["astro", "@astrojs/node"],
                    &[],
                ),
                &[("astro.config.mjs", "adapter: node({ mode: 'standalone' })")],
            ),
            Runs("node dist/server/entry.mjs"),
        ),
        (
            "Astro",
            tree(
                &package(
                    &json!({"build": "astro build"}),
                    &["astro", "@astrojs/node"],
                    &[],
                ),
                &[("astro.config.mjs", "adapter: node({ mode: 'middleware' })")],
            ),
            Refused("standalone"),
        ),
        (
            "Astro",
            tree(
                &package(
                    &json!({"build": "astro build"}),
                    &["astro", "@astrojs/vercel"],
                    &[],
                ),
                &[],
            ),
            Refused("@astrojs/node"),
        ),
        (
            "Remix",
            tree(
                &package(
                    &json!({"build": "remix vite:build", "start": "remix-serve ./build/server/index.js"}),
                    &["@remix-run/node", "@remix-run/serve"],
                    &["@remix-run/dev", "vite"],
                ),
                &[],
            ),
            Runs("remix-serve ./build/server/index.js"),
        ),
        (
            "Remix",
            tree(
                &package(
                    &json!({"build": "remix vite:build"}),
                    &["@remix-run/node"],
                    &["@remix-run/dev", "vite"],
                ),
                &[],
            ),
            Runs("remix-serve build/server/index.js"),
        ),
        (
            "React Router",
            tree(
                &package(
                    &json!({"build": "react-router build", "dev": "react-router dev"}),
                    &["@react-router/node", "@react-router/serve"],
                    &["@react-router/dev", "vite"],
                ),
                &[(
                    "react-router.config.ts",
                    "export default { ssr: true } satisfies Config",
                )],
            ),
            Runs("react-router-serve build/server/index.js"),
        ),
        (
            "React Router",
            tree(
                &package(
                    &json!({"build": "react-router build"}),
                    &[],
                    &["@react-router/dev", "vite"],
                ),
                &[(
                    "react-router.config.ts",
                    "export default { ssr: false } satisfies Config",
                )],
            ),
            App("build/client"),
        ),
        (
            "SolidStart",
            tree(
                &package(
                    &json!({"build": "vinxi build"}),
                    &["@solidjs/start", "vinxi"],
                    &[],
                ),
                &[],
            ),
            Runs("node .output/server/index.mjs"),
        ),
        (
            "Gatsby",
            tree(
                &package(
                    &json!({"develop": "gatsby develop", "start": "gatsby develop", "build": "gatsby build"}),
                    &["gatsby", "react"],
                    &[],
                ),
                &[],
            ),
            Pages("public"),
        ),
        (
            "Docusaurus",
            tree(
                &package(
                    &json!({"start": "docusaurus start", "build": "docusaurus build"}),
                    &["@docusaurus/core", "react"],
                    &[],
                ),
                &[],
            ),
            Pages("build"),
        ),
        (
            "VitePress",
            tree(
                &package(
                    &json!({"docs:dev": "vitepress dev docs", "docs:build": "vitepress build docs"}),
                    &[],
                    &["vitepress"],
                ),
                &[
                    ("docs/.vitepress/config.mts", ""),
                    ("docs/index.md", "# Hi"),
                ],
            ),
            Pages("docs/.vitepress/dist"),
        ),
        (
            "VitePress",
            tree(
                &package(
                    &json!({"docs:build": "vitepress build"}),
                    &[],
                    &["vitepress"],
                ),
                &[(".vitepress/config.mts", ""), ("index.md", "# Hi")],
            ),
            Pages(".vitepress/dist"),
        ),
        (
            "VuePress",
            tree(
                &package(
                    &json!({"docs:build": "vuepress-vite build docs"}),
                    &[],
                    &["vuepress"],
                ),
                &[("docs/.vuepress/config.js", "")],
            ),
            Pages("docs/.vuepress/dist"),
        ),
        (
            "Eleventy",
            tree(
                &package(
                    &json!({"start": "eleventy --serve", "build": "eleventy"}),
                    &[],
                    &["@11ty/eleventy"],
                ),
                &[],
            ),
            Pages("_site"),
        ),
        (
            "Eleventy",
            tree(
                &package(&json!({}), &[], &["@11ty/eleventy"]),
                &[("eleventy.config.js", "dir: { input: 'src', output: 'www' }")],
            ),
            Pages("www"),
        ),
        (
            "Hexo",
            tree(
                &package(
                    &json!({"build": "hexo generate", "server": "hexo server"}),
                    &["hexo"],
                    &[],
                ),
                &[],
            ),
            Pages("public"),
        ),
        (
            "Storybook",
            tree(
                &package(
                    &json!({"storybook": "storybook dev -p 6006", "build-storybook": "storybook build"}),
                    &[],
                    &["storybook"],
                ),
                &[],
            ),
            App("storybook-static"),
        ),
        (
            "Parcel",
            tree(
                &package(
                    &json!({"start": "parcel", "build": "parcel build"}),
                    &[],
                    &["parcel"],
                ),
                &[("src/index.html", "")],
            ),
            App("dist"),
        ),
        (
            "Preact CLI",
            tree(
                &package(
                    &json!({"build": "preact build"}),
                    &["preact"],
                    &["preact-cli"],
                ),
                &[],
            ),
            App("build"),
        ),
        (
            "Nitro",
            tree(
                &package(
                    &json!({"build": "nitro build", "dev": "nitro dev"}),
                    &[],
                    &["nitropack"],
                ),
                &[],
            ),
            Runs("node .output/server/index.mjs"),
        ),
        (
            "Hono",
            tree(
                &package(
                    &json!({"dev": "tsx watch src/index.ts", "build": "tsc"}),
                    &["hono", "@hono/node-server"],
                    &["tsx", "typescript"],
                ),
                &[("src/index.ts", "")],
            ),
            Runs("node dist/index.js"),
        ),
        (
            "Hono",
            tree(
                &package(
                    &json!({"dev": "tsx watch src/index.ts"}),
                    &["hono", "@hono/node-server"],
                    &["tsx"],
                ),
                &[("src/index.ts", "")],
            ),
            Runs("tsx src/index.ts"),
        ),
        (
            "Hono",
            tree(
                &package(
                    &json!({"deploy": "wrangler deploy"}),
                    &["hono"],
                    &["wrangler"],
                ),
                &[("src/index.ts", "")],
            ),
            Refused("@hono/node-server"),
        ),
        (
            "NestJS",
            tree(
                &package(
                    &json!({"build": "nest build", "start": "nest start", "start:prod": "node dist/main"}),
                    &["@nestjs/core"],
                    &["@nestjs/cli"],
                ),
                &[("src/main.ts", "")],
            ),
            Runs("node dist/main"),
        ),
        (
            "Express",
            tree(
                &package(&json!({"start": "node ./bin/www"}), &["express"], &[]),
                &[("bin/www", "")],
            ),
            Runs("node ./bin/www"),
        ),
        (
            "Fastify",
            tree(
                &package(&json!({}), &["fastify"], &[]),
                &[("server.js", "")],
            ),
            Runs("node server.js"),
        ),
        (
            "Node.js",
            tree(
                &package(&json!({"start": "node a.js"}), &[], &[]),
                &[("a.js", "")],
            ),
            Runs("node a.js"),
        ),
    ];
    for (name, files, expected) in cases {
        check(Platform::Auto, name, &files, &expected);
        if !matches!(expected, Refused(_)) {
            let detected = detect(&files, &Settings::default()).unwrap();
            assert_eq!(detected.name, name);
        }
    }
}

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
