"""Milliseconds of a batch of 1,000 rows, one after the other, and where they go, of both transforms of the example.

By quarters too: the driver's JVM compiles what runs often, so a run's hundredth batch is slower than its thousandth.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from bench.delays.recovery import log_lines
from bench.samples import Result, Sample
from bench.stage import TRANSFORMS, pipeline, source, staged, wait_for_commit
from flights.console import Console
from flights.history import commits

ROWS: Final = 1_000
BACK_TO_BACK: Final = 1_000
WARM: Final = 20
QUARTERS: Final = 4
SECONDS: Final = 900.0
PHASES: Final = ("plan", "record", "transform", "job", "write", "commit", "total")


def measure(console: Console) -> Result:
    """Work off a backlog in batches of 1,000, with each of the example's transforms."""
    samples: list[Sample] = []
    for suffix, entrypoint in TRANSFORMS.items():
        samples += one(console, entrypoint, suffix)
    return Result("batch", samples, {"rows per batch": ROWS, "batches": BACK_TO_BACK, "workers": 1})


def one(console: Console, entrypoint: str, suffix: str) -> list[Sample]:
    """Return the milliseconds of batch after batch with one transform; `suffix` ends the samples' names."""
    with staged() as scene:
        feed = source(scene)
        feed.burst(ROWS * (BACK_TO_BACK + WARM))
        scene.apply(pipeline(entrypoint, maxRecordsPerBatch=ROWS))
        console.line(f"batch: {entrypoint}, {BACK_TO_BACK} batches of {ROWS:,} rows")
        wait_for_commit(scene, past=ROWS * (BACK_TO_BACK + WARM) - 1, seconds=SECONDS)
        row = scene.fence()
        history = [commit for _, commit in commits(scene.whole_history()) if commit.records == ROWS][WARM:]
        log = scene.kubectl.run("logs", f"job/{scene.name}-run-{row.epoch if row else 1}", "--tail=-1")
    lines = [line["ms"] for line in log_lines(log) if line.get("records") == ROWS]
    phases = [ms for ms in lines if isinstance(ms, dict)][WARM:]
    moments = [commit.written_at / 1000 for commit in history if commit.written_at is not None]
    took = [after - before for before, after in pairwise(moments)]
    quarter = -(-len(took) // QUARTERS)
    return [
        Sample(f"commit to commit{suffix}", "ms", took),
        *(
            Sample(f"  quarter {number + 1}{suffix}", "ms", took[number * quarter : (number + 1) * quarter])
            for number in range(QUARTERS)
        ),
        *(Sample(f"  {phase}{suffix}", "ms", [float(ms[phase]) for ms in phases if phase in ms]) for phase in PHASES),
    ]
