"""An observation asks for the progress of a batch where it can matter, and never takes the unknown for absent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar, cast

import pytest

from fakes.gate import Gate
from fakes.manifests import spec
from fakes.ports import ports_of
from fakes.world import World
from fencepost.fence import BatchProgress, FenceRow, heartbeat_key
from fencepost_operator.api import CommittedStatus, KafkaConnection, ObjectKey, ReconcileConfig, Rewind, RunStatus
from fencepost_operator.observation import (
    DRIVER_ONLY,
    Known,
    NotAsked,
    TopicSettings,
    Unknown,
    UnreadRecords,
    Watermarks,
)
from fencepost_operator.ports import Rewinds
from fencepost_operator.runtime.passes.observer import Observer
from fencepost_operator.turns import Turns

T = TypeVar("T")
KEY = ObjectKey("shop", "orders")
NAME = "default/shop/orders"
IN_A_BATCH = FenceRow(
    pipeline=NAME, owner="me", epoch=1, driver="pod", version=3, offsets={"o/0": 1}, planned={"o/0": 9}
)


@pytest.fixture
def world() -> World:
    made = World(ends={"o/0": 9}, rate=0.0)
    metadata = {"namespace": "shop", "name": "orders", "uid": "uid-1", "generation": 1, "resourceVersion": "1"}
    made.apply({"metadata": metadata, "spec": spec(), "status": {"observedGeneration": -1}})
    return made


async def progress(world: World, row: FenceRow) -> object:
    ports = ports_of(world)
    config = ReconcileConfig(cluster_uid="c", scope="default")
    world.table.rows[NAME] = row
    pipeline = await ports.pipelines.read(KEY)
    assert pipeline is not None
    return (await Observer(ports, config).observe(pipeline)).progress


async def test_progress_is_seen_while_a_batch_is_in_progress(world: World) -> None:
    world.table.now = lambda: 1_700_000_000_000_000
    world.table.report_progress(NAME, epoch=1, version=3, done=4)
    at = datetime.fromtimestamp(1_700_000_000, UTC)
    assert await progress(world, IN_A_BATCH) == Known(BatchProgress(epoch=1, version=3, done=4, at=at))


@pytest.mark.parametrize("row", [replace(IN_A_BATCH, planned=IN_A_BATCH.offsets), replace(IN_A_BATCH, driver=None)])
async def test_progress_is_not_asked_for_where_no_batch_is_in_progress(world: World, row: FenceRow) -> None:
    asked: list[str] = []
    world.table.before = asked.append
    assert await progress(world, row) == NotAsked()
    assert "read_progress" not in asked


@pytest.mark.parametrize(
    ("waits", "version", "ended", "asks"),
    [
        (True, IN_A_BATCH.version, False, True),
        (True, 1, False, False),
        (False, IN_A_BATCH.version, False, False),
        (True, IN_A_BATCH.version, True, False),
    ],
)
async def test_heartbeats_are_asked_for_while_records_wait_and_the_row_stays(
    waits: bool, version: int, ended: bool, asks: bool, world: World
) -> None:
    world.table.rows[NAME] = IN_A_BATCH
    world.table.now = lambda: 1_700_000_000_000_000
    world.table.report_progress(heartbeat_key(NAME), epoch=1, version=3, done=0)
    ports = ports_of(world)
    pipeline = await ports.pipelines.read(KEY)
    assert pipeline is not None
    committed = CommittedStatus(version=version, since=datetime.now(UTC) if waits else None)
    now = datetime.now(UTC)
    run = RunStatus(
        name="orders-run-1", epoch=1, spec_hash="h", cluster_generation=1, recorded_at=now, created_at=now,
        ended_at=now if ended else None,
    )  # fmt: skip
    pipeline = replace(pipeline, status=replace(pipeline.status, committed=committed, run=run))
    found = await Observer(ports, ReconcileConfig(cluster_uid="c", scope="default")).observe(pipeline)
    beat = BatchProgress(epoch=1, version=3, done=0, at=datetime.fromtimestamp(1_700_000_000, UTC))
    assert found.heartbeat == (Known(beat) if asks else NotAsked())


async def test_a_cassandra_that_does_not_answer_is_not_waited_for_twice(world: World) -> None:
    asked: list[str] = []
    ports = ports_of(world, Asked(asked))
    world.cassandra_down = True
    pipeline = await ports.pipelines.read(KEY)
    assert pipeline is not None
    assert pipeline.status.snapshots is None, "nothing is known of the snapshots yet"
    found = await Observer(ports, ReconcileConfig(cluster_uid="c", scope="default")).observe(pipeline)
    assert isinstance(found.snapshots, Unknown)
    assert "fence" in asked
    assert "snapshots" not in asked


class Asked(Gate):
    """Notes which facts are read."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names = names

    async def read(self, name: str, fact: Callable[[], T]) -> T:
        self.names.append(name)
        return await super().read(name, fact)


async def test_progress_is_unknown_when_cassandra_does_not_answer(world: World) -> None:
    world.cassandra_down = True
    assert isinstance(await progress(world, IN_A_BATCH), Unknown)


class DriverOnly:
    async def ends(self, _connection: KafkaConnection, *, age: float = 0.0) -> Watermarks | None:
        del age
        return None

    async def unread(self, *_facts: object) -> UnreadRecords:
        raise AssertionError("must not be called")

    async def at(self, _connection: KafkaConnection, _timestamp: datetime) -> Mapping[str, int]:
        raise AssertionError("must not be called")

    async def settings(self, _connection: KafkaConnection) -> Mapping[str, TopicSettings] | None:
        return None


@pytest.mark.parametrize(
    ("row", "source"),
    [
        (replace(IN_A_BATCH, log_ends={"o/0": 12}), Known(Watermarks(ends={"o/0": 12}, by_driver=True))),
        (None, Known(Watermarks(ends={}, by_driver=True))),
    ],
)
async def test_where_only_the_driver_may_connect_the_row_has_the_logs_ends(
    world: World, row: FenceRow | None, source: object
) -> None:
    ports = replace(ports_of(world), offsets=DriverOnly())
    if row is not None:
        world.table.rows[NAME] = row
    pipeline = await ports.pipelines.read(KEY)
    assert pipeline is not None
    found = await Observer(ports, ReconcileConfig(cluster_uid="c", scope="default")).observe(pipeline)
    assert (found.source, found.unread) == (source, DRIVER_ONLY)


async def test_where_only_the_driver_may_connect_an_unreadable_row_is_unknown(world: World) -> None:
    ports = replace(ports_of(world), offsets=DriverOnly())
    world.cassandra_down = True
    pipeline = await ports.pipelines.read(KEY)
    assert pipeline is not None
    found = await Observer(ports, ReconcileConfig(cluster_uid="c", scope="default")).observe(pipeline)
    assert isinstance(found.source, Unknown)


async def test_time_in_the_operators_own_queue_is_not_the_servers(world: World) -> None:
    """With more pipelines than turns, Cassandra read as unreachable while it answered at once."""
    ports, turns = ports_of(world), Turns("a test", limit=1)
    await turns.acquire("other")
    asyncio.get_running_loop().call_later(0.1, turns.release, "other")

    class Queued:
        async def unfinished(self, _key: ObjectKey, *, expected: bool) -> tuple[Rewind, ...]:
            assert not expected
            async with turns.turn("shop"):
                return ()

        def __getattr__(self, name: str) -> object:
            return getattr(ports.rewinds, name)

    ports = replace(ports, rewinds=cast("Rewinds", Queued()))
    pipeline = await ports.pipelines.read(KEY)
    assert pipeline is not None
    config = ReconcileConfig(cluster_uid="c", scope="default", observation_timeout=0.05)
    assert (await Observer(ports, config).observe(pipeline)).rewinds == Known(())
