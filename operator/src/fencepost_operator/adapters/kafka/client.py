"""One admin client of librdkafka: how it is opened, and why it did not get an answer.

librdkafka runs in the operator's process, which all tenants trust.  Only the properties that
`fencepost.contract.kafka_properties` allows there are passed to it, whether they come from the spec or from the Secret.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from fencepost.kafka.answers import REFUSALS, Topics, refusal
from fencepost_operator.adapters.recent_answers import RecentAnswers
from fencepost_operator.api import KafkaConnection
from fencepost_operator.errors import Busy, Denied, PortError, Rejected, Unreachable

TRY_AGAIN: Final = "wait: the operator tries again"
ANSWER_WITHIN: Final = 8.0
"""Seconds. Less than an observation waits, so that it has the reason."""
_LARGEST_ANSWER: Final = 64 * 1024
"""Bytes of one answer.

A partition with three replicas takes 42 bytes of metadata and a broker some 60: with 50 brokers it is enough for 1400
partitions.  Each topic has its own request, so the limit holds for one topic and not for a pipeline.  A hostile
answer of this size names some 3600 brokers, and librdkafka 2.16 takes a thread and 54 KiB for each (measured).
"""
_DESCRIBED: Final = 10_000
"""Partitions of topics whose description is kept; some 4 MiB."""
_TOO_LARGE: Final = "receive.message.max.bytes"
"""What librdkafka's error names when an answer is larger than the limit."""
_NO_THREAD: Final = re.compile(r"Failed to create (\w+ )*thread|Unable to create (\w+ )*thread")
"""How librdkafka says that the process can start no thread; the error's code says nothing."""
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


@dataclass(slots=True)
class Client:
    """One admin client and the last thing it complained about: a request that times out does not say why."""

    admin: AdminClient
    complaints: deque[KafkaError]
    hidden: tuple[str, ...] = field(default=(), repr=False)
    """Texts that no message may hold."""
    namespace: str = ""
    described: RecentAnswers[tuple[str, ...], Topics] = field(
        default_factory=lambda: RecentAnswers(
            time.monotonic, most=_DESCRIBED, weigh=lambda topics: 1 + len(topics.partitions)
        )
    )
    """What the cluster said about topics, once its brokers were checked."""
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


def open_client(properties: Mapping[str, str], connection: KafkaConnection) -> Client:
    """Open a client with properties that were checked. Raises Rejected, Busy."""
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
        return Client(AdminClient(configuration), complaints, hidden, connection.namespace)
    except (KafkaException, TypeError, ValueError) as error:
        if _NO_THREAD.search(_words(error)):
            raise Busy(
                f"Kafka at {connection.bootstrap_servers}: the operator has no thread left for a Kafka client",
                remedy="wait: the operator tries again; if this lasts, raise its pod's limits of memory and processes",
            ) from None
        raise Rejected(
            f"Kafka at {connection.bootstrap_servers}: {_scrubbed(_words(error), hidden)}",
            remedy="correct spec.source.kafka.properties or the Secret of spec.source.kafka.propertiesFrom",
        ) from None  # the cause holds what was scrubbed


def translated(
    error: Exception, client: Client, connection: KafkaConnection, *, is_restricted: bool = False
) -> PortError:
    """Return the reason in our terms.

    `is_restricted`: the endpoints are.  Then a failure to connect reads the same whatever is there.
    """
    answered = error.args[0] if isinstance(error, KafkaException) else None
    if answered is None or answered.code() not in REFUSALS:
        answered = client.complaint() or answered
    where = f"Kafka at {connection.bootstrap_servers}"
    if answered is not None and answered.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return Denied(f"{where}: {client.words(answered)}", remedy="grant the account Describe and Read on the topics")
    if answered is not None and answered.code() in REFUSALS:
        return Denied(
            f"{where}: {client.words(answered)}", remedy="check the credentials in source.kafka.propertiesFrom"
        )
    if is_restricted:
        answered = None
    elif any(_TOO_LARGE in each.str() for each in client.complaints):
        return Unreachable(
            f"{where}: an answer is larger than the {_LARGEST_ANSWER // 1024} KiB that the operator reads",
            remedy="check that source.kafka.bootstrapServers name Kafka listeners of the security.protocol that"
            " source.kafka.properties has, and that no topic has more than a thousand partitions",
        )
    words = client.words(answered) if answered is not None else f"no answer in {ANSWER_WITHIN:.0f} s"
    return Unreachable(
        f"{where}: {words}", remedy="check source.kafka.bootstrapServers, and that the operator may reach Kafka"
    )


def _words(error: Exception) -> str:
    answered = error.args[0] if error.args else error
    return answered.str() if isinstance(answered, KafkaError) else str(answered)


def _scrubbed(text: str, hidden: Iterable[str]) -> str:
    for secret in sorted(hidden, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
