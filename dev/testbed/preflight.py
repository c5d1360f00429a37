"""What would stop `up` half-way, found before it begins."""

import os
import shutil
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed.engine import Docker
from testbed.home import Home
from testbed.process import Transcript
from testbed.steps import StepError

GIB: Final = 1 << 30
DISK_COLD: Final = 15 * GIB
"""A cold `up` writes about 11 GB: Go caches 4, images 3, three nodes 3, the rest 1."""
DISK_WARM: Final = 3 * GIB
"""What a cluster in use may still grow by, once images are made."""
MEMORY: Final = 8 * GIB
"""Cluster 2 GiB, Cassandra 1.2, Kafka 0.4, one pipeline 2, the tests themselves 1."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts of this machine that decide."""

    memory: int
    """Bytes of RAM."""
    free_disk: Mapping[Path, int]
    """Free bytes where the cache and where the engine's images live."""
    engine_answers: bool
    root: bool


def refusals(machine: Machine, *, warm: bool) -> list[str]:
    """Why `up` should not begin, each with its remedy; empty when nothing stands against it."""
    found: list[str] = []
    if machine.memory < MEMORY:
        found.append(
            f"{machine.memory / GIB:.1f} GiB of memory, and cluster, Kafka and Cassandra need 8: use a larger machine"
        )
    wanted = DISK_WARM if warm else DISK_COLD
    found += [
        f"{free / GIB:.1f} GiB free at {folder}, and {wanted // GIB} are needed: "
        f"free some (`docker system prune`), or set FENCEPOST_TESTBED_HOME to a larger disk"
        for folder, free in machine.free_disk.items()
        if free < wanted
    ]
    if not machine.engine_answers and not machine.root:
        found.append("no Docker engine answers and only root can start one: start Docker, or run this as root")
    return found


def existing_parent(folder: Path) -> Path:
    """The nearest folder on the way up that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def total_memory(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Bytes of RAM (`MemTotal` in proc(5), in KiB)."""
    line = next(line for line in meminfo.read_text().splitlines() if line.startswith("MemTotal:"))
    return int(line.split()[1]) * 1024


def this_machine(home: Home) -> Machine:
    """Look at the machine."""
    docker = Docker(home)
    answers = docker.answers() if Path(docker.client).exists() else Path("/var/run/docker.sock").exists()
    images = Path((docker.ask("info", "--format", "{{.DockerRootDir}}") or "/var/lib/docker").strip())
    folders = {existing_parent(home.root), existing_parent(images)}
    return Machine(
        memory=total_memory(),
        free_disk={folder: shutil.disk_usage(folder).free for folder in sorted(folders)},
        engine_answers=answers,
        root=os.geteuid() == 0,
    )


def taken_ports(ports: tuple[int, ...], address: str = "127.0.0.1") -> list[int]:
    """The ports of this host that something listens on already."""
    taken = []
    for port in ports:
        with socket.socket() as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                attempt.bind((address, port))
            except OSError:
                taken.append(port)
    return taken


@dataclass(frozen=True, slots=True)
class Preflight:
    """Step: this machine can carry the testbed."""

    home: Home
    warm: Callable[[], bool]
    """Whether the large things are made already."""
    name: str = "preflight"
    doing: str = "looking at this machine"
    needs: tuple[str, ...] = ()

    def inputs(self) -> Mapping[str, str]:
        """Nothing: what is built does not depend on the machine's size."""
        return {}

    def present(self, key: str) -> bool:  # noqa: ARG002
        """Nothing stands against it."""
        return not refusals(this_machine(self.home), warm=self.warm())

    def make(self, key: str, log: Transcript) -> None:  # noqa: ARG002
        """Refuse.  Raises StepError."""
        reasons = refusals(this_machine(self.home), warm=self.warm())
        for reason in reasons:
            log.note(reason)
        raise StepError("; ".join(reasons))
