//! `estrade serve`: everything in one process.

use crate::config::Config;
use crate::printer::Printer;
use crate::wiring;
use anyhow::Context;
use estrade_server::run::Server;
use estrade_service::bootstrap::{self, ADMIN, ADMIN_TOKEN_FILE};
use std::path::Path;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Serves until SIGTERM or SIGINT, then finishes what is in flight.
pub async fn run(config: &Config, printer: &Printer) -> anyhow::Result<ExitCode> {
    crate::logging::init(&config.log)?;
    let _lock = bootstrap::lock_server(&config.data_dir)?;
    let core = wiring::open(config).await?;
    let shutdown = CancellationToken::new();
    let server = Server::start(core, wiring::serve_options(config), shutdown.clone()).await?;
    greet(config, &server, printer)?;
    stop_on_signal(shutdown)?;
    server.run().await;
    Ok(ExitCode::SUCCESS)
}

/// Cancels the token at the first signal to stop; at the second the process ends by itself.
fn stop_on_signal(shutdown: CancellationToken) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    #[expect(
        clippy::disallowed_methods,
        reason = "ends with the process, whose end it announces"
    )]
    tokio::spawn(async move {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        tracing::info!("stopping: finishing what is in flight");
        shutdown.cancel();
    });
    Ok(())
}

/// What a person needs to go on, in a few lines.
fn greet(config: &Config, server: &Server, printer: &Printer) -> anyhow::Result<()> {
    for (name, address) in config.exposed_listeners() {
        printer.warning(format_args!(
            "the {name} listener on {address} is reachable from outside without TLS; set {name}.tls or trusted_proxies"
        ));
    }
    let platform = wiring::base_url(server.platform_addr(), config.platform.tls.is_some());
    let ai = wiring::base_url(server.ai_addr(), config.ai.tls.is_some());
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
        format!("$(cat {})", token_file.display())
    } else {
        "$TOKEN".to_owned()
    };
    printer.data(format_args!(
        "Estrade {version} is ready.

  Platform API  {platform}   (docs: {platform}/docs)
  AI API        {ai}   (docs: {ai}/docs)
  Data          {data}{database}
  Token         {token}

Try it:
  curl -H \"Authorization: Bearer {credential}\" {platform}/v1/projects
  curl -H \"Authorization: Bearer {credential}\" {ai}/v1/keys
",
        version = env!("CARGO_PKG_VERSION"),
        data = config.data_dir.display(),
    ))?;
    Ok(())
}

fn data_dir_flag(data_dir: &Path) -> String {
    if data_dir == Path::new("./estrade-data") {
        return String::new();
    }
    format!(" --data-dir {}", data_dir.display())
}
