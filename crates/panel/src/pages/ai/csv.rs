//! Tables as CSV (RFC 4180) for spreadsheets.

use axum::http::header;
use axum::response::{IntoResponse, Response};

/// A table that is downloaded as a file.
pub(super) struct Csv(String);

impl Csv {
    pub(super) fn new(header: &[&str]) -> Self {
        let mut csv = Self(String::new());
        csv.push(header.iter().map(|name| (*name).to_owned()));
        csv
    }

    pub(super) fn push(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<_> = cells.into_iter().map(|cell| quote(&cell)).collect();
        self.0.push_str(&cells.join(","));
        self.0.push_str("\r\n");
    }

    pub(super) fn into_download(self, name: &str) -> Response {
        let headers = [
            (header::CONTENT_TYPE, "text/csv; charset=utf-8".to_owned()),
            (
                header::CONTENT_DISPOSITION,
                format!("attachment; filename=\"{name}\""),
            ),
        ];
        (headers, self.0).into_response()
    }
}

/// A cell. Spreadsheets run what begins like a formula: such a text gets an apostrophe before it.
fn quote(cell: &str) -> String {
    let is_formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if is_formula {
        format!("'{cell}")
    } else {
        cell.to_owned()
    };
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_and_never_formulas() {
        assert_eq!(quote("a/b"), "a/b");
        assert_eq!(quote("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(quote("=HYPERLINK(\"x\")"), "\"'=HYPERLINK(\"\"x\"\")\"");
        assert_eq!(quote("@x"), "'@x");
    }
}
