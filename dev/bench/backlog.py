"""Rows per second and CPU time per row while a backlog of a million records is processed, by one worker and by two."""

from __future__ import annotations

from typing import Final

from bench import cpu
from bench.figures import Result, Sample
from bench.stage import committed, source, staged, wait_for_commit
from demo.scene import Scene
from fencepost_cli.history import check_history
from flights.console import Console
from flights.dataset import flights
from flights.history import commits
from flights.reconciliation import reconcile

ROWS: Final = 1_000_000
PER_BATCH: Final = 100_000
SECONDS: Final = 600.0


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
            samples += [Sample(name, "rows/s", [rate(scene)]), *cpu.samples(name, spent)]
            report = reconcile(scene.cassandra, scene.tables[0], feed.ledger, history=scene.whole_history())
            notes.append(f"{workers}: {'every row is there once' if report.ok else '; '.join(report.lines())}")
            begin_again(scene)
    return Result("backlog", samples, {"rows": rows, "of a year of": len(flights()), "rows a batch": PER_BATCH}, notes)


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
