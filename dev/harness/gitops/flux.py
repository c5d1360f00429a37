"""Flux's real kustomize-controller, and a source that needs no Git server: an ExternalArtifact behind a web server."""

from __future__ import annotations

import functools
import hashlib
import io
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Final

from harness.kubernetes.kubectl import Kubectl, Object
from harness.processes import free_port, running
from harness.waiting import eventually
from harness.web_server import Quiet, serving
from testbed.environment import Environment

KUSTOMIZATION: Final = "kustomizations.kustomize.toolkit.fluxcd.io"
ARTIFACT: Final = "externalartifacts.source.toolkit.fluxcd.io"


@dataclass(slots=True)
class Flux:
    """A controller, and the namespace of its own objects."""

    kubectl: Kubectl
    folder: Path
    """Served at `url`."""
    url: str
    revisions: dict[str, int] = field(default_factory=dict)

    def publish(self, name: str, files: Mapping[str, str]) -> str:
        """Make these files the next revision of a source; return the revision as Flux names it."""
        number = self.revisions[name] = self.revisions.get(name, 0) + 1
        archive = _packed(files)
        digest = f"sha256:{hashlib.sha256(archive).hexdigest()}"
        revision = f"r{number}@{digest}"
        path = f"{name}-r{number}.tar.gz"
        (self.folder / path).write_bytes(archive)
        if number == 1:
            kind = {"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "ExternalArtifact"}
            self.kubectl.apply({**kind, "metadata": {"name": name}, "spec": {}})
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        artifact = {
            "url": f"{self.url}/{path}",
            "path": path,
            "revision": revision,
            "digest": digest,
            "lastUpdateTime": now,
        }
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "Succeeded",
            "message": "stored",
            "lastTransitionTime": now,
            "observedGeneration": 1,
        }
        self.kubectl.patch(
            ARTIFACT, name, {"status": {"artifact": artifact, "conditions": [ready]}}, subresource="status"
        )
        return revision

    def wait(self, name: str, revision: str, *, ready: bool = True, seconds: float = 120) -> Object:
        """Wait until a Kustomization's Ready is so about a revision; return the condition."""

        def reached() -> Object | None:
            status = (self.kubectl.get(KUSTOMIZATION, name) or {}).get("status", {})
            found = next((dict(one) for one in status.get("conditions", []) if one["type"] == "Ready"), {})
            wanted = ("True", revision) if ready else ("False", revision)
            seen = (found.get("status"), status.get("lastAttemptedRevision"))
            assert seen == wanted, f"{seen} {found.get('reason')}: {found.get('message')}"
            return found

        return eventually(f"{name} is {'' if ready else 'not '}ready at {revision[:16]}", reached, seconds=seconds)

    def now(self, name: str) -> None:
        """Ask for a reconciliation at once, as `flux reconcile` does."""
        mark = datetime.now(UTC).isoformat()
        self.kubectl.run("annotate", KUSTOMIZATION, name, f"reconcile.fluxcd.io/requestedAt={mark}", "--overwrite")


def _packed(files: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in sorted(files.items()):
            content = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


class _Files(Quiet, SimpleHTTPRequestHandler):
    """Serves a folder."""


@contextmanager
def flux(environment: Environment, folder: Path, *, namespace: str) -> Iterator[Flux]:
    """Run the controller for objects in `namespace` alone; its kinds stay in the cluster."""
    served = folder / "served"
    served.mkdir(parents=True, exist_ok=True)
    kubectl = Kubectl.of(environment, namespace)
    crds = (environment.kubectl.parent.parent / "share" / "flux-crds").resolve()
    kubectl.apply_crds(crds)
    health = f"127.0.0.1:{free_port()}"
    command = [
        str(environment.kubectl.parent / "kustomize-controller"),
        "--watch-all-namespaces=false",
        "--feature-gates=ExternalArtifact=true",
        "--requeue-dependency=2s",
        f"--metrics-addr=127.0.0.1:{free_port()}",
        f"--health-addr={health}",
        "--log-level=info",
    ]
    env = {"RUNTIME_NAMESPACE": namespace, "KUBECONFIG": str(environment.kubeconfig)}
    log = folder / "kustomize-controller.log"
    with (
        serving(functools.partial(_Files, directory=str(served))) as port,
        running(*command, log=log, ready=f"http://{health}/readyz", env=env),
    ):
        yield Flux(kubectl, served, f"http://127.0.0.1:{port}")
