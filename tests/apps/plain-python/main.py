import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from markupsafe import escape


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/":
            return self.send_error(404, "Nothing here, says Python")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"<title>{escape('Hello from Python')}</title>".encode())


ThreadingHTTPServer(("0.0.0.0", int(os.environ["PORT"])), Handler).serve_forever()
