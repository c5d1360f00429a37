"""A backlog that is worked off: the sizes of its batches, and how far the status was off about the time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from bench.delays.recovery import log_lines
from bench.samples import Sample
from bench.stage import committed
from demo.scene import Scene
from fencepost.fence import FenceRow, FenceUnavailable
from fencepost_operator.api.quantities import parse_duration
from harness.kubernetes.kubectl import KubectlError
from harness.waiting import NotInTimeError

LOOK_SECONDS: Final = 10.0
MIB: Final = 1024.0 * 1024.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the status said of the time left, in seconds; `at` is when, in seconds since 1970."""

    at: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as the driver's log has it: `size` in MiB, `seconds` from its plan to its commit."""

    records: int
    size: float
    seconds: float


@dataclass(frozen=True, slots=True)
class CatchUp:
    """What was seen until the last record of the backlog was committed. `began` and `ended` as in `Estimate.at`."""

    began: float
    ended: float
    row: FenceRow
    estimates: Sequence[Estimate]
    batches: Sequence[Batch]

    def samples(self, name: str) -> list[Sample]:
        """Return the batches' sizes and durations, and by how much the estimates were off."""
        return [
            Sample(f"{name}: batch", "records", [float(batch.records) for batch in self.batches]),
            Sample(f"{name}: batch", "MiB", [batch.size for batch in self.batches]),
            Sample(f"{name}: batch", "s", [batch.seconds for batch in self.batches]),
            Sample(f"{name}: estimate off by", "s", [abs(found.seconds - left) for found, left in self._judged()]),
            Sample(
                f"{name}: estimate off by",
                "% of the time left",
                [100 * abs(found.seconds - left) / left for found, left in self._judged()],
            ),
        ]

    def notes(self, name: str) -> list[str]:
        """Return what a table does not show: the smallest batch, and each estimate beside what it came to."""
        smallest = min((batch.records for batch in self.batches), default=0)
        found = ", ".join(f"{one.seconds:.0f} s ({left:.0f})" for one, left in self._judged())
        took = self.ended - self.began
        return [
            f"{name}: {took:.0f} s, {len(self.batches)} batches, the smallest of {smallest:,} records",
            f"{name}: time left by the status (and by the clock): {found or 'no window ended before the backlog did'}",
        ]

    def _judged(self) -> list[tuple[Estimate, float]]:
        """(estimate, seconds that were left then) for the estimates before the end."""
        return [(found, self.ended - found.at) for found in self.estimates if found.at < self.ended]


def watch(
    scene: Scene,
    *,
    total: int,
    seconds: float,
    look: Callable[[], object] = lambda: None,
    pause: float = LOOK_SECONDS,
) -> CatchUp:
    """Wait until `total` records are committed; meanwhile `look` is called, and the status read, every `pause` s.

    Raises NotInTimeError after `seconds`.
    """
    began = time.time()
    estimates: dict[float, Estimate] = {}
    while (row := _row(scene)) is None or committed(row) < total:
        if time.time() - began > seconds:
            raise NotInTimeError(f"{committed(row):,} of {total:,} records are committed after {seconds:.0f} s")
        if (found := _estimate(scene)) is not None:
            estimates.setdefault(found.at, found)
        look()
        time.sleep(pause)
    ended = row.committed_at.timestamp() if row.committed_at is not None else time.time()
    return CatchUp(began, ended, row, list(estimates.values()), batches(scene, row.epoch))


def batches(scene: Scene, epoch: int) -> list[Batch]:
    """Return the batches that the run of an epoch committed, by its log."""
    log = scene.kubectl.run("logs", f"job/{scene.name}-run-{epoch}", "--tail=-1")
    return [_batch(line) for line in log_lines(log) if line.get("message") == "committed" and line.get("records")]


def _batch(line: Any) -> Batch:
    return Batch(line["records"], line["bytes"] / MIB, line["ms"]["total"] / 1000)


def _row(scene: Scene) -> FenceRow | None:
    try:
        return scene.fence(patience=0)
    except FenceUnavailable:
        return None


def _estimate(scene: Scene) -> Estimate | None:
    """Return the newest estimate; it is as old as the window that it closed."""
    try:
        pipeline = scene.pipeline()
    except KubectlError:
        return None
    throughput = ((pipeline or {}).get("status") or {}).get("throughput") or {}
    if "estimatedCatchUp" not in throughput or throughput.get("lag", 0) == 0:
        return None
    return Estimate(
        datetime.fromisoformat(throughput["since"]).timestamp(), parse_duration(throughput["estimatedCatchUp"])
    )
