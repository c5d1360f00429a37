"""A Lease in memory, and replicas that share it: each with a clock of its own that tests stop and set."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from fencepost_operator.errors import Conflict, Unreachable
from fencepost_operator.ports import LeaseRecord
from fencepost_operator.runtime.leadership import Leadership

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class FakeLeases:
    """The API server's one Lease. `down`: no answer; `loses_answers`: a write takes effect and is not answered."""

    record: LeaseRecord | None = None
    down: bool = False
    loses_answers: bool = False
    writes: list[LeaseRecord] = field(default_factory=list)
    before_write: Callable[[], None] = lambda: None
    _versions: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    async def read(self) -> LeaseRecord | None:
        """Return the Lease."""
        if self.down:
            raise Unreachable("no answer")
        return self.record

    async def write(self, record: LeaseRecord) -> LeaseRecord:
        """Write it on condition of the version."""
        if self.down:
            raise Unreachable("no answer")
        self.before_write()
        if record.resource_version != (self.record.resource_version if self.record is not None else ""):
            raise Conflict("somebody else was faster")
        self.record = replace(record, resource_version=str(next(self._versions)))
        self.writes.append(self.record)
        if self.loses_answers:
            raise Unreachable("no answer to a write")
        return self.record


@dataclass(slots=True)
class Replica:
    """One replica's leadership by a clock that only the test moves; sleeping moves it, and nobody else's."""

    leases: FakeLeases
    holder: str
    seconds: float = 0.0
    wall: datetime = START
    slept: Callable[[], None] = lambda: None
    leadership: Leadership = field(init=False)

    def __post_init__(self) -> None:
        self.leadership = Leadership(
            self.leases, holder=self.holder, clock=self, monotonic=lambda: self.seconds, sleep=self.sleep
        )

    def now(self) -> datetime:
        """Return wall time."""
        return self.wall

    def pass_time(self, seconds: float) -> None:
        """Let time pass by both clocks."""
        self.seconds += seconds
        self.wall += timedelta(seconds=seconds)

    async def sleep(self, seconds: float) -> None:
        """Let that time pass, then what the test wants to happen."""
        self.pass_time(seconds)
        self.slept()
