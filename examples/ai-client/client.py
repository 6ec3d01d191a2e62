"""Calls a model through Estrade's AI gateway with OpenAI's SDK: first a whole response, then a stream.

OPENAI_BASE_URL and OPENAI_API_KEY say where the gateway is and which key to use; the SDK reads both itself."""

import sys

from openai import OpenAI

model = sys.argv[1] if len(sys.argv) > 1 else "estrade/echo"
client = OpenAI()

completion = client.chat.completions.create(
    model=model, messages=[{"role": "user", "content": "Hello!"}]
)
print(completion.choices[0].message.content)
print(f"{completion.usage.prompt_tokens} + {completion.usage.completion_tokens} tokens")

stream = client.chat.completions.create(
    model=model, messages=[{"role": "user", "content": "Hello again!"}], stream=True
)
for chunk in stream:
    if chunk.choices and chunk.choices[0].delta.content:
        print(chunk.choices[0].delta.content, end="", flush=True)
print()
