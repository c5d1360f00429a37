"""The driver's half of the HTTP sink: whether the frame's columns make requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from fencepost.contract import HttpSink, Reason
from fencepost.errors import BadSpec
from fencepost.sinks.http.requests import RequestTask
from fencepost.sinks.interface import Sink

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "partition": ("int",),
    "offset": ("bigint",),
    "i": ("int", "bigint"),
    "path": ("string",),
    "body": ("binary", "string"),
}
REQUIRED: Final = ("topic", "partition", "offset", "body")
RESERVED: Final = frozenset({
    "connection", "content-length", "fencepost-token", "host", "idempotency-key", "transfer-encoding",
})  # fmt: skip
"""Headers that a Secret may not set."""
_VALUE: Final = re.compile(r"[\x20-\x7e]*")
"""Of a header. Python's client would show another one in its error."""


class OutboxSink(Sink):
    """One declared sink. The server distinguishes repeated requests by their keys."""

    def __init__(self, name: str, task: RequestTask) -> None:
        self._name = name
        self._task = task

    def check(self, schema: StructType) -> None:
        """Raise BadSpec naming every column that is not part of a request."""
        columns = {field.name: field.dataType.simpleString() for field in schema.fields}
        problems = [
            f"column {name!r} is {found}, and it must be {' or '.join(COLUMNS[name])}"
            if name in COLUMNS
            else f"column {name!r} is not one of a request's, {', '.join(COLUMNS)}"
            for name, found in columns.items()
            if found not in COLUMNS.get(name, ())
        ]
        problems += [f"column {name!r} is missing" for name in REQUIRED if name not in columns]
        if problems:
            raise BadSpec(
                f"sink {self._name!r}: {'; '.join(problems)}",
                reason=Reason.SINK_MISMATCH,
                remedy="Make the transform return a request's columns: see docs/sinks.md.",
            )

    def task(self) -> RequestTask:
        """Return the task's half."""
        return self._task


def bind(sink: HttpSink, headers: Mapping[str, str], *, pipeline: str, patience: float) -> OutboxSink:
    """Return a declared sink. Raises BadSpec for a header that the sink sets itself, or whose value cannot be one."""
    if taken := sorted(name for name in headers if name.lower() in RESERVED):
        raise BadSpec(
            f"sink {sink.name!r}: the Secret of headersFrom has {', '.join(taken)}, which the sink sets itself",
            reason=Reason.SINK_INVALID,
        )
    if broken := sorted(name for name, value in headers.items() if not _VALUE.fullmatch(value)):
        raise BadSpec(
            f"sink {sink.name!r}: in the Secret of headersFrom, the value of {', '.join(broken)} has a line break or"
            " another character that a header cannot have",
            reason=Reason.SINK_INVALID,
            remedy="Write each value in one line of printable ASCII.",
        )
    task = RequestTask(
        sink=sink.name,
        url=sink.url.rstrip("/"),
        method=sink.method,
        headers={"Content-Type": sink.content_type, **headers},
        parallelism=sink.parallelism,
        timeout=sink.timeout,
        owner=f"{pipeline}/{sink.name}",
        patience=patience,
    )
    return OutboxSink(sink.name, task)
