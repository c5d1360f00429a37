"""Whether what was read is of the topic that was meant: a recreated one has another id, which records do not carry."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from fencepost.contract import Reason
from fencepost.errors import DataLoss
from fencepost.fence.patience import Patience
from fencepost.kafka.answers import refusal
from fencepost.kafka.log import REQUEST_TIMEOUT, admin_client, described, refused, unreachable


class TopicIds:
    """Asks a Kafka for the ids of topics. A consumer has them and does not say them: this is a client of its own.

    It costs 0.3 MB, four threads and a connection (librdkafka 2.16).
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._servers: Final = properties["bootstrap.servers"]
        self._complaints: Final = deque[KafkaError](maxlen=20)
        self._admin: Final = admin_client(properties, self._complaints)

    def confirm(self, ids: Mapping[str, str], *, patience: float) -> None:
        """Return once topics have these ids: what was read before that is of them, for an id is never used again.

        Raises DataLoss for one that has another id, DependencyDown when Kafka does not say for `patience` seconds, or
        refuses the credentials.
        """
        if not ids:
            return
        deadline = Patience(patience, longest=REQUEST_TIMEOUT).begin()
        self._complaints.clear()
        while True:
            try:
                found = described(self._admin, ids).ids
            except KafkaException as error:
                self._admin.poll(0)
                if cause := refusal((error.args[0], *self._complaints)):
                    raise refused(self._servers, cause) from error
                trouble = f"did not say which topics were read: {error.args[0]}"
            else:
                if missing := ids.keys() - found.keys():
                    trouble = f"reports as missing: topic {', '.join(sorted(missing))}"
                elif found == ids:
                    return
                else:
                    raise _recreated(ids, found)
            deadline.pause_or_raise(unreachable(self._servers, trouble))


def _recreated(ids: Mapping[str, str], found: Mapping[str, str]) -> DataLoss:
    others = ", ".join(
        f"{topic} has id {found[topic]}, not {ids[topic]}" for topic in ids if found[topic] != ids[topic]
    )
    return DataLoss(f"what was read is of a topic that was recreated: {others}", reason=Reason.TOPIC_RECREATED)
