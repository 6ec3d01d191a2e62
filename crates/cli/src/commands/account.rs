//! `estrade account …`: accounts, managed by whoever has the data directory.

use crate::args::AccountCommand;
use crate::config::Config;
use crate::printer::Printer;
use crate::wiring;
use anyhow::{Context, bail};
use estrade_model::account::NewAccount;
use estrade_model::names::Email;
use estrade_model::secret::Secret;
use estrade_service::identity::accounts::{self, EndedTokens};
use estrade_service::identity::reset_links::{self, LinkKind};
use estrade_service::identity::second_factor;
use std::io::Read;
use std::process::ExitCode;

/// Runs one of the account commands.
pub async fn run(
    command: &AccountCommand,
    config: &Config,
    printer: &Printer,
) -> anyhow::Result<ExitCode> {
    let core = wiring::open(config).await?;
    match command {
        AccountCommand::Create {
            email,
            fullname,
            password_stdin,
        } => {
            let new = NewAccount {
                email: parse_email(email)?,
                fullname: fullname.parse().context("--fullname")?,
                password: if *password_stdin {
                    Some(read_password()?)
                } else {
                    None
                },
                admin: false,
            };
            let email = new.email.clone();
            let id = accounts::create_account(&core, new).await?;
            printer.data(id)?;
            printer.note(format_args!(
                "account {email} made; `estrade token create --account {email}` gives it a token"
            ));
        }
        AccountCommand::Password {
            email,
            password_stdin,
            revoke_tokens,
        } => {
            if !password_stdin {
                bail!("give the password on standard input: add --password-stdin");
            }
            let ends = if *revoke_tokens {
                EndedTokens::All
            } else {
                EndedTokens::Sessions
            };
            let email = parse_email(email)?;
            let ended = accounts::set_password(&core, &email, read_password()?, ends).await?;
            let kind = if *revoke_tokens { "tokens" } else { "logins" };
            printer.note(format_args!("password changed; {ended} {kind} ended"));
        }
        AccountCommand::Disable { email } => {
            accounts::disable_account(&core, &parse_email(email)?).await?;
            printer.note("account disabled; its tokens and AI keys no longer work");
        }
        AccountCommand::Enable { email } => {
            accounts::enable_account(&core, &parse_email(email)?).await?;
            printer.note("account enabled; the tokens and AI keys that it still has work again");
        }
        AccountCommand::ResetLink { email } => {
            let account = accounts::find_account(&core, &parse_email(email)?).await?;
            let secret = reset_links::create_any_reset_link(&core, account.id).await?;
            printer.data(reset_links::url(&core, LinkKind::Reset, &secret).expose())?;
            printer.note(format_args!(
                "the link sets a new password for {}, once, within an hour, and ends its sessions and tokens; earlier links no longer work",
                account.email
            ));
        }
        AccountCommand::RemoveSecondFactor { email } => {
            let account = accounts::find_account(&core, &parse_email(email)?).await?;
            second_factor::remove(&core, account.id).await?;
            printer.note("second factor removed; the password alone opens the account");
        }
        AccountCommand::List => {
            let row = |account: estrade_store::accounts::AccountRow| {
                let mark = |is: bool, word: &str| if is { word.to_owned() } else { String::new() };
                let state = if account.disabled {
                    "disabled"
                } else {
                    "active"
                }
                .to_owned();
                [
                    account.id.to_string(),
                    account.email,
                    account.fullname,
                    mark(account.admin, "admin"),
                    state,
                ]
            };
            let rows: Vec<_> = accounts::list_accounts(&core)
                .await?
                .into_iter()
                .map(row)
                .collect();
            printer.table(["ID", "EMAIL", "NAME", "ROLE", "STATE"], &rows)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads an address from the command line.
pub(super) fn parse_email(text: &str) -> anyhow::Result<Email> {
    text.parse().with_context(|| format!("`{text}`"))
}

/// The password, without the newline that `echo` puts behind it.
fn read_password() -> anyhow::Result<Secret> {
    let mut text = String::new();
    std::io::stdin()
        .take(4096)
        .read_to_string(&mut text)
        .context("cannot read the password")?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(Secret(text.strip_suffix('\r').unwrap_or(text).to_owned()))
}
