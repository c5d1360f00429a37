"""One campaign: three brokers, a producer, drivers on one fence row, faults, and what the checker finds."""

from __future__ import annotations

import json
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from cassandra.cluster import Session

from brokers.checker import Seen, forgotten, violations
from brokers.drivers import Drivers
from brokers.faults import schedule
from brokers.leaders import Replicas
from brokers.producer import PARTITIONS, Load
from flights.history import commits
from harness.kafka_log import read_log
from harness.waiting import NotInTimeError, eventually
from integration.driver.support import Pipeline, make, open_session
from integration.kafka.brokers import Cluster
from replicas.nodes import PORT, Ring, Shape
from testbed.environment import Environment

USERS: Final = (61001, 61002, 61003)
"""Of the brokers' processes, so that the network of one can be cut; nothing else of the machine runs as these."""
COMMITTED_WITHIN: Final = 600.0
"""Seconds in which everything is committed once the faults are over, on busy CPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to try. `tails` is the part of the faults that take an acknowledged tail by an unclean election."""

    name: str
    topic: Mapping[str, str]
    tails: float = 0.0
    faults: int = 60
    seed: int = 1

    @property
    def keeps(self) -> bool:
        """Whether Kafka promises to keep what it acknowledges."""
        return not self.tails


PLANS: Final = (
    Plan(name="leader-lost", topic={"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}),
    Plan(
        name="unclean-election",
        topic={"min.insync.replicas": "1", "unclean.leader.election.enable": "true"},
        tails=0.4,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What was seen. `broken` are the promises that do not hold, each as a sentence."""

    broken: tuple[str, ...]
    sent: int
    acknowledged: int
    lost: int
    """Records that Kafka acknowledged and does not hold."""
    losses: int
    commits: int
    epochs: int
    ends: Counter[str]
    faults: Counter[str]
    seconds: float = field(default=0.0)


def run(plan: Plan, environment: Environment, report: Callable[[str], None]) -> Result:
    """Play one plan. Raises NodeError, AssertionError where Cassandra or the brokers do not come up or back."""
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="fencepost-brokers-", ignore_cleanup_errors=True) as folder,
        _cassandra(environment, Path(folder) / "cassandra") as place,
        _kafka(environment, Path(folder) / "kafka") as cluster,
        _session(place) as session,
    ):
        report(f"{plan.name}: Cassandra and three brokers answer after {time.monotonic() - began:.0f} s")
        runs = Path(folder) / "runs"
        runs.mkdir()
        pipeline = make(place, session, runs, servers=cluster.servers, replicas=len(USERS), topic=plan.topic)
        try:
            return _play(plan, cluster, pipeline, report, began)
        finally:
            for one in pipeline.runs:
                one.end()


@contextmanager
def _session(environment: Environment) -> Iterator[Session]:
    session = open_session(environment)
    try:
        yield session
    finally:
        session.cluster.shutdown()


@contextmanager
def _cassandra(environment: Environment, folder: Path) -> Iterator[Environment]:
    """Start a node; yield the environment with it in place of the testbed's."""
    folder.mkdir()
    ring = Ring(docker=str(environment.docker), folder=folder, shape=Shape(nodes_each=1))
    try:
        ring.start()
        yield replace(environment, cassandra_host=ring.nodes[0].address, cassandra_port=PORT)
    finally:
        ring.remove()


@contextmanager
def _kafka(environment: Environment, folder: Path) -> Iterator[Cluster]:
    cluster = Cluster.start_apart(str(environment.docker), folder, USERS, replica_lag_time_max_ms="3000")
    try:
        yield cluster
    finally:
        cluster.remove()


def _play(plan: Plan, cluster: Cluster, pipeline: Pipeline, report: Callable[[str], None], began: float) -> Result:
    chance = random.Random(plan.seed)
    load = Load(cluster.servers, pipeline.topic, random.Random(plan.seed + 1), idempotent=plan.keeps)
    drivers = Drivers(pipeline, random.Random(plan.seed + 2), report)
    faults = schedule(Replicas(cluster, pipeline.topic), chance, report, tails=plan.tails)
    thread = threading.Thread(target=drivers.run, name="drivers")
    thread.start()
    stuck: list[str] = []
    try:
        with load.flowing():
            eventually("a commit", lambda: pipeline.committed_records() > 0 or drivers.failures, seconds=300)
            faults.inject(until=lambda: bool(drivers.failures), count=plan.faults)
        drivers.calm.set()
        stuck = caught_up(pipeline, load, drivers, cluster, report)
    finally:
        drivers.ended.set()
        thread.join()
    found = seen(pipeline, load, drivers, cluster, keeps=plan.keeps)
    return Result(
        broken=(*drivers.failures, *stuck, *violations(found)),
        sent=load.sent,
        acknowledged=len(load.acknowledged),
        lost=len(forgotten(found)),
        losses=len(drivers.accepted),
        commits=len(commits(pipeline.history())),
        epochs=pipeline.row().epoch,
        ends=drivers.ends,
        faults=faults.injected,
        seconds=time.monotonic() - began,
    )


def seen(pipeline: Pipeline, load: Load, drivers: Drivers, cluster: Cluster, *, keeps: bool) -> Seen:
    """Return what is there once nothing runs any more; `keeps` is whether Kafka must keep what it acknowledged."""
    return Seen(
        acknowledged=load.acknowledged,
        log=_log(cluster, pipeline),
        rows=[((row.partition, row.offset), row.n) for row in pipeline.rows()],
        changes=pipeline.history(),
        losses=drivers.accepted,
        keeps=keeps,
    )


def caught_up(
    pipeline: Pipeline, load: Load, drivers: Drivers, cluster: Cluster, report: Callable[[str], None]
) -> list[str]:
    """Wait until all is committed that Kafka holds; return what to report when it is not.

    Kafka first takes new records at every offset that has a row, since a row of a lost record stays until then.
    """
    reached: Counter[int] = Counter()
    for row in pipeline.rows():
        reached[row.partition] = max(reached[row.partition], row.offset + 1)
    ends = Counter(partition for partition, _ in _log(cluster, pipeline))
    for partition in range(PARTITIONS):
        load.fill(partition, max(0, reached[partition] - ends[partition]) + 1)
    held = _log(cluster, pipeline)
    report(f"Kafka holds {len(held)} records")
    wanted = {
        f"{pipeline.topic}/{partition}": 1 + max(offset for number, offset in held if number == partition)
        for partition in range(PARTITIONS)
    }
    try:
        eventually(
            f"{wanted} are committed",
            lambda: dict(pipeline.row().offsets) == wanted or bool(drivers.failures),
            seconds=COMMITTED_WITHIN,
        )
    except NotInTimeError as late:
        return [f"{late}; committed: {dict(pipeline.row().offsets)}"]
    return []


def _log(cluster: Cluster, pipeline: Pipeline) -> dict[tuple[int, int], int]:
    """Return the number at each place of the log."""
    records = read_log(cluster.servers, pipeline.topic)
    return {(record.partition, record.offset): json.loads(record.value)["n"] for record in records}
