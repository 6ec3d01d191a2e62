//! Frameworks: by what signs each is known, what builds it, and what its build leaves.
//!
//! The table is data; [`find`] and the buildpacks interpret it. `docs/BUILDS.md` has the same table for users, and a test
//! compares both.

mod find;
mod servers;
mod sign;
mod sites;
mod table;
mod universal;

pub use find::Detected;
pub(crate) use find::{
    Found, choose, choose_next, python_starts, refuse_several, server_for, site_for,
};
pub(crate) use sign::{Facts, Sign, is_for_development};

use estrade_model::platform::Platform;

/// A framework, or another kind of sources.
pub(crate) struct Framework {
    /// As people call it.
    pub(crate) name: &'static str,
    /// Whose buildpack builds it; [`Platform::Auto`] when it has no platform of its own.
    pub(crate) platform: Platform,
    /// Whether it is only a library for a server: a front end beside it is built without it.
    pub(crate) is_library: bool,
    /// All of them must be there.
    pub(crate) signs: &'static [Sign],
    /// What it may be built to; the first whose signs are there.
    pub(crate) variants: &'static [Variant],
}

/// A way in which a framework is built.
#[derive(Clone, Copy)]
pub(crate) struct Variant {
    /// All of them must be there.
    pub(crate) when: &'static [Sign],
    /// Scripts of `package.json` that build it; the first that is there.
    pub(crate) scripts: &'static [&'static str],
    /// The program that builds it when there is no such script.
    pub(crate) build: &'static [&'static str],
    /// Environment variables of the build.
    pub(crate) build_env: &'static [(&'static str, &'static str)],
    /// What a build leaves that nobody needs.
    pub(crate) remove: Option<&'static str>,
    /// Folders and files that a build on a developer's machine leaves; they are left out.
    pub(crate) ignored: &'static [&'static str],
    /// What comes out of it.
    pub(crate) output: Output,
}

/// What a build leaves.
#[derive(Clone, Copy)]
pub(crate) enum Output {
    /// Files that are served.
    Site(Site),
    /// Something that is started.
    Server(Server),
    /// Something that only another host can run. Says what to do instead.
    Refused(&'static str),
    /// A file of Python that is started.
    Python(PythonFile),
    /// What the buildpack of the platform finds out itself.
    Platform,
}

/// A site.
#[derive(Clone, Copy)]
pub(crate) struct Site {
    /// Where it is; the likely folder first. `*/.x/y` is the folder `.x/y` wherever the sources have `.x`.
    pub(crate) folders: &'static [&'static str],
    /// Configurations that name the folder instead.
    pub(crate) configured_in: &'static [ConfigField],
    /// Whether it is an application that shows `index.html` for paths without a file.
    pub(crate) spa: bool,
}

/// A field of a configuration file.
#[derive(Clone, Copy)]
pub(crate) enum ConfigField {
    /// A field that is plainly there, in the first of these files.
    Named(&'static [&'static str], &'static str),
    /// `outputPath` in `angular.json`.
    Angular,
}

/// A server.
#[derive(Clone, Copy)]
pub(crate) struct Server {
    /// What starts it when neither settings nor a script `start` say so; the first that is possible.
    pub(crate) start: &'static [Start],
    /// Its environment, beside `PORT` and `NODE_ENV`.
    pub(crate) env: &'static [(&'static str, &'static str)],
    /// All that it needs; nothing when it needs everything.
    pub(crate) keep: &'static [Keep],
}

/// What a server keeps of its build.
#[derive(Clone, Copy)]
pub(crate) enum Keep {
    /// What the build writes, and where it goes.
    Built(&'static str, &'static str),
    /// A folder of the sources, when it is there.
    Folder(&'static str, &'static str),
}

/// What may start a server.
#[derive(Clone, Copy)]
pub(crate) enum Start {
    /// A script of `package.json`; with `*` at its end, the first that begins so.
    Named(&'static str),
    /// These words.
    Words(&'static [&'static str]),
    /// A file that the script `build` writes.
    Built(&'static str),
    /// A file of the sources.
    File(&'static str),
}

/// A file of Python that is started.
#[derive(Clone, Copy)]
pub(crate) struct PythonFile {
    /// Where it usually is.
    pub(crate) files: &'static [&'static str],
    /// The calls that make an application, whose name is part of the line; nothing when a file is enough.
    pub(crate) makers: &'static [&'static str],
    /// The line for a shell, with `{file}` or `{app}`.
    pub(crate) line: &'static str,
    /// A package that it needs and that may not be listed.
    pub(crate) needs: Option<&'static str>,
}

pub(crate) const SITE: Site = Site {
    folders: &["dist"],
    configured_in: &[],
    spa: false,
};
pub(crate) const SERVER: Server = Server {
    start: &[],
    env: &[],
    keep: &[],
};
pub(crate) const VARIANT: Variant = Variant {
    when: &[],
    scripts: &["build"],
    build: &[],
    build_env: &[],
    remove: None,
    ignored: &[],
    output: Output::Platform,
};
pub(crate) const FRAMEWORK: Framework = Framework {
    name: "",
    platform: Platform::Auto,
    is_library: false,
    signs: &[],
    variants: &[VARIANT],
};

/// Shorter to read in a table.
pub(crate) const fn site(site: Site) -> Output {
    Output::Site(site)
}

/// Shorter to read in a table.
pub(crate) const fn server(start: &'static [Start]) -> Output {
    Output::Server(Server { start, ..SERVER })
}
