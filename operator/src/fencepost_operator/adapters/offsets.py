"""Kafka's log ends and the age of unread records, by librdkafka's admin client.

Its calls return futures, so no thread waits here.

librdkafka runs in the operator's process, which all tenants trust.  Only the properties that
`fencepost.contract.kafka_properties` allows there are passed to it, whether they come from the spec or from the Secret.

librdkafka starts a thread for each broker that an answer names, before anybody can look at it.  So the size of an
answer bounds what one answer can cost, and a client whose cluster has too many brokers is closed at once and not opened
again before a pause that doubles with each refusal.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeAlias

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from fencepost.contract import kafka_properties, offset_key
from fencepost.kafka.answers import REFUSALS, Topics, positions_of, refusal, topics_of
from fencepost_operator.adapters.dialing import Dialing
from fencepost_operator.adapters.record_ages import milliseconds
from fencepost_operator.adapters.topic_settings import read_topic_settings
from fencepost_operator.adapters.unread import Reader, first_offsets
from fencepost_operator.api import KafkaConnection, ObjectKey
from fencepost_operator.backoff import retry_delay
from fencepost_operator.endpoints import EndpointPolicy
from fencepost_operator.errors import Denied, PortError, Rejected, Unreachable
from fencepost_operator.observation import TopicSettings, UnreadRecords, Watermarks
from fencepost_operator.ports import SecretReader

_ANSWER_WITHIN: Final = 8.0
"""Seconds. Less than an observation waits, so that it hears the reason."""
_IDLE: Final = 600.0
"""Seconds after which a client that nobody used is closed."""
_LARGEST_ANSWER: Final = 64 * 1024
"""Bytes of one answer.

A partition with three replicas takes 42 bytes of metadata and a broker some 60: with 50 brokers it is enough for 1400
partitions.  Each topic is asked for by itself, so the limit holds for one topic and not for a pipeline.  A hostile
answer of this size names some 3600 brokers, and librdkafka 2.16 takes a thread and 54 KiB for each (measured).
"""
_PARTITIONS_AT_ONCE: Final = 1000
"""Partitions of one request for offsets, before which librdkafka asks for the metadata of their topics."""
_CLOSING_AT_ONCE: Final = 16
"""Threads that close clients; each waits for the name lookups that its client has in progress."""
_TOO_LARGE: Final = "receive.message.max.bytes"
"""What librdkafka's error names when an answer is larger than the limit."""
_NO_THREAD: Final = re.compile(r"Failed to create (\w+ )*thread|Unable to create (\w+ )*thread")
"""How librdkafka says that the process can start no thread; the error's code says nothing."""
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
    """How many clients are open: librdkafka starts a thread per client, per bootstrap server and per broker.

    Pauses are in seconds: a cluster that was refused for its size is not dialled again before.
    """

    per_namespace: int = 16
    total: int = 128
    brokers: int = 256
    """Brokers of one cluster."""
    brokers_per_namespace: int = 512
    brokers_total: int = 2048
    first_pause: float = 10.0
    longest_pause: float = 600.0


@dataclass(slots=True)
class _Client:
    """One admin client and the last thing it complained about: a request that times out does not say why."""

    admin: AdminClient
    complaints: deque[KafkaError]
    hidden: tuple[str, ...] = field(default=(), repr=False)
    """Texts that no message may hold."""
    namespace: str = ""
    brokers: int = 0
    """As its cluster said last; librdkafka ends the threads of brokers that are not named any more."""
    users: int = 0
    used_at: float = field(default_factory=time.monotonic)

    def complaint(self) -> KafkaError | None:
        """Return the complaint that says most: a refusal before a broken connection."""
        with suppress(RuntimeError):  # it is closed
            self.admin.poll(0)
        return refusal(self.complaints) or next(reversed(self.complaints), None)

    def words(self, error: KafkaError) -> str:
        """Return an error's text without the hidden texts in it."""
        return _scrubbed(error.str(), self.hidden)

    def close(self) -> None:
        """End the client's threads, which blocks; a request that is in progress or comes later fails."""
        self.admin.__exit__(None, None, None)


class _Oversized(Rejected):
    """The cluster is larger than the operator's process can serve."""


@dataclass(slots=True)
class _Refused:
    """A cluster that was refused for its size: `failures` in a row, the last one `error`."""

    error: _Oversized
    failures: int
    retry_at: float


class KafkaOffsets:
    """Implements the Offsets port; `close` lets the clients go.

    Clients belong to one namespace.  Beyond the limits, the one that was not used for longest is closed for a new one.
    """

    def __init__(
        self,
        secrets: SecretReader,
        policy: EndpointPolicy | None = None,
        limits: ClientLimits | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._secrets = secrets
        self._wall = wall
        self._readers: dict[ObjectKey, Reader] = {}
        self._limits = limits or ClientLimits()
        self._monotonic = monotonic
        self._dialing = Dialing(policy or EndpointPolicy())
        self._clients: dict[_Key, _Client] = {}
        self._refused: dict[tuple[str, str], _Refused] = {}
        self._closing: Counter[str] = Counter()
        self._closers = ThreadPoolExecutor(_CLOSING_AT_ONCE, thread_name_prefix="kafka-close")

    def __len__(self) -> int:
        """Return how many clients are open."""
        return len(self._clients)

    async def ends(self, connection: KafkaConnection) -> Watermarks | None:
        """Return the bounds of each partition's log and what is missing; None where only the driver may connect.

        Raises Rejected, Denied, Unreachable.
        """
        properties = await self._properties(connection)
        if kafka_properties.why_driver_only(properties):
            return None
        async with self._session(connection, properties) as (admin, topics):
            return await _watermarks(admin, topics, _isolation(properties))

    async def unread(
        self, reader: ObjectKey, connection: KafkaConnection, source: Watermarks, positions: Mapping[str, int]
    ) -> UnreadRecords:
        """Return what threatens the records from a pipeline's positions on; see the port.

        Raises Rejected, Denied, Unreachable.
        """
        known = self._reader(reader, connection)
        known.look(source, positions)
        if known.wants_answers():
            async with self._session(connection, await self._properties(connection)) as (admin, topics):
                await known.ask(admin, topics)
        return known.facts()

    async def settings(self, connection: KafkaConnection) -> Mapping[str, TopicSettings] | None:
        """Return what decides how durable each topic's records are; None where only the driver may connect.

        Raises Rejected, Denied, Unreachable.
        """
        properties = await self._properties(connection)
        if kafka_properties.why_driver_only(properties):
            return None
        async with self._session(connection, properties) as (admin, _):
            return await read_topic_settings(admin, connection.topics, answer_within=_ANSWER_WITHIN)

    async def at(self, connection: KafkaConnection, timestamp: datetime) -> Mapping[str, int]:
        """Return each partition's first offset whose record is at least that young; see the port.

        Raises Rejected, Denied, Unreachable.
        """
        properties = await self._properties(connection)
        if kafka_properties.why_driver_only(properties):
            raise Rejected(
                "a timestamp cannot be looked up: only the driver may connect to this Kafka",
                remedy="name offsets or a snapshot in spec.to",
            )
        async with self._session(connection, properties) as (admin, topics):
            keys = (offset_key(partition.topic, partition.partition) for partition in topics.partitions)
            return await first_offsets(admin, dict.fromkeys(keys, milliseconds(timestamp)))

    @asynccontextmanager
    async def _session(
        self, connection: KafkaConnection, properties: Mapping[str, str]
    ) -> AsyncIterator[tuple[AdminClient, Topics]]:
        """Yield a client whose cluster is within the limits, and what Kafka says about the connection's topics.

        Raises Rejected, Denied, Unreachable, also in place of the client's errors in the body.
        """
        self._refuse_again(connection)
        # A certificate is checked against the name, so only without TLS can the checked address be dialled.
        by_name = properties.get("security.protocol", "").lower().endswith("ssl")
        servers = await self._dialing.kafka(connection.namespace, connection.bootstrap_servers, by_name=by_name)
        client = self._client(servers, connection, kafka_properties.for_operator(properties))
        client.users += 1
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                client.brokers = await _brokers(client.admin)
                self._check_brokers(client, connection)
                topics, leaders = await _topics(client.admin, connection.topics)
                await self._dialing.brokers(connection.namespace, leaders)  # before the client connects to them
                yield client.admin, topics
        except Rejected as error:
            self._let_go(client, connection, error)
            raise
        except (KafkaException, TimeoutError) as error:
            raise _translated(error, client, connection, is_restricted=self._dialing.policy.restricts) from error
        except RuntimeError as error:  # closed meanwhile, by a request of the same pipelines that was refused
            raise Unreachable(f"Kafka at {connection.bootstrap_servers}: {error}", remedy=_TRY_AGAIN) from error
        finally:
            client.users -= 1
        # Not before: librdkafka reports a lasting problem once, and the request that times out later does not say why.
        client.complaints.clear()
        self._refused.pop(_cluster(connection), None)

    def _reader(self, reader: ObjectKey, connection: KafkaConnection) -> Reader:
        """Return what is known for a pipeline: nothing yet for another connection, nor after a long time."""
        now = self._monotonic()
        for old in [key for key, known in self._readers.items() if now - known.used_at > _IDLE]:
            del self._readers[old]
        known = self._readers.get(reader)
        if known is None or known.connection != connection:
            known = self._readers[reader] = Reader(connection, monotonic=self._monotonic, wall=self._wall)
        return known

    async def close(self) -> None:
        """Close the clients; librdkafka ends their threads."""
        self._dialing.close()
        self._release(list(self._clients))
        await asyncio.get_running_loop().run_in_executor(None, self._closers.shutdown)

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

    def _client(self, servers: str, connection: KafkaConnection, properties: Mapping[str, str]) -> _Client:
        own = {key: value for key, value in properties.items() if key not in _CONSUMER_ONLY}
        own["bootstrap.servers"] = servers
        key: _Key = (connection.namespace, *sorted(own.items()))
        now = self._monotonic()
        unused = [k for k, c in self._clients.items() if k != key and not c.users and now - c.used_at > _IDLE]
        client = self._clients.get(key)
        if client is None:
            room = [k for k in self._room(connection) if k not in unused]
            client = self._clients[key] = _open(own, connection)
            unused += room
        client.used_at = now
        self._release(unused)
        return client

    def _room(self, connection: KafkaConnection) -> list[_Key]:
        """Return the client to close for a new one, if any. Raises Unreachable when all of them are in use."""
        held = Counter(client.namespace for client in self._clients.values())
        candidates = self._clients
        if self._closing[connection.namespace] >= self._limits.per_namespace:
            raise Unreachable(
                f"Kafka at {connection.bootstrap_servers}: {self._closing[connection.namespace]} Kafka clients of this"
                " namespace are still being closed",
                remedy=_TRY_AGAIN,
            )
        if held[connection.namespace] >= self._limits.per_namespace:
            candidates = {k: c for k, c in self._clients.items() if c.namespace == connection.namespace}
        elif len(self._clients) < self._limits.total:
            return []
        idle = {k: c for k, c in candidates.items() if not c.users}
        if not idle:
            raise Unreachable(
                f"Kafka at {connection.bootstrap_servers}: all {len(candidates)} Kafka clients that the operator may"
                " open are in use",
                remedy=_SHARE,
            )
        return [min(idle, key=lambda k: (-held[idle[k].namespace], idle[k].used_at))]

    def _check_brokers(self, client: _Client, connection: KafkaConnection) -> None:
        """Close idle clients until the brokers of all are within the limits. Raises Rejected, Unreachable."""
        where = f"Kafka at {connection.bootstrap_servers}"
        if client.brokers > self._limits.brokers:
            raise _Oversized(
                f"{where}: the cluster of spec.source.kafka.bootstrapServers has {client.brokers} brokers; the operator"
                f" connects to clusters of at most {self._limits.brokers}",
                remedy="name a smaller Kafka cluster in spec.source.kafka.bootstrapServers",
            )
        while candidates := self._over_budget(client.namespace):
            idle = {k: c for k, c in candidates.items() if not c.users and c.brokers}
            if not idle:
                self._release(self._keys(client))
                raise Unreachable(
                    f"{where}: with its {client.brokers} brokers the operator's Kafka clients would have more than the"
                    f" {self._limits.brokers_per_namespace} brokers of one namespace, or"
                    f" {self._limits.brokers_total} in total",
                    remedy=_SHARE,
                )
            self._release([min(idle, key=lambda k: idle[k].used_at)])

    def _over_budget(self, namespace: str) -> dict[_Key, _Client]:
        """Return the clients of which some have to be closed: those of the namespace, or of the one with most brokers.

        Empty when the brokers of all clients are within the limits.
        """
        brokers: Counter[str] = Counter()
        for client in self._clients.values():
            brokers[client.namespace] += client.brokers
        over: str | None = None
        if brokers[namespace] > self._limits.brokers_per_namespace:
            over = namespace
        elif brokers.total() > self._limits.brokers_total:
            over = brokers.most_common(1)[0][0]
        return {k: c for k, c in self._clients.items() if c.namespace == over}

    def _refuse_again(self, connection: KafkaConnection) -> None:
        """Raise the last refusal of a cluster for its size until the pause after it is over."""
        now = self._monotonic()
        for old in [k for k, refused in self._refused.items() if now - refused.retry_at > _IDLE]:
            del self._refused[old]
        refused = self._refused.get(_cluster(connection))
        if refused is not None and now < refused.retry_at:
            raise _Oversized(str(refused.error), remedy=refused.error.remedy)

    def _let_go(self, client: _Client, connection: KafkaConnection, error: Rejected) -> None:
        """Close a client whose cluster was refused, and remember a cluster that is too large."""
        self._release(self._keys(client))
        if isinstance(error, _Oversized):
            known = self._refused.get(_cluster(connection))
            failures = known.failures + 1 if known else 1
            pause = retry_delay(failures, first=self._limits.first_pause, longest=self._limits.longest_pause)
            kept = _Oversized(str(error), remedy=error.remedy)  # without the traceback
            self._refused[_cluster(connection)] = _Refused(kept, failures, self._monotonic() + pause)

    def _keys(self, client: _Client) -> list[_Key]:
        return [key for key, known in self._clients.items() if known is client]

    def _release(self, keys: list[_Key]) -> None:
        """Forget clients and close them, in threads of their own: a name that is looked up delays that for long."""
        loop = asyncio.get_running_loop()
        for client in [self._clients.pop(key) for key in keys]:
            self._closing[client.namespace] += 1
            with suppress(RuntimeError):  # no thread can be started now; the work waits for the next one
                self._closers.submit(self._close, client, loop)

    def _close(self, client: _Client, loop: asyncio.AbstractEventLoop) -> None:
        try:
            client.close()
        finally:
            with suppress(RuntimeError):  # the operator ends, and the loop is closed
                loop.call_soon_threadsafe(self._closing.subtract, (client.namespace,))


_SHARE: Final = "wait, or give this namespace's pipelines the same source.kafka.bootstrapServers and properties"
_TRY_AGAIN: Final = "wait: the operator tries again"


def _cluster(connection: KafkaConnection) -> tuple[str, str]:
    """Return what identifies a cluster that was refused, whatever the client's properties are."""
    return connection.namespace, connection.bootstrap_servers


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
        "enable.metrics.push": False,  # no broker asks the operator for figures; they are half of a broker's memory
        **properties,
        "error_cb": complaints.append,
    }
    hidden = tuple(value for key, value in properties.items() if key in FREE_TEXT)
    try:
        return _Client(AdminClient(configuration), complaints, hidden, connection.namespace)
    except (KafkaException, TypeError, ValueError) as error:
        if _NO_THREAD.search(_words(error)):
            raise Unreachable(
                f"Kafka at {connection.bootstrap_servers}: the operator has no thread left for a Kafka client",
                remedy="wait: the operator tries again; if this lasts, raise its pod's limits of memory and processes",
            ) from None
        raise Rejected(
            f"Kafka at {connection.bootstrap_servers}: {_scrubbed(_words(error), hidden)}",
            remedy="correct spec.source.kafka.properties or the Secret of spec.source.kafka.propertiesFrom",
        ) from None  # the cause holds what was scrubbed


async def _watermarks(admin: AdminClient, found: Topics, isolation: IsolationLevel) -> Watermarks:
    if not found.partitions:
        return Watermarks(ends={}, missing_topics=found.missing, topic_ids=found.ids)
    partitions, committed = found.partitions, isolation == IsolationLevel.READ_COMMITTED
    earliest, latest = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
    starts, marks, ends = await asyncio.gather(
        _positions(admin, partitions, earliest, isolation),
        _positions(admin, partitions, latest, IsolationLevel.READ_UNCOMMITTED),
        _positions(admin, partitions if committed else (), latest, isolation),
    )
    return Watermarks(
        ends=ends if committed else marks,
        starts=starts,
        high_watermarks=marks,
        missing_topics=found.missing,
        topic_ids=found.ids,
    )


async def _brokers(admin: AdminClient) -> int:
    """Return how many brokers the cluster names. Raises KafkaException."""
    answer = admin.describe_cluster(request_timeout=_ANSWER_WITHIN)
    return len((await asyncio.wrap_future(answer)).nodes)


async def _topics(admin: AdminClient, topics: tuple[str, ...]) -> tuple[Topics, set[tuple[str, int]]]:
    """Return what Kafka says about the topics, and (host, port) of the brokers that lead their partitions."""
    answers: dict[str, Future[Any]] = {}
    for topic in topics:  # one answer each, so that the limit on its size holds for one topic
        answers |= admin.describe_topics(TopicCollection([topic]), request_timeout=_ANSWER_WITHIN)
    await _done(answers.values())
    described = [answer.result() for answer in answers.values() if answer.exception() is None]
    partitions = [partition for topic in described for partition in topic.partitions]
    leaders = {(part.leader.host, part.leader.port) for part in partitions if part.leader is not None}
    return topics_of(answers), leaders


async def _positions(
    admin: AdminClient, partitions: Iterable[TopicPartition], spec: OffsetSpec, isolation: IsolationLevel
) -> dict[str, int]:
    wanted = list(partitions)
    answers: dict[TopicPartition, Future[Any]] = {}
    for start in range(0, len(wanted), _PARTITIONS_AT_ONCE):
        asked = dict.fromkeys(wanted[start : start + _PARTITIONS_AT_ONCE], spec)
        answers |= admin.list_offsets(asked, isolation_level=isolation, request_timeout=_ANSWER_WITHIN)
    if not answers:
        return {}
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
    elif any(_TOO_LARGE in each.str() for each in client.complaints):
        return Unreachable(
            f"{where}: an answer is larger than the {_LARGEST_ANSWER // 1024} KiB that the operator reads",
            remedy="check that source.kafka.bootstrapServers name Kafka listeners of the security.protocol that"
            " source.kafka.properties has, and that no topic has more than a thousand partitions",
        )
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
