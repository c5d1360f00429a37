"""The kind cluster: one control plane, two workers, a kubeconfig of its own.

Ownership: the ids of the node containers are recorded once kind has made them, and that it is being made is recorded
before. A kind cluster of this name that neither record speaks of is someone else's, and is never touched.
"""

import json
import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed.engine import Docker
from testbed.home import Home
from testbed.images import node_image
from testbed.images.node_image import NodeImage
from testbed.keys import files_key
from testbed.preflight import taken_ports
from testbed.process import SYSTEM_PATH, Transcript, probe
from testbed.steps import StepError

NAME: Final = "fencepost"
NODES: Final = (f"{NAME}-control-plane", f"{NAME}-worker", f"{NAME}-worker2")
WORKERS: Final = NODES[1:]
DATA_NODE: Final = f"{NAME}-worker"
"""The worker Kafka and Cassandra live on, so that the other one can be lost without losing them."""
KAFKA_PORT: Final = 29092
KAFKA_SASL_PORT: Final = 29095
KAFKA_MTLS_PORT: Final = 29096
CASSANDRA_PORT: Final = 29042
CONFIG: Final = Path(__file__).parent / "manifests" / "kind.yaml"
RECORD: Final = "cluster-owned"


@dataclass(frozen=True, slots=True)
class Kubectl:
    """The pinned kubectl against the testbed's own kubeconfig, whatever the user's environment says."""

    home: Home

    @property
    def command(self) -> list[str]:
        """The words every call begins with."""
        return [str(self.home.bin / "kubectl"), f"--kubeconfig={self.home.kubeconfig}"]

    def ask(self, *arguments: str, seconds: float = 15) -> str | None:
        """What kubectl prints, None when it fails."""
        return probe([*self.command, f"--request-timeout={seconds:.0f}s", *arguments], seconds=seconds + 5)

    def run(self, *arguments: str, log: Transcript, text: str | None = None) -> None:
        """Run kubectl into a log.  Raises CommandError."""
        log.run([*self.command, *arguments], text=text)

    def apply(self, manifest: str, log: Transcript) -> None:
        """Apply a manifest server-side.  Raises CommandError."""
        self.run(
            "apply",
            "--server-side",
            "--force-conflicts",
            "--field-manager=fencepost-testbed",
            "-f",
            "-",
            log=log,
            text=manifest,
        )

    def api_answers(self) -> bool:
        """Whether the API server is ready."""
        return self.ask("get", "--raw=/readyz", seconds=5) == "ok"


def containers(docker: Docker) -> dict[str, tuple[str, str]]:
    """Name to (id, state) of the containers of a kind cluster of our name, whoever made it."""
    listing = docker.ask(
        "ps", "--all", "--no-trunc", f"--filter=label=io.x-k8s.kind.cluster={NAME}",
        "--format", "{{.Names}} {{.ID}} {{.State}}",
    )  # fmt: skip
    rows = [line.split() for line in (listing or "").splitlines()]
    return {name: (identity, state) for name, identity, state in rows}


def owned(home: Home, found: Mapping[str, tuple[str, str]]) -> bool:
    """Whether every container found is one that was made here."""
    record = home.read(RECORD)
    if record.get("making"):
        return True
    return all(record.get(name) == identity for name, (identity, _) in found.items())


@dataclass(frozen=True, slots=True)
class Cluster:
    """Step: the cluster's nodes run and its API server answers."""

    home: Home
    docker: Docker
    image: NodeImage
    name: str = "cluster"
    doing: str = "creating the kind cluster"
    needs: tuple[str, ...] = ("node-image", "kind")

    @property
    def kubectl(self) -> Kubectl:
        """kubectl for this cluster."""
        return Kubectl(self.home)

    def inputs(self) -> Mapping[str, str]:
        """kind's configuration file."""
        return {"config": files_key(CONFIG.parent, [CONFIG])}

    def present(self, key: str) -> bool:
        """Our three containers run since they were made for this key, and the API server answers."""
        found = containers(self.docker)
        record = self.home.read(RECORD)
        return (
            set(found) == set(NODES)
            and all(state == "running" for _, state in found.values())
            and owned(self.home, found)
            and record.get("key") == key
            and record.get("started") == self._started()
            and self.kubectl.api_answers()
        )

    def make(self, key: str, log: Transcript) -> None:
        """Create the cluster, also in place of one whose nodes were stopped.

        What a restarted cluster says of its nodes and pods is from before the stop until each kubelet reports, so a
        later step would take for ready what is not.
        """
        if not owned(self.home, containers(self.docker)):
            raise StepError(
                f"a kind cluster called {NAME} exists that the testbed did not make; it is left alone: "
                f"delete it yourself (`kind delete cluster --name {NAME}`) or use a machine without it"
            )
        self._create(key, log)

    def _started(self) -> str:
        """When the nodes' containers started, "" when Docker does not say."""
        return " ".join((self.docker.ask("inspect", "--format", "{{.State.StartedAt}}", *NODES) or "").split())

    def _create(self, key: str, log: Transcript) -> None:
        delete(self.home, self.docker, log)
        if taken := taken_ports((KAFKA_PORT, KAFKA_SASL_PORT, KAFKA_MTLS_PORT, CASSANDRA_PORT)):
            ports = ", ".join(map(str, taken))
            raise StepError(
                f"something listens on 127.0.0.1:{ports} already, where the testbed offers Kafka and Cassandra: stop it"
            )
        built = self.image.built()
        template = string.Template(CONFIG.read_text())
        config = self.home.root / "kind.yaml"
        config.write_text(template.substitute(DISABLE_DEFAULT_CNI=str(built).lower()))
        self.home.write(RECORD, {"making": "yes"})
        log.run(
            [
                str(self.home.bin / "kind"), "create", "cluster", f"--name={NAME}", f"--config={config}",
                f"--image={node_image.IMAGE}", f"--kubeconfig={self.home.kubeconfig}", "--retain",
            ],
            env={"PATH": f"{self.home.bin}:{SYSTEM_PATH}", "KIND_EXPERIMENTAL_PROVIDER": "docker"},
        )  # fmt: skip
        made = {name: identity for name, (identity, _) in containers(self.docker).items()}
        self.home.write(RECORD, {**made, "key": key, "started": self._started()})


def delete(home: Home, docker: Docker, log: Transcript) -> bool:
    """Delete the cluster that was made here; False without one.  Raises StepError for a cluster that was not."""
    found = containers(docker)
    if not owned(home, found):
        raise StepError(f"the kind cluster called {NAME} was not made by this testbed; it is left alone")
    if found:
        log.run([docker.client, "rm", "--force", "--volumes", *found])
    home.forget(RECORD)
    home.kubeconfig.unlink(missing_ok=True)
    return bool(found)


def node_addresses(kubectl: Kubectl) -> dict[str, tuple[str, str]]:
    """Node name to (address, pod subnet).  Raises StepError while a node has no subnet yet."""
    listing = json.loads(kubectl.ask("get", "nodes", "-o", "json") or '{"items": []}')
    found = {}
    for node in listing["items"]:
        addresses = [entry["address"] for entry in node["status"]["addresses"] if entry["type"] == "InternalIP"]
        if addresses and node["spec"].get("podCIDR"):
            found[node["metadata"]["name"]] = (addresses[0], node["spec"]["podCIDR"])
    if set(found) != set(NODES):
        raise StepError(f"nodes with an address and a pod subnet: {sorted(found) or 'none'}, wanted {list(NODES)}")
    return found
