"""The PostgreSQL example's sink, which waits at one step for the test to kill the driver."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from fencepost_postgresql.sink import PostgresqlSink, StagingTask

from fencepost.sinks import BatchToken, SinkContext


def halt(step: str, dsn: str, wanted: str) -> None:
    """Say that the step is reached, and wait to be killed."""
    if step != wanted:
        return
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("INSERT INTO halted VALUES (%s)", [step])
    time.sleep(600)


class HaltingSink(PostgresqlSink):
    """Halts at the step of the variable HALT_AT, in the third batch of the run."""

    def __init__(self, options: Mapping[str, str], context: SinkContext) -> None:
        super().__init__(options, context)
        self._dsn = options["dsn"]
        self._batches = 0

    @property
    def _wanted(self) -> str:
        return os.environ.get("HALT_AT", "") if self._batches == 3 else ""

    def begin(self, batch: BatchToken) -> None:
        self._batches += 1
        super().begin(batch)
        halt("begun", self._dsn, self._wanted)

    def task(self) -> Any:
        return HaltingTask(self._target, self._wanted, self._dsn)

    def finish(self, batch: BatchToken) -> None:
        halt("staged", self._dsn, self._wanted)
        super().finish(batch)
        halt("stored", self._dsn, self._wanted)


@dataclass(frozen=True)
class HaltingTask:
    """Halts with some of its rows staged, and not committed."""

    target: Any
    wanted: str
    dsn: str

    def write(self, batches: Iterable[Any], batch: BatchToken) -> Iterator[int]:
        for count in StagingTask(self.target).write(batches, batch):
            yield count
            if count:
                halt("staging", self.dsn, self.wanted)
