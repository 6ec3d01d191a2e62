//! `estrade serve`: everything in one process.

use crate::args::ServeArgs;
use crate::config::Config;
use crate::printer::Printer;
use crate::wiring;
use anyhow::{Context, bail};
use estrade_model::error::error_chain;
use estrade_server::run::Server;
use estrade_service::bootstrap::{self, ADMIN, ADMIN_TOKEN_FILE, InstallationPaths};
use estrade_service::identity::reset_links::{self, FirstPassword, LinkKind};
use estrade_service::integrity::{self, RunMarker};
use std::path::Path;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Serves until SIGTERM or SIGINT, then finishes what is in flight.
pub async fn run(args: &ServeArgs, config: &Config, printer: &Printer) -> anyhow::Result<ExitCode> {
    crate::logging::init(&config.log)?;
    // Never dropped: the kernel ends the lock with the process. Threads may outlive this function, and until
    // the last one has ended nobody else may use the directory.
    Box::leak(Box::new(bootstrap::lock_server(&config.data_dir)?));
    let options = wiring::serve_options(config)?;
    let paths = InstallationPaths {
        new_installation: args.new_installation,
        ..wiring::paths(config)?
    };
    let marker = RunMarker::find(&config.data_dir);
    if marker.is_after_crash() && !args.accept_damaged_database {
        integrity::check_after_crash(&paths).await?;
    }
    let core = wiring::open_at(&paths, config).await?;
    marker.begin()?;
    let shutdown = CancellationToken::new();
    let server = Server::start(core, options, shutdown.clone()).await?;
    let impatient = stop_on_signal(shutdown)?;
    greet(config, &server, printer).await?;
    tokio::select! {
        () = server.run() => {
            marker.end();
            Ok(ExitCode::SUCCESS)
        }
        () = impatient.cancelled() => bail!("stopped at once by the second signal; requests in flight were cut off"),
    }
}

/// Cancels the token at the first signal to stop, and the one it returns at the second.
fn stop_on_signal(shutdown: CancellationToken) -> anyhow::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let impatient = CancellationToken::new();
    let second = impatient.clone();
    #[expect(
        clippy::disallowed_methods,
        reason = "ends with the process, whose end it announces"
    )]
    tokio::spawn(async move {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        tracing::info!("stopping: finishing what is in flight");
        shutdown.cancel();
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        second.cancel();
    });
    Ok(impatient)
}

/// What a person needs to go on, in a few lines.
async fn greet(config: &Config, server: &Server, printer: &Printer) -> anyhow::Result<()> {
    for (name, address) in config.exposed_listeners() {
        printer.warning(format_args!(
            "the {name} listener on {address} is reachable from outside without TLS; set {name}.tls or trusted_proxies"
        ));
    }
    let platform = wiring::base_url(server.platform_addr(), config.platform.tls.is_some());
    let ai = wiring::base_url(server.ai_addr(), config.ai.tls.is_some());
    let panel = match &config.platform.public_url {
        Some(url) => url.to_string().trim_end_matches('/').to_owned(),
        None => platform.clone(),
    };
    let first_password = first_password(config, server, &panel, printer).await?;
    let token_file = config.data_dir.join(ADMIN_TOKEN_FILE);
    let database = match config.database() {
        crate::config::DatabaseUrl::Sqlite(_) => String::new(),
        crate::config::DatabaseUrl::Postgres(url) => format!(", database {url}"),
    };
    let token = if token_file.exists() {
        format!("in {} (account {ADMIN})", token_file.display())
    } else {
        format!(
            "estrade token create --account {ADMIN}{}",
            data_dir_flag(&config.data_dir)
        )
    };
    let credential = if token_file.exists() {
        format!("$(cat {})", shell_word(&token_file))
    } else {
        "$TOKEN".to_owned()
    };
    printer.data(format_args!(
        "Estrade {version} is ready.

  Panel         {panel}/panel{first_password}
  Platform API  {platform}   (docs: {platform}/docs)
  AI API        {ai}   (docs: {ai}/docs)
  Your sites    {sites}
  Data          {data}{database}
  Token         {token}

Try it:
  curl -H \"Authorization: Bearer {credential}\" {platform}/v1/projects
  curl -H \"Authorization: Bearer {credential}\" {ai}/v1/keys
",
        version = env!("CARGO_PKG_VERSION"),
        data = config.data_dir.display(),
        sites = wiring::settings(config)?.project_url("<project>"),
    ))?;
    Ok(())
}

/// The line that says how the administrator gets a password, while there is none. On stdout and never in the
/// log: the link is as good as the password.
async fn first_password(
    config: &Config,
    server: &Server,
    panel: &str,
    printer: &Printer,
) -> anyhow::Result<String> {
    let admin = ADMIN.parse().context("the administrator's address")?;
    let made = reset_links::create_welcome_link(&server.app().core, &admin).await;
    Ok(match made {
        Ok(FirstPassword::Exists) => String::new(),
        Ok(FirstPassword::Link(code)) => format!(
            "\n  Password      {panel}{}   (sets the administrator's: once, within an hour)",
            reset_links::path(LinkKind::Welcome, &code)
        ),
        Ok(FirstPassword::LinkWasShown) => format!(
            "\n  Password      none yet: estrade account reset-link --email {ADMIN}{}",
            data_dir_flag(&config.data_dir)
        ),
        Err(error) => {
            printer.warning(format_args!(
                "cannot make a link for the administrator's password: {}",
                error_chain(&error)
            ));
            String::new()
        }
    })
}

fn data_dir_flag(data_dir: &Path) -> String {
    if data_dir == Path::new("./estrade-data") {
        return String::new();
    }
    format!(" --data-dir {}", shell_word(data_dir))
}

/// A path as one would type it in a shell.
fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+,@:%=".contains(c);
    if text.chars().all(plain) && !text.starts_with('-') {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}
