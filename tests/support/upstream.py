"""An OpenAI-like upstream for the checks of the SDKs. Standard library only.

The name of the model says how it answers: `chat`, `tools`, `fail-429-once` and so on. It takes only
requests with `KEY`, and keeps what it was asked."""

import base64
import json
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "sk-scripted-upstream-5d1e9c"
WORDS = ["The", " answer", " is", " 42", "."]
VECTOR = [0.25, -1.5, 3.0, 0.0009765625]
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n not really").decode()
USAGE = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}


class Upstream:
    """A running upstream; `asked` has the body of every request, in order."""

    def __init__(self):
        self.asked: list[dict] = []
        self._lock = threading.Lock()
        self._seen: dict[str, int] = {}
        upstream = self

        class Handler(_Handler):
            pass

        Handler.upstream = upstream
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def note(self, body: dict) -> int:
        """Keeps a request; how often its model was asked for before."""
        with self._lock:
            self.asked.append(body)
            before = self._seen.get(body["model"], 0)
            self._seen[body["model"]] = before + 1
            return before

    def forget(self):
        """Begins to count anew."""
        with self._lock:
            self._seen.clear()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    upstream: Upstream
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers["authorization"] != f"Bearer {KEY}":
            return self._json(401, _error("who are you?", "invalid_api_key"))
        before = self.upstream.note(body)
        words = body["model"].split("-")
        if words[0] == "fail":
            status, once = int(words[1]), words[-1] == "once"
            if not once or before == 0:
                return self._json(status, _error(f"scripted {status}", "scripted"))
        if words[0] == "silent":
            time.sleep(3)
            self.close_connection = True
            return None
        path = self.path.removeprefix("/v1/")
        if path == "embeddings":
            return self._json(200, _embeddings(body))
        if path == "images/generations":
            return self._json(200, {"created": 1, "data": [{"b64_json": PIXEL}]})
        if path != "chat/completions":
            return self._json(404, _error("no such path", "not_found"))
        if body.get("stream"):
            return self._stream(body, breaks=words[0] == "break")
        message, reason = _message(body)
        choice = {"index": 0, "message": message, "finish_reason": reason}
        answer = {
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": body["model"],
            "choices": [choice], "usage": USAGE, "x_unknown": {"kept": [1, None]},
        }  # fmt: skip
        return self._json(200, answer)

    def _json(self, status: int, value: dict):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.send_header("openai-processing-ms", "7")
        self.send_header("openai-organization", "org-secret")
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, body: dict, *, breaks: bool):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for delta, reason in _deltas(body):
            self._event(body, [{"index": 0, "delta": delta, "finish_reason": reason}])
            if breaks:
                self.close_connection = True
                return
        if (body.get("stream_options") or {}).get("include_usage"):
            self._event(body, [], usage=USAGE)
        self._chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, body: dict, choices: list, **more):
        event = {
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1,
            "model": body["model"], "choices": choices, **more,
        }  # fmt: skip
        self._chunk(f"data: {json.dumps(event)}\n\n".encode())

    def _chunk(self, data: bytes):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


def _error(message: str, code: str) -> dict:
    return {"error": {"message": message, "type": "scripted_error", "code": code, "param": None}}


def _call() -> dict:
    arguments = '{"city":"Z\u00fcrich"}'
    return {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": arguments}}


def _message(body: dict) -> tuple[dict, str]:
    """A tool call when there are tools and nobody has called one yet."""
    if body.get("tools") and not any(m["role"] == "tool" for m in body["messages"]):
        return {"role": "assistant", "content": None, "tool_calls": [_call()]}, "tool_calls"
    return {"role": "assistant", "content": "".join(WORDS)}, "stop"


def _deltas(body: dict):
    message, reason = _message(body)
    yield {"role": "assistant", "content": ""}, None
    if reason == "stop":
        for word in WORDS:
            yield {"content": word}, None
    else:
        call = _call()
        function = {"name": call["function"]["name"], "arguments": ""}
        yield {"tool_calls": [{**call, "index": 0, "function": function}]}, None
        for part in ('{"city":', '"Z\u00fcrich"}'):
            yield {"tool_calls": [{"index": 0, "function": {"arguments": part}}]}, None
    yield {}, reason


def _embeddings(body: dict) -> dict:
    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
    if body.get("encoding_format") == "base64":
        vector = base64.b64encode(struct.pack("<4f", *VECTOR)).decode()
    else:
        vector = VECTOR
    data = [{"object": "embedding", "index": i, "embedding": vector} for i in range(len(texts))]
    usage = {"prompt_tokens": 11, "total_tokens": 11}
    return {"object": "list", "data": data, "model": body["model"], "usage": usage}
