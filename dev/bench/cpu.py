"""CPU time by process of the pipeline and of what it reads and writes, from the cgroups of their pods.

CPU time per row stays stable on a machine that others use too, where rows per second do not.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from bench.samples import Sample
from demo.scene import Scene
from harness.kubernetes.kubectl import Object
from testbed.cluster import WORKERS
from testbed.services.kafka_and_cassandra import NAMESPACE as DATA_NAMESPACE

COMPONENT: Final = "streaming.fencepost.dev/component"
EVERY_SECONDS: Final = 2.0
"""Between two looks of a meter: a look takes some hundredths of a second of CPU itself."""
_READ: Final = """
if [ -d /sys/fs/cgroup/cpuacct ]; then cd /sys/fs/cgroup/cpuacct/; name=cpuacct.usage; what=.
else cd /sys/fs/cgroup; name=cpu.stat; what=usage_usec; fi
find . -path '*-pod*' ! -path '*cri-containerd*' -name "$name" -exec grep -H "$what" {} +
"""
"""Pods' own groups, of either version of cgroups: those of their containers, below, are counted in them."""
_LINE: Final = re.compile(
    r"-pod(?P<uid>[0-9a-f_-]{36})(?:\.slice)?/(?:cpuacct\.usage:(?P<ns>\d+)|cpu\.stat:\D+(?P<us>\d+))$"
)


class CannotMeterError(Exception):
    """A role's CPU time could not be read."""


class Reader(Protocol):
    """What prints a command's output in a node, as `harness.kubernetes.nodes.Nodes` does."""

    def run(self, node: str, *command: str, seconds: float = 30, check: bool = True) -> str:
        """Return what a command in a node prints."""
        ...


def by_pod(lines: str) -> dict[str, float]:
    """Return the CPU-µs of each pod by its uid, from what `_READ` prints in a node."""
    found: dict[str, float] = {}
    for line in lines.splitlines():
        if match := _LINE.search(line):
            uid = match["uid"].replace("_", "-")
            spent = int(match["ns"]) / 1000 if match["ns"] else float(match["us"])
            found[uid] = max(spent, found.get(uid, 0.0))  # a group that is mounted twice is one group
    return found


def roles(scene: Scene, selector: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the role of each pod by its uid: the pipeline's components, and Cassandra and Kafka.

    `selector` maps more roles to label selectors in the pipeline's namespace.
    """
    labels = {role: f"{COMPONENT}={role}" for role in ("driver", "worker", "master")} | dict(selector or {})
    pods = [
        *((role, scene.kubectl.items("pods", f"--selector={label}")) for role, label in labels.items()),
        *((role, _data_pods(scene, role)) for role in ("cassandra", "kafka")),
    ]
    return {pod["metadata"]["uid"]: role for role, found in pods for pod in found}


def usage(scene: Scene, selector: Mapping[str, str] | None = None) -> Counter[str]:
    """Return the CPU-µs that each role has used so far. Pods that ended are not counted."""
    spent: dict[str, float] = {}
    for node in WORKERS:
        spent |= by_pod(scene.nodes.run(node, "sh", "-c", _READ, check=False))
    found: Counter[str] = Counter()
    for uid, role in roles(scene, selector).items():
        found[role] += round(spent.get(uid, 0))
    return found


def per_row(before: Mapping[str, float], after: Mapping[str, float], rows: int) -> dict[str, float]:
    """Return the CPU-µs per row by role between two looks."""
    return {role: max(0, spent - before.get(role, 0)) / rows for role, spent in after.items()}


def samples(name: str, spent: Mapping[str, Sequence[float]]) -> list[Sample]:
    """Return one sample per role, of the CPU-µs per row of each run."""
    return [Sample(f"{name}: {role}", "CPU-µs per row", values) for role, values in sorted(spent.items())]


@dataclass(slots=True)
class Meter:
    """Reads every pod's CPU time again and again, so that its value at any moment is known afterwards."""

    nodes: Reader
    _looks: dict[str, list[tuple[float, float]]] = field(init=False, default_factory=dict)
    """By pod: seconds since 1970, and CPU-µs so far."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Look every EVERY_SECONDS while the block runs, and once more at its end."""
        stop = threading.Event()

        def watch() -> None:
            while not stop.wait(EVERY_SECONDS):
                self.look()

        self.look()
        thread = threading.Thread(target=watch, name="CPU meter", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            self.look()

    def look(self) -> None:
        """Read all nodes once; one that does not answer is left out of this look."""
        for node in WORKERS:
            before = time.time()
            try:
                said = self.nodes.run(node, "sh", "-c", _READ, check=False)
            except Exception:  # noqa: BLE001, S112 - the next look comes soon, and `at` says when none did
                continue
            moment = (before + time.time()) / 2
            for uid, spent in by_pod(said).items():
                self._looks.setdefault(uid, []).append((moment, spent))

    def at(self, moment: float, role_of: Mapping[str, str]) -> Counter[str]:
        """Return each role's CPU-µs at a moment, between two looks by interpolation. Raises CannotMeterError."""
        found: Counter[str] = Counter()
        for uid, role in role_of.items():
            looks = self._looks.get(uid)
            if not looks:
                raise CannotMeterError(f"no CPU time of a pod of {role} could be read; does its node answer?")
            found[role] += round(_between(looks, moment))
        return found


def _between(looks: Sequence[tuple[float, float]], moment: float) -> float:
    """Interpolate; before the first look it is what that look saw, and after the last one likewise."""
    before = looks[0]
    for look in looks:
        if look[0] >= moment:
            span = look[0] - before[0]
            share = (moment - before[0]) / span if span > 0 else 0.0
            return before[1] + (look[1] - before[1]) * share if moment > before[0] else before[1]
        before = look
    return before[1]


def _data_pods(scene: Scene, app: str) -> list[Object]:
    return scene.kubectl.within(DATA_NAMESPACE).items("pods", f"--selector=app={app}")
