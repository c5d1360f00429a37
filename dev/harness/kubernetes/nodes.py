"""The cluster's nodes from below: processes of a container and images, through the container engine that runs kind."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from testbed.environment import Environment
from testbed.images.built_images import qualified

_IMAGES: Final = ("ctr", "--namespace=k8s.io", "images")


class NodeError(AssertionError):
    """A command in a node failed."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes, each a container of this engine."""

    docker: str

    @classmethod
    def of(cls, environment: Environment) -> Nodes:
        """Return the testbed's nodes."""
        return cls(str(environment.docker))

    def run(self, node: str, *command: str, seconds: float = 30, check: bool = True) -> str:
        """Return what a command in a node prints. Raises NodeError."""
        words = [self.docker, "exec", node, *command]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            raise NodeError(f"{' '.join(words)}: no answer within {seconds:g} s") from None
        if check and done.returncode != 0:
            raise NodeError(f"{' '.join(words)}: code {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    @contextmanager
    def lines(self, node: str, *command: str) -> Iterator[Iterator[str]]:
        """Yield the lines that a command in a node prints while the block runs; wait for its end after the block."""
        with subprocess.Popen([self.docker, "exec", node, *command], stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            yield iter(running.stdout)

    def host(self, node: str) -> str:
        """Return the address under which a node, and a pod on it, reaches this machine."""
        route = self.run(node, "ip", "-4", "route", "show", "default").split()
        return route[route.index("via") + 1]

    def processes(self, container: Container) -> list[int]:
        """Return the container's process ids in its node, by the container's id in their cgroup's path."""
        # grep ends with 2 when a process went away under it: not an error here.
        listing = self.run(
            container.node, "sh", "-c", f"grep -l {container.identity} /proc/[0-9]*/cgroup 2>/dev/null", check=False
        )
        return [int(path.split("/")[2]) for path in listing.split()]

    def signal(self, container: Container, name: str) -> Sequence[int]:
        """Send a signal to every process of a container; return their ids. Raises NodeError when it has none."""
        found = self.processes(container)
        if not found:
            raise NodeError(f"{container} has no process")
        # One that ended meanwhile is not an error.
        self.run(container.node, "kill", f"-{name}", *map(str, found), check=False)
        return found

    @contextmanager
    def trigger(self, container: Container) -> Iterator[Callable[[], bool]]:
        """Yield what kills a container at once: a shell that waits in its node, a few ms away.

        The call returns False when the container is gone already. Raises NodeError when it has no process, or when the
        shell does not end.
        """
        found = self.processes(container)
        if not found:
            raise NodeError(f"{container} has no process")
        first = min(found)  # the container's init: the kernel ends all others with it
        script = f"read -r _ && grep -q {container.identity} /proc/{first}/cgroup && kill -KILL {first}"
        words = [self.docker, "exec", "--interactive", container.node, "sh", "-c", script]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as shell:
            yield lambda: _ended_well(shell, seconds=30)

    def tag(self, node: str, image: str, name: str) -> None:
        """Give an image that a node holds a second name there."""
        self.run(node, *_IMAGES, "tag", "--force", qualified(image), qualified(name))

    def untag(self, node: str, name: str) -> None:
        """Take a name away from an image in a node; nothing to do when it is not there."""
        self.run(node, *_IMAGES, "remove", qualified(name), check=False)


def _ended_well(shell: subprocess.Popen[bytes], *, seconds: float) -> bool:
    """Let a shell read a line, and return whether it ends with 0. Raises NodeError."""
    try:
        shell.communicate(b"\n", timeout=seconds)
    except subprocess.TimeoutExpired:
        shell.kill()
        raise NodeError(f"a shell in a node did not end within {seconds:g} s") from None
    return shell.returncode == 0


@dataclass(frozen=True, slots=True)
class Container:
    """A running container: its node and its id."""

    node: str
    identity: str

    @classmethod
    def of(cls, pod: dict[str, Any]) -> Container | None:
        """Return the first container of a pod while it runs."""
        for status in pod.get("status", {}).get("containerStatuses", []):
            if "running" in status.get("state", {}):
                return cls(node=pod["spec"]["nodeName"], identity=status["containerID"].removeprefix("containerd://"))
        return None
