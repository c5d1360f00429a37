"""Operators and drivers on one fence row: the real protocol code in threads, each with a session of its own.

Operators create, take over, rewind, release and create again; drivers claim, plan, write rows, commit, freeze, and act
on epochs that are over.  Nothing here knows which change was applied: `record` keeps what each one saw.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from cassandra import ConsistencyLevel
from cassandra.cluster import NoHostAvailable, OperationTimedOut, Session
from cassandra.query import SimpleStatement

from fencepost.contract import CassandraEndpoint
from fencepost.fence import Fence, FenceError, FenceRow, FenceUnavailable, Starting
from fencepost.fence.cassandra.errors import translated
from fencepost.fence.cassandra.session import connect
from replicas.checker import PARTITION
from replicas.seen_requests import Record, RecordedTable, Write

PIPELINE: Final = "replicas/pipeline"
OUTPUT: Final = "output"
PATIENCE: Final = 8.0
"""Seconds for which a client pursues an unanswered change: a few faults' length."""
REQUEST: Final = 3.0
"""Seconds that a client waits for one answer; Cassandra gives up a little earlier."""
LONGEST_BATCH: Final = 5
"""Offsets of one batch."""


Act: TypeAlias = "Callable[[Client, Fence, RecordedTable], None]"
"""What a client does with one fence."""


@dataclass(slots=True)
class World:
    """What the clients share besides the row: which epoch runs, as a Job's arguments say, and when to end."""

    keyspace: str
    record: Record
    ended: threading.Event = field(default_factory=threading.Event)
    epochs: list[int] = field(default_factory=list)
    """Epochs that operators began, as they learnt of them; a driver takes one of the last ones."""
    commits: int = 0
    failures: list[str] = field(default_factory=list)
    names: itertools.count[int] = field(default_factory=itertools.count)

    def begun(self, row: FenceRow) -> None:
        """Offer the epoch to the drivers."""
        self.epochs.append(row.epoch)


@dataclass(slots=True)
class Client:
    """One thread with a session. Its fence is the real one over a table that records."""

    name: str
    world: World
    endpoint: CassandraEndpoint
    chance: random.Random
    consistency: str
    _table: RecordedTable | None = None

    def run(self, act: Act) -> None:
        """Act until the world ends; an error of the fence ends one act, and the next one begins with a new fence."""
        while not self.world.ended.is_set():
            try:
                table = self._connected()
                fence = Fence(table, PIPELINE, patience=PATIENCE)
                act(self, fence, table)
            except FenceError:
                self.pause(0.1, 0.5)
            except Exception as error:  # noqa: BLE001 - a thread reports what ends it
                self.world.failures.append(f"{self.name}: {type(error).__name__}: {error}")
                return
        if self._table is not None:
            self._table.close()

    def pause(self, least: float, most: float) -> None:
        """Wait for some seconds, or until the world ends."""
        self.world.ended.wait(self.chance.uniform(least, most))

    def _connected(self) -> RecordedTable:
        """Return the table, through one session for the client's whole life. Raises FenceError."""
        if self._table is None:
            session = connect(self.endpoint, credentials=None, request_timeout=REQUEST, consistency=self.consistency)
            self._table = RecordedTable.over(session, self.world.keyspace)
            self._table.record, self._table.client = self.world.record, self.name
        return self._table


def operate(client: Client, fence: Fence, _: RecordedTable) -> None:
    """Do one thing that an operator does, whatever the other operator does meanwhile."""
    promise = client.world.record.promise
    row = fence.read()
    if row is None:
        fence.create("owner")
        return
    match client.chance.choices(("replace", "fence", "rewind", "release", "look"), (40, 25, 10, 2, 23))[0]:
        case "replace":
            client.world.begun(promise(fence.take_over(row, owner="owner")))
        case "fence":
            client.world.begun(promise(fence.take_over_epoch(row.epoch, owner="owner")))
        case "rewind":
            # No driver has the new epoch's number before the rewind is done.
            taken = promise(fence.take_over(row, owner="owner"))
            offsets = {key: client.chance.randint(max(0, at - 20), at) for key, at in taken.offsets.items()}
            client.world.begun(promise(fence.rewind(taken, offsets=offsets, leader_epochs={}, growth_barrier={})))
        case "release":
            fence.release(row)
        case _:
            pass
    client.pause(0.5, 3.0)


def drive(client: Client, fence: Fence, table: RecordedTable) -> None:
    """Be one driver: claim an epoch, mostly the newest one, and commit until fenced."""
    if not client.world.epochs:
        client.pause(0.1, 0.3)
        return
    epoch = client.chance.choice(client.world.epochs[-3:])
    pod = f"pod-{next(client.world.names)}"
    promise = client.world.record.promise
    row = promise(fence.claim(epoch=epoch, driver=pod, code="code", start=starting))
    for _ in range(client.chance.randint(1, 60)):
        if client.world.ended.is_set():
            return
        row = promise(commit_batch(client, fence, table, row))
        client.world.commits += 1
        client.pause(0.0, 0.05)


def starting(row: FenceRow) -> Starting:
    """Return what a claim records: the pipeline begins at offset 0."""
    offsets = row.offsets or {PARTITION: 0}
    return Starting(offsets=offsets, planned={**offsets, **row.planned}, topic_ids={"topic": "id"})


def commit_batch(client: Client, fence: Fence, table: RecordedTable, row: FenceRow) -> FenceRow:
    """Plan, write and commit one batch; sometimes freeze before the commit, or write on as a zombie."""
    start = row.offsets[PARTITION]
    until = max(row.planned.get(PARTITION, 0), start + client.chance.randint(1, LONGEST_BATCH))
    planned = client.world.record.promise(fence.plan(row, offsets=row.offsets, planned={PARTITION: until}))
    value = f"{planned.driver}/{planned.version}"
    for offset in range(start, until):
        if client.chance.random() < 0.01:
            client.pause(1.0, 12.0)
        client.world.record.wrote(Write(offset, value, planned.write_timestamp, planned))
        _write(table.session, client.world.keyspace, offset, value, planned.write_timestamp)
    return fence.commit(
        planned, offsets={PARTITION: until}, planned={PARTITION: until}, records=until - start, duration_ms=1
    )


def _write(session: Session, keyspace: str, offset: int, value: str, timestamp: int) -> None:
    """Write one row of output until it is acknowledged. Raises FenceUnavailable."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with translated("writing output"):
                session.execute(
                    f"INSERT INTO {keyspace}.{OUTPUT} (pipeline, offset, value) VALUES (%s, %s, %s)"  # noqa: S608
                    f" USING TIMESTAMP {timestamp}",
                    (PIPELINE, offset, value),
                )
        except FenceUnavailable:
            if time.monotonic() > deadline:
                raise
        else:
            return


def output(session: Session, keyspace: str) -> dict[int, str]:
    """Return the whole output as all replicas agree on it. Raises FenceUnavailable."""
    statement = SimpleStatement(
        f"SELECT offset, value FROM {keyspace}.{OUTPUT} WHERE pipeline = %s",  # noqa: S608
        consistency_level=ConsistencyLevel.ALL,
    )
    try:
        return {found.offset: found.value for found in session.execute(statement, (PIPELINE,), timeout=60.0)}
    except (NoHostAvailable, OperationTimedOut) as error:
        raise FenceUnavailable(f"reading the output: {error}") from error
