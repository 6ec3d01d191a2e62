//! Where commands say things: data on stdout, talk on stderr.
//!
//! Scripts read stdout, people read both. No command prints in any other way.

use comfy_table::{ContentArrangement, Table, presets};
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

/// The two output streams of a command.
#[derive(Debug, Clone, Copy)]
pub struct Printer {
    quiet: bool,
    colour: bool,
}

impl Printer {
    /// For this process; `quiet` leaves only data and errors.
    pub fn new(quiet: bool) -> Self {
        Self {
            quiet,
            colour: wants_colour(&io::stderr()),
        }
    }

    /// Whether only data and errors are printed.
    pub fn is_quiet(self) -> bool {
        self.quiet
    }

    /// Prints the result of the command on stdout.
    ///
    /// A reader that went away (`estrade token list | head -1`) has what it wanted: that
    /// is no error. A full disk is one.
    pub fn data(&self, text: impl Display) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        forgive_closed_pipe(writeln!(stdout, "{text}").and_then(|()| stdout.flush()))
    }

    /// Prints rows in columns, on stdout.
    pub fn table<const N: usize>(&self, header: [&str; N], rows: &[[String; N]]) -> io::Result<()> {
        self.data(columns(header, rows))
    }

    /// Prints a note on stderr, unless `--quiet`.
    pub fn note(&self, text: impl Display) {
        if !self.quiet {
            talk(format_args!("{text}"));
        }
    }

    /// Prints a warning on stderr, unless `--quiet`.
    pub fn warning(&self, text: impl Display) {
        if !self.quiet {
            talk(format_args!("{} {text}", self.label("warning:", "1;33")));
        }
    }

    /// Asks the person to do something, on stderr; always.
    pub fn question(&self, text: impl Display) {
        talk(format_args!("{text}"));
    }

    /// Says why the command failed; always.
    pub fn error(&self, text: impl Display) {
        talk(format_args!("{} {text}", self.label("error:", "1;31")));
    }

    /// Says what to do about an error; always.
    pub fn hint(&self, text: impl Display) {
        talk(format_args!("{} {text}", self.label("hint:", "1;36")));
    }

    fn label(self, word: &str, ansi: &str) -> String {
        if self.colour {
            format!("\u{1b}[{ansi}m{word}\u{1b}[0m")
        } else {
            word.to_owned()
        }
    }
}

/// Whether colours help on this stream: only on a terminal, and not against `NO_COLOR`.
pub fn wants_colour(stream: &impl IsTerminal) -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    stream.is_terminal() && !refused && !dumb
}

/// One line on stderr. If even that fails, there is nobody left to tell.
fn talk(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Writes bytes to stdout and says whether somebody still reads them: what goes on for ever ends when nobody does.
pub fn write(bytes: &[u8]) -> io::Result<bool> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        outcome => outcome.map(|()| true),
    }
}

/// A reader that went away has what it wanted.
fn forgive_closed_pipe(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}

/// Rows in columns that are as wide as their widest cell, without space at line ends.
fn columns<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header)
        .add_rows(
            rows.iter()
                .map(|row| row.clone().map(|cell| printable(&cell))),
        );
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let text = table.to_string();
    text.lines()
        .map(str::trim_end)
        .collect::<Vec<_>>()
        .join("\n")
}

/// A cell without control characters: a name must not steer the reader's terminal.
fn printable(cell: &str) -> String {
    cell.replace(char::is_control, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_end_without_spaces() {
        let row = |id: &str, name: &str| [id.to_owned(), name.to_owned()];
        let table = columns(["ID", "NAME"], &[row("a", "Zoë"), row("abc", "")]);
        assert_eq!(table, "ID   NAME\na    Zoë\nabc");
        let table = columns(["ID", "NAME"], &[row("東京", "x"), row("e\u{301}", "y")]);
        assert_eq!(table, "ID    NAME\n東京  x\ne\u{301}     y");
    }

    #[test]
    fn a_cell_cannot_steer_the_terminal() {
        let table = columns(["NAME"], &[["\u{1b}[2Jx\ny".to_owned()]]);
        assert_eq!(table, "NAME\n\u{fffd}[2Jx\u{fffd}y");
    }

    #[test]
    fn only_a_closed_pipe_is_forgiven() {
        let failed = |kind: io::ErrorKind| forgive_closed_pipe(Err(kind.into()));
        assert!(failed(io::ErrorKind::BrokenPipe).is_ok());
        assert!(failed(io::ErrorKind::StorageFull).is_err());
    }
}
