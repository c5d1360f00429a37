"""What a stateful run does for each batch, as a line of its log: phases, requests, files, CPU time of the server.

Figures but Spark's are sums since the run began. The phases are those of the batch before.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from fencepost.driver.stateful.run import StatefulRun
from fencepost.fence import FenceRow
from fencepost.fence.cassandra.history import History
from fencepost.fence.cassandra.table import CassandraFenceTable
from fencepost.state.cassandra import CassandraChunks
from fencepost.state.checkpoint import Checkpoint
from fencepost.state.chunks import CHUNK
from fencepost.state.webhdfs.http_server import Answer, Request
from fencepost.state.webhdfs.name_service import NameService

log = logging.getLogger("fencepost.bench")
done: Counter[str] = Counter()
cpu: dict[threading.Thread, float] = {}
"""CPU-s of each thread of the name service that has answered, up to its newest answer."""


def install() -> None:
    """Count from here on."""
    _before(CassandraFenceTable, "swap", lambda *_: _add("lightweight transactions"))
    _before(History, "_insert_change", lambda *_: _add("rows of the history"))
    _before(CassandraChunks, "write", lambda _, __, parts: _stored(parts))
    _before(Checkpoint, "complete", lambda _, __, length: _completed(length))
    handle = NameService.handle

    def handled(service: NameService, request: Request) -> Answer:
        operation = request.parameters.get("op", "").upper()
        answer = handle(service, request)
        _add(f"request {operation}")
        cpu[threading.current_thread()] = time.thread_time()
        return answer

    NameService.handle = handled  # type: ignore[assignment, method-assign]
    committed = StatefulRun.committed

    def and_say(run: StatefulRun, row: FenceRow) -> None:
        records = run.hand.records
        committed(run, row)
        if records:
            reports: Any = run._query._reports  # type: ignore[attr-defined]
            progress = reports._query.lastProgress()
            progressed = {} if progress is None else json.loads(progress.json())
            fields = {
                "records": records,
                "spark": progressed.get("durationMs", {}),
                "state": [_of_operator(each) for each in progressed.get("stateOperators", ())],
                "done": {**done, "server ms": 1000 * sum(cpu.values())},
            }
            log.info("observed", extra={"fields": fields})

    StatefulRun.committed = and_say  # type: ignore[assignment, method-assign]


def _of_operator(progressed: dict[str, Any]) -> dict[str, int]:
    """Return the times and counts of a state operator in a batch, but those that are zero."""
    found = {name: value for name, value in progressed.items() if name.endswith("TimeMs")} | progressed["customMetrics"]
    return {name: value for name, value in found.items() if value}


def _add(what: str, count: int = 1) -> None:
    done[what] += count


def _stored(parts: dict[int, bytes]) -> None:
    _add("lists of files")
    _add("bytes of lists of files", sum(map(len, parts.values())))


def _completed(length: int) -> None:
    _add("files")
    _add("chunks", -(-length // CHUNK))
    _add("bytes", length)


def _before(kind: type, name: str, look: Callable[..., None]) -> None:
    method = getattr(kind, name)

    def looked_at(*args: Any, **kwargs: Any) -> Any:
        look(*args)
        return method(*args, **kwargs)

    setattr(kind, name, looked_at)
