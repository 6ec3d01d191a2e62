//! Precedence, errors of the environment, and the round trip of the printed form.

use super::super::{Credential, MASK, Tls};
use super::*;

fn environment(variables: &[(&str, &str)]) -> Environment {
    variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), *value))
        .collect()
}

fn loaded(file: &str, variables: &[(&str, &str)], flags: Flags) -> Result<Loaded, String> {
    ConfigFile::parse(Path::new("e.toml"), file)
        .and_then(|file| layer(file, &environment(variables), flags))
        .map_err(|error| error.to_string())
}

fn config(file: &str, variables: &[(&str, &str)]) -> Config {
    loaded(file, variables, Flags::default()).unwrap().config
}

fn refusal(variables: &[(&str, &str)]) -> String {
    loaded("", variables, Flags::default()).unwrap_err()
}

#[test]
fn a_flag_wins_over_the_environment_over_the_file_over_the_default() {
    let file = "[platform]\nlisten = '127.0.0.1:2'";
    let variable = [("ESTRADE_PLATFORM_LISTEN", "127.0.0.1:3")];
    let flag = Flags {
        platform_listen: Some("127.0.0.1:4".parse().unwrap()),
        ..Flags::default()
    };
    let port = |config: &Config| config.platform.listen.port();
    assert_eq!(port(&config("", &[])), 3000);
    assert_eq!(port(&config(file, &[])), 2);
    assert_eq!(port(&config(file, &variable)), 3);
    assert_eq!(port(&loaded(file, &variable, flag).unwrap().config), 4);
}

#[test]
fn every_flag_is_applied() {
    let flags = Flags {
        config: None,
        data_dir: Some("/d".into()),
        database_url: Some("sqlite:/x.db".parse().unwrap()),
        platform_listen: Some("127.0.0.1:1".parse().unwrap()),
        ai_listen: Some("127.0.0.1:2".parse().unwrap()),
        edge_listen: Some("127.0.0.1:3".parse().unwrap()),
        edge_tls_listen: Some("127.0.0.1:4".parse().unwrap()),
        edge_tls: Some(Tls {
            cert: "/c".into(),
            key: "/k".into(),
        }),
    };
    let config = loaded("", &[], flags).unwrap().config;
    assert_eq!(config.data_dir, Path::new("/d"));
    assert_eq!(config.database().to_string(), "sqlite:/x.db");
    assert_eq!(config.platform.listen.port(), 1);
    assert_eq!(config.ai.listen.port(), 2);
    assert_eq!(config.edge.listen.port(), 3);
    assert_eq!(config.edge.entrance().0.port(), 4);
    assert_eq!(config.edge.tls.unwrap().key, Path::new("/k"));
}

#[test]
fn every_kind_of_value_can_come_from_the_environment() {
    let config = config(
        "[docker.images]\nnode = 'node:20'\ngo = 'golang:1'",
        &[
            ("ESTRADE_DATA_DIR", "/srv/estrade"),
            ("ESTRADE_MASTER_KEY_FILE", "/run/master"),
            ("ESTRADE_TRUSTED_PROXIES", "10.0.0.0/8, ::1,"),
            ("ESTRADE_PLATFORM_TLS_CERT", "c.pem"),
            ("ESTRADE_PLATFORM_TLS_KEY", "k.pem"),
            ("ESTRADE_EDGE_VERIFY_DOMAINS", "false"),
            ("ESTRADE_LIMITS_BURST", "7"),
            ("ESTRADE_LIMITS_PROJECTS", "0"),
            ("ESTRADE_DOCKER_IMAGES_NODE", "node:22"),
            (
                "ESTRADE_AI_PROVIDERS",
                "[{name='p', base_url='http://h/v1', api_key='sk-1'}]",
            ),
            ("ESTRADE_PLANS", "{big={memory_mb=1, cpus=1, disk_gb=1}}"),
            ("ESTRADE_USAGE_DURABILITY", "strict"),
        ],
    );
    assert_eq!(config.data_dir, Path::new("/srv/estrade"));
    assert_eq!(config.master_key_path(), Path::new("/run/master"));
    assert_eq!(config.trusted_proxies.len(), 2);
    assert_eq!(config.platform.tls.unwrap().key, Path::new("k.pem"));
    assert!(!config.edge.verify_domains);
    assert_eq!(config.limits.burst.get(), 7);
    assert_eq!(config.limits.projects.get(), None);
    let images: Vec<_> = config.docker.images.into_values().collect();
    assert_eq!(images, ["node:22", "golang:1"]);
    let provider = &config.ai.providers.as_slice()[0];
    assert!(matches!(&provider.credential, Credential::Key(key) if key.expose() == "sk-1"));
    assert!(config.plans.keys().any(|name| name.as_str() == "big"));
}

#[test]
fn an_empty_variable_is_not_set() {
    let config = config("data_dir = 'file'", &[("ESTRADE_DATA_DIR", "")]);
    assert_eq!(config.data_dir, Path::new("file"));
}

#[test]
fn an_error_of_the_environment_names_the_variable() {
    for (name, value) in [
        ("ESTRADE_PLATFORM_LISTEN", "localhost:80"),
        ("ESTRADE_EDGE_SKEW_SECONDS", "soon"),
        ("ESTRADE_LIMITS_BURST", "0"),
        ("ESTRADE_LIMITS_SCALE", "-1"),
        ("ESTRADE_AI_ECHO", "maybe"),
        ("ESTRADE_AI_UNKNOWN_WORKSPACE", "maybe"),
        ("ESTRADE_TRUSTED_PROXIES", "::1,proxy"),
        ("ESTRADE_PLATFORM_TLS_CERT", "only-the-cert.pem"),
        ("ESTRADE_AI_PROVIDERS", "[{name='p'}]"),
        ("ESTRADE_AI_PROVIDERS", "p"),
        ("ESTRADE_PLANS", "{big={memory_mb=0, cpus=1, disk_gb=1}}"),
        ("ESTRADE_DATABASE_URL", "mysql://h"),
    ] {
        let error = refusal(&[(name, value)]);
        let expected = format!("environment variable {name}: ");
        assert!(
            error.starts_with(&expected) && !error.contains('\n'),
            "{error}"
        );
    }
}

#[test]
fn an_error_of_the_environment_repeats_no_secret() {
    for (name, value) in [
        ("ESTRADE_DATABASE_URL", "mysql://root:hunter2@h/db"),
        ("ESTRADE_DATABASE_URL", "postgres://root:hunter2@x@h/db"),
        ("ESTRADE_BLOBS_URL", "gs://key:hunter2@bucket"),
        ("ESTRADE_AI_PROVIDERS", "[{api_key='hunter2', name='p'}]"),
        ("ESTRADE_AI_PROVIDERS", "[{api_key='hunter2', name=}]"),
    ] {
        let error = refusal(&[(name, value)]);
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn unknown_variables_are_listed_but_not_those_of_other_parts() {
    let variables = [
        ("ESTRADE_PLATFORM_LISTN", "x"),
        ("ESTRADE_DATABASE_URL_OLD", "x"),
        ("ESTRADE_TOKEN", "x"),
        ("ESTRADE_URL", "x"),
        ("ESTRADE_AI_URL", "x"),
        ("ESTRADE_KEYRING", "x"),
        ("ESTRADE_CONFIG", "x"),
        ("ESTRADE_TEST_POSTGRES", "x"),
        ("ESTRADE_LOG_LEVEL", "debug"),
        ("PATH", "x"),
    ];
    let loaded = loaded("", &variables, Flags::default()).unwrap();
    assert_eq!(
        loaded.unknown_variables,
        ["ESTRADE_DATABASE_URL_OLD", "ESTRADE_PLATFORM_LISTN"]
    );
}

#[test]
fn what_is_printed_loads_again_and_holds_no_secret() {
    let full = format!(
        "{}\n[[ai.providers]]\nname = 'keyed'\nbase_url = 'http://k/v1'\napi_key = 'hunter2'\n",
        super::super::REFERENCE.replace("secret@", "hunter2@")
    );
    for file in ["", &full] {
        let printed = toml::to_string(&config(file, &[])).unwrap();
        let again = toml::to_string(&config(&printed, &[])).unwrap();
        assert_eq!(printed, again);
        assert!(!printed.contains("hunter2"), "{printed}");
        assert_eq!(
            printed.contains(&format!("api_key = \"{MASK}\"")),
            !file.is_empty()
        );
    }
}

#[test]
fn only_listeners_in_plain_text_for_strangers_are_exposed() {
    let exposed = |file: &str| config(file, &[]).exposed_listeners().count();
    assert_eq!(exposed(""), 0);
    assert_eq!(
        exposed("platform.listen = '0.0.0.0:1'\nai.listen = '[::]:2'"),
        2
    );
    assert_eq!(
        exposed("trusted_proxies = ['::1']\nplatform.listen = '0.0.0.0:1'"),
        0
    );
    assert_eq!(
        exposed("platform = { listen = '0.0.0.0:1', tls = { cert = 'c', key = 'k' } }"),
        0
    );
}
