"""Seconds from SIGKILL of the driver to the next commit, and where they go.

Moments come from four clocks that are one clock here (kind's nodes are containers of this machine): the node says when
it killed, the fence's history when it was taken over, claimed and committed, the driver's own log what it did before.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from bench.before import Build, blocks
from bench.options import Options
from bench.samples import Result, Sample
from bench.stage import committed, source, staged, wait_for_commit
from demo.scene import Killed, Scene
from flights.console import Console
from flights.history import HistoryRow, commits
from harness.gitops.kstatus import condition
from harness.kubernetes.kubectl import KubectlError
from harness.kubernetes.nodes import NodeError
from harness.waiting import NotInTimeError, eventually
from testbed.environment import load

KILLS: Final = 20
ROUNDS: Final = 2
RATE: Final = 500.0
"""Rows per second that keep coming, so that there is always something to commit."""
STEADY_SECONDS: Final = 5.0
"""Time of undisturbed commits between two kills: the restart budget counts them, and its backoff starts over."""

STEPS: Final = (
    ("detect", "killed", "fenced", "the pod ends, the operator sees it and takes the fence over"),
    ("schedule", "fenced", "process", "the Job, its pod, its container, until the driver's first instruction"),
    ("session", "process", "session", "the JVM and the Spark session; Cassandra and Kafka beside it"),
    ("executor", "session", "executor", "the first executor is registered"),
    ("warm", "executor", "warm", "what is left of the start before the claim"),
    ("claim", "warm", "claimed", "the fence row is this driver's"),
    ("first batch", "claimed", "committed", "read, transform, write, commit"),
)


OF_STANDBY: Final = (
    STEPS[0],
    ("look", "fenced", "claimed", "the standby sees its epoch, and the fence row is its"),
    STEPS[-1],
)
WITHOUT_EXECUTORS: Final = (
    *STEPS[:3],
    ("warm", "session", *STEPS[4][2:]),
    *STEPS[5:],
)
SHAPES: Final[Mapping[str, tuple[Mapping[str, Any], Sequence[tuple[str, ...]]]]] = {
    "": ({}, STEPS),
    " with standby": ({"restart": {"standby": "Warm"}}, OF_STANDBY),
    " without workers": ({"cluster": {"workers": 0}}, WITHOUT_EXECUTORS),
}
"""The spec and the steps, by what marks the samples: the example's pipeline, as it is, with a warm standby and without
workers, in turns."""
WARM_SECONDS: Final = 240.0


@dataclass(frozen=True, slots=True)
class Recovery:
    """The moments of one recovery, in seconds since 1970, by name."""

    moments: Mapping[str, float]

    def between(self, first: str, last: str) -> float | None:
        """Seconds, None when one of the moments is not known."""
        return self.moments[last] - self.moments[first] if {first, last} <= self.moments.keys() else None


def measure(console: Console, options: Options, *, kills: int = KILLS) -> Result:
    """Kill the driver of each shape over and over under load; and as often with an earlier build, as the example is."""
    rounds = options.rounds or ROUNDS
    found: dict[str, dict[str, list[Recovery]]] = {shape: {} for shape in SHAPES}
    notes: list[str] = []
    for build in blocks(options, load(), rounds=rounds):
        for shape, (spec, _) in SHAPES.items():
            if shape and build.suffix:
                continue  # an earlier build may not know the field
            measured, why = _block(build, f"recovery{build.suffix}{shape}", spec, console, kills=kills // rounds or 1)
            found[shape].setdefault(f"{build.suffix}{shape}", []).extend(measured)
            notes += why
    ends = ("killed", "committed")
    shown = [
        one for shape, (_, steps) in SHAPES.items() for one in samples("kill to commit", ends, steps, found[shape])
    ]
    return Result(
        "recovery",
        shown,
        {"rows per second": RATE, "kills": kills, "rounds": rounds},
        [*notes, *(f"{name}: {what}" for name, _, _, what in (*STEPS, *OF_STANDBY[1:-1]))],
    )


def _block(
    build: Build, name: str, spec: Mapping[str, Any], console: Console, *, kills: int
) -> tuple[list[Recovery], list[str]]:
    with staged() as scene:

        def kill() -> Killed:
            time.sleep(STEADY_SECONDS)
            if "restart" in spec:
                eventually("the standby is warm", lambda: is_standby_ready(scene), seconds=WARM_SECONDS, pause=0.5)
            return scene.signal_driver("KILL")

        feed = source(scene)
        feed.burst(10_000)
        scene.apply(build.patched(spec))
        wait_for_commit(scene)
        with feed.flowing(RATE):
            return recoveries(name, scene, console, kill, times=kills)


def is_standby_ready(scene: Scene) -> bool:
    """Return whether the pipeline's standby is warm."""
    return condition(scene.pipeline() or {}, "StandbyReady") == "True"


def samples(
    total: str, ends: tuple[str, str], steps: Sequence[tuple[str, ...]], found: Mapping[str, list[Recovery]]
) -> Iterator[Sample]:
    """Yield the whole and its steps (name, first moment, last moment, …) of each build, by what marks its samples."""
    for suffix, recoveries_found in found.items():
        yield Sample(f"{total}{suffix}", "s", known(recoveries_found, *ends))
        for name, first, last, *_ in steps:
            yield Sample(f"  {name}{suffix}", "s", known(recoveries_found, first, last))


def recoveries(
    name: str, scene: Scene, console: Console, stop: Callable[[], Killed], *, times: int
) -> tuple[list[Recovery], list[str]]:
    """Stop the driver over and over; return each recovery, and why they ended early, if they did."""
    found: list[Recovery] = []
    for number in range(times):
        try:
            row = wait_for_commit(scene, past=committed(scene.fence()))
            stopped = stop()
            after = committed(scene.fence())
            row = wait_for_commit(scene, past=after, epoch=row.epoch + 1)
            found.append(recovery(scene, stopped, row.epoch))
            total = found[-1].between("killed", "committed")
            console.line(f"{name}: {number + 1} of {times}: {total or 0:.1f} s")
        except (NotInTimeError, KubectlError, NodeError) as error:
            note = f"ended after {number}: {error}"
            console.line(f"{name}: {note}")
            return found, [note]
    return found, []


def known(found: list[Recovery], first: str, last: str) -> list[float]:
    """The spans of all recoveries that have them."""
    spans = (one.between(first, last) for one in found)
    return [span for span in spans if span is not None]


def recovery(scene: Scene, killed: Killed, epoch: int) -> Recovery:
    """Gather the moments of a recovery that ended with a commit under `epoch`."""
    moments = fence_moments([row for row in scene.whole_history() if row.epoch >= epoch - 1], epoch)
    return Recovery({"killed": killed.at, **moments, **driver_moments(scene, epoch)})


def fence_moments(history: list[HistoryRow], epoch: int) -> dict[str, float]:
    """When an epoch was begun, claimed and first committed under."""
    moments: dict[str, float] = {}
    for row in history:
        if row.epoch == epoch and row.written_at is not None:
            name = "fenced" if row.driver is None else "claimed"
            moments.setdefault(name, row.written_at / 1e6)
    first = next((commit for _, commit in commits(history) if commit.epoch == epoch), None)
    if first is not None and first.written_at is not None:
        moments["committed"] = first.written_at / 1e6
    return moments


def driver_moments(scene: Scene, epoch: int) -> dict[str, float]:
    """When the driver of an epoch began and what it was ready with, by its log."""
    log = scene.kubectl.run("logs", f"job/{scene.name}-run-{epoch}", "--tail=-1")
    moments: dict[str, float] = {}
    for line in log_lines(log):
        message = str(line.get("message", ""))
        if message.startswith("ready: ") and "seconds" in line:
            at = datetime.fromisoformat(str(line["time"])).timestamp()
            moments[message.removeprefix("ready: ")] = at
            moments.setdefault("process", at - float(str(line["seconds"])))
    return moments


def log_lines(log: str) -> Iterator[Mapping[str, object]]:
    """The log's lines that are JSON objects; Spark's own are not."""
    for text in log.splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict):
            yield line
