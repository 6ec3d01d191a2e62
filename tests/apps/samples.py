"""The sample applications: what each is, and how it shows that it works.

A sample is a small tree of our own, as the framework's generator makes it, with a lock file. All but those with
`always` are run by `./test --full` only. Standard library only."""

from dataclasses import dataclass, field

# What our own page for files that are not there says.
NO_SUCH_FILE = (404, "Page not found")


@dataclass(frozen=True)
class Sample:
    """A tree in a folder beside this file, or in `folder`."""

    # What the build log says it is.
    framework: str
    # What the first page contains.
    title: str
    # The file that says so, where the second release says something else.
    file: str
    # The status and a text of the response for a path that is not there.
    unknown: tuple[int, str]
    # What the second release listens on, when it is a server.
    port: int | None = None
    # The step that installs.
    install: str = "npm ci"
    # Whether every run has it.
    always: bool = False
    folder: str | None = None
    # Files that are there beside those of the folder.
    files: dict[str, str] = field(default_factory=dict)
    # A form that a page of it sends: the path, the body, and a text of the response.
    form: tuple[str, str, str] | None = None
    plan: str = "nano"


PIP = "pip install"
SAMPLES = {
    # Sites with one page that shows others itself.
    "vite-react": Sample(
        "Vite with React", "<title>Hello from Vite</title>", "index.html", (200, "Hello from Vite"), always=True
    ),
    "vite-vue": Sample(
        "Vite with Vue", "<title>Hello from Vue</title>", "index.html", (200, "Hello from Vue")
    ),
    "vite-svelte": Sample("Vite", "<title>Hello from Svelte</title>", "index.html", (200, "Hello from Svelte")),
    "vite-preact": Sample("Vite", "<title>Hello from Preact</title>", "index.html", (200, "Hello from Preact")),
    "angular": Sample(
        "Angular", "<title>Hello from Angular</title>", "src/index.html", (200, "Hello from Angular")
    ),
    "parcel": Sample("Parcel", "<title>Hello from Parcel</title>", "src/index.html", (200, "Hello from Parcel")),
    "angular-browser": Sample(
        "Angular",
        "<title>Hello from the browser builder</title>",
        "src/index.html",
        (200, "Hello from the browser builder"),
    ),
    "vue-cli": Sample(
        "Vue CLI", "<title>Hello from Vue CLI</title>", "public/index.html", (200, "Hello from Vue CLI")
    ),
    "create-react-app": Sample(
        "Create React App",
        "<title>Hello from Create React App</title>",
        "public/index.html",
        (200, "Hello from Create React App"),
    ),
    "pnpm": Sample(
        "Vite", "<title>Hello from pnpm</title>", "index.html", (200, "Hello from pnpm"), install="pnpm install"
    ),
    "vercel-json": Sample(
        "Vite with Vue",
        "<title>Hello from Vue</title>",
        "index.html",
        (200, "Hello from Vue"),
        folder="tests/apps/vite-vue",
        files={"vercel.json": '{"buildCommand": "npx vite build --outDir site", "outputDirectory": "site"}'},
    ),
    # Sites with a file for each page.
    "eleventy": Sample("Eleventy", "<h1>Hello from Eleventy</h1>", "index.md", NO_SUCH_FILE, always=True),
    "netlify-toml": Sample(
        "Eleventy",
        "<h1>Hello from Eleventy</h1>",
        "index.md",
        NO_SUCH_FILE,
        folder="tests/apps/eleventy",
        files={"netlify.toml": '[build]\ncommand = "npx eleventy --output=pages"\npublish = "pages"\n'},
    ),
    "sveltekit-static": Sample(
        "SvelteKit", "Hello from SvelteKit", "src/routes/+page.svelte", NO_SUCH_FILE
    ),
    "vitepress": Sample(
        "VitePress", "<title>Hello from VitePress", "docs/index.md", (404, "404"), always=True
    ),
    "vuepress": Sample("VuePress", "<title>Hello from VuePress", "docs/README.md", (404, "404")),
    "astro": Sample(
        "Astro",
        "<title>Hello from Astro</title>",
        "src/pages/index.astro",
        (404, "Nothing here, says Astro"),
        always=True,
    ),
    "next-export": Sample(
        "Next.js", "<title>Hello from an exported Next.js", "app/layout.js", (404, "This page could not be found")
    ),
    "docusaurus": Sample(
        "Docusaurus", "Hello from Docusaurus", "src/pages/index.md", (404, "Page Not Found")
    ),
    "gatsby": Sample("Gatsby", "Hello from Gatsby", "src/pages/index.js", (404, "No such page in Gatsby")),
    "hexo": Sample("Hexo", "<title>Hello from Hexo</title>", "_config.yml", NO_SUCH_FILE),
    "storybook": Sample(
        "Storybook",
        'content="Hello from Storybook"',
        ".storybook/manager-head.html",
        (200, "Hello from Storybook"),
    ),
    # Servers.
    "express": Sample(
        "Express",
        "Hello from Express",
        "server.js",
        (404, "Cannot GET /nothing-here"),
        port=4001,
        always=True,
        folder="examples/node",
    ),
    "fastify": Sample(
        "Fastify",
        "<title>Hello from Fastify</title>",
        "server.js",
        (404, "Route GET:/nothing-here not found"),
        port=4002,
        always=True,
    ),
    "koa": Sample("Koa", "<title>Hello from Koa</title>", "app.js", (404, "Not Found"), port=4003),
    "hono": Sample("Hono", "Hello from Hono", "src/index.ts", (404, "404 Not Found"), port=4004, always=True),
    "plain-node": Sample(
        "Node.js",
        "<title>Hello from Node.js</title>",
        "server.js",
        (404, "Nothing here, says Node.js"),
        port=4019,
    ),
    "procfile": Sample(
        "Node.js",
        "<title>Hello from a Procfile</title>",
        "web.js",
        (200, "Hello from a Procfile"),
        port=4020,
        folder="tests/apps/plain-node",
        files={
            "Procfile": "web: node web.js\n",
            "web.js": 'const page = "<title>Hello from a Procfile</title>";\n'
            "const server = require('node:http').createServer((_, response) => response.end(page));\n"
            "server.listen(process.env.PORT);\n",
        },
    ),
    "yarn": Sample(
        "Koa", "<title>Hello from Yarn</title>", "app.js", (404, "Not Found"), port=4021, install="yarn install"
    ),
    "nestjs": Sample(
        "NestJS",
        "<title>Hello from Nest</title>",
        "src/main.ts",
        (404, "Cannot GET /nothing-here"),
        port=4005,
    ),
    "nitro": Sample(
        "Nitro", "<title>Hello from Nitro</title>", "server/routes/index.ts", (404, "nothing-here"), port=4006
    ),
    "sveltekit": Sample(
        "SvelteKit",
        "Hello from SvelteKit",
        "src/routes/+page.svelte",
        (404, "Not Found"),
        port=4007,
        always=True,
        form=("/", "name=Ada", "The form is from Ada"),
    ),
    "nuxt": Sample(
        "Nuxt",
        "<title>Hello from Nuxt</title>",
        "app/pages/index.vue",
        (404, "Page not found: /nothing-here"),
        port=4008,
    ),
    "next": Sample(
        "Next.js",
        "<title>Hello from Next.js</title>",
        "app/layout.js",
        (404, "This page could not be found"),
        port=4009,
        always=True,
    ),
    "next-standalone": Sample(
        "Next.js",
        "<title>Hello from a standalone Next.js</title>",
        "app/layout.js",
        (404, "This page could not be found"),
        port=4022,
    ),
    "astro-node": Sample(
        "Astro",
        "<title>Hello from Astro on Node.js</title>",
        "src/pages/index.astro",
        (404, "Not Found"),
        port=4010,
    ),
    "react-router": Sample(
        "React Router",
        "<title>Hello from React Router</title>",
        "app/routes/home.jsx",
        (404, "Not Found"),
        port=4011,
        always=True,
    ),
    "remix": Sample(
        "Remix", "<title>Hello from Remix</title>", "app/routes/_index.jsx", (404, "Unhandled Thrown Response!"), port=4012
    ),
    "solid-start": Sample(
        "SolidStart",
        "<title>Hello from SolidStart</title>",
        "src/entry-server.jsx",
        (404, "Nothing here, says Solid"),
        port=4013,
    ),
    # Python.
    "django": Sample(
        "Django",
        "Hello from Django",
        "shop/urls.py",
        (404, "Not Found"),
        port=4014,
        install=PIP,
        always=True,
        folder="examples/django",
    ),
    "flask": Sample(
        "Flask", "<title>Hello from Flask</title>", "app.py", (404, "Not Found"), port=4015, install=PIP
    ),
    "fastapi": Sample(
        "FastAPI",
        "<title>Hello from FastAPI</title>",
        "main.py",
        (404, '{"detail":"Not Found"}'),
        port=4016,
        install=PIP,
        always=True,
    ),
    "fastapi-uv": Sample(
        "FastAPI",
        "<title>Hello from FastAPI and uv</title>",
        "main.py",
        (404, '{"detail":"Not Found"}'),
        port=4023,
        install="uv sync",
    ),
    "starlette": Sample(
        "Starlette",
        "<title>Hello from Starlette</title>",
        "main.py",
        (404, "Not Found"),
        port=4024,
        install=PIP,
    ),
    "plain-python": Sample(
        "Python",
        "<title>Hello from Python</title>",
        "main.py",
        (404, "Nothing here, says Python"),
        port=4025,
        install=PIP,
    ),
    # It shows one page for every path, and the title in it.
    "streamlit": Sample("Streamlit", "<title>Streamlit</title>", "app.py", (200, "<title>Streamlit</title>"), port=4017, install=PIP),
    "gradio": Sample("Gradio", "Hello from Gradio", "app.py", (404, "Not Found"), port=4018, install=PIP),
}


@dataclass(frozen=True)
class Broken:
    """A sample with changes that keep it from working."""

    sample: str
    # Files that differ; those with None are not there.
    files: dict[str, str | None]
    # The first line of the release's message.
    message: str


BROKEN = {
    "wrong-folder": Broken(
        "eleventy",
        {"estrade.json": '{"auto": {"outputDir": "public_html"}}'},
        'the build wrote no index.html to public_html, but there is one in _site; set platformConfig.outputDir to "_site" if that is the site',
    ),
    "secret-mount": Broken(
        "koa",
        {"Dockerfile": "FROM node:22-slim\nRUN --mount=type=secret,id=npm npm ci\n"},
        "Dockerfile: RUN --mount=type=secret,id=npm: builds get no secrets; fetch what needs one before you deploy, or name "
        "it in build.args if everybody with the image may know it",
    ),
    "no-start-script": Broken(
        "fastify",
        {
            "package.json": '{"type": "module", "dependencies": {"fastify": "5.12.8"}}',
            "server.js": None,
            "lib/listen.js": "",
        },
        "package.json: does not say what to start; looked for a script `start`, a file in `main`, and server.js, index.js, "
        "app.js, main.js, server.mjs, index.mjs, app.mjs, main.mjs; add \"scripts\": {\"start\": \"node my-file.js\"}, or "
        "set platformConfig.startCommand to what starts the app",
    ),
}
