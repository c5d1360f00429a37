"""What Kafka holds, asked with librdkafka's admin client: log begins and ends, leader epochs, topic ids."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from fencepost.batch import Watermarks
from fencepost.contract import KafkaEndpoint, Reason, kafka_properties, offset_key, split_offset_key
from fencepost.errors import BadSpec, DependencyDown
from fencepost.fence.patience import Patience
from fencepost.kafka.answers import Topics, first_offsets_of, moved_of, positions_of, refusal, topics_of

REQUEST_TIMEOUT: Final = 10.0
"""Seconds for one answer."""
LOOK_LIMIT: Final = 3 * REQUEST_TIMEOUT
"""Seconds for a whole look: the topics, their offsets, and the topics again."""

REFRESH: Final = 5.0
"""Seconds between refreshes of the metadata. librdkafka sends requests to the broker that it last knew as controller;
with its default of five minutes, one dead broker silences the whole client for that long."""

AGREES_FOR: Final = 5.0
"""Most seconds that one answer 'the topic does not exist' counts for: what Kafka would have said between two looks that
are further apart is not known."""

_EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]


def client_properties(source: KafkaEndpoint, folder: Path, *, place: str = "spec.source.kafka") -> dict[str, str]:
    """Return librdkafka's properties: the spec's, over them one file per property from `folder` (a mounted Secret).

    `place` is the field of the spec that holds both. Raises BadSpec naming each property that is not allowed and where
    it is set.
    """
    files = [path for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []
    secret = kafka_properties.of_secret(
        {path.name: path.read_text(errors="replace") for path in files if not path.name.startswith(".")}
    )
    places = {
        f"{place}.properties": source.properties,
        f"the Secret of {place}.propertiesFrom": secret,
    }
    found = [
        f"{where}: {problem.key} {problem.problem}; {problem.remedy}"
        for where, properties in places.items()
        for problem in kafka_properties.problems(properties)
    ]
    if found:
        raise BadSpec(". ".join(found), reason=Reason.KAFKA_PROPERTIES_INVALID)
    return {**source.properties, **secret, "bootstrap.servers": source.bootstrap_servers}


class KafkaLog:
    """The topics of one pipeline. Synchronous; each look takes three round trips."""

    def __init__(
        self,
        properties: Mapping[str, str],
        topics: Sequence[str],
        *,
        patience: float,
        stopping: Callable[[], bool] = lambda: False,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        make: Callable[[dict[str, Any]], AdminClient] = lambda settings: AdminClient(settings, logger=QUIET),
    ) -> None:
        self._servers = properties["bootstrap.servers"]
        is_committed = properties.get("isolation.level", "").lower() != "read_uncommitted"
        self._isolation = IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED
        self._complaints: deque[KafkaError] = deque(maxlen=20)
        self._admin = admin_client(properties, self._complaints, make)
        self._topics = list(topics)
        self._patience = Patience(patience, now, sleep, longest=LOOK_LIMIT)
        self._stopping = stopping
        self._now = now
        self._missing_for: dict[str, float] = {}
        self._looked_at = now()

    def state(self) -> Watermarks:
        """Return what the log holds now; the ends are the last stable offsets unless uncommitted reads are asked for.

        A partition whose leader does not answer is left out and listed in `leaderless`. Whether a topic in `missing` is
        gone is for the caller to decide.
        Raises DependencyDown when Kafka does not answer within the patience, or refuses the credentials.
        """
        deadline = self._patience.begin()
        while True:
            try:
                found = self._look()
            except KafkaException as error:
                self._missing_for = {}
                down, is_refused = self._down(error)
                if is_refused or self._stopping():
                    raise down from error
                deadline.pause_or_raise(down)
            else:
                self._complaints.clear()
                return found

    def offsets_at(self, time: int, partitions: Collection[str]) -> Mapping[str, int | None]:
        """Return the first offset of each partition whose record is at least as new; see the port.

        One round trip, and a second one for partitions whose leader has just moved.
        """
        spec = OffsetSpec.for_timestamp(time)
        try:
            answers = self._ask([TopicPartition(*split_offset_key(key)) for key in partitions], spec, self._isolation)
            found = first_offsets_of(answers)
            if moved := moved_of(answers):
                found |= first_offsets_of(self._ask(moved, spec, self._isolation))
            return found
        except KafkaException as error:
            raise self._down(error)[0] from error

    def _down(self, error: KafkaException) -> tuple[DependencyDown, bool]:
        """Return why Kafka does not answer, and whether it refuses the credentials."""
        self._admin.poll(0)
        cause = refusal((error.args[0], *self._complaints))
        if cause is not None:
            return refused(self._servers, cause), True
        return unreachable(self._servers, f"did not answer: {error.args[0]}"), False

    def _look(self) -> Watermarks:
        """List the offsets, then ask the ids: an id that is still the same proves that the offsets were of it."""
        topics = described(self._admin, self._topics)
        if not topics.partitions:
            if topics.leaderless:
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, "no partition has a leader"))
            return Watermarks(begins={}, ends={}, topic_ids={}, missing=self._missing(topics))
        asked = (  # together: they cost one round trip
            self._ask(topics.partitions, _EARLIEST, self._isolation),
            self._ask(topics.partitions, _LATEST, self._isolation),
            self._ask(topics.partitions, _LATEST, IsolationLevel.READ_UNCOMMITTED),
        )
        begins, ends, high = (positions_of(answers) for answers in asked)
        again = described(self._admin, self._topics)
        every = {offset_key(part.topic, part.partition) for part in topics.partitions} | set(topics.leaderless)
        answered = begins.keys() & ends.keys() & high.keys()
        led = sorted(key for key in answered if split_offset_key(key)[0] in again.ids)
        epochs = {key: ends[key].leader_epoch for key in led}
        return Watermarks(
            begins={key: begins[key].offset for key in led},
            ends={key: ends[key].offset for key in led},
            topic_ids=again.ids,
            leader_epochs={key: epoch for key, epoch in epochs.items() if epoch is not None},
            missing=self._missing(again),
            high={key: max(high[key].offset, ends[key].offset) for key in led},
            leaderless=frozenset(every.difference(led)),
        )

    def _missing(self, topics: Topics) -> dict[str, float]:
        """Return for how many seconds every answer has said that a topic does not exist.

        Several answers are needed: each one counts for the time since the look before, at most AGREES_FOR.
        """
        now = self._now()
        step = min(now - self._looked_at, AGREES_FOR)
        self._looked_at = now
        before = self._missing_for
        self._missing_for = {topic: before[topic] + step if topic in before else 0.0 for topic in topics.missing}
        return dict(self._missing_for)

    def _ask(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, isolation: IsolationLevel
    ) -> Mapping[TopicPartition, Future[Any]]:
        offsets = dict.fromkeys(partitions, spec)
        return self._admin.list_offsets(offsets, isolation_level=isolation, request_timeout=REQUEST_TIMEOUT)


def admin_client(
    properties: Mapping[str, str],
    complaints: deque[KafkaError],
    make: Callable[[dict[str, Any]], AdminClient] = lambda settings: AdminClient(settings, logger=QUIET),
) -> AdminClient:
    """Return an admin client with a consumer's properties, which adds the errors of its callback to `complaints`."""
    own: dict[str, Any] = {
        "socket.timeout.ms": int(REQUEST_TIMEOUT * 1000),
        "topic.metadata.refresh.interval.ms": int(REFRESH * 1000),
        "error_cb": complaints.append,  # a request that times out does not say that the password is wrong
    }
    admin = {key: value for key, value in properties.items() if key != "isolation.level"}
    return make({**own, **admin})


def described(admin: AdminClient, topics: Iterable[str]) -> Topics:
    """Return what Kafka says about topics now, asked once. Raises KafkaException."""
    return topics_of(admin.describe_topics(TopicCollection(list(topics)), request_timeout=REQUEST_TIMEOUT))


def unreachable(servers: str, what: str) -> DependencyDown:
    """Return the error for a Kafka that does not answer."""
    return DependencyDown(f"Kafka at {servers} {what}", reason=Reason.KAFKA_UNREACHABLE)


def refused(servers: str, cause: object) -> DependencyDown:
    """Return the error for credentials that Kafka does not accept."""
    return DependencyDown(
        f"Kafka at {servers} refused the credentials: {cause}",
        reason=Reason.KAFKA_CREDENTIALS_REJECTED,
        remedy="Correct the Secret of spec.source.kafka.propertiesFrom, or grant Describe and Read on the topics.",
    )


class _Quiet:
    """librdkafka's own log lines repeat what the errors say."""

    def log(self, *_args: object, **_kwargs: object) -> None:
        """Say nothing."""


QUIET: Final[_Quiet] = _Quiet()
