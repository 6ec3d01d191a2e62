use super::*;
use crate::request::json::MAX_WORD;
use crate::request::request_fields::parse_request_fields;
use estrade_model::provider::MAX_PASS_FIELDS;

fn rules(pass: &[&str], strict: bool) -> FieldPolicy {
    FieldPolicy::new(&FieldRules {
        pass: pass.iter().map(|field| (*field).to_owned()).collect(),
        strict,
    })
}

fn refused(policy: &FieldPolicy, more: &str) -> Option<String> {
    let body = format!(r#"{{"model":"a","messages":[]{more}}}"#);
    let fields = parse_request_fields(body.as_bytes(), policy.strict).unwrap();
    policy
        .refused(fields.guarded.as_deref())
        .map(|field| field.param)
}

#[test]
fn every_field_of_the_list_is_refused_by_name_unless_it_is_let_through() {
    let usual = rules(&[], false);
    for field in RESTRICTED {
        assert!(field.len() <= MAX_WORD, "{field}");
        let fields = format!(r#","{field}":["x"]"#);
        assert_eq!(refused(&usual, &fields).as_deref(), Some(field));
        let other = fields.to_uppercase();
        assert_eq!(refused(&usual, &other).as_deref(), Some(field), "{other}");
        let escaped = fields.replacen('e', r"\u0065", 1);
        assert_eq!(refused(&usual, &escaped).as_deref(), Some(field));
        assert_eq!(refused(&rules(&[field], false), &fields), None);
        let nothing = format!(r#","{field}":null"#);
        assert_eq!(refused(&usual, &nothing), None, "{field}");
        let nested = format!(r#","metadata":{{"{field}":1}}"#);
        assert_eq!(refused(&usual, &nested), None, "only at the top");
    }
    let (one, two) = (r#","route":"a""#, r#","models":["b"]"#);
    let some = rules(&["route"], false);
    assert_eq!(refused(&some, one), None);
    assert_eq!(refused(&some, &format!("{one}{two}")).unwrap(), "models");
    assert_eq!(refused(&usual, r#","my_own":1,"top_k":4"#), None);
}

#[test]
fn tools_that_the_provider_runs_are_refused_unless_they_are_let_through() {
    let usual = rules(&[], false);
    let function = r#"{"type":"function","function":{"name":"a","parameters":{"type":"object"}}}"#;
    for (tool, kind) in [
        (r#"{"type":"web_search"}"#, "web_search"),
        (
            r#"{"type":"code_interpreter","container":{"type":"auto"}}"#,
            "code_interpreter",
        ),
        (
            r#"{"type":"web_search_20250305","name":"web_search"}"#,
            "web_search_20250305",
        ),
        (r#"{"type":"function","type":"file_search"}"#, "file_search"),
        (r#"{"Type":"computer_use"}"#, "computer_use"),
        (r#"{"t\u0079pe":"web\u005fsearch"}"#, "web_search"),
        (r#"{"type":"Function"}"#, "Function"),
        (r#"{"type":["web_search"]}"#, "type"),
        (r#""web_search""#, "web_search"),
        (r#"[{"type":"web_search"}]"#, "not_an_object"),
    ] {
        for field in ["tools", "Tools"] {
            let fields = format!(r#","{field}":[{function},{tool}]"#);
            assert_eq!(
                refused(&usual, &fields).unwrap(),
                "tools[1].type",
                "{fields}"
            );
            let passed = format!("tools.{kind}");
            assert_eq!(
                refused(&rules(&[&passed], false), &fields),
                None,
                "{fields}"
            );
            let other = rules(&["tools.other", "tools"], false);
            assert_eq!(
                refused(&other, &fields).unwrap(),
                "tools[1].type",
                "{fields}"
            );
        }
    }
    for (tool, kind) in [
        (r#"{"google_search":{}}"#, "google_search"),
        (r#"{"name":"a","googleSearch":{}}"#, "googleSearch"),
        (r#"{"type":"function","googleSearch":{}}"#, "googleSearch"),
        // Some servers go by its mere presence.
        (r#"{"type":"function","googleSearch":null}"#, "googleSearch"),
        (
            r#"{"type":"custom","custom":{"name":"b"},"code_execution":{}}"#,
            "code_execution",
        ),
        (r#"{"type":"function","Function":{"name":"a"}}"#, "Function"),
        (r#"{"type":"function","my_own":false}"#, "my_own"),
    ] {
        let fields = format!(r#","tools":[{function},{tool}]"#);
        let named = format!("tools[1].{kind}");
        assert_eq!(refused(&usual, &fields), Some(named), "{fields}");
        let passed = format!("tools.{kind}");
        assert_eq!(
            refused(&rules(&[&passed], false), &fields),
            None,
            "{fields}"
        );
    }
    for fine in [
        "[]",
        "null",
        &format!("[{function}]"),
        r#"[{"type":"custom","custom":{"name":"b"}}]"#,
        r#"[{"function":{"name":"a"}},{"name":"a","input_schema":{"type":"object"}}]"#,
        r#"[{"type":null,"function":{}},{},null]"#,
        r#"[{"type":"function","function":{"name":"a"},"my_own":null,"title":"A"}]"#,
        r#"[{"type":"custom","name":"a","format":{"type":"text"},"annotations":{}}]"#,
        r#"[{"name":"a","parameters":{},"required":["b"],"returns":{}}]"#,
    ] {
        let fields = format!(r#","tools":{fine}"#);
        assert_eq!(refused(&usual, &fields), None, "{fields}");
    }
    let elsewhere = r#","metadata":{"tools":[{"type":"web_search"}]}"#;
    assert_eq!(refused(&usual, elsewhere), None);
}

#[test]
fn tools_are_looked_at_wherever_and_however_they_are_listed() {
    let usual = rules(&[], false);
    for (fields, param) in [
        (
            r#","functions":[{"name":"a"},{"googleSearch":{}}]"#,
            "functions[1].googleSearch",
        ),
        (
            r#","functions":[{"name":"a"},{"type":"web_search"}]"#,
            "functions[1].type",
        ),
        (
            r#","Functions":[{"name":"a"},{"name":"b","web_search":{}}]"#,
            "functions[1].web_search",
        ),
        (r#","tools":{"googleSearch":{}}"#, "tools[0].googleSearch"),
        (r#","tools":"web_search""#, "tools[0].type"),
    ] {
        assert_eq!(refused(&usual, fields).unwrap(), param, "{fields}");
    }
    let legacy = r#","functions":[{"name":"a","description":"b","parameters":{"type":"object"}}]"#;
    assert_eq!(refused(&usual, legacy), None);
}

#[test]
fn functions_that_servers_run_are_known_by_their_names() {
    let usual = rules(&[], false);
    for (tool, member) in [
        (
            r#"{"type":"function","function":{"name":"NAME"}}"#,
            "function.name",
        ),
        (
            r#"{"function":{"strict":true,"Name":"NAME"}}"#,
            "function.name",
        ),
        (
            r#"{"type":"function","function":{"name":"a","name":"NAME"}}"#,
            "function.name",
        ),
        (
            r#"{"type":"custom","custom":{"n\u0061me":"NAME"}}"#,
            "custom.name",
        ),
        (r#"{"type":"function","name":"NAME"}"#, "name"),
    ] {
        for name in SERVER_FUNCTIONS {
            let fields = format!(r#","tools":[{}]"#, tool.replace("NAME", name));
            let named = format!("tools[0].{member}");
            assert_eq!(refused(&usual, &fields), Some(named), "{fields}");
            let passed = format!("tools.{name}");
            assert_eq!(
                refused(&rules(&[&passed], false), &fields),
                None,
                "{fields}"
            );
        }
        for name in [
            "google_search",
            "web_search",
            "googlesearch",
            "googleSearch2",
        ] {
            let fields = format!(r#","tools":[{}]"#, tool.replace("NAME", name));
            assert_eq!(refused(&usual, &fields), None, "{fields}");
        }
    }
    let legacy = r#","functions":[{"name":"a"},{"name":"googleSe\u0061rch"}]"#;
    assert_eq!(refused(&usual, legacy).unwrap(), "functions[1].name");
    let parameter =
        r#"{"name":"a","parameters":{"name":"googleSearch","function":{"name":"googleSearch"}}}"#;
    let fields = format!(r#","tools":[{{"type":"function","function":{parameter}}}]"#);
    assert_eq!(refused(&usual, &fields), None, "only its own name");
    let some = rules(&["tools.web_search", "tools.googleSearch"], false);
    let two = r#","tools":[{"function":{"name":"googleSearch","name":"urlContext"}}]"#;
    assert_eq!(refused(&some, two).unwrap(), "tools[0].function.name");
    let option = r#","tools":[{"type":"web_search","Function":{"name":"urlContext"}}]"#;
    assert_eq!(refused(&some, option).unwrap(), "tools[0].function.name");
}

#[test]
fn to_let_one_tool_through_is_not_to_let_another_through() {
    let some = rules(&["tools.web_search", "tools.google_search"], false);
    for (tool, is_fine) in [
        (r#"{"type":"web_search","max_uses":5}"#, true),
        (r#"{"google_search":{}}"#, true),
        (r#"{"type":"function","google_search":{}}"#, true),
        (r#"{"google_search":{},"code_execution":{}}"#, false),
        (
            r#"{"type":"function","google_search":{},"code_execution":{}}"#,
            false,
        ),
        (
            r#"{"type":"web_search","type":"function","code_execution":{}}"#,
            false,
        ),
        (
            r#"{"type":"web_search","web_search":{"enable":true}}"#,
            true,
        ),
        (r#"{"type":"web_search","code_execution":{}}"#, false),
        (r#"{"type":"web_search","Code_Execution":{}}"#, false),
        (r#"{"type":"web_search","code_execution":null}"#, false),
        (r#"{"type":"web_search","type":null,"other":{}}"#, false),
        (
            r#"{"type":"web_search","Type":"web_search","other":{}}"#,
            false,
        ),
    ] {
        let fields = format!(r#","tools":[{tool}]"#);
        assert_eq!(refused(&some, &fields).is_none(), is_fine, "{fields}");
    }
    // Also behind more options than are recorded.
    let options: Vec<_> = (0..2 * MAX_EXTRA)
        .map(|at| format!(r#""o{at}":1"#))
        .collect();
    let options = options.join(",");
    for (member, is_fine) in [("code_execution", false), ("other", true)] {
        let fields = format!(r#","tools":[{{"type":"web_search",{options},"{member}":{{}}}}]"#);
        assert_eq!(refused(&some, &fields).is_none(), is_fine, "{member}");
    }
}

/// A request with more names than anybody can let through is refused without keeping them all.
#[test]
fn a_flood_of_names_is_refused_and_not_kept() {
    let passed: Vec<String> = (0..MAX_PASS_FIELDS).map(|at| format!("f{at}")).collect();
    let passed: Vec<&str> = passed.iter().map(|field| &**field).collect();
    let strict = rules(&passed, true);
    let names: Vec<_> = (0..20_000).map(|at| format!(r#","f{at}":1"#)).collect();
    let body = format!(r#"{{"model":"a"{}}}"#, names.concat());
    let fields = parse_request_fields(body.as_bytes(), true).unwrap();
    let kept = fields.guarded.as_deref().unwrap().extra.len();
    assert!((MAX_PASS_FIELDS + 1..1000).contains(&kept), "{kept}");
    assert_eq!(
        strict.refused(fields.guarded.as_deref()).unwrap().param,
        "f100"
    );
    let tools = (0..20_000).map(|at| format!(r#"{{"type":"t{at}"}}"#));
    let body = format!(
        r#"{{"model":"a","tools":[{}]}}"#,
        tools.collect::<Vec<_>>().join(",")
    );
    let fields = parse_request_fields(body.as_bytes(), true).unwrap();
    let kept = fields.guarded.as_deref().unwrap().tools.len();
    assert!((MAX_PASS_FIELDS + 1..1000).contains(&kept), "{kept}");
}

#[test]
fn a_strict_provider_gets_what_is_standard_and_what_is_let_through() {
    let strict = rules(&["top_k"], true);
    for field in STANDARD {
        let value = if TOOL_FIELDS.contains(&field) {
            "[]"
        } else {
            r#""x""#
        };
        let fields = format!(r#","{field}":{value}"#).replace(r#","messages":"x""#, "");
        assert_eq!(refused(&strict, &fields), None, "{field}");
    }
    assert_eq!(refused(&strict, r#","top_k":4,"seed":1,"n":2"#), None);
    assert_eq!(refused(&strict, r#","my_own":1"#).unwrap(), "my_own");
    assert_eq!(refused(&strict, r#","models":[]"#).unwrap(), "models");
}

#[test]
fn the_documentation_has_the_same_lists() {
    let text = include_str!("../../../../../docs/INFERENCE.md");
    let section = text.split("## Fields").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let (refused, strict) = section.split_once("strict_fields = true").unwrap();
    for field in RESTRICTED {
        assert!(refused.contains(&format!("`{field}`")), "{field}");
    }
    let words = SERVER_TOOL_MEMBERS.iter().chain(&TOOL_DEFINITION);
    for word in words.chain(&SERVER_FUNCTIONS) {
        assert!(word.len() <= MAX_WORD, "{word}");
        assert!(refused.contains(&format!("`{word}`")), "{word}");
    }
    for field in STANDARD {
        assert!(strict.contains(&format!("`{field}`")), "{field}");
    }
}
