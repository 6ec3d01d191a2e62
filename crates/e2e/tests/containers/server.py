"""Does what its visitors ask for, also what no good server would do.

Its first argument is its version. A second one makes it odd: `mute` never listens, `ends` ends at once,
`dies SECONDS` after a while.
"""
import base64
import errno
import hashlib
import http.server
import os
import socket
import sys
import threading
import time
import urllib.parse

VERSION = sys.argv[1]
MIB = 1 << 20


def home():
    return f"{VERSION} {os.environ.get('WORD', '-')} {socket.gethostname()}"


def slow(seconds):
    time.sleep(float(seconds))
    return home()


def hog():
    kept = []
    while True:
        kept.append(b"x" * (16 * MIB))


def fork():
    children = []
    try:
        while len(children) < 5000:
            child = os.fork()
            if child == 0:
                time.sleep(30)
                os._exit(0)
            children.append(child)
        end = "no limit"
    except OSError as error:
        end = errno.errorcode[error.errno]
    for child in children:
        os.kill(child, 9)
        os.waitpid(child, 0)
    return f"{len(children)} {end}"


def fill(folder, most):
    written = 0
    try:
        with open(os.path.join(folder, "fill"), "wb", buffering=0) as file:
            while written < int(most):
                file.write(b"x" * MIB)
                written += 1
        end = "no limit"
    except OSError as error:
        end = errno.errorcode[error.errno]
    return f"{written} {end}"


def write(path, text):
    with open(path, "w") as file:
        file.write(text)
    return "written"


def read(path):
    with open(path) as file:
        return file.read()


def reach(host, port, path):
    """Whether somebody answers there, and what."""
    try:
        with socket.create_connection((host, int(port)), 3) as peer:
            peer.settimeout(3)
            peer.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
            first = peer.recv(64).decode("latin-1")
            return f"answered {first.splitlines()[0]}" if first else "hung up"
    except OSError as error:
        return f"nobody {type(error).__name__}"


def sockets():
    """Whatever of an engine can be seen from here."""
    paths = ["/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"]
    mounts = [line.split()[1] for line in open("/proc/mounts")]
    seen = [path for path in paths if os.path.exists(path)]
    return " ".join(seen + [mount for mount in mounts if mount.endswith(".sock")]) or "none"


def die():
    print("told to die", flush=True)
    os._exit(3)


ACTIONS = {
    "/": home, "/slow": slow, "/hog": hog, "/fork": fork, "/fill": fill, "/write": write,
    "/read": read, "/reach": reach, "/sockets": sockets, "/die": die,
}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        if url.path == "/echo":
            return self.echo()
        action = ACTIONS.get(url.path)
        if action is None:
            return self.answer(404, "nothing here")
        try:
            self.answer(200, action(**dict(urllib.parse.parse_qsl(url.query))))
        except OSError as error:
            self.answer(500, str(error))

    def answer(self, status, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def echo(self):
        """A WebSocket that sends every text back, behind our version."""
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.close_connection = True
        while head := self.rfile.read(2):
            mask = self.rfile.read(4)
            text = bytes(byte ^ mask[at % 4] for at, byte in enumerate(self.rfile.read(head[1] & 127)))
            if head[0] & 15 == 8:
                return
            text = VERSION.encode() + b" " + text
            self.wfile.write(bytes([0x81, len(text)]) + text)

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128


def end():
    print("boom: there is no database", flush=True)
    os._exit(3)


if sys.argv[2:] == ["mute"]:
    print("waiting for a database that never comes", flush=True)
    time.sleep(3600)
if sys.argv[2:] == ["ends"]:
    end()
if sys.argv[2:3] == ["dies"]:
    threading.Timer(float(sys.argv[3]), end).start()
print(f"version {VERSION} listens", flush=True)
Server(("", int(os.environ.get("PORT", 8080))), Handler).serve_forever()
