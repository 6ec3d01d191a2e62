//! What real tools print, and what is said about it.

use super::*;

const MEMORY: u64 = 2048;

fn runs() -> Outcome {
    Outcome::Runs {
        command: None,
        port: 1,
    }
}

fn explain(outcome: &Outcome, step: &str, code: Option<i64>, output: &str) -> String {
    let failed = FailedBuild {
        outcome,
        step: Some(step),
        code,
        message: "The command '/bin/sh -c npm ci' returned a non-zero code: 1",
        output: output.lines().collect(),
        memory: MEMORY,
    };
    failed.explain()
}

/// The sentence about what a step printed that failed.
fn sentence(step: &str, output: &str) -> String {
    let told = explain(&runs(), step, Some(1), output);
    let (sentence, place) = told.split_once('\n').unwrap();
    assert_eq!(place, step);
    sentence.to_owned()
}

const CI: &str = "Step 4/9 : RUN npm ci --no-audit --no-fund";
const PIP: &str = "Step 6/9 : RUN pip install --no-cache-dir -r requirements.txt";
const BUILD: &str = "Step 5/9 : RUN npm run build";

#[test]
fn package_managers_of_javascript_are_understood() {
    for (step, output, cause, next) in [
        (
            CI,
            "npm error code EUSAGE
npm error
npm error `npm ci` can only install packages when your package.json and package-lock.json or npm-shrinkwrap.json are in sync. Please update your lock file with `npm install` before continuing.
npm error
npm error Missing: left-pad@1.3.0 from lock file
npm error
npm error Clean install a project
npm error A complete log of this run can be found in: /home/app/.npm/_logs/x-debug-0.log",
            "the lock file of npm does not fit package.json",
            "run `npm install`",
        ),
        (
            CI,
            "npm ERR! code ERESOLVE
npm ERR! ERESOLVE could not resolve
npm ERR!
npm ERR! While resolving: react-test@1.0.0
npm ERR! Found: react@18.2.0
npm ERR! node_modules/react
npm ERR!   react@\"^18.2.0\" from the root project
npm ERR!
npm ERR! Could not resolve dependency:
npm ERR! peer react@\"^17.0.0\" from some-lib@2.1.0
npm ERR! node_modules/some-lib
npm ERR!   some-lib@\"^2.1.0\" from the root project",
            "packages ask for versions of `react` that do not fit each other",
            "legacy-peer-deps=true",
        ),
        (
            "Step 4/9 : RUN npm install --no-audit --no-fund",
            "npm error code E404
npm error 404 Not Found - GET https://registry.example/expresss-not - Not found
npm error 404
npm error 404  'expresss-not@^1.0.0' is not in this registry.
npm error 404
npm error 404 Note that you can also install from a
npm error 404 tarball, folder, http url, or git folder.",
            "there is no package `expresss-not@^1.0.0` in the registry",
            ".npmrc",
        ),
        (
            CI,
            "npm error code ETARGET
npm error notarget No matching version found for left-pad@^99.0.0.
npm error notarget In most cases you or one of your dependencies are requesting
npm error notarget a package version that doesn't exist.",
            "no version of `left-pad@^99.0.0` fits",
            "choose one that exists",
        ),
        (
            CI,
            "npm error code EAI_AGAIN
npm error syscall getaddrinfo
npm error errno EAI_AGAIN
npm error request to https://registry.example/express failed, reason: getaddrinfo EAI_AGAIN registry.example",
            "`registry.example` could not be reached from the build",
            "docker.egress",
        ),
        (
            "Step 4/9 : RUN pnpm install --frozen-lockfile",
            " ERR_PNPM_OUTDATED_LOCKFILE  Cannot install with \"frozen-lockfile\" because pnpm-lock.yaml is not up to date with <ROOT>/package.json

Note that in CI environments this setting is true by default. If you still need to run install in such cases, use \"pnpm install --no-frozen-lockfile\"",
            "pnpm-lock.yaml does not fit package.json",
            "run `pnpm install`",
        ),
        (
            "Step 4/9 : RUN yarn install --frozen-lockfile",
            "yarn install v1.22.22
[1/4] Resolving packages...
error Your lockfile needs to be updated, but yarn was run with `--frozen-lockfile`.
info Visit https://yarnpkg.com/en/docs/cli/install for documentation about this command.",
            "yarn.lock does not fit package.json",
            "run `yarn install`",
        ),
        (
            "Step 4/9 : RUN yarn install --immutable",
            "➤ YN0028: │ The lockfile would have been modified by this install, which is explicitly forbidden.
➤ YN0000: · Failed with errors in 0s 214ms",
            "yarn.lock does not fit package.json",
            "run `yarn install`",
        ),
    ] {
        let told = sentence(step, output);
        assert!(told.starts_with(cause) && told.contains(next), "{told}");
    }
}

#[test]
fn package_managers_of_python_are_understood() {
    for (output, cause, next) in [
        (
            "ERROR: Could not find a version that satisfies the requirement flaskk==3.0 (from versions: none)
ERROR: No matching distribution found for flaskk==3.0

[notice] A new release of pip is available: 25.0 -> 25.1",
            "there is no package `flaskk==3.0` that fits",
            "correct its name and version",
        ),
        (
            "WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after connection broken by 'NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f1c>: Failed to establish a new connection: [Errno -3] Temporary failure in name resolution')': /simple/flask/
ERROR: Could not find a version that satisfies the requirement flask (from versions: none)
ERROR: No matching distribution found for flask",
            "the registry of packages could not be reached",
            "docker.egress",
        ),
        (
            "ERROR: Ignored the following versions that require a different python version: 1.21.2 Requires-Python >=3.7,<3.11; 1.21.3 Requires-Python >=3.7,<3.11
ERROR: Could not find a version that satisfies the requirement numpy==1.21.2 (from versions: 1.3.0, 1.4.1)
ERROR: No matching distribution found for numpy==1.21.2",
            "no version of `numpy==1.21.2` supports this version of Python",
            "platformConfig.pythonVersion",
        ),
        (
            "      error: command 'gcc' failed: No such file or directory
      [end of output]
  ERROR: Failed building wheel for uwsgi",
            "a package has to be compiled",
            "build-essential",
        ),
        (
            "error: The lockfile at `uv.lock` needs to be updated, but `--locked` was provided. To update the lockfile, run `uv lock`.",
            "uv.lock does not fit pyproject.toml",
            "run `uv lock`",
        ),
    ] {
        let told = sentence(PIP, output);
        assert!(told.starts_with(cause) && told.contains(next), "{told}");
    }
}

#[test]
fn builds_that_fail_say_what_to_change() {
    for (output, cause, next) in [
        (
            "> shop@1.0.0 build
> vite build

sh: 1: vite: not found",
            "`vite` is not installed",
            "dependencies",
        ),
        (
            "error during build:
Could not resolve \"./Header.vue\" from \"src/App.vue\"",
            "the module `./Header.vue` is not installed",
            "case-sensitive",
        ),
        (
            "npm warn ERESOLVE overriding peer dependency
npm warn peer react@\"^17\" from some-lib@2.1.0
npm error code E401",
            "the registry of packages wants a login",
            "NPM_TOKEN",
        ),
        (
            "Required package \"acme/shop\" is not present in the lock file.",
            "composer.lock lacks `acme/shop`",
            "composer update acme/shop",
        ),
        (
            "npm error Missing script: \"build\"
npm error
npm error To see a list of scripts, run:
npm error   npm run",
            "package.json has no script `build`",
            "build.command",
        ),
        (
            "<--- Last few GCs --->
FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory",
            "Node.js ran out of memory",
            "docker.build_memory_mb above 2048",
        ),
        (
            "npm error path /app
npm error command failed
npm error signal SIGKILL
npm error command sh -c vite build",
            "the step needs more than 2048 MiB of memory",
            "docker.build_memory_mb",
        ),
        (
            "Error: error:0308010C:digital envelope routines::unsupported
    at new Hash (node:internal/crypto/hash:71:19)",
            "this version of webpack needs an older Node.js",
            "platformConfig.version",
        ),
        (
            "error during build:
[vite]: Rollup failed to resolve import \"axios\" from \"/app/src/main.js\".",
            "the module `axios` is not installed",
            "package.json",
        ),
        (
            "Error: connect ECONNREFUSED 127.0.0.1:5432
    at TCPConnectWrap.afterConnect [as oncomplete] (node:net:1607:16)",
            "the build connects to 127.0.0.1",
            "when the app starts",
        ),
    ] {
        let told = sentence(BUILD, output);
        assert!(told.starts_with(cause) && told.contains(next), "{told}");
    }
}

#[test]
fn what_nobody_knows_is_quoted_with_the_command() {
    let next = "; correct that, and deploy again when the same command succeeds on your machine";
    for (step, code, output, cause) in [
        (
            BUILD,
            1,
            " ---> Running in 0123456789ab
> build
throw new Error('x')
Error: a typo in line 7
    at Object.<anonymous>
npm error code 1",
            format!("`npm run build` failed with exit code 1: Error: a typo in line 7{next}"),
        ),
        (
            "Step 5/9 : RUN [\"/bin/sh\",\"-c\",\"make all\"]",
            2,
            "make: *** No rule to make target 'all'.Removing intermediate container 0123456789ab",
            format!("`make all` failed with exit code 2: make: *** No rule to make target 'all'.{next}"),
        ),
        (
            BUILD,
            1,
            "Error: GET https://ada:hunter22@api.example/x?key=1 answered 401",
            format!("`npm run build` failed with exit code 1: Error: GET https://***@api.example/x answered 401{next}"),
        ),
        (
            "Step 5/9 : RUN [\"a\",\"b c\"]",
            137,
            "",
            "`a b c` was killed: it needs more than 2048 MiB of memory; make it need less, or raise docker.build_memory_mb".to_owned(),
        ),
        (
            "Step 5/9 : RUN ./build",
            127,
            "/bin/sh: 1: ./build: Permission",
            "`./build` needs a program that is not in the image: /bin/sh: 1: ./build: Permission; add it to the dependencies, or to platformConfig.packages".to_owned(),
        ),
        (
            CI,
            7,
            "npm error code EWHATEVER",
            "the dependencies could not be installed: `npm ci --no-audit --no-fund` failed with exit code 7: npm error code EWHATEVER; run the same command in an empty copy of the project, and deploy again when it succeeds".to_owned(),
        ),
    ] {
        let told = explain(&runs(), step, Some(code), output);
        let readable = readable_step(step).unwrap_or_else(|| step.to_owned());
        assert_eq!(told, format!("{cause}\n{readable}"));
    }
}

#[test]
fn a_missing_folder_is_named_with_those_that_are_there() {
    let site = Outcome::Static {
        folder: "/site",
        spa: true,
        looked_in: vec!["dist".into(), "_site".into()],
    };
    let script = serde_json::json!(["/bin/sh", "-c", crate::node::TAKE, "sh", "dist", "_site"]);
    let step = format!("Step 8/11 : RUN {script}");
    let missing = "there is no index.html in: dist _site";
    for (lines, told) in [
        (
            "an index.html is in: web/out\nfolders that are here: web/",
            "but there is one in web/out; set platformConfig.outputDir to \"web/out\" if that is the site",
        ),
        (
            "an index.html is in: a\nan index.html is in: b\nfolders that are here: a/ b/",
            "there is one in each of a, b; set platformConfig.outputDir to the folder that it writes",
        ),
        (
            "an index.html is in: web\nan index.html is in: web/about\nfolders that are here: web/",
            "but there is one in web; set platformConfig.outputDir to \"web\" if that is the site",
        ),
        (
            "folders that are here: node_modules/ src/ target/",
            "the folders here are src, target; set platformConfig.outputDir to the folder that it writes",
        ),
        (
            "folders that are here: */",
            "there are no other folders; set platformConfig.outputDir to the folder that it writes",
        ),
    ] {
        let output = format!("{missing}\n{lines}");
        let explained = explain(&site, &step, Some(NO_SITE), &output);
        let (sentence, place) = explained.split_once('\n').unwrap();
        let begin = "the build wrote no index.html to dist, _site";
        assert!(sentence.starts_with(begin), "{sentence}");
        assert!(sentence.ends_with(told), "{sentence}");
        assert_eq!(place, "Step 8/11 : take the site from dist, or _site");
    }
}

#[test]
fn files_that_copy_does_not_find_are_named() {
    for (step, message, cause) in [
        (
            "Step 2/3 : COPY missing.txt /x",
            "COPY failed: file not found in build context or excluded by .dockerignore: stat missing.txt: file does not exist",
            "`missing.txt`, which COPY takes, is not among the files of the release; add it, correct the path, or take it back in .dockerignore",
        ),
        (
            "Step 2/3 : COPY *.lock /x",
            "COPY failed: no source files were specified",
            "no file of the release has a name as COPY says; add one, correct the pattern, or take it back in .dockerignore",
        ),
        (
            "Step 5/6 : COPY --from=build /out /x",
            "COPY failed: stat out: file does not exist",
            "`out` is not in the stage that COPY --from takes it from; correct the path, or look whether that stage makes it",
        ),
        (
            "Step 2/3 : WORKDIR x",
            "something that nobody knows\nmore",
            "something that nobody knows",
        ),
    ] {
        let failed = FailedBuild {
            outcome: &runs(),
            step: Some(step),
            code: None,
            message,
            output: Vec::new(),
            memory: MEMORY,
        };
        assert_eq!(failed.explain(), format!("{cause}\n{step}"));
    }
}

#[test]
fn no_script_of_ours_is_shown() {
    let step = format!("Step 7/9 : RUN {}", crate::php::APACHE);
    let told = explain(
        &runs(),
        &step,
        Some(1),
        "ERROR: Module rewrite does not exist!",
    );
    assert!(
        told.starts_with("the step to configure Apache for the port and the folder failed with exit code 1: ERROR: Module rewrite"),
        "{told}"
    );
    assert!(!told.contains("a2enmod"), "{told}");
}
