//! The trees of `tests/apps`, which `./test apps` builds with real packages: here only their plans, without an engine.

use crate::support::{Files, last_stage, planned, read, text};
use estrade_buildpacks::Outcome;
use estrade_model::platform::Platform;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// What a sample is, and the folder with its site or what starts it.
const SAMPLES: &[(&str, &str, &str)] = &[
    ("angular", "Angular", "dist/sample-angular/browser"),
    ("angular-browser", "Angular", "dist/browser-builder"),
    ("astro", "Astro", "dist"),
    ("astro-node", "Astro", "node dist/server/entry.mjs"),
    ("create-react-app", "Create React App", "build"),
    ("docusaurus", "Docusaurus", "build"),
    ("eleventy", "Eleventy", "_site"),
    ("fastapi", "FastAPI", "-m uvicorn main:app "),
    ("fastapi-uv", "FastAPI", "-m uvicorn main:app "),
    ("fastify", "Fastify", "node server.js"),
    ("flask", "Flask", "-m gunicorn --threads 4 app:app"),
    ("gatsby", "Gatsby", "public"),
    ("gradio", "Gradio", "exec python3 app.py"),
    ("hexo", "Hexo", "public"),
    ("hono", "Hono", "node dist/index.js"),
    ("koa", "Koa", "node app.js"),
    ("nestjs", "NestJS", "node dist/main"),
    ("next", "Next.js", "next start"),
    ("next-export", "Next.js", "out"),
    ("next-standalone", "Next.js", "node server.js"),
    ("nitro", "Nitro", "node .output/server/index.mjs"),
    ("nuxt", "Nuxt", "node .output/server/index.mjs"),
    ("parcel", "Parcel", "dist"),
    ("plain-node", "Node.js", "node server.js"),
    ("plain-python", "Python", "python3 main.py"),
    ("pnpm", "Vite", "dist"),
    (
        "react-router",
        "React Router",
        "react-router-serve ./build/server/index.js",
    ),
    ("remix", "Remix", "remix-serve ./build/server/index.js"),
    ("solid-start", "SolidStart", "vinxi start"),
    ("starlette", "Starlette", "-m uvicorn main:app "),
    ("storybook", "Storybook", "storybook-static"),
    ("streamlit", "Streamlit", "-m streamlit run app.py "),
    ("sveltekit", "SvelteKit", "node build"),
    ("sveltekit-static", "SvelteKit", "build"),
    ("vite-preact", "Vite", "dist"),
    ("vite-react", "Vite with React", "dist"),
    ("vite-svelte", "Vite", "dist"),
    ("vite-vue", "Vite with Vue", "dist"),
    ("vitepress", "VitePress", "docs/.vitepress/dist"),
    ("vue-cli", "Vue CLI", "dist"),
    ("vuepress", "VuePress", "docs/.vuepress/dist"),
    ("yarn", "Koa", "node app.js"),
];

/// A tree as it is in an archive.
fn tree(folder: &Path) -> Files {
    let (mut files, mut folders) = (Files::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).unwrap().to_str().unwrap();
            files.insert(name.to_owned(), fs::read(&path).unwrap());
        }
    }
    files
}

#[test]
fn samples_are_built_as_what_they_are() {
    let apps = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/apps");
    let folders = fs::read_dir(&apps).unwrap().map(Result::unwrap);
    let folders = folders.filter(|entry| {
        let manifests = ["package.json", "pyproject.toml", "requirements.txt"];
        manifests.iter().any(|it| entry.path().join(it).exists())
    });
    let found: BTreeMap<_, _> = folders
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .collect();
    let listed: Vec<_> = SAMPLES.iter().map(|(sample, ..)| *sample).collect();
    assert_eq!(found.keys().map(String::as_str).collect::<Vec<_>>(), listed);
    for (sample, framework, end) in SAMPLES {
        let plan = planned(Platform::Auto, &tree(&found[*sample]), &json!({}));
        let plan = plan.unwrap_or_else(|error| panic!("{sample}: {error}"));
        let why = format!("platform auto: this is {framework}, because of ");
        assert!(
            plan.notes.iter().any(|note| note.starts_with(&why)),
            "{sample}: {:?}",
            plan.notes
        );
        let instructions = read(text(&plan));
        let ends = if let Outcome::Static { looked_in, .. } = &plan.outcome {
            looked_in[0].clone()
        } else {
            let last = last_stage(&instructions).last().unwrap();
            last.json.as_ref().unwrap().join(" ")
        };
        assert!(ends.contains(end), "{sample}: {ends}");
        // Nothing of the sources but manifests is there when dependencies are installed, so that they stay.
        let installs = |command: &str| {
            let tools = [
                "npm ci",
                "pip install",
                "pnpm install",
                "uv sync",
                "yarn install",
            ];
            tools.iter().any(|it| command.contains(it))
        };
        let at = |is: &dyn Fn(&str, &str) -> bool| {
            let at = instructions.iter().position(|it| {
                let command = it
                    .json
                    .as_ref()
                    .map_or_else(|| it.rest.clone(), |words| words.join(" "));
                is(&it.name, &command)
            });
            at.unwrap_or_else(|| panic!("{sample}: {}", text(&plan)))
        };
        let installed = at(&|name, command| name == "RUN" && installs(command));
        let copied = at(&|name, command| {
            name == "COPY" && command.starts_with(". ") || command.ends_with("10001 . ./")
        });
        assert!(installed < copied, "{sample}: {}", text(&plan));
    }
}
