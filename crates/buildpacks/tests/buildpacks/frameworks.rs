//! What `auto` makes of the trees that the `create` commands of frameworks write.

use crate::expectations::Becomes::{self, App, Pages, Refused, Runs};
use crate::expectations::{check, package, tree};
use crate::support::Files;
use estrade_buildpacks::{Settings, detect};
use estrade_model::platform::Platform;
use serde_json::json;

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
