"""A backlog is worked off: rows per second and CPU time per row by one and two workers, and the batches of a long one.

`measure` takes a million records and one size of batches. `measure_long` takes a part of the backlog of an hour at
5,000 records/s with the default settings: the driver chooses the size, and the status estimates the time left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bench import catch_up, cpu, heap
from bench.samples import Result, Sample
from bench.stage import committed, source, staged, wait_for_commit
from demo.scene import Scene
from fencepost_cli.history.checks import check_history
from flights.console import Console
from flights.dataset import flights
from flights.history import commits
from flights.reconciliation import reconcile

ROWS: Final = 1_000_000
PER_BATCH: Final = 100_000
SECONDS: Final = 600.0

HOUR: Final = 5_000 * 3600
"""Records of an hour at the rate that a pipeline of this size is for."""
LONG_ROWS: Final = 4_000_000
"""What two cores for everything work off in some five minutes: the status has several windows of a minute by then."""
LONG_SECONDS: Final = 1800.0
BUCKET: Final = 10_000
"""Offsets in a partition of the example's table."""


def measure(console: Console, *, rows: int = ROWS) -> Result:
    """Produce once, then work it off with one worker and again, from the beginning, with two."""
    samples: list[Sample] = []
    notes: list[str] = []
    with staged() as scene:
        feed = source(scene)
        console.line(f"backlog: producing {rows:,} rows")
        feed.burst(rows)
        for workers in (1, 2):
            console.line(f"backlog: {workers} worker{'s' if workers > 1 else ''}")
            scene.apply({"cluster": {"workers": workers}, "source": {"kafka": {"maxRecordsPerBatch": PER_BATCH}}})
            # From the first commit on: the start of a driver takes as much CPU time as a million rows.
            warm = wait_for_commit(scene, seconds=SECONDS)
            before = cpu.usage(scene)
            wait_for_commit(scene, past=rows - 1, seconds=SECONDS)
            spent = cpu.per_row(before, cpu.usage(scene), rows - committed(warm))
            name = f"{workers} worker{'s' if workers > 1 else ''}"
            samples += [
                Sample(name, "rows/s", [rate(scene)]),
                *cpu.samples(name, {role: [value] for role, value in spent.items()}),
            ]
            report = reconcile(scene.cassandra, scene.tables[0], feed.ledger, history=scene.whole_history())
            notes.append(f"{workers}: {'every row is there once' if report.ok else '; '.join(report.lines())}")
            begin_again(scene)
    return Result(
        "backlog", samples, {"rows": rows, "of a year of": len(flights()), "rows per batch": PER_BATCH}, notes
    )


def measure_long(console: Console, *, rows: int = LONG_ROWS) -> Result:
    """Produce a part of an hour's backlog, and work it off with the defaults of the CRD on one worker of 1 GiB."""
    with staged() as scene:
        feed = source(scene)
        console.line(f"long-backlog: producing {rows:,} rows")
        feed.burst(rows)
        scene.apply({"cluster": {"sparkConf": dict(heap.LOGGED)}, "source": {"kafka": {"maxRecordsPerBatch": None}}})
        first = wait_for_commit(scene, seconds=SECONDS)
        console.line("long-backlog: the first batch is committed")
        seen = catch_up.watch(scene, total=rows, seconds=LONG_SECONDS)
        heaps = [heap.after_collections(scene, role) for role in ("driver", "worker")]
        per_second = rate(scene)
        counted, ends = count_rows(scene), feed.ends()
        story = check_history(scene.whole_history())
    return Result(
        "long-backlog",
        [
            Sample("long backlog", "rows/s", [per_second]),
            *seen.samples("long backlog"),
            *(Sample(trend.name, trend.unit, trend.values) for trend in heaps),
        ],
        {"rows": rows, "of an hour's": HOUR, "workers": 1, "runs": seen.row.epoch - first.epoch + 1},
        [
            *seen.notes("long backlog"),
            *(f"{trend.name}: {trend.summary()}" for trend in heaps),
            "every offset is there once" if counted == ends else f"rows: {counted}; produced: {ends}",
            "; ".join(story.lines()),
        ],
    )


def count_rows(scene: Scene) -> dict[str, int]:
    """Return the rows of each topic/partition, counted bucket by bucket: a row's key is its offset."""
    row = scene.fence()
    offsets: Mapping[str, int] = row.offsets if row is not None else {}
    count = scene.cassandra.prepare(
        f"SELECT COUNT(*) FROM {scene.tables[0]} WHERE topic = ? AND partition = ? AND bucket = ? AND offset < ?"  # noqa: S608
    )
    found: dict[str, int] = {}
    for key, end in offsets.items():
        topic, _, partition = key.rpartition("/")
        asked: list[Any] = [
            scene.cassandra.execute_async(count, (topic, int(partition), bucket, end))
            for bucket in range(end // BUCKET + 1)
        ]
        found[key] = sum(answer.result().one()[0] for answer in asked)
    return found


def rate(scene: Scene) -> float:
    """Rows per second from the claim to the last commit: all of the work, without the start of the driver."""
    history = scene.whole_history()
    claim = next(row for row in history if row.driver is not None and row.written_at is not None)
    last = [commit for _, commit in commits(history)][-1]
    if last.written_at is None or claim.written_at is None:
        raise ValueError("the fence's history has no times")
    return sum(last.offsets.values()) / (last.written_at - claim.written_at) * 1e6


def begin_again(scene: Scene) -> None:
    """Remove the pipeline, what it wrote and what it committed; the topic stays."""
    story = check_history(scene.whole_history())
    if not story.ok:
        raise ValueError("; ".join(story.violations))
    scene.remove_pipeline()
    scene.forget_fence()
    for table in scene.tables:
        scene.cassandra.execute(f"TRUNCATE {table}")
