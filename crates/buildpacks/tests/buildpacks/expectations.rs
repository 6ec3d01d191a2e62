//! What a tree of sources becomes, compared with what it should become.

use crate::support::{Files, files, last_stage, planned, read, text};
use estrade_buildpacks::{Outcome, PlanError};
use estrade_model::platform::Platform;
use serde_json::{Value, json};

/// What a tree becomes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Becomes {
    /// An application in this folder.
    App(&'static str),
    /// Pages in this folder.
    Pages(&'static str),
    /// Something that is started so.
    Runs(&'static str),
    /// Nothing, and why.
    Refused(&'static str),
}
use Becomes::{App, Pages, Refused, Runs};

pub(crate) fn becomes(platform: Platform, files: &Files) -> Result<(String, String, bool), String> {
    match planned(platform, files, &json!({})) {
        Ok(plan) => match &plan.outcome {
            Outcome::Static { spa, looked_in, .. } => {
                Ok(("site".to_owned(), looked_in[0].clone(), *spa))
            }
            Outcome::Runs { .. } => {
                let dockerfile = read(text(&plan));
                let command = last_stage(&dockerfile).last().unwrap().json.clone();
                let mut words = command.unwrap();
                if words.first().is_some_and(|word| word == "/bin/sh") {
                    words.drain(..2);
                }
                Ok(("server".to_owned(), words.join(" "), false))
            }
        },
        Err(PlanError::Refused { place, advice }) => Err(format!("{place}: {advice}")),
        Err(error) => panic!("{error}"),
    }
}

pub(crate) fn check(platform: Platform, name: &str, files: &Files, expected: &Becomes) {
    let got = becomes(platform, files);
    let wanted = match expected {
        App(folder) => Ok(("site".to_owned(), (*folder).to_owned(), true)),
        Pages(folder) => Ok(("site".to_owned(), (*folder).to_owned(), false)),
        Runs(command) => Ok(("server".to_owned(), (*command).to_owned(), false)),
        Refused(part) => {
            let Err(error) = &got else {
                panic!("{name} has a plan: {got:?}");
            };
            assert!(error.contains(part), "{name}: {error}");
            return;
        }
    };
    assert_eq!(got, wanted, "{name}");
}

/// A `package.json` with these scripts and dependencies, those for development apart.
pub(crate) fn package(scripts: &Value, runtime: &[&str], dev: &[&str]) -> String {
    let all = |names: &[&str]| {
        let names = names.iter().map(|name| ((*name).to_owned(), json!("*")));
        Value::Object(names.collect())
    };
    json!({
        "name": "app", "type": "module", "scripts": scripts,
        "dependencies": all(runtime), "devDependencies": all(dev),
    })
    .to_string()
}

pub(crate) fn tree(package: &str, more: &[(&str, &str)]) -> Files {
    let mut all = files(more);
    all.insert("package.json".to_owned(), package.as_bytes().to_vec());
    all
}
