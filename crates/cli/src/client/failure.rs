//! How a command fails: a message with the next step, and an exit code that says which kind of failure it was.

use crate::printer::Printer;
use estrade_client::ClientError;
use estrade_client::text::neutralize_line;
use std::process::ExitCode;

/// A wrong argument; nothing was done.
pub const USAGE: u8 = 2;
/// Not logged in, or not allowed.
pub const DENIED: u8 = 3;
/// There is no such thing.
pub const NOT_FOUND: u8 = 4;
/// It is not possible in the present state: a name is taken, a resource was changed meanwhile.
pub const CONFLICT: u8 = 5;
/// The server was not reached, is overloaded or failed: the same command may succeed later.
pub const UNAVAILABLE: u8 = 6;
/// The release ended without being live.
pub const RELEASE_FAILED: u8 = 7;
/// Stopped by Ctrl-C, as shells count it.
pub const INTERRUPTED: u8 = 130;
/// Stopped by SIGTERM, as shells count it.
#[cfg(unix)]
pub const TERMINATED: u8 = 143;

/// Says on stderr what went wrong and what to do.
pub fn report(error: &anyhow::Error, printer: &Printer) -> ExitCode {
    let client_error = error.downcast_ref::<ClientError>();
    // Errors of the client say their cause themselves.
    let text = client_error.map_or_else(|| format!("{error:#}"), ToString::to_string);
    // What a server says is somebody else's text.
    printer.error(neutralize_line(&text));
    if let Some(step) = client_error.and_then(next_step) {
        printer.hint(neutralize_line(&step));
    }
    ExitCode::from(client_error.map_or(1, exit_code))
}

fn exit_code(error: &ClientError) -> u8 {
    match error {
        ClientError::Usage(_) => USAGE,
        ClientError::NoCredential(_)
        | ClientError::LostCredential { .. }
        | ClientError::Denied(_)
        | ClientError::LoginEnded { .. }
        | ClientError::NoBrowserLogin(_) => DENIED,
        ClientError::State(_) => CONFLICT,
        ClientError::Unreachable { .. } | ClientError::TimedOut { .. } => UNAVAILABLE,
        ClientError::NotFound(_) => NOT_FOUND,
        ClientError::Failed(_) | ClientError::Malformed { .. } | ClientError::File { .. } => 1,
        ClientError::Refused(refusal) => of_status(refusal.status),
    }
}

/// The exit code of a status of HTTP.
pub fn of_status(status: u16) -> u8 {
    match status {
        200..=299 => 0,
        401..=403 => DENIED,
        404 | 410 => NOT_FOUND,
        409 | 412 | 422 => CONFLICT,
        429 | 500.. => UNAVAILABLE,
        _ => 1,
    }
}

fn next_step(error: &ClientError) -> Option<String> {
    Some(match error {
        ClientError::NoCredential(server) => {
            format!(
                "`estrade login {server}` logs in through a browser; with `--token -` it reads a token"
            )
        }
        ClientError::LoginEnded { server, .. } => {
            format!(
                "`estrade login {server}` begins again; without a browser, `--token -` reads a token that you make at \
                 {server}/panel/tokens"
            )
        }
        ClientError::NoBrowserLogin(server) => {
            format!(
                "`estrade login {server} --token -` reads a token; make one at {server}/panel/tokens"
            )
        }
        ClientError::LostCredential { server, .. } => {
            format!(
                "log in again: `estrade login {server} --token -`; with --no-keyring the token is kept in a file"
            )
        }
        ClientError::Unreachable { .. } => {
            "is the server running, and is its address right? `estrade context list` shows it"
                .to_owned()
        }
        ClientError::TimedOut { .. } => "look whether it was done, then try again".to_owned(),
        ClientError::Refused(refusal) => match (refusal.status, refusal.code.as_str()) {
            (401, _) => {
                "the token is wrong, has ended or was revoked: `estrade login` with another one"
                    .to_owned()
            }
            (403, "no_permission") => {
                "ask somebody who manages the team, or use a token with another scope".to_owned()
            }
            (404, _) if !refusal.message.contains("project") => {
                "is the name or id right, and is it another team's (--team)?".to_owned()
            }
            (404, _) => {
                "`estrade projects list` shows what there is; is it another team's (--team)?"
                    .to_owned()
            }
            (409, "project_exists") => "choose another name".to_owned(),
            (500.., _) => {
                let id = refusal.request_id.as_deref().unwrap_or("unknown");
                format!(
                    "try again in a moment; the server's log has it under request {}",
                    neutralize_line(id)
                )
            }
            _ => return None,
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use estrade_client::error::Refusal;

    #[test]
    fn kinds_of_failures_have_codes_of_their_own() {
        for (status, code) in [
            (200, 0),
            (400, 1),
            (401, 3),
            (403, 3),
            (404, 4),
            (409, 5),
            (412, 5),
            (429, 6),
            (503, 6),
        ] {
            assert_eq!(of_status(status), code, "{status}");
        }
        assert_eq!(exit_code(&ClientError::Usage(String::new())), USAGE);
        assert_eq!(exit_code(&ClientError::NotFound(String::new())), NOT_FOUND);
        assert_eq!(exit_code(&ClientError::Failed(String::new())), 1);
    }

    #[test]
    fn a_refused_token_says_how_to_log_in() {
        let refusal = Refusal {
            status: 401,
            code: "unauthorized".to_owned(),
            message: "no".to_owned(),
            request_id: None,
            has_retry_after: false,
            missing: Vec::new(),
        };
        let step = next_step(&ClientError::Refused(Box::new(refusal))).unwrap();
        assert!(step.contains("estrade login"), "{step}");
    }
}
