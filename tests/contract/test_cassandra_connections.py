"""Connections to a real Cassandra: with TLS, over several contact points, at either serial level."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from cassandra import ConsistencyLevel, ProtocolVersion
from cassandra.cluster import ResponseFuture, Session

from contract.cassandra import open_session
from fakes.protocol_v4 import v4_in_front_of
from fakes.tls_proxy import Authority, Pair, tls_in_front_of
from fencepost.contract import LOCAL_SERIAL, CassandraEndpoint, CassandraTls
from fencepost.fence import Fence, FenceDatacenterUnknown, FenceTlsFailed, FenceUnavailable, Starting
from fencepost.fence.cassandra.session import connect
from fencepost.fence.cassandra.table import CassandraFenceTable, create_schema, new_replication
from fencepost.fence.tls import TlsMaterial, of_folder
from fencepost_operator.adapters.cassandra.durability_settings import read_settings
from fencepost_operator.adapters.cassandra.guarded_connection import BoundedConnection
from fencepost_operator.adapters.cassandra.login import Login
from fencepost_operator.endpoints import EndpointPolicy
from present import present
from testbed import environment

pytestmark = pytest.mark.integration

Connect = Callable[..., Session]
SERIAL_LEVELS = {ConsistencyLevel.SERIAL, ConsistencyLevel.LOCAL_SERIAL}
REFUSED = (FenceTlsFailed, FenceUnavailable)
"""With TLS 1.3 a client is refused after its handshake: whether it reads why depends on what it sends meanwhile."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("tls") / "nodes")


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("tls") / "clients")


@pytest.fixture(scope="module")
def node(authority: Authority) -> Pair:
    return authority.sign("node", names="DNS:localhost")


def account() -> tuple[str, str]:
    place = environment.load()
    return place.cassandra_username, place.cassandra_password


def secured(own: Pair, clients: Authority | None = None) -> AbstractContextManager[int]:
    place = environment.load()
    return tls_in_front_of(place.cassandra_host, place.cassandra_port, own, clients=clients)


def by_driver(port: int, tls: TlsMaterial, options: CassandraTls | None = None) -> Session:
    """Connect as the driver and the workers do."""
    endpoint = CassandraEndpoint(contact_points=("localhost",), port=port, tls=options or CassandraTls())
    return connect(endpoint, credentials=account(), request_timeout=30.0, tls=tls)


def by_operator(port: int, tls: TlsMaterial, options: CassandraTls | None = None) -> Session:
    """Connect as the operator does."""
    endpoint = CassandraEndpoint(contact_points=("localhost",), port=port, tls=options or CassandraTls())
    return Login(endpoint, "ONE", account(), tls).open(EndpointPolicy())


EACH = pytest.mark.parametrize("dial", [by_driver, by_operator])


@EACH
def test_a_certificate_of_the_authority_for_the_contact_point_is_accepted(
    authority: Authority, node: Pair, dial: Connect
) -> None:
    with secured(node) as port:
        session = dial(port, TlsMaterial.of({"ca.crt": authority.text}))
        try:
            # Large enough for several TLS records.
            assert len(session.execute("SELECT * FROM system_schema.columns").all()) > 100
        finally:
            session.cluster.shutdown()


@EACH
def test_a_client_certificate_is_shown_to_a_node_that_asks_for_it(
    authority: Authority, clients: Authority, node: Pair, tmp_path: Path, dial: Connect
) -> None:
    own = clients.sign("client")
    for name, text in (
        ("ca.crt", authority.text),
        ("tls.crt", own.certificate.read_text()),
        ("tls.key", own.key.read_text()),
    ):
        (tmp_path / name).write_text(text)
    with secured(node, clients) as port:
        session = dial(port, of_folder(tmp_path))
        session.cluster.shutdown()


@EACH
def test_a_missing_client_certificate_is_named(
    authority: Authority, clients: Authority, node: Pair, dial: Connect
) -> None:
    with secured(node, clients) as port, pytest.raises(REFUSED, match=r"asks? for a client certificate") as caught:
        dial(port, TlsMaterial.of({"ca.crt": authority.text}))
    assert "tls.crt" in f"{caught.value} {getattr(caught.value, 'remedy', '')}"


@EACH
def test_a_client_certificate_of_another_authority_is_refused(
    authority: Authority, clients: Authority, node: Pair, dial: Connect
) -> None:
    strange = authority.sign("strange-client")
    texts = {"ca.crt": authority.text, "tls.crt": strange.certificate.read_text(), "tls.key": strange.key.read_text()}
    with secured(node, clients) as port, pytest.raises(REFUSED, match="client certificate"):
        dial(port, TlsMaterial.of(texts))


@EACH
def test_a_certificate_of_another_authority_is_refused(clients: Authority, node: Pair, dial: Connect) -> None:
    with secured(node) as port, pytest.raises(FenceTlsFailed, match="cannot be verified") as caught:
        dial(port, TlsMaterial.of({"ca.crt": clients.text}))
    assert "ca.crt" in caught.value.remedy


@EACH
def test_a_certificate_for_another_name_is_refused_unless_the_spec_says_so(authority: Authority, dial: Connect) -> None:
    material = TlsMaterial.of({"ca.crt": authority.text})
    with secured(authority.sign("elsewhere", names="DNS:cassandra.example")) as port:
        with pytest.raises(FenceTlsFailed, match="for another name") as caught:
            dial(port, material)
        assert "tls.serverName" in caught.value.remedy
        for options in (CassandraTls(server_name="cassandra.example"), CassandraTls(verify_hostname=False)):
            dial(port, material, options).cluster.shutdown()


@EACH
def test_an_expired_certificate_is_refused(authority: Authority, dial: Connect) -> None:
    expired = authority.sign("expired", names="DNS:localhost", days=-1)
    with secured(expired) as port, pytest.raises(FenceTlsFailed, match="outside its validity") as caught:
        dial(port, TlsMaterial.of({"ca.crt": authority.text}))
    assert "renew" in caught.value.remedy


@EACH
def test_a_node_without_tls_is_named(authority: Authority, dial: Connect) -> None:
    with pytest.raises(FenceTlsFailed, match="do not speak TLS"):
        dial(environment.load().cassandra_port, TlsMaterial.of({"ca.crt": authority.text}))


@pytest.mark.parametrize(
    "texts",
    [
        {},
        {"ca.crt": "no certificate"},
        {"ca.crt": "-----BEGIN CERTIFICATE-----\nSECRET\n-----END CERTIFICATE-----\n"},
        {"ca.crt": "ü"},
    ],
)
def test_an_authority_that_cannot_be_read_is_named(texts: Mapping[str, str]) -> None:
    with pytest.raises(FenceTlsFailed, match=r"ca\.crt") as caught:
        TlsMaterial.of(texts).context()
    assert "SECRET" not in str(caught.value)


def test_a_key_that_cannot_be_used_is_named_and_never_shown(authority: Authority, tmp_path: Path) -> None:
    one, other = authority.sign("one"), authority.sign("other")
    certificate, key = one.certificate.read_text(), one.key.read_text()
    locked = tmp_path / "locked.key"
    authority._openssl("pkcs8", "-topk8", "-in", str(one.key), "-out", str(locked), "-passout", "pass:secret")
    cases = {
        "is not the key of": (certificate, other.key.read_text()),
        "passphrase": (certificate, locked.read_text()),
        "cannot be|no certificate": (certificate, "SECRET"),
        "cannot be read as a certificate and its key": ("SECRET", key),
    }
    for words, (shown, private) in cases.items():
        material = TlsMaterial.of({"ca.crt": authority.text, "tls.crt": shown, "tls.key": private})
        with pytest.raises(FenceTlsFailed, match=words) as caught:
            material.context()
        assert "SECRET" not in str(caught.value)
        assert "BEGIN" not in f"{material!r} {caught.value}"
    for missing in ("tls.crt", "tls.key"):
        texts = {"ca.crt": authority.text, "tls.crt": certificate, "tls.key": key}
        del texts[missing]
        with pytest.raises(FenceTlsFailed, match=f"not {missing}"):
            TlsMaterial.of(texts)
    with pytest.raises(FenceTlsFailed, match="more than"):
        TlsMaterial.of({"ca.crt": "A" * 300_000})


@pytest.mark.parametrize("discover", [True, False])
def test_dead_contact_points_are_passed_over(discover: bool) -> None:
    place = environment.load()
    points = ("127.0.0.9", "no-such-host.invalid", "127.0.0.8", place.cassandra_host)
    endpoint = CassandraEndpoint(contact_points=points, port=place.cassandra_port, local_datacenter="datacenter1")
    session = connect(
        endpoint,
        credentials=account(),
        request_timeout=30.0,
        discover=discover,
        connection_class=None if discover else BoundedConnection,
    )
    try:
        assert session.execute("SELECT data_center FROM system.local").one().data_center == "datacenter1"
    finally:
        session.cluster.shutdown()


def test_all_contact_points_dead_is_an_outage() -> None:
    port = environment.load().cassandra_port
    with pytest.raises(FenceUnavailable):
        connect(CassandraEndpoint(contact_points=("127.0.0.9", "127.0.0.8"), port=port), credentials=account())


@pytest.mark.parametrize("discover", [True, False])
def test_a_datacenter_that_the_cluster_does_not_have_is_named(discover: bool) -> None:
    place = environment.load()
    endpoint = CassandraEndpoint(
        contact_points=(place.cassandra_host,), port=place.cassandra_port, local_datacenter="elsewhere"
    )
    with pytest.raises(FenceDatacenterUnknown, match="'elsewhere'; the nodes are in datacenter1") as caught:
        connect(endpoint, credentials=account(), request_timeout=30.0, discover=discover)
    assert "localDatacenter" in caught.value.remedy


@pytest.fixture
def keyspace(session: Session) -> Iterator[str]:
    name = f"fencepost_serial_{uuid.uuid4().hex[:12]}"
    create_schema(session, name, {"class": "NetworkTopologyStrategy", "datacenter1": 1})
    yield name
    session.execute(f"DROP KEYSPACE IF EXISTS {name}", timeout=60)


def by_driver_without_tls(port: int) -> Session:
    """Connect as the driver and the workers do."""
    return connect(CassandraEndpoint(contact_points=("127.0.0.1",), port=port), credentials=account())


def by_operator_without_tls(port: int) -> Session:
    """Connect as the operator does."""
    endpoint = CassandraEndpoint(contact_points=("127.0.0.1",), port=port)
    return Login(endpoint, "ONE", account()).open(EndpointPolicy())


@pytest.mark.parametrize("dial", [by_driver_without_tls, by_operator_without_tls])
def test_a_fence_is_kept_in_a_database_that_speaks_protocol_v4_alone(keyspace: str, dial: Connect) -> None:
    place = environment.load()
    with v4_in_front_of(place.cassandra_host, place.cassandra_port) as port:
        session = dial(port)
        try:
            assert session.cluster.protocol_version == ProtocolVersion.V4
            table = CassandraFenceTable.over(session, keyspace)
            fence = Fence(table, "s/n/p", patience=30.0)
            taken = fence.take_over(fence.create("owner"), owner="owner")
            start, end = {"t/0": 0}, {"t/0": 5}
            starting = Starting(offsets=start, planned=start, topic_ids={"t": "id"})
            claimed = fence.claim(epoch=taken.epoch, driver="pod", code="c", start=lambda _: starting)
            planned = fence.plan(claimed, offsets=start, planned=end)
            committed = fence.commit(planned, offsets=end, planned=end, records=5, duration_ms=1)
            assert (fence.read() or taken).version == committed.version
            assert (fence.read() or taken).offsets == {"t/0": 5}
            table.finish_history()
        finally:
            session.cluster.shutdown()


def test_a_database_with_protocol_v5_is_spoken_to_in_it(session: Session) -> None:
    assert session.cluster.protocol_version == ProtocolVersion.V5


def test_every_transaction_and_its_reads_are_at_the_chosen_serial_level(keyspace: str) -> None:
    place = environment.load()
    endpoint = CassandraEndpoint(
        contact_points=(place.cassandra_host,),
        port=place.cassandra_port,
        local_datacenter="datacenter1",
        serial_consistency=LOCAL_SERIAL,
    )
    table = CassandraFenceTable.connect(endpoint, keyspace=keyspace, credentials=account())
    levels: list[set[int]] = []

    def note(sent: ResponseFuture) -> None:
        message = sent.message
        levels.append({message.consistency_level, getattr(message, "serial_consistency_level", None)} & SERIAL_LEVELS)

    table.session.add_request_init_listener(note)
    try:
        fence = Fence(table, "s/n/p", patience=30.0)
        row = fence.create("owner")
        taken = fence.take_over(row, owner="owner")
        assert fence.read() == taken
    finally:
        table.close()
    assert ConsistencyLevel.LOCAL_SERIAL in set().union(*levels)
    assert ConsistencyLevel.SERIAL not in set().union(*levels)


def test_the_durability_settings_of_a_real_node_are_read(session: Session, keyspace: str) -> None:
    session.execute(f"ALTER KEYSPACE {keyspace} WITH durable_writes = false", timeout=60)
    found = read_settings(session, [keyspace, "no_such_keyspace"])
    assert found.nodes == {"datacenter1": 1}
    assert found.commitlog_sync in {"periodic", "batch", "group"}
    assert found.keyspaces["no_such_keyspace"] is None
    settings = present(found.keyspaces[keyspace])
    assert not settings.durable_writes
    assert settings.replication["class"].endswith("NetworkTopologyStrategy")
    assert settings.replication["datacenter1"] == "1"


def test_the_grant_that_is_named_makes_the_commit_log_readable(session: Session) -> None:
    name = f"stranger_{uuid.uuid4().hex[:8]}"
    session.execute(f"CREATE ROLE {name} WITH PASSWORD = 'secret' AND LOGIN = true", timeout=60)
    try:
        theirs = open_session(name, "secret")
        try:
            found = read_settings(theirs, [])
            assert found.commitlog_sync is None
            session.execute(f"{found.unreadable.removesuffix(' to the account')} TO {name}", timeout=60)
            for _ in range(60):  # nodes keep permissions for a moment
                if (granted := read_settings(theirs, []).commitlog_sync) is not None:
                    break
                time.sleep(1.0)
            assert granted is not None
        finally:
            theirs.cluster.shutdown()
    finally:
        session.execute(f"DROP ROLE {name}", timeout=60)


def test_a_new_keyspace_has_replicas_on_as_many_nodes_as_there_are(session: Session) -> None:
    found = new_replication(session, strategy="NetworkTopologyStrategy", factor=None)
    assert found == {"class": "NetworkTopologyStrategy", "datacenter1": 1}
