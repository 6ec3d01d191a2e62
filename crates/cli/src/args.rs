//! The command line: what can be said, and the help that explains it.

mod blobs;
mod unrepeated;

use crate::client::args::ClientCommand;
use crate::client::options::ServerOptions;
use crate::config::{DatabaseUrl, Flags, Invalid, Tls, parse_listen};
use clap::builder::TypedValueParser;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use estrade_model::platform::Platform;
use estrade_model::time::Lifetime;
use estrade_model::token_scope::TokenScope;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::PathBuf;
use unrepeated::parse_unrepeated;

pub use blobs::{BlobsCommand, MigrateArgs};

const EXAMPLES: &str = "\
Examples:
  estrade serve                              start with no configuration at all
  estrade serve --config /etc/estrade.toml   start with a configuration file
  estrade login https://cloud.example.com --token -
  estrade deploy --project my-site           deploy the folder you are in

Every setting is also an environment variable (ESTRADE_PLATFORM_LISTEN) and a key in the
configuration file (platform.listen). An option wins over the variable, the variable over
the file. `estrade config --reference` explains every key.";

/// Your own cloud: deploy projects, hand out AI keys. One binary, no other service needed.
#[derive(Debug, Parser)]
#[command(name = "estrade", version, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    location: Location,
    #[command(flatten)]
    pub server: ServerOptions,
    /// Say nothing but results and errors.
    #[arg(long, short, global = true)]
    pub quiet: bool,
}

impl Cli {
    /// What was said about the configuration.
    pub fn flags(&self) -> Flags {
        let listen = match &self.command {
            #[cfg(feature = "server")]
            Command::Serve(args) => &args.listen,
            Command::Config(args) => &args.listen,
            #[cfg(feature = "server")]
            Command::Account(_)
            | Command::Blobs(_)
            | Command::Token(_)
            | Command::Images(_)
            | Command::Openapi(_) => &Listen::default(),
            Command::Client(_) => &Listen::default(),
        };
        Flags {
            config: self.location.config.clone(),
            data_dir: self.location.data_dir.clone(),
            database_url: self.location.database_url.clone(),
            platform_listen: listen.platform,
            ai_listen: listen.ai,
            edge_listen: listen.edge,
            edge_tls_listen: listen.edge_secure,
            edge_tls: listen.edge_tls.clone(),
        }
    }
}

/// Options of the installation, which mean nothing to commands that talk to a server.
const INSTALLATION_OPTIONS: [&str; 3] = ["config", "data_dir", "database_url"];
/// Options of the client, which mean nothing to commands of the local installation.
const SERVER_OPTIONS: [&str; 4] = ["context", "url", "team", "json"];
/// Commands that work on the local installation; all others talk to a server.
const LOCAL_COMMANDS: [&str; 7] = [
    "serve", "config", "images", "blobs", "account", "token", "openapi",
];
/// Commands that need neither.
const PLAIN_COMMANDS: [&str; 2] = ["completions", "man"];

/// The definition of the command line, with the help of each command reduced to what it uses.
pub fn command() -> clap::Command {
    let mut root = Cli::command();
    let options: Vec<_> = root.get_arguments().cloned().collect();
    let names: Vec<_> = root
        .get_subcommands()
        .map(|sub| sub.get_name().to_owned())
        .collect();
    for name in &names {
        let is_local = LOCAL_COMMANDS.contains(&name.as_str());
        let unused: &[&str] = if is_local {
            &SERVER_OPTIONS
        } else {
            &INSTALLATION_OPTIONS
        };
        let hidden = options
            .iter()
            .filter(|option| unused.contains(&option.get_id().as_str()));
        let hidden: Vec<_> = hidden.map(|option| option.clone().hide(true)).collect();
        // A global option that a command defines itself is not propagated to it: this one is, hidden.
        root = root.mut_subcommand(name, |sub| sub.args(hidden));
    }
    let template = help_template(&root);
    root.help_template(template)
}

/// The overview, with the two kinds of commands apart.
fn help_template(root: &clap::Command) -> String {
    let width = root
        .get_subcommands()
        .map(|sub| sub.get_name().len())
        .max()
        .unwrap_or_default();
    let list = |of: &dyn Fn(&str) -> bool| {
        let lines = root
            .get_subcommands()
            .filter(|sub| of(sub.get_name()))
            .map(|sub| {
                let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
                format!(
                    "  {:width$}  {}",
                    sub.get_name(),
                    about.trim_end_matches('.')
                )
            });
        lines.collect::<Vec<_>>().join("\n")
    };
    let local = list(&|name| LOCAL_COMMANDS.contains(&name));
    let plain = list(&|name| PLAIN_COMMANDS.contains(&name));
    let remote = list(&|name| !LOCAL_COMMANDS.contains(&name) && !PLAIN_COMMANDS.contains(&name));
    format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\nCommands that talk to a server:\n{remote}\n\n\
         Commands of the installation on this machine:\n{local}\n\nOther commands:\n{plain}\n\nOptions:\n{{options}}{{after-help}}"
    )
}

/// Reads the command line of this process.
pub fn parse() -> Result<Cli, clap::Error> {
    parse_from(std::env::args_os())
}

/// Reads a command line.
pub fn parse_from<T: Into<std::ffi::OsString> + Clone>(
    line: impl IntoIterator<Item = T>,
) -> Result<Cli, clap::Error> {
    let matches = command().try_get_matches_from(line)?;
    Cli::from_arg_matches(&matches)
}

/// Which installation is meant: the same options for every command.
#[derive(Debug, Args)]
struct Location {
    /// Configuration file, in TOML [env: ESTRADE_CONFIG]
    #[arg(
        long,
        value_name = "FILE",
        global = true,
        help_heading = "Installation"
    )]
    config: Option<PathBuf>,
    /// Where the data is [env: ESTRADE_DATA_DIR] [default: ./estrade-data]
    #[arg(long, value_name = "DIR", global = true, help_heading = "Installation")]
    data_dir: Option<PathBuf>,
    /// postgres://… or sqlite:PATH; a password is better kept in the variable
    /// [env: ESTRADE_DATABASE_URL] [default: SQLite inside the data directory]
    #[arg(long, value_name = "URL", global = true, help_heading = "Installation")]
    #[arg(value_parser = DatabaseUrlParser)]
    database_url: Option<DatabaseUrl>,
}

/// Where the server listens.
#[derive(Debug, Default, Args)]
pub struct Listen {
    /// The platform API [env: ESTRADE_PLATFORM_LISTEN] [default: 127.0.0.1:3000]
    #[arg(long = "platform-listen", value_name = "ADDRESS", value_parser = parse_listen)]
    platform: Option<SocketAddr>,
    /// The AI API [env: ESTRADE_AI_LISTEN] [default: 127.0.0.1:3100]
    #[arg(long = "ai-listen", value_name = "ADDRESS", value_parser = parse_listen)]
    ai: Option<SocketAddr>,
    /// What was deployed [env: ESTRADE_EDGE_LISTEN] [default: 127.0.0.1:8080]
    #[arg(long = "edge-listen", value_name = "ADDRESS", value_parser = parse_listen)]
    edge: Option<SocketAddr>,
    /// The same with TLS [env: ESTRADE_EDGE_TLS_LISTEN]
    #[arg(long = "edge-tls-listen", value_name = "ADDRESS", value_parser = parse_listen)]
    edge_secure: Option<SocketAddr>,
    /// Certificate and key of the edge, PEM files with a comma between them
    /// [env: ESTRADE_EDGE_TLS_CERT, ESTRADE_EDGE_TLS_KEY]
    #[arg(long, value_name = "CERT,KEY", value_parser = parse_tls)]
    edge_tls: Option<Tls>,
}

fn parse_tls(text: &str) -> Result<Tls, Invalid> {
    match text.split_once(',') {
        Some((cert, key)) if !cert.is_empty() && !key.is_empty() && !key.contains(',') => Ok(Tls {
            cert: cert.into(),
            key: key.into(),
        }),
        _ => Err("expected two files, as in edge.pem,edge.key".into()),
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    #[cfg(feature = "server")]
    /// Start the server.
    #[command(after_help = "\
Examples:
  estrade serve
  estrade serve --data-dir /var/lib/estrade --platform-listen 0.0.0.0:3000
  ESTRADE_DATABASE_URL=postgres://estrade:secret@db/estrade estrade serve")]
    Serve(ServeArgs),
    /// Show the configuration in force, as a configuration file with secrets masked.
    #[command(after_help = "\
Examples:
  estrade config                       what `estrade serve` would use
  estrade config --config estrade.toml check a file
  estrade config --reference           every key with its meaning")]
    Config(ConfigArgs),
    #[cfg(feature = "server")]
    /// List and fetch the images that builds are based on.
    #[command(subcommand)]
    Images(ImagesCommand),
    #[cfg(feature = "server")]
    /// Move the files of releases to another place.
    #[command(subcommand)]
    Blobs(BlobsCommand),
    #[cfg(feature = "server")]
    /// Make and manage accounts.
    #[command(subcommand)]
    Account(AccountCommand),
    #[cfg(feature = "server")]
    /// Make and manage API tokens.
    #[command(subcommand)]
    Token(TokenCommand),
    #[cfg(feature = "server")]
    /// Print the OpenAPI document of an API, as JSON.
    #[command(after_help = "\
Example:
  estrade openapi platform > platform.json")]
    Openapi(OpenapiArgs),
    #[command(flatten)]
    Client(ClientCommand),
}

/// `estrade serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    listen: Listen,
    /// Begin a new installation although the data directory holds one whose database is missing or
    /// empty; what is there is kept in DIR/replaced-<time>
    #[arg(long, help_heading = "Installation")]
    pub new_installation: bool,
    /// Start although a check after a crash finds the SQLite database damaged: what is damaged stays so
    #[arg(long, help_heading = "Installation")]
    pub accept_damaged_database: bool,
}

/// `estrade config`.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// Print every key with its meaning instead.
    #[arg(long)]
    pub reference: bool,
    #[command(flatten)]
    listen: Listen,
}

/// `estrade images …`.
#[derive(Debug, Subcommand)]
pub enum ImagesCommand {
    /// List the images that platforms are built with when their sources ask for no version.
    #[command(after_help = "\
Examples:
  estrade images list
  estrade images list --config /etc/estrade.toml python django")]
    List {
        /// Only those of these platforms
        #[arg(value_name = "PLATFORM")]
        platforms: Vec<Platform>,
    },
    /// Fetch those that the container engine does not have.
    #[command(after_help = "\
Examples:
  estrade images pull
  estrade images pull node next")]
    Pull {
        /// Only those of these platforms
        #[arg(value_name = "PLATFORM")]
        platforms: Vec<Platform>,
    },
}

/// `estrade account …`.
#[derive(Debug, Subcommand)]
pub enum AccountCommand {
    /// Make an account.
    #[command(after_help = "\
Example:
  printf %s \"$PASSWORD\" | estrade account create --email ada@example.com \\
      --fullname 'Ada Lovelace' --password-stdin")]
    Create {
        /// How the account signs in.
        #[arg(long)]
        email: String,
        /// The person's name.
        #[arg(long, value_name = "NAME")]
        fullname: String,
        /// Read the password from standard input. It is never an option itself: every user
        /// of the machine could read it there.
        #[arg(long)]
        password_stdin: bool,
    },
    /// Change the password of an account; whoever is signed in with the old one is signed out.
    #[command(after_help = "\
Example:
  printf %s \"$PASSWORD\" | estrade account password --email ada@example.com --password-stdin")]
    Password {
        /// The account.
        #[arg(long)]
        email: String,
        /// Read the password from standard input. It is never an option itself: every user
        /// of the machine could read it there.
        #[arg(long)]
        password_stdin: bool,
        /// End all tokens of the account as well, not only those that signing in made.
        #[arg(long)]
        revoke_tokens: bool,
    },
    /// Lock an account: it cannot sign in, and its tokens and AI keys stop working.
    Disable {
        /// The account.
        #[arg(long)]
        email: String,
    },
    /// Let an account in again that was disabled. `estrade token revoke --all` ends what it had first.
    Enable {
        /// The account.
        #[arg(long)]
        email: String,
    },
    /// Print a link with which somebody sets a new password for an account: one use, within an hour. Its use ends the
    /// account's sessions and tokens.
    #[command(after_help = "\
Example:
  estrade account reset-link --email ada@example.com")]
    ResetLink {
        /// The account.
        #[arg(long)]
        email: String,
    },
    /// Remove the second factor of an account, for a person who lost the device and the recovery codes.
    RemoveSecondFactor {
        /// The account.
        #[arg(long)]
        email: String,
    },
    /// List all accounts.
    List,
}

/// `estrade token …`.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token and print it, and nothing else. It is shown only this once.
    #[command(after_help = "\
Examples:
  estrade token create --account ada@example.com --name laptop
  TOKEN=$(estrade token create --account ada@example.com --expires-in 1h)
  estrade token create --account ada@example.com --scope read")]
    Create {
        /// Whose token, by email.
        #[arg(long, value_name = "EMAIL")]
        account: String,
        /// What the token is for.
        #[arg(long)]
        name: Option<String>,
        /// How long it is valid: 90s, 15m, 1h, 7d, 1y or never.
        #[arg(long, value_name = "TIME", default_value = "30d")]
        expires_in: Lifetime,
        /// What it is good for: full, read, ai, or project: and the id of a project.
        #[arg(long, default_value = "full")]
        scope: TokenScope,
    },
    /// List the tokens of an account.
    List {
        /// Whose tokens, by email.
        #[arg(long, value_name = "EMAIL")]
        account: String,
    },
    /// End a token now, or all of them.
    #[command(after_help = "\
Examples:
  estrade token revoke 6659b3f0a1c2d3e4f5a6b7c8
  estrade token revoke --all --account ada@example.com
  estrade token revoke --all                  of every account, also admin.token")]
    Revoke {
        /// The token's id, as `estrade token list` shows it.
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        id: Option<String>,
        /// End every token.
        #[arg(long)]
        all: bool,
        /// With --all: only those of this account, by email.
        #[arg(long, value_name = "EMAIL", requires = "all", conflicts_with = "id")]
        account: Option<String>,
    },
}

/// `estrade openapi`.
#[derive(Debug, Args)]
pub struct OpenapiArgs {
    /// Which API.
    pub api: Api,
}

/// One of the two APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Api {
    /// Projects, releases, accounts, teams.
    Platform,
    /// Keys, workspaces, inference.
    Ai,
}

/// Reads a database URL. clap's own message would repeat the value, and with it the
/// password.
#[derive(Debug, Clone)]
struct DatabaseUrlParser;

impl TypedValueParser for DatabaseUrlParser {
    type Value = DatabaseUrl;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<DatabaseUrl, clap::Error> {
        parse_unrepeated(command, "--database-url <URL>", value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        parse_from(line.split_whitespace())
    }

    #[test]
    fn the_definition_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn every_command_takes_the_location_of_the_installation() {
        for command in [
            "serve",
            "config",
            "blobs migrate --to s3://bucket/prefix",
            "account create --email a@b.c --fullname A --password-stdin",
            "account password --email a@b.c",
            "account disable --email a@b.c",
            "account enable --email a@b.c",
            "account reset-link --email a@b.c",
            "account remove-second-factor --email a@b.c",
            "account list",
            "token create --account a@b.c --name n --expires-in 1h",
            "token list --account a@b.c",
            "token revoke 0123456789abcdef01234567",
            "token revoke --all",
            "token revoke --all --account a@b.c",
            "openapi platform",
            "openapi ai",
        ] {
            let line =
                format!("estrade {command} --data-dir d --database-url sqlite:x --config c -q");
            let cli = parse(&line).unwrap();
            let flags = cli.flags();
            assert!(cli.quiet && flags.database_url.is_some(), "{line}");
            assert_eq!(flags.data_dir, Some("d".into()));
            assert_eq!(flags.config, Some("c".into()));
        }
    }

    #[test]
    fn serve_and_config_take_listen_addresses() {
        for command in ["serve", "config"] {
            let line = format!(
                "estrade {command} --platform-listen 127.0.0.1:1 --ai-listen 127.0.0.1:2 \
                 --edge-listen 127.0.0.1:3 --edge-tls-listen 127.0.0.1:4 --edge-tls a.pem,b.key"
            );
            let flags = parse(&line).unwrap().flags();
            let ports = [
                flags.platform_listen,
                flags.ai_listen,
                flags.edge_listen,
                flags.edge_tls_listen,
            ];
            assert_eq!(ports.map(|listen| listen.unwrap().port()), [1, 2, 3, 4]);
            let tls = flags.edge_tls.unwrap();
            assert_eq!((tls.cert, tls.key), ("a.pem".into(), "b.key".into()));
        }
        for bad in ["a.pem", "a.pem,", ",b.key", "a,b,c"] {
            assert!(parse(&format!("estrade serve --edge-tls {bad}")).is_err());
        }
    }

    #[test]
    fn a_token_lives_thirty_days_unless_told_otherwise() {
        let Command::Token(TokenCommand::Create { expires_in, .. }) =
            parse("estrade token create --account a@b.c")
                .unwrap()
                .command
        else {
            panic!("not a token command");
        };
        assert_eq!(Ok(expires_in), "30d".parse());
    }

    #[test]
    fn a_token_or_all_of_them_are_revoked() {
        for bad in ["", "--account a@b.c", "x --all", "x --account a@b.c"] {
            let error = parse(&format!("estrade token revoke {bad}")).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{bad}");
        }
    }

    #[test]
    fn a_wrong_place_for_files_is_not_repeated() {
        let error = parse("estrade blobs migrate --to s3://key:hunter2@bucket").unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let text = error.to_string();
        assert!(text.contains("--to") && !text.contains("hunter2"), "{text}");
    }

    #[test]
    fn a_wrong_database_url_is_not_repeated() {
        let error = parse("estrade serve --database-url mysql://root:hunter2@h/db").unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let text = error.to_string();
        assert!(
            text.contains("--database-url") && !text.contains("hunter2"),
            "{text}"
        );
    }
}
