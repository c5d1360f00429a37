"""Brokers of a test's own, in containers of the testbed's Kafka image: they may crash, lose data, and hold ACLs.

All of one `Cluster` share a folder and a KRaft quorum of one: node 1, or a controller apart from the brokers, so that
each of these may die. They listen on 127.0.0.1 of this machine. Faults of the network need a user for each broker.
"""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]

from flights.topics import create_topic

IMAGE: Final = "fencepost-testbed/kafka:dev"
PROPERTIES: Final = Path(__file__).parents[3] / "dev" / "testbed" / "kafka" / "server.properties"


def free_ports(count: int) -> list[int]:
    """Return ports on which no process listens."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


@dataclass(frozen=True, slots=True)
class TlsListener:
    """A second listener, MTLS. `own` is PEM of a key and its certificate, `clients` of whose certificates it asks."""

    port: int
    own: str
    clients: str

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def properties(self) -> dict[str, str]:
        """The broker's settings, which it also takes from an admin client while it runs."""
        key, _, certificate = self.own.partition("-----END PRIVATE KEY-----")
        found = {
            "ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.truststore.type": "PEM",
            "ssl.keystore.key": f"{key}-----END PRIVATE KEY-----",
            "ssl.keystore.certificate.chain": certificate.strip(),
            "ssl.truststore.certificates": self.clients.strip(),
        }
        return {f"listener.name.mtls.{name}": value for name, value in found.items()}


@dataclass(slots=True)
class Broker:
    """One node. `crash` is SIGKILL, so nothing that it did not write yet is written.

    `roles` are KRaft's. `user` is the process's, and no other process's of this machine where its network is cut.
    """

    docker: str
    node: int
    port: int
    controller: tuple[int, int]
    """Node and port of the controller."""
    folder: Path
    properties: Mapping[str, str]
    tls: TlsListener | None = None
    roles: str = "broker"
    user: int = field(default_factory=os.getuid)
    heap: str = "256m"
    cuts: list[int | None] = field(default_factory=list)
    name: str = field(default_factory=lambda: f"kafka-{uuid.uuid4().hex[:10]}")
    starts: int = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log_dir(self) -> Path:
        return self.folder / "log"

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        os.chown(self.folder, self.user, -1)
        configuration = self.folder / "server.properties"
        configuration.write_text(self._configuration())
        self.starts += 1
        environment = {"KAFKA_HEAP": self.heap, "KAFKA_ADVERTISED": ",".join(self._advertised)}
        subprocess.run(
            [
                self.docker, "run", "--detach", "--name", self._container, "--network", "host",
                "--user", f"{self.user}:0",
                "--volume", f"{self.folder}:/var/lib/kafka",
                "--volume", f"{configuration}:/opt/kafka/etc/server.properties:ro",
                *(f"--env={key}={value}" for key, value in environment.items()), IMAGE,
            ],
            check=True, capture_output=True,
        )  # fmt: skip

    def stop(self) -> None:
        """Stop in good order."""
        self._docker("stop", "--time=30", self._container)

    def crash(self) -> None:
        self._docker("kill", "--signal=KILL", self._container)
        self._docker("wait", self._container)

    def pause(self) -> None:
        """Stop every thread where it is."""
        self._docker("pause", self._container)

    def resume(self) -> None:
        """Let them continue."""
        self._docker("unpause", self._container)

    def cut(self, *, to: int | None = None) -> None:
        """Drop what the process sends: to this port of any node, or all of it, and so every answer."""
        subprocess.run(self._dropping("--append", to), check=True, capture_output=True)
        self.cuts.append(to)

    def heal(self, *, to: int | None = None) -> None:
        """Undo `cut`."""
        subprocess.run(self._dropping("--delete", to), check=True, capture_output=True)
        self.cuts.remove(to)

    @property
    def reaches_controller(self) -> bool:
        """Whether no `cut` keeps it from the controller; it may be down all the same."""
        return not {None, self.controller[1]} & set(self.cuts)

    def _dropping(self, change: str, to: int | None) -> list[str]:
        port = [] if to is None else ["-p", "tcp", "--dport", str(to)]
        return ["iptables", "-w", change, "OUTPUT", *port, "-m", "owner", "--uid-owner", str(self.user), "-j", "DROP"]

    def remove(self) -> None:
        for to in list(self.cuts):
            self.heal(to=to)
        for start in range(1, self.starts + 1):
            self._docker("rm", "--force", "--volumes", f"{self.name}-{start}")

    def output(self) -> str:
        found = subprocess.run([self.docker, "logs", "--tail=40", self._container], capture_output=True, check=False)
        return (found.stdout + found.stderr).decode(errors="replace")

    def truncate(self, topic: str, partition: int, *, until: int) -> None:
        """Drop all records from `until` on, as a power failure does to what was not flushed. Only while it is down."""
        folder = self.log_dir / f"{topic}-{partition}"
        (segment,) = folder.glob("*.log")
        content = segment.read_bytes()
        position = 0
        while position < len(content) and int.from_bytes(content[position : position + 8], "big") < until:
            position += 12 + int.from_bytes(content[position + 8 : position + 12], "big")
        segment.write_bytes(content[:position])
        for index in (*folder.glob("*.index"), *folder.glob("*.timeindex"), *folder.glob("*.snapshot")):
            index.unlink()
        shutil.rmtree(folder / ".kafka_cleanshutdown", ignore_errors=True)

    @property
    def _listeners(self) -> list[str]:
        of_broker = [f"INTERNAL://{self.address}", *([f"MTLS://{self.tls.address}"] if self.tls else [])]
        of_controller = [f"CONTROLLER://127.0.0.1:{self.controller[1]}"]
        return [*(of_broker if "broker" in self.roles else []), *(of_controller if "controller" in self.roles else [])]

    @property
    def _advertised(self) -> list[str]:
        """A broker names no listener of its controller."""
        return self._listeners if self.roles == "controller" else [n for n in self._listeners if "CONTROLLER" not in n]

    @property
    def _container(self) -> str:
        return f"{self.name}-{self.starts}"

    def _docker(self, *arguments: str) -> None:
        subprocess.run([self.docker, *arguments], check=False, capture_output=True)

    def _configuration(self) -> str:
        own = {
            "process.roles": self.roles,
            "node.id": str(self.node),
            "controller.quorum.voters": "{}@127.0.0.1:{}".format(*self.controller),
            "listeners": ",".join(self._listeners),
            "advertised.listeners": ",".join(self._advertised),
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT,MTLS:SSL",
            # A lost broker is fenced after this, not after nine seconds.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            **(self.tls.properties if self.tls else {}),
            **self.properties,
        }
        kept = [line for line in PROPERTIES.read_text().splitlines() if line.partition("=")[0] not in own]
        lines = (f"{key}={value}" for key, value in own.items())
        return "\n".join([*kept, *(line.replace("\n", "\\n") for line in lines)]) + "\n"


@dataclass(slots=True)
class Cluster:
    """Brokers that were started together, and the controller where that is none of them."""

    brokers: list[Broker]
    controller: Broker | None = None
    _admin: AdminClient | None = None

    @classmethod
    def start(
        cls, docker: str, folder: Path, count: int = 1, tls: TlsListener | None = None, **properties: str
    ) -> Cluster:
        """Start brokers and wait for them; `tls` is for a single one."""
        controller, *ports = free_ports(count + 1)
        named = {key.replace("_", "."): value for key, value in properties.items()}
        nodes = zip(itertools.count(1), ports, strict=False)
        cluster = cls(
            [Broker(docker, node, port, (1, controller), folder / f"node-{node}", named, tls) for node, port in nodes]
        )
        cluster.brokers[0].roles = "broker,controller"
        return cluster._started()

    @classmethod
    def start_apart(cls, docker: str, folder: Path, users: Sequence[int], **properties: str) -> Cluster:
        """Start a broker for each user, nodes 1 and on, and a controller without a broker, node 0."""
        port, *ports = free_ports(len(users) + 1)
        named = {key.replace("_", "."): value for key, value in properties.items()}
        controller = Broker(docker, 0, port, (0, port), folder / "node-0", named, roles="controller", heap="128m")
        brokers = [
            Broker(docker, node, own, (0, port), folder / f"node-{node}", named, user=user)
            for node, (own, user) in enumerate(zip(ports, users, strict=True), 1)
        ]
        return cls(brokers, controller)._started()

    def _started(self) -> Cluster:
        try:
            for node in self._nodes:
                node.start()
            self.wait()
        except BaseException:
            self.remove()
            raise
        return self

    @property
    def _nodes(self) -> list[Broker]:
        return [*([self.controller] if self.controller else []), *self.brokers]

    @property
    def servers(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        return self._admin

    def wait(self, count: int | None = None, timeout: float = 180) -> None:
        """Wait until `count` brokers, by default all, are registered."""
        deadline = time.monotonic() + timeout
        wanted = len(self.brokers) if count is None else count
        while True:
            try:
                found = len(self.admin.list_topics(timeout=2).brokers)
            except KafkaException:
                found = 0
            if found >= wanted:
                return
            assert time.monotonic() < deadline, "\n".join(node.output() for node in self._nodes)
            time.sleep(0.5)

    def renew(self, tls: TlsListener) -> None:
        """Give the running broker another certificate, and ask for those of another authority."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in tls.properties.items()
            if name.rpartition("ssl.")[2] not in {"client.auth", "keystore.type", "truststore.type"}
        ]
        broker = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
        self.admin.incremental_alter_configs([broker])[broker].result(30)

    def create(self, topic: str, replicas: list[list[int]], **config: str) -> None:
        """Create a topic, and wait until clients know its leaders; `replicas` are each partition's nodes."""
        create_topic(
            self.admin, NewTopic(topic, num_partitions=len(replicas), replica_assignment=replicas, config=config)
        )

    def remove(self) -> None:
        for node in self._nodes:
            node.remove()
