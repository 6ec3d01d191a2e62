use super::*;
use serde_json::{Value, json};

fn rewritten(text: &str, model: Option<&str>, usage: bool) -> String {
    let body = Bytes::copy_from_slice(text.as_bytes());
    let new =
        parse_request_fields(&body, false)
            .unwrap()
            .rewrite(&body, model.map(str::as_bytes), usage);
    String::from_utf8(new.to_vec()).unwrap()
}

#[test]
fn what_is_needed_is_found_and_the_rest_is_left_alone() {
    let body = br#" {"messages":[{"model":"inner","n":9}],"model":"a\/b","stream":true,"n":2,
        "max_tokens":7,"max_completion_tokens":null,"temperature":0.0,"x":{"stream":false}} "#;
    let found = parse_request_fields(body, false).unwrap();
    assert_eq!(found.model, "a/b");
    assert!(found.stream && found.deterministic && !found.include_usage);
    assert_eq!((found.n, found.max_tokens), (2, Some(7)));
}

#[test]
fn fields_in_another_case_are_refused() {
    for (field, name) in [
        ("model", "Model"),
        ("model", "MODEL"),
        ("model", r"\u004dodel"),
        ("model", r"\u004d\u006f\u0064\u0065\u006c"),
        ("max_tokens", "Max_Tokens"),
        ("max_tokens", "max_to\u{212a}ens"),
        ("max_tokens", r"max_to\u212aens"),
        ("stream", "\u{17f}tream"),
        ("stream_options", "\u{17f}tream_option\u{17f}"),
        ("n", "N"),
        ("n_predict", "N_predict"),
        ("seed", "Seed"),
    ] {
        for text in [
            format!(r#"{{"model":"a","{name}":1}}"#),
            format!(r#"{{"{name}":1,"model":"a"}}"#),
        ] {
            let found = parse_request_fields(text.as_bytes(), false);
            assert_eq!(found, Err(RequestError::Field(field, OTHER_CASE)), "{text}");
        }
    }
    let nested = br#"{"model":"a","stream_options":{"Include_usage":false}}"#;
    assert_eq!(
        parse_request_fields(nested, false),
        Err(RequestError::Field("include_usage", OTHER_CASE))
    );
    for fine in [
        r#"{"mod\u0065l":"a"}"#,
        r#"{"model":"a","models":1,"Nn":2,"\u212a":3,"x":{"Model":"b"},"":1,"\ud800":1}"#,
    ] {
        assert_eq!(
            parse_request_fields(fine.as_bytes(), false).unwrap().model,
            "a",
            "{fine}"
        );
    }
}

#[test]
fn a_limit_is_the_largest_that_anybody_may_believe() {
    let limit = |more: &str| {
        let text = format!(r#"{{"model":"a"{more}}}"#);
        parse_request_fields(text.as_bytes(), false)
            .unwrap()
            .max_tokens
    };
    assert_eq!(limit(r#","max_tokens":7,"n_predict":900"#), Some(900));
    assert_eq!(limit(r#","n_predict":7"#), Some(7));
    assert_eq!(limit(r#","n_predict":null,"max_tokens":5"#), Some(5));
    for none in [
        "",
        r#","max_tokens":0"#,
        r#","max_tokens":0,"max_completion_tokens":9"#,
        r#","max_tokens":9,"n_predict":-1"#,
        r#","max_tokens":9,"n_predict":0"#,
    ] {
        assert_eq!(limit(none), None, "{none}");
    }
}

#[test]
fn as_many_choices_are_paid_for_as_are_generated() {
    let n = |more: &str| {
        let text = format!(r#"{{"model":"a"{more}}}"#);
        parse_request_fields(text.as_bytes(), false).unwrap().n
    };
    assert_eq!((n(""), n(r#","n":0"#), n(r#","n":3.0"#)), (1, 1, 3));
    assert_eq!(n(r#","n":2,"best_of":8"#), 8);
    assert_eq!(n(r#","best_of":2,"n":3"#), 3);
    assert_eq!(n(r#","best_of":null"#), 1);
}

#[test]
fn images_and_files_are_noticed_however_they_are_written() {
    let media = |more: &str| {
        let text = format!(r#"{{"model":"a",{more}}}"#);
        parse_request_fields(text.as_bytes(), false).unwrap().media
    };
    let part = |name: &str| format!(r#""messages":[{{"content":[{{"{name}":{{}}}}]}}]"#);
    assert_eq!(media(&part("image_url")), 1);
    assert_eq!(media(&part("Image_URL")), 1);
    assert_eq!(media(&part(r"im\u0061ge_url")), 1);
    assert_eq!(media(&part("input_audio")), 1);
    assert_eq!(media(&part("text")), 0);
    let tool = r#""tools":[{"function":{"parameters":{"properties":{"file":{}}}}}]"#;
    assert_eq!(media(tool), 0);
    assert_eq!(media(&format!("{tool},{}", part("file"))), 1);
}

#[test]
fn the_model_is_replaced_and_every_other_byte_survives() {
    let text = r#"{ "temperature" : 1.50, "model" : "m" ,"unknown":[1e400, "\u00e9"] }"#;
    let expected = r#"{ "temperature" : 1.50, "model" : "up" ,"unknown":[1e400, "\u00e9"] }"#;
    assert_eq!(rewritten(text, Some(r#""up""#), false), expected);
    assert_eq!(rewritten(text, None, false), text);
}

#[test]
fn usage_is_asked_for_wherever_the_options_stand() {
    for options in [
        "",
        r#","stream_options":null"#,
        r#","stream_options":{}"#,
        r#","stream_options":{ "include_usage" : false }"#,
        r#","stream_options":{"include_obfuscation":false}"#,
        r#","stream_options":{"include_usage":true}"#,
    ] {
        let text = format!(r#"  {{"model":"m","stream":true{options},"a":1}}"#);
        let new: Value = serde_json::from_str(&rewritten(&text, Some("\"u\""), true)).unwrap();
        assert_eq!(
            new["stream_options"]["include_usage"],
            json!(true),
            "{text}"
        );
        assert_eq!(
            (&new["model"], &new["a"]),
            (&json!("u"), &json!(1)),
            "{text}"
        );
    }
}

#[test]
fn bad_bodies_are_refused_by_name() {
    let field = |text: &str| match parse_request_fields(text.as_bytes(), false) {
        Err(RequestError::Field(field, _)) => field,
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(field(r#"{"model":"a","model":"b"}"#), "model");
    assert_eq!(field(r#"{"model":"a","mod\u0065l":"b"}"#), "model");
    assert_eq!(field(r#"{"model":1}"#), "model");
    assert_eq!(field(r#"{"model":"a","stream":"yes"}"#), "stream");
    assert_eq!(field(r#"{"model":"a","max_tokens":-1}"#), "max_tokens");
    assert_eq!(field(r#"{"model":"a","max_tokens":1e400}"#), "max_tokens");
    for (name, value) in [
        ("max_tokens", "1.5"),
        ("max_tokens", r#""7""#),
        ("max_completion_tokens", "0.1"),
        ("max_completion_tokens", "true"),
        ("n", "2.5"),
        ("n", "[2]"),
        ("best_of", "2.5"),
    ] {
        let text = format!(r#"{{"model":"a","{name}":{value}}}"#);
        assert_eq!(field(&text), name, "{text}");
    }
    assert_eq!(field(r#"{"model":"a","n":1,"n":2}"#), "n");
    assert_eq!(field(r#"{"model":"a","n_predict":1e400}"#), "n_predict");
    assert_eq!(
        parse_request_fields(b"{}", false),
        Err(RequestError::NoModel)
    );
    assert_eq!(
        parse_request_fields(br#"{"model":""}"#, false),
        Err(RequestError::NoModel)
    );
    assert_eq!(
        parse_request_fields(b"{\"model\":\"\xff\"}", false),
        Err(RequestError::NotText)
    );
    for text in [
        "",
        "[]",
        "null",
        r#"{"model":"a"} x"#,
        r#"{"model":"a","#,
        r#"{"model":"a",}"#,
    ] {
        assert!(
            matches!(
                parse_request_fields(text.as_bytes(), false),
                Err(RequestError::Json(_))
            ),
            "{text}"
        );
    }
    let deep = format!(r#"{{"model":"a","x":{}}}"#, "[".repeat(10_000));
    assert!(matches!(
        parse_request_fields(deep.as_bytes(), false),
        Err(RequestError::Json(_))
    ));
}
