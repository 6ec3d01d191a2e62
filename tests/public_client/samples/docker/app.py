"""Says which instance it is and what it was given; prints what it was asked for."""

import json
import os
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

INSTANCE = uuid.uuid4().hex


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        told = {
            "instance": INSTANCE,
            "version": os.environ["VERSION"],
            "word": os.environ.get("WORD"),
            "disk": Path("/data").is_mount(),
        }
        body = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        print(f"visited {self.path}")

    def log_message(self, *_):
        pass


print("the Python server listens")
ThreadingHTTPServer(("", 8000), Handler).serve_forever()
