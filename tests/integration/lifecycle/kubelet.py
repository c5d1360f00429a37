"""What stands for kubelets and drivers in a cluster without nodes: pods get ready, and drivers claim the fence."""

from __future__ import annotations

import json
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from fencepost.contract import DriverConfig, ExitCode
from fencepost.fence import Fence, FenceRow
from fencepost.fence.cassandra.table import CassandraFenceTable
from fencepost.fence.errors import FenceError
from fencepost.fence.protocol import Starting
from fencepost_operator.api import GROUP
from harness.kubernetes.control_plane import ControlPlane

_COMPONENT: Final = f"{GROUP}/component"
_PAUSE: Final = 0.3


@dataclass(slots=True)
class Kubelet:
    """Looks at all pods again and again, in a thread."""

    plane: ControlPlane
    table: CassandraFenceTable
    _over: threading.Event = field(default_factory=threading.Event)
    _claimed: set[str] = field(default_factory=set)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Let pods run while the block runs."""
        thread = threading.Thread(target=self._work, name="kubelet")
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _work(self) -> None:
        while not self._over.wait(_PAUSE):
            with suppress(urllib.error.URLError, TimeoutError, FenceError):
                for pod in self._ask("GET", "/api/v1/pods")["items"]:
                    self._manage(pod)

    def _manage(self, pod: dict[str, Any]) -> None:
        metadata, component = pod["metadata"], pod["metadata"].get("labels", {}).get(_COMPONENT)
        if component is None:
            return
        if "deletionTimestamp" in metadata:
            self._end(pod)
            return
        if pod.get("status", {}).get("phase") != "Running":
            self._run(pod)
        if component == "driver" and metadata["uid"] not in self._claimed:
            self._claim(pod)

    def _run(self, pod: dict[str, Any]) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        running = {"ready": True, "started": True, "restartCount": 0, "image": "", "imageID": ""}
        state = {"running": {"startedAt": now}}
        containers = [{"name": one["name"], "state": state, **running} for one in pod["spec"]["containers"]]
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
        status = {"phase": "Running", "startTime": now, "conditions": [ready], "containerStatuses": containers}
        self._ask("PATCH", f"{_path(pod)}/status", {"status": status})

    def _end(self, pod: dict[str, Any]) -> None:
        """Report that the containers ended as asked: until then the Job controller keeps the pod."""
        status = pod.get("status", {})
        if status.get("phase") != "Running":
            return
        state = {"terminated": {"exitCode": int(ExitCode.STOPPED), "reason": "Completed"}}
        containers = [{**one, "ready": False, "state": state} for one in status["containerStatuses"]]
        self._ask("PATCH", f"{_path(pod)}/status", {"status": {"phase": "Succeeded", "containerStatuses": containers}})

    def _claim(self, pod: dict[str, Any]) -> None:
        """Do what a driver does first; its topic is empty, so that there is nothing else to do."""
        namespace, run = pod["metadata"]["namespace"], pod["metadata"]["labels"]["job-name"]
        config_map = self._ask("GET", f"/api/v1/namespaces/{namespace}/configmaps/{run}")
        config = DriverConfig.from_json(config_map["data"]["config.json"])
        uid = pod["metadata"]["uid"]

        def start(row: FenceRow) -> Starting:
            found = dict(row.offsets) or {f"{config.source.topics[0]}/0": 0}
            return Starting(offsets=found, planned=found, topic_ids=dict(row.topic_ids))

        fence = Fence(self.table, config.pipeline)
        fence.claim(epoch=config.epoch, driver=uid, code=config.code, start=start, owner=config.owner)
        self._claimed.add(uid)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        config = json.loads(self.plane.kubeconfig.read_text())
        headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
        if body is not None:
            headers["Content-Type"] = "application/merge-patch+json"
        text = json.dumps(body).encode() if body is not None else None
        url, unchecked = f"{self.plane.server}{path}", ssl._create_unverified_context()  # noqa: S323 - our own process
        request = urllib.request.Request(url, method=method, data=text, headers=headers)  # noqa: S310 - https
        with urllib.request.urlopen(request, timeout=10, context=unchecked) as answer:  # noqa: S310 - https
            found: dict[str, Any] = json.load(answer)
        return found


def _path(pod: dict[str, Any]) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
