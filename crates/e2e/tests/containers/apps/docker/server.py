import http.server
import os
import socket
from pathlib import Path

VERSION = Path("version.txt").read_text().strip()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        text = f"{VERSION} {os.environ.get('WORD', '-')} {socket.gethostname()}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


http.server.ThreadingHTTPServer(("", int(os.environ.get("PORT", 8080))), Handler).serve_forever()
