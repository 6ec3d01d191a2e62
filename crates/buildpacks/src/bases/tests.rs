//! What a Dockerfile may build on and copy from.

use super::*;
use crate::settings::Settings;
use serde_json::json;

fn ok(text: &str, args: &serde_json::Value) -> bool {
    let sent = json!({ "build": { "args": args } });
    let settings = Settings::from_release(None, sent.as_object().unwrap()).unwrap();
    check("Dockerfile", text, settings.build_args()).is_ok()
}

#[test]
fn images_are_pinned_where_they_are_named() {
    let text = "# syntax=x
ARG TAG=22
FROM --platform=linux/amd64  node:$TAG AS build
RUN a \\
  # FROM x
  b
from scratch
FROM \\
  nginx:1.27 \\
  as web
COPY --from=build /a /b
COPY --chown=1:1 --from=tools:1  /a tools:1
ONBUILD COPY --from=tools:1 /c /d
FROM build";
    let bases = check("Dockerfile", text, &[]).unwrap().bases;
    let base = |name, begins_stage| Base { name, begins_stage };
    assert_eq!(
        bases.images(),
        [
            base("nginx:1.27", true),
            base("node:22", true),
            base("tools:1", false)
        ]
    );
    let ids = [
        ("node:22", "sha256:aa"),
        ("nginx:1.27", "sha256:bb"),
        ("tools:1", "sha256:cc"),
    ];
    let ids = ids.map(|(name, id)| (name.to_owned(), id.to_owned()));
    // The label is the first of every stage, so that no layer is shared with builds of another one.
    assert_eq!(
        bases.pin(&ids.into(), "of=me", None).text,
        "ARG TAG=22
FROM --platform=linux/amd64 sha256:aa AS build
LABEL of=me
RUN a   b
FROM scratch
LABEL of=me
FROM sha256:bb AS web
LABEL of=me
COPY --from=build /a /b
COPY --chown=1:1 --from=sha256:cc  /a tools:1
ONBUILD COPY --from=sha256:cc /c /d
FROM build
"
    );
}

#[test]
fn options_of_buildkit_are_left_out_where_they_make_no_difference() {
    let text = "FROM a:1 AS one
RUN --mount=type=cache,target=/root/.npm \\
    --mount=type=cache,id=b,target=/b,sharing=locked  npm ci  --x
RUN --network=default [\"make\", \"--mount=type=secret\"]
COPY --link --chown=1:1 --from=tools:1 --link=true  /a tools:1
ADD --link=false . .
ONBUILD RUN --mount=type=cache,target=/x make
ONBUILD COPY --link --from=tools:1 /c /d
FROM one
COPY --from=one --link /a /b
RUN echo --mount=type=secret";
    let read = check("Dockerfile", text, &[]).unwrap();
    assert_eq!(read.notes.len(), 2, "{:?}", read.notes);
    assert!(read.notes[0].contains("type=cache") && read.notes[1].contains("--link"));
    let ids = [("a:1", "sha256:aa"), ("tools:1", "sha256:cc")];
    let ids = ids.map(|(name, id)| (name.to_owned(), id.to_owned()));
    assert_eq!(
        read.bases.pin(&ids.into(), "of=me", None).text,
        "FROM sha256:aa AS one
LABEL of=me
RUN npm ci  --x
RUN [\"make\", \"--mount=type=secret\"]
COPY --chown=1:1 --from=sha256:cc /a tools:1
ADD . .
ONBUILD RUN make
ONBUILD COPY --from=sha256:cc /c /d
FROM one
COPY --from=one /a /b
RUN echo --mount=type=secret
"
    );
    // What is left out of an image cannot be, because the engine reads it there.
    let refusal = |trigger: &str| {
        let refused = check_triggers("base:1", &[trigger.to_owned()]).unwrap_err();
        refused.to_string()
    };
    for trigger in [
        "RUN --mount=type=cache,target=/x make",
        "RUN --network=default make",
        "COPY --link . /app",
        "COPY --link=false . /app",
    ] {
        assert!(refusal(trigger).contains("need BuildKit"), "{trigger}");
    }
}

#[test]
fn options_of_buildkit_that_do_more_are_refused_in_our_words() {
    for bad in [
        "RUN --network=host curl http://127.0.0.1",
        "run --network=HOST true",
        "RUN --network=none true",
        "RUN --network true",
        "RUN --network=default --network=host true",
        "RUN --network=\"default\" true",
        "RUN --NETWORK=host true",
        "RUN --network=host [\"true\"]",
        "RUN --security=insecure true",
        "RUN --security=sandbox [\"true\"]",
        "RUN --mount=type=cache,target=/a --mount=type=secret,id=b true",
        "RUN --mount=type=cache,target=/a --security=insecure true",
        "RUN --mount=type=cache,target=/a",
        "RUN --mount=type=\"cache\",target=/a true",
        "RUN --mo\\unt=type=ssh true",
        "RUN --mount=type=cache,target=/a,type=ssh true",
        "RUN --mount=type=cache,from=ea8a,target=/a true",
        "RUN --mount=type=tmpfs,target=/a true",
        "RUN --mount=target=/a true",
        "RUN --mount=type=cache\u{85},target=/a true",
        "RUN --device=gpu true",
        "RUN -- true",
        "COPY --chmod=755 a /b",
        "COPY --link --chmod=755 a /b",
        "COPY --link=maybe a /b",
        "COPY --Link a /b",
        "COPY --parents a /b",
        "ADD --exclude=x . /b",
        "ADD --link http://127.0.0.1/x /b",
        "COPY --link --from=ea8a /a /b",
    ] {
        for text in [
            format!("FROM a:1\n{bad}"),
            format!("FROM a:1\nONBUILD {bad}"),
            format!("FROM a:1\nonbuild \\\n # why\n {bad}"),
        ] {
            assert!(!ok(&text, &json!([])), "{text}");
        }
        assert!(
            check_triggers("evil:1", &[bad.to_owned()]).is_err(),
            "{bad}"
        );
    }
}

#[test]
fn nothing_is_added_from_the_network_of_the_engine() {
    for bad in [
        "http://127.0.0.1/x",
        "https://a.example/x.tar",
        "HTTP://127.0.0.1/x",
        "ftp://a.example/x",
        "--chown=1:1 http://127.0.0.1/x",
        "--checksum=sha256:ab --chmod=644\thttp://127.0.0.1/x",
        "a.txt http://127.0.0.1/x",
        "git@github.com:a/b.git",
        "me@host:a/b",
        "git://a.example/b",
        "ssh://git@a.example/b",
        "github.com/a/b",
        "a.example/b.git",
        "a.example/b.git#main:docs",
        "$URL",
        "${URL}",
        "ht${NOTHING}tp://127.0.0.1/x",
        "h\\ttp://127.0.0.1/x",
        "\"http://127.0.0.1/x\"",
        "ht\"\"tp://127.0.0.1/x",
        "'http'://127.0.0.1/x",
        "--chown=àhttp://127.0.0.1/x",
        "--chown=\u{c5}http://127.0.0.1/x",
        "--chown=\u{85}http://127.0.0.1/x",
        "--chown=\u{a0}http://127.0.0.1/x",
    ] {
        for text in [
            format!("ADD {bad} /x"),
            format!("add {bad} /x"),
            format!("ADD \\\n# why\n  {bad} \\\n /x"),
            format!("ADD {bad} a.txt /x"),
            format!("ONBUILD ADD {bad} /x"),
            format!("onbuild add {bad} /x"),
        ] {
            let text = format!("FROM a:1\nARG URL=http://127.0.0.1/x\n{text}\n");
            assert!(!ok(&text, &json!([])), "{text}");
        }
        let trigger = format!("ADD {bad} /x");
        assert!(check_triggers("evil:1", &[trigger]).is_err(), "{bad}");
    }
    for bad in [
        r#"["http://127.0.0.1/x", "/x"]"#,
        r#"["\u0068ttp://127.0.0.1/x", "/x"]"#,
        r#"["$URL", "/x"]"#,
        r#"["http://127.0.0.1/x", "/x"] more"#,
        r#"["a", 1]"#,
        r#"--chown=1:1 [ "a", "https://a.example", "/x" ]"#,
    ] {
        let text = format!("FROM a:1\nADD {bad}");
        assert!(!ok(&text, &json!([])), "{text}");
    }
    for fine in [
        ". /app",
        "--chown=1:1 a.tar.gz b.txt $HOME/",
        r#"["a b.txt", "http", "/x y/"]"#,
        "src/@scope/a /x",
        "*.json ./",
    ] {
        let text = format!("FROM a:1\nADD {fine}\nRUN curl http://a.example/x\nCOPY $A /b");
        assert!(ok(&text, &json!([])), "{text}");
    }
}

#[test]
fn what_an_image_does_to_those_who_build_on_it_is_looked_at() {
    let check = |trigger: &str| check_triggers("evil:1", &[trigger.to_owned()]).is_ok();
    let copies = ["RUN make", "COPY --chown=1 --from=nginx:1 /a /b"].map(str::to_owned);
    assert_eq!(check_triggers("fine:1", &copies).unwrap(), ["nginx:1"]);
    for fine in [
        "COPY . /app",
        "RUN make",
        "COPY --from=nginx:1 /a /b",
        "ENV A=--from=ea8a",
    ] {
        assert!(check(fine), "{fine}");
    }
    for bad in [
        "COPY --from=ea8a /a /b",
        "copy --chown=1 --from=sha256:ab /a /b",
        "COPY --from=0 /a /b",
        "ADD --from=$X /a /b",
        "COPY \\\n--from=ea8a / /b",
        "# x\nCOPY --from=ea8a / /b",
        "ONBUILD COPY --from=ea8a / /b",
        "FROM ea8a",
        "RUN --mount=type=bind,from=ea8a,target=/x true",
    ] {
        assert!(!check(bad), "{bad}");
    }
}

#[test]
fn names_are_fine_however_they_are_written() {
    for text in [
        "FROM node:22-slim\nCOPY . .\n",
        "FROM scratch",
        "# syntax=x\nFROM --platform=linux/amd64 golang:1.25 AS build\nFROM debian\nCOPY --from=build /a /b\nCOPY --from=0 /a /b",
        "ARG TAG=22\nARG BASE=node\nFROM ${BASE}:$TAG\n",
        "ARG BASE\nFROM ${BASE:-debian:12}",
        "ARG V=\"22\"\nARG BASE=node:${V}\nFROM $BASE AS a\nFROM a AS b\nCOPY --from=a /x /y",
        "FROM registry.example:5000/team/app:1 \\\n  AS one\nFROM one\n",
        "FROM estrade-test/base:2",
        "FROM a:1\nCOPY --chown=1:1 --from=nginx:1.27 /etc /etc\nRUN echo --from=abcd",
    ] {
        assert!(ok(text, &json!([])), "{text}");
    }
}

#[test]
fn nobody_builds_on_what_is_somebody_elses() {
    let built = "estrade-0123456789ab/0123456789abcdef01234567:0123456789abcdef01234567";
    for text in [
        "FROM ea8a".to_owned(),
        "from EA8A as x".to_owned(),
        format!("FROM sha256:{}", "a".repeat(64)),
        format!("FROM {built}"),
        format!("FROM docker.io/{built}"),
        format!("FROM a:1\nCOPY --from={built} /a /b"),
        "FROM estrade-0123/layers:1-0".to_owned(),
        "FROM a:1\nCOPY --from=ea8a /a /b".to_owned(),
        "FROM a:1\nCOPY \\\n# comment\n\n --chown=1 --from=ea8a /a /b".to_owned(),
        "FROM a:1\nONBUILD COPY --from=ea8a /a /b".to_owned(),
        "FROM a:1\nRUN --mount=type=bind,from=ea8a,target=/x true".to_owned(),
        "FROM a:1\nARG X=ea8a\nCOPY --from=$X /a /b".to_owned(),
        "ARG X=ea8a\nFROM $X".to_owned(),
        "ARG X\nARG Y=a8a\nFROM e${Y}".to_owned(),
        "FROM $NEVER".to_owned(),
        "ARG X='$Y'\nFROM $X".to_owned(),
        "FROM \"ea8a\"".to_owned(),
        "# escape=`\nFROM a:1".to_owned(),
        "FROM a:1\nCOPY --from=7 /a /b".to_owned(),
        "FROM estrade-01/0123456789ab\\\ncdef01234567:1".to_owned(),
        "FR\\\nOM ea8a".to_owned(),
        "FROM a:1\nCOPY --fr\\ \nom=ea8a /a /b".to_owned(),
        // A stage is one when it is complete.
        "FROM a:1 AS ea8a\nCOPY --from=ea8a / /b".to_owned(),
        // Engines take quotes and backslashes out of options.
        "FROM a:1\nCOPY --fr\\om=ea8a / /b".to_owned(),
        "FROM a:1\nCOPY --\"from\"=ea8a / /b".to_owned(),
        "FROM a:1\nCOPY --from=ea\"\"8a / /b".to_owned(),
        "FROM a:1\nCOPY --chown=\"0 \" --from=ea8a / /b".to_owned(),
        "FROM a:1\nCOPY --chown=from=0\u{b}--from=ea8a / /b".to_owned(),
        // Lines, words and values that are cut in another place.
        "FROM a:1\nRUN true \\\u{c}\nFROM ea8a".to_owned(),
        "FROM a:1\nRUN true \\\\\nFROM ea8a".to_owned(),
        "FROM --platform=\"${N:+ node:22 as }linux/amd64\" ea8a".to_owned(),
        "FROM --platform=linux/amd64\u{b}x node:22 AS ea8a\nFROM ea8a".to_owned(),
        "ARG X=ea8a\nARG Z=\"a X=one b\"\nFROM a:1 AS one\nFROM $X".to_owned(),
        "FROM a:1\nONBUILD COPY <<E /x\nFROM a:1 AS ea8a\nE\nFROM ea8a".to_owned(),
        "FROM a:1 AS x y".to_owned(),
        "FROM a:1\nONBUILD ONBUILD COPY --from=ea8a / /b".to_owned(),
        "FROM a:1\nCOPY --from=b:1 --from=c:1 / /b".to_owned(),
    ] {
        assert!(!ok(&text, &json!([])), "{text}");
    }
    assert!(!ok("ARG X=debian\nFROM $X", &json!(["X=ea8a"])));
    assert!(ok("ARG X=debian\nFROM $X", &json!(["X=node:22"])));
}
