//! Responses on their way from a provider to a client: framing of events, metering, redaction, and reading on
//! after a client has left.

pub(crate) mod active_responses;
pub(crate) mod body;
pub(crate) mod body_error;
pub(crate) mod content;
pub(crate) mod detached;
pub(crate) mod event_template;
pub(crate) mod key_redactor;
pub(crate) mod metered_response;
pub(crate) mod model_name;
pub(crate) mod readers;
pub(crate) mod response_scanner;
pub(crate) mod sse;
pub(crate) mod worker;
