"""A Cassandra of several nodes in containers of the testbed's image, each with a network and a clock of its own.

A node's container keeps its address and its disk when it is killed and started again.  Faults are injected from the
host: signals and pauses by the engine, cuts, loss and slowness in the container's network namespace, and the clock by a
preloaded library.
"""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from fencepost.contract import CassandraEndpoint
from fencepost.fence import FenceError, FenceUnavailable
from fencepost.fence.cassandra.errors import translated
from fencepost.fence.cassandra.session import connect
from harness.faults.clocks import compile_library, packed
from testbed.process import Transcript
from testbed.programs.host_packages import install

IMAGE: Final = "fencepost-testbed/cassandra:dev"
CONFIGURATION: Final = Path(__file__).parents[1] / "testbed" / "cassandra" / "cassandra.yaml"
START: Final = Path(__file__).parent / "start-node.sh"
HEAP: Final = "320m"
PORT: Final = 9042
STARTED_WITHIN: Final = 240.0
"""Seconds until all nodes of a new ring answer, on two busy CPUs."""
MOST_PAUSES: Final = 5
"""Attempts to freeze a process: on a busy machine the container engine gives up before the kernel has done it."""


class NodeError(Exception):
    """A container does not do what it has to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How many nodes there are and how they agree. `paxos` is Cassandra's paxos_variant."""

    datacenters: tuple[str, ...] = ("dc1",)
    nodes_each: int = 3
    paxos: str = "v2"

    @property
    def replication(self) -> dict[str, str | int]:
        """The replication of a keyspace that has a replica on every node."""
        return {"class": "NetworkTopologyStrategy", **dict.fromkeys(self.datacenters, self.nodes_each)}


@dataclass(slots=True)
class Node:
    """One node. `offset` is what its clock is ahead of the host's, in seconds."""

    docker: str
    name: str
    datacenter: str
    address: str
    folder: Path
    offset: float = 0.0

    def kill(self) -> None:
        """End the process with SIGKILL."""
        self._docker("kill", "--signal=KILL", self.name)

    def stop(self) -> None:
        """End the process with SIGTERM."""
        self._docker("stop", "--time=20", self.name)

    def start(self) -> None:
        """Start the process again, on the same disk."""
        self._docker("start", self.name)

    def pause(self) -> None:
        """Freeze the process."""
        for left in reversed(range(MOST_PAUSES)):
            try:
                self._docker("pause", self.name)
            except NodeError:
                if not left:
                    raise
                time.sleep(1.0)
            else:
                return

    def resume(self) -> None:
        """Let a frozen process run."""
        self._docker("unpause", self.name)

    def set_clock(self, offset: float) -> None:
        """Set the wall clock of the process to the host's plus `offset` seconds."""
        self.offset = offset
        file = self.folder / "clock"
        with file.open("r+b" if file.exists() else "wb") as stream:  # in place: the process has the file mapped
            stream.write(packed(offset))

    def cut_from(self, addresses: Iterable[str]) -> None:
        """Drop what arrives from these addresses."""
        for address in addresses:
            self._in_network("iptables", "-A", "INPUT", "-s", address, "-j", "DROP")

    def lose(self, share: float) -> None:
        """Drop this share of all packets that arrive."""
        self._in_network(
            "iptables", "-A", "INPUT", "-m", "statistic", "--mode", "random", f"--probability={share}", "-j", "DROP"
        )

    def slow_down(self, rate: str) -> None:
        """Let packets leave at this rate only, as tc writes it."""
        self._in_network(
            "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "16kb", "latency", "500ms"
        )

    def heal(self) -> None:
        """End every fault of the network; a node that does not run has none."""
        if self.pid:
            self._in_network("iptables", "-F", "INPUT")
            subprocess.run(
                self._entering("tc", "qdisc", "del", "dev", "eth0", "root"), capture_output=True, check=False
            )

    @property
    def pid(self) -> int:
        """The id of the node's process, 0 while it does not run."""
        return int(self._docker("inspect", "--format", "{{.State.Pid}}", self.name))

    @property
    def log(self) -> str:
        """The end of what the node printed."""
        found = subprocess.run(
            [self.docker, "logs", "--tail=30", self.name], capture_output=True, text=True, check=False
        )
        return found.stdout + found.stderr

    def remove(self) -> None:
        """End the node for good."""
        self._docker("rm", "--force", "--volumes", self.name)

    def _entering(self, *command: str) -> list[str]:
        return ["nsenter", f"--target={self.pid}", "--net", *command]

    def _in_network(self, *command: str) -> None:
        _run(self._entering(*command))

    def _docker(self, *arguments: str) -> str:
        return _run([self.docker, *arguments])


@dataclass(slots=True)
class Ring:
    """All nodes; every one holds every row of its datacenter's keyspaces."""

    docker: str
    folder: Path
    shape: Shape
    nodes: list[Node] = field(default_factory=list)
    name: str = field(default_factory=lambda: f"fencepost-replicas-{uuid.uuid4().hex[:8]}")
    gateway: str = ""
    """The address from which the host's clients come."""

    def start(self) -> None:
        """Start all nodes together and wait until each one answers. Raises NodeError."""
        install(("cc", "iptables", "nsenter", "tc"), Transcript(self.folder / "packages.log"))
        compile_library(self._clock, offset_file="/etc/replica/clock")
        prefix = self._create_network()
        count = len(self.shape.datacenters) * self.shape.nodes_each
        addresses = [f"{prefix}.{index + 10}" for index in range(count)]
        for index, address in enumerate(addresses):
            datacenter = self.shape.datacenters[index % len(self.shape.datacenters)]
            self.nodes.append(self._new_node(index, count, datacenter, address, addresses))
        deadline = time.monotonic() + STARTED_WITHIN
        for node in self.nodes:
            self._await(node, deadline)

    def remove(self) -> None:
        """End all nodes and their network."""
        for node in self.nodes:
            node.remove()
        subprocess.run([self.docker, "network", "rm", self.name], capture_output=True, check=False)

    def heal(self) -> None:
        """End all faults: each node runs, answers, and has the host's clock."""
        for node in self.nodes:
            self._revive(node)
        deadline = time.monotonic() + STARTED_WITHIN
        for node in self.nodes:
            self._await(node, deadline)

    def endpoint(self, *, datacenter: str | None, serial_consistency: str) -> CassandraEndpoint:
        """Return how a client reaches the ring; with a datacenter, only its nodes."""
        points = tuple(node.address for node in self.nodes if datacenter in {None, node.datacenter})
        return CassandraEndpoint(
            contact_points=points, port=PORT, local_datacenter=datacenter, serial_consistency=serial_consistency
        )

    @property
    def _clock(self) -> Path:
        """The library that sets a process's clock."""
        return self.folder / "clock.so"

    def _create_network(self) -> str:
        """Create a network with a subnet of our own, which fixed addresses need; return the subnet's first bytes."""
        for third in range(256):
            prefix = f"10.213.{third}"
            created = subprocess.run(
                [self.docker, "network", "create", f"--subnet={prefix}.0/24", f"--gateway={prefix}.1", self.name],
                capture_output=True,
                text=True,
                check=False,
            )
            if created.returncode == 0:
                self.gateway = f"{prefix}.1"
                return prefix
            if "overlaps" not in created.stderr:
                raise NodeError(f"creating the nodes' network: {created.stderr.strip()}")
        raise NodeError("creating the nodes' network: every subnet of 10.213.0.0/16 is in use")

    def _revive(self, node: Node) -> None:
        state = _run([self.docker, "inspect", "--format", "{{.State.Status}}", node.name]).strip()
        if state == "paused":
            node.resume()
        elif state != "running":
            node.start()
        node.heal()
        node.set_clock(0.0)

    def _new_node(self, index: int, count: int, datacenter: str, address: str, seeds: Sequence[str]) -> Node:
        node = Node(
            docker=self.docker,
            name=f"{self.name}-{index}",
            datacenter=datacenter,
            address=address,
            folder=self.folder / str(index),
        )
        node.folder.mkdir(parents=True)
        (node.folder / "cassandra.yaml").write_text(_configuration(self.shape, index, count, address, seeds))
        (node.folder / "rackdc.properties").write_text(f"dc={datacenter}\nrack=rack1\n")
        node.set_clock(0.0)
        _run(
            [
                self.docker, "run", "--detach", f"--name={node.name}", f"--network={self.name}", f"--ip={address}",
                f"--volume={node.folder}:/etc/replica:ro", f"--volume={self._clock}:/opt/clock.so:ro",
                f"--volume={START}:/start-node.sh:ro", f"--env=CASSANDRA_HEAP={HEAP}", "--entrypoint=/start-node.sh",
                IMAGE,
            ]
        )  # fmt: skip
        return node

    def _await(self, node: Node, deadline: float) -> None:
        endpoint = CassandraEndpoint(contact_points=(node.address,), port=PORT)
        while True:
            try:
                self._ask(endpoint)
            except FenceError as error:
                if time.monotonic() > deadline:
                    raise NodeError(f"{node.name} does not answer: {error}\n{node.log}") from error
                time.sleep(1.0)
            else:
                return

    def _ask(self, endpoint: CassandraEndpoint) -> None:
        """Raise FenceError where a node does not answer, or does not know all others yet."""
        session = connect(endpoint, credentials=None, request_timeout=10.0, discover=False)
        try:
            with translated("looking for the other nodes"):
                known = len(list(session.execute("SELECT peer FROM system.peers"))) + 1
            if known < len(self.nodes):
                raise FenceUnavailable(f"it knows {known} of {len(self.nodes)} nodes")
        finally:
            session.cluster.shutdown()


def _configuration(shape: Shape, index: int, count: int, address: str, seeds: Sequence[str]) -> str:
    """Return a node's cassandra.yaml: the testbed's, for one of several nodes, without accounts."""
    settings = yaml.safe_load(CONFIGURATION.read_text())
    datacenters = len(shape.datacenters)
    token = -(2**63) + (index // datacenters) * (2**64 // (count // datacenters)) + index % datacenters
    return yaml.safe_dump(
        settings
        | {
            "cluster_name": "fencepost-replicas",
            "initial_token": str(token),
            "auto_bootstrap": False,
            "endpoint_snitch": "GossipingPropertyFileSnitch",
            "seed_provider": [
                {
                    "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
                    "parameters": [{"seeds": ",".join(seeds)}],
                }
            ],
            "listen_address": address,
            "rpc_address": address,
            "broadcast_rpc_address": address,
            "authenticator": "AllowAllAuthenticator",
            "authorizer": "AllowAllAuthorizer",
            "paxos_variant": shape.paxos,
            "paxos_state_purging": "repaired" if shape.paxos == "v2" else "legacy",
            "read_request_timeout": "2000ms",
            "write_request_timeout": "2000ms",
            "cas_contention_timeout": "1000ms",
            "request_timeout": "3000ms",
        }
    )


def _run(command: Sequence[str]) -> str:
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        raise NodeError(f"{' '.join(command)}: {found.stderr.strip() or found.returncode}")
    return found.stdout
