//! What is said of an error in a log.

/// An error and everything that led to it, in one line. A log in JSON would show the first only.
pub fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}
