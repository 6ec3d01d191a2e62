//! The part of a whole as a bar with its percentage.

use askama::filters::HtmlSafe;
use std::fmt;

/// A part of a whole.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    percent: f64,
    /// What the whole is, such as `cost`.
    whole: &'static str,
}

impl Share {
    pub fn new(part: f64, whole: f64, name: &'static str) -> Self {
        let percent = if whole > 0.0 {
            (part / whole * 100.0).clamp(0.0, 100.0)
        } else {
            0.0
        };
        Self {
            percent,
            whole: name,
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { percent, whole } = self;
        let text = if *percent > 0.0 && *percent < 1.0 {
            "< 1 %".to_owned()
        } else {
            format!("{percent:.0} %")
        };
        let text = text.replace('<', "&lt;");
        write!(
            f,
            r#"<span class="share-bar"><svg viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label="{text} of the {whole}"><rect class="share-all" width="100" height="8" rx="2"/><rect class="bar series-0" width="{percent:.1}" height="8" rx="2"/></svg><small aria-hidden="true">{text}</small></span>"#
        )
    }
}

// Numbers and names of ours.
impl HtmlSafe for Share {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_between_nothing_and_all() {
        let text = |part, whole| Share::new(part, whole, "cost").to_string();
        assert!(text(1.0, 4.0).contains(r#"aria-label="25 % of the cost""#));
        assert!(text(1.0, 4.0).contains(r#"width="25.0""#));
        assert!(text(1.0, 1000.0).contains(">&lt; 1 %<"));
        assert!(text(0.0, 0.0).contains(">0 %<"));
        assert!(text(9.0, 3.0).contains(">100 %<"));
    }
}
