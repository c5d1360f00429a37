"""Seconds from `kubectl apply` to the first commit and to Ready, on a cluster that has the images."""

from __future__ import annotations

import time
from typing import Final

from bench.before import Build, blocks
from bench.delays.recovery import ROUNDS, Recovery, driver_moments, fence_moments, known, samples
from bench.options import Options
from bench.samples import Result, Sample
from bench.stage import source, staged, wait_for_commit
from demo.scene import Scene
from flights.console import Console
from harness.gitops.kstatus import condition
from harness.waiting import eventually
from testbed.environment import load

TIMES: Final = 20
READY_SECONDS: Final = 300.0
STEPS: Final = (
    ("epoch", "applied", "fenced", "the fence row, and the takeover for the first run"),
    ("cluster", "fenced", "process", "Helm, the master's container, the Job, its pod, its container"),
    ("session", "process", "session", "the JVM beside the master's, the master's port, the Spark session"),
    ("executor", "session", "executor", "a worker, and the first executor is registered"),
    ("warm", "executor", "warm", "an empty batch"),
    ("first batch", "warm", "committed", "claim, read, transform, write, commit"),
)


def measure(console: Console, options: Options, *, times: int = TIMES) -> Result:
    """Apply, wait for Ready, remove; over and over, and as many times with an earlier build, in turns."""
    rounds = options.rounds or ROUNDS
    found: dict[str, list[Recovery]] = {}
    for build in blocks(options, load(), rounds=rounds):
        for number in range(max(1, times // rounds)):
            one = _applied(build)
            found.setdefault(build.suffix, []).append(one)
            total = one.between("applied", "committed")
            console.line(f"apply{build.suffix}: {number + 1} of {times // rounds}: {total or 0:.1f} s")
    return Result(
        "apply",
        [
            *samples("apply to first commit", ("applied", "committed"), STEPS, found),
            *(
                Sample(f"apply to Ready{suffix}", "s", known(each, "applied", "ready"))
                for suffix, each in found.items()
            ),
        ],
        {"times": times, "rounds": rounds},
        [f"{name}: {what}" for name, _, _, what in STEPS],
    )


def _applied(build: Build) -> Recovery:
    with staged() as scene:
        source(scene).burst(10_000)
        applied = time.time()
        scene.apply(build.patched({}))
        eventually("the pipeline is Ready", lambda: is_ready(scene), seconds=READY_SECONDS, pause=0.1)
        ready = time.time()
        row = wait_for_commit(scene)
        moments = {**fence_moments(scene.whole_history(), row.epoch), **driver_moments(scene, row.epoch)}
        return Recovery({"applied": applied, "ready": ready, **moments})


def is_ready(scene: Scene) -> bool:
    """Whether Ready is True for the newest spec."""
    found = scene.pipeline() or {}
    is_newest = found.get("status", {}).get("observedGeneration") == found.get("metadata", {}).get("generation")
    return is_newest and condition(found, "Ready") == "True"
