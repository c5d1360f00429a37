"""What more partitions, more sinks and larger records cost: milliseconds per batch and MB/s, one figure changed a time.

`--only` names variants; a second call resumes where the first one ended.

The transform keeps a record's coordinates and the length of its value, so that what is measured is Fencepost and not an
author's code.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from bench import producing
from bench.options import Journal, Options
from bench.samples import Result, Sample
from bench.stage import make_namespace, staged, wait_for_commit
from demo.scene import Scene
from flights.console import Console
from flights.history import HistoryRow, commits
from flights.topics import Topics
from harness.pipelines import merged

NAME: Final = "growth"
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
WARM: Final = 10
"""Batches before those: the driver begins with small ones."""
SETTLE: Final = 3
"""Full batches that are left out: what ran for the first time is slow."""
FULL: Final = 0.99
"""A batch may lack some records where they do not divide evenly among partitions."""
ONE_SIZE: Final = {"source": {"kafka": {"targetBatchDuration": "5m", "maxBytesPerBatch": "64Mi"}}}
"""What keeps a driver from batches of another size than `maxRecordsPerBatch`."""
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
    *(Variant(name=f"{count} sink{'s' if count > 1 else ''}", sinks=count, records=2_000) for count in (1, 4, 16)),
    *(
        Variant(name=f"records of {size:,} bytes", size=size, records=max(10, min(10_000, 10 * MB // size)))
        for size in (100, 1_000, 10_000, 100_000, MB)
    ),
)


def measure(console: Console, options: Options) -> Result:
    """Work off a backlog of each variant in batches of one size."""
    variants = {variant.name: variant for variant in VARIANTS}
    journal = Journal.of(NAME, options, {"batches": BATCHES, "workers": 1})
    notes: list[str] = []
    for name in options.chosen(list(variants)):
        if journal.has(name, 0):
            continue
        variant = variants[name]
        try:
            with staged() as scene:
                try:
                    took, seconds, records = run(scene, variant)
                finally:
                    clear(scene, variant)
        except Exception as error:  # noqa: BLE001 - the others are measured nevertheless
            notes.append(f"{name}: not measured: {error}")
            console.line(f"growth: {notes[-1]}")
            continue
        journal.add(name, 0, took=took, seconds=seconds, records=records)
        console.line(f"growth: {name}: {records / seconds:,.0f} records/s")
        result(journal, notes).save(options.into)
    return result(journal, notes)


def result(journal: Journal, notes: list[str]) -> Result:
    """Return all that is known so far: ms per batch of the full ones, and the rates of all."""
    samples: list[Sample] = []
    for variant in VARIANTS:
        for line in journal.lines(variant.name):
            rate = line["records"] / line["seconds"]
            samples += [
                Sample(variant.name, "ms per batch", line["took"]),
                Sample(f"{variant.name}: records per batch", "records", [variant.records]),
                Sample(f"{variant.name}: rate", "records/s", [rate]),
                Sample(f"{variant.name}: bytes", "MB/s", [rate * variant.size / MB]),
            ]
    return Result(NAME, samples, journal.conditions, notes)


def run(scene: Scene, variant: Variant) -> tuple[list[float], float, int]:
    """Return what `pace` makes of a variant's commits."""
    prepare(scene, variant)
    total = variant.records * (BATCHES + WARM)
    produce(scene.environment.kafka_host, variant, total)
    scene.apply(merged(patch(variant), ONE_SIZE))
    wait_for_commit(scene, past=total - 1, seconds=SECONDS)
    return pace(scene.whole_history(), variant.records)


def pace(history: Iterable[HistoryRow], records: int) -> tuple[list[float], float, int]:
    """Return the ms from commit to commit of full batches, and the seconds and the records of all of these.

    A batch counts when it is full, of `records`, and so is the one before it. Raises ValueError without one.
    """
    done = [commit for _, commit in commits(history)]
    took = [
        (after.written_at - before.written_at) / 1000
        for before, after in pairwise(done)
        if before.written_at is not None
        and after.written_at is not None
        and after.version - before.version <= 2  # one may record its plan on its own
        and min(before.records or 0, after.records or 0) >= FULL * records
    ][SETTLE:]
    if not took:
        sizes = sorted({commit.records or 0 for commit in done})
        raise ValueError(f"no batch of {records:,} records among {len(done)}; they have {sizes[:5]} to {sizes[-1:]}")
    return took, sum(took) / 1000, records * len(took)


def prepare(scene: Scene, variant: Variant) -> None:
    """Make the topic, the tables, the namespace and the transform's ConfigMap."""
    Topics(scene.environment.kafka_host).create(TOPIC, variant.partitions)
    for table in tables(variant):
        scene.cassandra.execute(
            f"CREATE TABLE IF NOT EXISTS {KEYSPACE}.{table} (topic text, partition int, offset bigint, size int,"
            " PRIMARY KEY ((topic, partition), offset))",
            timeout=60,
        )
    make_namespace(scene)
    scene.kubectl.apply(_code())


def clear(scene: Scene, variant: Variant) -> None:
    """Remove the pipeline, its topic and its tables."""
    scene.remove_pipeline()
    Topics(scene.environment.kafka_host).delete(TOPIC)
    for table in tables(variant):
        scene.cassandra.execute(f"DROP TABLE IF EXISTS {KEYSPACE}.{table}", timeout=60)


def produce(servers: str, variant: Variant, count: int) -> None:
    """Produce so many records of one size, round robin. Raises ValueError when Kafka does not confirm them."""
    value = os.urandom(variant.size)
    records = ({"value": value, "partition": number % variant.partitions} for number in range(count))
    producing.produce(servers, TOPIC, records, largest=2 * MB)


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
