// What the official JavaScript SDK does with the gateway. Started by `run`, which says where it is.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.argv[2]}/`);
const sdk = await import(pathToFileURL(require.resolve("openai")));
const OpenAI = sdk.OpenAI ?? sdk.default.OpenAI;
const { VERSION } = await import(pathToFileURL(require.resolve("openai/version")));
const world = JSON.parse(readFileSync(0, "utf8"));

const hello = [{ role: "user", content: "hello" }];
const weather = [{ role: "user", content: "weather" }];
const text = world.words.join("");
const tools = [
  {
    type: "function",
    function: {
      name: "weather",
      parameters: { type: "object", properties: { city: { type: "string" } } },
    },
  },
];

function client(key = "good", more = {}) {
  const apiKey = world.keys[key] ?? key;
  return new OpenAI({ baseURL: world.url, apiKey, maxRetries: 0, timeout: 20_000, ...more });
}

function chat(more = {}, key = "good") {
  return client(key).chat.completions.create({ model: "test/chat", messages: hello, ...more });
}

/** The record that an answer's header leads to. */
async function record(call) {
  const url = `${world.management}/v1/workspaces/${world.workspace}/logs/${call}`;
  const answer = await fetch(url, { headers: { authorization: `Bearer ${world.token}` } });
  assert.equal(answer.status, 200, call);
  return answer.json();
}

async function rejects(kind, status, code, call) {
  let found;
  try {
    await call();
  } catch (error) {
    found = error;
  }
  assert.ok(found instanceof OpenAI.APIError, String(found?.stack));
  assert.deepEqual([found.constructor.name, found.status, found.code], [kind, status, code]);
  return found;
}

async function collect(stream) {
  let all = "";
  for await (const event of stream) all += event.choices[0]?.delta?.content ?? "";
  return all;
}

const checks = {
  async chat() {
    const body = { x_unknown: { deep: [1, 2.5, null, "é"] } };
    const { data, response } = await chat(body).withResponse();
    assert.equal(data.choices[0].message.content, text);
    assert.deepEqual(data.x_unknown, { kept: [1, null] });
    assert.equal(data.model, "test/chat");
    assert.equal(response.headers.get("x-estrade-provider"), "scripted");
    assert.equal(response.headers.get("x-estrade-upstream-model"), "chat");
    assert.equal(response.headers.get("openai-organization"), null);
    const call = await record(response.headers.get("x-estrade-call"));
    assert.deepEqual([call.promptTokens, call.completionTokens, call.cost], [11, 5, "0.000021"]);
  },

  async stream() {
    const { data, response } = await chat({ stream: true }).withResponse();
    assert.equal(await collect(data), text);
    const call = await record(response.headers.get("x-estrade-call"));
    assert.deepEqual([call.streamed, call.partial, call.completionTokens], [true, false, 5]);
    const events = [];
    const wish = { stream: true, stream_options: { include_usage: true } };
    for await (const event of await chat(wish)) events.push(event);
    assert.equal(events.at(-1).usage.total_tokens, 16);
  },

  async streamHelper() {
    const stream = client().chat.completions.stream({ model: "test/chat", messages: hello });
    assert.equal(await stream.finalContent(), text);
  },

  async leavingAStream() {
    const stream = await chat({ stream: true });
    for await (const _ of stream) break;
    assert.equal((await chat()).choices[0].message.content, text);
  },

  async toolCalls() {
    const first = await chat({ tools });
    const [call] = first.choices[0].message.tool_calls;
    assert.deepEqual(JSON.parse(call.function.arguments), { city: "Zürich" });
    const result = { role: "tool", tool_call_id: call.id, content: "rain" };
    const messages = [...hello, first.choices[0].message, result];
    assert.equal((await chat({ tools, messages })).choices[0].message.content, text);
    let said = "";
    for await (const event of await chat({ tools, stream: true })) {
      for (const part of event.choices[0].delta.tool_calls ?? []) said += part.function.arguments;
    }
    assert.deepEqual(JSON.parse(said), { city: "Zürich" });
  },

  async embeddings() {
    for (const more of [{}, { encoding_format: "float" }]) {
      const ask = { model: "test/chat", input: ["a", "b"], ...more };
      const { data } = await client().embeddings.create(ask);
      for (const one of data) assert.deepEqual([...one.embedding], world.vector);
      assert.equal(data.length, 2);
    }
    const packed = { model: "test/chat", input: "a", encoding_format: "base64" };
    assert.equal(typeof (await client().embeddings.create(packed)).data[0].embedding, "string");
  },

  async images() {
    const answer = await client().images.generate({ model: "test/chat", prompt: "a pixel" });
    assert.equal(answer.data[0].b64_json, world.pixel);
  },

  async models() {
    const names = [];
    for await (const model of client("narrow").models.list()) names.push(model.id);
    assert.deepEqual(names, ["test/chat"]);
    assert.equal((await client("narrow").models.retrieve("test/chat")).id, "test/chat");
  },

  async errors() {
    const model = (name) => () => chat({ model: name });
    await rejects("AuthenticationError", 401, "unknown", () => chat({}, "eyJ.no.key"));
    await rejects("PermissionDeniedError", 403, "disabled", () => chat({}, "disabled"));
    await rejects("NotFoundError", 404, "model_not_found", model("no/such"));
    await rejects("BadRequestError", 400, "invalid_value", () => chat({ max_tokens: "many" }));
    await rejects("BadRequestError", 400, "scripted", model("test/fail-400"));
    await rejects("InternalServerError", 502, "upstream_auth", model("test/fail-401"));
    await rejects("RateLimitError", 429, "upstream_rate_limited", model("test/fail-429"));
    await rejects("InternalServerError", 502, "upstream_error", model("test/fail-503"));
    await rejects("InternalServerError", 504, "upstream_timeout", model("test/silent"));
    const poor = await rejects("APIError", 402, "budget_exceeded", () => chat({ max_tokens: 9 }, "poor"));
    assert.equal(poor.headers.get("x-ratelimit-limit-budget"), "0.000001");
    await chat({}, "slow");
    const slow = await rejects("RateLimitError", 429, "rate_limit_requests", () => chat({}, "slow"));
    assert.equal(slow.headers.get("x-ratelimit-remaining-requests"), "0");
    await rejects("APIError", undefined, "upstream_error", async () =>
      collect(await chat({ model: "test/break", stream: true })),
    );
  },

  async retries() {
    for (const model of ["test/fail-429-once", "test/fail-500-once"]) {
      const stubborn = client("good", { maxRetries: 2 }).chat.completions;
      const began = Date.now();
      assert.equal((await stubborn.create({ model, messages: hello })).choices[0].message.content, text);
      assert.ok(Date.now() - began > 300, `${model}: it did not pause before its second try`);
    }
  },

  async echo() {
    const answer = await chat({ model: "estrade/echo" });
    const said = answer.choices[0].message.content;
    assert.ok(said.includes("hello"));
    assert.equal(await collect(await chat({ model: "estrade/echo", stream: true })), said);
    const ask = { model: "estrade/echo", input: "a" };
    const floats = await client().embeddings.create({ ...ask, encoding_format: "float" });
    const packed = await client().embeddings.create(ask);
    assert.deepEqual([...packed.data[0].embedding], floats.data[0].embedding);
    const image = await client().images.generate({ model: "estrade/echo", prompt: "a" });
    assert.ok(image.data[0].b64_json.startsWith("iVBORw0KGgo"));
  },

  async foreign() {
    const model = "foreign/chat";
    const { data, response } = await chat({ model }).withResponse();
    assert.equal(data.choices[0].message.content, "Hello from elsewhere!");
    assert.equal(response.headers.get("x-estrade-provider"), "foreign");
    assert.equal(await collect(await chat({ model, stream: true })), "Hello from elsewhere!");
    const called = await chat({ model, messages: weather, tools });
    const [call] = called.choices[0].message.tool_calls;
    assert.deepEqual(JSON.parse(call.function.arguments), { city: "Bern" });
    const ask = { model: "foreign/embeddings", input: "words" };
    assert.deepEqual([...(await client().embeddings.create(ask)).data[0].embedding], [0.5, -0.5, 0.25]);
  },
};

let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
  } catch (error) {
    failed += 1;
    console.log(`FAILED: ${name}\n${error.stack}`);
  }
}
console.log(`openai ${VERSION}: ${failed ? "not " : ""}as it should be`);
process.exit(failed ? 1 : 0);
