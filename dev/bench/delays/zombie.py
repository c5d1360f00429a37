"""Seconds from SIGSTOP of the driver to the next commit, which is its successor's.

A frozen driver looks alive to Kubernetes and to Spark; only that nothing is committed gives it away, so most of this
is `restart.stallTimeout`, which is given here as a user who wants to be quick would give it.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from bench.before import Build, blocks
from bench.delays.recovery import RATE, ROUNDS, Recovery, recoveries, samples
from bench.options import Options
from bench.samples import Result
from bench.stage import source, staged, wait_for_commit
from flights.console import Console
from testbed.environment import load

FREEZES: Final = 20
STALL_TIMEOUT: Final = "15s"
STEPS: Final = (
    ("notice", "killed", "fenced", "the stall timeout, and the takeover of the fence"),
    ("cluster", "fenced", "process", "master and workers of the next generation, the Job, its pod, its container"),
    ("driver", "process", "claimed", "session, executor, the claim"),
    ("commit", "claimed", "committed", "read, transform, write, commit"),
)


def measure(console: Console, options: Options, *, freezes: int = FREEZES) -> Result:
    """Freeze the driver over and over; each stays frozen until Kubernetes ends it."""
    rounds = options.rounds or ROUNDS
    found: dict[str, list[Recovery]] = {}
    notes: list[str] = []
    for build in blocks(options, load(), rounds=rounds):
        measured, why = _block(build, console, freezes=max(1, freezes // rounds))
        found.setdefault(build.suffix, []).extend(measured)
        notes += why
    return Result(
        "zombie",
        list(samples("freeze to commit", ("killed", "committed"), STEPS, found)),
        {"stallTimeout": STALL_TIMEOUT, "rows per second": RATE, "freezes": freezes, "rounds": rounds},
        [*notes, *(f"{name}: {what}" for name, _, _, what in STEPS)],
    )


def _block(build: Build, console: Console, *, freezes: int) -> tuple[list[Recovery], list[str]]:
    with staged() as scene:
        feed = source(scene)
        feed.burst(10_000)
        scene.apply(build.patched({"restart": {"stallTimeout": STALL_TIMEOUT}}))
        wait_for_commit(scene)
        with feed.flowing(RATE):
            freeze = partial(scene.signal_driver, "STOP")
            return recoveries(f"zombie{build.suffix}", scene, console, freeze, times=freezes)
