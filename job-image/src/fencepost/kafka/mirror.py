"""The committed offsets as those of a consumer group, for Kafka's tools: a copy for people, which nothing reads back.

The fence row alone counts.  A replaced driver that still lives may write older offsets here; the run that replaced it
writes its own at its claim and after each commit.  The group has no members: no consumer ever joins it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, Protocol

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from fencepost.contract import split_offset_key
from fencepost.kafka.answers import refusal
from fencepost.kafka.log import QUIET, REQUEST_TIMEOUT

log = logging.getLogger(__name__)

INTERVAL: Final = 5.0
"""Seconds between two writes: what shows the lag refreshes no faster."""
KEEP: Final = 3600.0
"""Seconds after which unchanged offsets are written again: a broker forgets those of a group without members after
offsets.retention.minutes, seven days by default."""
RETRY: Final = 30.0
"""Seconds after which a write that failed is repeated when nothing is committed meanwhile."""
LAST_WRITE: Final = 1.0
"""Seconds that the end of a run waits for the last write: a stopping driver has other things to finish."""
REMEDY: Final = (
    "grant the user of the source Read on the group and on the topics, and end consumers that joined the group; the "
    "pipeline itself does not need the group"
)


class Group(Protocol):
    """A consumer group's committed offsets."""

    def commit(self, offsets: Mapping[str, int]) -> None:
        """Replace the group's offsets of these partitions. Raises KafkaException, KafkaError."""
        ...


class ConsumerGroup:
    """A group on the cluster of the source, written with the admin client. `properties` are librdkafka's."""

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        self._name = name
        self._complaints: deque[KafkaError] = deque(maxlen=20)
        admin = {key: value for key, value in properties.items() if key != "isolation.level"}
        own: dict[str, Any] = {"socket.timeout.ms": int(REQUEST_TIMEOUT * 1000), "error_cb": self._complaints.append}
        self._admin = AdminClient({**own, **admin}, logger=QUIET)

    def commit(self, offsets: Mapping[str, int]) -> None:
        """Replace the group's offsets of these partitions. Raises KafkaException naming the partition."""
        parts = [TopicPartition(*split_offset_key(key), offset) for key, offset in sorted(offsets.items())]
        asked = self._admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(self._name, parts)], request_timeout=REQUEST_TIMEOUT
        )
        try:
            answer = asked[self._name].result(2 * REQUEST_TIMEOUT)
        except KafkaException as error:
            self._admin.poll(0)
            raise KafkaException(refusal((error.args[0], *self._complaints)) or error.args[0]) from error
        finally:
            self._complaints.clear()
        for part in answer.topic_partitions:
            if part.error is not None:
                raise KafkaException(part.error)


class GroupMirror:
    """Writes the newest offsets in a thread of its own, so that Kafka delays no batch; a failure is logged once."""

    def __init__(self, group: Group, name: str, *, interval: float = INTERVAL, keep: float = KEEP) -> None:
        self._group = group
        self._name = name
        self._interval = interval
        self._keep = keep
        self._newest: Mapping[str, int] = {}
        self._written: Mapping[str, int] = {}
        self._changed = threading.Event()
        self._ending = threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)
        self._thread.start()

    def show(self, offsets: Mapping[str, int]) -> None:
        """Write these offsets soon, unless newer ones come before. Returns at once."""
        self._newest = dict(offsets)
        self._changed.set()

    def end(self) -> None:
        """Write what is not written yet, within LAST_WRITE seconds."""
        self._ending.set()
        self._changed.set()
        self._thread.join(LAST_WRITE)

    def _run(self) -> None:
        while not self._ending.is_set():
            is_changed = self._changed.wait(self._keep if self._newest == self._written else RETRY)
            self._changed.clear()
            if not is_changed or self._newest != self._written:
                self._write()
            self._ending.wait(self._interval)
        if self._newest != self._written:
            self._write()

    def _write(self) -> None:
        offsets = self._newest
        if not offsets:
            return
        try:
            self._group.commit(offsets)
        except Exception as error:  # noqa: BLE001 - a copy for people must never end a run
            if not self._failed:
                log.warning(
                    "the offsets cannot be mirrored to consumer group %s: %s",
                    self._name,
                    error,
                    extra={"fields": {"remedy": REMEDY}},
                )
            self._failed = True
            return
        self._written = offsets
        if self._failed:
            log.info("the offsets are mirrored to consumer group %s again", self._name)
        self._failed = False
