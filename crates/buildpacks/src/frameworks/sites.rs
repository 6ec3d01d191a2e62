//! Tools that build static sites with Node.js.

use super::{
    ConfigField, FRAMEWORK, Framework, Output, SITE, Sign, Site, Start, VARIANT, Variant, server,
    site,
};
use estrade_model::platform::Platform;

pub(super) const VITE_CONFIG: &[&str] = &[
    "vite.config.ts",
    "vite.config.js",
    "vite.config.mts",
    "vite.config.mjs",
    "vite.config.cts",
    "vite.config.cjs",
];
const VUE_CONFIG: &[&str] = &["vue.config.js", "vue.config.cjs", "vue.config.mjs"];
/// What names the folder of a build that nobody knows.
pub(super) const CONFIGS: &[ConfigField] = &[
    ConfigField::Named(VITE_CONFIG, "outDir"),
    ConfigField::Named(VUE_CONFIG, "outputDir"),
];
const ELEVENTY_CONFIG: &[&str] = &[
    "eleventy.config.js",
    "eleventy.config.mjs",
    "eleventy.config.cjs",
    "eleventy.config.ts",
    ".eleventy.js",
];

/// Pages that are files each.
const fn pages(folders: &'static [&'static str]) -> Output {
    site(Site { folders, ..SITE })
}

/// One page that shows others itself.
const fn application(folders: &'static [&'static str]) -> Output {
    site(Site {
        folders,
        spa: true,
        ..SITE
    })
}

const VITE: Variant = Variant {
    build: &["vite", "build"],
    output: site(Site {
        folders: &["dist"],
        configured_in: &[ConfigField::Named(VITE_CONFIG, "outDir")],
        spa: true,
    }),
    ..VARIANT
};
const VITE_SIGNS: [Sign; 2] = [
    Sign::Package("vite"),
    Sign::Any(&[
        Sign::File("index.html"),
        Sign::Script("build", "vite build"),
    ]),
];
const ANGULAR: Variant = Variant {
    build: &["ng", "build"],
    ignored: &[".angular", "dist"],
    output: site(Site {
        folders: &["dist"],
        configured_in: &[ConfigField::Angular],
        spa: true,
    }),
    ..VARIANT
};

pub(super) const GENERATORS: &[Framework] = &[
    Framework {
        name: "Gatsby",
        signs: &[Sign::Package("gatsby")],
        variants: &[Variant {
            build: &["gatsby", "build"],
            build_env: &[("GATSBY_TELEMETRY_DISABLED", "1")],
            ignored: &[".cache"],
            output: pages(&["public"]),
            ..VARIANT
        }],
        ..FRAMEWORK
    },
    Framework {
        name: "Docusaurus",
        signs: &[Sign::Package("@docusaurus/core")],
        variants: &[Variant {
            build: &["docusaurus", "build"],
            ignored: &[".docusaurus"],
            output: pages(&["build"]),
            ..VARIANT
        }],
        ..FRAMEWORK
    },
    Framework {
        name: "VitePress",
        signs: &[Sign::Package("vitepress"), Sign::BuildsWith("vitepress")],
        variants: &[Variant {
            scripts: &["docs:build", "build"],
            build: &["vitepress", "build"],
            output: pages(&["*/.vitepress/dist"]),
            ..VARIANT
        }],
        ..FRAMEWORK
    },
    Framework {
        name: "VuePress",
        signs: &[Sign::Package("vuepress"), Sign::BuildsWith("vuepress")],
        variants: &[Variant {
            scripts: &["docs:build", "build"],
            build: &["vuepress", "build"],
            output: pages(&["*/.vuepress/dist"]),
            ..VARIANT
        }],
        ..FRAMEWORK
    },
];

pub(super) const FRONT_ENDS: &[Framework] = &[
    Framework {
        name: "Angular",
        platform: Platform::Angular,
        signs: &[
            Sign::File("angular.json"),
            Sign::Not(&[Sign::Package("@ionic/angular")]),
        ],
        variants: &[
            Variant {
                when: &[
                    Sign::Package("@angular/ssr"),
                    Sign::Any(&[
                        Sign::Text("angular.json", "\"outputMode\": \"server\""),
                        Sign::Text("package.json", "\"serve:ssr:"),
                    ]),
                ],
                output: server(&[Start::Named("serve:ssr:*")]),
                ..ANGULAR
            },
            ANGULAR,
        ],
        ..FRAMEWORK
    },
    Framework {
        name: "Create React App",
        platform: Platform::React,
        signs: &[Sign::Any(&[
            Sign::Package("react-scripts"),
            Sign::Package("@craco/craco"),
        ])],
        variants: &[Variant {
            build: &["react-scripts", "build"],
            output: application(&["build"]),
            ..VARIANT
        }],
        ..FRAMEWORK
    },
    Framework {
        name: "Vue CLI",
        platform: Platform::Vue,
        signs: &[Sign::Package("@vue/cli-service")],
        variants: &[Variant {
            build: &["vue-cli-service", "build"],
            output: site(Site {
                folders: &["dist"],
                configured_in: &[ConfigField::Named(VUE_CONFIG, "outputDir")],
                spa: true,
            }),
            ..VARIANT
        }],
        ..FRAMEWORK
    },
    Framework {
        name: "Quasar",
        signs: &[Sign::Any(&[
            Sign::Package("@quasar/app-vite"),
            Sign::Package("@quasar/app-webpack"),
        ])],
        variants: &[Variant {
            build: &["quasar", "build"],
            output: application(&["dist/spa"]),
            ..VARIANT
        }],
        ..FRAMEWORK
    },
    Framework {
        name: "Eleventy",
        signs: &[
            Sign::Package("@11ty/eleventy"),
            Sign::BuildsWith("eleventy"),
        ],
        variants: &[Variant {
            build: &["eleventy"],
            ignored: &["_site"],
            output: site(Site {
                folders: &["_site"],
                configured_in: &[ConfigField::Named(ELEVENTY_CONFIG, "output")],
                spa: false,
            }),
            ..VARIANT
        }],
        ..FRAMEWORK
    },
    Framework {
        name: "Hexo",
        signs: &[Sign::Package("hexo")],
        variants: &[Variant {
            build: &["hexo", "generate"],
            output: pages(&["public"]),
            ..VARIANT
        }],
        ..FRAMEWORK
    },
    Framework {
        name: "Preact CLI",
        signs: &[Sign::Package("preact-cli")],
        variants: &[Variant {
            build: &["preact", "build"],
            output: application(&["build"]),
            ..VARIANT
        }],
        ..FRAMEWORK
    },
    Framework {
        name: "Vite with React",
        platform: Platform::React,
        signs: &[VITE_SIGNS[0], VITE_SIGNS[1], Sign::Package("react")],
        variants: &[VITE],
        ..FRAMEWORK
    },
    Framework {
        name: "Vite with Vue",
        platform: Platform::Vue,
        signs: &[VITE_SIGNS[0], VITE_SIGNS[1], Sign::Package("vue")],
        variants: &[VITE],
        ..FRAMEWORK
    },
    Framework {
        name: "Vite",
        signs: &VITE_SIGNS,
        variants: &[VITE],
        ..FRAMEWORK
    },
    Framework {
        name: "Parcel",
        signs: &[Sign::Any(&[
            Sign::Package("parcel"),
            Sign::Package("parcel-bundler"),
        ])],
        variants: &[Variant {
            build: &["parcel", "build", "index.html"],
            ignored: &[".parcel-cache"],
            output: application(&["dist"]),
            ..VARIANT
        }],
        ..FRAMEWORK
    },
    Framework {
        name: "Rsbuild",
        signs: &[Sign::Package("@rsbuild/core")],
        variants: &[Variant {
            build: &["rsbuild", "build"],
            output: application(&["dist"]),
            ..VARIANT
        }],
        ..FRAMEWORK
    },
    Framework {
        name: "Ionic",
        signs: &[Sign::Any(&[
            Sign::Package("@ionic/cli"),
            Sign::Package("@ionic/angular"),
        ])],
        variants: &[Variant {
            output: application(&["www", "dist"]),
            ..VARIANT
        }],
        ..FRAMEWORK
    },
    Framework {
        name: "Storybook",
        signs: &[
            Sign::Package("storybook"),
            Sign::Not(&[Sign::Starts]),
            Sign::BuildsWith("storybook"),
        ],
        variants: &[Variant {
            scripts: &["build-storybook", "build"],
            build: &["storybook", "build"],
            build_env: &[("STORYBOOK_DISABLE_TELEMETRY", "1")],
            output: application(&["storybook-static"]),
            ..VARIANT
        }],
        ..FRAMEWORK
    },
];
