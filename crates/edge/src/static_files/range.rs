//! `Range`: which bytes of a content a client wants. The rules are nginx's, which the world is used to.

use std::ops::Range;

/// More ranges than this in one request are not worth the response: it is sent whole.
const MAX_RANGES: usize = 200;

/// What `Range` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestedRange {
    /// Everything: no range, or one that we do not follow.
    Whole,
    /// These parts, in the order of the request.
    Parts(Vec<Range<u64>>),
    /// Nothing that exists, or nonsense: 416.
    Unsatisfiable,
}

/// Reads a `Range` header for a content of so many bytes.
pub(crate) fn parse(header: &str, size: u64) -> RequestedRange {
    let is_bytes = |unit: &str| unit.eq_ignore_ascii_case("bytes=");
    let Some((_, list)) = header
        .split_at_checked(6)
        .filter(|(unit, list)| is_bytes(unit) && !list.is_empty())
    else {
        return RequestedRange::Whole;
    };
    let (mut parts, mut total) = (Vec::new(), 0_u64);
    for spec in list.split(',') {
        let Some(part) = parse_one(spec, size) else {
            return RequestedRange::Unsatisfiable;
        };
        if part.start < part.end {
            total = total.saturating_add(part.end - part.start);
            parts.push(part);
        } else if part.start == 0 {
            // Only an empty content has no first byte; it is sent as it is.
            return RequestedRange::Whole;
        }
        if parts.len() > MAX_RANGES {
            return RequestedRange::Whole;
        }
    }
    match parts.len() {
        0 => RequestedRange::Unsatisfiable,
        // Parts that add up to more than the whole only make us send more: an old attack.
        _ if total > size => RequestedRange::Whole,
        _ => RequestedRange::Parts(parts),
    }
}

/// One range, empty when it lies beyond the content; none when it makes no sense.
fn parse_one(spec: &str, size: u64) -> Option<Range<u64>> {
    let (first, last) = spec.split_once('-')?;
    let (first, last) = (first.trim_matches(' '), last.trim_matches(' '));
    match (first.is_empty(), last.is_empty()) {
        (true, true) => None,
        (true, false) => Some(size.saturating_sub(number(last)?)..size),
        (false, true) => Some(number(first)?..size),
        (false, false) => Some(number(first)?..number(last)?.saturating_add(1).min(size)),
    }
}

fn number(digits: &str) -> Option<u64> {
    let number = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_as_the_world_writes_them() {
        let one = |range: Range<u64>| RequestedRange::Parts(std::iter::once(range).collect());
        let parts = |list: [Range<u64>; 2]| RequestedRange::Parts(list.into());
        for (header, wanted) in [
            ("bytes=0-4", one(0..5)),
            ("bytes=0-0", one(0..1)),
            ("bytes=5-", one(5..10)),
            ("bytes=-3", one(7..10)),
            ("bytes=-30", one(0..10)),
            ("bytes=8-99", one(8..10)),
            ("bytes=0-1,4-5", parts([0..2, 4..6])),
            ("Bytes= 0-1 , 4-5", parts([0..2, 4..6])),
            ("bytes=0-1,50-60", one(0..2)),
            ("bytes=10-", RequestedRange::Unsatisfiable),
            (
                "bytes=99999999999999999999999-",
                RequestedRange::Unsatisfiable,
            ),
            ("bytes=-0", RequestedRange::Unsatisfiable),
            ("bytes=4-2", RequestedRange::Unsatisfiable),
            ("bytes=a-b", RequestedRange::Unsatisfiable),
            ("bytes=-", RequestedRange::Unsatisfiable),
            ("bytes=+1-2", RequestedRange::Unsatisfiable),
            ("bytes=0-1,", RequestedRange::Unsatisfiable),
            ("bytes=", RequestedRange::Whole),
            ("items=0-4", RequestedRange::Whole),
            ("é-1", RequestedRange::Whole),
            ("bytes=0-9,0-9", RequestedRange::Whole),
        ] {
            assert_eq!(parse(header, 10), wanted, "{header}");
        }
        let many = format!("bytes={}", vec!["0-0"; 400].join(","));
        assert_eq!(parse(&many, 1000), RequestedRange::Whole);
        assert_eq!(parse("bytes=0-", 0), RequestedRange::Whole);
        assert_eq!(parse("bytes=-5", 0), RequestedRange::Whole);
    }
}
