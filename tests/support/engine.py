"""The Docker Engine that checks run on, by its API. Standard library only."""

import http.client
import io
import json
import socket
import tarfile
import urllib.parse
from pathlib import Path

# There is no registry where the checks run: images are built on this one.
BASE_IMAGE = "estrade-test/base:2"


class Engine:
    """An engine by its socket."""

    def __init__(self, path: str):
        self.path = path

    def make_image(self, name: str, sources: dict[str, str]):
        """Builds an image from sources, which have a Dockerfile among them."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for path, text in sources.items():
                data = text.encode()
                entry = tarfile.TarInfo(path)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
        output = self._call("POST", f"/build?t={name}&networkmode=none", archive.getvalue())
        if "errorDetail" in output:
            raise SystemExit(f"{name} could not be made:\n{output}")

    def labelled(self, label: str) -> list[dict]:
        """The containers and networks that have a label, or one of a value (`name=value`)."""
        filters = urllib.parse.quote(json.dumps({"label": [label]}))
        containers = json.loads(self._call("GET", f"/containers/json?all=1&filters={filters}"))
        return containers + json.loads(self._call("GET", f"/networks?filters={filters}"))

    def volumes(self, label: str) -> list[dict]:
        """The volumes that have a label."""
        filters = urllib.parse.quote(json.dumps({"label": [label]}))
        return json.loads(self._call("GET", f"/volumes?filters={filters}"))["Volumes"] or []

    def _call(self, method: str, path: str, body: bytes | None = None) -> str:
        connection = http.client.HTTPConnection("docker", timeout=120)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(self.path)
        connection.request(method, path, body, {"Content-Type": "application/x-tar"})
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
        connection.close()
        if answer.status >= 300:
            raise SystemExit(f"the engine answers {method} {path} with {answer.status}: {text}")
        return text


def read_sources(folder: Path) -> dict[str, str]:
    """The files of a folder, by their paths in it."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in files}
