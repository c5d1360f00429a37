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
from fencepost.worker import scratch
from fencepost.worker.executor_logs import ExecutorLogs
from fencepost.worker.exposition import Counted, WorkerCollector, exposition
from fencepost.worker.processes import processes

log = logging.getLogger(__name__)

LOOK: Final = 0.25
"""Seconds between two looks at the logs."""
SWEEP: Final = 1.0
"""Seconds between two sweeps of the scratch volume: executors that crash in a loop fill it within a few."""
MEASURE: Final = 10.0
"""Seconds between two looks at its size."""


def main() -> None:
    """Serve metrics, follow the logs, and sweep. Nothing that fails here ends the worker."""
    write_to_stderr(level=logging.WARNING)
    work, counted = Path(sys.argv[1]), Counted()
    if port := metrics_server.port_of(os.environ):
        collector = WorkerCollector(counted, lambda: processes(work))
        metrics_server.serve(exposition(collector), address=metrics_server.ANY, port=port)
    logs = ExecutorLogs(work, write)
    swept, measured = -SWEEP, -MEASURE
    while True:
        with suppress(OSError):  # a folder that is removed meanwhile
            logs.look()
        counted.lines, counted.started = logs.lines, logs.started
        if time.monotonic() - swept >= SWEEP:
            swept = time.monotonic()
            _sweep(work, counted)
        if time.monotonic() - measured >= MEASURE:
            measured = time.monotonic()
            counted.scratch = scratch.used(work.parent)
        time.sleep(LOOK)


def write(line: str) -> None:
    """Write a line to the container's log."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _sweep(work: Path, counted: Counted) -> None:
    try:
        counted.swept += scratch.sweep(work, lambda: {process.folder for process in processes(work)})
    except OSError as error:
        log.warning("the scratch volume is not swept: %s", error)


if __name__ == "__main__":
    main()
