//! Questions to the person at the terminal. Where there is none, nothing is asked.

use estrade_client::text::neutralize_line;
use estrade_client::{ClientError, Result};
use std::io::{BufRead, IsTerminal, Write};

/// Whether somebody is there to answer.
pub fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks for a text; an empty answer is the suggestion.
pub fn ask(question: &str, suggestion: &str) -> Result<String> {
    let hint = if suggestion.is_empty() {
        String::new()
    } else {
        format!(" [{suggestion}]")
    };
    let mut stderr = std::io::stderr().lock();
    // Somebody who does not see the question cannot answer it; reading fails then.
    let question = neutralize_line(&format!("{question}{hint}: "));
    let _ = write!(stderr, "{question}");
    let _ = stderr.flush();
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    match read {
        Ok(0) | Err(_) => Err(ClientError::Usage("no answer; nothing was done".to_owned())),
        Ok(_) if answer.trim().is_empty() => Ok(suggestion.to_owned()),
        Ok(_) => Ok(answer.trim().to_owned()),
    }
}

/// Asks on a thread of its own, so that Ctrl-C is heard meanwhile.
pub async fn ask_aside<T: Send + 'static>(
    question: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let asked = tokio::task::spawn_blocking(question).await;
    asked.map_err(|error| ClientError::Failed(error.to_string()))?
}

/// Asks before something that cannot be undone. `--yes` answers it; without a terminal it is needed.
pub fn confirm(question: &str, is_confirmed: bool) -> Result<()> {
    if is_confirmed {
        return Ok(());
    }
    if !can_ask() {
        return Err(ClientError::Usage(format!(
            "{question} Add --yes to do it without being asked"
        )));
    }
    match ask(&format!("{question} (yes/no)"), "no")?.as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(ClientError::Usage("nothing was done".to_owned())),
    }
}
