//! Logins of the command line that a person approves at the panel.

mod attacks;
mod flow;

use estrade_testkit::{ApiResponse, PanelClient, TestApp};
use serde_json::{Value, json};

const PASSWORD: &str = "correct horse battery";
const PAGE: &str = "/panel/device";

/// A login that waits.
struct Begun {
    device_code: String,
    user_code: String,
}

async fn begin(app: &TestApp, body: Value) -> Begun {
    let answer = app.stranger().post("/v1/device/code", &body);
    let answer = answer.await.assert(200).json();
    let text = |name: &str| answer[name].as_str().unwrap().to_owned();
    Begun {
        device_code: text("device_code"),
        user_code: text("user_code"),
    }
}

async fn begin_on_laptop(app: &TestApp) -> Begun {
    begin(app, json!({"host": "laptop"})).await
}

impl Begun {
    async fn poll(&self, app: &TestApp) -> ApiResponse {
        let body = json!({"device_code": self.device_code});
        app.stranger().post("/v1/device/token", &body).await
    }

    /// Sends the form of the panel.
    async fn answer(&self, person: &mut PanelClient, answer: &str) -> ApiResponse {
        let form = [("code", self.user_code.as_str()), ("answer", answer)];
        person.post(PAGE, &form).await
    }
}

async fn signed_in(app: &TestApp, name: &str) -> PanelClient {
    app.new_account_with(name, PASSWORD).await;
    let mut person = app.panel();
    person
        .sign_in(&format!("{name}@example.com"), PASSWORD)
        .await;
    person
}

/// How many tokens the page of an account lists that a login made.
async fn listed(person: &mut PanelClient) -> usize {
    let page = person.get("/panel/tokens").await.assert(200).text();
    page.matches("<b>estrade login").count()
}
