"""Memory as the kernel counts it: of a process, and of this container beside its limit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from prometheus_client.core import Metric

PROC: Final = Path("/proc")
CGROUP: Final = Path("/sys/fs/cgroup")
_UNLIMITED: Final = 1 << 60
"""Bytes. With cgroup v1 a container without a limit has a larger one."""
_CACHE_V2: Final = frozenset({"active_file", "inactive_file", "slab_reclaimable"})
_CACHE_V1: Final = frozenset({"total_active_file", "total_inactive_file"})
"""Not `cache` and `file`: these count files in memory too, which are not given up."""


def resident(process: int, proc: Path = PROC) -> int | None:
    """Return the resident memory of a process in bytes, None when it is gone."""
    try:
        return int((proc / str(process) / "statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMemory:
    """A process: its program, the process that started it, and the most bytes that it has had resident."""

    program: str
    parent: int
    peak: int

    @classmethod
    def of(cls, process: int, proc: Path = PROC) -> ProcessMemory | None:
        """Return that of a process, None when it is gone or the kernel does not say."""
        try:
            lines = (proc / str(process) / "status").read_text(encoding="utf-8", errors="replace").splitlines()
            fields = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
            return cls(program=fields["Name"], parent=int(fields["PPid"]), peak=int(fields["VmHWM"].split()[0]) * 1024)
        except (OSError, KeyError, IndexError, ValueError):
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerMemory:
    """Bytes; None for what the kernel does not report, and for a limit that is not there."""

    used: int | None
    """With the page cache."""
    unreclaimable: int | None
    """Without the page cache, which the kernel gives up before it kills. Kubernetes' working set counts the part of it
    that was read twice: a lookup file that each batch reads would fill it up to the limit."""
    limit: int | None

    @classmethod
    def here(cls, cgroup: Path = CGROUP) -> ContainerMemory:
        """Return that of this container, by cgroup v2 or v1."""
        first, second = cgroup, cgroup / "memory"
        used = _number(first / "memory.current") or _number(second / "memory.usage_in_bytes")
        limit = _number(first / "memory.max") or _number(second / "memory.limit_in_bytes")
        cache = _of_stat(first, _CACHE_V2) or _of_stat(second, _CACHE_V1)
        return cls(used=used, unreclaimable=None if used is None else max(0, used - cache), limit=limit)

    def metrics(self, owner: str) -> Iterator[Metric]:
        """Yield gauges whose names begin with `fencepost_<owner>_container_`."""
        from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 - processes without metrics do not load it

        for name, words, figure in (
            ("memory_bytes", "Memory of the container, with the page cache.", self.used),
            (
                "unreclaimable_bytes",
                "Memory of the container without the page cache: what is compared with the limit before a kill.",
                self.unreclaimable,
            ),
            ("memory_limit_bytes", "The container's limit.", self.limit),
        ):
            if figure is not None:
                yield GaugeMetricFamily(f"fencepost_{owner}_container_{name}", words, value=figure)


def _number(path: Path) -> int | None:
    try:
        found = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return found if found < _UNLIMITED else None


def _of_stat(folder: Path, names: frozenset[str]) -> int:
    """Return the sum of these figures, 0 for those that are not there."""
    try:
        lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    figures = (line.partition(" ") for line in lines)
    return sum(int(value) for name, _, value in figures if name in names)
