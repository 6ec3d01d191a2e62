//! Variables: hidden, compared before they are saved, pasted from a file.

use super::support::{ENVIRONMENT, REVIEW, ada_with_shop, envs, owned, save, set_envs};
use estrade_testkit::{TestApp, on_both_backends};

on_both_backends! {
    values_are_hidden_until_one_is_asked_for;
    a_change_of_variables_is_reviewed_and_saved;
    a_pasted_file_is_compared_and_its_mistakes_are_named;
    a_change_that_somebody_else_was_faster_with_is_shown_again;
}

async fn values_are_hidden_until_one_is_asked_for(app: &TestApp) {
    let (ada, mut panel) = ada_with_shop(app).await;
    let page = panel.get(ENVIRONMENT).await.assert(200).text();
    assert!(page.contains("No variables yet"), "{page}");
    set_envs(&ada, &[("ALPHA", "xyzzy-1"), ("BETA", "xyzzy-2")]).await;
    let page = panel.get(ENVIRONMENT).await.assert(200).text();
    assert!(page.contains("ALPHA") && page.contains("BETA"));
    assert!(!page.contains("xyzzy"), "no value is on the page");
    let shown = format!("{ENVIRONMENT}?show=BETA");
    let page = panel.get(&shown).await.assert(200).text();
    assert!(page.contains("xyzzy-2") && !page.contains("xyzzy-1"));
}

async fn a_change_of_variables_is_reviewed_and_saved(app: &TestApp) {
    let (ada, mut panel) = ada_with_shop(app).await;
    set_envs(&ada, &[("A", "1"), ("B", "2")]).await;
    let form = [("change", "set"), ("key", "C"), ("value", "x\r\ny")];
    let review = panel.post(REVIEW, &form).await.assert(200).text();
    assert!(review.contains("Added") && review.contains("2 unchanged"));
    assert_eq!(envs(&ada).await, owned(&[("A", "1"), ("B", "2")]));
    let saved = save(&mut panel, &review).await.assert(303);
    assert_eq!(saved.header("location"), ENVIRONMENT);
    let page = panel.get(ENVIRONMENT).await.assert(200).text();
    assert!(page.contains("Environment saved: 1 added"), "the toast");
    let three = [("A", "1"), ("B", "2"), ("C", "x\ny")];
    assert_eq!(envs(&ada).await, owned(&three));

    let form = [("change", "set"), ("key", "A"), ("value", "one")];
    let review = panel.post(REVIEW, &form).await.assert(200).text();
    assert!(review.contains("Changed"));
    save(&mut panel, &review).await.assert(303);
    let form = [("change", "remove"), ("key", "B")];
    let review = panel.post(REVIEW, &form).await.assert(200).text();
    assert!(review.contains("Removed"));
    save(&mut panel, &review).await.assert(303);
    assert_eq!(envs(&ada).await, owned(&[("A", "one"), ("C", "x\ny")]));

    let form = [("change", "set"), ("key", "A"), ("value", "one")];
    let same = panel.post(REVIEW, &form).await.assert(200).text();
    assert!(same.contains("nothing to save"), "{same}");
    let nul = [("change", "set"), ("key", "A"), ("value", "a\0b")];
    let review = panel.post(REVIEW, &nul).await.assert(200).text();
    let refused = save(&mut panel, &review).await.assert(400).text();
    assert!(refused.contains("NUL"), "{refused}");
    let forged = [("changes", "nonsense"), ("state", "none")];
    panel.post(ENVIRONMENT, &forged).await.assert(400);
    assert_eq!(envs(&ada).await, owned(&[("A", "one"), ("C", "x\ny")]));
}

async fn a_pasted_file_is_compared_and_its_mistakes_are_named(app: &TestApp) {
    let (ada, mut panel) = ada_with_shop(app).await;
    set_envs(&ada, &[("A", "1"), ("B", "2")]).await;
    let text = "# of the shop\r\nexport A=1\r\nC='x\r\ny' # two lines\r\nD=\"a\\nb\"\r\n";
    let form = [("change", "paste"), ("text", text), ("replace", "yes")];
    let review = panel.post(REVIEW, &form).await.assert(200).text();
    assert!(
        review.contains("2 added, 1 removed") && review.contains("1 unchanged"),
        "{review}"
    );
    save(&mut panel, &review).await.assert(303);
    let all = [("A", "1"), ("C", "x\ny"), ("D", "a\nb")];
    assert_eq!(envs(&ada).await, owned(&all));
    let form = [("change", "paste"), ("text", "E=5\n1F=6\nwrong <b>")];
    let page = panel.post(REVIEW, &form).await.assert(400).text();
    assert!(page.contains("Line 2:") && page.contains("Line 3:"));
    assert!(page.contains("E=5"), "what was typed is still there");
    assert!(!page.contains("<b>wrong") && !page.contains("wrong <b>"));
    let large = format!("A='{}'", "\n".repeat(140 << 10));
    let form = [("change", "paste"), ("text", large.as_str())];
    panel.post(REVIEW, &form).await.assert(413);
    assert_eq!(envs(&ada).await, owned(&all));
}

async fn a_change_that_somebody_else_was_faster_with_is_shown_again(app: &TestApp) {
    let (ada, mut panel) = ada_with_shop(app).await;
    set_envs(&ada, &[("A", "1")]).await;
    let form = [("change", "set"), ("key", "B"), ("value", "2")];
    let review = panel.post(REVIEW, &form).await.assert(200).text();
    set_envs(&ada, &[("A", "1"), ("B", "other"), ("C", "3")]).await;
    let again = save(&mut panel, &review).await.assert(409).text();
    assert!(again.contains("nothing of yours was saved"), "{again}");
    assert!(again.contains("Changed") && again.contains("2 unchanged"));
    let theirs = [("A", "1"), ("B", "other"), ("C", "3")];
    assert_eq!(envs(&ada).await, owned(&theirs));
    save(&mut panel, &again).await.assert(303);
    let both = [("A", "1"), ("B", "2"), ("C", "3")];
    assert_eq!(envs(&ada).await, owned(&both));
}
