//! QR codes as SVG.

use crate::chart::Escaped;
use askama::filters::HtmlSafe;
use estrade_service::Error;
use qrcode::{Color, EcLevel, QrCode};
use std::fmt;

/// Light squares around a code, which scanners need.
const MARGIN: usize = 3;

/// A picture of a text that a phone can scan.
pub struct QrPicture {
    label: &'static str,
    width: usize,
    path: String,
}

impl QrPicture {
    /// Draws a text; the label is for those who do not see it.
    pub fn new(text: &str, label: &'static str) -> Result<Self, Error> {
        let code = QrCode::with_error_correction_level(text, EcLevel::M);
        let code = code.map_err(Error::internal)?;
        let width = code.width();
        let mut path = String::new();
        for (row, colors) in code.to_colors().chunks(width).enumerate() {
            let dark = colors
                .iter()
                .enumerate()
                .filter(|(_, color)| **color == Color::Dark);
            for (column, _) in dark {
                path.push_str(&square(column + MARGIN, row + MARGIN));
            }
        }
        Ok(Self {
            label,
            width: width + 2 * MARGIN,
            path,
        })
    }
}

fn square(column: usize, row: usize) -> String {
    format!("M{column} {row}h1v1h-1z")
}

impl fmt::Display for QrPicture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { label, width, path } = self;
        write!(
            f,
            r##"<svg class="qr" viewBox="0 0 {width} {width}" role="img" aria-label="{}" shape-rendering="crispEdges"><path fill="#000" d="{path}"/></svg>"##,
            Escaped(label)
        )
    }
}

// Numbers, and a label that is escaped.
impl HtmlSafe for QrPicture {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_becomes_squares() {
        let picture = QrPicture::new("otpauth://totp/Estrade:a@b?secret=ABC", "x").unwrap();
        let text = picture.to_string();
        assert!(text.starts_with("<svg") && text.matches("h1v1h-1z").count() > 100);
        assert!(!text.contains("ABC"));
        assert!(QrPicture::new(&"x".repeat(5000), "x").is_err());
    }
}
