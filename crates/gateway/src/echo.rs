//! The built-in test model: echoes the prompt, so that a first round trip needs no provider.

use crate::error::GatewayError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use estrade_model::Timestamp;
use estrade_model::call::{CallId, Operation, Tokens};
use estrade_model::provider::ECHO_MODEL;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fmt::Write;

/// What lists of models say of it.
pub(crate) const DESCRIPTION: &str =
    "Built-in test model: repeats the last message. Not an AI, and free.";

const MAX_ECHO: usize = 4000;
const DIMENSIONS: u64 = 64;
const MAX_DIMENSIONS: u64 = 4096;
const MAX_INPUTS: usize = 2048;
/// Numbers in one response, over all its vectors.
const MAX_NUMBERS: u64 = DIMENSIONS * MAX_INPUTS as u64;
/// One transparent pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

pub(crate) struct EchoResponse {
    pub(crate) content_type: &'static str,
    pub(crate) pieces: VecDeque<Bytes>,
    pub(crate) tokens: Tokens,
}

/// The response to a request.
pub(crate) fn respond(
    operation: Operation,
    body: &[u8],
    id: CallId,
    now: Timestamp,
) -> Result<EchoResponse, GatewayError> {
    let body: Value = serde_json::from_slice(body)
        .map_err(|_| GatewayError::echo("the body is nested too deep", "messages"))?;
    match operation {
        Operation::Chat => chat(&body, id, now),
        Operation::Embeddings => embeddings(&body),
        Operation::Images => Ok(images(&body, now)),
    }
}

fn whole(body: &Value, tokens: Tokens) -> EchoResponse {
    EchoResponse {
        content_type: "application/json",
        pieces: VecDeque::from([Bytes::from(body.to_string())]),
        tokens,
    }
}

fn estimate(text: &str) -> u64 {
    (text.len() as u64).div_ceil(4)
}

fn usage(tokens: Tokens) -> Value {
    json!({
        "prompt_tokens": tokens.prompt,
        "completion_tokens": tokens.completion,
        "total_tokens": tokens.total(),
    })
}

fn chat(body: &Value, id: CallId, now: Timestamp) -> Result<EchoResponse, GatewayError> {
    let messages = body["messages"]
        .as_array()
        .filter(|messages| !messages.is_empty())
        .ok_or_else(|| {
            GatewayError::echo(
                "messages must be a list with at least one message",
                "messages",
            )
        })?;
    let last = messages
        .iter()
        .rev()
        .find(|message| message["role"] == "user")
        .or(messages.last());
    let prompt = last
        .map(|message| text(&message["content"]))
        .unwrap_or_default();
    let prompt: String = prompt.chars().take(MAX_ECHO).collect();
    let reply = format!("This is {ECHO_MODEL}, a test model. You said: {prompt}");
    let tokens = Tokens {
        prompt: messages
            .iter()
            .map(|message| estimate(&text(&message["content"])))
            .sum(),
        completion: estimate(&reply),
    };
    let (id, created) = (format!("chatcmpl-{id}"), now.seconds());
    if body["stream"] == true {
        let report = body["stream_options"]["include_usage"] == true;
        return Ok(stream(&id, created, &reply, tokens, report));
    }
    let response = json!({
        "id": id, "object": "chat.completion", "created": created, "model": ECHO_MODEL,
        "choices": [{
            "index": 0, "finish_reason": "stop", "logprobs": null,
            "message": {"role": "assistant", "content": reply, "refusal": null},
        }],
        "usage": usage(tokens),
    });
    Ok(whole(&response, tokens))
}

/// The text of a message, in either of its shapes.
fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect::<Vec<_>>()
            .join(" "),
        _ => String::new(),
    }
}

/// A word per event.
fn stream(id: &str, created: i64, reply: &str, tokens: Tokens, report: bool) -> EchoResponse {
    let event = |choices: Value, usage: Option<Value>| {
        let mut chunk = json!({
            "id": id, "object": "chat.completion.chunk", "created": created, "model": ECHO_MODEL,
            "choices": choices,
        });
        if report {
            chunk["usage"] = usage.unwrap_or(Value::Null);
        }
        Bytes::from(format!("data: {chunk}\n\n"))
    };
    let delta = |delta: Value, finish: Option<&str>| {
        let choice =
            json!([{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": null}]);
        event(choice, None)
    };
    let mut pieces = VecDeque::new();
    pieces.push_back(delta(json!({"role": "assistant", "content": ""}), None));
    for word in reply.split_inclusive(' ') {
        pieces.push_back(delta(json!({"content": word}), None));
    }
    pieces.push_back(delta(json!({}), Some("stop")));
    if report {
        pieces.push_back(event(json!([]), Some(usage(tokens))));
    }
    pieces.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
    EchoResponse {
        content_type: "text/event-stream",
        pieces,
        tokens,
    }
}

fn embeddings(body: &Value) -> Result<EchoResponse, GatewayError> {
    let wrong = || {
        GatewayError::echo(
            "input must be a text, a list of texts or lists of token numbers",
            "input",
        )
    };
    let inputs: Vec<String> = match &body["input"] {
        Value::String(text) => vec![text.clone()],
        Value::Array(many) if many.is_empty() || many.len() > MAX_INPUTS => return Err(wrong()),
        // One text as token numbers.
        Value::Array(many) if many.iter().all(Value::is_number) => vec![body["input"].to_string()],
        Value::Array(many) => many
            .iter()
            .map(|one| match one {
                Value::String(text) => Ok(text.clone()),
                Value::Array(tokens) if tokens.iter().all(Value::is_number) => Ok(one.to_string()),
                _ => Err(wrong()),
            })
            .collect::<Result<_, _>>()?,
        _ => return Err(wrong()),
    };
    let dimensions = match &body["dimensions"] {
        Value::Null => DIMENSIONS,
        given => given
            .as_u64()
            .filter(|count| (1..=MAX_DIMENSIONS).contains(count))
            .ok_or_else(|| {
                GatewayError::echo("dimensions must be a number from 1 to 4096", "dimensions")
            })?,
    };
    if dimensions * inputs.len() as u64 > MAX_NUMBERS {
        let message = "so many inputs with so many dimensions are too much for a test model";
        return Err(GatewayError::echo(message, "dimensions"));
    }
    let as_base64 = body["encoding_format"] == "base64";
    let data: Vec<Value> = inputs
        .iter()
        .enumerate()
        .map(|(index, input)| {
            let vector = vector(input, usize::try_from(dimensions).unwrap_or(1));
            let embedding = if as_base64 {
                let bytes: Vec<u8> = vector.iter().flat_map(|part| part.to_le_bytes()).collect();
                Value::from(STANDARD.encode(bytes))
            } else {
                Value::from(vector)
            };
            json!({"object": "embedding", "index": index, "embedding": embedding})
        })
        .collect();
    let tokens = Tokens {
        prompt: inputs.iter().map(|input| estimate(input)).sum(),
        completion: 0,
    };
    let usage = json!({"prompt_tokens": tokens.prompt, "total_tokens": tokens.prompt});
    let response = json!({"object": "list", "data": data, "model": ECHO_MODEL, "usage": usage});
    Ok(whole(&response, tokens))
}

/// A vector of length one that depends on the text alone.
fn vector(text: &str, dimensions: usize) -> Vec<f32> {
    let mut bytes = vec![0; dimensions * 2];
    blake3::Hasher::new()
        .update(text.as_bytes())
        .finalize_xof()
        .fill(&mut bytes);
    let parts: Vec<f32> = bytes
        .chunks_exact(2)
        .map(|pair| f32::from(i16::from_le_bytes([pair[0], pair[1]])) + 0.5)
        .collect();
    let length = parts.iter().map(|part| part * part).sum::<f32>().sqrt();
    parts.iter().map(|part| part / length).collect()
}

fn images(body: &Value, now: Timestamp) -> EchoResponse {
    let prompt = body["prompt"].as_str().unwrap_or_default();
    let mut revised = String::new();
    let short: String = prompt.chars().take(200).collect();
    let _ = write!(
        revised,
        "This is {ECHO_MODEL}, a test model: one pixel for '{short}'"
    );
    let count = body["n"].as_u64().unwrap_or(1).clamp(1, 10);
    let data: Vec<Value> = (0..count)
        .map(|_| json!({"b64_json": PNG, "revised_prompt": revised}))
        .collect();
    let tokens = Tokens {
        prompt: estimate(prompt),
        completion: 0,
    };
    let usage =
        json!({"input_tokens": tokens.prompt, "output_tokens": 0, "total_tokens": tokens.prompt});
    whole(
        &json!({"created": now.seconds(), "data": data, "usage": usage}),
        tokens,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use estrade_model::Id;

    fn say(operation: Operation, body: &Value) -> Result<(String, Tokens), GatewayError> {
        let body = body.to_string();
        let now = Timestamp::from_millis(1_700_000_000_000);
        let echoed = respond(operation, body.as_bytes(), Id::generate(1, 1), now)?;
        let text: Vec<u8> = echoed.pieces.into_iter().flatten().collect();
        Ok((String::from_utf8(text).unwrap(), echoed.tokens))
    }

    #[test]
    fn chat_repeats_the_last_user_message() {
        let body = json!({"messages": [
            {"role": "user", "content": "no"},
            {"role": "user", "content": [{"type": "text", "text": "hello"}, {"type": "image_url"}]},
            {"role": "assistant", "content": "hm"},
        ]});
        let (text, tokens) = say(Operation::Chat, &body).unwrap();
        let response: Value = serde_json::from_str(&text).unwrap();
        let content = response["choices"][0]["message"]["content"]
            .as_str()
            .unwrap();
        assert!(
            content.contains("test model") && content.ends_with("hello"),
            "{content}"
        );
        assert_eq!(response["usage"]["total_tokens"], tokens.total());
        assert!(say(Operation::Chat, &json!({})).is_err());
    }

    #[test]
    fn streams_have_usage_when_it_is_asked_for() {
        for report in [true, false] {
            let body = json!({"messages": [{"role": "user", "content": "a b"}], "stream": true,
                "stream_options": {"include_usage": report}});
            let (text, _) = say(Operation::Chat, &body).unwrap();
            assert!(text.ends_with("data: [DONE]\n\n"));
            assert_eq!(text.contains("\"usage\""), report, "{text}");
            let content: String = text
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok())
                .filter_map(|chunk| {
                    Some(chunk["choices"][0]["delta"]["content"].as_str()?.to_owned())
                })
                .collect();
            assert!(content.ends_with("You said: a b"), "{content}");
        }
    }

    #[test]
    fn embeddings_are_unit_vectors_in_both_formats() {
        let body = json!({"input": ["a", "b", [1, 2]]});
        let (text, _) = say(Operation::Embeddings, &body).unwrap();
        let response: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(response["data"].as_array().unwrap().len(), 3);
        let floats: Vec<f64> =
            serde_json::from_value(response["data"][0]["embedding"].clone()).unwrap();
        assert_eq!(floats.len(), 64);
        assert!((floats.iter().map(|x| x * x).sum::<f64>() - 1.0).abs() < 1e-3);
        let body = json!({"input": "a", "encoding_format": "base64", "dimensions": 8});
        let (text, _) = say(Operation::Embeddings, &body).unwrap();
        let response: Value = serde_json::from_str(&text).unwrap();
        let bytes = STANDARD
            .decode(response["data"][0]["embedding"].as_str().unwrap())
            .unwrap();
        assert_eq!(bytes.len(), 32);
        for bad in [
            json!({}),
            json!({"input": []}),
            json!({"input": [{}]}),
            json!({"input": "a", "dimensions": 0}),
            json!({"input": vec!["a"; 33], "dimensions": 4096}),
        ] {
            assert!(say(Operation::Embeddings, &bad).is_err(), "{bad}");
        }
        let most = json!({"input": vec!["a"; 32], "dimensions": 4096});
        assert!(say(Operation::Embeddings, &most).is_ok());
    }

    #[test]
    fn an_image_is_a_png() {
        let (text, _) = say(Operation::Images, &json!({"prompt": "x", "n": 2})).unwrap();
        let response: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(response["data"].as_array().unwrap().len(), 2);
        let png = STANDARD
            .decode(response["data"][0]["b64_json"].as_str().unwrap())
            .unwrap();
        assert!(png.starts_with(b"\x89PNG\r\n\x1a\n") && png.ends_with(b"IEND\xaeB`\x82"));
    }
}
