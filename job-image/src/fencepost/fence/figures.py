"""What a commit says of its batch and of its run, beside the records and the time: for people, no decision reads it."""

from __future__ import annotations

from enum import StrEnum


class Figure(StrEnum):
    """The names in `FenceRow.figures`: a closed list, so that a row and its history stay small.

    Memory is in bytes, the largest since the run began.  What the kernel does not report is absent.
    """

    BYTES = "bytes"
    """Of the keys, values and headers that the batch read."""
    ROWS = "rows"
    """That the batch wrote, to all sinks."""
    LIMIT = "limit"
    """Records that the next batch may have."""
    CORES = "cores"
    """Of the executors that were there."""
    DRIVER_CONTAINER = "driver_container"
    """Without the page cache, as it is at commits."""
    DRIVER_LIMIT = "driver_limit"
    """Of that container."""
    DRIVER_PYTHON = "driver_python"
    DRIVER_JVM = "driver_jvm"
    WORKER_CONTAINER = "worker_container"
    """Of the largest worker without the page cache, as it is when tasks end."""
    WORKER_LIMIT = "worker_limit"
    """Of a worker's container."""
    WORKER_PYTHON = "worker_python"
    """Of the largest Python worker; a worker has one for each of its cores."""
    WORKER_JVM = "worker_jvm"
    """Of the largest executor."""
    STATE_CHUNKS = "state_chunks"
    """Rows of Cassandra that hold the files of a stateful pipeline's state."""
