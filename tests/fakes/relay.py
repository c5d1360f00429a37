"""A relay in front of a server, which falls silent: connections stay, and what is sent arrives when it speaks again."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Relay:
    """What listens on a port of this machine."""

    port: int
    _speaks: threading.Event = field(default_factory=threading.Event)

    def be_silent(self) -> None:
        """Keep back everything from now on, in both directions."""
        self._speaks.clear()

    def speak(self) -> None:
        """Pass on what was kept back, and all else."""
        self._speaks.set()

    def serve(self, client: socket.socket, server: tuple[str, int]) -> None:
        """Relay a connection in both directions until one side ends it."""
        with contextlib.suppress(OSError), client, socket.create_connection(server) as behind:
            answers = threading.Thread(target=self._pump, args=(behind, client), daemon=True)
            answers.start()
            self._pump(client, behind)
            answers.join()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self._speaks.wait()
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextmanager
def relay_to(host: str, port: int) -> Iterator[Relay]:
    """Listen on a free port of 127.0.0.1, and relay to a server until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = Relay(listener.getsockname()[1])
        found.speak()
        threading.Thread(target=_accept, args=(found, listener, (host, port)), daemon=True).start()
        try:
            yield found
        finally:
            found.speak()
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)


def _accept(relay: Relay, listener: socket.socket, server: tuple[str, int]) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = listener.accept()
            threading.Thread(target=relay.serve, args=(client, server), daemon=True).start()
