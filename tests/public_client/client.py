"""Runs the public client as a person or a script does: with a terminal, and without one. Standard library only."""

import codecs
import errno
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
import time
from pathlib import Path

COMMAND_TIMEOUT = 300
TEXT_TIMEOUT = 120
COLUMNS, ROWS = 150, 40
DOWN, ENTER, CTRL_C = "\x1b[B", "\r", "\x03"
# Colours, movements of the cursor, titles.
ESCAPE_RE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[=>78])")


# A spinner is drawn again and again.
SPINNER_RE = re.compile(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏][^⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]{1,60}(?=[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏])")
SHOWN = 4000


class Failure(Exception):
    """The client did not do what it should."""


def shown(output: str) -> str:
    """The end of an output, for a person."""
    return SPINNER_RE.sub("", output)[-SHOWN:]


class Client:
    """The client with a home of its own, in a network namespace of its own."""

    def __init__(self, node_modules: Path, home: Path, namespace, token: str):
        self._program = ["node", str(node_modules / "@liara/cli/bin/run.js")]
        self._namespace = namespace
        self._token = token
        home.mkdir()
        # It uses a folder of a fixed name among the temporary files, and a proxy if one is named.
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        self._env = kept | {
            "HOME": str(home),
            "TMPDIR": str(home),
            "XDG_CONFIG_HOME": str(home),
            "NO_UPDATE_NOTIFIER": "1",
            "TERM": "xterm-256color",
        }
        self._home = home

    def __call__(self, *arguments: str, code=0, cwd: Path | None = None, token: str | None = None) -> str:
        """Runs a command without a terminal, as a script does; returns what it printed."""
        ran = subprocess.run(
            self._command(arguments, token),
            cwd=cwd or self._home,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_TIMEOUT,
            check=False,
        )
        output = ESCAPE_RE.sub("", ran.stdout)
        if ran.returncode != code:
            raise Failure(f"{' '.join(arguments)}: ended with {ran.returncode} instead of {code}:\n{shown(output)}")
        return output

    def terminal(self, *arguments: str, cwd: Path | None = None) -> "Terminal":
        """Begins a command on a terminal."""
        title = " ".join(arguments)
        return Terminal(title, self._command(arguments), cwd=cwd or self._home, env=self._env)

    def _command(self, arguments, token=None) -> list[str]:
        flags = ["--dev", "--api-token", token or self._token]
        return self._namespace.command([*self._program, *arguments, *flags])


class Terminal:
    """A command on a terminal of its own, which it controls."""

    def __init__(self, title: str, command: list[str], *, cwd: Path, env: dict[str, str]):
        self._title = title
        self._raw = ""
        self._seen = 0
        ours, theirs = pty.openpty()
        self._fd = ours
        self.resize(COLUMNS, ROWS)
        self._process = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509: there is no other way
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._reader.join(5)
        os.close(self._fd)

    def resize(self, columns: int, rows: int):
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def output(self) -> str:
        return ESCAPE_RE.sub("", self._raw)

    def expect(self, text: str, timeout=TEXT_TIMEOUT):
        """Waits until it has printed this, after what was waited for before."""
        deadline = time.monotonic() + timeout
        while True:
            ended = not self._reader.is_alive()
            at = self.output().find(text, self._seen)
            if at >= 0:
                self._seen = at + len(text)
                return
            if ended or time.monotonic() > deadline:
                raise Failure(f"{self._title}: did not print {text!r}:\n{shown(self.output())}")
            time.sleep(0.02)

    def send(self, keys: str):
        os.write(self._fd, keys.encode())

    def answer(self, question: str, keys: str):
        """Waits for a question, and answers it."""
        self.expect(question)
        # A question is drawn before its keys are listened to.
        time.sleep(0.1)
        self.send(keys)

    def finish(self, code=0):
        """Waits until it ends."""
        try:
            ended = self._process.wait(TEXT_TIMEOUT)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self._title}: does not end:\n{shown(self.output())}") from None
        self._reader.join(5)
        if ended != code:
            raise Failure(f"{self._title}: ended with {ended} instead of {code}:\n{shown(self.output())}")

    def _read(self):
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        try:
            while part := os.read(self._fd, 65536):
                self._raw += decoder.decode(part)
        except OSError as error:
            if error.errno != errno.EIO:  # EIO is how a terminal says that the other side is gone
                raise
