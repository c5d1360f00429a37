"""How the containers of a node end, as containerd reports it, also for pods whose object is gone."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from harness.kubernetes.nodes import Container, Nodes

_WATCH: Final = "echo $$; exec ctr --namespace=k8s.io events"
_EXIT: Final = " /tasks/exit "


@dataclass(slots=True)
class ContainerExits:
    """The exit codes of containers that ended since the watch began, by their ids."""

    codes: dict[str, int] = field(default_factory=dict)

    def code(self, container: Container) -> int | None:
        """Return a container's exit code, None while it has not ended."""
        return self.codes.get(container.identity)

    def read(self, lines: Iterable[str]) -> None:
        """Take what `ctr events` prints; of processes that were executed in a container nothing is kept."""
        for line in lines:
            _, is_exit, text = line.partition(_EXIT)
            if not is_exit:
                continue
            event = json.loads(text)
            if event["id"] == event["container_id"]:
                self.codes[event["container_id"]] = int(event.get("exit_status", 0))  # left out where it is 0


@contextmanager
def container_exits(nodes: Nodes, node: str) -> Iterator[ContainerExits]:
    """Watch a node while the block runs. The process that watches is in the node: it pauses and resumes with it."""
    command = [nodes.docker, "exec", node, "sh", "-c", _WATCH]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert watching.stdout is not None
    pid, found = watching.stdout.readline().strip(), ContainerExits()
    reading = threading.Thread(target=found.read, args=(watching.stdout,), name=f"exits on {node}")
    reading.start()
    try:
        yield found
    finally:
        nodes.run(node, "kill", pid, check=False)
        watching.wait(timeout=30)
        reading.join()
        watching.stdout.close()
