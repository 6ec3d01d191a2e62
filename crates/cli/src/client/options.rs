//! The options that all commands of the client take.

use clap::Args;

/// Which server is meant, and how the result is printed.
#[derive(Debug, Clone, Default, Args)]
pub struct ServerOptions {
    /// Use this context instead of the current one
    #[arg(long, value_name = "NAME", global = true, help_heading = "Server")]
    pub context: Option<String>,
    /// Talk to this server [env: ESTRADE_URL]; ESTRADE_TOKEN holds the token for it
    #[arg(
        long,
        value_name = "URL",
        global = true,
        help_heading = "Server",
        conflicts_with = "context"
    )]
    pub url: Option<String>,
    /// Act for this team, by id or name
    #[arg(long, value_name = "TEAM", global = true, help_heading = "Server")]
    pub team: Option<String>,
    /// Print the result as one JSON document
    #[arg(long, global = true, help_heading = "Server")]
    pub json: bool,
}
