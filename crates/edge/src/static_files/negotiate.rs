//! Which coding of a content a client gets.

use estrade_model::coding::Coding;

/// What a client says that it takes: a quality per coding, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AcceptedCodings {
    gzip: u16,
    zstd: u16,
    brotli: u16,
}

impl AcceptedCodings {
    /// Reads `Accept-Encoding`; without it nothing compressed is taken.
    pub(crate) fn parse(header: Option<&str>) -> Self {
        let (mut gzip, mut zstd, mut brotli, mut others) = (None, None, None, 0);
        for item in header.unwrap_or_default().split(',') {
            let (name, quality) = split_quality(item);
            match Coding::from_name(name) {
                Some(Coding::Gzip) => gzip = Some(quality),
                Some(Coding::Zstd) => zstd = Some(quality),
                Some(Coding::Brotli) => brotli = Some(quality),
                None if name == "*" => others = quality,
                Some(Coding::Identity) | None => {}
            }
        }
        Self {
            gzip: gzip.unwrap_or(others),
            zstd: zstd.unwrap_or(others),
            brotli: brotli.unwrap_or(others),
        }
    }

    /// How much a client likes a coding; identity is always taken, rather than answering 406.
    pub(crate) fn quality(&self, coding: Coding) -> u16 {
        match coding {
            Coding::Identity => 1,
            Coding::Gzip => self.gzip,
            Coding::Zstd => self.zstd,
            Coding::Brotli => self.brotli,
        }
    }

    /// The best coding among those that exist; identity always does.
    pub(crate) fn choose(&self, exists: impl Fn(Coding) -> bool) -> Coding {
        let mut best = (Coding::Identity, 0);
        for coding in Coding::COMPRESSED {
            let quality = self.quality(coding);
            if quality > best.1 && exists(coding) {
                best = (coding, quality);
            }
        }
        best.0
    }
}

fn split_quality(item: &str) -> (&str, u16) {
    let mut parts = item.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let quality = parts.find_map(|part| part.strip_prefix(['q', 'Q'])?.strip_prefix('='));
    (name, quality.map_or(1000, thousandths))
}

/// A quality as the RFC writes it: at most three digits behind the point; nonsense is "not wanted".
fn thousandths(text: &str) -> u16 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = fraction.bytes().all(|byte| byte.is_ascii_digit());
    match whole {
        "1" => 1000,
        "0" if digits && fraction.len() <= 3 => {
            format!("{fraction:0<3}").parse().unwrap_or_default()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_existing_coding_that_the_client_takes() {
        use Coding::{Brotli, Gzip, Identity, Zstd};
        let all = [Gzip, Zstd, Brotli];
        for (accept, existing, coding) in [
            (None, &all[..], Identity),
            (Some("gzip"), &all, Gzip),
            (Some("gzip, deflate, br, zstd"), &all, Brotli),
            (Some("gzip, deflate, br, zstd"), &[Gzip, Zstd], Zstd),
            (Some("gzip, deflate, br, zstd"), &[], Identity),
            (Some("br;q=0.5, gzip;q=0.9"), &all, Gzip),
            (Some("br;q=0, gzip;q=0.1"), &all, Gzip),
            (Some("br;q=0.51, gzip;q=0.519"), &all, Gzip),
            (Some("*"), &all, Brotli),
            (Some("*;q=0.2, br;q=0"), &all, Zstd),
            (Some("identity"), &all, Identity),
            (Some("gzip;q=0"), &all, Identity),
            (Some("GZIP"), &all, Gzip),
            (Some("gzip;q=nonsense"), &all, Identity),
            (Some("identity;q=0"), &[], Identity),
            (Some(""), &all, Identity),
        ] {
            let accepted = AcceptedCodings::parse(accept);
            assert_eq!(
                accepted.choose(|it| existing.contains(&it)),
                coding,
                "{accept:?}"
            );
        }
    }
}
