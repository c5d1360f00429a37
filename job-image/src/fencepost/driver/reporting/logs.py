"""What the driver logs: its own progress, and the warnings of libraries."""

from __future__ import annotations

import logging
from typing import Final

from fencepost.driver.reporting.last_lines import LastLines
from fencepost.logs import write_to_stderr

LAST: Final = LastLines()
"""What was logged last in this process."""


def set_up(*, pipeline: str | None = None) -> None:
    """Log to stderr; `pipeline` is 'namespace/name', once it is known."""
    write_to_stderr(level=logging.WARNING, pipeline=pipeline)
    logging.getLogger().addHandler(LAST)
    logging.getLogger("fencepost").setLevel(logging.INFO)
    # Its retries while a node is down would fill the log; their outcome is raised.
    logging.getLogger("cassandra").setLevel(logging.ERROR)
