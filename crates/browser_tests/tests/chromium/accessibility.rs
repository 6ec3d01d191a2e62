//! axe-core, which finds what people with other eyes and hands than ours stumble over.

use crate::browser::Browser;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::OnceLock;

/// Runs in the page: only what can be a violation, with the elements that are.
const SCRIPT: &str = "
    const done = arguments[arguments.length - 1];
    axe.run(document, { resultTypes: ['violations'] }).then(
        result => done(result.violations.map(found => ({
            id: found.id, impact: found.impact, help: found.help,
            nodes: found.nodes.slice(0, 5).map(node => node.html.slice(0, 300) + ' — ' + node.failureSummary),
        }))),
        error => done([{ id: String(error), impact: 'critical', help: 'axe failed', nodes: [] }]),
    );";

/// Serious and critical violations on the page that is open.
pub(crate) async fn serious_violations(browser: &Browser) -> Vec<Value> {
    browser.run(axe(), Vec::new()).await;
    let found = browser.run_async(SCRIPT).await;
    let found = found.as_array().expect("a list of violations").clone();
    let is_serious =
        |found: &Value| found["impact"] == json!("serious") || found["impact"] == json!("critical");
    found.into_iter().filter(is_serious).collect()
}

/// The source of axe-core.
fn axe() -> &'static str {
    static SOURCE: OnceLock<String> = OnceLock::new();
    SOURCE.get_or_init(|| {
        let modules = std::env::var_os("ESTRADE_TEST_PANEL_MODULES").map_or_else(
            || {
                PathBuf::from(env!("CARGO_MANIFEST_DIR"))
                    .join("../../target/tools/panel/node/node_modules")
            },
            PathBuf::from,
        );
        let file = modules.join("axe-core/axe.min.js");
        std::fs::read_to_string(&file).unwrap_or_else(|error| {
            panic!(
                "{}: {error}; `./test browser` installs axe-core",
                file.display()
            )
        })
    })
}
