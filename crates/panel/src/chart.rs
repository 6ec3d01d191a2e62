//! Plots as SVG, made here: they need no script, and each has its data as a table.
//!
//! The labels of the axes are text beside the drawing, which is stretched to the width of the page.

use crate::format::{bytes, compact, exact, strftime};
use askama::filters::HtmlSafe;
use estrade_model::Timestamp;
use std::fmt::{self, Write};

const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 160.0;
/// How wide a value is drawn that has no neighbours.
const DASH: f64 = 6.0;
/// Rows of the table of a plot.
const MAX_ROWS: usize = 200;

/// What the values of a plot count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Things, such as `requests`.
    Count(&'static str),
    Bytes,
    Milliseconds,
    /// Of 100.
    Percent,
    /// CPU cores.
    Cores,
    /// An amount of money.
    Money,
}

impl Unit {
    /// A value with its unit.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "sizes are not negative"
    )]
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Count(_) | Self::Cores => compact(value),
            Self::Bytes => bytes(value.max(0.0) as u64),
            Self::Milliseconds if value >= 1000.0 => format!("{} s", compact(value / 1000.0)),
            Self::Milliseconds => format!("{} ms", compact(value)),
            Self::Percent => format!("{} %", compact(value)),
            Self::Money if value.abs() < 0.01 && value != 0.0 => format!("{value:.5}"),
            Self::Money => format!("{value:.2}"),
        }
    }

    /// What the axis is called.
    pub fn label(self) -> &'static str {
        match self {
            Self::Count(what) => what,
            Self::Bytes => "bytes",
            Self::Milliseconds => "time",
            Self::Percent => "percent",
            Self::Cores => "cores",
            Self::Money => "cost",
        }
    }
}

/// Values over time under one name; a gap is `None`.
#[derive(Debug, Clone)]
pub struct Series {
    pub name: String,
    pub values: Vec<Option<f64>>,
}

impl Series {
    /// Values without gaps.
    pub fn new(name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Self {
        Self {
            name: name.into(),
            values: values.into_iter().map(Some).collect(),
        }
    }

    /// The value at a time.
    fn value(&self, index: usize) -> Option<f64> {
        let value = self.values.get(index).copied().flatten();
        value.filter(|value| value.is_finite())
    }
}

/// How a plot is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Lines; the first one has an area below it.
    Line,
    /// A bar for each time; several series are stacked.
    Bars,
}

/// A plot of one or more series over the same times.
#[derive(Debug, Clone)]
pub struct Plot {
    /// What a screen reader calls it.
    pub title: String,
    pub unit: Unit,
    pub shape: Shape,
    /// When each value was measured, or when its span begins; oldest first.
    pub times: Vec<Timestamp>,
    pub series: Vec<Series>,
    /// The least height of the axis, such as 100 for percentages.
    pub min_top: f64,
}

impl Plot {
    /// A plot with lines.
    pub fn lines(
        title: impl Into<String>,
        unit: Unit,
        times: Vec<Timestamp>,
        series: Vec<Series>,
    ) -> Self {
        Self {
            title: title.into(),
            unit,
            shape: Shape::Line,
            times,
            series,
            min_top: 0.0,
        }
    }

    /// A plot with bars.
    pub fn bars(
        title: impl Into<String>,
        unit: Unit,
        times: Vec<Timestamp>,
        series: Vec<Series>,
    ) -> Self {
        Self {
            shape: Shape::Bars,
            ..Self::lines(title, unit, times, series)
        }
    }

    /// Whether there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        self.series
            .iter()
            .all(|series| series.values.iter().all(Option::is_none))
    }

    /// The top of the axis: a round number that no value exceeds.
    fn top(&self) -> f64 {
        let highest = |index: usize| {
            let values = self.series.iter().filter_map(|series| series.value(index));
            match self.shape {
                Shape::Line => values.fold(0.0, f64::max),
                Shape::Bars => values.sum(),
            }
        };
        let most = (0..self.times.len())
            .map(highest)
            .fold(self.min_top, f64::max);
        match self.unit {
            Unit::Bytes => most.max(1024.0).log2().ceil().exp2(),
            _ => round_up(most),
        }
    }

    /// Left end of a value's place; `index` counts from 0.
    #[expect(clippy::cast_precision_loss, reason = "a few hundred values")]
    fn x(&self, index: usize) -> f64 {
        match self.shape {
            Shape::Line => index as f64 * WIDTH / (self.times.len().max(2) - 1) as f64,
            Shape::Bars => index as f64 * WIDTH / self.times.len().max(1) as f64,
        }
    }

    fn draw_line(&self, out: &mut String, number: usize, series: &Series, top: f64) -> fmt::Result {
        let y = |value: f64| HEIGHT - value.max(0.0) / top * HEIGHT;
        let mut line = String::new();
        let mut area = String::new();
        let mut begin = None;
        for index in 0..=self.times.len() {
            let Some(value) = series.value(index).filter(|_| index < self.times.len()) else {
                let last = self.x(index.saturating_sub(1));
                let Some(from) = begin.take() else { continue };
                if last <= from {
                    // A line from a point to itself is not drawn.
                    write!(line, "m{} 0h{DASH}", -DASH / 2.0)?;
                }
                if number == 0 {
                    write!(area, "L{last:.1} {HEIGHT}L{from:.1} {HEIGHT}z")?;
                }
                continue;
            };
            let (x, y) = (self.x(index), y(value));
            let step = if begin.is_none() { 'M' } else { 'L' };
            begin = begin.or(Some(x));
            write!(line, "{step}{x:.1} {y:.1}")?;
            if number == 0 {
                write!(area, "{step}{x:.1} {y:.1}")?;
            }
        }
        if !area.is_empty() {
            write!(out, r#"<path class="area" d="{area}"/>"#)?;
        }
        write!(
            out,
            r#"<path class="line series-{}" d="{line}"/>"#,
            number % 6
        )
    }

    fn draw_bars(&self, out: &mut String, top: f64) -> fmt::Result {
        let width = (self.x(1) * 0.78).max(0.8);
        for index in 0..self.times.len() {
            let mut bottom = HEIGHT;
            for (number, series) in self.series.iter().enumerate() {
                let Some(value) = series.value(index).filter(|value| *value > 0.0) else {
                    continue;
                };
                let height = value / top * HEIGHT;
                bottom -= height;
                let x = self.x(index) + (self.x(1) - width) / 2.0;
                write!(
                    out,
                    r#"<rect class="bar series-{}" x="{x:.1}" y="{bottom:.1}" width="{width:.1}" height="{height:.1}"/>"#,
                    number % 6
                )?;
            }
        }
        Ok(())
    }

    fn draw(&self, out: &mut String, top: f64) -> fmt::Result {
        write!(
            out,
            r#"<svg class="plot-svg" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{}">"#,
            Escaped(&self.title)
        )?;
        for step in 0..=2 {
            let y = f64::from(step) * HEIGHT / 2.0;
            write!(
                out,
                r#"<line class="grid-line" x1="0" x2="{WIDTH}" y1="{y}" y2="{y}"/>"#
            )?;
        }
        match self.shape {
            Shape::Line => {
                for (number, series) in self.series.iter().enumerate() {
                    self.draw_line(out, number, series, top)?;
                }
            }
            Shape::Bars => self.draw_bars(out, top)?,
        }
        out.push_str("</svg>");
        Ok(())
    }

    /// A pattern for the labels of the time axis.
    fn pattern(&self) -> &'static str {
        let span = match (self.times.first(), self.times.last()) {
            (Some(first), Some(last)) => (last.millis() - first.millis()) / 3_600_000,
            _ => 0,
        };
        match span {
            0..=30 => "%H:%M",
            31..=200 => "%a %-d, %H:%M",
            201..=9000 => "%-d %b",
            _ => "%b %Y",
        }
    }

    fn write_labels(&self, out: &mut String) -> fmt::Result {
        out.push_str(r#"<div class="plot-x" aria-hidden="true">"#);
        let last = self.times.len().saturating_sub(1);
        for index in [0, last / 2, last] {
            let label = self
                .times
                .get(index)
                .map(|at| strftime(*at, self.pattern()));
            write!(out, "<span>{}</span>", label.unwrap_or_default())?;
        }
        out.push_str("</div>");
        Ok(())
    }

    fn write_legend(&self, out: &mut String) -> fmt::Result {
        if self.series.len() < 2 {
            return Ok(());
        }
        out.push_str(r#"<ul class="legend">"#);
        for (number, series) in self.series.iter().enumerate() {
            write!(
                out,
                r#"<li class="series-{}">{}</li>"#,
                number % 6,
                Escaped(&series.name)
            )?;
        }
        out.push_str("</ul>");
        Ok(())
    }

    fn write_table(&self, out: &mut String) -> fmt::Result {
        write!(
            out,
            r#"<details class="plot-data"><summary>Data as a table</summary><div class="scroll" tabindex="0" role="region" aria-label="{} as a table"><table><thead><tr><th scope="col">Time (UTC)</th>"#,
            Escaped(&self.title)
        )?;
        for series in &self.series {
            write!(
                out,
                r#"<th scope="col" class="num">{}</th>"#,
                Escaped(&series.name)
            )?;
        }
        out.push_str("</tr></thead><tbody>");
        let skipped = self.times.len().saturating_sub(MAX_ROWS);
        for (index, at) in self.times.iter().enumerate().skip(skipped) {
            write!(out, "<tr><td>{}</td>", strftime(*at, "%Y-%m-%d %H:%M"))?;
            for series in &self.series {
                let value = series.value(index).map(|value| self.unit.show(value));
                write!(
                    out,
                    r#"<td class="num">{}</td>"#,
                    value.as_deref().unwrap_or("–")
                )?;
            }
            out.push_str("</tr>");
        }
        out.push_str("</tbody></table></div></details>");
        Ok(())
    }

    /// The texts that a script shows under the pointer: one per time.
    fn write_hover(&self, out: &mut String) -> fmt::Result {
        out.push_str(" data-hover=\"");
        for (index, at) in self.times.iter().enumerate() {
            if index > 0 {
                out.push('|');
            }
            out.push_str(&exact(*at)[..16]);
            for series in &self.series {
                let Some(value) = series.value(index) else {
                    continue;
                };
                let name = if self.series.len() > 1 {
                    series.name.replace('|', " ")
                } else {
                    String::new()
                };
                write!(
                    out,
                    " · {}{}{}",
                    Escaped(&name),
                    if name.is_empty() { "" } else { " " },
                    self.unit.show(value)
                )?;
            }
        }
        out.push('"');
        Ok(())
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        let top = self.top();
        out.push_str(r#"<figure class="plot""#);
        self.write_hover(out)?;
        out.push('>');
        self.write_legend(out)?;
        out.push_str(r#"<div class="plot-body"><div class="plot-y" aria-hidden="true">"#);
        for step in [1.0, 0.5, 0.0] {
            write!(out, "<span>{}</span>", self.unit.show(top * step))?;
        }
        write!(
            out,
            r#"</div><div class="plot-area" title="{}">"#,
            self.unit.label()
        )?;
        self.draw(out, top)?;
        out.push_str("</div></div>");
        self.write_labels(out)?;
        self.write_table(out)?;
        out.push_str("</figure>");
        Ok(())
    }
}

impl fmt::Display for Plot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::with_capacity(8 * 1024);
        self.write(&mut out)?;
        f.write_str(&out)
    }
}

// Names and titles are escaped where they are written; the rest is numbers.
impl HtmlSafe for Plot {}

/// A small line without axes; the label says what it shows.
#[derive(Debug, Clone)]
pub struct Sparkline {
    pub label: String,
    pub values: Vec<f64>,
}

/// A small line without axes.
pub fn sparkline(values: impl Into<Vec<f64>>, label: impl Into<String>) -> Sparkline {
    Sparkline {
        label: label.into(),
        values: values.into(),
    }
}

impl fmt::Display for Sparkline {
    #[expect(clippy::cast_precision_loss, reason = "a few dozen values")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = self.values.iter().copied().fold(0.0, f64::max);
        let last = (self.values.len().max(2) - 1) as f64;
        write!(
            f,
            r#"<svg class="spark" viewBox="0 0 96 26" preserveAspectRatio="none" role="img" aria-label="{}"><path d=""#,
            Escaped(&self.label)
        )?;
        for (index, value) in self.values.iter().enumerate() {
            let height = if most > 0.0 {
                value.max(0.0) / most
            } else {
                0.0
            };
            let step = if index == 0 { 'M' } else { 'L' };
            write!(
                f,
                "{step}{:.1} {:.1}",
                index as f64 * 96.0 / last,
                24.0 - height * 22.0
            )?;
        }
        f.write_str(r#""/></svg>"#)
    }
}

// The label is escaped; the rest is numbers.
impl HtmlSafe for Sparkline {}

/// The next of 1, 2, 2.5, 5 and 10 times a power of ten.
fn round_up(value: f64) -> f64 {
    if !value.is_finite() || value <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power);
    let next = steps.into_iter().find(|step| *step >= value * 0.999_999);
    next.unwrap_or(value)
}

/// A text inside of an element or a quoted attribute.
pub struct Escaped<'t>(pub &'t str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                letter => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(count: i64) -> Vec<Timestamp> {
        (0..count)
            .map(|n| Timestamp::from_millis(1_790_000_000_000 + n * 60_000))
            .collect()
    }

    #[test]
    fn a_plot_has_axes_units_and_a_table() {
        let series = vec![
            Series::new("p50", [1.0, 2.0, 3.0]),
            Series::new("p99", [7.0, 8.0, 19.0]),
        ];
        let text = Plot::lines("Latency", Unit::Milliseconds, times(3), series).to_string();
        for part in [
            "20 ms",
            "10 ms",
            "0 ms",
            "<svg",
            "aria-label=\"Latency\"",
            "<table>",
            "19 ms",
            "p99",
            "class=\"area\"",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn names_are_escaped_everywhere() {
        let name = "<img src=x onerror=alert(1)>\"'&|";
        let series = vec![Series::new(name, [1.0]), Series::new(name, [1.0])];
        for plot in [
            Plot::lines(name, Unit::Bytes, times(1), series.clone()),
            Plot::bars(name, Unit::Money, times(1), series),
        ] {
            assert!(!plot.to_string().contains("<img"));
        }
        assert!(!sparkline([1.0], name).to_string().contains("<img"));
    }

    #[test]
    fn gaps_and_nonsense_draw_nothing() {
        let series = vec![Series {
            name: "a".into(),
            values: vec![Some(1.0), None, Some(f64::NAN), Some(2.0)],
        }];
        let plot = Plot::lines("t", Unit::Count("requests"), times(4), series);
        let text = plot.to_string();
        assert!(
            !text.contains("NaN") && text.matches('M').count() >= 2,
            "{text}"
        );
        let empty = Plot::bars("t", Unit::Percent, Vec::new(), Vec::new());
        assert!(empty.is_empty() && !empty.to_string().contains("NaN"));
        assert!(!sparkline(Vec::new(), "x").to_string().contains("NaN"));
    }

    #[test]
    fn a_value_without_neighbours_is_seen() {
        let plot = |values: &[Option<f64>]| {
            let series = vec![Series {
                name: "p50".into(),
                values: values.to_vec(),
            }];
            Plot::lines("t", Unit::Milliseconds, times(4), series).to_string()
        };
        let dash = "m-3 0h6";
        assert!(plot(&[None, Some(1.0), None, None]).contains("M200.0 0.0m-3 0h6"));
        assert!(plot(&[None, None, None, Some(1.0)]).contains(dash));
        assert!(!plot(&[None, Some(1.0), Some(2.0), None]).contains(dash));
        let twice = plot(&[Some(1.0), None, Some(1.0), Some(1.0)]);
        assert_eq!(twice.matches(dash).count(), 1, "{twice}");
    }

    #[test]
    fn the_axis_ends_at_a_round_number() {
        for (value, top) in [
            (0.0, 1.0),
            (1.0, 1.0),
            (1.1, 2.0),
            (19.0, 20.0),
            (2100.0, 2500.0),
            (0.03, 0.05),
        ] {
            assert!((round_up(value) - top).abs() < 1e-9, "{value}");
        }
    }
}
