"""A tenant's Kafka properties in the operator's process: the real librdkafka never sees what is not allowed."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.listener import Listener
from fakes.secrets import Secrets
from fencepost.contract import kafka_properties
from fencepost.contract.kafka_properties import ALLOWED, DRIVER_ONLY, RESERVED
from fencepost_operator.adapters.kafka.client import FREE_TEXT, open_client
from fencepost_operator.adapters.kafka.offsets import KafkaOffsets
from fencepost_operator.api import KafkaConnection
from fencepost_operator.errors import PortError, Rejected
from security.hostile import hostile_text

SECRET: Final = "s3cret-value"  # noqa: S105 - looked for in messages
QUIET: Final = 0.1
"""Seconds in which a client that was opened would have connected; librdkafka does so within milliseconds."""


class Clients(Listener):
    """Notes when a client connects, and closes the connection."""

    def __init__(self) -> None:
        self.connections: list[float] = []
        super().__init__(self._note)

    def _note(self, connection: socket.socket) -> None:
        self.connections.append(time.monotonic())
        connection.close()


@pytest.fixture
def listener() -> Iterator[Clients]:
    with closing(Clients()) as found:
        yield found


def token(folder: Path) -> Path:
    path = folder / "token"
    path.write_text("the-operators-token")
    return path


def attack(name: str, listener: Clients, folder: Path) -> dict[str, str]:
    """Properties that would make librdkafka open a file, load code, run a command or call a URL."""
    oauth = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": f"http://{listener.address}/token",
    }
    attacks: dict[str, dict[str, str]] = {
        "the token as assertion": {
            **oauth,
            "sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
            "sasl.oauthbearer.assertion.file": str(token(folder)),
        },
        "a token endpoint": {**oauth, "sasl.oauthbearer.client.id": "a", "sasl.oauthbearer.client.secret": "b"},
        "a plug-in": {"plugin.library.paths": str(folder / "plugin.so")},
        "a CA file": {"security.protocol": "SSL", "ssl.ca.location": str(token(folder))},
        "a key file": {"security.protocol": "SSL", "ssl.key.location": str(token(folder))},
        "a key store": {"security.protocol": "SSL", "ssl.keystore.location": str(token(folder))},
        "an OpenSSL engine": {"security.protocol": "SSL", "ssl.engine.location": str(folder / "engine.so")},
        "a command": {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.kinit.cmd": f"touch {folder / 'touched'}",
        },
        "Kerberos by default": {"security.protocol": "SASL_PLAINTEXT"},
        "Kerberos by default, in lower case": {"security.protocol": "sasl_plaintext"},
        "debug": {"debug": "all"},
        "other servers": {"metadata.broker.list": listener.address},
        "its own name for servers": {"bootstrap.servers": listener.address},
        "a callback": {"error_cb": "print", "stats_cb": "print"},
        "statistics": {"statistics.interval.ms": "1"},
        "a proxy": {"sasl.oauthbearer.config": "x", "https.ca.location": str(token(folder))},
        "an unknown property": {"sasl.pasword": SECRET},
        "an enumeration's value": {"security.protocol": SECRET},
        "an unbounded timeout": {"socket.timeout.ms": "9999999"},
    }
    return attacks[name]


ATTACKS: Final = (
    "the token as assertion", "a token endpoint", "a plug-in", "a CA file", "a key file", "a key store",
    "an OpenSSL engine", "a command", "Kerberos by default", "Kerberos by default, in lower case", "debug",
    "other servers", "its own name for servers", "a callback", "statistics", "a proxy", "an unknown property",
    "an enumeration's value", "an unbounded timeout",
)  # fmt: skip


@pytest.mark.parametrize("inline", [True, False], ids=["spec", "secret"])
@pytest.mark.parametrize("name", ATTACKS)
async def test_no_client_is_opened(name: str, inline: bool, listener: Clients, tmp_path: Path) -> None:
    properties = attack(name, listener, tmp_path)
    offsets = KafkaOffsets(Secrets({} if inline else properties))
    connection = KafkaConnection(
        namespace="tenant",
        bootstrap_servers=listener.address,
        topics=("t",),
        properties=properties if inline else {},
        properties_secret=None if inline else "kafka-login",
    )
    try:
        found = await offsets.ends(connection)
        assert found is None, "only the driver may connect"
        assert kafka_properties.why_driver_only(properties)
    except Rejected as refusal:
        words = f"{refusal} {refusal.remedy}"
        assert any(key in words for key in properties)
        assert ("spec.source.kafka.properties" if inline else "Secret tenant/kafka-login") in words
        assert SECRET not in words
    assert not offsets._pool._clients
    await asyncio.sleep(QUIET)
    assert listener.connections == []
    assert not (tmp_path / "touched").exists()
    await offsets.close()


async def test_an_allowed_client_does_connect(listener: Clients) -> None:
    """The listener of the other tests would have seen a client."""
    offsets = KafkaOffsets(Secrets({}))
    connection = KafkaConnection(namespace="tenant", bootstrap_servers=listener.address, topics=("t",))
    with pytest.raises(PortError):
        await offsets.ends(connection)
    assert listener.connections
    await offsets.close()


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.dictionaries(st.one_of(st.sampled_from(sorted({*ALLOWED, *DRIVER_ONLY, *RESERVED})), hostile_text), hostile_text)
)
def test_whatever_a_tenant_writes_only_allowed_properties_are_loaded(properties: dict[str, str]) -> None:
    try:
        loaded = kafka_properties.for_operator(properties)
    except ValueError:
        return
    assert loaded.keys() <= ALLOWED.keys()
    assert all(ALLOWED[key](value) is None for key, value in loaded.items())


@pytest.mark.parametrize("key", sorted(ALLOWED.keys() - FREE_TEXT))
def test_a_property_that_is_shown_takes_no_free_text(key: str) -> None:
    """So librdkafka's messages hold no text of a Secret but what is scrubbed."""
    assert ALLOWED[key](SECRET) is not None


@pytest.mark.parametrize(
    "properties",
    [
        {"security.protocol": "SSL", "ssl.key.pem": f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n"},
        {"security.protocol": "SSL", "ssl.ca.pem": f"-----BEGIN CERTIFICATE-----\n{SECRET}\n"},
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.password": SECRET},
    ],
)
def test_librdkafkas_refusal_shows_no_value(properties: dict[str, str]) -> None:
    connection = KafkaConnection(namespace="n", bootstrap_servers="127.0.0.1:1", topics=("t",))
    with pytest.raises(Rejected) as refusal:
        open_client({**properties, "bootstrap.servers": "127.0.0.1:1"}, connection)
    assert SECRET not in f"{refusal.value} {refusal.value.remedy} {refusal.value.__cause__}"
