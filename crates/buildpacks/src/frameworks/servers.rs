//! Libraries for servers on Node.js, and what is left when no framework is known.

use super::{
    FRAMEWORK, Framework, Output, SERVER, Server, Sign, Site, Start, VARIANT, Variant, server, site,
};
use estrade_model::platform::Platform;

/// Where the server of a small application is, in JavaScript and in TypeScript.
const ENTRIES: &[Start] = &[
    Start::Built("dist/index.js"),
    Start::File("src/index.js"),
    Start::File("src/server.js"),
    Start::File("src/app.js"),
    Start::File("src/main.js"),
    Start::File("src/index.ts"),
    Start::File("src/server.ts"),
    Start::File("src/app.ts"),
    Start::File("src/main.ts"),
    Start::File("index.ts"),
    Start::File("server.ts"),
];
const ENTRY: Variant = Variant {
    output: server(ENTRIES),
    ..VARIANT
};

const LIBRARY: Framework = Framework {
    platform: Platform::Node,
    is_library: true,
    variants: &[ENTRY],
    ..FRAMEWORK
};

/// An application that a person starts, with or without a script for it.
const STARTED: Sign = Sign::Any(&[
    Sign::Starts,
    Sign::File("src/index.js"),
    Sign::File("src/server.js"),
    Sign::File("src/app.js"),
    Sign::File("src/server.ts"),
    Sign::File("src/app.ts"),
    Sign::File("index.ts"),
    Sign::File("server.ts"),
]);

/// Those that are known by a library, before front ends are looked for: both may be in one `package.json`.
pub(super) const LIBRARIES: &[Framework] = &[
    Framework {
        name: "NestJS",
        signs: &[Sign::Runtime("@nestjs/core")],
        variants: &[Variant {
            build: &["nest", "build"],
            output: server(&[
                Start::Named("start:prod"),
                Start::Words(&["node", "dist/main.js"]),
            ]),
            ..VARIANT
        }],
        ..LIBRARY
    },
    Framework {
        name: "Hono",
        signs: &[Sign::Runtime("hono")],
        variants: &[
            Variant {
                when: &[Sign::Any(&[
                    Sign::Package("@hono/node-server"),
                    Sign::Starts,
                ])],
                ..ENTRY
            },
            Variant {
                output: Output::Refused(
                    "Hono is built for another host here; add @hono/node-server and a start script",
                ),
                ..ENTRY
            },
        ],
        ..LIBRARY
    },
    Framework {
        name: "Express",
        signs: &[Sign::Runtime("express"), STARTED],
        ..LIBRARY
    },
    Framework {
        name: "Fastify",
        signs: &[Sign::Runtime("fastify"), STARTED],
        ..LIBRARY
    },
    Framework {
        name: "Koa",
        signs: &[Sign::Runtime("koa"), STARTED],
        ..LIBRARY
    },
    Framework {
        name: "hapi",
        signs: &[Sign::Runtime("@hapi/hapi"), STARTED],
        ..LIBRARY
    },
];

/// What any other `package.json` is.
pub(super) const PLAIN: &[Framework] = &[
    Framework {
        name: "Node.js",
        signs: &[Sign::File("package.json"), Sign::Starts],
        ..LIBRARY
    },
    Framework {
        name: "a front end",
        signs: &[
            Sign::Any(&[Sign::Publishes, Sign::Script("build", "")]),
            Sign::File("package.json"),
        ],
        variants: &[Variant {
            scripts: &["build", "build:prod", "generate"],
            output: site(Site {
                folders: &[],
                configured_in: super::sites::CONFIGS,
                spa: true,
            }),
            ..VARIANT
        }],
        ..FRAMEWORK
    },
    Framework {
        name: "a static site",
        platform: Platform::Static,
        signs: &[Sign::File("package.json"), Sign::File("index.html")],
        ..FRAMEWORK
    },
    Framework {
        name: "Node.js",
        signs: &[Sign::File("package.json")],
        variants: &[Variant {
            output: Output::Server(Server {
                start: ENTRIES,
                ..SERVER
            }),
            ..VARIANT
        }],
        ..LIBRARY
    },
];
