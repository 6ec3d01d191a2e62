//! First calls to copy, with the address of this installation.

use estrade_model::WorkspaceId;
use estrade_model::provider::ECHO_MODEL;
use estrade_server::app::App;
use serde_json::{Value, json};

/// The same call in three languages. The key is read from the environment, so that it stays out of files.
pub(super) struct Snippets {
    pub(super) base_url: String,
    pub(super) curl: String,
    pub(super) python: String,
    pub(super) javascript: String,
}

/// The base URL of a workspace.
pub(super) fn base_url(app: &App, workspace: WorkspaceId) -> String {
    format!("{}/api/{workspace}/v1", app.core.settings.ai_url)
}

/// The model that examples name: one that the key may use.
pub(super) fn example_model(app: &App, allowed: Option<&[String]>) -> String {
    let listed = app.gateway.listed_models(allowed);
    let first = listed.first().map(|model| model.id.to_string());
    let allowed = || allowed.and_then(|allowed| allowed.first().cloned());
    first
        .or_else(allowed)
        .unwrap_or_else(|| ECHO_MODEL.to_owned())
}

impl Snippets {
    pub(super) fn new(app: &App, workspace: WorkspaceId, model: &str) -> Self {
        Self::of(base_url(app, workspace), model)
    }

    fn of(base_url: String, model: &str) -> Self {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "Hello"}]});
        let body = body.to_string().replace('\'', r"'\''");
        // JSON's texts are texts of both languages.
        let (model, base) = (Value::from(model), Value::from(base_url.as_str()));
        Self {
            curl: format!(
                "curl {base_url}/chat/completions \\\n  -H \"Authorization: Bearer $ESTRADE_API_KEY\" \\\n  --json '{body}'"
            ),
            python: format!(
                "import os\nfrom openai import OpenAI\n\nclient = OpenAI(\n    base_url={base},\n    api_key=os.environ[\"ESTRADE_API_KEY\"],\n)\nanswer = client.chat.completions.create(\n    model={model},\n    messages=[{{\"role\": \"user\", \"content\": \"Hello\"}}],\n)\nprint(answer.choices[0].message.content)"
            ),
            javascript: format!(
                "import OpenAI from \"openai\";\n\nconst client = new OpenAI({{\n  baseURL: {base},\n  apiKey: process.env.ESTRADE_API_KEY,\n}});\nconst answer = await client.chat.completions.create({{\n  model: {model},\n  messages: [{{ role: \"user\", content: \"Hello\" }}],\n}});\nconsole.log(answer.choices[0].message.content);"
            ),
            base_url,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_with_quotes_breaks_out_of_nothing() {
        let snippets = Snippets::of("http://h/api/w/v1".into(), "a'b\"; rm -rf /");
        assert!(
            snippets.curl.contains(r#"a'\''b\"; rm -rf /"#),
            "{}",
            snippets.curl
        );
        assert!(snippets.python.contains(r#"model="a'b\"; rm -rf /""#));
        assert!(snippets.javascript.contains("http://h/api/w/v1"));
    }
}
