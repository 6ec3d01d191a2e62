//! What starts an app of Node.js.

use super::Project;
use crate::command::Command;
use crate::context::BuildContext;
use crate::error::Result;
use crate::frameworks::{Server, Start, is_for_development};
use crate::package::{FILE, main_file};
use crate::sources::extension_of;

/// How an app is started.
pub(super) struct Started {
    pub(super) command: Command,
    /// What says so, as far as the programs in it count.
    pub(super) line: String,
    /// Whether it is what the framework brings along, and nobody said anything.
    pub(super) is_usual: bool,
}

impl Project {
    /// What starts it: settings or a Procfile, the script `start`, what is usual for the framework, a main file.
    pub(super) fn start(
        &self,
        context: &mut BuildContext<'_>,
        server: &Server,
        use_script: bool,
    ) -> Result<Option<Started>> {
        if let Some(command) = context.explicit_start()? {
            let script = self.package.script("start").unwrap_or_default();
            let line = format!("{script} {}", command.shown());
            return Ok(Some(Started {
                command,
                line,
                is_usual: false,
            }));
        }
        // Where the platform was chosen, so was what `start` does.
        let is_auto = context.found.is_some();
        let script = self.package.script("start").filter(|_| use_script);
        if let Some(script) = script {
            if !(is_auto && is_for_development(script)) {
                context.note(format!("start script of {FILE}: {script}"));
                return Ok(Some(self.script("start", script)));
            }
            context.note(format!(
                "the script `start` of {FILE} is for development and not used: {script}"
            ));
        }
        if let Some(started) = server
            .start
            .iter()
            .find_map(|start| self.usual(context, start))
        {
            return Ok(Some(started));
        }
        let main = main_file(&self.package, &context.tree);
        Ok(main.map(|file| usual(Command::words(&["node", &file]))))
    }

    /// A script of the package, without a package manager in between where that is the same.
    fn script(&self, name: &'static str, script: &str) -> Started {
        // Without npm in between, the app itself gets the signal to stop.
        let alone = ["pre", "post"]
            .iter()
            .all(|when| self.package.script(&format!("{when}{name}")).is_none());
        let plain = Command::from_line(script).filter(|line| matches!(line, Command::Words(_)));
        let run = Command::words(&self.manager.script(name));
        Started {
            command: plain.filter(|_| alone).unwrap_or(run),
            line: script.to_owned(),
            is_usual: false,
        }
    }

    fn usual(&self, context: &BuildContext<'_>, start: &Start) -> Option<Started> {
        let command = match *start {
            Start::Named(name) => {
                if let Some(prefix) = name.strip_suffix('*') {
                    let name = self.package.script_like(prefix)?;
                    Command::from_line(self.package.script(name)?)?
                } else {
                    let script = self.package.script(name)?;
                    return Some(self.script(name, script));
                }
            }
            Start::Words(words) => Command::words(words),
            Start::Built(file) => {
                self.package.script("build")?;
                // The script may be for assets only.
                let sources = file.replace("dist/", "src/").replace(".js", ".ts");
                if !context.tree.has(&sources) {
                    return None;
                }
                Command::words(&["node", file])
            }
            Start::File(file) => {
                let is_there = context.tree.has(file);
                // Without it, Node.js runs TypeScript itself, as far as that is types only.
                let with_tsx = extension_of(file) == Some("ts") && self.package.depends_on("tsx");
                let program = if with_tsx { "tsx" } else { "node" };
                Some(Command::words(&[program, file])).filter(|_| is_there)?
            }
        };
        Some(usual(command))
    }
}

fn usual(command: Command) -> Started {
    Started {
        line: command.shown(),
        command,
        is_usual: true,
    }
}
