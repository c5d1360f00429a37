"""Memory of the operator with one pipeline and with fifty, all suspended: what a pipeline costs it."""

from __future__ import annotations

import copy
import time
from typing import Any, Final

from bench.samples import Result, Sample
from bench.stage import staged
from demo.scene import Scene
from flights.console import Console
from harness.faults.cluster_faults import Faults
from harness.kubernetes.nodes import Container
from harness.pipelines import KIND
from harness.waiting import eventually

COUNTS: Final = (1, 50)
SETTLE_SECONDS: Final = 60.0
LOOKS: Final = 10


def measure(console: Console) -> Result:
    """Look at the resident memory of the operator's processes."""
    samples: list[Sample] = []
    with staged() as scene:
        scene.apply({"suspend": True})
        there = 1
        for count in COUNTS:
            for number in range(there, count):
                scene.apply_pipeline(copied(scene, f"copy-{number}"))
            there = count
            eventually(f"{count} pipelines are suspended", lambda count=count: suspended(scene) == count, seconds=300)  # type: ignore[misc]
            console.line(f"operator-memory: {count} suspended; settling for {SETTLE_SECONDS:.0f} s")
            time.sleep(SETTLE_SECONDS)
            samples.append(Sample(f"{count} pipeline{'s' if count > 1 else ''}", "MiB", looks(scene)))
    return Result("operator-memory", samples, {"state": "suspended"})


def copied(scene: Scene, name: str) -> dict[str, Any]:
    """The same pipeline under another name, suspended, and leaving nothing behind."""
    manifest = copy.deepcopy(dict(scene.manifest))
    manifest["metadata"] = {"name": name}
    manifest["spec"] |= {"suspend": True, "deletionPolicy": "Delete"}
    return manifest


def suspended(scene: Scene) -> int:
    """Pipelines that the operator says are suspended."""
    return sum(one.get("status", {}).get("state") == "Suspended" for one in scene.kubectl.items(KIND))


def looks(scene: Scene) -> list[float]:
    """Resident memory in MiB, some times a second apart."""
    faults = Faults(scene.kubectl, scene.nodes)
    container = Container.of(eventually("the operator runs", faults.operator_pod, seconds=60))
    if container is None:
        raise RuntimeError("the operator does not run")
    found = []
    for _ in range(LOOKS):
        files = " ".join(f"/proc/{process}/status" for process in scene.nodes.processes(container))
        said = scene.nodes.run(container.node, "sh", "-c", f"grep -h VmRSS {files}", check=False)
        found.append(sum(int(line.split()[1]) for line in said.splitlines()) / 1024)
        time.sleep(1)
    return found
