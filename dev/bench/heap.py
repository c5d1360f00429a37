"""The heap of a JVM right after each of its collections, by its own log: what is in use before one says little."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from demo.scene import Scene
from harness.kubernetes.nodes import Container
from soak.trend import Trend

_FILE: Final = "/tmp/heap.log"  # noqa: S108 - in the pod
_OPTION: Final = f"-Xlog:gc:file={_FILE}:uptime"
LOGGED: Final[Mapping[str, str]] = {f"spark.{process}.extraJavaOptions": _OPTION for process in ("driver", "executor")}
"""Settings of Spark with which both kinds of JVM write that log; a line per collection."""
INTERVAL: Final = 10.0
"""Seconds."""
_COLLECTION: Final = re.compile(r"\[(?P<uptime>[\d.]+)s\] GC\(\d+\) Pause .*?\d+M->(?P<after>\d+)M\(")


def after_collections(scene: Scene, role: str) -> Trend:
    """Return the heap of the first pod of a role, driver or worker, over the hours since its JVM began."""
    return trend(f"{role} heap after a collection", _log(scene, role))


def trend(name: str, log: str) -> Trend:
    """Return the least MiB of each INTERVAL with a collection: a small one leaves garbage that the next one takes."""
    least: dict[int, float] = {}
    for line in _COLLECTION.finditer(log):
        interval, after = int(float(line["uptime"]) // INTERVAL), float(line["after"])
        least[interval] = min(after, least.get(interval, after))
    return Trend(name, "MiB", [interval * INTERVAL / 3600 for interval in least], list(least.values()))


def _log(scene: Scene, role: str) -> str:
    for pod in scene.kubectl.items("pods", f"--selector=streaming.fencepost.dev/component={role}"):
        container = Container.of(pod)
        if container is None:
            continue
        process = next(iter(scene.nodes.processes(container)), None)
        if process is not None:
            return scene.nodes.run(container.node, "cat", f"/proc/{process}/root{_FILE}", check=False)
    return ""
