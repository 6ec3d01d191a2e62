//! What people and models write is text on every page, whatever it looks like.

use crate::browser::{Browser, Javascript};
use crate::crawl::{Crawl, shape};
use crate::entry_points::everywhere;
use crate::furnish::{
    Furnished, PASSWORD, SERVICE, SITE, furnish, sign_in, store_log_line, write_build_log,
};
use estrade_mock_upstream::{
    Action, MockUpstream, ReceivedRequest, done, event, json as json_answer, stream_head,
    usage_event,
};
use estrade_testkit::{Api, Backend, TestApp, eventually};
use reqwest::Method;
use serde_json::{Value, json};

/// What somebody writes who wants to run a script in the browser of others.
const HOSTILE: &str =
    r#"'"><img src=x onerror="document.title='owned'"><script>document.title='owned'</script>"#;
/// What a model answers that was told to, in whatever language a page might understand.
const ANSWER: &str = r#"<img src=x onerror="document.title='owned'"> <script>document.title='owned'</script> <svg onload="document.title='owned'"></svg> <a href="javascript:document.title='owned'">here</a> [there](javascript:document.title='owned') ![x](x)"#;
/// What a provider says that refuses a call.
const REFUSAL: &str = r#"Not <img src=x onerror="document.title='owned'">"#;
/// What there would be in the page if any of it were more than text.
const MARKUP: &str =
    "img[src='x'], script:not([src]), [onerror], [onload], a[href^='javascript:'], a[href='x']";
/// Also what a script would have done.
const IS_OWNED: &str =
    "return document.title === 'owned' || document.querySelector(arguments[0]) !== null";
/// Whether the page shows the text, as text or in a field.
const SHOWS: &str = "
    const fields = [...document.querySelectorAll('main input:not([type=hidden]), main textarea')];
    return document.body.innerText.includes('onerror') || fields.some(field => field.value.includes('onerror'));";

/// Says what is wrong with the page that is open.
async fn look(browser: &Browser, page: &str, problems: &mut Vec<String>) {
    let is_owned = browser.run(IS_OWNED, vec![json!(MARKUP)]).await;
    if is_owned != false {
        problems.push(format!("{page} has what people wrote as markup"));
    }
    problems.extend(browser.take_activity().await.problems(page));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_people_wrote_stays_text() {
    let app = TestApp::start(Backend::Sqlite).await;
    let furnished = furnish(&app, HOSTILE).await;
    let browser = Browser::start(&app, Javascript::On).await;
    let (mut problems, mut showing) = (Vec::new(), Vec::new());
    browser.open(&furnished.invitation).await;
    look(&browser, &furnished.invitation, &mut problems).await;
    sign_in(&browser, furnished.email).await;
    browser.open("/panel/account").await;
    browser.fill("fullname", HOSTILE).await;
    browser.click("Save").await;
    make_token(&browser, &mut problems).await;
    sign_in_as_hostile_device(&app, furnished.email).await;
    look_at_login(&app, &browser, &mut problems).await;
    look_at_value(&browser, &mut problems).await;
    look_at_live_log(&app, &browser, &furnished, &mut problems).await;
    look_at_build_log(&app, &browser, &furnished, &mut problems).await;

    let mut crawl = Crawl::new(everywhere(&furnished));
    while let Some(path) = crawl.next() {
        browser.open(&path).await;
        look(&browser, &path, &mut problems).await;
        if browser.run(SHOWS, Vec::new()).await == true {
            showing.push(shape(&path));
        }
        crawl.note_links(&browser).await;
    }
    browser.finish().await;
    app.finish().await;
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    // Otherwise nothing was tried.
    for page in [
        format!("/panel/projects/{SITE}/releases"),
        format!("/panel/projects/{SITE}/releases/{{id}}"),
        format!("/panel/projects/{SERVICE}/logs"),
        "/panel/account".to_owned(),
        "/panel/audit".to_owned(),
        "/panel/team".to_owned(),
        "/panel/tokens".to_owned(),
        "/panel/sessions".to_owned(),
        // The label of a workspace.
        "/panel/workspaces".to_owned(),
    ] {
        assert!(showing.contains(&page), "{page} does not show the text");
    }
}

async fn make_token(browser: &Browser, problems: &mut Vec<String>) {
    browser.open("/panel/tokens/new").await;
    browser.fill("name", HOSTILE).await;
    browser.click("Create token").await;
    browser.see("is ready").await;
    look(browser, "a new token", problems).await;
    browser.open("/panel/tokens").await;
    // The question of the dialog names it.
    browser.click("Revoke").await;
    look(browser, "the question before a token is revoked", problems).await;
}

/// A browser may call itself what it likes.
async fn sign_in_as_hostile_device(app: &TestApp, email: &str) {
    let origin = format!("http://{}", app.address(Api::Platform));
    let form = format!("email={}&password={}", encode(email), encode(PASSWORD));
    let sent = app.stranger().call(Method::POST, "/panel/sign-in");
    let sent = sent.header("origin", &origin).header("user-agent", HOSTILE);
    let sent = sent.header("content-type", "application/x-www-form-urlencoded");
    sent.bytes(form).await.assert(303);
}

/// So may a command line that wants to be let in, and its machine.
async fn look_at_login(app: &TestApp, browser: &Browser, problems: &mut Vec<String>) {
    let client = app.stranger();
    let begun = client.post("/v1/device/code", &json!({"host": HOSTILE}));
    let begun = begun.header("user-agent", HOSTILE).await.assert(200);
    let code = begun.field("/user_code");
    browser.open(&format!("/panel/device?code={code}")).await;
    browser.click("Continue").await;
    browser.see("Approve this login?").await;
    // Of what the program is called; a machine has the characters of host names only.
    browser.see("<img src=x onerror").await;
    look(browser, "the question before a login is approved", problems).await;
}

/// The value of a variable, which is hidden until somebody asks for it.
async fn look_at_value(browser: &Browser, problems: &mut Vec<String>) {
    let path = format!("/panel/projects/{SITE}/environment?show=GREETING");
    browser.open(&path).await;
    assert_eq!(browser.run(SHOWS, Vec::new()).await, true, "{path}");
    look(browser, &path, problems).await;
}

/// A line that a script adds to the page as it is written.
async fn look_at_live_log(
    app: &TestApp,
    browser: &Browser,
    furnished: &Furnished,
    problems: &mut Vec<String>,
) {
    let path = format!("/panel/projects/{SERVICE}/logs");
    browser.open(&path).await;
    browser.see("Live").await;
    let line = format!("written meanwhile: {HOSTILE}");
    store_log_line(app, &furnished.service, &line).await;
    browser.see(&line).await;
    look(browser, "a log line that came meanwhile", problems).await;
}

/// The same of the log of a build.
async fn look_at_build_log(
    app: &TestApp,
    browser: &Browser,
    furnished: &Furnished,
    problems: &mut Vec<String>,
) {
    let release = &furnished.release;
    let line = format!("written meanwhile: {HOSTILE}");
    write_build_log(app, release, "BUILDING", &[]).await;
    let path = format!("/panel/projects/{SITE}/releases/{release}");
    browser.open(&path).await;
    browser.find("[data-tail]").await;
    write_build_log(app, release, "BUILDING", std::slice::from_ref(&line)).await;
    browser.see(&line).await;
    look(browser, "a line of a build that came meanwhile", problems).await;
    write_build_log(app, release, "READY", &[]).await;
    // The page loads itself again at the end of the log.
    eventually("the build has ended", || async {
        !browser.has("[data-tail]").await
    })
    .await;
    browser.see(&line).await;
    look(browser, "the log of a build", problems).await;
}

/// Forms are shown again with what was typed, and messages quote it: also where the text is no name that would be kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_people_type_stays_text() {
    let app = TestApp::start(Backend::Sqlite).await;
    let furnished = furnish(&app, "Summer sale").await;
    let browser = Browser::start(&app, Javascript::On).await;
    let mut problems = Vec::new();
    for path in ["/panel/sign-in", &furnished.invitation] {
        try_forms(&browser, path, &mut problems).await;
    }
    sign_in(&browser, furnished.email).await;
    let mut tried = 0;
    let mut crawl = Crawl::new(everywhere(&furnished));
    while let Some(path) = crawl.next() {
        browser.open(&path).await;
        crawl.note_links(&browser).await;
        tried += try_forms(&browser, &path, &mut problems).await;
    }
    for path in addresses(&furnished) {
        browser.open(&path).await;
        look(&browser, &path, &mut problems).await;
    }
    browser.finish().await;
    app.finish().await;
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(tried > 15, "only {tried} forms showed what was typed");
}

/// Sends every form of a page; returns how many were answered with a page that shows what was typed.
async fn try_forms(browser: &Browser, path: &str, problems: &mut Vec<String>) -> usize {
    let mut showing = 0;
    for number in 0.. {
        browser.open(path).await;
        if !browser.send_form(number, HOSTILE).await {
            break;
        }
        let page = format!("the answer to form {number} of {path}");
        look(browser, &page, problems).await;
        showing += usize::from(browser.run(SHOWS, Vec::new()).await == true);
    }
    showing
}

/// What a link may put into an address.
fn addresses(furnished: &Furnished) -> Vec<String> {
    let team = &furnished.team;
    let text = encode(HOSTILE);
    [
        format!("/panel/{text}"),
        format!("/panel/projects/{text}"),
        format!("/panel/projects/{SITE}/environment?show={text}"),
        format!("/panel/projects/{SITE}/environment?show=GREETING"),
        format!("/panel/projects?team={text}"),
        format!("/panel/projects?before={text}"),
        format!("/panel/projects?team={team}&q={text}"),
        format!("/panel/projects/{SERVICE}/logs?q=a&release={text}&instance={text}"),
        format!("/panel/projects/{SITE}?range={text}"),
        format!("/panel/audit?action={text}&account={text}&subject={text}&from={text}&to={text}"),
        format!("/panel/audit?subject={text}"),
        format!("/panel/calls?status={text}&model={text}&key={text}&workspace={text}"),
        format!("/panel/calls?model={text}"),
        format!("/panel/usage?by={text}&model={text}&key={text}"),
        format!("/panel/playground?model={text}"),
        format!("/panel/playground?key={text}"),
        format!("/panel/admin/accounts?q={text}"),
        format!("/panel/confirm?next={text}"),
        format!("/panel/sign-in?next={text}"),
        format!("/panel/join?token={text}"),
        format!("/panel/welcome/{text}"),
    ]
    .into()
}

/// A text as it stands in an address.
fn encode(text: &str) -> String {
    let bytes = text.bytes().map(|byte| format!("%{byte:02X}"));
    bytes.collect::<Vec<_>>().concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_models_return_stays_text() {
    let app = TestApp::start(Backend::Sqlite).await;
    let furnished = furnish(&app, "Summer sale").await;
    let upstream = MockUpstream::with_script(|_, request| answer(request)).await;
    let provider = json!({
        "name": "acme", "baseURL": format!("http://{}/v1", upstream.address), "retries": 0,
        "models": [{"id": "acme/large", "price": {"prompt": "0", "completion": "0"}}],
    });
    let ada = app.admin().await.ai();
    ada.post("/v1/providers", &provider).await.assert(201);
    for javascript in [Javascript::On, Javascript::Off] {
        let browser = Browser::start(&app, javascript).await;
        sign_in(&browser, furnished.email).await;
        browser.open("/panel/playground?model=acme/large").await;
        for turn in 1..=2 {
            ask(&browser, "hello").await;
            browser.see("![x](x)").await;
            let shown = format!(".message.assistant:nth-of-type({}) .message-text", turn * 2);
            assert_eq!(browser.text_of(&shown).await, ANSWER);
            assert!(!browser.has(MARKUP).await, "{javascript:?}");
        }
        browser.take_activity().await.assert_clean("an answer");

        ask(&browser, "please fail").await;
        browser.see("onerror").await;
        browser.see(REFUSAL).await;
        assert!(!browser.has(MARKUP).await, "{javascript:?}");
        // Chromium itself notes the status of a call that was refused.
        let mut activity = browser.take_activity().await;
        activity
            .errors
            .retain(|error| !error.contains("responded with a status of"));
        activity.assert_clean("a call that was refused");
        browser.finish().await;
    }
    assert_eq!(upstream.count(), 6);
    app.finish().await;
}

async fn ask(browser: &Browser, prompt: &str) {
    browser.fill("prompt", prompt).await;
    browser.click("Send").await;
}

fn answer(request: &ReceivedRequest) -> Vec<Action> {
    let body: Value = serde_json::from_str(&request.body).expect("a request");
    let last = body["messages"].as_array().and_then(|all| all.last());
    if last.is_some_and(|message| message["content"] == "please fail") {
        let refusal = json!({"error": {"message": REFUSAL, "type": "invalid_request_error"}});
        return json_answer(400, &refusal.to_string());
    }
    if body["stream"] != true {
        let answer = json!({
            "id": "c", "object": "chat.completion", "model": "acme/large",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": ANSWER}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 10, "total_tokens": 13},
        });
        return json_answer(200, &answer.to_string());
    }
    // In the middle of a tag: each half is nothing by itself.
    let (begin, end) = ANSWER.split_at(14);
    vec![
        stream_head(),
        event(&escaped(begin)),
        event(&escaped(end)),
        usage_event(3, 10),
        done(),
    ]
}

/// As it stands between the quotes of a JSON text.
fn escaped(text: &str) -> String {
    let quoted = json!(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}
