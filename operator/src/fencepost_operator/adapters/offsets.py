"""Kafka's log ends, by librdkafka's admin client: its calls return futures, so no thread waits here."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from fencepost.contract import kafka_properties, offset_key
from fencepost_operator.api import KafkaConnection, ObjectKey
from fencepost_operator.errors import Denied, PortError, Rejected, Unreachable
from fencepost_operator.observation import Watermarks

_T = TypeVar("_T")
_ANSWER_WITHIN: Final = 8.0
"""Less than an observation waits, so that it hears the reason."""
_IDLE: Final = 600.0
"""Seconds after which a client that nobody used is closed."""

_DENIALS: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,  # noqa: SLF001 - librdkafka's public codes begin with an underscore
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
_MISSING: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}  # noqa: SLF001
)


class SecretReader(Protocol):
    """The part of the Objects port that reads credentials."""

    async def secret(self, key: ObjectKey, name: str) -> Mapping[str, str]:
        """Return a Secret's decoded data."""
        ...


@dataclass(slots=True)
class _Client:
    """One admin client and the last thing it complained about: a request that times out does not say why."""

    admin: AdminClient
    complaints: deque[KafkaError]
    used_at: float = field(default_factory=time.monotonic)

    def complaint(self) -> KafkaError | None:
        """Return the complaint that says most: a refusal before a broken connection."""
        self.admin.poll(0)
        refusals = [error for error in self.complaints if error.code() in _DENIALS]
        return next(iter((*refusals, *reversed(self.complaints))), None)


class KafkaOffsets:
    """Implements the Offsets port; `close` lets the clients go."""

    def __init__(self, secrets: SecretReader) -> None:
        self._secrets = secrets
        self._clients: dict[tuple[tuple[str, str], ...], _Client] = {}

    async def ends(self, connection: KafkaConnection) -> Watermarks:
        """Return the bounds of each partition's log, as readers of committed records see them, and what is missing."""
        client = await self._client(connection)
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                found = await _ends(client.admin, connection.topics)
        except (KafkaException, TimeoutError) as error:
            raise _translated(error, client, connection) from error
        # Not before: librdkafka tells a lasting trouble once, and the request that times out later does not say why.
        client.complaints.clear()
        return found

    async def close(self) -> None:
        """Let the clients go; librdkafka ends their threads."""
        await self._release(list(self._clients))

    async def _client(self, connection: KafkaConnection) -> _Client:
        properties = dict(connection.properties)
        if connection.properties_secret:
            place = ObjectKey(connection.namespace, connection.properties_secret)
            secret = kafka_properties.of_secret(await self._secrets.secret(place, connection.properties_secret))
            _refuse_problems(secret, place)
            properties |= secret
        if reason := kafka_properties.why_driver_only(properties):
            raise Rejected(f"the operator does not connect to Kafka at {connection.bootstrap_servers}: {reason}")
        properties = kafka_properties.for_operator(properties)
        properties["bootstrap.servers"] = connection.bootstrap_servers
        key = tuple(sorted(properties.items()))
        now = time.monotonic()
        await self._release([k for k, c in self._clients.items() if k != key and now - c.used_at > _IDLE])
        client = self._clients.get(key)
        if client is None:
            client = self._clients[key] = _open(properties, connection)
        client.used_at = now
        return client

    async def _release(self, keys: list[tuple[tuple[str, str], ...]]) -> None:
        clients = [self._clients.pop(key) for key in keys]
        if clients:
            await asyncio.to_thread(clients.clear)  # the last reference goes there: closing a client blocks


def _refuse_problems(secret: Mapping[str, str], place: ObjectKey) -> None:
    if found := kafka_properties.problems(secret):
        raise Rejected(
            f"Secret {place}: {'; '.join(f'{each.key} {each.problem}' for each in found)}",
            remedy=f"correct the Secret of source.kafka.propertiesFrom: {found[0].key}: {found[0].remedy}",
        )


def _open(properties: Mapping[str, str], connection: KafkaConnection) -> _Client:
    complaints: deque[KafkaError] = deque(maxlen=20)
    configuration: dict[str, Any] = {
        "client.id": "fencepost-operator",
        "log_level": 0,  # what matters comes by error_cb and by the requests' own errors
        "reconnect.backoff.ms": 500,
        "reconnect.backoff.max.ms": 2000,
        "socket.connection.setup.timeout.ms": 5000,
        "topic.metadata.refresh.interval.ms": -1,
        **properties,
        "error_cb": complaints.append,
    }
    try:
        return _Client(AdminClient(configuration), complaints)
    except (KafkaException, TypeError, ValueError) as error:
        raise Rejected(
            f"Kafka at {connection.bootstrap_servers}: {_words(error)}",
            remedy="mend source.kafka.properties or the Secret in propertiesFrom: the keys are librdkafka's",
        ) from error


async def _ends(admin: AdminClient, topics: tuple[str, ...]) -> Watermarks:
    wanted: list[TopicPartition] = []
    missing: list[str] = []
    described = admin.describe_topics(TopicCollection(list(topics)), request_timeout=_ANSWER_WITHIN)
    for topic, future in described.items():
        try:
            description = await _answer(future)
        except KafkaException as error:
            if error.args[0].code() not in _MISSING:
                raise
            missing.append(topic)
        else:
            wanted += [TopicPartition(topic, partition.id) for partition in description.partitions]
    if not wanted:
        return Watermarks(ends={}, missing_topics=tuple(missing))
    starts, ends = await asyncio.gather(
        _positions(admin, wanted, OffsetSpec.earliest()),  # type: ignore[no-untyped-call]
        _positions(admin, wanted, OffsetSpec.latest()),  # type: ignore[no-untyped-call]
    )
    return Watermarks(ends=ends, starts=starts, missing_topics=tuple(missing))


async def _positions(admin: AdminClient, partitions: Iterable[TopicPartition], spec: OffsetSpec) -> dict[str, int]:
    asked = admin.list_offsets(
        dict.fromkeys(partitions, spec),
        isolation_level=IsolationLevel.READ_COMMITTED,
        request_timeout=_ANSWER_WITHIN,
    )
    return {offset_key(at.topic, at.partition): (await _answer(future)).offset for at, future in asked.items()}


async def _answer(future: Future[_T]) -> _T:
    return await asyncio.wrap_future(future)


def _translated(error: Exception, client: _Client, connection: KafkaConnection) -> PortError:
    told = error.args[0] if isinstance(error, KafkaException) else None
    if told is None or told.code() not in _DENIALS:
        told = client.complaint() or told
    where = f"Kafka at {connection.bootstrap_servers}"
    if told is not None and told.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return Denied(f"{where}: {told.str()}", remedy="grant the account Describe and Read on the topics")
    if told is not None and told.code() in _DENIALS:
        return Denied(f"{where}: {told.str()}", remedy="check the credentials in source.kafka.propertiesFrom")
    words = told.str() if told is not None else f"no answer in {_ANSWER_WITHIN:.0f} s"
    return Unreachable(
        f"{where}: {words}", remedy="check source.kafka.bootstrapServers, and that the operator may reach Kafka"
    )


def _words(error: Exception) -> str:
    told = error.args[0] if error.args else error
    return told.str() if isinstance(told, KafkaError) else str(told)
