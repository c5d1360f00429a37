"""One campaign: a ring, clients on one fence row, faults, and what the checker finds."""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from fencepost.contract import LOCAL_SERIAL, SERIAL
from fencepost.fence import FenceRow, FenceUnavailable
from fencepost.fence.cassandra.session import connect
from fencepost.fence.cassandra.table import CassandraFenceTable, create_schema
from replicas.checker import history, violations, wrong_output
from replicas.clients import OUTPUT, PIPELINE, Act, Client, World, drive, operate, output
from replicas.faults import schedule
from replicas.nodes import NodeError, Ring, Shape
from replicas.regions import Losses, Region
from replicas.seen_requests import Answer, Record

KEYSPACE: Final = "replicas"
OPERATORS: Final = 2
DRIVERS: Final = 4
LIVELY: Final = 120.0
"""Seconds without a fault in which clients must commit, on busy CPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to try. `everywhere` puts clients into every datacenter, else all are in the first one."""

    name: str
    shape: Shape
    serial: str = SERIAL
    everywhere: bool = True
    has_regions: bool = False
    """Each datacenter has an operator and a driver, and the faults are losses of whole datacenters."""
    faults: int = 100
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What was seen. `broken` are the promises that do not hold, each as a sentence."""

    broken: tuple[str, ...]
    versions: int
    epochs: int
    commits: int
    calls: int
    unknown: int
    faults: Counter[str]
    seconds: float
    losses: Losses | None = None


PLANS: Final = (
    Plan(name="one-datacenter", shape=Shape()),
    Plan(name="one-datacenter-paxos-v1", shape=Shape(paxos="v1")),
    Plan(name="two-datacenters", shape=Shape(datacenters=("dc1", "dc2"))),
    Plan(name="two-datacenters-paxos-v1", shape=Shape(datacenters=("dc1", "dc2"), paxos="v1")),
    Plan(name="local-serial", shape=Shape(datacenters=("dc1", "dc2")), serial=LOCAL_SERIAL, everywhere=False),
)
"""Where every promise must hold."""
REGIONS: Final = (
    Plan(
        name="regions-in-three-datacenters",
        shape=Shape(datacenters=("dc1", "dc2", "dc3"), nodes_each=1),
        has_regions=True,
        faults=200,
    ),
    Plan(
        name="regions-in-two-datacenters",
        shape=Shape(datacenters=("dc1", "dc2"), nodes_each=1),
        has_regions=True,
        faults=20,
    ),
)
"""Failover: in three datacenters commits continue while one of them is lost, in two they do not."""
APART: Final = Plan(
    name="local-serial-in-both-datacenters", shape=Shape(datacenters=("dc1", "dc2")), serial=LOCAL_SERIAL, faults=10
)
"""LOCAL_SERIAL with clients of one pipeline in two datacenters: this must break, and shows how."""


def run(plan: Plan, report: Callable[[str], None], *, docker: str) -> Result:
    """Play one plan. Raises NodeError, FenceError where the ring does not come up or back."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fencepost-replicas-") as folder, _ring(plan, docker, folder) as ring:
        report(f"{plan.name}: {len(ring.nodes)} nodes answer after {time.monotonic() - began:.0f} s")
        _create(ring, plan)
        world = World(keyspace=KEYSPACE, record=Record())
        regions = {name: Region(name) for name in plan.shape.datacenters} if plan.has_regions else {}
        threads = _started(_in_regions(ring, plan, world, regions) if regions else _clients(ring, plan, world))
        chance = random.Random(plan.seed)
        faults, losses = schedule(ring, chance, report), Losses(ring, regions, chance, report)
        stuck: list[str] = []
        try:
            if slow := _await_commits(world, since=0):
                raise NodeError(f"before the first fault: {slow[0]}")
            if regions:
                stuck = losses.play(plan.faults, owner=world.record.owner, until=lambda: bool(world.failures))
            else:
                faults.inject(until=lambda: bool(world.failures), count=plan.faults)
            ring.heal()
            stuck += _await_commits(world, since=world.commits)
        finally:
            world.ended.set()
            for thread in threads:
                thread.join()
        final, stored = _end(ring, plan)
    broken = [*world.failures, *stuck, *violations(world.record, final)]
    if final is not None:
        broken += wrong_output(world.record, final, stored)
    if regions:
        result = _result(world, broken, Counter(losses.kinds), time.monotonic() - began)
        return replace(result, losses=losses)
    return _result(world, broken, faults.injected, time.monotonic() - began)


@contextmanager
def _ring(plan: Plan, docker: str, folder: str) -> Iterator[Ring]:
    ring = Ring(docker=docker, folder=Path(folder), shape=plan.shape)
    try:
        ring.start()
        yield ring
    finally:
        ring.remove()


def _create(ring: Ring, plan: Plan) -> None:
    session = connect(
        ring.endpoint(datacenter=None, serial_consistency=plan.serial), credentials=None, request_timeout=30.0
    )
    try:
        create_schema(session, KEYSPACE, plan.shape.replication)
        session.execute(
            f"CREATE TABLE IF NOT EXISTS {KEYSPACE}.{OUTPUT}"
            " (pipeline text, offset bigint, value text, PRIMARY KEY (pipeline, offset))"
        )
    finally:
        session.cluster.shutdown()


def _clients(ring: Ring, plan: Plan, world: World) -> Iterator[tuple[Client, Act]]:
    for index in range(OPERATORS + DRIVERS):
        datacenter = plan.shape.datacenters[index % len(plan.shape.datacenters) if plan.everywhere else 0]
        act = operate if index < OPERATORS else drive
        client = Client(
            name=f"{act.__name__}-{index}",
            world=world,
            endpoint=ring.endpoint(datacenter=datacenter, serial_consistency=plan.serial),
            chance=random.Random(plan.seed * 1000 + index),
            consistency="LOCAL_QUORUM",
        )
        yield client, act


def _in_regions(ring: Ring, plan: Plan, world: World, regions: dict[str, Region]) -> Iterator[tuple[Client, Act]]:
    for index, (region, act) in enumerate((one, act) for one in regions.values() for act in (one.operate, one.drive)):
        client = Client(
            name=f"{act.__name__}-{region.name}",
            world=world,
            endpoint=ring.endpoint(datacenter=region.name, serial_consistency=plan.serial),
            chance=random.Random(plan.seed * 1000 + index),
            consistency="QUORUM",
        )
        yield client, act


def _started(clients: Iterable[tuple[Client, Act]]) -> list[threading.Thread]:
    threads = [threading.Thread(target=client.run, args=(act,), name=client.name) for client, act in clients]
    for thread in threads:
        thread.start()
    return threads


def _await_commits(world: World, *, since: int) -> list[str]:
    """Return when clients have committed again, or what to report when they do not."""
    deadline = time.monotonic() + LIVELY
    while world.commits < since + 10:
        if time.monotonic() > deadline:
            return [f"no 10 commits in {LIVELY:.0f} s without a fault"]
        time.sleep(0.2)
    return []


def _end(ring: Ring, plan: Plan) -> tuple[FenceRow | None, dict[int, str]]:
    """Return the row and the output as they are once nothing runs any more."""
    endpoint = ring.endpoint(datacenter=plan.shape.datacenters[0], serial_consistency=plan.serial)
    deadline = time.monotonic() + 120
    while True:
        try:
            session = connect(endpoint, credentials=None, request_timeout=10.0, consistency="LOCAL_QUORUM")
            try:
                row = CassandraFenceTable.over(session, KEYSPACE).read(PIPELINE)
                return row, output(session, KEYSPACE)
            finally:
                session.cluster.shutdown()
        except FenceUnavailable as error:
            if time.monotonic() > deadline:
                raise NodeError(f"the ring does not answer at the end: {error}") from error
            time.sleep(1.0)


def _result(world: World, broken: list[str], faults: Counter[str], seconds: float) -> Result:
    chain = history(world.record.calls)
    return Result(
        broken=tuple(broken),
        versions=len(chain),
        epochs=len({row.epoch for row in chain}),
        commits=world.commits,
        calls=len(world.record.calls),
        unknown=sum(call.answer is Answer.UNKNOWN for call in world.record.calls),
        faults=faults,
        seconds=seconds,
    )
