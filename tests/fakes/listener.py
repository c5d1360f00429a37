"""A TCP port of this machine whose connections a test serves, each in a thread of its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress


class Listener:
    """Listens on 127.0.0.1, at any free port unless one is given."""

    def __init__(self, serve: Callable[[socket.socket], None], *, port: int = 0) -> None:
        self._serve = serve
        self._server = socket.create_server(("127.0.0.1", port))
        self.port = int(self._server.getsockname()[1])
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    @property
    def address(self) -> str:
        """Return host and port."""
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        """Accept no further connection; those that are served stay open."""
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._accepting.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
