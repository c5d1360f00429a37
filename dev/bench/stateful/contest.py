"""Runs of a contestant over the same records, and what each block of its batches took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

from bench import cpu
from bench.contest import RUN_SECONDS, ContestError, followed, started
from bench.delays.recovery import log_lines
from bench.stateful.contestants import BLOCKS, Block, blocks, patch, records
from demo.scene import DRIVER, Scene


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed batch by the driver's log: seconds since 1970, records, and milliseconds by phase."""

    at: float
    records: int
    ms: Mapping[str, float]


@dataclass(slots=True)
class Log:
    """What a driver's log says of the batches that read records, in their order."""

    commits: list[Commit] = field(default_factory=list)
    spark: list[Mapping[str, float]] = field(default_factory=list)
    """Spark's phases in ms; those of the batch before."""
    done: list[Mapping[str, float]] = field(default_factory=list)
    """Sums up to each commit, see pipeline/observed.py."""

    @property
    def records(self) -> int:
        """Records that are committed."""
        return sum(commit.records for commit in self.commits)

    def add(self, entry: Mapping[str, Any]) -> None:
        """Read a line."""
        if entry.get("message") == "committed" and entry["records"]:
            at = datetime.fromisoformat(entry["time"]).timestamp()
            self.commits.append(Commit(at, entry["records"], entry["ms"]))
        elif entry.get("message") == "observed":
            self.spark.append(entry["spark"])
            self.done.append(entry["done"])


@dataclass(frozen=True, slots=True)
class Measured:
    """A block of batches: ms from commit to commit, ms by phase, CPU-µs per row by role, and what each batch did."""

    block: str
    took: Sequence[float]
    phases: Mapping[str, Sequence[float]]
    spent: Mapping[str, float]
    done: Mapping[str, float]


def run(scene: Scene, contestant: str, query: str, *, image: str | None = None) -> list[Measured]:
    """Let a contestant read all records. Raises ContestError, CannotMeterError, NotInTimeError."""
    schedule = BLOCKS[query]
    meter = cpu.Meter(scene.nodes)
    with meter.running():
        scene.apply(patch(contestant, query, image=image))
        pod = started(scene, DRIVER)
        done = committed(scene, pod, records(schedule))
    role_of = cpu.roles(scene)
    return [measured(block, done, meter, role_of) for block in blocks(schedule)]


def committed(scene: Scene, pod: str, total: int) -> Log:
    """Return a driver's log, once it has committed so many records. Raises ContestError."""
    found, last = Log(), ""
    for line in followed(scene.kubectl, pod, seconds=RUN_SECONDS):
        last = line.strip() or last
        for entry in log_lines(line):
            found.add(entry)
        if found.records >= total:
            return found
    raise ContestError(f"its log ended, or time was up, after {found.records:,} of {total:,} records: {last[:400]}")


def measured(block: Block, log: Log, meter: cpu.Meter, role_of: Mapping[str, str]) -> Measured:
    """Return the figures of a block. Raises ContestError where its batches have other sizes."""
    done = log.commits[block.first - 1 : block.last]
    if any(commit.records != block.records for commit in done[1:]):
        raise ContestError(f"batches of {block.records:,} have {sorted({commit.records for commit in done})} records")
    took = [1000 * (after.at - before.at) for before, after in pairwise(done)]
    phases = {name: [commit.ms[name] for commit in done[1:]] for name in done[-1].ms}
    spark = log.spark[block.first + 1 : block.last]
    phases |= {f"Spark's {name}": [ms.get(name, 0.0) for ms in spark] for name in (spark[-1] if spark else ())}
    count = len(took)
    spent = cpu.per_row(meter.at(done[0].at, role_of), meter.at(done[-1].at, role_of), block.records * count)
    sums = log.done[block.first - 1 : block.last]
    per_batch = {
        name: (total - sums[0].get(name, 0.0)) / (len(sums) - 1) for name, total in (sums[-1] if sums else {}).items()
    }
    return Measured(block.name, took, phases, spent, per_batch)
