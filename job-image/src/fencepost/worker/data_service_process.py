"""The process of the data service, started again after its end: the worker does not depend on it."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from fencepost.contract import DATA_SERVICE_FILE

log = logging.getLogger(__name__)

START_AGAIN: Final = 5.0
"""Seconds after an end."""


class DataServiceProcess:
    """Runs a command; it ends with this process, because it reads its standard input to the end."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._start_at = 0.0

    @property
    def id(self) -> int | None:
        """The id of the process, None while it does not run."""
        return self._process.pid if self._process else None

    def look(self) -> None:
        """Start it where it does not run, START_AGAIN after an end."""
        if self._process is not None and (code := self._process.poll()) is not None:
            log.error("the data service ended with code %d: it starts again in %.0f s", code, START_AGAIN)
            self._process, self._start_at = None, time.monotonic() + START_AGAIN
        if self._process is None and time.monotonic() >= self._start_at:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE)


def of(variables: Mapping[str, str], scratch: Path) -> DataServiceProcess | None:
    """Return the process of a stateful pipeline's worker with its scratch volume, None for a stateless one."""
    config = Path(variables.get("SPARK_CONF_DIR", "")) / DATA_SERVICE_FILE
    if not config.is_file():
        return None
    module = "fencepost.worker.data_service"
    return DataServiceProcess([sys.executable, "-Im", module, str(config), str(scratch / "state")])
