//! Runs the real binary: exit codes, messages, and what `estrade config` prints.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// The binary in an environment that holds nothing of ours.
fn estrade(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_estrade"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ESTRADE_") {
            command.env_remove(name);
        }
    }
    command.args(args).stdin(Stdio::null());
    command
}

/// A configuration file for one test.
fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// Exit code 2, nothing on stdout, and one line on stderr.
fn assert_refused(output: &Output, message: &str) {
    assert_eq!(output.status.code(), Some(2), "{}", stderr(output));
    assert_eq!(stdout(output), "");
    assert_eq!(stderr(output), format!("error: {message}\n"));
}

#[test]
fn a_mistake_in_the_file_is_named_with_its_line_and_column() {
    for (name, text, message) in [
        (
            "unknown-key.toml",
            "[usage]\ndurabilty = 'strict'\n",
            "line 2, column 1: usage.durabilty: unknown field `durabilty`, expected one of `durability`, `keep_days`, `keep_calls`",
        ),
        (
            "wrong-type.toml",
            "[ai]\necho = 'yes'\n",
            "line 2, column 8: ai.echo: invalid type: string \"yes\", expected a boolean",
        ),
        (
            "bad-address.toml",
            "\n[platform]\nlisten = 'localhost:3000'\n",
            "line 3, column 10: platform.listen: `localhost:3000` is not an IP address with a port, \
             such as 127.0.0.1:3000 or [::]:3000",
        ),
        (
            "bad-database.toml",
            "database_url = 'mysql://root:hunter2@h/db'\n",
            "line 1, column 16: database_url: not a database that Estrade knows: write \
             postgres://USER:PASSWORD@HOST/DATABASE or sqlite:PATH",
        ),
    ] {
        let path = file(name, text);
        let path = path.to_str().unwrap();
        for command in ["serve", "config"] {
            let output = estrade(&[command, "--config", path]).output().unwrap();
            assert_refused(&output, &format!("{path}, {message}"));
        }
    }
}

#[test]
fn bytes_that_are_not_text_are_named_with_their_line() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("not-text.toml");
    std::fs::write(&path, b"# ok\n# \xff\n").unwrap();
    let path = path.to_str().unwrap();
    let output = estrade(&["config", "--config", path]).output().unwrap();
    assert_refused(
        &output,
        &format!("{path}, line 2, column 3: not UTF-8 text"),
    );
}

#[test]
fn a_missing_file_is_refused() {
    let output = estrade(&["config"])
        .env("ESTRADE_CONFIG", "/nowhere/estrade.toml")
        .output()
        .unwrap();
    assert_refused(
        &output,
        "cannot read the configuration file /nowhere/estrade.toml: \
         No such file or directory (os error 2)",
    );
}

#[test]
fn a_mistake_in_the_environment_names_the_variable() {
    let output = estrade(&["config"])
        .env("ESTRADE_LIMITS_BURST", "many")
        .output()
        .unwrap();
    assert_refused(
        &output,
        "environment variable ESTRADE_LIMITS_BURST: `many` is not a whole number",
    );
}

#[test]
fn a_mistake_on_the_command_line_names_the_option() {
    for args in [
        &["serve", "--platform-listen", "nowhere"][..],
        &["serve", "--platform-listn", "127.0.0.1:1"],
        &[
            "token",
            "create",
            "--account",
            "a@b.c",
            "--expires-in",
            "soon",
        ],
        &["openapi", "edge"],
        &["nonsense"],
    ] {
        let output = estrade(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert_eq!(stdout(&output), "");
        assert!(
            stderr(&output).starts_with("error: "),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn config_prints_what_is_in_force_with_secrets_masked() {
    let path = file(
        "masked.toml",
        "data_dir = 'from-file'\n[edge]\nlisten = '127.0.0.1:9'\n[[ai.providers]]\n\
         name = 'p'\nbase_url = 'http://h/v1'\napi_key = 'hunter2'\n",
    );
    let output = estrade(&["config", "--config", path.to_str().unwrap()])
        .args(["--platform-listen", "127.0.0.1:7"])
        .env("ESTRADE_PLATFORM_LISTEN", "127.0.0.1:8")
        .env("ESTRADE_AI_LISTEN", "127.0.0.1:8")
        .env("ESTRADE_DATABASE_URL", "postgres://u:hunter2@h/db")
        .env("ESTRADE_BLOBS_URL", "s3://bucket/prefix")
        .env("ESTRADE_BLOBS_SECRET_ACCESS_KEY", "hunter2")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
    let printed = stdout(&output);
    for line in [
        "data_dir = \"from-file\"",
        "database_url = \"postgres://u:***@h/db\"",
        "url = \"s3://bucket/prefix\"",
        "secret_access_key = \"***\"",
        "api_key = \"***\"",
        "listen = \"127.0.0.1:7\"",
        "listen = \"127.0.0.1:8\"",
        "listen = \"127.0.0.1:9\"",
    ] {
        assert!(
            printed.lines().any(|printed| printed == line),
            "{line} is not in\n{printed}"
        );
    }
    assert!(!printed.contains("hunter2"), "{printed}");

    let again = file("printed.toml", printed);
    let output = estrade(&["config", "--config", again.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(stdout(&output), printed);
}

#[test]
fn the_reference_is_a_valid_file() {
    let output = estrade(&["config", "--reference"]).output().unwrap();
    let path = file("reference.toml", stdout(&output));
    let output = estrade(&["config", "--config", path.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn a_misspelt_variable_gets_one_warning_line() {
    let command = |args| {
        let mut command = estrade(args);
        command
            .env("ESTRADE_PLATFORM_LISTN", "x")
            .env("ESTRADE_FOO", "x");
        command.env("ESTRADE_TOKEN", "x").env("ESTRADE_TEST_X", "x");
        command.output().unwrap()
    };
    let output = command(&["config"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        stderr(&output),
        "warning: ignored, because no setting has this name: ESTRADE_FOO, ESTRADE_PLATFORM_LISTN\n"
    );
    assert_eq!(stderr(&command(&["config", "--quiet"])), "");
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = estrade(&["config", "--reference"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut talk = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut talk)
        .unwrap();
    assert_eq!((child.wait().unwrap().code(), talk.as_str()), (Some(0), ""));
}
