"""A relay in front of a server, which falls silent: connections stay, and what is sent arrives when it speaks again."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fakes.listener import Listener


@dataclass(frozen=True, slots=True)
class Relay:
    """What listens on a port of this machine."""

    port: int
    _speaks: threading.Event

    def be_silent(self) -> None:
        """Keep back everything from now on, in both directions."""
        self._speaks.clear()

    def speak(self) -> None:
        """Pass on what was kept back, and all else."""
        self._speaks.set()


@contextmanager
def relay_to(host: str, port: int) -> Iterator[Relay]:
    """Listen on a free port of 127.0.0.1, and relay to a server until the block ends."""
    speaks = threading.Event()
    speaks.set()
    listener = Listener(lambda client: pass_on(client, (host, port), hold=speaks.wait))
    with contextlib.closing(listener):
        try:
            yield Relay(listener.port, speaks)
        finally:
            speaks.set()


def pass_on(client: socket.socket, server: tuple[str, int], *, hold: Callable[[], object] = lambda: None) -> None:
    """Relay a connection in both directions until one side ends it; `hold` is called before anything is passed on."""
    with contextlib.suppress(OSError), client, socket.create_connection(server) as behind:
        # A socket, of OpenSSL as well, may be read by one thread and written by another.
        answers = threading.Thread(target=_pump, args=(behind, client, hold), daemon=True)
        answers.start()
        _pump(client, behind, hold)
        answers.join()


def _pump(source: socket.socket, sink: socket.socket, hold: Callable[[], object]) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            hold()
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)
