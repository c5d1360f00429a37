"""A Kubernetes cluster of its own, without nodes: etcd, API server and controllers as processes of this machine.

What the API server and its controllers do is real: garbage collection, finalizers, RBAC, the end of a namespace.  No
scheduler assigns a pod, and no kubelet runs one; whoever needs one to be ready says so in its status.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harness.kubernetes.kubectl import Kubectl, KubectlError
from harness.waiting import eventually
from testbed.home import Home
from testbed.images.built_images import REPOSITORY

_CERTIFICATE: Final = Path("certificates", "apiserver.crt")
"""In the folder: self-signed. The API server makes it when it starts."""
_CONTROLLERS: Final = (
    "namespace-controller", "garbage-collector-controller", "job-controller", "statefulset-controller",
    "serviceaccount-controller",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """A cluster that runs. `kubeconfig` is an administrator's."""

    server: str
    folder: Path
    kubeconfig: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def freeze(self) -> None:
        """Let no process of the cluster do anything, as in a region that is cut off, until `thaw`."""
        for process in self.processes:
            process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let all processes continue."""
        for process in self.processes:
            process.send_signal(signal.SIGCONT)

    def kubectl(self, namespace: str) -> Kubectl:
        """Return an administrator's kubectl for a namespace."""
        return Kubectl(Home.of_user().bin / "kubectl", self.kubeconfig, namespace)

    def kubeconfig_of(self, account: str, namespace: str) -> Path:
        """Return the kubeconfig of a ServiceAccount."""
        token = self.kubectl(namespace).run("create", "token", account, "--duration=1h").strip()
        return _kubeconfig(self.folder, account, self.server, token)


@contextmanager
def control_plane(*options: str) -> Iterator[ControlPlane]:
    """Run a cluster with Fencepost's CRDs while the block runs; `options` are more of the API server's."""
    with tempfile.TemporaryDirectory(prefix="control-plane-") as name, ExitStack() as stack:
        folder, token = Path(name), secrets.token_hex(16)
        peers, clients, secure = (_free_port() for _ in range(3))
        store = f"http://127.0.0.1:{clients}"
        etcd = ("etcd", f"--data-dir={folder / 'etcd'}", "--unsafe-no-fsync", f"--listen-client-urls={store}")
        peer = f"http://127.0.0.1:{peers}"
        urls = (f"--advertise-client-urls={store}", f"--listen-peer-urls={peer}")
        first = (f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}")
        processes = [stack.enter_context(_running(folder, *etcd, *urls, *first))]
        key = folder / "sa.key"
        generate = ("openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", str(key))
        subprocess.run(generate, check=True, capture_output=True)
        (folder / "tokens.csv").write_text(f"{token},admin,admin,system:masters\n")
        server = f"https://127.0.0.1:{secure}"
        found = ControlPlane(
            server=server,
            folder=folder,
            kubeconfig=_kubeconfig(folder, "admin", server, token),
            processes=processes,
        )
        api_server = _running(folder, "kube-apiserver", *_api_server(folder, store, secure, key), *options)
        processes.append(stack.enter_context(api_server))
        admin = found.kubectl("default")
        eventually("the API server is ready", lambda: _answers(admin, "get", "--raw=/readyz"), seconds=90)
        controllers = (
            f"--kubeconfig={found.kubeconfig}", f"--controllers={','.join(_CONTROLLERS)}", "--leader-elect=false",
            f"--service-account-private-key-file={key}", "--secure-port=0",
        )  # fmt: skip
        processes.append(stack.enter_context(_running(folder, "kube-controller-manager", *controllers)))
        for path in sorted((REPOSITORY / "crds").glob("*.yaml")):
            admin.run("apply", "--server-side", f"--filename={path}")
        kinds = "streamingpipelines,pipelinerewinds"
        eventually("the API server serves pipelines", lambda: _answers(admin, "get", kinds), seconds=60)
        eventually("there is kube-system", lambda: admin.get("namespace", "kube-system"), seconds=60)
        yield found


def _api_server(folder: Path, store: str, port: int, key: Path) -> tuple[str, ...]:
    return (
        f"--etcd-servers={store}", f"--secure-port={port}", "--bind-address=127.0.0.1",
        f"--cert-dir={folder / _CERTIFICATE.parent}", "--authorization-mode=RBAC",
        f"--token-auth-file={folder / 'tokens.csv'}", "--service-account-issuer=https://fencepost.test",
        f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
        "--service-cluster-ip-range=10.98.0.0/16", "--disable-admission-plugins=ServiceAccount",
        "--endpoint-reconciler-type=none", "--enable-priority-and-fairness=false",
    )  # fmt: skip


@contextmanager
def _running(
    folder: Path, program: str, *arguments: str, variables: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run one of the testbed's programs while the block runs; Kubernetes' act by the name that they are called by."""
    file = Home.of_user().bin / ("kubernetes" if program.startswith("kube-") else program)
    with (folder / f"{program}.log").open("w") as log:
        environment = {**os.environ, **(variables or {})}
        process = subprocess.Popen(
            [program, *arguments], executable=file, stdout=log, stderr=subprocess.STDOUT, env=environment
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)  # a test may have frozen it
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _kubeconfig(folder: Path, account: str, server: str, token: str) -> Path:
    path, entry = folder / f"{account}.kubeconfig", "own"
    cluster = {"server": server, "certificate-authority": str(folder / _CERTIFICATE)}
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": entry,
                "contexts": [{"name": entry, "context": {"cluster": entry, "user": entry}}],
                "users": [{"name": entry, "user": {"token": token}}],
                "clusters": [{"name": entry, "cluster": cluster}],
            }
        )
    )
    path.chmod(0o600)  # Helm warns of any other
    return path


def _answers(kubectl: Kubectl, *words: str) -> bool:
    try:
        kubectl.run(*words, seconds=10)
    except KubectlError:
        return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
