"""What the processes of a pipeline and of the operator use, and what Cassandra keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bench.cpu import COMPONENT
from bench.delays.recovery import log_lines
from demo.scene import Scene
from harness.kubernetes.kubectl import Kubectl, KubectlError
from harness.kubernetes.nodes import Container
from testbed.cluster import NODES
from testbed.release import NAMESPACE as OPERATOR_NAMESPACE

MIB = 1024.0
INIT = "tini"
"""The containers' first process, which does nothing but wait."""
PROCESS = """for p in %s; do
  name=$(cat /proc/$p/comm) || continue
  case "$(tr '\\0' ' ' </proc/$p/cmdline)" in
    *CoarseGrainedExecutorBackend*) name=executor;;
    *data_service*) name='data service';;
    *fencepost.spark.worker_daemon*) name=tasks;;
  esac
  rss=$(awk '/VmRSS/ {print $2}' /proc/$p/status)
  pss=$(awk '/^Pss:/ {print $2}' /proc/$p/smaps_rollup)
  threads=$(awk '/Threads/ {print $2}' /proc/$p/status)
  echo "$name $rss ${pss:-0} $threads $(ls /proc/$p/fd | wc -l)"
done 2>/dev/null"""
"""Of each process: its program, KiB in memory (RSS, and PSS), threads, open files."""

_KILLS = """
find /sys/fs/cgroup -path '*-pod*' \\( -name memory.events.local -o -name memory.oom_control \\) |
while read -r file; do echo "$file $(awk '/^oom_kill / {print $2}' "$file")"; done
"""
"""Of each group alone, with either version of cgroups; a node sees its own pods."""
_ANONYMOUS = """
find /sys/fs/cgroup -path '*-pod*' -path '*cri-containerd*' -name memory.stat |
while read -r file; do echo "$file $(awk '/^(rss|anon) / {print $2}' "$file")"; done
"""
"""Of the containers' groups, in bytes; `rss` of the first version of cgroups is `anon` of the second."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure at one moment."""

    name: str
    unit: str
    value: float


def figures(scene: Scene) -> Iterator[Figure]:
    """Yield what can be read now: processes by pod and program, the driver's JVM, Cassandra's partitions."""
    yield from _pods(scene, scene.kubectl, f"{COMPONENT}=driver", "driver")
    yield from _pods(scene, scene.kubectl, f"{COMPONENT}=worker", "worker")
    yield from _pods(scene, scene.kubectl, f"{COMPONENT}=master", "master")
    yield from _pods(scene, scene.kubectl.within(OPERATOR_NAMESPACE), "app.kubernetes.io/name=fencepost", "operator")
    yield from _driver_jvm(scene)
    yield from _partitions(scene)


def of_pipeline(scene: Scene) -> Iterator[Figure]:
    """Yield what the pods of the driver, the workers and the master, and their processes, use now."""
    for role in ("driver", "worker", "master"):
        yield Figure(f"{role} memory", "MiB", _anonymous(scene, role))
        yield from _pods(scene, scene.kubectl, f"{COMPONENT}={role}", role)


def oom_kills(scene: Scene) -> int:
    """Return how many processes the kernel has killed for memory in the pods of the driver and of the workers."""
    return sum(sum(_of_groups(scene, role, _KILLS)) for role in ("driver", "worker"))


def _anonymous(scene: Scene, role: str) -> float:
    """Return the MiB of a role's pods that the kernel cannot drop: what their limit is about."""
    return sum(_of_groups(scene, role, _ANONYMOUS)) / MIB / MIB


def _of_groups(scene: Scene, role: str, script: str) -> Iterator[int]:
    """Yield the number that a script prints after the path of each group of a role's pods."""
    uids = {pod["metadata"]["uid"] for pod in scene.kubectl.items("pods", f"--selector={COMPONENT}={role}")}
    for node in NODES:
        for line in scene.nodes.run(node, "sh", "-c", script, check=False).splitlines():
            path, _, value = line.rpartition(" ")
            if value.isdecimal() and any(uid in path.replace("_", "-") for uid in uids):
                yield int(value)


def _pods(scene: Scene, kubectl: Kubectl, selector: str, role: str) -> Iterator[Figure]:
    for pod in kubectl.items("pods", f"--selector={selector}"):
        container = Container.of(pod)
        if container is not None:
            yield from _processes(scene, container, role)


def _processes(scene: Scene, container: Container, role: str) -> Iterator[Figure]:
    found = " ".join(map(str, scene.nodes.processes(container)))
    sums: dict[str, list[float]] = {}
    for line in scene.nodes.run(container.node, "sh", "-c", PROCESS % found, check=False).splitlines():
        program, *numbers = line.rsplit(" ", 4)
        if program != INIT and len(numbers) == 4 and all(number.isdecimal() for number in numbers):
            rss, pss, threads, files = map(float, numbers)
            total = sums.setdefault(program.split("-")[0], [0.0] * 5)
            for index, value in enumerate((rss / MIB, pss / MIB, threads, files, 1.0)):
                total[index] += value
    for program, (rss, pss, threads, files, count) in sorted(sums.items()):
        place = f"{role} {program}"
        yield Figure(f"{place} RSS", "MiB", rss)
        yield Figure(f"{place} PSS", "MiB", pss)
        yield Figure(f"{place} threads", "", threads)
        yield Figure(f"{place} open files", "", files)
        yield Figure(f"{place} processes", "", count)


def _driver_jvm(scene: Scene) -> Iterator[Figure]:
    """Yield the newest `resources` line of the driver's log: the JVM's own account."""
    row = scene.fence()
    try:
        log = scene.kubectl.run("logs", f"job/{scene.name}-run-{row.epoch if row else 1}", "--since=180s")
    except KubectlError:
        return
    reports = [line for line in log_lines(log) if line.get("message") == "resources"]
    newest: Mapping[str, object] = reports[-1] if reports else {}
    for name, unit in (("heap_mib", "MiB"), ("metaspace_mib", "MiB"), ("classes", ""), ("jvm_threads", "")):
        value = newest.get(name)
        if isinstance(value, int | float):
            yield Figure(f"driver JVM {name.removesuffix('_mib')}", unit, float(value))


def _partitions(scene: Scene) -> Iterator[Figure]:
    """Yield the size of the fence's tables: the largest partition, and the space on disk (flushed data alone)."""
    for view, what in (("max_partition_size", "largest partition"), ("disk_usage", "disk")):
        query = f"SELECT table_name, mebibytes FROM system_views.{view} WHERE keyspace_name = %s ALLOW FILTERING"  # noqa: S608
        for row in scene.cassandra.execute(query, (scene.fence_keyspace,)):
            yield Figure(f"{what} of {row.table_name}", "MiB", float(row.mebibytes))
