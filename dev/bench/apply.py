"""Seconds from `kubectl apply` to Ready, on a cluster that has the images."""

from __future__ import annotations

import time
from typing import Final

from bench.figures import Result, Sample
from bench.recovery import Recovery, driver_moments, fence_moments, known
from bench.stage import source, staged, wait_for_commit
from demo.scene import Scene
from flights.console import Console
from harness.waiting import eventually

TIMES: Final = 5
READY_SECONDS: Final = 300.0
STEPS: Final = (
    ("cluster", "applied", "fenced", "Helm, master and worker, until the fence is taken over for the first run"),
    ("schedule", "fenced", "process", "the Job, its pod, its container"),
    ("driver", "process", "claimed", "session, executor, an empty batch, the claim"),
    ("first batch", "claimed", "committed", "read, transform, write, commit"),
    ("status", "committed", "ready", "the operator sees it and says so"),
)


def measure(console: Console, *, times: int = TIMES) -> Result:
    """Apply, wait for Ready, remove; over and over."""
    found: list[Recovery] = []
    for number in range(times):
        with staged() as scene:
            source(scene).burst(10_000)
            applied = time.time()
            scene.apply()
            eventually("the pipeline is Ready", lambda scene=scene: is_ready(scene), seconds=READY_SECONDS, pause=0.1)  # type: ignore[misc]
            ready = time.time()
            row = wait_for_commit(scene)
            moments = {**fence_moments(scene.whole_history(), row.epoch), **driver_moments(scene, row.epoch)}
            found.append(Recovery({"applied": applied, "ready": ready, **moments}))
        console.line(f"apply: {number + 1} of {times}: {ready - applied:.1f} s")
    return Result(
        "apply",
        [
            Sample("apply to Ready", "s", known(found, "applied", "ready")),
            *(Sample(f"  {name}", "s", known(found, first, last)) for name, first, last, _ in STEPS),
        ],
        {"times": times},
        [f"{name}: {what}" for name, _, _, what in STEPS],
    )


def is_ready(scene: Scene) -> bool:
    """Whether Ready is True for the newest spec."""
    found = scene.pipeline() or {}
    status = found.get("status", {})
    return status.get("observedGeneration") == found.get("metadata", {}).get("generation") and any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in status.get("conditions", [])
    )
