"""Processes that write or purge a table with an index, and are killed within; a test spawns them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from fencepost.contract import CassandraSink, DriverConfig
from fencepost.fence.cassandra.session import connect
from fencepost.sinks import BatchToken
from fencepost.sinks.cassandra import writer
from fencepost.sinks.purge.cassandra_output import purgeable
from fencepost.sinks.purge.indexed_output import IndexedTable


def records(start: int, until: int) -> pa.RecordBatch:
    offsets = range(start, until)
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array(["t"] * len(offsets)),
            "partition": pa.array([0] * len(offsets), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "carrier": pa.array([f"c{offset % 3}" for offset in offsets]),
            "id": pa.array([f"id{offset}" for offset in offsets]),
        }
    )


def write_until(task: Any, token: BatchToken, requests: int) -> None:
    """Write one row per request, and die before a request."""
    writer.IN_FLIGHT = 1  # type: ignore[misc]
    kill_after(writer._Requests, "send", requests)
    for _ in task.write([records(0, 20), records(20, 40)], token):
        pass


def purge_until(config: DriverConfig, credentials: tuple[str, str], timestamp: int, deletes: int) -> None:
    """Purge, and die before a delete."""
    left = deletes

    def dying(real: Callable[..., Any]) -> Callable[..., Iterator[Sequence[bytes]]]:
        def split(*arguments: Any) -> Iterator[Sequence[bytes]]:
            nonlocal left
            for values in real(*arguments):
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                yield values

        return split

    IndexedTable._split = dying(IndexedTable._split)  # type: ignore[method-assign,assignment]
    (sink,) = config.sinks
    assert isinstance(sink, CassandraSink)
    ranges: Mapping[str, tuple[int, int]] = {"t/0": (0, 6_000)}
    purgeable(connect(config.cluster, credentials=credentials), sink, config).purge(ranges, timestamp)


def kill_after(owner: type, method: str, calls: int) -> None:
    """Let the process be killed before a call."""
    real, left = getattr(owner, method), calls

    def counted(*arguments: Any, **more: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **more)

    setattr(owner, method, counted)
