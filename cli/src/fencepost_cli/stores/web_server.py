"""Serves an application on 127.0.0.1 until the user ends it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from fencepost_cli.errors import CliError

_LOCAL: Final = "127.0.0.1"
_ENDS_WITHIN: Final = 2
"""Seconds for which answers in progress keep the server."""


def serve(made: Callable[[int], Any], port: int, listening: Callable[[int], None]) -> None:
    """Serve what is made for the port; 0 is any port. Raises CliError for one that is taken."""
    # Not at the top: the other commands start without a web server.
    import uvicorn  # noqa: PLC0415

    with socket.socket() as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            own.bind((_LOCAL, port))
        except OSError as error:
            raise CliError(
                f"port {port} of {_LOCAL} cannot be used: {error.strerror}",
                remedy="choose another --port, or leave it out",
            ) from error
        own.listen()
        found: int = own.getsockname()[1]
        config = uvicorn.Config(
            made(found),
            lifespan="off",
            ws="none",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_ENDS_WITHIN,
        )
        listening(found)
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[own])
