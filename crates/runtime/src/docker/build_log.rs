//! The engine's build output, in lines and with secrets masked.

use crate::lines::Lines;
use crate::mask::Mask;
use estrade_model::secret::Secret;
use serde::Deserialize;

/// The longest message; the engine's are far shorter.
const MAX_MESSAGE: usize = 4 << 20;

/// Reads the messages of a build.
pub(crate) struct BuildLog {
    /// A message that has no end yet.
    begun: Vec<u8>,
    lines: Lines,
    mask: Mask,
    step: Option<String>,
    /// Which stage is being built, from 0.
    stage: Option<usize>,
    image: Option<String>,
}

/// What is to be known of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Line(String),
    /// A step has made a layer.
    Layer {
        stage: usize,
        id: String,
    },
    Failed {
        code: Option<i64>,
        message: String,
    },
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Raw {
    stream: Option<String>,
    status: Option<String>,
    error: Option<String>,
    error_detail: Option<Detail>,
    aux: Option<Aux>,
}

#[derive(Deserialize)]
struct Detail {
    code: Option<i64>,
    message: Option<String>,
}

#[derive(Deserialize)]
struct Aux {
    #[serde(rename = "ID")]
    id: Option<String>,
}

impl BuildLog {
    pub(crate) fn new(secrets: &[Secret]) -> Self {
        Self {
            begun: Vec::new(),
            lines: Lines::default(),
            mask: Mask::new(secrets),
            step: None,
            stage: None,
            image: None,
        }
    }

    /// The step that is being done.
    pub(crate) fn step(&self) -> Option<String> {
        self.step.clone()
    }

    /// The stage that is being built.
    pub(crate) fn stage(&self) -> Option<usize> {
        self.stage
    }

    /// The id of the image, once it is made.
    pub(crate) fn image(&self) -> Option<&str> {
        self.image.as_deref()
    }

    pub(crate) fn mask(&self, text: &str) -> String {
        self.mask.whole(text)
    }

    /// Reads a part of the response.
    pub(crate) fn read(&mut self, part: &[u8]) -> Vec<Result<Message, serde_json::Error>> {
        let mut messages = Vec::new();
        self.begun.extend_from_slice(part);
        while let Some(end) = memchr::memchr(b'\n', &self.begun) {
            let rest = self.begun.split_off(end + 1);
            let line = std::mem::replace(&mut self.begun, rest);
            if line.trim_ascii().is_empty() {
                continue;
            }
            match serde_json::from_slice(&line) {
                Ok(raw) => self.message(raw, &mut messages),
                Err(error) => messages.push(Err(error)),
            }
        }
        if self.begun.len() > MAX_MESSAGE {
            self.begun = Vec::new();
            messages.push(Err(serde::de::Error::custom("a message without an end")));
        }
        messages
    }

    /// The lines that are held back at the end of the output.
    pub(crate) fn rest(&mut self) -> Option<String> {
        let held = self.mask.rest();
        let mut last = Vec::new();
        self.lines.push(&held, |line| last.push(line));
        last.extend(self.lines.rest());
        (!last.is_empty()).then(|| last.join("\n"))
    }

    fn message(&mut self, raw: Raw, messages: &mut Vec<Result<Message, serde_json::Error>>) {
        if let Some(id) = raw.aux.and_then(|aux| aux.id) {
            self.image = Some(id);
        }
        if let Some(text) = raw.stream {
            self.text(uncoloured(&text), messages);
        }
        // The pull of a base image; a line for each change, without its progress bar.
        if let Some(status) = raw.status {
            self.text(&format!("{status}\n"), messages);
        }
        let (code, message) = raw
            .error_detail
            .map_or((None, None), |detail| (detail.code, detail.message));
        if let Some(message) = message.or(raw.error) {
            messages.push(Ok(Message::Failed {
                code: code.filter(|code| *code != 0),
                message: self.mask(&message),
            }));
        }
    }

    fn text(&mut self, text: &str, messages: &mut Vec<Result<Message, serde_json::Error>>) {
        let passed = self.mask.pass(text.as_bytes());
        let (step, stage) = (&mut self.step, &mut self.stage);
        self.lines.push(&passed, |line| {
            if line.starts_with("Step ") && line.contains(" : ") {
                let begins = line
                    .split(" : ")
                    .nth(1)
                    .is_some_and(|step| step.starts_with("FROM "));
                if begins {
                    *stage = Some(stage.map_or(0, |stage| stage + 1));
                }
                *step = Some(line.clone());
            }
            let layer = line.strip_prefix(" ---> ").filter(|id| is_short_id(id));
            let from = step.as_ref().is_some_and(|step| step.contains(" : FROM "));
            if let (Some(id), Some(stage), false) = (layer, *stage, from) {
                let id = id.to_owned();
                messages.push(Ok(Message::Layer { stage, id }));
            }
            messages.push(Ok(Message::Line(line)));
        });
    }
}

fn is_short_id(text: &str) -> bool {
    text.len() == 12
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// The engine paints in red what a step writes to stderr.
fn uncoloured(text: &str) -> &str {
    let inner = text
        .strip_prefix("\u{1b}[91m")
        .and_then(|text| text.strip_suffix("\u{1b}[0m"));
    inner.unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = r#"{"stream":"Step 1/3 : FROM base AS one"}
{"stream":"\n"}
{"stream":" ---> 00000000000a\n"}
{"stream":"Step 2/3 : RUN echo $T"}
{"stream":"\n"}
{"stream":" ---> Running in 111111111111\n"}
{"stream":"it is hunt"}
{"stream":"er22\n"}
{"stream":"\u001b[91mred\n\u001b[0m"}
{"stream":"Removing intermediate container 111111111111\n"}
{"stream":" ---> 00000000000b\n"}
{"stream":"Step 3/3 : RUN false"}
{"stream":"\n"}
{"errorDetail":{"code":7,"message":"The command 'hunter22' returned a non-zero code: 7"},"error":"…"}
"#;

    #[test]
    fn output_is_read_however_it_is_cut() {
        for size in [1, 7, 64, 10_000] {
            let mut log = BuildLog::new(&[Secret("hunter22".into())]);
            let parts = OUTPUT.as_bytes().chunks(size);
            let messages: Vec<_> = parts
                .flat_map(|part| log.read(part))
                .map(Result::unwrap)
                .collect();
            let line = |text: &str| Message::Line(text.into());
            assert_eq!(
                messages,
                [
                    line("Step 1/3 : FROM base AS one"),
                    line(" ---> 00000000000a"),
                    line("Step 2/3 : RUN echo $T"),
                    line(" ---> Running in 111111111111"),
                    line("it is ***"),
                    line("red"),
                    line("Removing intermediate container 111111111111"),
                    Message::Layer {
                        stage: 0,
                        id: "00000000000b".into()
                    },
                    line(" ---> 00000000000b"),
                    line("Step 3/3 : RUN false"),
                    Message::Failed {
                        code: Some(7),
                        message: "The command '***' returned a non-zero code: 7".into()
                    },
                ]
            );
            assert_eq!(log.step().unwrap(), "Step 3/3 : RUN false");
        }
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        let mut log = BuildLog::new(&[]);
        assert!(log.read(b"<html>\n")[0].is_err());
        assert!(log.read(&vec![b'x'; MAX_MESSAGE + 1])[0].is_err());
    }
}
