//! Why there is no plan.

use std::error::Error;

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The sources or settings must change: names the place and says what to write there.
    #[error("{place}: {advice}")]
    Refused {
        /// A file of the sources, or a setting.
        place: String,
        /// What is wrong and what to do.
        advice: String,
    },
    /// The sources could not be read, which is nothing that their owner can change.
    #[error("{path} could not be read")]
    Unreadable {
        /// The file.
        path: String,
        /// What went wrong.
        #[source]
        cause: Box<dyn Error + Send + Sync>,
    },
}

/// What the functions of this crate return.
pub(crate) type Result<T, E = PlanError> = std::result::Result<T, E>;

/// An error about a file or setting. What comes from users is shown on one line.
pub(crate) fn refused(place: impl Into<String>, advice: impl Into<String>) -> PlanError {
    PlanError::Refused {
        place: one_line(&place.into()),
        advice: one_line(&advice.into()),
    }
}

/// The text without anything that could start a new line or steer a terminal, and not endless.
pub(crate) fn one_line(text: &str) -> String {
    const MAX_CHARS: usize = 500;
    let visible = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut line: String = text.chars().take(MAX_CHARS).map(visible).collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_of_sane_length() {
        let error = refused("a\nb", format!("\u{1b}[31m{}", "x".repeat(1000))).to_string();
        assert!(!error.chars().any(char::is_control), "{error}");
        assert!(error.starts_with("a\u{fffd}b: \u{fffd}[31mxxx"), "{error}");
        assert!(error.chars().count() < 510);
    }
}
