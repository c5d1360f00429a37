"""Which data service a client is sent to: the one on its own node if it answers, else the driver's."""

from __future__ import annotations

import socket
import threading
import time
from typing import Final

LOOK_AGAIN: Final = 10.0
"""Seconds for which an answer, or a silence, of a worker's data service holds."""
CONNECT: Final = 0.5
"""Seconds for a worker's data service to accept a connection."""


class DataServices:
    """Finds data services. `own` is 'host:port' of the driver's; those of workers listen on `port`, 0 for none."""

    def __init__(self, *, own: str, port: int = 0) -> None:
        self._own = own
        self._port = port
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[float, bool]] = {}

    def near(self, sender: str) -> str:
        """Return 'host:port' of the data service for a client at this address."""
        host = f"[{sender}]" if ":" in sender else sender
        return f"{host}:{self._port}" if self._port and self._answers(sender) else self._own

    def _answers(self, host: str) -> bool:
        with self._lock:
            looked_at, answered = self._seen.get(host, (-LOOK_AGAIN, False))
        if time.monotonic() - looked_at < LOOK_AGAIN:
            return answered
        try:
            socket.create_connection((host, self._port), timeout=CONNECT).close()
            answered = True
        except OSError:
            answered = False
        with self._lock:
            self._seen[host] = (time.monotonic(), answered)
        return answered
