//! `estrade login` without a token: the person approves it in a browser.

use super::open_browser;
use super::prompt::can_ask;
use super::session::Session;
use estrade_client::device_login::{DeviceLogin, DeviceToken};
use estrade_client::text::neutralize_line;
use estrade_client::url::is_readable_in_transit;
use estrade_client::{Client, Result};
use estrade_model::token_scope::TokenScope;
use std::path::Path;

/// What the login is to be.
pub struct BrowserLogin<'a> {
    pub server: &'a str,
    pub scope: TokenScope,
    /// Whether a browser may be opened.
    pub may_open: bool,
}

/// Shows the code, waits for the answer. None when the person gives it up with Ctrl-C.
pub async fn log_in(
    login: &BrowserLogin<'_>,
    session: &Session<'_>,
) -> Result<Option<DeviceToken>> {
    // What comes must be kept: a file that cannot be read is told before anybody approves anything.
    session.store()?.load()?;
    let printer = &session.output.printer;
    if is_readable_in_transit(login.server) {
        printer.warning(format_args!(
            "{} is reached without TLS: others on the way can read the token that comes back",
            login.server
        ));
    }
    let client = Client::new(login.server, None, None)?;
    let device = DeviceLogin::start(&client, login.scope, &host_name()).await?;
    if let Some(host) = &device.other_host {
        // Said also with `--quiet`: whoever approves gives a token for the other host to this server.
        printer.question(format_args!(
            "warning: {} sends you to another host, {}; go on only if both are yours",
            login.server,
            neutralize_line(host)
        ));
    }
    if device.page_without_tls {
        printer.question(format_args!(
            "warning: that page is reached without TLS: others on the way can read the password that you enter there"
        ));
    }
    // Also with `--quiet`: without it nobody could go on.
    printer.question(format_args!(
        "Open {} and enter the code {}",
        neutralize_line(&device.page),
        neutralize_line(&device.user_code)
    ));
    let opened = login.may_open
        && device.other_host.is_none()
        && !device.page_without_tls
        && can_ask()
        && open_browser::open(&device.page_with_code);
    if opened {
        printer.note("A browser was opened there; compare the code before you approve.");
    }
    let minutes = device.lifetime.as_secs() / 60;
    printer.note(format_args!(
        "Waiting for your answer, for {minutes} minutes at most. Ctrl-C gives it up."
    ));
    tokio::select! {
        token = device.wait() => token.map(Some),
        _ = tokio::signal::ctrl_c() => {
            printer.note("given up: you are not logged in; if you have approved it, the page Tokens may list a token to revoke");
            Ok(None)
        }
    }
}

/// What this machine is called, for the person who approves. It need not be known.
fn host_name() -> String {
    let kernel = std::fs::read_to_string(Path::new("/proc/sys/kernel/hostname")).ok();
    let variable = || {
        let named = ["HOSTNAME", "COMPUTERNAME"].map(|name| std::env::var(name).ok());
        named.into_iter().flatten().next()
    };
    let program = || {
        let output = std::process::Command::new("hostname").output().ok()?;
        String::from_utf8(output.stdout).ok()
    };
    let name = kernel.or_else(variable).or_else(program);
    name.unwrap_or_default().trim().chars().take(100).collect()
}
