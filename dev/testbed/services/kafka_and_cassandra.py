"""Kafka and Cassandra in the cluster: a StatefulSet each, with the key of what it was made from as an annotation."""

import json
import socket
import string
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed.cluster import Kubectl
from testbed.images.built_images import Image
from testbed.keys import files_key
from testbed.process import CommandError, Transcript
from testbed.steps import StepError

NAMESPACE: Final = "fencepost-testbed"
KEY_ANNOTATION: Final = "fencepost.test/key"
MANIFESTS: Final = Path(__file__).parents[1] / "manifests"
NAMESPACE_MANIFEST: Final = MANIFESTS / "namespace.yaml"


def port_answers(port: int, address: str = "127.0.0.1", seconds: float = 2) -> bool:
    """Whether something accepts a connection there."""
    try:
        with socket.create_connection((address, port), timeout=seconds):
            return True
    except OSError:
        return False


def restricted_namespace(name: str) -> str:
    """The manifest of a namespace that enforces the `restricted` Pod Security Standard."""
    return string.Template(NAMESPACE_MANIFEST.read_text()).substitute(NAMESPACE=name)


@dataclass(frozen=True, slots=True)
class DataService:
    """Step: one StatefulSet of one pod runs its image and is reached from the host."""

    kubectl: Kubectl
    name: str
    image: Image
    port: int
    """Where the host reaches it on 127.0.0.1."""
    needs: tuple[str, ...]

    @property
    def doing(self) -> str:
        """For the console."""
        return f"starting {self.name} in the cluster"

    @property
    def manifest(self) -> Path:
        """Its template."""
        return MANIFESTS / f"{self.name}.yaml"

    def inputs(self) -> Mapping[str, str]:
        """The manifests; the image comes in by `needs`."""
        return {"manifests": files_key(MANIFESTS, [self.manifest, NAMESPACE_MANIFEST])}

    def present(self, key: str) -> bool:
        """The StatefulSet was made for this key, its pod is ready, and the host reaches it."""
        found = json.loads(self.kubectl.ask("-n", NAMESPACE, "get", f"statefulset/{self.name}", "-o", "json") or "{}")
        made_for = found.get("metadata", {}).get("annotations", {}).get(KEY_ANNOTATION)
        return made_for == key and found.get("status", {}).get("readyReplicas") == 1 and port_answers(self.port)

    def make(self, key: str, log: Transcript) -> None:
        """Apply the manifest and wait for the pod.  Raises CommandError, StepError."""
        # A StatefulSet does not replace a pod that is not ready, not even by a newer one, and the kubelet waits up to
        # five minutes before it tries a failed container again; a new pod is tried at once.
        stuck = self._pod_ready() == "False"
        self.kubectl.apply(restricted_namespace(NAMESPACE), log)
        template = string.Template(self.manifest.read_text())
        self.kubectl.apply(template.substitute(KEY=key, IMAGE=self.image.content_name), log)
        if stuck:
            self.kubectl.run("-n", NAMESPACE, "delete", f"pod/{self.name}-0", "--ignore-not-found", log=log)
        try:
            self.kubectl.run(
                "-n", NAMESPACE, "rollout", "status", f"statefulset/{self.name}", "--timeout=180s", log=log
            )
        except CommandError:
            self.kubectl.run("-n", NAMESPACE, "describe", f"pod/{self.name}-0", log=log)
            self.kubectl.run("-n", NAMESPACE, "logs", f"{self.name}-0", "--tail=40", log=log)
            raise
        deadline = time.monotonic() + 30
        while not port_answers(self.port):
            if time.monotonic() > deadline:
                raise StepError(f"{self.name} is ready in the cluster, but 127.0.0.1:{self.port} does not answer")
            time.sleep(0.5)

    def _pod_ready(self) -> str | None:
        path = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
        return self.kubectl.ask("-n", NAMESPACE, "get", f"pod/{self.name}-0", "-o", path)
