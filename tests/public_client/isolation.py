"""A network namespace in which the client runs: it has a loopback and nothing else, so whatever the client calls, no
packet leaves the machine. Connections to one port of that loopback are relayed to the server, which is outside.

Nothing else can listen on the port, because the namespace is new. Standard library only; `unshare` and `nsenter` are
in util-linux."""

import fcntl
import os
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

READY_WITHIN = 20
BUFFER = 64 * 1024
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1


class Namespace:
    """The namespace, for as long as it is open."""

    def __init__(self, port: int, server: tuple[str, int]):
        """Relays `port` of its loopback to `server`."""
        self._server = server
        ours, theirs = socket.socketpair()
        unshare = ["unshare", "--net"]
        if os.geteuid() != 0:
            unshare += ["--user", "--map-root-user"]
        self._holder = subprocess.Popen(
            [*unshare, sys.executable, str(Path(__file__).resolve()), str(theirs.fileno()), str(port)],
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        ours.settimeout(READY_WITHIN)
        # A socket stays in the namespace that it was made in, whoever accepts from it.
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
        if not fds:
            self._holder.wait()
            raise SystemExit("no network namespace could be made; it needs root, or user namespaces")
        self._life = ours
        self._listener = socket.socket(fileno=fds[0])
        threading.Thread(target=self._accept, daemon=True).start()

    def command(self, command: list[str]) -> list[str]:
        """The command that runs `command` in the namespace."""
        place = f"/proc/{self._holder.pid}/ns"
        enter = ["nsenter", f"--net={place}/net"]
        if os.geteuid() != 0:
            enter += [f"--user={place}/user", "--preserve-credentials"]
        return [*enter, "--", *command]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._listener.close()
        self._life.close()
        self._holder.wait()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._server)
            except OSError:
                client.close()
                continue
            for ends in ((client, server), (server, client)):
                threading.Thread(target=relay, args=ends, daemon=True).start()


def relay(source: socket.socket, target: socket.socket):
    try:
        while part := source.recv(BUFFER):
            target.sendall(part)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        # One end is gone: the other must hear of it.
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def hold(life: socket.socket, port: int):
    """Inside: gives the listening socket to the one outside, and lives as long as it does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(control, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))
    # `localhost` may be the one or the other.
    if socket.has_dualstack_ipv6():
        listener = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    else:
        listener = socket.create_server(("", port))
    socket.send_fds(life, [b"."], [listener.fileno()])
    life.recv(1)


if __name__ == "__main__":
    hold(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
