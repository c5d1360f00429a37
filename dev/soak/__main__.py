"""`python -m soak`: hours of steady load on the testbed; prints the trend of every resource, and asserts nothing."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.figures import Result, Sample
from bench.stage import source, staged, wait_for_commit
from demo.scene import Scene, SceneError
from fencepost.fence import FenceError
from flights.console import Console
from flights.loader import LoadError
from harness.kubectl import KubectlError
from harness.nodes import NodeError
from harness.waiting import NotInTimeError
from soak.resources import Figure, figures
from soak.trend import Trend
from testbed.environment import NotUpError

BATCHES_PER_SECOND: Final = 5.0
RECORDS_PER_BATCH: Final = 200.0
FIRST_RECORDS: Final = 10_000
"""Produced before the pipeline starts: the soak begins with its first commit."""
WARM_UP_SECONDS: Final = 120.0
"""The JVM compiles, caches fill: not part of the trend."""
SAMPLE_SECONDS: Final = 60.0


@dataclass(slots=True)
class Soak:
    """The figures so far, by name."""

    trends: dict[str, tuple[str, list[float], list[float]]] = field(default_factory=dict)

    def add(self, hours: float, figure: Figure) -> None:
        """Record one figure."""
        _, moments, values = self.trends.setdefault(figure.name, (figure.unit, [], []))
        moments.append(hours)
        values.append(figure.value)

    def table(self) -> list[Trend]:
        """Return the trends in the order in which their figures first came."""
        return [Trend(name, unit, moments, values) for name, (unit, moments, values) in self.trends.items()]


def run(console: Console, *, hours: float) -> Result:
    """Keep the example under load for so long; sample once per minute."""
    soak = Soak()
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
                    _sample(soak, scene, elapsed / 3600)
                    console.line(f"soak: {elapsed / 60:.0f} of {hours * 60:.0f} min")
                    time.sleep(SAMPLE_SECONDS)
            hours = min(hours, elapsed / 3600)
            after = scene.fence()
    versions = after.version - before.version if before is not None and after is not None else 0
    console.table(
        ("", "n", "first tenth", "last tenth", "slope per hour", "unit"), (trend.cells() for trend in soak.table())
    )
    return Result(
        "soak",
        [Sample(trend.name, trend.unit, trend.values) for trend in soak.table()],
        {
            "hours": round(hours, 2),
            "changes of the fence row": versions,
            "records per second": BATCHES_PER_SECOND * RECORDS_PER_BATCH,
        },
    )


def _sample(soak: Soak, scene: Scene, hours: float) -> None:
    try:
        for figure in figures(scene):
            soak.add(hours, figure)
    except (KubectlError, NodeError):
        return  # one missing sample changes no trend


def main(words: Sequence[str] | None = None) -> int:
    """Run the soak; 1 when it could not be run to its end."""
    top = argparse.ArgumentParser(prog="soak", description="Hours of steady load; the trend of every resource.")
    top.add_argument("--hours", type=float, default=2.0, help="length after the warm-up (default: %(default)s)")
    top.add_argument("--into", type=Path, default=Path(".cache/bench"), help="folder for the JSON")
    arguments = top.parse_args(words)
    console = Console(line_seconds=10.0)
    try:
        result = run(console, hours=arguments.hours)
    except (NotUpError, SceneError, LoadError, KubectlError, NodeError, NotInTimeError, FenceError, OSError) as error:
        console.line(f"soak: not finished: {error}")
        return 1
    console.line(f"soak: {result.save(arguments.into)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
