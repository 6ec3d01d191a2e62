//! Frameworks for Node.js that render pages, and may need a server for it.

use super::{
    FRAMEWORK, Framework, Keep, Output, SERVER, SITE, Server, Sign, Site, Start, VARIANT, Variant,
    server, site,
};
use estrade_model::platform::Platform;

const NEXT_CONFIG: &[&str] = &[
    "next.config.js",
    "next.config.mjs",
    "next.config.ts",
    "next.config.cjs",
];
const VITE_CONFIG: &[&str] = super::sites::VITE_CONFIG;
const NUXT_CONFIG: &[&str] = &["nuxt.config.ts", "nuxt.config.js", "nuxt.config.mjs"];
const KIT_CONFIG: &[&str] = &[
    "svelte.config.js",
    "svelte.config.ts",
    "vite.config.ts",
    "vite.config.js",
];
const ASTRO_CONFIG: &[&str] = &[
    "astro.config.mjs",
    "astro.config.ts",
    "astro.config.js",
    "astro.config.cjs",
];
const ROUTER_CONFIG: &[&str] = &["react-router.config.ts", "react-router.config.js"];
const START_CONFIG: &[&str] = &["app.config.ts", "app.config.js"];
/// Servers on 0.0.0.0 rather than on the container's own loopback.
const HOST: (&str, &str) = ("HOST", "0.0.0.0");

/// What Nitro makes: a server with all that it needs.
const NITRO: Output = Output::Server(Server {
    start: &[Start::Words(&["node", ".output/server/index.mjs"])],
    env: &[HOST],
    keep: &[Keep::Built("/app/.output", "./.output")],
});
const NITRO_IGNORED: &[&str] = &[".output", ".nuxt", ".nitro", ".vinxi"];
/// The same of a Nitro that was told to write files only.
const PRERENDERED: Output = site(Site {
    folders: &[".output/public", "dist"],
    ..SITE
});

const NEXT: Variant = Variant {
    build: &["next", "build"],
    build_env: &[("NEXT_TELEMETRY_DISABLED", "1")],
    remove: Some(".next/cache"),
    ignored: &["**/.next"],
    ..VARIANT
};
const NUXT: Variant = Variant {
    build: &["nuxt", "build"],
    build_env: &[("NUXT_TELEMETRY_DISABLED", "1")],
    ignored: NITRO_IGNORED,
    output: NITRO,
    ..VARIANT
};
const KIT: Variant = Variant {
    build: &["vite", "build"],
    ignored: &[".svelte-kit"],
    ..VARIANT
};
const ASTRO: Variant = Variant {
    build: &["astro", "build"],
    build_env: &[("ASTRO_TELEMETRY_DISABLED", "1")],
    ignored: &[".astro"],
    ..VARIANT
};
const ROUTER: Variant = Variant {
    build: &["react-router", "build"],
    ignored: &[".react-router"],
    ..VARIANT
};
const REMIX: Variant = Variant {
    build: &["remix", "vite:build"],
    ..VARIANT
};
const SOLID: Variant = Variant {
    build: &["vinxi", "build"],
    ignored: NITRO_IGNORED,
    output: NITRO,
    ..VARIANT
};

const CLIENT: Output = site(Site {
    folders: &["build/client"],
    spa: true,
    ..SITE
});

pub(super) const FRAMEWORKS: &[Framework] = &[
    Framework {
        name: "Next.js",
        platform: Platform::Next,
        signs: &[Sign::Package("next")],
        variants: &[
            Variant {
                when: &[Sign::Any(&[
                    Sign::Says(NEXT_CONFIG, "output", "export"),
                    Sign::Script("build", "next export"),
                ])],
                output: site(Site {
                    folders: &["out"],
                    ..SITE
                }),
                ..NEXT
            },
            Variant {
                // Those of a workspace are in a folder of its name.
                when: &[
                    Sign::Says(NEXT_CONFIG, "output", "standalone"),
                    Sign::Not(&[Sign::Text("package.json", "\"workspaces\"")]),
                ],
                output: Output::Server(Server {
                    start: &[Start::Words(&["node", "server.js"])],
                    // It would listen on the container's own name only.
                    env: &[("HOSTNAME", "0.0.0.0")],
                    keep: &[
                        Keep::Built("/app/.next/standalone", "./"),
                        Keep::Built("/app/.next/static", "./.next/static"),
                        Keep::Folder("/app/public", "./public"),
                    ],
                }),
                ..NEXT
            },
            Variant {
                output: server(&[Start::Words(&["next", "start"])]),
                ..NEXT
            },
        ],
        ..FRAMEWORK
    },
    Framework {
        name: "Nuxt",
        signs: &[Sign::Package("nuxt")],
        variants: &[
            Variant {
                when: &[Sign::Any(&[
                    Sign::Script("build", "nuxt generate"),
                    Sign::Script("build", "nuxi generate"),
                    Sign::Says(NUXT_CONFIG, "preset", "static"),
                ])],
                output: PRERENDERED,
                ..NUXT
            },
            NUXT,
            // For who chose a platform that ends as files.
            Variant {
                scripts: &["generate"],
                build: &["nuxt", "generate"],
                output: PRERENDERED,
                ..NUXT
            },
        ],
        ..FRAMEWORK
    },
    Framework {
        name: "SvelteKit",
        signs: &[Sign::Package("@sveltejs/kit")],
        variants: &[
            Variant {
                when: &[
                    Sign::Package("@sveltejs/adapter-static"),
                    Sign::Says(KIT_CONFIG, "fallback", "index.html"),
                ],
                output: site(Site {
                    folders: &["build"],
                    spa: true,
                    ..SITE
                }),
                ..KIT
            },
            Variant {
                when: &[Sign::Package("@sveltejs/adapter-static")],
                output: site(Site {
                    folders: &["build"],
                    ..SITE
                }),
                ..KIT
            },
            Variant {
                when: &[Sign::Package("@sveltejs/adapter-node")],
                // Without them it takes every request for one over HTTPS, and refuses forms of pages over HTTP as
                // those of another site. The edge writes both headers itself.
                output: Output::Server(Server {
                    start: &[Start::Words(&["node", "build"])],
                    env: &[
                        ("PROTOCOL_HEADER", "x-forwarded-proto"),
                        ("HOST_HEADER", "host"),
                    ],
                    ..SERVER
                }),
                ..KIT
            },
            Variant {
                when: &[Sign::PackagePrefix("@sveltejs/adapter-")],
                output: Output::Refused(
                    "this adapter of SvelteKit builds for another host; install @sveltejs/adapter-node (a server) or @sveltejs/adapter-static (files), and name it in the configuration",
                ),
                ..KIT
            },
            Variant {
                output: Output::Refused(
                    "SvelteKit has no adapter here; install @sveltejs/adapter-node (a server) or @sveltejs/adapter-static (files), and name it in the configuration",
                ),
                ..KIT
            },
        ],
        ..FRAMEWORK
    },
    Framework {
        name: "Astro",
        signs: &[Sign::Package("astro")],
        variants: &[
            Variant {
                when: &[
                    Sign::Package("@astrojs/node"),
                    Sign::Says(ASTRO_CONFIG, "mode", "middleware"),
                    Sign::Not(&[Sign::Starts]),
                ],
                output: Output::Refused(
                    "Astro's adapter node is in the mode `middleware`, which needs a server of yours; choose `mode: \"standalone\"`, or add a start script",
                ),
                ..ASTRO
            },
            Variant {
                when: &[Sign::Package("@astrojs/node")],
                output: Output::Server(Server {
                    start: &[Start::Words(&["node", "dist/server/entry.mjs"])],
                    env: &[HOST],
                    ..SERVER
                }),
                ..ASTRO
            },
            Variant {
                when: &[Sign::Any(&[
                    Sign::Says(ASTRO_CONFIG, "output", "server"),
                    Sign::Package("@astrojs/vercel"),
                    Sign::Package("@astrojs/netlify"),
                    Sign::Package("@astrojs/cloudflare"),
                ])],
                output: Output::Refused(
                    "Astro builds a server for another host here; install @astrojs/node and name it as the adapter in astro.config, or remove the adapter for a static site",
                ),
                ..ASTRO
            },
            Variant {
                output: site(Site {
                    configured_in: &[super::ConfigField::Named(ASTRO_CONFIG, "outDir")],
                    ..SITE
                }),
                ..ASTRO
            },
        ],
        ..FRAMEWORK
    },
    Framework {
        name: "React Router",
        signs: &[Sign::Package("@react-router/dev")],
        variants: &[
            Variant {
                when: &[Sign::Says(ROUTER_CONFIG, "ssr", "false")],
                output: CLIENT,
                ..ROUTER
            },
            Variant {
                output: server(&[Start::Words(&[
                    "react-router-serve",
                    "build/server/index.js",
                ])]),
                ..ROUTER
            },
        ],
        ..FRAMEWORK
    },
    Framework {
        name: "Remix",
        signs: &[Sign::Any(&[
            Sign::Package("@remix-run/dev"),
            Sign::Runtime("@remix-run/node"),
        ])],
        variants: &[
            Variant {
                when: &[Sign::Says(VITE_CONFIG, "ssr", "false")],
                output: CLIENT,
                ..REMIX
            },
            Variant {
                when: &[Sign::Package("vite")],
                output: server(&[Start::Words(&["remix-serve", "build/server/index.js"])]),
                ..REMIX
            },
            Variant {
                build: &["remix", "build"],
                output: server(&[Start::Words(&["remix-serve", "build/index.js"])]),
                ..REMIX
            },
        ],
        ..FRAMEWORK
    },
    Framework {
        name: "SolidStart",
        signs: &[Sign::Any(&[
            Sign::Package("@solidjs/start"),
            Sign::Package("solid-start"),
        ])],
        variants: &[
            Variant {
                when: &[Sign::Any(&[
                    Sign::Says(START_CONFIG, "preset", "static"),
                    Sign::Says(VITE_CONFIG, "preset", "static"),
                ])],
                output: PRERENDERED,
                ..SOLID
            },
            SOLID,
        ],
        ..FRAMEWORK
    },
    Framework {
        name: "TanStack Start",
        signs: &[Sign::Any(&[
            Sign::Package("@tanstack/react-start"),
            Sign::Package("@tanstack/solid-start"),
        ])],
        variants: &[
            Variant {
                when: &[Sign::Any(&[
                    Sign::Package("nitro"),
                    Sign::Package("nitropack"),
                    Sign::Package("vinxi"),
                ])],
                build: &["vite", "build"],
                ..SOLID
            },
            Variant {
                when: &[Sign::Not(&[Sign::Starts])],
                output: Output::Refused(
                    "TanStack Start has no server to deploy; add nitro to the dependencies and to vite.config, or add a start script",
                ),
                ..VARIANT
            },
            Variant {
                output: Output::Server(SERVER),
                ..VARIANT
            },
        ],
        ..FRAMEWORK
    },
    Framework {
        name: "Analog",
        signs: &[Sign::Package("@analogjs/platform")],
        variants: &[Variant {
            build: &["vite", "build"],
            output: Output::Server(Server {
                start: &[Start::Words(&["node", "dist/analog/server/index.mjs"])],
                env: &[HOST],
                keep: &[Keep::Built("/app/dist/analog", "./dist/analog")],
            }),
            ..VARIANT
        }],
        ..FRAMEWORK
    },
    Framework {
        name: "Nitro",
        signs: &[Sign::Any(&[
            Sign::Package("nitropack"),
            Sign::Package("nitro"),
        ])],
        variants: &[Variant {
            build: &["nitro", "build"],
            ignored: NITRO_IGNORED,
            output: NITRO,
            ..VARIANT
        }],
        ..FRAMEWORK
    },
];
