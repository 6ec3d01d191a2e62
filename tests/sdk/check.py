"""What the official Python SDK does with the gateway. Started by `run`, which says where it is."""

import asyncio
import json
import sys
import time
import traceback
import urllib.request

import openai
from openai import AsyncOpenAI, OpenAI

WORLD = json.load(sys.stdin)
HELLO = [{"role": "user", "content": "hello"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]
TEXT = "".join(WORLD["words"])


def client(key="good", **more) -> OpenAI:
    more.setdefault("max_retries", 0)
    secret = WORLD["keys"].get(key, key)
    return OpenAI(base_url=WORLD["url"], api_key=secret, timeout=20, **more)


def record(call: str) -> dict:
    """The record that an answer's header leads to."""
    url = f"{WORLD['management']}/v1/workspaces/{WORLD['workspace']}/logs/{call}"
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {WORLD['token']}"})
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)


def raises(kind: type, status: int | None, code: str | None, call):
    try:
        call()
    except openai.APIError as error:
        found = (type(error), getattr(error, "status_code", None), error.code)
        assert found == (kind, status, code), f"{found} {error}"
        assert error.message
        return error
    raise AssertionError(f"no {kind.__name__}")


def chat(model="test/chat", key="good", **more):
    retries = more.pop("max_retries", 0)
    return client(key, max_retries=retries).chat.completions.create(
        model=model, messages=more.pop("messages", HELLO), **more
    )


def check_chat():
    answer = chat(extra_body={"x_unknown": {"deep": [1, 2.5, None, "é"]}})
    assert answer.choices[0].message.content == TEXT
    assert (answer.id, answer.usage.prompt_tokens, answer.usage.completion_tokens) == ("chatcmpl-1", 11, 5)
    assert answer.model_extra["x_unknown"] == {"kept": [1, None]}
    assert answer.model == "test/chat", "not what the upstream calls it"


def check_headers_and_record():
    raw = client().chat.completions.with_raw_response.create(model="test/chat", messages=HELLO)
    assert raw.headers["x-estrade-provider"] == "scripted"
    assert raw.headers["x-estrade-attempts"] == "1"
    assert raw.headers["x-estrade-upstream-model"] == "chat"
    assert raw.headers["openai-processing-ms"] == "7"
    assert "openai-organization" not in raw.headers
    assert raw.headers["x-request-id"]
    assert raw.parse().choices[0].message.content == TEXT
    call = record(raw.headers["x-estrade-call"])
    assert (call["model"], call["provider"], call["status"]) == ("test/chat", "scripted", 200)
    assert (call["promptTokens"], call["completionTokens"], call["cost"]) == (11, 5, "0.000021")
    assert (call["partial"], call["estimated"], call["streamed"]) == (False, False, False)


def check_stream():
    with client().chat.completions.with_streaming_response.create(
        model="test/chat", messages=HELLO, stream=True
    ) as raw:
        call = raw.headers["x-estrade-call"]
        text = "".join(raw.iter_text())
    assert text.endswith("data: [DONE]\n\n") and "usage" not in text, text
    assert (record(call)["completionTokens"], record(call)["streamed"]) == (5, True)
    parts = [e.choices[0].delta.content for e in chat(stream=True) if e.choices]
    assert [p for p in parts if p] == WORLD["words"]
    events = list(chat(stream=True, stream_options={"include_usage": True}))
    assert events[-1].usage.total_tokens == 16 and not events[-1].choices
    assert {e.model for e in events} == {"test/chat"}


def check_stream_helper():
    with client().chat.completions.stream(model="test/chat", messages=HELLO) as stream:
        deltas = [e.delta for e in stream if e.type == "content.delta"]
        assert "".join(deltas) == TEXT
        assert stream.get_final_completion().choices[0].finish_reason == "stop"


def check_leaving_a_stream():
    stream = chat(stream=True)
    call = stream.response.headers["x-estrade-call"]
    next(iter(stream))
    stream.close()
    for _ in range(100):
        try:
            assert record(call)["streamed"] is True
            return
        except urllib.request.HTTPError:
            time.sleep(0.02)
    raise AssertionError("a stream that was left has no record")


def check_async():
    async def talk():
        async with AsyncOpenAI(base_url=WORLD["url"], api_key=WORLD["keys"]["good"]) as c:
            ask = c.chat.completions.create(model="test/chat", messages=HELLO)
            answers = await asyncio.gather(*[ask] + [
                c.chat.completions.create(model="test/chat", messages=HELLO) for _ in range(20)
            ])
            assert {a.choices[0].message.content for a in answers} == {TEXT}
            stream = await c.chat.completions.create(model="test/chat", messages=HELLO, stream=True)
            parts = [e.choices[0].delta.content or "" async for e in stream]
            assert "".join(parts) == TEXT

    asyncio.run(talk())


def check_tools():
    first = chat(tools=TOOLS)
    (call,) = first.choices[0].message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Zürich"})
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    message = first.choices[0].message.model_dump(exclude_none=True)
    second = chat(tools=TOOLS, messages=[*HELLO, message, result])
    assert second.choices[0].message.content == TEXT
    arguments = ""
    for event in chat(tools=TOOLS, stream=True):
        for part in event.choices[0].delta.tool_calls or []:
            arguments += part.function.arguments
    assert json.loads(arguments) == {"city": "Zürich"}


def check_embeddings():
    # Without a wish the SDK asks for base64 and decodes it.
    for more in ({}, {"encoding_format": "float"}):
        answer = client().embeddings.create(model="test/chat", input=["a", "b"], **more)
        assert [list(d.embedding) for d in answer.data] == [WORLD["vector"]] * 2
        assert answer.usage.prompt_tokens == 11
    raw = client().embeddings.create(model="test/chat", input="a", encoding_format="base64")
    assert isinstance(raw.data[0].embedding, str)


def check_images():
    answer = client().images.generate(model="test/chat", prompt="a pixel")
    assert answer.data[0].b64_json == WORLD["pixel"]


def check_models():
    names = {m.id for m in client().models.list()}
    assert {"test/chat", "estrade/echo", "foreign/chat"} <= names
    assert [m.id for m in client("narrow").models.list()] == ["test/chat"]
    assert client("narrow").models.retrieve("test/chat").id == "test/chat"
    raises(openai.NotFoundError, 404, "model_not_found", lambda: client("narrow").models.retrieve("test/break"))


def check_errors():
    c = openai
    raises(c.AuthenticationError, 401, "unknown", lambda: chat(key="eyJ.no.key"))
    raises(c.PermissionDeniedError, 403, "disabled", lambda: chat(key="disabled"))
    raises(c.PermissionDeniedError, 403, "model_not_allowed", lambda: chat("test/fail-400", key="narrow"))
    raises(c.NotFoundError, 404, "model_not_found", lambda: chat("no/such"))
    raises(c.BadRequestError, 400, "invalid_value", lambda: chat(extra_body={"max_tokens": "many"}))
    raises(c.BadRequestError, 400, "scripted", lambda: chat("test/fail-400"))
    # The upstream does not know us: nothing that the caller could mend.
    raises(c.InternalServerError, 502, "upstream_auth", lambda: chat("test/fail-401"))
    raises(c.RateLimitError, 429, "upstream_rate_limited", lambda: chat("test/fail-429"))
    raises(c.InternalServerError, 502, "upstream_error", lambda: chat("test/fail-500"))
    raises(c.InternalServerError, 504, "upstream_timeout", lambda: chat("test/silent"))
    poor = raises(c.APIStatusError, 402, "budget_exceeded", lambda: chat(key="poor", max_tokens=100))
    assert poor.response.headers["x-ratelimit-limit-budget"] == "0.000001"
    assert poor.body["limit"]["of"] == "key"
    chat(key="slow")
    slow = raises(c.RateLimitError, 429, "rate_limit_requests", lambda: chat(key="slow"))
    assert slow.response.headers["x-ratelimit-limit-requests"] == "1"
    assert int(slow.response.headers["retry-after"]) > 0
    assert record(slow.response.headers["x-estrade-call"])["status"] == 429


def check_broken_stream():
    raises(openai.APIError, None, "upstream_error", lambda: list(chat("test/break", stream=True)))


def check_retries():
    for model in ("test/fail-429-once", "test/fail-500-once"):
        raw = client(max_retries=2).chat.completions.with_raw_response.create(model=model, messages=HELLO)
        assert raw.retries_taken == 1, (model, raw.retries_taken)
        assert raw.parse().choices[0].message.content == TEXT


def check_echo():
    answer = chat("estrade/echo")
    assert "hello" in answer.choices[0].message.content
    text = "".join(e.choices[0].delta.content or "" for e in chat("estrade/echo", stream=True) if e.choices)
    assert text == answer.choices[0].message.content
    floats = client().embeddings.create(model="estrade/echo", input="a", encoding_format="float")
    packed = client().embeddings.create(model="estrade/echo", input="a")
    assert list(packed.data[0].embedding) == floats.data[0].embedding
    image = client().images.generate(model="estrade/echo", prompt="a")
    assert image.data[0].b64_json.startswith("iVBORw0KGgo")


def check_foreign():
    raw = client().chat.completions.with_raw_response.create(model="foreign/chat", messages=HELLO)
    assert raw.headers["x-estrade-provider"] == "foreign"
    answer = raw.parse()
    assert answer.choices[0].message.content == "Hello from elsewhere!"
    call = record(raw.headers["x-estrade-call"])
    assert call["promptTokens"] == answer.usage.prompt_tokens > 0, call
    assert not call["estimated"]
    stream = chat("foreign/chat", stream=True)
    call = stream.response.headers["x-estrade-call"]
    assert "".join(e.choices[0].delta.content or "" for e in stream if e.choices) == "Hello from elsewhere!"
    assert not record(call)["estimated"] and not record(call)["partial"], record(call)
    weather = [{"role": "user", "content": "weather"}]
    (called,) = chat("foreign/chat", messages=weather, tools=TOOLS).choices[0].message.tool_calls
    assert json.loads(called.function.arguments) == {"city": "Bern"}
    vector = client().embeddings.create(model="foreign/embeddings", input="words").data[0].embedding
    assert list(vector) == [0.5, -0.5, 0.25], vector
    image = client().images.generate(model="foreign/images", prompt="a pixel")
    assert image.data[0].b64_json == WORLD["pixel"]


def main() -> int:
    failed = 0
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            try:
                check()
            except Exception:
                failed += 1
                print(f"FAILED: {name}")
                traceback.print_exc(file=sys.stdout)
    print(f"openai {openai.__version__}: {'not ' if failed else ''}as it should be", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
