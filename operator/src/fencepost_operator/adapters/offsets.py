"""Kafka's log ends, by librdkafka's admin client: its calls return futures, so no thread waits here.

librdkafka runs in the operator's process, which all tenants trust.  Only the properties that
`fencepost.contract.kafka_properties` allows there are passed to it, whether they come from the spec or from the Secret.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from fencepost.contract import kafka_properties
from fencepost.kafka.answers import REFUSALS, Topics, positions_of, refusal, topics_of
from fencepost_operator.adapters.dialing import Dialing
from fencepost_operator.api import KafkaConnection, ObjectKey
from fencepost_operator.endpoints import EndpointPolicy
from fencepost_operator.errors import Denied, PortError, Rejected, Unreachable
from fencepost_operator.observation import Watermarks
from fencepost_operator.ports import SecretReader

_ANSWER_WITHIN: Final = 8.0
"""Seconds. Less than an observation waits, so that it hears the reason."""
_IDLE: Final = 600.0
"""Seconds after which a client that nobody used is closed."""
_LARGEST_ANSWER: Final = 256 * 1024
"""Bytes of one answer, which holds some 40 per partition with three replicas: enough for 6000 partitions.

librdkafka starts a thread for each broker that an answer names, and a hostile answer may name one in 12 bytes.
"""
_CONSUMER_ONLY: Final = frozenset({"isolation.level"})
"""Allowed, and not a property of an admin client: each request names the isolation level."""
FREE_TEXT: Final = frozenset(
    {
        "client.id",
        "client.rack",
        "sasl.password",
        "sasl.username",
        "ssl.ca.pem",
        "ssl.certificate.pem",
        "ssl.key.password",
        "ssl.key.pem",
    }
)
"""Allowed properties whose values are any text. Those of a Secret never appear in a message."""


_Key: TypeAlias = tuple[str | tuple[str, str], ...]
"""A namespace and the properties of a client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """How many clients are open: librdkafka starts a thread per client, per bootstrap server and per broker."""

    per_namespace: int = 16
    total: int = 128


@dataclass(slots=True)
class _Client:
    """One admin client and the last thing it complained about: a request that times out does not say why."""

    admin: AdminClient
    complaints: deque[KafkaError]
    hidden: tuple[str, ...] = field(default=(), repr=False)
    """Texts that no message may hold."""
    namespace: str = ""
    users: int = 0
    used_at: float = field(default_factory=time.monotonic)

    def complaint(self) -> KafkaError | None:
        """Return the complaint that says most: a refusal before a broken connection."""
        self.admin.poll(0)
        return refusal(self.complaints) or next(reversed(self.complaints), None)

    def words(self, error: KafkaError) -> str:
        """Return an error's text without the hidden texts in it."""
        return _scrubbed(error.str(), self.hidden)


class KafkaOffsets:
    """Implements the Offsets port; `close` lets the clients go.

    Clients belong to one namespace.  Beyond the limits, the one that was not used for longest is closed for a new one.
    """

    def __init__(
        self, secrets: SecretReader, policy: EndpointPolicy | None = None, limits: ClientLimits | None = None
    ) -> None:
        self._secrets = secrets
        self._limits = limits or ClientLimits()
        self._dialing = Dialing(policy or EndpointPolicy())
        self._clients: dict[_Key, _Client] = {}

    def __len__(self) -> int:
        """Return how many clients are open."""
        return len(self._clients)

    async def ends(self, connection: KafkaConnection) -> Watermarks | None:
        """Return the bounds of each partition's log and what is missing; None where only the driver may connect."""
        properties = await self._properties(connection)
        if kafka_properties.why_driver_only(properties):
            return None
        # A certificate is checked against the name, so only without TLS can the checked address be dialled.
        by_name = properties.get("security.protocol", "").lower().endswith("ssl")
        servers = await self._dialing.kafka(connection.namespace, connection.bootstrap_servers, by_name=by_name)
        client = await self._client(servers, connection, kafka_properties.for_operator(properties))
        client.users += 1
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                topics, leaders = await _topics(client.admin, connection.topics)
                await self._dialing.brokers(connection.namespace, leaders)  # before the client connects to them
                found = await _watermarks(client.admin, topics, _isolation(properties))
        except Rejected:
            await self._release([key for key, known in self._clients.items() if known is client])
            raise
        except (KafkaException, TimeoutError) as error:
            raise _translated(error, client, connection, is_restricted=self._dialing.policy.restricts) from error
        finally:
            client.users -= 1
        # Not before: librdkafka reports a lasting problem once, and the request that times out later does not say why.
        client.complaints.clear()
        return found

    async def close(self) -> None:
        """Let the clients go; librdkafka ends their threads."""
        self._dialing.close()
        await self._release(list(self._clients))

    async def _properties(self, connection: KafkaConnection) -> dict[str, str]:
        """Return the properties of the spec, and over them those of the Secret. Raises Rejected, naming the key."""
        properties = dict(connection.properties)
        _refuse(properties, "spec.source.kafka.properties", "spec.source.kafka.properties")
        if connection.properties_secret:
            place = ObjectKey(connection.namespace, connection.properties_secret)
            secret = kafka_properties.of_secret(await self._secrets.secret(place, connection.properties_secret))
            _refuse(secret, f"Secret {place}", "the Secret of spec.source.kafka.propertiesFrom")
            properties |= secret
        return properties

    async def _client(self, servers: str, connection: KafkaConnection, properties: Mapping[str, str]) -> _Client:
        own = {key: value for key, value in properties.items() if key not in _CONSUMER_ONLY}
        own["bootstrap.servers"] = servers
        key: _Key = (connection.namespace, *sorted(own.items()))
        now = time.monotonic()
        unused = [k for k, c in self._clients.items() if k != key and not c.users and now - c.used_at > _IDLE]
        client = self._clients.get(key)
        if client is None:
            room = [k for k in self._room(connection) if k not in unused]
            client = self._clients[key] = _open(own, connection)
            unused += room
        client.used_at = now
        client.users += 1  # so that nobody closes it meanwhile
        try:
            await self._release(unused)
        finally:
            client.users -= 1
        return client

    def _room(self, connection: KafkaConnection) -> list[_Key]:
        """Return the client to close for a new one, if any. Raises Unreachable when all of them are in use."""
        held = Counter(client.namespace for client in self._clients.values())
        candidates = self._clients
        if held[connection.namespace] >= self._limits.per_namespace:
            candidates = {k: c for k, c in self._clients.items() if c.namespace == connection.namespace}
        elif len(self._clients) < self._limits.total:
            return []
        idle = {k: c for k, c in candidates.items() if not c.users}
        if not idle:
            raise Unreachable(
                f"Kafka at {connection.bootstrap_servers}: all {len(candidates)} Kafka clients that the operator may"
                " open are in use",
                remedy="wait, or give this namespace's pipelines the same source.kafka.bootstrapServers and properties",
            )
        return [min(idle, key=lambda k: (-held[idle[k].namespace], idle[k].used_at))]

    async def _release(self, keys: list[_Key]) -> None:
        clients = [self._clients.pop(key) for key in keys]
        if clients:
            await asyncio.to_thread(clients.clear)  # the last reference goes there: closing a client blocks


def _refuse(properties: Mapping[str, str], where: str, field_name: str) -> None:
    if found := kafka_properties.problems(properties):
        raise Rejected(
            f"{where}: {'; '.join(f'{each.key} {each.problem}' for each in found)}",
            remedy=f"correct {field_name}: {found[0].key}: {found[0].remedy}",
        )


def _isolation(properties: Mapping[str, str]) -> IsolationLevel:
    """Return the level at which the driver reads."""
    uncommitted = properties.get("isolation.level", "").lower() == "read_uncommitted"
    return IsolationLevel.READ_UNCOMMITTED if uncommitted else IsolationLevel.READ_COMMITTED


def _open(properties: Mapping[str, str], connection: KafkaConnection) -> _Client:
    complaints: deque[KafkaError] = deque(maxlen=20)
    configuration: dict[str, Any] = {
        "client.id": "fencepost-operator",
        "log_level": 0,  # what matters comes by error_cb and by the requests' own errors
        "reconnect.backoff.ms": 500,
        "reconnect.backoff.max.ms": 2000,
        "socket.connection.setup.timeout.ms": 5000,
        # Never refreshed, a client keeps asking the broker that it last knew as controller after that one is dead.
        "topic.metadata.refresh.interval.ms": 15_000,
        "receive.message.max.bytes": _LARGEST_ANSWER,
        **properties,
        "error_cb": complaints.append,
    }
    hidden = tuple(value for key, value in properties.items() if key in FREE_TEXT)
    try:
        return _Client(AdminClient(configuration), complaints, hidden, connection.namespace)
    except (KafkaException, TypeError, ValueError) as error:
        raise Rejected(
            f"Kafka at {connection.bootstrap_servers}: {_scrubbed(_words(error), hidden)}",
            remedy="correct spec.source.kafka.properties or the Secret of spec.source.kafka.propertiesFrom",
        ) from None  # the cause holds what was scrubbed


async def _watermarks(admin: AdminClient, found: Topics, isolation: IsolationLevel) -> Watermarks:
    if not found.partitions:
        return Watermarks(ends={}, missing_topics=found.missing)
    partitions, committed = found.partitions, isolation == IsolationLevel.READ_COMMITTED
    earliest, latest = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
    starts, marks, ends = await asyncio.gather(
        _positions(admin, partitions, earliest, isolation),
        _positions(admin, partitions, latest, IsolationLevel.READ_UNCOMMITTED),
        _positions(admin, partitions if committed else (), latest, isolation),
    )
    return Watermarks(
        ends=ends if committed else marks, starts=starts, high_watermarks=marks, missing_topics=found.missing
    )


async def _topics(admin: AdminClient, topics: tuple[str, ...]) -> tuple[Topics, set[tuple[str, int]]]:
    """Return what Kafka says about the topics, and (host, port) of the brokers that lead their partitions."""
    answers = admin.describe_topics(TopicCollection(list(topics)), request_timeout=_ANSWER_WITHIN)
    await _done(answers.values())
    described = [answer.result() for answer in answers.values() if answer.exception() is None]
    partitions = [partition for topic in described for partition in topic.partitions]
    leaders = {(part.leader.host, part.leader.port) for part in partitions if part.leader is not None}
    return topics_of(answers), leaders


async def _positions(
    admin: AdminClient, partitions: Iterable[TopicPartition], spec: OffsetSpec, isolation: IsolationLevel
) -> dict[str, int]:
    asked = dict.fromkeys(partitions, spec)
    if not asked:
        return {}
    answers = admin.list_offsets(asked, isolation_level=isolation, request_timeout=_ANSWER_WITHIN)
    await _done(answers.values())
    return {key: position.offset for key, position in positions_of(answers).items()}


async def _done(futures: Iterable[Future[Any]]) -> None:
    """Wait for all futures, whatever comes of them."""
    await asyncio.gather(*(asyncio.wrap_future(future) for future in futures), return_exceptions=True)


def _translated(
    error: Exception, client: _Client, connection: KafkaConnection, *, is_restricted: bool = False
) -> PortError:
    """Return the reason in our terms.

    `is_restricted`: the endpoints are.  Then a failure to connect reads the same whatever is there.
    """
    told = error.args[0] if isinstance(error, KafkaException) else None
    if told is None or told.code() not in REFUSALS:
        told = client.complaint() or told
    where = f"Kafka at {connection.bootstrap_servers}"
    if told is not None and told.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return Denied(f"{where}: {client.words(told)}", remedy="grant the account Describe and Read on the topics")
    if told is not None and told.code() in REFUSALS:
        return Denied(f"{where}: {client.words(told)}", remedy="check the credentials in source.kafka.propertiesFrom")
    if is_restricted:
        told = None
    words = client.words(told) if told is not None else f"no answer in {_ANSWER_WITHIN:.0f} s"
    return Unreachable(
        f"{where}: {words}", remedy="check source.kafka.bootstrapServers, and that the operator may reach Kafka"
    )


def _words(error: Exception) -> str:
    told = error.args[0] if error.args else error
    return told.str() if isinstance(told, KafkaError) else str(told)


def _scrubbed(text: str, hidden: Iterable[str]) -> str:
    for secret in sorted(hidden, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
