"""`python -Im fencepost.worker FOLDER`: runs beside Spark's worker, whose folder it is, until the container ends."""

from __future__ import annotations

import logging
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from fencepost import metrics_server
from fencepost.logs import write_to_stderr
from fencepost.worker import data_service_process, scratch
from fencepost.worker.executor_logs import ExecutorLogs
from fencepost.worker.exposition import Counted, WorkerCollector, exposition
from fencepost.worker.processes import folders, processes

log = logging.getLogger(__name__)

LOOK: Final = 0.25
"""Seconds between two looks at the logs."""
SWEEP: Final = 1.0
"""Seconds between two sweeps of the scratch volume: executors that crash in a loop fill it within a few."""
SWEEP_AGAIN: Final = 60.0
"""Seconds after a sweep that failed."""
MEASURE: Final = 10.0
"""Seconds between two looks at its size."""


def main() -> None:
    """Serve metrics, follow the logs, sweep, and keep a data service. Nothing that fails here ends the worker."""
    write_to_stderr(level=logging.WARNING)
    work, counted = Path(sys.argv[1]), Counted()
    if port := metrics_server.port_of(os.environ):
        collector = WorkerCollector(counted, lambda: processes(work))
        metrics_server.serve(exposition(collector), address=metrics_server.ANY, port=port)
    logs = ExecutorLogs(work, write)
    data_service = data_service_process.of(os.environ, work.parent)
    next_sweep, measured = 0.0, -MEASURE
    while True:
        with suppress(OSError):  # a folder that is removed meanwhile
            logs.look()
        if data_service is not None:
            data_service.look()
        counted.lines, counted.started = logs.lines, logs.started
        if time.monotonic() >= next_sweep:
            done = _sweep(work, counted)
            next_sweep = time.monotonic() + (SWEEP if done else SWEEP_AGAIN)
        if time.monotonic() - measured >= MEASURE:
            measured = time.monotonic()
            counted.scratch = scratch.used(work.parent)
        time.sleep(LOOK)


def write(line: str) -> None:
    """Write a line to the container's log."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _sweep(work: Path, counted: Counted) -> bool:
    try:
        counted.swept += scratch.sweep(work, folders)
    except OSError as error:
        log.warning("the scratch volume is not swept: %s", error)
        return False
    return True


if __name__ == "__main__":
    main()
