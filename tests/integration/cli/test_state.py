"""`fencepost state` on what a driver has committed, with real Spark, Kafka and Cassandra."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from fencepost.contract import CassandraSink, PinnedState, Reason, StateConfig
from fencepost.fence.cassandra.snapshots import SnapshotTable
from fencepost.fence.snapshots import Trigger, snapshot_id, snapshot_of, take
from fencepost_operator.api import ObjectKey
from integration.cli.scene import SCOPE, Scene, described
from integration.driver.support import Pipeline, make, open_session
from integration.driver.trials import end_of_trial, tried
from present import present
from testbed.environment import load

pytestmark = pytest.mark.integration

TABLE = "CREATE TABLE driver_tests.{0} (minute bigint, key text, count bigint, PRIMARY KEY (minute, key))"
BATCH: Final = 60
START: Final = 1_767_225_600
"""When the first record happened, in seconds: 2026-01-01."""
SNAPSHOT: Final = "half"


@dataclass(frozen=True, slots=True)
class Counted:
    """A pipeline that counted a batch, was copied to a snapshot, and counted another batch."""

    scene: Scene
    pipeline: Pipeline
    snapshot: str
    at_snapshot: dict[str, int]
    now: dict[str, int]


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    environment = load()
    session = open_session(environment)
    one = make(environment, session, tmp_path_factory.mktemp("drivers"), topic={"retention.ms": "-1"})
    key = ObjectKey(f"test-cli-{uuid.uuid4().hex[:8]}", "counts")
    session.execute(f"DROP TABLE driver_tests.{one.topic}", timeout=60)
    session.execute(TABLE.format(one.topic), timeout=60)
    one.config = replace(
        one.config,
        pipeline=f"{SCOPE}/{key}",
        entrypoint="counts:stream",
        args=("1 hour",),
        state=StateConfig(partitions=2, max_bytes=1 << 28, data_port=0),
    )
    first, second = records(BATCH), records(2 * BATCH)[BATCH:]
    try:
        one.kafka.send(one.topic, first)
        run = one.start()
        one.wait_committed(BATCH)
        at = snapshot_id(datetime.now(UTC), SNAPSHOT)
        store = SnapshotTable(session, one.config.fence_keyspace)
        take(
            one.config.pipeline,
            lambda: snapshot_of(one.row(), id=at, trigger=Trigger.ON_DEMAND, name=SNAPSHOT),
            store,
        )
        one.kafka.send(one.topic, second)
        one.wait_committed(2 * BATCH)
        run.stop()
        with described(environment, key, one.config):
            scene = Scene(environment, key, one.topic, session, one.row())
            yield Counted(scene, one, str(at), at_snapshot=counts(first), now=counts(first + second))
    finally:
        for each in one.runs:
            each.end()
        session.execute(f"DROP TABLE IF EXISTS driver_tests.{one.topic}", timeout=30)
        one.kafka.delete(one.topic)
        session.cluster.shutdown()


def records(count: int) -> list[dict[str, object]]:
    """One per second, of three keys."""
    return [
        {"key": f"k{number % 3}", "value": b"", "partition": number % 4, "timestamp": (START + number) * 1000}
        for number in range(count)
    ]


def counts(sent: list[dict[str, object]]) -> dict[str, int]:
    return dict(Counter(str(record["key"]) for record in sent))


def test_the_state_of_a_run_is_listed_queried_at_a_snapshot_and_exported(counted: Counted, tmp_path: Path) -> None:
    scene, name = counted.scene, str(counted.scene.key)
    shown = scene.json("state", "show", name)
    assert (shown["pipeline"], shown["version"]) == (f"{SCOPE}/{name}", scene.row.version)
    (operator,) = shown["operators"]
    assert (operator["name"], operator["partitions"]) == ("stateStoreSave", 2)
    assert operator["stores"] == [{"name": "default", "rows": 2 * len(counted.now)}]
    assert operator["bytes"] > 0

    rows = scene.json("state", "query", name, "--snapshot", SNAPSHOT)["rows"]
    assert {row["key"]["key"]: row["value"]["count"] for row in rows} == counted.at_snapshot

    folder = tmp_path / "exported"
    exported = scene.json("state", "export", name, "--format", "jsonl", "--to", str(folder))
    lines = [json.loads(line) for file in folder.glob("*.json") for line in file.read_text().splitlines()]
    assert exported["rows"] == len(lines)
    found = Counter[str]()
    for line in lines:
        found[line["key"]["key"]] += line["value"]["count"]
    assert found == counted.now


@pytest.mark.long
def test_a_pipeline_that_pins_the_snapshot_reads_its_rows_after_the_other_has_committed_more(
    counted: Counted, tmp_path: Path
) -> None:
    one, name = counted.pipeline, f"{counted.pipeline.topic}_enriched"
    one.session.execute(TABLE.format(name), timeout=60)
    pin = PinnedState(name="counts", pipeline=one.config.pipeline, snapshot=counted.snapshot)
    another = replace(
        one,
        config=replace(
            one.config,
            pipeline=f"{one.config.pipeline}-enriched",
            entrypoint="enriched:transform",
            args=(),
            state=None,
            sinks=(CassandraSink(name="rows", keyspace="driver_tests", table=name),),
            pinned_states=(pin,),
        ),
        runs=[],
    )
    try:
        run = another.start()
        another.wait_committed(2 * BATCH)
        run.stop()
        rows = list(one.session.execute(f"SELECT key, count FROM driver_tests.{name}"))  # noqa: S608 - our own name
        found = tried(another, tmp_path / "trial", (), {})
    finally:
        for each in another.runs:
            each.end()
        one.session.execute(f"DROP TABLE IF EXISTS driver_tests.{name}", timeout=30)
    assert {row.key: row.count for row in rows} == counted.at_snapshot
    assert found.records == 2 * BATCH
    assert (found.sinks[0].changed, found.sinks[0].added) == (0, 0), "a trial reads the same rows"
    assert found.sinks[0].equal > 0


@pytest.mark.long
def test_a_trial_continues_from_the_snapshot_with_new_code_and_writes_nothing(counted: Counted, tmp_path: Path) -> None:
    """The pipeline counted the first batch; the trial counts the second one on top of that state."""
    one = counted.pipeline
    start = SnapshotTable(one.session, one.config.fence_keyspace).read(one.config.pipeline, uuid.UUID(counted.snapshot))
    before = one.history(), one.row()
    found = tried(
        one,
        tmp_path / "same",
        one.config.args,
        dict(present(start).offsets),
        snapshot=counted.snapshot,
        show_values=True,
    )
    assert (found.records, found.is_complete) == (BATCH, True)
    assert (found.sinks[0].changed, found.sinks[0].added) == (0, 0), found.samples
    assert found.sinks[0].equal > 0
    assert (one.history(), one.row()) == before
    other = replace(one, config=replace(one.config, entrypoint="counts:halves"))
    found = tried(other, tmp_path / "other", one.config.args, dict(present(start).offsets), snapshot=counted.snapshot)
    assert found.sinks[0].changed > 0


def test_a_trial_of_code_that_does_not_fit_the_state_names_what_changed(counted: Counted, tmp_path: Path) -> None:
    one = counted.pipeline
    start = SnapshotTable(one.session, one.config.fence_keyspace).read(one.config.pipeline, uuid.UUID(counted.snapshot))
    other = replace(one, config=replace(one.config, entrypoint="counts:by_key_alone"))
    ended = end_of_trial(other, tmp_path / "unfit", (), dict(present(start).offsets), snapshot=counted.snapshot)
    assert ended.reason == Reason.STATE_INCOMPATIBLE, ended.message
