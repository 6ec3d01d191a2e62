//! What package managers, compilers and the engine print when something is wrong, and what that means.
//!
//! The tables are data. A row with what was printed first in the order of causes comes first: pip says "no matching
//! distribution" also when there is no network.

/// Most characters of a name that is taken from the output.
const MAX_NAME_CHARS: usize = 100;

/// What is printed, and what it means.
pub(super) struct Pattern {
    /// Each must be in some line. `{}` is a name that the sentence can have.
    signs: &'static [&'static str],
    /// One sentence with what to do; `{}` is the name, `{memory}` the memory of a step.
    sentence: &'static str,
}

impl Pattern {
    /// The sentence, if these lines have the signs.
    pub(super) fn explain<'l>(
        &self,
        lines: &(impl IntoIterator<Item = &'l str> + Clone),
    ) -> Option<String> {
        let mut name = None;
        for sign in self.signs {
            let found = lines
                .clone()
                .into_iter()
                .find_map(|line| find(line, sign))?;
            name = name.or(found);
        }
        Some(self.sentence.replace("{}", name.unwrap_or("?")))
    }
}

/// The name at the place of `{}`; none inside when the sign has no such place.
#[expect(clippy::option_option, reason = "found without a name, and not found")]
fn find<'l>(line: &'l str, sign: &str) -> Option<Option<&'l str>> {
    let Some((before, after)) = sign.split_once("{}") else {
        return line.contains(sign).then_some(None);
    };
    line.match_indices(before).find_map(|(at, _)| {
        let rest = line.get(at + before.len()..)?;
        // No further than a name may be: one sign begins with it, and would look from every place to the end.
        let most = rest.len().min(MAX_NAME_CHARS + 2);
        let mut bytes = rest.bytes().take(most);
        let end = bytes.position(|byte| !is_part_of_name(char::from(byte)));
        let end = end.unwrap_or(most);
        let (name, rest) = rest.split_at(end);
        // A full stop behind a name is the sentence's.
        let trimmed = name.trim_end_matches(['.', '@', '=']);
        let is_sane = !trimmed.is_empty() && trimmed.chars().count() <= MAX_NAME_CHARS;
        (is_sane && rest.starts_with(after)).then_some(Some(trimmed))
    })
}

/// Names of packages, files and hosts, with versions. What an address has beside them may be a secret.
fn is_part_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "@/._-+~^<>=!*".contains(c)
}

const fn row(signs: &'static [&'static str], sentence: &'static str) -> Pattern {
    Pattern { signs, sentence }
}

const NO_NETWORK: &str = "`{}` could not be reached from the build; try again, and if it stays so, ask whoever runs this installation: its DNS, its proxy or docker.egress may be in the way";
const NO_REGISTRY: &str = "the registry of packages could not be reached from the build; try again, and if it stays so, ask whoever runs this installation: its DNS, its proxy or docker.egress may be in the way";
const MEMORY: &str = "the step needs more than {memory} MiB of memory and was killed; make it need less, or raise docker.build_memory_mb";
const NPM_LOCK: &str = "the lock file of npm does not fit package.json; run `npm install`, and deploy again with the new lock file";
const PNPM_LOCK: &str = "pnpm-lock.yaml does not fit package.json; run `pnpm install`, and deploy again with the new lock file";
const YARN_LOCK: &str = "yarn.lock does not fit package.json; run `yarn install`, and deploy again with the new lock file";
const BUN_LOCK: &str = "the lock file of Bun does not fit package.json; run `bun install`, and deploy again with the new lock file";
const NPM_PEERS: &str = "packages in package.json need versions of each other that do not fit; choose versions that do, or put `legacy-peer-deps=true` into .npmrc and commit the lock file that `npm install` writes then";
const NO_PACKAGE: &str = "there is no package `{}` in the registry; correct its name in package.json, or add an .npmrc that says where a private one is";
const NO_VERSION: &str =
    "no version of `{}` fits what package.json asks for; choose one that exists";
const LOGIN: &str = "the registry of packages wants a login; put `${NPM_TOKEN}` into .npmrc and its value into build.args";
const NODE_VERSION: &str = "a package does not support this version of Node.js; set engines.node in package.json, or platformConfig.version, to one that it supports";
const MISSING_MODULE: &str = "the module `{}` is not installed; add it to the dependencies in package.json, or correct its path: names are case-sensitive here";
const COMPILER: &str = "a package has to be compiled, and there is no compiler in the image; add \"build-essential\" to platformConfig.packages, or choose a version of the package that needs none";

/// What the steps of a build print.
pub(super) const OUTPUTS: &[Pattern] = &[
    // Memory and disk.
    row(
        &["JavaScript heap out of memory"],
        "Node.js ran out of memory; put NODE_OPTIONS=--max-old-space-size=4096 into build.args, and raise docker.build_memory_mb above {memory} if that is not enough",
    ),
    row(&["npm error signal SIGKILL"], MEMORY),
    row(&["npm ERR! signal SIGKILL"], MEMORY),
    row(&["Command failed with signal \"SIGKILL\""], MEMORY),
    row(&["signal: killed"], MEMORY),
    row(&["Cannot allocate memory"], MEMORY),
    row(
        &["o space left on device"],
        "the disk of the container engine is full; ask whoever runs this installation to make room",
    ),
    // The network. Before all that follows from it.
    row(&["getaddrinfo EAI_AGAIN {}"], NO_NETWORK),
    row(&["getaddrinfo ENOTFOUND {}"], NO_NETWORK),
    row(&["Could not resolve host: {}"], NO_NETWORK),
    row(&["Temporary failure resolving '{}'"], NO_NETWORK),
    row(&["lookup {} on ", "dial "], NO_NETWORK),
    row(&["lookup {}: no such host"], NO_NETWORK),
    row(&["Failed to establish a new connection"], NO_REGISTRY),
    row(&["Temporary failure in name resolution"], NO_REGISTRY),
    row(&["npm error code ETIMEDOUT"], NO_REGISTRY),
    row(&["npm error code ENETUNREACH"], NO_REGISTRY),
    row(&["npm ERR! code ETIMEDOUT"], NO_REGISTRY),
    row(&["Network is unreachable"], NO_REGISTRY),
    row(&["ReadTimeoutError("], NO_REGISTRY),
    row(
        &["Unable to load the service index for source"],
        NO_REGISTRY,
    ),
    row(
        &["connect ECONNREFUSED {}"],
        "the build connects to {}, and nothing listens there while an image is built; do that when the app starts",
    ),
    // npm.
    row(
        &["can only install packages when your package.json and package-lock.json"],
        NPM_LOCK,
    ),
    row(
        &["can only install with an existing package-lock.json"],
        "`npm ci` needs a package-lock.json; run `npm install`, and deploy again with the file that it writes",
    ),
    row(
        &["code ERESOLVE", "peer {}\"", "from "],
        "packages ask for versions of `{}` that do not fit each other; choose versions that do, or put `legacy-peer-deps=true` into .npmrc and commit the lock file that `npm install` writes then",
    ),
    row(&["code ERESOLVE"], NPM_PEERS),
    row(&["ERESOLVE could not resolve"], NPM_PEERS),
    row(&["'{}' is not in this registry"], NO_PACKAGE),
    row(&["No matching version found for {}"], NO_VERSION),
    row(&["code E401"], LOGIN),
    row(&["code E403"], LOGIN),
    row(&["code ENEEDAUTH"], LOGIN),
    row(&["code EBADENGINE"], NODE_VERSION),
    row(
        &["code EINTEGRITY"],
        "a package is not what the lock file says; remove it from the lock file, run `npm install`, and deploy again",
    ),
    row(
        &["Missing script: \"{}\""],
        "package.json has no script `{}`; add it, or say with build.command what builds the project",
    ),
    // pnpm, Yarn, Bun.
    row(&["ERR_PNPM_OUTDATED_LOCKFILE"], PNPM_LOCK),
    row(&["ERR_PNPM_LOCKFILE_CONFIG_MISMATCH"], PNPM_LOCK),
    row(
        &["ERR_PNPM_FETCH_404"],
        "a package that package.json names is not in the registry; correct its name, or add an .npmrc that says where a private one is",
    ),
    row(&["ERR_PNPM_UNSUPPORTED_ENGINE"], NODE_VERSION),
    row(&["Your lockfile needs to be updated"], YARN_LOCK),
    row(&["YN0028"], YARN_LOCK),
    row(&["Couldn't find package \"{}\""], NO_PACKAGE),
    row(&["Couldn't find any versions for \"{}\""], NO_VERSION),
    row(&["The engine \"node\" is incompatible"], NODE_VERSION),
    row(&["lockfile had changes, but lockfile is frozen"], BUN_LOCK),
    // Python.
    row(
        &["requires a different Python"],
        "a package does not support this version of Python; choose one with .python-version or platformConfig.pythonVersion",
    ),
    row(
        &["Requires-Python", "No matching distribution found for {}"],
        "no version of `{}` supports this version of Python; choose another one with .python-version or platformConfig.pythonVersion",
    ),
    row(
        &["No matching distribution found for {}"],
        "there is no package `{}` that fits; correct its name and version in the list of dependencies, or choose another Python with platformConfig.pythonVersion",
    ),
    row(
        &["Could not find a version that satisfies the requirement {}"],
        "there is no package `{}` that fits; correct its name and version in the list of dependencies, or choose another Python with platformConfig.pythonVersion",
    ),
    row(
        &["ResolutionImpossible"],
        "packages in the list of dependencies need versions of each other that do not fit; choose versions that do",
    ),
    row(
        &["No solution found when resolving dependencies"],
        "packages in the list of dependencies need versions of each other that do not fit; choose versions that do",
    ),
    row(
        &["DO NOT MATCH THE HASHES"],
        "a package is not what its hash in the list of dependencies says; make the list anew, and deploy again",
    ),
    row(
        &[
            "No such file or directory: '{}'",
            "Could not open requirements file",
        ],
        "the list of dependencies names `{}`, which is not among the files; add it, or correct the name",
    ),
    row(
        &["The lockfile at `uv.lock` needs to be updated"],
        "uv.lock does not fit pyproject.toml; run `uv lock`, and deploy again with the new file",
    ),
    row(
        &["pyproject.toml changed significantly since poetry.lock"],
        "poetry.lock does not fit pyproject.toml; run `poetry lock`, and deploy again with the new file",
    ),
    row(
        &["Pipfile.lock (", "out of date"],
        "Pipfile.lock does not fit Pipfile; run `pipenv lock`, and deploy again with the new file",
    ),
    row(
        &["pg_config executable not found"],
        "psycopg2 has to be compiled here; replace it with psycopg2-binary, or add \"libpq-dev\" and \"build-essential\" to platformConfig.packages",
    ),
    row(&["command 'gcc' failed"], COMPILER),
    row(&["command 'cc' failed: No such file"], COMPILER),
    row(&["unable to execute 'gcc'"], COMPILER),
    row(
        &["The SECRET_KEY setting must not be empty"],
        "the settings of Django need SECRET_KEY already in the build, and variables of the project are there only when it runs; give it a default, put one into build.args, or set platformConfig.collectStatic to false",
    ),
    row(
        &["No module named '{}'"],
        "the module `{}` is not installed; add it to the list of dependencies",
    ),
    // PHP, Go, .NET.
    row(
        &["Your requirements could not be resolved to an installable set of packages"],
        "composer.json asks for packages or extensions that do not fit this version of PHP or each other; choose versions that do, or set platformConfig.phpVersion",
    ),
    row(
        &["ackage \"{}\" is not present in the lock file"],
        "composer.lock lacks `{}`, which composer.json asks for; run `composer update {}`, and deploy again with the new file",
    ),
    row(
        &["missing go.sum entry for module providing package {}"],
        "go.sum has no entry for `{}`; run `go mod tidy`, and deploy again with the new files",
    ),
    row(
        &["updates to go.mod needed"],
        "go.mod does not fit the sources; run `go mod tidy`, and deploy again with the new files",
    ),
    row(
        &["go.mod requires go >= {} "],
        "the module needs Go {}; set platformConfig.version to it",
    ),
    row(
        &["error NU1004"],
        "packages.lock.json does not fit the project; run `dotnet restore --force-evaluate`, and deploy again with the new file",
    ),
    row(
        &["error NU1101: Unable to find package {}"],
        "NuGet has no package `{}`; correct its name, or add a nuget.config that says where it is",
    ),
    row(
        &["error NETSDK1045"],
        "the project targets a newer .NET than this SDK; set platformConfig.version to that of TargetFramework",
    ),
    // Builds.
    row(
        &["error:0308010C:digital envelope routines::unsupported"],
        "this version of webpack needs an older Node.js; set platformConfig.version to 16, or put NODE_OPTIONS=--openssl-legacy-provider into build.args",
    ),
    row(
        &["Environment variable not found: {}"],
        "the build needs the variable {}, and variables of the project are there only when it runs; put a value for the build into build.args",
    ),
    row(&["Can't resolve '{}'"], MISSING_MODULE),
    row(&["failed to resolve import \"{}\""], MISSING_MODULE),
    row(&["Could not resolve \"{}\""], MISSING_MODULE),
    row(&["Cannot find package '{}'"], MISSING_MODULE),
    row(&["Cannot find module '{}'"], MISSING_MODULE),
    row(
        &["sh: 1: {}: not found"],
        "`{}` is not installed; add the package that has it to the dependencies, or to platformConfig.packages if it is a program of the system",
    ),
    row(
        &["{}: command not found"],
        "`{}` is not installed; add the package that has it to the dependencies, or to platformConfig.packages if it is a program of the system",
    ),
    row(
        &["Unable to locate package {}"],
        "Debian has no package `{}`; correct its name in platformConfig.packages",
    ),
];

/// What the engine says about steps that have run nothing.
pub(super) const COPIES: &[Pattern] = &[
    row(
        &["exec: \"{}\": "],
        "`{}` is not in the image or cannot be run; add the package that has it to the dependencies, or correct the command",
    ),
    row(
        &["COPY failed: file not found in build context or excluded by .dockerignore: stat {}: "],
        "`{}`, which COPY takes, is not among the files of the release; add it, correct the path, or take it back in .dockerignore",
    ),
    row(
        &["ADD failed: file not found in build context or excluded by .dockerignore: stat {}: "],
        "`{}`, which ADD takes, is not among the files of the release; add it, correct the path, or take it back in .dockerignore",
    ),
    row(
        &["COPY failed: no source files were specified"],
        "no file of the release has a name as COPY says; add one, correct the pattern, or take it back in .dockerignore",
    ),
    row(
        &["ADD failed: no source files were specified"],
        "no file of the release has a name as ADD says; add one, correct the pattern, or take it back in .dockerignore",
    ),
    row(
        &["COPY failed: stat {}: file does not exist"],
        "`{}` is not in the stage that COPY --from takes it from; correct the path, or look whether that stage makes it",
    ),
    row(
        &["invalid from flag value {}: "],
        "`{}`, from which COPY --from takes files, is neither a stage of this Dockerfile nor an image here; correct its name",
    ),
    row(
        &["o space left on device"],
        "the disk of the container engine is full; ask whoever runs this installation to make room",
    ),
];
