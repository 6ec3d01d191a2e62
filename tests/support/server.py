"""Runs the built `estrade serve` for the checks that need a real server: the API fuzzer and the
README tour. Standard library only."""

import errno
import os
import pty
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LISTENERS = ("platform", "ai", "edge")
READY_WITHIN = 30
# The server promises to finish what is in flight within 30 s.
STOPPED_WITHIN = 40


def binary() -> str:
    """The estrade that `cargo build` made, or the one named by ESTRADE_BIN."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = Path(os.environ.get("ESTRADE_BIN", target / "debug" / "estrade")).absolute()
    if not path.is_file():
        raise SystemExit(f"{path} is missing: run `cargo build` first")
    return str(path)


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on; held open together, so that they differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def environment(ports: dict[str, int]) -> dict[str, str]:
    """Our environment without the caller's ESTRADE_… settings, with the listeners on `ports`."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("ESTRADE_")}
    for listener, port in ports.items():
        env[f"ESTRADE_{listener.upper()}_LISTEN"] = f"127.0.0.1:{port}"
    env["NO_COLOR"] = "1"
    return env


class Server:
    """A running server. Its output goes to a terminal of its own, as it would for a person."""

    def __init__(self, command, *, cwd, env, ports: dict[str, int], shell=False):
        self.ports = ports
        self._chunks: list[bytes] = []
        ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            shell=shell,
            executable="/bin/bash" if shell else None,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, args=(ours,), daemon=True)
        self._reader.start()

    def _read(self, fd: int):
        try:
            while chunk := os.read(fd, 65536):
                self._chunks.append(chunk)
        except OSError as e:
            if e.errno != errno.EIO:  # EIO is how a terminal says that the other side is gone
                raise
        finally:
            os.close(fd)

    def url(self, listener: str) -> str:
        return f"http://127.0.0.1:{self.ports[listener]}"

    def output(self) -> str:
        return b"".join(self._chunks).decode(errors="replace").replace("\r\n", "\n")

    def wait_until_ready(self):
        deadline = time.monotonic() + READY_WITHIN
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                self._reader.join(5)
                raise SystemExit(
                    f"estrade exited with {self._process.returncode} at start:\n{self.output()}"
                )
            try:
                with urllib.request.urlopen(self.url("platform") + "/readyz", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        self.stop()
        raise SystemExit(f"estrade was not ready within {READY_WITHIN} s:\n{self.output()}")

    def stop(self) -> int:
        """Asks the server to stop and returns its exit code; -9 when it had to be killed."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOPPED_WITHIN)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._reader.join(5)
        return self._process.returncode
