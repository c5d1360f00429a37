"""How much more than a bare lightweight transaction does a commit at the fence cost?

Both are asked in turns, over one session, against the same node, so that what else the machine does falls on both.  The
order is random in each turn and a pause comes before each: a commit appends to its history without waiting, and what
was asked right after it would pay for that (measured so, a commit seemed cheaper than the update that it contains).
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

from bench.samples import Result, Sample
from fencepost.contract import CassandraEndpoint
from fencepost.fence import Fence, FenceRow, Starting
from fencepost.fence.cassandra.session import connect, is_applied
from fencepost.fence.cassandra.table import CassandraFenceTable, create_schema
from flights.console import Console
from testbed.environment import load

KEYSPACE: Final = "fencepost_bench"
ROUNDS: Final = 1_000
WARM: Final = 100
SETTLE_SECONDS: Final = 0.02
PARTITIONS: Final = 8
"""Kafka partitions in the offsets of the fence row."""


def measure(console: Console) -> Result:
    """Time commits, bare conditional updates and SERIAL reads."""
    with _session() as session:
        create_schema(session, KEYSPACE, {"class": "SimpleStrategy", "replication_factor": 1})
        timed = _TimedSession(session)
        fence, row = _claimed(timed)
        bare = _bare_update(session)
        wide = _wide_update(session)
        took: dict[str, list[float]] = {"commit": [], "cassandra": [], "wide": [], "bare": [], "read": []}
        held = [row]

        def commit() -> None:
            held[0] = _commit(fence, held[0])

        asked: list[tuple[str, Callable[[], object]]] = [
            ("commit", commit),
            ("wide", wide),
            ("bare", bare),
            ("read", fence.read),
        ]
        for turn in range(WARM + ROUNDS):
            console.live(f"commit: {turn} of {WARM + ROUNDS}")
            random.shuffle(asked)
            for name, ask in asked:
                time.sleep(SETTLE_SECONDS)
                before = time.perf_counter()
                ask()
                if turn >= WARM:
                    took[name].append((time.perf_counter() - before) * 1000)
                if turn >= WARM and name == "commit":
                    took["cassandra"].append(timed.last * 1000)
        session.execute(f"DROP KEYSPACE {KEYSPACE}")
    samples = [
        Sample("fence commit", "ms", took["commit"]),
        Sample("of it the request", "ms", took["cassandra"]),
        Sample("bare update of the same columns", "ms", took["wide"]),
        Sample("bare conditional update", "ms", took["bare"]),
        Sample("SERIAL read of the fence", "ms", took["read"]),
    ]
    commit_ms, request, wide_ms, bare_ms, _ = samples
    columns = wide_ms.percentile(0.5) - bare_ms.percentile(0.5)
    own = commit_ms.percentile(0.5) - request.percentile(0.5)
    ratios = (commit_ms.percentile(share) / bare_ms.percentile(share) for share in (0.5, 0.99))
    return Result(
        "commit",
        samples,
        {"partitions in the offsets": PARTITIONS, "nodes": 1},
        [
            "a commit is {:.2f} times a bare update at p50, {:.2f} times at p99".format(*ratios),
            f"its columns take {columns:.2f} ms of that at p50, Fencepost's own code {own:.2f} ms",
        ],
    )


class _TimedSession:
    """A session that knows how many seconds its last `execute` took."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.last = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def execute(self, *args: Any, **options: Any) -> Any:
        """Pass on, and keep the time."""
        before = time.perf_counter()
        try:
            return self._session.execute(*args, **options)
        finally:
            self.last = time.perf_counter() - before


@contextmanager
def _session() -> Iterator[Any]:
    there = load()
    session = connect(
        CassandraEndpoint(contact_points=(there.cassandra_host,), port=there.cassandra_port),
        credentials=(there.cassandra_username, there.cassandra_password),
    )
    try:
        yield session
    finally:
        session.cluster.shutdown()


def _claimed(session: Any) -> tuple[Fence, FenceRow]:
    """A fence whose row is claimed again, whatever state an earlier measurement left."""
    fence = Fence(CassandraFenceTable.over(session, KEYSPACE), "bench/bench/commit")
    row = fence.take_over(fence.create("bench"), owner="bench")
    offsets = {f"flights/{partition}": 1_000_000 for partition in range(PARTITIONS)}
    start = Starting(offsets=offsets, planned=offsets, topic_ids={"flights": "topic-id"})
    return fence, fence.claim(epoch=row.epoch, driver="bench", code="bench", start=lambda _: start)


def _commit(fence: Fence, row: FenceRow) -> FenceRow:
    moved = {key: offset + 100 for key, offset in row.offsets.items()}
    return fence.commit(row, offsets=moved, planned=moved, records=100 * len(moved), duration_ms=1)


def _bare_update(session: Any) -> Callable[[], None]:
    """A conditional update of one number in one row, prepared."""
    session.execute(f"CREATE TABLE IF NOT EXISTS {KEYSPACE}.bare (k text PRIMARY KEY, v bigint)")
    session.execute(f"INSERT INTO {KEYSPACE}.bare (k, v) VALUES ('k', 0)")  # noqa: S608 - a name cannot be bound
    statement = session.prepare(f"UPDATE {KEYSPACE}.bare SET v = ? WHERE k = 'k' IF v = ?")  # noqa: S608
    turns = itertools.count()

    def update() -> None:
        turn = next(turns)
        if not is_applied(session.execute(statement, (turn + 1, turn))):
            raise RuntimeError("a conditional update without contention was refused")

    return update


def _wide_update(session: Any) -> Callable[[], None]:
    """A conditional update with the columns and the conditions of a commit, prepared, without Fencepost's code."""
    session.execute(
        f"CREATE TABLE IF NOT EXISTS {KEYSPACE}.wide (pipeline text PRIMARY KEY, epoch bigint, version bigint,"
        " driver text, clock bigint, offsets frozen<map<text, bigint>>, planned frozen<map<text, bigint>>,"
        " committed_at timestamp, records bigint, duration_ms bigint)"
    )
    session.execute(f"INSERT INTO {KEYSPACE}.wide (pipeline, epoch, version, driver) VALUES ('k', 1, 0, 'bench')")  # noqa: S608
    statement = session.prepare(
        f"UPDATE {KEYSPACE}.wide SET version = ?, clock = ?, offsets = ?, planned = ?, committed_at = ?, records = ?,"  # noqa: S608
        " duration_ms = ? WHERE pipeline = ? IF epoch = ? AND version = ? AND driver = ?"
    )
    turns = itertools.count()

    def update() -> None:
        turn = next(turns)
        offsets = {f"flights/{partition}": turn for partition in range(PARTITIONS)}
        now = datetime.now(UTC)
        values = (turn + 1, turn, offsets, offsets, now, turn, 1, "k", 1, turn, "bench")
        if not is_applied(session.execute(statement, values)):
            raise RuntimeError("a conditional update without contention was refused")

    return update
