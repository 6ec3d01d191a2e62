//! What can be said to the client.

use super::{
    api, chat, completions, context, deploy, disks, domains, env, keys, login, logs, projects,
    releases, shell, teams, tokens, workspaces,
};
use clap::Subcommand;

/// The commands that talk to a server.
#[derive(Debug, Subcommand)]
pub enum ClientCommand {
    /// Log in to a server and remember it.
    Login(login::LoginArgs),
    /// Forget a server and its token.
    Logout(login::LogoutArgs),
    /// Choose between the servers that you are logged in to.
    #[command(subcommand)]
    Context(context::ContextCommand),
    /// Make and manage projects.
    #[command(subcommand)]
    Projects(projects::ProjectsCommand),
    /// Deploy a folder.
    Deploy(deploy::DeployArgs),
    /// Look at releases, cancel them, go back to an earlier one.
    #[command(subcommand)]
    Releases(releases::ReleasesCommand),
    /// Read and set the environment variables of a project.
    #[command(subcommand)]
    Env(env::EnvCommand),
    /// Read what a project writes.
    Logs(logs::LogsArgs),
    /// Open a shell in a running instance, or run a command there.
    Shell(shell::ShellArgs),
    /// Serve a project under a host name of your own.
    #[command(subcommand)]
    Domains(domains::DomainsCommand),
    /// Manage what a project keeps across releases.
    #[command(subcommand)]
    Disks(disks::DisksCommand),
    /// Make and manage AI keys.
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Make and manage workspaces of AI keys.
    #[command(subcommand)]
    Workspaces(workspaces::WorkspacesCommand),
    /// List the models that can be asked.
    Models,
    /// Show what a workspace used.
    Usage(workspaces::UsageArgs),
    /// Ask a model.
    Chat(chat::ChatArgs),
    /// Make and revoke your API tokens.
    #[command(subcommand)]
    Tokens(tokens::TokensCommand),
    /// Make teams and manage their members.
    #[command(subcommand)]
    Teams(teams::TeamsCommand),
    /// Send a request to the API.
    Api(api::ApiArgs),
    /// Print the completions of a shell.
    Completions(completions::CompletionsArgs),
    /// Print the manual page.
    Man(completions::ManArgs),
}
