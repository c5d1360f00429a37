"""Kafka's log ends and the age of unread records, by librdkafka's admin client.

Its calls return futures, so no thread waits here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeAlias

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from fencepost.contract import kafka_properties, offset_key
from fencepost.kafka.answers import Topics, topics_of
from fencepost_operator.adapters.dialing import Dialing
from fencepost_operator.adapters.kafka.client import ANSWER_WITHIN, TRY_AGAIN, Client, translated
from fencepost_operator.adapters.kafka.client_pool import FORGOTTEN_AFTER, ClientLimits, KafkaPool
from fencepost_operator.adapters.kafka.list_offsets import all_done, first_offsets, positions
from fencepost_operator.adapters.kafka.record_ages import milliseconds
from fencepost_operator.adapters.kafka.retention_reader import Reader
from fencepost_operator.adapters.kafka.topic_durability import read_topic_settings
from fencepost_operator.adapters.recent_answers import RecentAnswers
from fencepost_operator.api import KafkaConnection, ObjectKey
from fencepost_operator.endpoints import EndpointPolicy
from fencepost_operator.errors import Denied, Rejected, Unreachable
from fencepost_operator.observation import TopicSettings, UnreadRecords, Watermarks
from fencepost_operator.ports import SecretReader
from fencepost_operator.turns import time_limit

_DESCRIBED_HOLDS: Final = 2.0
"""Seconds for which the brokers and topics of a cluster, as they were checked last, stand for questions of ages."""
_SHARED_PARTITIONS: Final = 100_000
"""Of all answers that are kept to be shared; some 40 MiB."""


class KafkaOffsets:
    """Implements the Offsets port; `close` lets the clients go."""

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
        self._pool = KafkaPool(limits, monotonic=monotonic)
        self._monotonic = monotonic
        self._dialing = Dialing(policy or EndpointPolicy())
        self._answers: RecentAnswers[_Question, Watermarks] = RecentAnswers(
            monotonic, most=_SHARED_PARTITIONS, weigh=lambda answer: 1 + len(answer.ends)
        )

    def __len__(self) -> int:
        """Return how many clients are open."""
        return len(self._pool)

    async def ends(self, connection: KafkaConnection, *, age: float = 0.0) -> Watermarks | None:
        """Return the bounds of each partition's log and what is missing; None where only the driver may connect.

        An answer to the same question of any pipeline holds for `age` seconds.  Raises Rejected, Denied, Unreachable.
        """
        properties = await self._properties(connection)
        if kafka_properties.why_driver_only(properties):
            return None
        question = _question(connection, properties)
        if (known := self._answers.find(question, age)) is not None:
            return known
        began = self._monotonic()
        async with self._session(connection, properties) as (admin, topics):
            found = await _watermarks(admin, topics, _isolation(properties))
        self._answers.keep(question, found, began)
        return found

    async def unread(
        self, reader: ObjectKey, connection: KafkaConnection, source: Watermarks, positions: Mapping[str, int]
    ) -> UnreadRecords:
        """Return what threatens the records from a pipeline's positions on; see the port.

        Raises Rejected, Denied, Unreachable.
        """
        known = self._reader(reader, connection)
        known.look(source, positions)
        if known.wants_answers():
            properties = await self._properties(connection)
            async with self._session(connection, properties, age=_DESCRIBED_HOLDS) as (admin, topics):
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
            return await read_topic_settings(admin, connection.topics, answer_within=ANSWER_WITHIN)

    async def at(self, connection: KafkaConnection, timestamp: datetime) -> Mapping[str, int]:
        """Return each partition's first offset whose record is at least that young; see the port.

        Raises Rejected, Denied, Unreachable.
        """
        properties = await self._properties(connection)
        if kafka_properties.why_driver_only(properties):
            raise Rejected(
                "no target can be checked: only the driver may connect to this Kafka, with OAuth, Kerberos or files",
                remedy="connect by TLS or SASL with PEM text and a password in spec.source.kafka.propertiesFrom",
            )
        async with self._session(connection, properties) as (admin, topics):
            keys = (offset_key(partition.topic, partition.partition) for partition in topics.partitions)
            return await first_offsets(admin, dict.fromkeys(keys, milliseconds(timestamp)))

    @asynccontextmanager
    async def _session(
        self, connection: KafkaConnection, properties: Mapping[str, str], *, age: float = 0.0
    ) -> AsyncIterator[tuple[AdminClient, Topics]]:
        """Yield a client whose cluster is within the limits, and what Kafka says about the connection's topics.

        Kafka may have said so within `age` seconds.
        Raises Rejected, Denied, Unreachable, also in place of the client's errors in the body.
        """
        self._pool.refuse_again(connection)
        # A certificate is checked against the name, so only without TLS can the checked address be dialled.
        by_name = properties.get("security.protocol", "").lower().endswith("ssl")
        servers = await self._dialing.kafka(connection.namespace, connection.bootstrap_servers, by_name=by_name)
        async with self._pool.client(servers, connection, kafka_properties.for_operator(properties)) as client:
            try:
                async with time_limit(ANSWER_WITHIN):
                    topics = client.described.find(connection.topics, age)
                    yield client.admin, topics or await self._described(client, connection)
            except Rejected as error:
                self._pool.let_go(client, connection, error)
                raise
            except (KafkaException, TimeoutError) as error:
                failure = translated(error, client, connection, is_restricted=self._dialing.policy.restricts)
                if isinstance(failure, Denied):
                    self._secrets.forget_secrets(connection.namespace)
                raise failure from error
            except RuntimeError as error:  # closed meanwhile, by a request of the same pipelines that was refused
                raise Unreachable(f"Kafka at {connection.bootstrap_servers}: {error}", remedy=TRY_AGAIN) from error
            # Not before: librdkafka reports a lasting problem once, and the request that times out later does not say
            # why.
            client.complaints.clear()
            self._pool.accept(connection)

    async def _described(self, client: Client, connection: KafkaConnection) -> Topics:
        """Return what Kafka says about topics, after a check of the brokers that the client connects to next."""
        began = time.monotonic()
        client.brokers = await _brokers(client.admin)
        self._pool.check_brokers(client, connection)
        topics, leaders = await _topics(client.admin, connection.topics)
        await self._dialing.brokers(connection.namespace, leaders)
        client.described.keep(connection.topics, topics, began)
        return topics

    def _reader(self, reader: ObjectKey, connection: KafkaConnection) -> Reader:
        """Return what is known for a pipeline: nothing yet for another connection, nor after a long time."""
        now = self._monotonic()
        for old in [key for key, known in self._readers.items() if now - known.used_at > FORGOTTEN_AFTER]:
            del self._readers[old]
        known = self._readers.get(reader)
        if known is None or known.connection != connection:
            known = self._readers[reader] = Reader(connection, monotonic=self._monotonic, wall=self._wall)
        return known

    async def close(self) -> None:
        """Close the clients; librdkafka ends their threads."""
        self._dialing.close()
        await self._pool.close()

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


_Question: TypeAlias = tuple[str, str, frozenset[tuple[str, str]], tuple[str, ...]]


def _question(connection: KafkaConnection, properties: Mapping[str, str]) -> _Question:
    """Return what two pipelines must have in common to share an answer: the namespace, and all that a client is."""
    return connection.namespace, connection.bootstrap_servers, frozenset(properties.items()), connection.topics


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


async def _watermarks(admin: AdminClient, found: Topics, isolation: IsolationLevel) -> Watermarks:
    if not found.partitions:
        return Watermarks(
            ends={}, missing_topics=found.missing, offline=tuple(sorted(found.leaderless)), topic_ids=found.ids
        )
    partitions, committed = found.partitions, isolation == IsolationLevel.READ_COMMITTED
    earliest, latest = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
    ask = partial(positions, admin, answer_within=ANSWER_WITHIN)
    starts, marks, ends = await asyncio.gather(
        ask(partitions, earliest, isolation),
        ask(partitions, latest, IsolationLevel.READ_UNCOMMITTED),
        ask(partitions if committed else (), latest, isolation),
    )
    readable = ends if committed else marks
    silent = {offset_key(partition.topic, partition.partition) for partition in partitions} - readable.keys()
    return Watermarks(
        ends=readable,
        starts=starts,
        high_watermarks=marks,
        missing_topics=found.missing,
        offline=tuple(sorted(silent | set(found.leaderless))),
        topic_ids=found.ids,
    )


async def _brokers(admin: AdminClient) -> int:
    """Return how many brokers the cluster names. Raises KafkaException."""
    answer = admin.describe_cluster(request_timeout=ANSWER_WITHIN)
    return len((await asyncio.wrap_future(answer)).nodes)


async def _topics(admin: AdminClient, topics: tuple[str, ...]) -> tuple[Topics, set[tuple[str, int]]]:
    """Return what Kafka says about the topics, and (host, port) of the brokers that lead their partitions."""
    answers: dict[str, Future[Any]] = {}
    for topic in topics:  # one answer each, so that the limit on its size holds for one topic
        answers |= admin.describe_topics(TopicCollection([topic]), request_timeout=ANSWER_WITHIN)
    await all_done(answers.values())
    described = [answer.result() for answer in answers.values() if answer.exception() is None]
    partitions = [partition for topic in described for partition in topic.partitions]
    leaders = {(part.leader.host, part.leader.port) for part in partitions if part.leader is not None}
    return topics_of(answers), leaders
