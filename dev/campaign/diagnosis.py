"""What helps to find the cause of a broken promise: rows by range, the fence's history, faults, conditions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from campaign.checker import Place
from campaign.world import NAME, World
from fencepost.fence import FenceError
from fencepost.fence.cassandra.errors import translated
from flights.history import HistoryRow
from flights.sink import CassandraDownError
from harness.faults.schedule import Played, Schedule
from harness.kubernetes.kubectl import Kubectl, KubectlError
from harness.pipelines import PIPELINE_LABEL, summary
from testbed.release import NAMESPACE as OPERATOR_NAMESPACE
from testbed.release import RELEASE

OPERATORS: Final = f"--selector=app.kubernetes.io/instance={RELEASE}"
AROUND: Final = 3
"""Changes of the fence row that are shown before and after those that moved over an offset."""
MOST_RANGES: Final = 10
LAST_CHANGES: Final = 12
LOG_LINES: Final = 20
BEFORE_SECONDS: Final = 120.0
"""Faults of so long before a change are shown with it."""


def ranges(places: Iterable[Place]) -> list[tuple[int, int, int]]:
    """Return (partition, first offset, last offset) for each run of offsets without a gap."""
    found: list[tuple[int, int, int]] = []
    for partition, offset in sorted(places):
        if found and found[-1][0] == partition and found[-1][2] == offset - 1:
            found[-1] = (partition, found[-1][1], offset)
        else:
            found.append((partition, offset, offset))
    return found


def around(history: Sequence[HistoryRow], topic: str, place: Place) -> list[HistoryRow]:
    """Return the changes by which the committed offset went over a record, forth or back, and those around them."""
    key, offset = f"{topic}/{place[0]}", place[1]
    over = [
        index
        for index, (before, after) in enumerate(pairwise(history))
        if (before.offsets.get(key, 0) > offset) != (after.offsets.get(key, 0) > offset)
    ]
    shown = {index for at in over for index in range(at - AROUND + 1, at + AROUND + 1)}
    return [one for index, one in enumerate(history) if index in shown]


def of_places(
    places: Iterable[Place], history: Sequence[HistoryRow], faults: Sequence[Played], *, topic: str, monotonic: float
) -> list[str]:
    """Return lines on records that are missing or too much: by range, the fence's changes there and faults before.

    `monotonic` is what has to be added to a moment of the monotonic clock for the wall clock.
    """
    lines: list[str] = []
    found = ranges(places)
    for partition, first, last in found[:MOST_RANGES]:
        lines.append(f"{topic}/{partition} offsets {first} to {last}:")
        changes = around(history, topic, (partition, first))
        lines += [f"  {of_change(one, topic)}" for one in changes] or ["  no change of the fence row went over it"]
        lines += [f"  fault: {text}" for text in _before(changes, faults, monotonic)]
    if len(found) > MOST_RANGES:
        lines.append(f"and {len(found) - MOST_RANGES} more ranges")
    return lines


def of_change(change: HistoryRow, topic: str) -> str:
    """Return one line on a change of the fence row."""
    return (
        f"{_moment(_seconds(change))} version {change.version} epoch {change.epoch} driver {change.driver}"
        f" committed {_by_partition(change.offsets, topic)} planned {_by_partition(change.planned, topic)}"
    )


def of_now(world: World, faults: Schedule) -> list[str]:
    """Return lines on the pipeline as it is: status, last changes of the fence row, faults, pods and ends of logs."""
    return [
        *_asked("status", lambda: [summary(world.pipeline.object())]),
        *_asked("fence", lambda: _last_changes(world)),
        f"faults of the last {BEFORE_SECONDS:.0f} s: {faults.lately(BEFORE_SECONDS)}",
        *_asked("pods", lambda: _pods(world.kubectl, f"--selector={PIPELINE_LABEL}={NAME}", logs_of="driver")),
        *_asked("operators", lambda: _pods(world.kubectl.within(OPERATOR_NAMESPACE), OPERATORS, logs_of="fencepost")),
    ]


def _asked(what: str, ask: Callable[[], list[str]]) -> list[str]:
    """Return what `ask` says, or why it does not: a diagnosis is made while much does not answer."""
    try:
        return [f"{what}: {line}" for line in ask()]
    except (KubectlError, AssertionError, CassandraDownError, FenceError) as error:
        return [f"{what}: {type(error).__name__}: {error}"]


def _last_changes(world: World) -> list[str]:
    with world.cassandra() as opened, translated("reading the history"):
        return [of_change(one, world.topic) for one in world.changes(opened)[-LAST_CHANGES:]]


def _pods(kubectl: Kubectl, selector: str, *, logs_of: str) -> list[str]:
    """Return a line for each pod, and the last lines of those whose name has `logs_of` in it."""
    lines: list[str] = []
    for pod in kubectl.items("pods", selector):
        name, status = pod["metadata"]["name"], pod.get("status", {})
        containers = json.dumps([one.get("state") for one in status.get("containerStatuses", [])])
        lines.append(f"{name} on {pod['spec'].get('nodeName')} {status.get('phase')} {containers}")
        if logs_of in name:
            try:
                said = kubectl.run("logs", name, f"--tail={LOG_LINES}").splitlines()
            except KubectlError as error:
                said = [str(error)]
            lines += [f"  {line}" for line in said]
    return lines


def _before(changes: Sequence[HistoryRow], faults: Sequence[Played], monotonic: float) -> list[str]:
    moments = [at for one in changes if (at := _seconds(one)) is not None]
    if not moments:
        return []
    return [
        _played(one, monotonic)
        for one in faults
        if one.began + monotonic <= max(moments)
        and (one.ended is None or one.ended + monotonic >= min(moments) - BEFORE_SECONDS)
    ]


def _played(fault: Played, monotonic: float) -> str:
    end = _moment(None if fault.ended is None else fault.ended + monotonic)
    missed = f", missed: {fault.missed}" if fault.missed else ""
    return f"{_moment(fault.began + monotonic)} to {end} {fault.label}{missed}"


def _seconds(change: HistoryRow) -> float | None:
    return None if change.written_at is None else change.written_at / 1e6


def _moment(seconds: float | None) -> str:
    return "?" if seconds is None else time.strftime("%H:%M:%S", time.localtime(seconds))


def _by_partition(offsets: Mapping[str, int], topic: str) -> str:
    return " ".join(f"{key.removeprefix(f'{topic}/')}:{offset}" for key, offset in sorted(offsets.items())) or "none"
