//! Progress bars of a deployment, on stderr and only where somebody sees them.

use crate::printer::Printer;
use estrade_client::upload::SentBytes;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Arc;

const TEMPLATE: &str =
    "{msg} {bar:24} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}";

/// A bar that counts bytes. Without a terminal, or with `--quiet`, it is hidden.
pub struct ByteProgress {
    bar: ProgressBar,
    is_seen: bool,
    printer: Printer,
}

impl ByteProgress {
    pub fn new(printer: Printer, message: &str) -> Self {
        let is_seen = std::io::stderr().is_terminal() && !printer.is_quiet();
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        // The template is ours: one that cannot be read leaves the usual bar.
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        bar.set_message(message.to_owned());
        Self {
            bar,
            is_seen,
            printer,
        }
    }

    /// Begins a count up to so many bytes.
    pub fn start(&self, bytes: u64) {
        self.bar.reset();
        self.bar.set_length(bytes);
        // Not before: nothing of nothing looks like all of it.
        if self.is_seen && bytes > 0 {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// Prints something above the bar.
    pub fn suspend(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    pub fn add(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// Takes the bar off the screen.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// So many contents are sent.
    pub fn begin(&self, contents: usize, bytes: u64) {
        let (count, size) = (
            super::format::count(contents, "file"),
            super::format::bytes(bytes),
        );
        self.bar
            .suspend(|| self.printer.note(format_args!("sending {count}, {size}")));
        self.start(bytes);
    }

    /// Counts their bytes.
    pub fn sent_bytes(&self) -> SentBytes {
        let bar = self.bar.clone();
        Arc::new(move |bytes: i64| {
            if bytes >= 0 {
                bar.inc(bytes.unsigned_abs());
            } else {
                bar.dec(bytes.unsigned_abs());
            }
        })
    }
}
