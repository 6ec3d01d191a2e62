//! The results of a suite: a table for people, JSON for programs.

use anyhow::Context;
use serde::Serialize;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// One measured value.
#[derive(Serialize)]
pub(crate) struct Row {
    name: String,
    value: f64,
    unit: Unit,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Target>,
    /// How far the value is from its target; at least 1 passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    margin: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pass: Option<bool>,
    #[serde(skip_serializing_if = "String::is_empty")]
    note: String,
}

/// What a value has to be.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
}

/// What a value is counted in.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    PerSecond,
    Milliseconds,
    Microseconds,
    Mebibytes,
    Times,
    Count,
}

impl Row {
    /// A value without a target, to understand the others.
    pub(crate) fn fact(name: impl Into<String>, value: f64, unit: Unit) -> Self {
        Self {
            name: name.into(),
            value,
            unit,
            target: None,
            margin: None,
            pass: None,
            note: String::new(),
        }
    }

    /// A value that has to be at least or at most something.
    pub(crate) fn judged(name: impl Into<String>, value: f64, unit: Unit, target: Target) -> Self {
        let margin = match target {
            Target::AtLeast(least) => value / least,
            Target::AtMost(most) => most / value,
        };
        Self {
            target: Some(target),
            margin: Some(margin),
            pass: Some(margin >= 1.0),
            ..Self::fact(name, value, unit)
        }
    }

    /// Adds how the value came about.
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

/// All results of a suite.
#[derive(Serialize)]
pub(crate) struct Report {
    suite: &'static str,
    at: String,
    machine: Machine,
    rows: Vec<Row>,
}

/// Where it was measured.
#[derive(Serialize)]
struct Machine {
    processor: String,
    server_cores: u32,
    load_cores: u32,
    kernel: String,
}

impl Report {
    /// An empty report.
    pub(crate) fn new(suite: &'static str, (server_cores, load_cores): (u32, u32)) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let processor = read("/proc/cpuinfo")
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
            .map_or_else(String::new, |(_, name)| name.trim().to_owned());
        #[expect(clippy::disallowed_methods, reason = "a report says when it was made")]
        let at = jiff::Timestamp::now().to_string();
        Self {
            suite,
            at,
            machine: Machine {
                processor,
                server_cores,
                load_cores,
                kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            },
            rows: Vec::new(),
        }
    }

    /// Adds a result.
    pub(crate) fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Whether every target was met.
    pub(crate) fn passed(&self) -> bool {
        self.rows.iter().all(|row| row.pass != Some(false))
    }

    /// Prints the table and writes the file.
    pub(crate) fn publish(&self, file: &Path) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        let header = ["", "VALUE", "TARGET", "MARGIN", ""].map(str::to_owned);
        let rows: Vec<[String; 5]> = std::iter::once(header)
            .chain(self.rows.iter().map(cells))
            .collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
        let widths: Vec<usize> = (0..5).map(|column| width(column).unwrap_or(0)).collect();
        for (row, source) in rows
            .iter()
            .zip(std::iter::once(None).chain(self.rows.iter().map(Some)))
        {
            let line = format!(
                "{:<w0$}  {:>w1$}  {:>w2$}  {:>w3$}  {:<w4$}  {}",
                row[0],
                row[1],
                row[2],
                row[3],
                row[4],
                source.map_or("", |row| &row.note),
                w0 = widths[0],
                w1 = widths[1],
                w2 = widths[2],
                w3 = widths[3],
                w4 = widths[4],
            );
            writeln!(out, "{}", line.trim_end())?;
        }
        if let Some(directory) = file.parent() {
            fs::create_dir_all(directory)?;
        }
        let mut json = serde_json::to_vec_pretty(self)?;
        json.push(b'\n');
        fs::write(file, json).with_context(|| format!("cannot write {}", file.display()))
    }
}

fn cells(row: &Row) -> [String; 5] {
    let target = match row.target {
        Some(Target::AtLeast(least)) => format!("≥ {}", shown(least, row.unit)),
        Some(Target::AtMost(most)) => format!("≤ {}", shown(most, row.unit)),
        None => String::new(),
    };
    let verdict = match row.pass {
        Some(true) => "pass",
        Some(false) => "FAIL",
        None => "",
    };
    [
        row.name.clone(),
        shown(row.value, row.unit),
        target,
        row.margin
            .map_or_else(String::new, |margin| format!("{margin:.2}")),
        verdict.to_owned(),
    ]
}

fn shown(value: f64, unit: Unit) -> String {
    match unit {
        Unit::PerSecond => format!("{}/s", thousands(value)),
        Unit::Milliseconds => format!("{value:.2} ms"),
        Unit::Microseconds => format!("{value:.2} µs"),
        Unit::Mebibytes => format!("{value:.1} MiB"),
        Unit::Times => format!("{value:.3} ×"),
        Unit::Count => thousands(value),
    }
}

/// A whole number with its digits in groups of three.
pub(crate) fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_margin_of_one_passes_in_both_directions() {
        let pass = |value, target| Row::judged("", value, Unit::Times, target).pass;
        assert_eq!(pass(0.5, Target::AtLeast(0.5)), Some(true));
        assert_eq!(pass(0.4, Target::AtLeast(0.5)), Some(false));
        assert_eq!(pass(1.3, Target::AtMost(1.2)), Some(false));
        assert_eq!(pass(1.1, Target::AtMost(1.2)), Some(true));
    }

    #[test]
    fn digits_are_grouped() {
        assert_eq!(thousands(1_234_567.4), "1,234,567");
        assert_eq!(thousands(999.0), "999");
    }
}
