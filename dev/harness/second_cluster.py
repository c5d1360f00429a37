"""A second Kubernetes cluster: etcd, an API server and an operator in one pod, over the same Kafka and Cassandra.

It has no nodes, so no pod of it ever runs; what its operator does to the fence is real.
"""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from harness.kubectl import Kubectl, KubectlError, Object
from harness.pipelines import SECRET, code
from harness.waiting import eventually
from testbed.environment import Environment
from testbed.images import REPOSITORY
from testbed.release import NAMESPACE as OPERATOR_NAMESPACE
from testbed.release import RELEASE

POD: Final = "second-cluster"
_PORT: Final = 7443
_CRDS: Final = REPOSITORY / "crds"


@dataclass(frozen=True, slots=True)
class _Images:
    """The cluster's own images, which every node of kind holds."""

    etcd: str
    api_server: str
    operator: str

    @classmethod
    def of(cls, kubectl: Kubectl) -> _Images:
        """Return the images that the first cluster runs."""
        system = kubectl.within("kube-system")

        def image(component: str) -> str:
            pod = system.items("pods", f"--selector=component={component}")[0]
            return str(pod["spec"]["containers"][0]["image"])

        deployment = kubectl.within(OPERATOR_NAMESPACE).get("deployment", RELEASE)
        assert deployment is not None
        operator = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
        return cls(image("etcd"), image("kube-apiserver"), str(operator))


@contextmanager
def second_cluster(environment: Environment, namespace: str) -> Iterator[Kubectl]:
    """Run a second cluster with an operator while the block runs; yield kubectl for its namespace of this name.

    The namespace has the credentials and the example's code.
    """
    first = Kubectl.of(environment, OPERATOR_NAMESPACE)
    token = secrets.token_hex(16)
    try:
        first.apply(*_manifests(_Images.of(first), token))
        eventually("the second API server is ready", lambda: _is_ready(first), seconds=120)
        with _forwarded(first) as port:
            other = Kubectl(
                command=(
                    str(environment.kubectl),
                    "--kubeconfig=/dev/null",
                    f"--server=https://127.0.0.1:{port}",
                    "--insecure-skip-tls-verify",
                    f"--token={token}",
                ),
                namespace=namespace,
            )
            _fill(other, environment)
            yield other
    finally:
        first.run("delete", "pod,secret", POD, "--ignore-not-found", "--grace-period=1", "--timeout=60s", seconds=70)


def _fill(other: Kubectl, environment: Environment) -> None:
    """Create what a user has in a cluster before the first pipeline: the CRDs, a namespace, credentials and code."""
    for path in sorted(_CRDS.glob("*.yaml")):
        other.run("apply", "--server-side", f"--filename={path}")
    for name in (other.namespace, OPERATOR_NAMESPACE):
        other.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    account = {"username": environment.cassandra_username, "password": environment.cassandra_password}
    other.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "stringData": account},
        code(),
    )
    eventually("the second cluster serves pipelines", lambda: _serves(other), seconds=60)


def _serves(other: Kubectl) -> bool:
    try:
        other.items("streamingpipelines")
    except KubectlError:
        return False
    return True


def _is_ready(first: Kubectl) -> bool:
    pod = first.get("pod", POD)
    statuses = {one["name"]: one for one in (pod or {}).get("status", {}).get("containerStatuses", [])}
    return bool(statuses.get("api-server", {}).get("ready"))


@contextmanager
def _forwarded(first: Kubectl) -> Iterator[int]:
    """Reach the second API server by a port of this machine."""
    command = [*first.command, f"--namespace={first.namespace}", "port-forward", f"pod/{POD}", f":{_PORT}"]
    forwarding = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert forwarding.stdout is not None
        line = forwarding.stdout.readline()  # Forwarding from 127.0.0.1:40123 -> 7443
        yield int(line.partition("127.0.0.1:")[2].partition(" ")[0])
    finally:
        forwarding.terminate()
        forwarding.communicate(timeout=10)


def _manifests(images: _Images, token: str) -> tuple[Object, Object]:
    key = subprocess.run(
        ["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": POD,
        "contexts": [{"name": POD, "context": {"cluster": POD, "user": POD}}],
        "users": [{"name": POD, "user": {"token": token}}],
        "clusters": [
            {"name": POD, "cluster": {"server": f"https://127.0.0.1:{_PORT}", "insecure-skip-tls-verify": True}}
        ],
    }
    files = {"tokens.csv": f"{token},admin,admin,system:masters\n", "sa.key": key, "config": json.dumps(kubeconfig)}
    secret: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": POD}, "stringData": files}
    return secret, _pod(images)


def _pod(images: _Images) -> Object:
    api_server = [
        "kube-apiserver",
        "--etcd-servers=http://127.0.0.1:2379",
        f"--secure-port={_PORT}",
        "--cert-dir=/tmp/certificates",
        "--authorization-mode=RBAC",
        "--token-auth-file=/files/tokens.csv",
        "--service-account-issuer=https://second.cluster.local",
        "--service-account-key-file=/files/sa.key",
        "--service-account-signing-key-file=/files/sa.key",
        "--service-cluster-ip-range=10.97.0.0/16",
        "--disable-admission-plugins=ServiceAccount",
        "--endpoint-reconciler-type=none",
    ]
    etcd = ["etcd", "--data-dir=/tmp/etcd", "--unsafe-no-fsync"]
    ready = {"httpGet": {"path": "/readyz", "port": _PORT, "scheme": "HTTPS"}, "periodSeconds": 2}
    operator_env = {
        "KUBERNETES_SERVICE_HOST": "",  # the first cluster's, which the kubelet sets
        "KUBECONFIG": "/files/config",
        "FENCEPOST_SCOPE": "default",
        "FENCEPOST_NAMESPACE": OPERATOR_NAMESPACE,
        "HOME": "/tmp",  # noqa: S108 - the pod's own volume
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": POD, "labels": {"fencepost.test/second-cluster": "true"}},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
            "volumes": [{"name": "files", "secret": {"secretName": POD}}, {"name": "tmp", "emptyDir": {}}],
            "containers": [
                _container("etcd", images.etcd, command=etcd),
                _container("api-server", images.api_server, command=api_server, readinessProbe=ready),
                _container(
                    "operator",
                    images.operator,
                    env=[{"name": name, "value": value} for name, value in operator_env.items()],
                ),
            ],
        },
    }


def _container(name: str, image: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "Never",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "files", "mountPath": "/files", "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own volume
        ],
        **more,
    }
