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


def resident(process: int, proc: Path = PROC) -> int | None:
    """Return the resident memory of a process in bytes, None when it is gone."""
    try:
        return int((proc / str(process) / "statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerMemory:
    """Bytes; None for what the kernel does not tell, and for a limit that is not there."""

    used: int | None
    """With the page cache."""
    working_set: int | None
    """Without the page cache that is given up first: what Kubernetes compares with the limit."""
    limit: int | None

    @classmethod
    def here(cls, cgroup: Path = CGROUP) -> ContainerMemory:
        """Return that of this container, by cgroup v2 or v1."""
        first, second = cgroup, cgroup / "memory"
        used = _number(first / "memory.current") or _number(second / "memory.usage_in_bytes")
        limit = _number(first / "memory.max") or _number(second / "memory.limit_in_bytes")
        idle = _of_stat(first, "inactive_file") or _of_stat(second, "total_inactive_file") or 0
        return cls(used=used, working_set=None if used is None else max(0, used - idle), limit=limit)

    def metrics(self, owner: str) -> Iterator[Metric]:
        """Yield gauges whose names begin with `fencepost_<owner>_container_`."""
        from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 - processes without metrics do not load it

        for name, words, figure in (
            ("memory_bytes", "Memory of the container, with the page cache.", self.used),
            (
                "working_set_bytes",
                "Memory of the container, without the page cache that is given up first.",
                self.working_set,
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


def _of_stat(folder: Path, name: str) -> int | None:
    try:
        lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name} ")), None)
