"""A driver over TLS with client certificates: source, fence and sink, before and after each of them is replaced."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from cassandra.cluster import Session

from fakes.tls_proxy import Authority, Pair, tls_in_front_of
from fencepost.contract import CASSANDRA_TLS_DIR, KAFKA_PROPERTIES_DIR, CassandraTls
from harness.waiting import eventually
from integration.driver.support import Pipeline, make
from integration.kafka.brokers import Cluster, TlsListener, free_ports
from testbed.environment import Environment

HOST = "127.0.0.1"
RECORDS = 400


@dataclass(frozen=True, slots=True)
class Certificates:
    """What the operators of Kafka and Cassandra hand out: an authority, their own certificate, and a client's."""

    authority: Authority
    own: Pair
    client: Pair

    @classmethod
    def make(cls, folder: Path) -> Certificates:
        authority = Authority.make(folder)
        return cls(authority, authority.sign("server", names=f"IP:{HOST}"), authority.sign("client"))

    @property
    def listener(self) -> str:
        """Key and certificate of the server."""
        return self.own.key.read_text() + self.own.certificate.read_text()

    @property
    def of_kafka(self) -> dict[str, str]:
        """The Secret of `source.kafka.propertiesFrom`."""
        return {
            "security.protocol": "SSL",
            "ssl.ca.pem": self.authority.text,
            "ssl.certificate.pem": self.client.certificate.read_text(),
            "ssl.key.pem": self.client.key.read_text(),
        }

    @property
    def of_cassandra(self) -> dict[str, str]:
        """The Secret of `checkpoint.cassandra.tls`."""
        return {
            "ca.crt": self.authority.text,
            "tls.crt": self.client.certificate.read_text(),
            "tls.key": self.client.key.read_text(),
        }


@dataclass(slots=True)
class SecretVolume:
    """A Secret as the kubelet mounts it: links to files in a folder that one rename replaces."""

    folder: Path
    version: int = 0

    def hold(self, content: Mapping[str, str]) -> None:
        """Replace everything that it holds."""
        self.version += 1
        fresh = self.folder / f"..{self.version}"
        fresh.mkdir(parents=True)
        for name, text in content.items():
            (fresh / name).write_text(text)
            link = self.folder / name
            if not link.is_symlink():
                link.symlink_to(f"..data/{name}")
        (self.folder / "..new").symlink_to(fresh.name)
        (self.folder / "..new").rename(self.folder / "..data")


@pytest.fixture
def servers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_a_run_over_tls_and_the_next_one_after_all_certificates_were_replaced(
    environment: Environment, session: Session, tmp_path: Path, servers: ExitStack
) -> None:
    """A broker with mTLS; Cassandra behind TLS that asks for a client certificate; then other authorities for both."""
    kafka_port, cassandra_port = free_ports(2)
    kafka, cassandra = (SecretVolume(tmp_path / name) for name in ("kafka-secret", "cassandra-secret"))
    old, new = (Certificates.make(tmp_path / name) for name in ("old", "new"))
    listener = TlsListener(kafka_port, old.listener, old.authority.text)
    users = "User:ANONYMOUS;User:CN=client"
    cluster = Cluster.start(str(environment.docker), tmp_path / "kafka", tls=listener, super_users=users)
    servers.callback(cluster.remove)
    one = make(environment, session, tmp_path, servers=cluster.servers)
    servers.callback(end, one)
    one.volumes |= {KAFKA_PROPERTIES_DIR: kafka.folder, CASSANDRA_TLS_DIR: cassandra.folder}
    one.config = replace(
        one.config,
        source=replace(one.config.source, bootstrap_servers=listener.address),
        cassandra=replace(one.config.cluster, contact_points=(HOST,), port=cassandra_port, tls=CassandraTls()),
    )

    for count, certificates in enumerate((old, new), start=1):
        if certificates is new:
            cluster.renew(TlsListener(kafka_port, new.listener, new.authority.text))
        kafka.hold(certificates.of_kafka)
        cassandra.hold(certificates.of_cassandra)
        real = environment.cassandra_host, environment.cassandra_port
        with tls_in_front_of(*real, certificates.own, clients=certificates.authority, listen=cassandra_port):
            for port in (kafka_port, cassandra_port):
                wait_until_used(port, certificates)
            one.kafka.produce(one.topic, RECORDS, start=(count - 1) * RECORDS)
            run = one.start()
            one.wait_committed(count * RECORDS)
            run.stop()
        rows = one.rows()
        assert sorted(row.n for row in rows) == list(range(count * RECORDS))
        assert {(row.partition, row.offset) for row in rows} == {(n % 4, n // 4) for n in range(count * RECORDS)}
    assert one.row().epoch == 2


def wait_until_used(port: int, certificates: Certificates) -> None:
    """A broker takes new ones a moment after the request."""
    eventually(f"port {port} has the certificate", lambda: is_used(port, certificates.authority), seconds=30, pause=0.1)


def is_used(port: int, authority: Authority) -> bool:
    """Whether the server has a certificate of this authority; it must end a connection without one of a client."""
    context = ssl.create_default_context(cadata=authority.text)
    with socket.create_connection((HOST, port)) as plain:
        try:
            secured = context.wrap_socket(plain, server_hostname=HOST, suppress_ragged_eofs=False)
        except ssl.SSLCertVerificationError:
            return False
        with secured, pytest.raises((ssl.SSLError, ConnectionError)):
            secured.recv(1)
    return True


def end(one: Pipeline) -> None:
    for run in one.runs:
        run.end()
    one.session.execute(f"DROP TABLE IF EXISTS driver_tests.{one.topic}", timeout=30)
