//! Messages of the client, in JSON.

use estrade_service::platform::containers::shell::TerminalSize;
use serde::Deserialize;
use std::borrow::Cow;

/// Default size of the terminal.
const DEFAULT_COLUMNS: u16 = 80;
const DEFAULT_ROWS: u16 = 24;
/// No screen is larger.
const MAX_SIZE: u16 = 1000;

/// A message of the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame<'f> {
    Start(TerminalSize),
    Input(Cow<'f, str>),
    /// To have another size.
    Resize(TerminalSize),
    /// Standard input has ended.
    Eof,
}

#[derive(Deserialize)]
struct Fields<'f> {
    action: Option<&'f str>,
    r#type: Option<&'f str>,
    #[serde(borrow)]
    data: Option<Cow<'f, str>>,
    cols: Option<u16>,
    rows: Option<u16>,
}

impl<'f> Frame<'f> {
    /// None: it makes no sense.
    pub(super) fn parse(json: &'f [u8]) -> Option<Self> {
        let fields: Fields<'f> = serde_json::from_slice(json).ok()?;
        let size = TerminalSize {
            columns: fields.cols.unwrap_or(DEFAULT_COLUMNS).clamp(1, MAX_SIZE),
            rows: fields.rows.unwrap_or(DEFAULT_ROWS).clamp(1, MAX_SIZE),
        };
        match (fields.action, fields.r#type) {
            (Some("start"), _) => Some(Self::Start(size)),
            (_, Some("input")) => fields.data.map(Self::Input),
            (_, Some("eof")) => Some(Self::Eof),
            (_, Some("resize")) => Some(Self::Resize(size)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_and_nonsense_is_not() {
        let size = |columns, rows| TerminalSize { columns, rows };
        let read = |json: &'static str| Frame::parse(json.as_bytes());
        let start = r#"{"action":"start","cols":100,"rows":30}"#;
        assert_eq!(read(start), Some(Frame::Start(size(100, 30))));
        let start = r#"{"action":"start"}"#;
        assert_eq!(read(start), Some(Frame::Start(size(80, 24))));
        let input = r#"{"type":"input","data":"ls\n","more":1}"#;
        assert_eq!(read(input), Some(Frame::Input("ls\n".into())));
        let resize = r#"{"type":"resize","cols":0,"rows":65535}"#;
        assert_eq!(read(resize), Some(Frame::Resize(size(1, 1000))));
        assert_eq!(read(r#"{"type":"eof"}"#), Some(Frame::Eof));
        for nonsense in [
            "",
            "ls",
            "[]",
            "{}",
            r#"{"type":"input"}"#,
            r#"{"type":"other"}"#,
            r#"{"action":"stop"}"#,
            r#"{"type":"resize","cols":-1}"#,
            r#"{"type":"input","data":1}"#,
        ] {
            assert_eq!(read(nonsense), None, "{nonsense}");
        }
    }
}
