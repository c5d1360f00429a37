"""What the driver logs: its own progress, and the warnings of libraries."""

from __future__ import annotations

import logging

from fencepost.logs import write_to_stderr


def set_up(*, pipeline: str | None = None) -> None:
    """Log to stderr; `pipeline` is 'namespace/name', once it is known."""
    write_to_stderr(level=logging.WARNING, pipeline=pipeline)
    logging.getLogger("fencepost").setLevel(logging.INFO)
    # Its retries while a node is down would fill the log; their outcome is raised.
    logging.getLogger("cassandra").setLevel(logging.ERROR)
