"""What more partitions, more sinks and larger records cost: milliseconds per batch and MB/s, one figure changed a time.

The transform keeps a record's coordinates and the length of its value, so that what is measured is Fencepost and not an
author's code.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from confluent_kafka import Producer

from bench.figures import Result, Sample
from bench.stage import staged, wait_for_commit
from demo.scene import Scene
from flights.console import Console
from flights.history import commits
from flights.topics import Topics

TOPIC: Final = "growth"
KEYSPACE: Final = "flights"
CODE: Final = """
from pyspark.sql import functions as f


def transform(batch, context):
    rows = batch.select("topic", "partition", "offset", f.length("value").alias("size"))
    names = [f"sink-{number}" for number in range(int(context.args[0]))]
    return {name: rows for name in names}
"""
BATCHES: Final = 30
WARM: Final = 5
SECONDS: Final = 600.0
MB: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A pipeline to measure. `size` is of a record's value, in bytes; `records` per batch."""

    name: str
    partitions: int = 10
    sinks: int = 1
    size: int = 100
    records: int = 10_000


VARIANTS: Final = (
    *(Variant(name=f"{count:,} partitions", partitions=count) for count in (10, 100, 1_000)),
    *(Variant(name=f"{count} sinks", sinks=count, records=2_000) for count in (1, 4, 16)),
    *(
        Variant(name=f"records of {size:,} bytes", size=size, records=max(10, min(10_000, 10 * MB // size)))
        for size in (100, 1_000, 10_000, 100_000, MB)
    ),
)


def measure(console: Console, *, variants: Sequence[Variant] = VARIANTS) -> Result:
    """Work off a backlog of each variant in batches of one size."""
    samples: list[Sample] = []
    notes: list[str] = []
    for variant in variants:
        with staged() as scene:
            try:
                took = run(scene, variant)
            finally:
                clear(scene, variant)
        sample = Sample(variant.name, "ms per batch", took)
        samples.append(sample)
        per_second = variant.records / sample.percentile(0.5) * 1000
        notes.append(
            f"{variant.name}: {variant.records:,} records per batch, {per_second:,.0f} records/s,"
            f" {per_second * variant.size / MB:.1f} MB/s"
        )
        console.line(f"growth: {notes[-1]}")
    return Result("growth", samples, {"batches": BATCHES, "workers": 1}, notes)


def run(scene: Scene, variant: Variant) -> list[float]:
    """Return the ms from commit to commit, the first ones left out."""
    prepare(scene, variant)
    total = variant.records * (BATCHES + WARM)
    produce(scene.environment.kafka_host, variant, total)
    scene.apply(patch(variant))
    wait_for_commit(scene, past=total - 1, seconds=SECONDS)
    history = scene.whole_history()
    moments = [
        commit.written_at / 1000
        for _, commit in commits(history)
        if commit.records == variant.records and commit.written_at is not None
    ][WARM:]
    return [after - before for before, after in pairwise(moments)]


def prepare(scene: Scene, variant: Variant) -> None:
    """Make the topic, the tables, the namespace and the transform's ConfigMap."""
    Topics(scene.environment.kafka_host).create(TOPIC, variant.partitions)
    for table in tables(variant):
        scene.cassandra.execute(
            f"CREATE TABLE IF NOT EXISTS {KEYSPACE}.{table} (topic text, partition int, offset bigint, size int,"
            " PRIMARY KEY ((topic, partition), offset))"
        )
    scene.kubectl.run("create", "namespace", scene.kubectl.namespace)
    scene.kubectl.apply(_code())


def clear(scene: Scene, variant: Variant) -> None:
    """Remove the pipeline, its topic and its tables."""
    scene.remove_pipeline()
    Topics(scene.environment.kafka_host).delete(TOPIC)
    for table in tables(variant):
        scene.cassandra.execute(f"DROP TABLE IF EXISTS {KEYSPACE}.{table}", timeout=60)


def produce(servers: str, variant: Variant, count: int) -> None:
    """Produce so many records of one size, round robin. Raises ValueError when Kafka does not confirm them."""
    producer = Producer(
        {"bootstrap.servers": servers, "linger.ms": 20, "enable.idempotence": True, "message.max.bytes": 2 * MB}
    )
    value = os.urandom(variant.size)
    for number in range(count):
        while True:
            try:
                producer.produce(TOPIC, value=value, partition=number % variant.partitions)
                break
            except BufferError:
                producer.poll(0.1)
    if left := producer.flush(120):
        raise ValueError(f"Kafka did not confirm {left} records")


def tables(variant: Variant) -> Iterator[str]:
    """Yield the names of its tables, one per sink."""
    yield from (f"growth_{number}" for number in range(variant.sinks))


def _code() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "growth-code"},
        "data": {"growth.py": CODE},
    }


def patch(variant: Variant) -> Mapping[str, Any]:
    """Return what differs from the example's spec."""
    return {
        "job": {
            "entrypoint": "growth:transform",
            "args": [str(variant.sinks)],
            "codeFrom": {"configMapName": "growth-code"},
        },
        "source": {"kafka": {"topics": [TOPIC], "maxRecordsPerBatch": variant.records}},
        "sinks": [
            {"name": f"sink-{number}", "cassandra": {"keyspace": KEYSPACE, "table": table}}
            for number, table in enumerate(tables(variant))
        ],
        "batchInterval": "0s",
    }
