"""Brokers of a test's own, in containers of the testbed's Kafka image: they may crash, lose data, and hold ACLs.

All of one `Cluster` share a folder and a KRaft quorum of one, node 1. They listen on 127.0.0.1 of this machine.
"""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from flights.topics import create_topic

IMAGE: Final = "fencepost-testbed/kafka:dev"
PROPERTIES: Final = Path(__file__).parents[3] / "dev" / "testbed" / "kafka" / "server.properties"


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on."""
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
    """One node. `crash` is SIGKILL, so nothing that it did not write yet is written."""

    docker: str
    node: int
    port: int
    controller_port: int
    folder: Path
    properties: Mapping[str, str]
    tls: TlsListener | None = None
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
        configuration = self.folder / "server.properties"
        configuration.write_text(self._configuration())
        self.starts += 1
        user = f"{os.getuid()}:0"
        environment = {"KAFKA_HEAP": "256m", "KAFKA_ADVERTISED": ",".join(self._listeners)}
        subprocess.run(
            [
                self.docker, "run", "--detach", "--name", self._container, "--network", "host", "--user", user,
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

    def remove(self) -> None:
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
        mtls = [f"MTLS://{self.tls.address}"] if self.tls else []
        return [f"INTERNAL://{self.address}", *mtls]

    @property
    def _container(self) -> str:
        return f"{self.name}-{self.starts}"

    def _docker(self, *arguments: str) -> None:
        subprocess.run([self.docker, *arguments], check=False, capture_output=True)

    def _configuration(self) -> str:
        is_controller = self.node == 1
        listeners = ",".join(self._listeners)
        own = {
            "process.roles": "broker,controller" if is_controller else "broker",
            "node.id": str(self.node),
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "listeners": listeners + (f",CONTROLLER://127.0.0.1:{self.controller_port}" if is_controller else ""),
            "advertised.listeners": listeners,
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
    """Brokers that were started together."""

    brokers: list[Broker]
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
            [Broker(docker, node, port, controller, folder / f"node-{node}", named, tls) for node, port in nodes]
        )
        try:
            for broker in cluster.brokers:
                broker.start()
            cluster.wait()
        except BaseException:
            cluster.remove()
            raise
        return cluster

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
            assert time.monotonic() < deadline, "\n".join(broker.output() for broker in self.brokers)
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
        """Create a topic, and wait until clients are told its leaders; `replicas` are each partition's nodes."""
        create_topic(
            self.admin, NewTopic(topic, num_partitions=len(replicas), replica_assignment=replicas, config=config)
        )

    def remove(self) -> None:
        for broker in self.brokers:
            broker.remove()
