"""What a pipeline holds while little flows and at rest: memory by process, and cores, by its shape.

A shared page counts in parts for the processes that share it (PSS), so figures of processes may be added up.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from bench.cpu import usage
from bench.delays.recovery import WARM_SECONDS, is_standby_ready
from bench.samples import Result, Sample
from bench.stage import source, staged, wait_for_commit
from demo.scene import Scene
from flights.console import Console
from harness.waiting import eventually
from soak.resources import of_pipeline

NAME: Final = "footprint"
SHAPES: Final[Mapping[str, Mapping[str, Any]]] = {
    "no workers": {"cluster": {"workers": 0}},
    "one worker": {"cluster": {"workers": 1}},
    "one worker and a standby": {"cluster": {"workers": 1}, "restart": {"standby": "Warm"}},
}
RATE: Final = 300.0
"""Rows per second while the pipeline works."""
SETTLE_SECONDS: Final = 60.0
WINDOW_SECONDS: Final = 60.0
LOOKS: Final = 6
OWN: Final = frozenset({"driver", "worker", "master"})
"""The roles whose CPU time is the pipeline's."""


def measure(console: Console) -> Result:
    """Measure each shape at work, then at rest."""
    samples = [sample for shape, patch in SHAPES.items() for sample in _of_shape(shape, patch, console)]
    conditions = {"rows per second": RATE, "settled for s": SETTLE_SECONDS, "measured for s": WINDOW_SECONDS}
    return Result(NAME, samples, conditions)


def _of_shape(shape: str, patch: Mapping[str, Any], console: Console) -> list[Sample]:
    with staged() as scene:
        feed = source(scene)
        feed.burst(10_000)
        scene.apply(patch)
        wait_for_commit(scene)
        if "restart" in patch:
            eventually("the standby is warm", lambda: is_standby_ready(scene), seconds=WARM_SECONDS, pause=0.5)
        with feed.flowing(RATE):
            at_work = _looks(f"{shape}, at work", scene, console)
        return [*at_work, *_looks(f"{shape}, at rest", scene, console)]


def _looks(name: str, scene: Scene, console: Console) -> list[Sample]:
    time.sleep(SETTLE_SECONDS)
    memory: defaultdict[str, list[float]] = defaultdict(list)
    spent, began = usage(scene), time.monotonic()
    for _ in range(LOOKS):
        time.sleep(WINDOW_SECONDS / LOOKS)
        found: defaultdict[str, float] = defaultdict(float)
        for figure in of_pipeline(scene):
            if figure.name.endswith(" PSS"):
                found[figure.name.removesuffix(" PSS")] += figure.value
        for process, mebibytes in found.items():
            memory[process].append(mebibytes)
        memory["all processes"].append(sum(found.values()))
    used, seconds = usage(scene) - spent, time.monotonic() - began
    cores = sum(used[role] for role in OWN) / 1e6 / seconds
    console.line(f"footprint: {name}: {memory['all processes'][-1]:,.0f} MiB, {1000 * cores:.0f} millicores")
    return [
        *(Sample(f"{name}: {process}", "MiB", values) for process, values in sorted(memory.items())),
        Sample(f"{name}: CPU", "millicores", [1000 * cores]),
    ]
