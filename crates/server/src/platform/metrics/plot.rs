//! A small picture of CPU and memory, as SVG.

use estrade_model::Timestamp;
use estrade_model::metrics::{MetricSample, ProjectMetrics};
use std::fmt::{self, Write};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 356.0;
/// Where the curves are, from left to right.
const LEFT: f64 = 72.0;
const RIGHT: f64 = 700.0;
/// Where the two panels begin, and how high they are.
const TOPS: [f64; 2] = [70.0, 216.0];
const PANEL: f64 = 104.0;
/// What is shown, in minutes.
const MINUTES: f64 = 60.0;
/// A curve is broken where samples are missing for so many steps.
const GAP_STEPS: u64 = 3;

/// The colours follow what the screen is set to.
const STYLE: &str = "\
svg{--back:#fff;--text:#1f2328;--soft:#59636e;--grid:#e2e6ea;--cpu:#0969da;--memory:#8250df;--limit:#bc4c00;\
font:12px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}\
@media(prefers-color-scheme:dark){svg{--back:#0d1117;--text:#e6edf3;--soft:#9198a1;--grid:#262c36;--cpu:#58a6ff;\
--memory:#bc8cff;--limit:#f0883e}}\
.back{fill:var(--back)}text{fill:var(--soft)}.title{font-size:15px;font-weight:600}.title,.name{fill:var(--text)}\
.name{font-weight:600;font-size:13px}.end{text-anchor:end}.middle{text-anchor:middle}\
.grid{stroke:var(--grid);stroke-width:1}.limit{stroke:var(--limit);stroke-width:1.2;stroke-dasharray:5 4}\
.near{fill:var(--limit)}.cpu{--curve:var(--cpu)}.memory{--curve:var(--memory)}\
.line{fill:none;stroke:var(--curve);stroke-width:1.7;stroke-linejoin:round;stroke-linecap:round}.dot{stroke-width:5}\
.area{fill:var(--curve);fill-opacity:.14}";

/// What is drawn into one panel.
struct Panel {
    class: &'static str,
    name: &'static str,
    value: fn(&MetricSample) -> f64,
    /// The highest value that the axis has room for, given the highest that must fit.
    axis: fn(f64) -> f64,
    /// A value beside the axis.
    tick: fn(f64) -> String,
    /// A value in a sentence.
    write: fn(f64) -> String,
    /// What one instance may use.
    limit: f64,
}

/// Draws what a project used in the hour until `now`.
pub(super) fn draw(project: &str, metrics: &ProjectMetrics, now: Timestamp) -> String {
    let mut svg = String::with_capacity(24 * 1024);
    // Writing into a text does not fail.
    let _ = write_picture(&mut svg, project, metrics, now);
    svg
}

fn write_picture(
    svg: &mut String,
    project: &str,
    metrics: &ProjectMetrics,
    now: Timestamp,
) -> fmt::Result {
    let project = Escaped(project);
    write!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="t"><title id="t">CPU and memory of {project} in the last hour</title><style>{STYLE}</style><rect class="back" width="{WIDTH}" height="{HEIGHT}" rx="8"/>"#,
    )?;
    let instances = match latest(metrics, now) {
        Some(sample) if sample.instances == 1 => "1 instance".to_owned(),
        Some(sample) => format!("{} instances", sample.instances),
        None => "nothing runs now".to_owned(),
    };
    write!(
        svg,
        r#"<text class="title" x="20" y="30">{project}</text><text class="end" x="{RIGHT}" y="30">last hour · {instances}</text>"#,
    )?;
    #[expect(clippy::cast_precision_loss, reason = "limits are small numbers")]
    let panels = [
        Panel {
            class: "cpu",
            name: "CPU, cores",
            value: |sample| sample.cpu,
            axis: decimal_axis,
            tick: write_number,
            write: write_cores,
            limit: metrics.limits.cpus as f64,
        },
        Panel {
            class: "memory",
            name: "Memory",
            value: |sample| sample.memory as f64,
            axis: binary_axis,
            tick: write_bytes,
            write: write_bytes,
            limit: metrics.limits.memory as f64,
        },
    ];
    for (panel, top) in panels.iter().zip(TOPS) {
        panel.write(svg, top, metrics, now)?;
    }
    write_times(svg)?;
    svg.push_str("</svg>\n");
    Ok(())
}

impl Panel {
    fn write(
        &self,
        svg: &mut String,
        top: f64,
        metrics: &ProjectMetrics,
        now: Timestamp,
    ) -> fmt::Result {
        let samples = &metrics.samples;
        let peak = samples.iter().map(self.value).fold(0.0, f64::max);
        let allowed = |sample: &MetricSample| self.limit * f64::from(sample.instances);
        let limit = samples.last().map_or(0.0, allowed);
        // A limit that is far away would press the curve to the ground.
        let near = limit > 0.0 && peak * 2.0 >= limit;
        let most = if near && peak <= limit {
            limit
        } else {
            (self.axis)(peak)
        };
        let y = |value: f64| top + PANEL * (1.0 - (value / most).min(1.0));

        let (class, name) = (self.class, self.name);
        let heading = top - 10.0;
        write!(
            svg,
            r#"<g class="{class}"><text class="name" x="{LEFT}" y="{heading}">{name}</text>"#
        )?;
        if let Some(last) = latest(metrics, now) {
            let value = (self.write)((self.value)(last));
            // The limit has the colour of its line, when that shows.
            let (limit, class) = ((self.write)(limit), if near { "near" } else { "far" });
            write!(
                svg,
                r#"<text class="end" x="{RIGHT}" y="{heading}"><tspan class="name">{value}</tspan> of <tspan class="{class}">{limit}</tspan></text>"#
            )?;
        }
        for part in [0.0, 0.5, 1.0] {
            let (at, label) = (y(most * part), (self.tick)(most * part));
            let below = at + 4.0;
            write!(
                svg,
                r#"<path class="grid" d="M{LEFT} {at:.1}H{RIGHT}"/><text class="end" x="{}" y="{below:.1}">{label}</text>"#,
                LEFT - 8.0
            )?;
        }
        for run in runs(samples, metrics.step) {
            let points = run.iter().filter_map(|sample| {
                let x = place(sample.timestamp, now)?;
                Some((x, y((self.value)(sample))))
            });
            write_curve(svg, &points.collect::<Vec<_>>(), top + PANEL)?;
        }
        if near {
            let at = y(limit);
            write!(svg, r#"<path class="limit" d="M{LEFT} {at:.1}H{RIGHT}"/>"#)?;
        }
        if samples.is_empty() {
            let (x, y) = (f64::midpoint(LEFT, RIGHT), top + PANEL / 2.0 - 8.0);
            write!(
                svg,
                r#"<text class="middle" x="{x}" y="{y}">Nothing ran in the last hour.</text>"#
            )?;
        }
        svg.push_str("</g>");
        Ok(())
    }
}

/// Where a moment is; none: before what is shown.
fn place(at: Timestamp, now: Timestamp) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "an hour has few milliseconds")]
    let ago = (now.millis().saturating_sub(at.millis())) as f64 / 60_000.0;
    (ago <= MINUTES).then(|| RIGHT - (RIGHT - LEFT) * ago.max(0.0) / MINUTES)
}

/// Samples that follow each other without a gap.
fn runs(samples: &[MetricSample], step: u64) -> impl Iterator<Item = &[MetricSample]> {
    samples.chunk_by(move |one, next| is_soon(one.timestamp, next.timestamp, step))
}

/// The last sample, unless it is of a time that has passed.
fn latest(metrics: &ProjectMetrics, now: Timestamp) -> Option<&MetricSample> {
    let last = metrics.samples.last();
    last.filter(|last| is_soon(last.timestamp, now, metrics.step))
}

fn is_soon(one: Timestamp, next: Timestamp, step: u64) -> bool {
    let most = i64::try_from(step * GAP_STEPS * 1000).unwrap_or(i64::MAX);
    next.millis().saturating_sub(one.millis()) <= most
}

fn write_curve(svg: &mut String, points: &[(f64, f64)], ground: f64) -> fmt::Result {
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Ok(());
    };
    let mut line = String::with_capacity(points.len() * 14);
    for (at, (x, y)) in points.iter().enumerate() {
        write!(line, "{}{x:.1} {y:.1}", if at == 0 { 'M' } else { 'L' })?;
    }
    // A single point is a dot, which a line without length draws with round ends.
    let class = if points.len() == 1 {
        line.push_str("h0");
        "line dot"
    } else {
        "line"
    };
    write!(
        svg,
        r#"<path class="area" d="{line}L{:.1} {ground}L{:.1} {ground}Z"/><path class="{class}" d="{line}"/>"#,
        last.0, first.0
    )
}

fn write_times(svg: &mut String) -> fmt::Result {
    let ground = TOPS[1] + PANEL;
    for (ago, label) in [
        (60.0, "60 min ago"),
        (45.0, "45 min"),
        (30.0, "30 min"),
        (15.0, "15 min"),
        (0.0, "now"),
    ] {
        let x = RIGHT - (RIGHT - LEFT) * ago / MINUTES;
        let class = if ago == 0.0 { "end" } else { "middle" };
        write!(
            svg,
            r#"<path class="grid" d="M{x} {ground}v5"/><text class="{class}" x="{x}" y="{}">{label}</text>"#,
            ground + 20.0
        )?;
    }
    Ok(())
}

/// 0.1, 0.2, 0.5, 1, 2, 5, …
fn decimal_axis(peak: f64) -> f64 {
    let wanted = (peak * 1.05).max(0.1);
    let power = 10_f64.powf(wanted.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|f| f * power >= wanted);
    factor.unwrap_or(10.0) * power
}

/// 16 MiB, 32 MiB, 64 MiB, …
fn binary_axis(peak: f64) -> f64 {
    let least = f64::from(16 << 20);
    least * 2_f64.powf((peak / least).max(1.0).log2().ceil())
}

/// Two decimals, or three for what is next to nothing.
fn write_number(number: f64) -> String {
    let decimals = if number < 0.01 { 3 } else { 2 };
    let text = format!("{number:.decimals$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn write_cores(cores: f64) -> String {
    match write_number(cores) {
        one if one == "1" => "1 core".to_owned(),
        number => format!("{number} cores"),
    }
}

fn write_bytes(bytes: f64) -> String {
    let (number, unit) = match bytes / f64::from(1 << 20) {
        mib if mib >= 1024.0 => (format!("{:.1}", mib / 1024.0), "GiB"),
        mib => (format!("{mib:.0}"), "MiB"),
    };
    format!("{} {unit}", number.trim_end_matches(".0"))
}

/// A text that cannot end what it stands in.
struct Escaped<'t>(&'t str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '&' => f.write_str("&amp;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            // Most of them are not allowed in XML, however they are written.
            c if c.is_control() => f.write_str("\u{fffd}"),
            c => f.write_char(c),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use estrade_model::metrics::{MetricDisk, MetricLimits};

    const NOW: i64 = 1_700_000_000_000;

    fn metrics(samples: impl IntoIterator<Item = (i64, f64, u64)>) -> ProjectMetrics {
        let sample = |(ago, cpu, memory): (i64, f64, u64)| MetricSample {
            timestamp: Timestamp::from_millis(NOW - ago * 1000),
            cpu,
            memory,
            network_in: 0,
            network_out: 0,
            instances: 1,
        };
        ProjectMetrics {
            step: 10,
            samples: samples.into_iter().map(sample).collect(),
            limits: MetricLimits {
                memory: 512 << 20,
                cpus: 1,
            },
            disk: MetricDisk {
                used: None,
                limit: 2 << 30,
            },
        }
    }

    fn drawn(metrics: &ProjectMetrics) -> String {
        draw("shop", metrics, Timestamp::from_millis(NOW))
    }

    #[test]
    fn axes_have_round_ends() {
        for (peak, most) in [
            (0.0, 0.1),
            (0.09, 0.1),
            (0.1, 0.2),
            (0.3, 0.5),
            (0.97, 2.0),
            (1.0, 2.0),
            (3.0, 5.0),
            (6.0, 10.0),
        ] {
            assert!((decimal_axis(peak) - most).abs() < 1e-9, "{peak}");
        }
        let mib = f64::from(1 << 20);
        for (peak, most) in [
            (0.0, 16.0),
            (16.0, 16.0),
            (17.0, 32.0),
            (500.0, 512.0),
            (3000.0, 4096.0),
        ] {
            assert!((binary_axis(peak * mib) - most * mib).abs() < 1.0, "{peak}");
        }
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(write_cores(0.5), "0.5 cores");
        assert_eq!(write_cores(1.0), "1 core");
        assert_eq!(write_cores(0.0), "0 cores");
        assert_eq!(write_cores(0.004), "0.004 cores");
        assert_eq!(write_number(0.025), "0.03");
        assert_eq!(write_bytes(64.0 * f64::from(1 << 20)), "64 MiB");
        assert_eq!(write_bytes(1536.0 * f64::from(1 << 20)), "1.5 GiB");
        assert_eq!(write_bytes(2048.0 * f64::from(1 << 20)), "2 GiB");
    }

    #[test]
    fn a_curve_is_broken_where_nothing_was_measured() {
        let lines = |svg: &str| svg.matches(r#"class="line"#).count();
        let whole = metrics((0..60).rev().map(|step| (step * 10, 0.5, 1 << 26)));
        assert_eq!(lines(&drawn(&whole)), 2);
        let broken = metrics([(900, 0.1, 1), (890, 0.1, 1), (100, 0.1, 1), (90, 0.1, 1)]);
        assert_eq!(lines(&drawn(&broken)), 4);
        // What is older than an hour is not drawn over the axis.
        assert_eq!(lines(&drawn(&metrics([(3700, 0.1, 1)]))), 0);
    }

    #[test]
    fn what_has_ended_is_not_shown_as_running() {
        let svg = drawn(&metrics([(10, 0.5, 1 << 26)]));
        assert!(
            svg.contains("1 instance<") && svg.contains(">64 MiB</tspan> of"),
            "{svg}"
        );
        let svg = drawn(&metrics([(600, 0.5, 1 << 26)]));
        assert!(
            svg.contains("nothing runs now<") && !svg.contains("</tspan> of"),
            "{svg}"
        );
    }

    #[test]
    fn the_limit_shows_when_it_is_near() {
        let has_limit = |svg: &str| svg.matches(r#"class="limit""#).count();
        assert_eq!(has_limit(&drawn(&metrics([(10, 0.01, 1 << 20)]))), 0);
        assert_eq!(has_limit(&drawn(&metrics([(10, 0.9, 1 << 20)]))), 1);
        assert_eq!(has_limit(&drawn(&metrics([(10, 0.9, 400 << 20)]))), 2);
    }

    #[test]
    fn it_holds_no_script_and_nothing_of_others() {
        let hour = metrics((0..360).rev().map(|step| (step * 10, 0.5, 1 << 26)));
        let name = "</title><script>alert(1)</script>\" onload='x' \u{1}&";
        let svg = draw(name, &hour, Timestamp::from_millis(NOW));
        assert!(
            !svg.contains("<script") && !svg.contains("onload='"),
            "{svg}"
        );
        assert!(svg.contains("&lt;script&gt;alert(1)") && svg.contains("&amp;"));
        assert!(!svg.contains('\u{1}'));
        let links = svg.matches("http").count();
        assert_eq!(links, 1, "only the namespace");
        assert!(svg.len() < 40_000, "{}", svg.len());
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        let empty = drawn(&metrics([]));
        assert!(empty.contains("Nothing ran") && !empty.contains("NaN"));
    }
}
