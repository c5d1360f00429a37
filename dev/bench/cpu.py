"""CPU time by process of the pipeline and of what it reads and writes, from the cgroups of their pods.

CPU time per row stays stable on a machine that others use too, where rows per second do not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from bench.figures import Sample
from demo.scene import Scene
from harness.kubectl import Object
from testbed.cluster import NODES
from testbed.dataservices import NAMESPACE as DATA_NAMESPACE

COMPONENT: Final = "streaming.fencepost.dev/component"
_READ: Final = """
find /sys/fs/cgroup -path '*-pod*' ! -path '*cri-containerd*' \\( -name cpuacct.usage -o -name cpu.stat \\) |
while read -r file; do
  case "$file" in
    */cpuacct.usage) echo "$file $(cat "$file") ns";;
    */cpu.stat) echo "$file $(awk '/^usage_usec/ {print $2}' "$file") us";;
  esac
done
"""
"""Pods' own groups: those of their containers, below, are counted in them."""
_POD: Final = re.compile(r"-pod([0-9a-f_-]{36})(?:\.slice)?/")


def usage(scene: Scene, selector: Mapping[str, str] | None = None) -> Counter[str]:
    """Return the CPU-µs that each role has used so far; roles are the pods' components, and Cassandra and Kafka.

    Pods that ended are not counted. `selector` maps more roles to label selectors in the pipeline's namespace.
    """
    roles = {
        pod["metadata"]["uid"]: role
        for role, pods in (
            *((role, _pods(scene, label)) for role, label in (selector or {}).items()),
            *((role, _pods(scene, f"{COMPONENT}={role}")) for role in ("driver", "worker", "master")),
            *((role, _data_pods(scene, role)) for role in ("cassandra", "kafka")),
        )
        for pod in pods
    }
    found: Counter[str] = Counter()
    seen: set[tuple[str, str]] = set()
    for node in NODES:
        for line in scene.nodes.run(node, "sh", "-c", _READ, check=False).splitlines():
            path, value, unit = line.rsplit(" ", 2)
            pod = _POD.search(path)
            uid = pod[1].replace("_", "-") if pod else ""
            # A machine with both versions of cgroups counts in one of them; where both count, one is enough.
            if uid in roles and value.isdecimal() and int(value) and (node, uid) not in seen:
                seen.add((node, uid))
                found[roles[uid]] += int(value) // (1000 if unit == "ns" else 1)
    return found


def per_row(before: Mapping[str, int], after: Mapping[str, int], rows: int) -> dict[str, float]:
    """Return the CPU-µs per row by role between two looks."""
    return {role: max(0, spent - before.get(role, 0)) / rows for role, spent in after.items()}


def samples(name: str, spent: Mapping[str, float]) -> list[Sample]:
    """Return one sample per role."""
    return [Sample(f"{name}: {role}", "CPU-µs per row", [value]) for role, value in sorted(spent.items())]


def _pods(scene: Scene, selector: str) -> list[Object]:
    return scene.kubectl.items("pods", f"--selector={selector}")


def _data_pods(scene: Scene, app: str) -> list[Object]:
    return scene.kubectl.within(DATA_NAMESPACE).items("pods", f"--selector=app={app}")
