//! Pages that no address leads to: they answer a form.

use crate::browser::Browser;
use crate::comforts::switch_on_second_factor;
use crate::furnish::{Furnished, PASSWORD, SITE};
use estrade_testkit::TestApp;
use serde_json::json;

/// Opens each of them, and calls `each` with its name while it is open. The person is signed in; at the end they have a
/// second factor and are asked for it.
pub(crate) async fn open_each(
    app: &TestApp,
    browser: &Browser,
    furnished: &Furnished,
    mut each: impl AsyncFnMut(&str),
) {
    open_login(app, browser).await;
    each("device_request").await;

    fill_first_visit(browser, "/panel/tokens/new", "name", "build server").await;
    browser.click("Create token").await;
    browser.see("is ready").await;
    each("token_created").await;

    fill_first_visit(browser, "/panel/keys/new", "name", "nightly").await;
    browser.fill("more_workspaces", "main").await;
    browser.click("Create key").await;
    browser.see("nightly is ready").await;
    each("key_created").await;

    let invite = format!("/panel/team/invite?team={}", furnished.team);
    fill_first_visit(browser, &invite, "email", "lin@example.com").await;
    browser.click("Make a link").await;
    browser.see("lin@example.com is invited").await;
    each("invitation_made").await;

    let account = "/panel/admin/accounts/new";
    fill_first_visit(browser, account, "email", "mary@example.com").await;
    browser.fill("fullname", "Mary Somerville").await;
    browser.click("Create account").await;
    browser.see("shown once").await;
    each("account_link").await;
    open_link(browser).await;
    browser.see("Set a new password").await;
    each("reset").await;

    review_environment(browser).await;
    each("environment_review").await;

    // Also where the page asks for something shorter.
    browser.clear_cache().await;
    browser.open("/panel/new-project").await;
    browser.send_form(0, "No such name!").await;
    browser.find(".problem").await;
    each("form_refused").await;

    set_up_second_factor(browser).await;
    each("recovery_codes").await;
    browser.open("/panel/confirm").await;
    each("confirm_with_factor").await;
    ask_for_second_factor(browser, furnished.email).await;
    each("second_factor").await;
}

/// Opens a form as somebody who never was there, and fills its first field.
async fn fill_first_visit(browser: &Browser, path: &str, name: &str, value: &str) {
    browser.clear_cache().await;
    browser.open(path).await;
    browser.fill(name, value).await;
}

/// Begins a login of the command line, and opens the question whether to approve it.
async fn open_login(app: &TestApp, browser: &Browser) {
    let host = "a-machine-with-a-long-name".repeat(3);
    let begun = app
        .stranger()
        .post("/v1/device/code", &json!({"host": host}));
    let code = begun.await.assert(200).field("/user_code");
    browser.clear_cache().await;
    browser.open(&format!("/panel/device?code={code}")).await;
    browser.click("Continue").await;
    browser.see("Approve this login?").await;
}

/// Follows the link that the page shows.
async fn open_link(browser: &Browser) {
    let link = browser.text_of("#link").await;
    let (_, path) = link.split_once("/panel/").expect("a link to the panel");
    browser.clear_cache().await;
    browser.open(&format!("/panel/{path}")).await;
}

async fn review_environment(browser: &Browser) {
    let path = format!("/panel/projects/{SITE}/environment");
    browser.clear_cache().await;
    browser.open(&path).await;
    let file = "GREETING=good morning\nDATABASE_URL=postgres://shop@db.internal:5432/shop";
    browser.fill("text", file).await;
    browser.click("Review changes").await;
    browser.see("Review changes").await;
    browser.see("DATABASE_URL").await;
}

async fn set_up_second_factor(browser: &Browser) {
    browser.clear_cache().await;
    browser.open("/panel/account/second-factor").await;
    switch_on_second_factor(browser).await;
}

async fn ask_for_second_factor(browser: &Browser, email: &str) {
    browser.click("Sign out").await;
    browser.arrive("/panel/sign-in").await;
    browser.clear_cache().await;
    browser.open("/panel/sign-in").await;
    browser.fill("email", email).await;
    browser.fill("password", PASSWORD).await;
    browser.click("Sign in").await;
    // The answer to the password asks for the code.
    browser.find("[name=\"code\"]").await;
}
