"""One run of a contestant that works off a backlog: rows per second and CPU time per row, by the contestant's own log.

The log is read by one `kubectl logs --follow`, so that watching costs every contestant the same and next to nothing.
Measured is what lies between the end of the first full batch and that of the last one: starting is not compared, nor
are the small batches with which a driver begins and a backlog ends.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from bench import cpu
from demo.scene import DRIVER, Scene
from harness.kubernetes.kubectl import Kubectl, Object
from harness.waiting import eventually

START_SECONDS: Final = 300.0
RUN_SECONDS: Final = 1200.0
FULL: Final = 0.5
"""A batch is a full one from this share of the largest batch on."""
TAIL: Final = 400
"""Characters of a log's last line that an error shows."""


class ContestError(Exception):
    """A contestant did not get to its end."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The end of a batch, in seconds since 1970, and its records."""

    at: float
    records: int


@dataclass(frozen=True, slots=True)
class Run:
    """What was measured: rows per second, and CPU-µs per row by role."""

    rows_per_second: float
    spent: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """Something that writes a topic's rows to a table. `start` begins with an empty namespace."""

    start: Callable[[Scene, int], None]
    pod: str
    """Label selector of the pod whose log is read."""
    mark: Callable[[str], Mark | None]
    """Reads a line of the log."""
    roles: Mapping[str, str]
    """Label selectors of more pods to meter, by role."""


def run(scene: Scene, contestant: Contestant, rows: int) -> Run:
    """Let a contestant write all rows. Raises ContestError, CannotMeterError, NotInTimeError."""
    meter = cpu.Meter(scene.nodes)
    with meter.running():
        contestant.start(scene, rows)
        pod = started(scene, contestant.pod)
        marks = collected(followed(scene.kubectl, pod, seconds=RUN_SECONDS), contestant.mark, rows)
    first, last = span(marks)
    measured = sum(mark.records for mark in marks if first.at < mark.at <= last.at)
    role_of = cpu.roles(scene, contestant.roles)
    return Run(
        measured / (last.at - first.at),
        cpu.per_row(meter.at(first.at, role_of), meter.at(last.at, role_of), measured),
    )


def started(scene: Scene, selector: str) -> str:
    """Wait until a pod's log can be read; return its name."""

    def there() -> Object | None:
        pods = scene.kubectl.items("pods", f"--selector={selector}")
        return next((pod for pod in pods if pod["status"].get("phase") not in {"Pending", "Unknown"}), None)

    return str(eventually(f"a pod of {selector} runs", there, seconds=START_SECONDS, pause=1.0)["metadata"]["name"])


def followed(kubectl: Kubectl, pod: str, *, seconds: float) -> Iterator[str]:
    """Yield the lines of a pod's log as they come, until it ends, or for `seconds`."""
    words = [*kubectl.command, f"--namespace={kubectl.namespace}", "logs", "--follow", "--tail=-1", pod]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    limit = threading.Timer(seconds, process.kill)
    limit.daemon = True
    limit.start()
    try:
        assert process.stdout is not None
        yield from process.stdout
    finally:
        limit.cancel()
        process.kill()
        process.wait()


def collected(lines: Iterable[str], read: Callable[[str], Mark | None], rows: int) -> list[Mark]:
    """Return the ends of all batches, once `rows` are done. Raises ContestError when the log ends before."""
    marks: list[Mark] = []
    done, last = 0, ""
    for line in lines:
        last = line.strip() or last
        if (mark := read(line)) is None:
            continue
        marks.append(mark)
        done += mark.records
        if done >= rows:
            return marks
    raise ContestError(f"its log ended, or time was up, after {done:,} of {rows:,} rows: {last[:TAIL]}")


def span(marks: Sequence[Mark]) -> tuple[Mark, Mark]:
    """Return the first and the last end of a full batch. Raises ContestError where there are fewer than two."""
    largest = max((mark.records for mark in marks), default=0)
    full = [mark for mark in marks if mark.records >= FULL * largest]
    if len(full) < 2 or full[-1].at <= full[0].at:
        raise ContestError(f"{len(marks)} batches are too few to measure; give more rows")
    return full[0], full[-1]


def driver_mark(line: str) -> Mark | None:
    """Read a line of the driver's log: the one of a commit says when and how many."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    if not isinstance(entry, dict) or entry.get("message") != "committed" or not isinstance(entry.get("records"), int):
        return None
    return Mark(datetime.fromisoformat(str(entry["time"])).timestamp(), entry["records"])


def fencepost(start: Callable[[Scene, int], None]) -> Contestant:
    """Return a contestant that is a pipeline of the operator's."""
    return Contestant(start=start, pod=DRIVER, mark=driver_mark, roles={})
