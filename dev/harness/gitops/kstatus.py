"""What Flux and Helm 4 take objects for, by the library of both; and every version of live objects to ask it about."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from harness.kubernetes.kubectl import Kubectl, Object
from testbed.environment import Environment

SEEN_AS: Final = {
    "Pending": {"InProgress"},
    "Provisioning": {"InProgress"},
    "Starting": {"InProgress"},
    "Restarting": {"InProgress"},
    "Upgrading": {"InProgress"},
    "Rewinding": {"InProgress"},
    "Running": {"InProgress", "Current"},  # not what the spec asks for yet, or all of it
    "CatchingUp": {"Current"},
    "Suspended": {"InProgress", "Current"},  # its run ends, or has ended
    "Stalled": {"Failed"},
    "Deleting": {"Terminating"},
}
"""What kstatus may take a pipeline for, by `status.state`."""


def condition(found: Object, kind: str) -> str:
    """Return the status of an object's condition, '' where it has none."""
    conditions = found.get("status", {}).get("conditions", [])
    return next((str(one["status"]) for one in conditions if one["type"] == kind), "")


def kstatus(environment: Environment, objects: Sequence[Object]) -> list[str]:
    """Return InProgress, Current, Failed, Terminating or Unknown for each object."""
    program = environment.kubectl.parent / "kstatus"
    ended = subprocess.run([program], input=json.dumps(objects), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return [answer["status"] for answer in json.loads(ended.stdout)]


@dataclass(slots=True)
class Versions:
    """Every version of the objects of a namespace that a watch reports, in order."""

    objects: list[Object] = field(default_factory=list)

    def of(self, kind: str) -> list[Object]:
        """Return the versions of one kind's objects."""
        return [found for found in self.objects if found["kind"] == kind]


@contextmanager
def watched(kubectl: Kubectl, kinds: str) -> Iterator[Versions]:
    """Keep every version of the objects of these kinds, separated by commas, while the block runs."""
    found = Versions()
    command = [*kubectl.command, f"--namespace={kubectl.namespace}", "get", "--watch", "--output=json"]
    processes = [subprocess.Popen([*command, kind], stdout=subprocess.PIPE, text=True) for kind in kinds.split(",")]
    threads = [threading.Thread(target=_keep, args=(process, found), name="watch") for process in processes]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        for process in processes:
            process.terminate()
        for thread in threads:
            thread.join()
        for process in processes:
            process.communicate()


def _keep(process: subprocess.Popen[str], found: Versions) -> None:
    """Take one JSON document after the other from kubectl, which indents them."""
    assert process.stdout is not None
    text: list[str] = []
    for line in process.stdout:
        text.append(line)
        if line.rstrip("\n") == "}":
            found.objects.append(json.loads("".join(text)))
            text.clear()
