"""PyFlink beside the contestants: the time per block of records, by what its checkpoints commit to the consumer group.

Flink has no batches.  Its times are those of so many records of a backlog, and small batches have no counterpart.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient

from bench import cpu
from bench.contest import RUN_SECONDS, ContestError
from bench.stage import build_contestant, make_namespace
from bench.stateful.contest import Measured
from bench.stateful.contestants import BLOCKS, Block, blocks, records
from demo.scene import Scene
from testbed.cluster import WORKERS

IMAGE: Final = "fencepost-flink:dev"
POD: Final = "flink"
FOLDER: Final = Path(__file__).parents[1] / "flink"
CHECKPOINTS: Final = "1s"
LOOK_SECONDS: Final = 0.2

Progress = tuple[float, int]
"""Seconds since 1970, and the records that are committed then."""


def run(scene: Scene, query: str) -> list[Measured]:
    """Let PyFlink read all records. Raises ContestError, CannotMeterError, StepError, CommandError."""
    schedule = BLOCKS[query]
    group = f"flink-{time.time_ns()}"
    build_contestant(FOLDER, IMAGE)
    make_namespace(scene)
    meter = cpu.Meter(scene.nodes)
    with meter.running():
        scene.kubectl.apply(pod(scene, query, group))
        progress = list(watched(scene, group, records(schedule)))
    role_of = cpu.roles(scene, {"driver": f"app={POD}"})
    return [measured(blocks(schedule)[0], progress, meter, role_of)]


def watched(scene: Scene, group: str, total: int) -> Iterator[Progress]:
    """Yield what the group has committed as it grows, up to all records. Raises ContestError."""
    admin = AdminClient({"bootstrap.servers": scene.environment.kafka_host})
    deadline, seen = time.monotonic() + RUN_SECONDS, 0
    while seen < total:
        if time.monotonic() > deadline:
            raise ContestError(f"time was up after {seen:,} of {total:,} records: {said(scene)}")
        found = committed(admin, group)
        if found > seen:
            seen = found
            yield time.time(), seen
        time.sleep(LOOK_SECONDS)


def committed(admin: AdminClient, group: str) -> int:
    """Return the records that a group has committed."""
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    try:
        found = asked[group].result(10)
    except KafkaException:  # before its first commit
        return 0
    return sum(max(0, place.offset) for place in found.topic_partitions)


def said(scene: Scene) -> str:
    """Return the end of the pod's log."""
    return scene.kubectl.run("logs", POD, "--tail=3")[-400:]


def measured(block: Block, progress: Sequence[Progress], meter: cpu.Meter, role_of: Mapping[str, str]) -> Measured:
    """Return the figures of a block."""
    ends = [at(progress, block.before + number * block.records) for number in range(block.last - block.first + 1)]
    took = [1000 * (after - before) for before, after in pairwise(ends)]
    spent = cpu.per_row(meter.at(ends[0], role_of), meter.at(ends[-1], role_of), block.records * len(took))
    return Measured(block.name, took, {}, spent, {})


def at(progress: Iterable[Progress], count: int) -> float:
    """Return when so many records were committed, between two looks by interpolation. Raises ContestError."""
    before: Progress | None = None
    for moment, seen in progress:
        if seen >= count:
            if before is None:
                raise ContestError("the first checkpoint had more records than come before what is measured")
            return before[0] + (moment - before[0]) * (count - before[1]) / (seen - before[1])
        before = moment, seen
    raise ContestError(f"fewer than {count:,} records were committed")


def pod(scene: Scene, query: str, group: str) -> dict[str, Any]:
    """Return the pod that runs a query."""
    given = {
        "query": query.partition(",")[0],
        "topic": scene.topics[0],
        "kafka": scene.environment.kafka_cluster,
        "group": group,
        "checkpoints": CHECKPOINTS,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": POD, "labels": {"app": POD}},
        "spec": {
            "restartPolicy": "Never",
            "nodeName": WORKERS[-1],
            "containers": [
                {
                    "name": POD,
                    "image": IMAGE,
                    "imagePullPolicy": "Never",
                    "args": ["python", "/opt/flink/queries.py", json.dumps(given)],
                }
            ],
        },
    }
