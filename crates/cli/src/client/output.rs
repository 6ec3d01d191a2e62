//! What commands print: one JSON document, or text for people.

use crate::printer::{Printer, wants_colour};
use anyhow::Context;
use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width, presets};
use estrade_client::ClientError;
use estrade_client::text::{neutralize, neutralize_line};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Display;
use std::io::IsTerminal;

/// Narrowest terminal that tables are fitted to.
const MIN_WIDTH: u16 = 40;

/// Between two columns.
const COLUMN_SPACE: usize = 2;

/// How the result of a command is printed.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    pub printer: Printer,
    json: bool,
    /// Of the terminal, if stdout is one.
    width: Option<u16>,
    colour: bool,
}

impl Output {
    pub fn new(printer: Printer, json: bool) -> Self {
        let stdout = std::io::stdout();
        let size = || terminal_size::terminal_size_of(std::io::stdout());
        let width = || size().map_or(80, |(terminal_size::Width(width), _)| width.max(MIN_WIDTH));
        Self {
            printer,
            json,
            width: stdout.is_terminal().then(width),
            colour: wants_colour(&stdout),
        }
    }

    /// Whether the result is one JSON document.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Prints what a server responded: as it came with `--json`, else as `show` writes it.
    pub fn response<T: DeserializeOwned>(
        &self,
        document: Value,
        show: impl FnOnce(T) -> String,
    ) -> anyhow::Result<()> {
        if self.json {
            return self.document(&document);
        }
        let typed = serde_json::from_value(document)
            .context("the server's response has another form than expected")?;
        let text = show(typed);
        if !text.is_empty() {
            self.printer.data(text)?;
        }
        Ok(())
    }

    /// The same for what is one line, such as an id.
    pub fn line<T: DeserializeOwned>(
        &self,
        document: Value,
        show: impl FnOnce(T) -> String,
    ) -> anyhow::Result<()> {
        self.response(document, |typed| neutralize_line(&show(typed)))
    }

    /// Prints the secret in a response. The server tells it once: when the first response was lost and the request was
    /// repeated, what comes has none, and `rescue` says what to do.
    pub fn secret(&self, document: &Value, field: &str, rescue: &str) -> anyhow::Result<()> {
        let Some(secret) = document[field].as_str().filter(|it| !it.is_empty()) else {
            return Err(ClientError::Failed(format!(
                "it was done, but the secret was lost on its way here, and the server does not tell it twice; {rescue}"
            ))
            .into());
        };
        if self.json {
            return self.document(document);
        }
        self.printer.data(neutralize_line(secret))?;
        Ok(())
    }

    /// Says that something was done; with `--json`, by a document.
    pub fn done(&self, document: &Value, sentence: impl Display) -> anyhow::Result<()> {
        if self.json {
            return self.document(document);
        }
        self.printer.note(neutralize_line(&sentence.to_string()));
        Ok(())
    }

    /// A text of others for stdout: as it is for a program, without what would steer it for a terminal.
    pub fn shown(&self, text: String) -> String {
        if self.width.is_some() {
            neutralize(&text)
        } else {
            text
        }
    }

    /// Prints one document.
    pub fn document(&self, document: &Value) -> anyhow::Result<()> {
        // JSON escapes every control character of C0; those of C1 are text to it.
        let text = serde_json::to_string_pretty(document)?;
        self.printer.data(self.shown(text))?;
        Ok(())
    }

    /// Rows in columns that fit the terminal; nothing when there are none.
    pub fn table(&self, header: &[&str], rows: Vec<Vec<String>>) -> String {
        if rows.is_empty() {
            return String::new();
        }
        let rows: Vec<Vec<_>> = rows
            .into_iter()
            .map(|row| row.iter().map(|cell| neutralize_line(cell)).collect())
            .collect();
        let words = longest_words(header, &rows);
        let narrowest: usize = words.iter().map(|width| width + COLUMN_SPACE).sum();
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        match self.width {
            // An id or an address that is broken cannot be copied.
            Some(width) if narrowest > usize::from(width) => return self.records(header, &rows),
            Some(width) => {
                table.set_content_arrangement(ContentArrangement::Dynamic);
                table.set_width(width);
            }
            None => {
                table.set_content_arrangement(ContentArrangement::Disabled);
            }
        }
        table.set_header(header);
        for row in rows {
            table.add_row(row);
        }
        for (column, word) in table.column_iter_mut().zip(words) {
            column.set_padding((0, 2));
            let width = u16::try_from(word + COLUMN_SPACE).unwrap_or(u16::MAX);
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width)));
        }
        let text = table.to_string();
        let lines: Vec<_> = text.lines().map(str::trim_end).collect();
        match lines.split_first() {
            Some((first, rest)) if self.colour => {
                let first = format!("\u{1b}[1m{first}\u{1b}[0m");
                std::iter::once(first.as_str())
                    .chain(rest.iter().copied())
                    .collect::<Vec<_>>()
                    .join("\n")
            }
            _ => lines.join("\n"),
        }
    }

    /// The rows of a table that is wider than the terminal: one below the other, with a blank line between them.
    fn records(&self, header: &[&str], rows: &[Vec<String>]) -> String {
        let names: Vec<_> = header.iter().map(|name| name.to_lowercase()).collect();
        let record = |row: &Vec<String>| {
            let facts: Vec<_> = names
                .iter()
                .map(String::as_str)
                .zip(row.iter().cloned())
                .collect();
            self.facts(&facts)
        };
        rows.iter().map(record).collect::<Vec<_>>().join("\n\n")
    }

    /// Names and values, one below the other; empty values are left out.
    pub fn facts(&self, facts: &[(&str, String)]) -> String {
        let shown = facts.iter().filter(|(_, value)| !value.is_empty());
        let width = shown
            .clone()
            .map(|(name, _)| name.len())
            .max()
            .unwrap_or_default();
        let line =
            |(name, value): &(&str, String)| format!("{name:width$}  {}", neutralize_line(value));
        shown.map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Of each column, the width of its longest word on a terminal, where a character may take two columns or none.
fn longest_words(header: &[&str], rows: &[Vec<String>]) -> Vec<usize> {
    // The table measures the lines of a cell.
    let word_per_line = |cell: &str| cell.replace(' ', "\n");
    let mut words = Table::new();
    words.set_header(header.iter().map(|cell| word_per_line(cell)));
    for row in rows {
        words.add_row(row.iter().map(|cell| word_per_line(cell)));
    }
    let widths = words.column_max_content_widths();
    widths.into_iter().map(usize::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(width: Option<u16>) -> Output {
        Output {
            printer: Printer::new(true),
            json: false,
            width,
            colour: false,
        }
    }

    fn rows() -> Vec<Vec<String>> {
        [
            ["0123456789abcdef01234567", "one two three four five six"],
            ["b", ""],
        ]
        .map(|row| row.map(str::to_owned).to_vec())
        .to_vec()
    }

    #[test]
    fn a_table_breaks_lines_between_words_only() {
        let table = |width| output(width).table(&["ID", "MESSAGE"], rows());
        assert_eq!(
            table(None),
            "ID                        MESSAGE\n0123456789abcdef01234567  one two three four five six\nb"
        );
        let narrow = table(Some(40));
        assert_eq!(
            narrow,
            "ID                        MESSAGE\n0123456789abcdef01234567  one two\n                          three four\n                          five six\nb"
        );
    }

    #[test]
    fn widths_are_those_of_the_terminal() {
        let rows = || {
            vec![
                vec!["東京".to_owned(), "x".to_owned()],
                vec!["e\u{301}".to_owned(), "y".to_owned()],
            ]
        };
        let wide = output(Some(40)).table(&["N", "V"], rows());
        assert_eq!(wide, "N     V\n東京  x\ne\u{301}     y");
        assert_eq!(wide, output(None).table(&["N", "V"], rows()));
        assert_eq!(longest_words(&["N", "V"], &rows()), [4, 1]);
    }

    #[test]
    fn what_does_not_fit_is_shown_row_by_row() {
        let narrow = output(Some(20)).table(&["ID", "LAST USED"], rows());
        assert_eq!(
            narrow,
            "id         0123456789abcdef01234567\nlast used  one two three four five six\n\nid  b"
        );
    }
}
