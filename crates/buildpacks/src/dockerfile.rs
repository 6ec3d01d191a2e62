//! Writes Dockerfiles that the classic builder of any engine understands.
//!
//! File contents and settings are the user's, so every method either takes fixed text, or strict
//! types, or escapes: nothing that is put into an instruction can become another one.

use crate::command::{Command, is_plain};
use crate::error::{Result, refused};
use crate::images::Image;
use crate::instructions::is_odd;
use crate::settings::BuildArg;
use std::fmt::Write;

/// The user that apps run as, and its group. It is no user of the base images, so that owning
/// files means the same on all of them.
pub const RUN_AS: u32 = 10001;

/// Makes that user, with a home and a folder for the app. By hand, because `useradd` and `adduser`
/// are not in every base image.
pub(crate) const MAKE_USER: &str = "echo 'estrade:x:10001:10001::/home/estrade:/bin/sh' >> /etc/passwd \
&& echo 'estrade:x:10001:' >> /etc/group \
&& mkdir -p /home/estrade /app && chown 10001:10001 /home/estrade /app";

/// Where package managers keep what they download while a stage `build` is built. No other stage has it.
pub const CACHE_FOLDER: &str = "/var/cache/estrade";

/// A Dockerfile in the making.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    text: String,
    /// Files and folders of the sources that were copied by name.
    copied: Vec<String>,
    /// Whether all of the sources were copied.
    copied_all: bool,
    installed: Option<Installed>,
}

/// Where a Dockerfile has installed dependencies, and from which files.
#[derive(Debug)]
pub(crate) struct Installed {
    /// How much of the text had been written then.
    pub(crate) end: usize,
    /// Files and folders of the sources that had been copied.
    pub(crate) copied: Vec<String>,
}

impl Writer {
    pub(crate) fn new(platform: &'static str) -> Self {
        let mut writer = Self::default();
        writer.line(&format!(
            "# Made by Estrade for the platform {platform}. To change it, save it as Dockerfile and choose the platform docker."
        ));
        writer
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }

    /// The install step has been written. Nothing is noted where all files may have decided what it does.
    pub(crate) fn note_installed(&mut self) {
        if !self.copied_all {
            self.installed = Some(Installed {
                end: self.text.len(),
                copied: self.copied.clone(),
            });
        }
    }

    /// The text up to the end of the install step, and what it installs from.
    pub(crate) fn installed(&self) -> Option<(&str, &[String])> {
        let installed = self.installed.as_ref()?;
        Some((self.text.get(..installed.end)?, &installed.copied))
    }

    fn line(&mut self, line: &str) {
        debug_assert!(!line.contains('\n'), "one instruction is one line");
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Begins a stage with a name, which later ones can copy from.
    pub(crate) fn stage(&mut self, image: &Image, name: &'static str) {
        self.text.push('\n');
        self.line(&format!("FROM {image} AS {name}"));
        self.as_root(image);
    }

    /// Begins the last stage: what becomes the image.
    pub(crate) fn last_stage(&mut self, image: &Image) {
        self.text.push('\n');
        self.line(&format!("FROM {image}"));
        self.as_root(image);
    }

    /// Begins a stage on top of an earlier one.
    pub(crate) fn stage_on(&mut self, earlier: &'static str, name: Option<&'static str>) {
        self.text.push('\n');
        match name {
            Some(name) => self.line(&format!("FROM {earlier} AS {name}")),
            None => self.line(&format!("FROM {earlier}")),
        }
    }

    /// Ends as a folder of files in an otherwise empty image.
    pub(crate) fn only_folder(&mut self, stage: &'static str, folder: &'static str) {
        self.text.push('\n');
        self.line("FROM scratch");
        self.line(&format!("COPY --from={stage} {folder} {folder}"));
    }

    /// Images of others may end as somebody who may not install anything.
    fn as_root(&mut self, image: &Image) {
        if image.configured() {
            self.line("USER 0:0");
        }
    }

    /// Makes the user that the app runs as.
    pub(crate) fn make_user(&mut self) {
        self.script(MAKE_USER);
    }

    /// From here on, the app's own user.
    pub(crate) fn become_user(&mut self) {
        self.line(&format!("USER {RUN_AS}:{RUN_AS}"));
    }

    /// Declares the build's arguments. Only for stages that are not the last: their values are seen
    /// in the history of the stage.
    pub(crate) fn args(&mut self, args: &[BuildArg]) {
        for arg in args {
            self.line(&format!("ARG {}", arg.name()));
        }
    }

    /// An environment variable with a fixed value.
    pub(crate) fn env(&mut self, name: &'static str, value: &'static str) {
        self.line(&format!("ENV {name}={value}"));
    }

    /// Tells package managers to keep what they download where the next build finds it. Only for the stage `build`.
    pub(crate) fn cache_env(&mut self, variables: &[(&'static str, &'static str)]) {
        for (name, folder) in variables {
            self.line(&format!("ENV {name}={CACHE_FOLDER}/{folder}"));
        }
    }

    /// An environment variable whose value is one plain word.
    pub(crate) fn env_word(&mut self, name: &'static str, value: &str) {
        if is_plain(value) {
            self.line(&format!("ENV {name}={value}"));
        }
    }

    /// The folder in which all else happens; `inner` is a folder of the sources.
    pub(crate) fn workdir(&mut self, inner: &str) -> Result<()> {
        if inner == "." {
            self.line("WORKDIR /app");
            return Ok(());
        }
        if !is_plain(inner) || inner.split('/').any(|part| part == "..") {
            return Err(refused(inner, NAMES));
        }
        self.line(&format!("WORKDIR /app/{inner}"));
        Ok(())
    }

    /// Copies files of the sources into a folder.
    pub(crate) fn copy(&mut self, files: &[&str], folder: &str) -> Result<()> {
        self.copy_as("", files, folder)
    }

    /// Copies everything.
    pub(crate) fn copy_all(&mut self) {
        self.copied_all = true;
        self.line("COPY . ./");
    }

    /// Copies everything, for the app's own user.
    pub(crate) fn copy_all_owned(&mut self) {
        self.copied_all = true;
        self.line(&format!("COPY --chown={RUN_AS}:{RUN_AS} . ./"));
    }

    /// Copies something from an earlier stage or another image, by fixed names.
    pub(crate) fn copy_from(&mut self, stage: &'static str, from: &'static str, to: &'static str) {
        self.line(&format!("COPY --from={stage} {from} {to}"));
    }

    /// Copies a file from another image.
    pub(crate) fn copy_from_image(&mut self, image: &Image, from: &'static str, to: &'static str) {
        self.line(&format!("COPY --from={image} {from} {to}"));
    }

    /// The same, for the app's own user.
    pub(crate) fn copy_from_owned(
        &mut self,
        stage: &'static str,
        from: &'static str,
        to: &'static str,
    ) {
        let flags = format!("--from={stage} --chown={RUN_AS}:{RUN_AS}");
        self.line(&format!("COPY {flags} {from} {to}"));
    }

    fn copy_as(&mut self, flags: &str, files: &[&str], folder: &str) -> Result<()> {
        let mut words = files.to_vec();
        words.push(folder);
        self.copied
            .extend(files.iter().map(|file| (*file).to_owned()));
        if words
            .iter()
            .all(|word| is_plain(word) && !word.starts_with('-'))
        {
            self.line(&format!("COPY {flags}{}", words.join(" ")));
            return Ok(());
        }
        // Here the engine would expand variables and patterns even inside of JSON.
        let special = |word: &&str| {
            word.chars()
                .any(|c| "$'\"\\*?[]".contains(c) || c.is_control())
        };
        if let Some(word) = words.iter().copied().find(special) {
            return Err(refused(word, NAMES));
        }
        self.line(&format!("COPY {flags}{}", json(&words)));
        Ok(())
    }

    /// Runs fixed text in a shell.
    pub(crate) fn script(&mut self, script: &'static str) {
        self.line(&format!("RUN {script}"));
    }

    /// Runs a program. Words that are more than words are passed without a shell.
    pub(crate) fn run<S: AsRef<str>>(&mut self, words: &[S]) {
        let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
        let named = words
            .first()
            .is_some_and(|word| !word.contains('=') && !word.starts_with('-'));
        if named && words.iter().all(|word| is_plain(word)) {
            self.line(&format!("RUN {}", words.join(" ")));
        } else {
            self.line(&format!("RUN {}", json(&words)));
        }
    }

    /// Runs a command of the user.
    pub(crate) fn run_command(&mut self, command: &Command) {
        self.line(&format!("RUN {}", json(&command.argv())));
    }

    /// Installs packages of Debian.
    pub(crate) fn packages<S: AsRef<str>>(&mut self, packages: &[S]) {
        let packages: Vec<_> = packages.iter().map(AsRef::as_ref).collect();
        if packages.is_empty() || !packages.iter().all(|word| is_plain(word)) {
            return;
        }
        self.line(&format!(
            "RUN apt-get update && apt-get install -y --no-install-recommends {} && rm -rf /var/lib/apt/lists/*",
            packages.join(" ")
        ));
    }

    /// The port, the user and what is started: the end of an image that runs.
    pub(crate) fn finish(&mut self, port: u16, start: &Command) {
        self.line(&format!("ENV PORT={port}"));
        self.line(&format!("EXPOSE {port}"));
        self.become_user();
        self.line(&format!("CMD {}", json(&start.argv())));
    }
}

/// Why a name cannot be used.
const NAMES: &str = "rename it: use letters, digits and `. _ - / @ +` only";

/// Words as a JSON array on one line, without a space that any parser could split at.
fn json(words: &[&str]) -> String {
    let mut text = String::from("[");
    for (at, word) in words.iter().enumerate() {
        // Newer builders look for here-documents before they look for JSON.
        let mut word = serde_json::Value::from(*word)
            .to_string()
            .replace("<<", "\\u003c\\u003c");
        // What only some engines take for a space. In one pass: a text of the user may have many of them.
        if word.contains(is_odd) {
            word = escape_odd(&word);
        }
        let comma = if at > 0 { "," } else { "" };
        let _ = write!(text, "{comma}{word}");
    }
    text.push(']');
    text
}

fn escape_odd(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if !is_odd(c) {
            escaped.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(escaped, "\\u{unit:04x}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl Fn(&mut Writer)) -> String {
        let mut writer = Writer::default();
        write(&mut writer);
        writer.into_text()
    }

    #[test]
    fn plain_words_stay_readable_and_others_are_json() {
        assert_eq!(
            written(|w| w.run(&["npm", "ci", "--omit=dev"])),
            "RUN npm ci --omit=dev\n"
        );
        assert_eq!(written(|w| w.run(&["a", "b c"])), "RUN [\"a\",\"b c\"]\n");
        assert_eq!(written(|w| w.run(&["A=1", "b"])), "RUN [\"A=1\",\"b\"]\n");
        assert_eq!(
            written(|w| w.run(&["--mount=x", "b"])),
            "RUN [\"--mount=x\",\"b\"]\n"
        );
        assert_eq!(
            written(|w| w.run(&["x", "a\n\"$b\\ <<E"])),
            "RUN [\"x\",\"a\\n\\\"$b\\\\ \\u003c\\u003cE\"]\n"
        );
        assert_eq!(
            written(|w| w.run(&["x", "a\u{2003}b\u{7f}\u{2003}"])),
            "RUN [\"x\",\"a\\u2003b\\u007f\\u2003\"]\n"
        );
    }

    #[test]
    fn copied_names_are_never_patterns_or_variables() {
        let copy = |name: &'static str| {
            let mut writer = Writer::default();
            writer.copy(&[name], "./").map(|()| writer.into_text())
        };
        assert_eq!(copy("a/b.json").unwrap(), "COPY a/b.json ./\n");
        assert_eq!(
            copy("My App.csproj").unwrap(),
            "COPY [\"My App.csproj\",\"./\"]\n"
        );
        assert_eq!(copy("--from=x").unwrap(), "COPY [\"--from=x\",\"./\"]\n");
        for bad in ["$HOME", "a*", "a'b", "a\"b", "a[b]", "a\nb", "a\\b", "a?"] {
            assert!(
                copy(bad).unwrap_err().to_string().contains("rename"),
                "{bad}"
            );
        }
    }

    #[test]
    fn folders_are_plain() {
        let workdir = |inner: &'static str| {
            let mut writer = Writer::default();
            writer.workdir(inner).map(|()| writer.into_text())
        };
        assert_eq!(workdir(".").unwrap(), "WORKDIR /app\n");
        assert_eq!(workdir("src/web").unwrap(), "WORKDIR /app/src/web\n");
        assert!(
            ["a b", "$x", "../x", "a/../b"]
                .iter()
                .all(|inner| workdir(inner).is_err())
        );
    }
}
