"""Runs the commands of examples/*/README.md as a person would. Standard library only."""

import re
import shutil
import subprocess
from pathlib import Path

import server as support

EXAMPLES = support.ROOT / "examples"
DEFAULT_PORTS = {"platform": 3000, "ai": 3100, "edge": 8080}
BLOCK_RE = re.compile(r"(?P<mark><!-- not run: .*? -->\n)?```sh\n(?P<commands>.*?)^```$", re.MULTILINE | re.DOTALL)
# An error response fails the command that asked for it.
PREAMBLE = 'set -euo pipefail\ncurl() { command curl --fail-with-body "$@"; }\n'


def commands(readme: str, ports: dict[str, int]) -> str:
    """What the README tells to run, with these ports instead of the default ones."""
    blocks = [found["commands"] for found in BLOCK_RE.finditer(readme) if not found["mark"]]
    if not blocks:
        raise SystemExit("a README of an example has no commands")
    text = "".join(blocks)
    for listener, port in DEFAULT_PORTS.items():
        text = re.sub(rf"\b(127\.0\.0\.1|localhost):{port}\b", rf"\g<1>:{ports[listener]}", text)
    return PREAMBLE + text


def run(name: str, home: Path, server: support.Server, *, env: dict[str, str], replace=(), timeout=600) -> str:
    """Runs an example against a server whose data directory is HOME/estrade-data; returns its output.

    `replace` has texts for which something else stands in the copy that is deployed."""
    folder = home / "examples" / name
    skipped = shutil.ignore_patterns("node_modules", "__pycache__")
    shutil.copytree(EXAMPLES / name, folder, ignore=skipped)
    for path, old, new in replace:
        text = (folder / path).read_text()
        if old not in text:
            raise SystemExit(f"examples/{name}/{path} does not contain {old!r}")
        (folder / path).write_text(text.replace(old, new))
    script = commands((folder / "README.md").read_text(), server.ports)
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=home,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout,
        check=False,
    )
    if ran.returncode != 0:
        raise SystemExit(f"examples/{name}: its commands ended with {ran.returncode}:\n{ran.stdout}")
    return ran.stdout
