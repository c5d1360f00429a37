"""Hours of steady load, with the trend of every resource."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final

from bench.samples import Result
from bench.stage import source, staged, wait_for_commit
from flights.console import Console
from soak.figures_by_name import Trends
from soak.resources import figures

BATCHES_PER_SECOND: Final = 5.0
RECORDS_PER_BATCH: Final = 200.0
FIRST_RECORDS: Final = 10_000
"""Produced before the pipeline starts: the soak begins with its first commit."""
WARM_UP_SECONDS: Final = 120.0
"""The JVM compiles, caches fill: not part of the trend."""
SAMPLE_SECONDS: Final = 60.0


def run(console: Console, *, hours: float) -> Result:
    """Keep the example under load for so long; sample once per minute."""
    trends = Trends()
    with staged() as scene:
        feed = source(scene)
        feed.burst(FIRST_RECORDS)
        scene.apply({"batchInterval": f"{1000 / BATCHES_PER_SECOND:.0f}ms"})
        wait_for_commit(scene)
        with feed.flowing(BATCHES_PER_SECOND * RECORDS_PER_BATCH):
            time.sleep(WARM_UP_SECONDS)
            before = scene.fence()
            began = time.monotonic()
            with suppress(KeyboardInterrupt):  # Ctrl-C ends the soak early, with the figures so far
                while (elapsed := time.monotonic() - began) < hours * 3600:
                    trends.sample(figures(scene), elapsed / 3600)
                    console.line(f"soak: {elapsed / 60:.0f} of {hours * 60:.0f} min")
                    time.sleep(SAMPLE_SECONDS)
            hours = min(hours, elapsed / 3600)
            after = scene.fence()
    versions = after.version - before.version if before is not None and after is not None else 0
    trends.show(console)
    return Result(
        "soak",
        trends.samples(),
        {
            "hours": round(hours, 2),
            "changes of the fence row": versions,
            "records per second": BATCHES_PER_SECOND * RECORDS_PER_BATCH,
        },
    )
