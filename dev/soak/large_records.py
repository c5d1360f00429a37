"""Gigabytes of records of 1 MB, more than the pipeline has memory, worked off by the smallest worker that there is."""

from __future__ import annotations

import time
from typing import Any, Final

from bench import catch_up, heap
from bench.costs import growth
from bench.samples import Result, Sample
from bench.stage import staged, wait_for_commit
from demo.scene import Scene
from fencepost_operator.api.quantities import parse_bytes
from flights.console import Console
from harness.pipelines import merged
from soak.figures_by_name import Trends
from soak.resources import of_pipeline, oom_kills

SIZE: Final = 1_000_000
"""Bytes of a record's value: as much as a broker takes by default, with what its batch adds."""
PARTITIONS: Final = 4
SECONDS: Final = 3600.0
LOOK_SECONDS: Final = 5.0
MIB: Final = 1024 * 1024
ROLES: Final = ("driver", "worker")


def run(console: Console, *, gigabytes: float) -> Result:
    """Produce so much, then work it off with the CRD's defaults; sample until the last record is committed."""
    count = int(gigabytes * 1e9 / SIZE)
    variant = growth.Variant(name="large records", partitions=PARTITIONS, size=SIZE)
    trends, notes = Trends(), []
    with staged() as scene:
        try:
            growth.prepare(scene, variant)
            console.line(f"large records: producing {count:,} records of {SIZE:,} bytes")
            growth.produce(scene.environment.kafka_host, variant, count)
            scene.apply(_patch(variant))
            first = wait_for_commit(scene)
            killed, began = oom_kills(scene), time.monotonic()

            def look() -> None:
                elapsed = time.monotonic() - began
                trends.sample(of_pipeline(scene), elapsed / 3600)
                row = scene.fence(patience=30)
                console.line(f"large records: {elapsed:.0f} s, {sum(row.offsets.values()) if row else 0:,} records")

            seen = catch_up.watch(scene, total=count, seconds=SECONDS, look=look, pause=LOOK_SECONDS)
            heaps = [heap.after_collections(scene, role) for role in ROLES]
            limits = {f"{role} MiB": round(_limit(scene, role) / MIB) for role in ROLES}
            notes += seen.notes("large records")
            notes.append(
                f"processes killed for memory: {oom_kills(scene) - killed}; runs: {seen.row.epoch - first.epoch + 1}"
            )
            notes.append(_reconciled(scene, variant, count))
        finally:
            growth.clear(scene, variant)
    trends.show(console, heaps)
    return Result(
        "soak-large-records",
        [
            Sample("large records", "MB/s", [gigabytes * 1000 / sum(batch.seconds for batch in seen.batches)]),
            *seen.samples("large records"),
            *trends.samples(),
            *(Sample(trend.name, trend.unit, trend.values) for trend in heaps),
        ],
        {"GB": gigabytes, "bytes of a record": SIZE, **limits},
        notes,
    )


def _patch(variant: growth.Variant) -> dict[str, Any]:
    """The smallest worker, and batches as the operator bounds them by its memory."""
    small = {
        "cluster": {"workers": 1, "worker": {"cores": 1, "memory": "1Gi"}, "sparkConf": dict(heap.LOGGED)},
        "source": {"kafka": {"maxRecordsPerBatch": None}},
    }
    return merged(growth.patch(variant), small)


def _limit(scene: Scene, role: str) -> int:
    """Return the memory in bytes that the pod of a role may use."""
    pods = scene.kubectl.items("pods", f"--selector=streaming.fencepost.dev/component={role}")
    return parse_bytes(pods[0]["spec"]["containers"][0]["resources"]["limits"]["memory"]) if pods else 0


def _reconciled(scene: Scene, variant: growth.Variant, count: int) -> str:
    """Compare every row with what was produced: the coordinates, and the length of the value."""
    (table,) = growth.tables(variant)
    found = {
        (row.partition, row.offset): row.size
        for row in scene.cassandra.execute(f"SELECT partition, offset, size FROM {growth.KEYSPACE}.{table}")  # noqa: S608
    }
    expected = dict.fromkeys(((number % PARTITIONS, number // PARTITIONS) for number in range(count)), SIZE)
    if found == expected:
        return f"every one of {count:,} records has its row"
    return f"{len(expected.keys() - found.keys())} rows are missing, {len(found.keys() - expected.keys())} too many"
