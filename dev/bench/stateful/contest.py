"""Runs of a contestant over the same records, and what each block of its batches took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

from bench import cpu
from bench.contest import RUN_SECONDS, ContestError, followed, started
from bench.delays.recovery import log_lines
from bench.stateful.contestants import BLOCKS, Block, blocks, patch, records
from demo.scene import DRIVER, Scene

SPARK: Final = ("driver", "worker", "master")


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed batch by the driver's log: seconds since 1970, records, and milliseconds by phase."""

    at: float
    records: int
    ms: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Measured:
    """A block of batches: ms from commit to commit, ms by phase, and CPU-µs per row by role."""

    block: str
    took: Sequence[float]
    phases: Mapping[str, Sequence[float]]
    spent: Mapping[str, float]


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


def committed(scene: Scene, pod: str, total: int) -> list[Commit]:
    """Return the batches of a driver's log, once they have so many records. Raises ContestError."""
    found: list[Commit] = []
    left, last = total, ""
    for line in followed(scene.kubectl, pod, seconds=RUN_SECONDS):
        last = line.strip() or last
        for entry in log_lines(line):
            if (commit := _commit(entry)) is not None:
                found.append(commit)
                left -= commit.records
        if left <= 0:
            return found
    raise ContestError(f"its log ended, or time was up, with {left:,} of {total:,} records left: {last[:400]}")


def measured(block: Block, done: Sequence[Commit], meter: cpu.Meter, role_of: Mapping[str, str]) -> Measured:
    """Return the figures of a block. Raises ContestError where its batches have other sizes."""
    full = [commit for commit in done if commit.records]
    inside = full[block.first : block.last]
    if any(commit.records != block.records for commit in inside):
        raise ContestError(f"batches of {block.records:,} have {sorted({commit.records for commit in inside})} records")
    first, last = full[block.first - 1].at, inside[-1].at
    took = [1000 * (after.at - before.at) for before, after in pairwise(full[block.first - 1 : block.last])]
    phases = {name: [commit.ms[name] for commit in inside] for name in inside[0].ms}
    rows = block.records * len(inside)
    return Measured(block.name, took, phases, cpu.per_row(meter.at(first, role_of), meter.at(last, role_of), rows))


def _commit(entry: Mapping[str, Any]) -> Commit | None:
    if entry.get("message") != "committed":
        return None
    return Commit(datetime.fromisoformat(entry["time"]).timestamp(), entry["records"], entry["ms"])
