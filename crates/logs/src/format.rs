//! Lines as they go over the wire.

use crate::error::{Error, Result};
use crate::line::StoredLine;
use estrade_model::ReleaseId;
use estrade_model::Timestamp;
use estrade_model::log::{LegacyLine, LinesOf, Logs, ReleaseLines, StreamedLine};
use serde::Serialize;
use std::collections::HashMap;

/// A line in a response.
#[derive(Serialize)]
struct Entry<'l> {
    _entry: &'l str,
    r#type: &'static str,
}

/// Lines release by release, each in the order in which they were given.
pub fn grouped(lines: &[StoredLine]) -> Result<Logs> {
    let mut data: Vec<ReleaseLines> = Vec::new();
    let mut places: HashMap<ReleaseId, usize> = HashMap::new();
    for line in lines {
        let place = *places.entry(line.release).or_insert(data.len());
        if place == data.len() {
            data.push(ReleaseLines {
                meta_data: LinesOf {
                    release_id: line.release,
                },
                values: Vec::new(),
            });
        }
        let entry = Entry {
            _entry: &line.text,
            r#type: line.stream(),
        };
        let entry = serde_json::to_string(&entry).map_err(Error::Json)?;
        if let Some(group) = data.get_mut(place) {
            group.values.push([line.at.to_string(), entry]);
        }
    }
    Ok(Logs { data })
}

/// A line as the first version of the API writes it.
pub fn legacy(line: StoredLine) -> LegacyLine {
    LegacyLine {
        r#type: line.stream(),
        datetime: moment(line.at),
        message: line.text,
    }
}

/// A line of a stream.
pub fn streamed(line: StoredLine) -> StreamedLine {
    StreamedLine {
        release_id: line.release,
        time: line.at.to_string(),
        r#type: line.stream(),
        entry: line.text,
    }
}

/// `2026-11-15T01:02:03.004567891Z`
fn moment(nanos: i64) -> String {
    let millis = Timestamp::from_millis(nanos.div_euclid(1_000_000)).to_string();
    let rest = nanos.rem_euclid(1_000_000);
    format!("{}{rest:06}Z", millis.trim_end_matches('Z'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::Cursor;
    use serde_json::json;

    fn line(release: &str, at: i64, stderr: bool, text: &str) -> StoredLine {
        StoredLine {
            cursor: Cursor { block: 1, index: 2 },
            release: release.repeat(24).parse().unwrap(),
            instance: "web".into(),
            at,
            stderr,
            text: text.to_owned(),
        }
    }

    #[test]
    fn lines_are_grouped_by_release_in_their_order() {
        let lines = [
            line("b", 3, false, "say \"hi\""),
            line("a", 2, true, "x"),
            line("b", 1, false, ""),
        ];
        let expected = json!({"data": [
            {"metaData": {"releaseId": "b".repeat(24)}, "values": [
                ["3", r#"{"_entry":"say \"hi\"","type":"stdout"}"#],
                ["1", r#"{"_entry":"","type":"stdout"}"#],
            ]},
            {"metaData": {"releaseId": "a".repeat(24)}, "values": [
                ["2", r#"{"_entry":"x","type":"stderr"}"#],
            ]},
        ]});
        let shown = grouped(&lines).unwrap();
        assert_eq!(serde_json::to_value(shown).unwrap(), expected);
    }

    #[test]
    fn times_keep_their_nanoseconds() {
        let shown = legacy(line("a", 1_794_704_523_004_567_891, true, "x"));
        assert_eq!(
            serde_json::to_value(shown).unwrap(),
            json!({"type": "stderr", "datetime": "2026-11-15T01:02:03.004567891Z", "message": "x"})
        );
        assert_eq!(moment(1), "1970-01-01T00:00:00.000000001Z");
        assert_eq!(moment(-1), "1969-12-31T23:59:59.999999999Z");
    }

    #[test]
    fn a_streamed_line_says_all_of_itself() {
        let shown = streamed(line("a", 5, false, "x"));
        let expected = json!({
            "releaseId": "a".repeat(24), "time": "5", "type": "stdout", "_entry": "x",
        });
        assert_eq!(serde_json::to_value(shown).unwrap(), expected);
    }
}
