"""Seconds between the last commit of a run and the first of the next one, when the spec changes, by strategy.

Each change is a variable of the driver's environment, so that the next run is another one and works as the last did.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from bench.before import Build, blocks
from bench.delays.recovery import RATE, ROUNDS, Recovery, fence_moments, samples
from bench.options import Options
from bench.samples import Result
from bench.stage import committed, source, staged, wait_for_commit
from demo.scene import Scene
from flights.console import Console
from flights.history import commits
from harness.kubernetes.kubectl import KubectlError
from harness.waiting import NotInTimeError
from testbed.environment import load

NAME: Final = "upgrades"
CHANGES: Final = 10
STEADY_SECONDS: Final = 5.0
STRATEGIES: Final = ("Immediate", "Handoff")
STEPS: Final = (
    ("stop", "last", "fenced", "the operator or the run ends the epoch"),
    ("claim", "fenced", "claimed", "with Immediate, the start of the next run; with Handoff, its next look"),
    ("first batch", "claimed", "committed", "read, transform, write, commit"),
)


def measure(console: Console, options: Options) -> Result:
    """Change the spec over and over under load, with each strategy in turns."""
    rounds = options.rounds or ROUNDS
    found: dict[str, list[Recovery]] = {}
    notes: list[str] = []
    for build in blocks(options, load(), rounds=rounds):
        for strategy in STRATEGIES:
            some, why = _block(build, strategy, console, changes=max(1, CHANGES // rounds))
            found.setdefault(f", {strategy}{build.suffix}", []).extend(some)
            notes += why
    shown = list(samples("commit to commit", ("last", "committed"), STEPS, found))
    conditions = {"rows per second": RATE, "changes": CHANGES, "rounds": rounds}
    return Result(NAME, shown, conditions, [*notes, *(f"{name}: {what}" for name, _, _, what in STEPS)])


def _block(build: Build, strategy: str, console: Console, *, changes: int) -> tuple[list[Recovery], list[str]]:
    found: list[Recovery] = []
    with staged() as scene:
        feed = source(scene)
        feed.burst(10_000)
        scene.apply(build.patched(_spec(strategy, 0)))
        row = wait_for_commit(scene)
        with feed.flowing(RATE):
            for number in range(1, changes + 1):
                try:
                    row = wait_for_commit(scene, past=committed(row))
                    time.sleep(STEADY_SECONDS)
                    scene.apply(build.patched(_spec(strategy, number)))
                    begun = wait_for_commit(scene, epoch=row.epoch + 1)
                    row = wait_for_commit(scene, past=committed(begun), epoch=begun.epoch)
                    found.append(_gap(scene, row.epoch))
                except (NotInTimeError, KubectlError) as error:
                    note = f"{strategy}: ended after {number - 1}: {error}"
                    console.line(f"{NAME}: {note}")
                    return found, [note]
                gap = found[-1].between("last", "committed") or 0.0
                console.line(f"{NAME}: {strategy}{build.suffix}: {number} of {changes}: {gap:.2f} s")
    return found, []


def _spec(strategy: str, number: int) -> Mapping[str, Any]:
    return {
        "upgrade": {"strategy": strategy},
        "job": {"env": [{"name": "CHANGE", "value": str(number)}]},
    }


def _gap(scene: Scene, epoch: int) -> Recovery:
    """Return the moments of a change: the last commit before an epoch, and how the epoch began."""
    history = scene.whole_history()
    moments = fence_moments(history, epoch)
    last = [commit for _, commit in commits(history) if commit.epoch < epoch and commit.written_at is not None]
    if last and last[-1].written_at is not None:
        moments["last"] = last[-1].written_at / 1e6
    return Recovery(moments)
