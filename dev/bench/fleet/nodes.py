"""What stands for the nodes: a thread that sees pods come and go, and reports of each what its kubelet would.

No container runs.  A pod is bound to a node, is ready at once, and is gone as soon as it is deleted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from bench.fleet.requests import Object, RequestError, Requests
from fencepost_operator.api import GROUP
from flights.console import Console

COMPONENT: Final = f"{GROUP}/component"
NAMES: Final = ("fleet-1", "fleet-2", "fleet-3")
_KILLED: Final = 137
_AT_ONCE: Final = 6
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_RENEWED_EVERY: Final = 10.0
_STALE: Final = frozenset({404, 409})
"""The pod is gone, or was changed meanwhile: another event follows."""


@dataclass(slots=True)
class Nodes:
    """Nodes without machines. `started` is called with each driver's pod as soon as it runs."""

    requests: Requests
    console: Console
    started: Callable[[Object], None]
    ended: Callable[[str], None]
    """Is called with the uid of a driver's pod as soon as it has ended."""
    _begun: set[str] = field(default_factory=set)
    _over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Let pods run while the block runs."""
        for name in NAMES:
            now = _now()
            self.requests.ask("POST", "/api/v1/nodes", {"metadata": {"name": name}})
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": now, "lastHeartbeatTime": now}
            self.requests.ask("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"conditions": [ready]}})
            self.requests.ask("POST", _LEASES, {"metadata": {"name": name}})
        threading.Thread(target=self._work, name="nodes", daemon=True).start()
        leases = threading.Thread(target=self._renew, name="leases")
        leases.start()
        try:
            yield
        finally:
            self._over.set()
            leases.join()

    def kill(self, pod: Object) -> None:
        """End a driver's process as SIGKILL does. Raises RequestError."""
        self.ended(pod["metadata"]["uid"])
        self._end(pod, code=_KILLED, phase="Failed")

    def _work(self) -> None:
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="kubelet") as pool:
            for kind, pod in self.requests.follow("/api/v1/pods", f"{GROUP}/pipeline", self._over):
                if kind != "DELETED":
                    pool.submit(self._manage, pod)

    def _renew(self) -> None:
        """Report of each node, as its kubelet does, that it lives."""
        while not self._over.wait(_RENEWED_EVERY):
            for name in NAMES:
                spec = {"holderIdentity": name, "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
                self.requests.ask("PATCH", f"{_LEASES}/{name}", {"spec": spec})

    def _manage(self, pod: Object) -> None:
        if self._over.is_set():
            return
        try:
            self._look(pod)
        except RequestError as error:
            if error.status not in _STALE:
                self.console.line(f"fleet: pod {pod['metadata']['name']}: {error}")

    def _look(self, pod: Object) -> None:
        uid, phase = pod["metadata"]["uid"], pod.get("status", {}).get("phase")
        if "deletionTimestamp" in pod["metadata"]:
            self.ended(uid)
            if phase == "Running":
                self._end(pod, code=0, phase="Succeeded")
            self.requests.delete(path_of(pod), grace=0)
        elif uid not in self._begun:
            self._begun.add(uid)
            self._run(pod)

    def _run(self, pod: Object) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": NAMES[hash(pod["metadata"]["uid"]) % len(NAMES)]}
        binding = {"metadata": {"name": pod["metadata"]["name"]}, "target": target}
        self.requests.ask("POST", f"{path_of(pod)}/binding", binding)
        state = {"running": {"startedAt": _now()}}
        common = {"ready": True, "started": True, "restartCount": 0, "image": "", "imageID": "", "state": state}
        containers = [{"name": one["name"], **common} for one in pod["spec"]["containers"]]
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": _now()}
            for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ]
        status = {
            "phase": "Running",
            "startTime": _now(),
            "conditions": conditions,
            "containerStatuses": containers,
            "podIP": "192.0.2.1",
            "podIPs": [{"ip": "192.0.2.1"}],
        }
        ran = self.requests.ask("PATCH", f"{path_of(pod)}/status", {"status": status})
        if pod["metadata"]["labels"].get(COMPONENT) == "driver":
            self.started(ran)

    def _end(self, pod: Object, *, code: int, phase: str) -> None:
        ended = {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": _now()}
        ready = {"type": "Ready", "status": "False", "lastTransitionTime": _now()}
        statuses = [
            {**one, "ready": False, "state": {"terminated": ended}} for one in pod["status"]["containerStatuses"]
        ]
        status = {"phase": phase, "containerStatuses": statuses, "conditions": [ready]}
        self.requests.ask("PATCH", f"{path_of(pod)}/status", {"status": status})


def path_of(pod: Object) -> str:
    """Return the path of a pod in the API."""
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
