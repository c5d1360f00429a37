"""The task's half of the Kafka sink: one transaction per Spark task.

The transaction ends before the fence's commit, so a repeated batch is produced again, and readers recognize the copies
by their headers (`fencepost.sinks.dedup`).  The transactional id is the same for the same task of each batch: a new
producer ends the open transaction of the one before it, such as a replaced driver's.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from fencepost.contract import Reason
from fencepost.errors import BatchFailed, DependencyDown, DriverError, PoisonRecord
from fencepost.kafka.answers import REFUSALS
from fencepost.sinks.dedup import COORDINATES, EPOCH, PIPELINE, PREFIX, VERSION
from fencepost.sinks.interface import BatchToken

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Message

TRANSACTION_TIMEOUT: Final = 600.0
"""Seconds after which Kafka aborts a transaction that is not ended; readers of committed records wait for it. A task
must end within it. Brokers allow 900 by default (transaction.max.timeout.ms)."""
ABORT_TIMEOUT: Final = 5.0
POLL_EVERY: Final = 1_000
"""Records between two looks at delivery reports."""
_TOO_LARGE: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_FENCED: Final = frozenset({
    KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH,  # noqa: SLF001 - librdkafka's own spelling
})  # fmt: skip
_REFUSED: Final = REFUSALS | {KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}

Header = tuple[str, str | bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerTask:
    """Produces rows to topics. The password travels in the task's closure, over Spark's encrypted RPC."""

    sink: str
    topics: tuple[str, ...]
    topic_column: str | None = None
    """The column that names one of the topics; None with one topic."""
    properties: Mapping[str, str]
    patience: float
    """Seconds for which one step of a transaction is tried."""

    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:
        """Produce all rows in one transaction, and commit it; in a warm-up, nothing.

        Raises PoisonRecord for a record that Kafka does not take, DependencyDown, BatchFailed when another producer has
        taken over the transaction.
        """
        transaction: _Transaction | None = None
        try:
            for rows in batches:
                if batch.is_rehearsal:
                    deque(self.records(rows), maxlen=0)  # fails as it would in a batch
                if batch.is_warm_up or not rows.num_rows:
                    continue
                transaction = transaction or _Transaction(self, batch)
                transaction.send(rows, batch)
                yield rows.num_rows
            if transaction:
                transaction.commit()
        except BaseException:
            if transaction:
                transaction.abort()
            raise

    def records(self, rows: pa.RecordBatch) -> Iterator[tuple[str, bytes | None, bytes | None, list[Header]]]:
        """Yield topic, key, value and headers of each row. Raises PoisonRecord, also for a topic that is not listed."""
        if self.topic_column is None:
            yield from ((self.topics[0], *record) for record in _records(rows))
            return
        named = rows.column(self.topic_column).to_pylist()
        for topic, (key, value, headers) in zip(named, _records(rows), strict=True):
            if topic not in self.topics:
                place = dict(headers).get(COORDINATES)
                where = f", in the row of {_text(place)}" if place else ""
                raise PoisonRecord(
                    f"column {self.topic_column} names the topic {topic!r}{where}, which is not one of kafka.topics of"
                    f" sink {self.sink!r}"
                )
            yield topic, key, value, headers


class _Transaction:
    """One producer and its one transaction: the next task may run in another process, whose producer ends this one."""

    def __init__(self, task: ProducerTask, batch: BatchToken) -> None:
        self._task = task
        self._complaints: deque[KafkaError] = deque(maxlen=20)
        self._failed: tuple[KafkaError, Message] | None = None
        self._producer = Producer({**settings(task, batch), "error_cb": self._complaints.append})
        self._try(self._producer.init_transactions)
        self._producer.begin_transaction()

    def send(self, rows: pa.RecordBatch, batch: BatchToken) -> None:
        """Queue records; librdkafka sends them meanwhile."""
        marks: list[Header] = [
            (PIPELINE, batch.pipeline.encode()),
            (EPOCH, str(batch.epoch).encode()),
            (VERSION, str(batch.version).encode()),
        ]
        for number, (topic, key, value, headers) in enumerate(self._task.records(rows)):
            self._produce(topic, key, value, marks + headers)
            if number % POLL_EVERY == 0:
                self._producer.poll(0)
                self._raise_failed()

    def commit(self) -> None:
        """Wait until every record is stored, and commit."""
        self._try(self._producer.commit_transaction)

    def abort(self) -> None:
        """Drop the transaction, as far as Kafka answers; the next producer of this id ends it otherwise."""
        with suppress(KafkaException):
            self._producer.purge()
            self._producer.abort_transaction(ABORT_TIMEOUT)

    def _produce(self, topic: str, key: bytes | None, value: bytes | None, headers: list[Header]) -> None:
        deadline = time.monotonic() + self._task.patience
        while True:
            try:
                self._producer.produce(topic, value, key, headers=headers, on_delivery=self._delivered)
            except BufferError as error:
                self._producer.poll(0.1)
                self._raise_failed()
                if time.monotonic() > deadline:
                    raise self._down("took no records") from error
            except KafkaException as error:
                raise self._as_driver_error(error.args[0], headers) from error
            else:
                return

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._failed is None:
            self._failed = error, message

    def _raise_failed(self) -> None:
        if self._failed is not None:
            error, message = self._failed
            raise self._as_driver_error(error, _pairs(message.headers()))

    def _try(self, step: Any) -> None:  # noqa: ANN401 - a method of librdkafka's producer
        """Do one step of the transaction, again while Kafka says that this may help. Raises DriverError."""
        deadline = time.monotonic() + self._task.patience
        while True:
            try:
                step(max(1.0, deadline - time.monotonic()))
            except KafkaException as error:
                self._raise_failed()
                cause = error.args[0]
                if not cause.retriable() or time.monotonic() > deadline:
                    raise self._as_driver_error(cause, []) from error
            else:
                return

    def _as_driver_error(self, error: KafkaError, headers: Iterable[Header]) -> DriverError:
        place = f"Kafka sink {self._task.sink!r} ({self._where})"
        refused = next((each for each in (error, *self._complaints) if each.code() in _REFUSED), None)
        if refused is not None:
            return DependencyDown(
                f"{place}: Kafka refused: {refused}",
                reason=Reason.KAFKA_CREDENTIALS_REJECTED,
                remedy="Correct the credentials, or grant Write and Describe on the topic and on transactional ids with"
                " the prefix fencepost/.",
            )
        if error.code() in _TOO_LARGE:
            coordinates = dict(headers).get(COORDINATES)
            where = f"; it was made of {_text(coordinates)}" if coordinates else ""
            return PoisonRecord(f"{place}: a record is larger than Kafka takes: {error}{where}")
        if error.code() in _FENCED:
            return BatchFailed(
                f"{place}: another producer took over the transaction: {error}", reason=Reason.SINK_FAILED
            )
        return self._down(str(error))

    @property
    def _where(self) -> str:
        return f"topic{'s' * (len(self._task.topics) > 1)} {', '.join(self._task.topics)}"

    def _down(self, what: str) -> DependencyDown:
        return DependencyDown(f"Kafka sink {self._task.sink!r} ({self._where}): {what}", reason=Reason.SINK_UNREACHABLE)


def settings(task: ProducerTask, batch: BatchToken) -> dict[str, Any]:
    """Return librdkafka's properties for one transaction."""
    return {
        "linger.ms": "5",
        # librdkafka refuses more than the time of the transaction.
        "message.timeout.ms": str(int(min(max(task.patience, 1.0), TRANSACTION_TIMEOUT) * 1000)),
        **task.properties,
        "allow.auto.create.topics": "false",
        "transactional.id": f"fencepost/{batch.pipeline}/{task.sink}/{_slice()}",
        "transaction.timeout.ms": str(int(TRANSACTION_TIMEOUT * 1000)),
    }


def _slice() -> int:
    """Return the number of this Spark task in its job."""
    from pyspark import TaskContext  # noqa: PLC0415 - loaded already, where there is a task

    context = TaskContext.get()
    return context.partitionId() if context else 0


def _records(rows: pa.RecordBatch) -> Iterator[tuple[bytes | None, bytes | None, list[Header]]]:
    """Yield key, value and headers of each row. Raises PoisonRecord for a null coordinate or name of a header."""
    columns = {name: rows.column(name).to_pylist() for name in rows.schema.names}
    absent = [None] * rows.num_rows
    names = [name for name in ("topic", "partition", "offset", "i") if name in columns]
    places = [columns[name] for name in names]
    coordinates: Iterable[tuple[object, ...]] = zip(*places, strict=True) if places else [()] * rows.num_rows
    for key, value, headers, place in zip(
        columns.get("key", absent), columns["value"], columns.get("headers", absent), coordinates, strict=True
    ):
        if None in place:
            # All rows without coordinates would be copies of one record to a reader.
            where = ", ".join(f"{name}={part}" for name, part in zip(names, place, strict=True))
            raise PoisonRecord(f"column {names[place.index(None)]} is null in a row with the coordinates {where}")
        own = [(COORDINATES, "/".join(map(str, place)).encode())] if place else []
        yield _bytes(key), _bytes(value), [*own, *_given(headers or (), place)]


def _given(headers: Iterable[Any], place: Sequence[object]) -> Iterator[Header]:
    """Yield the author's headers. A frame that keeps the input's headers may have those of another pipeline."""
    for each in headers:
        if each is None or each["key"] is None:
            raise PoisonRecord(f"a header without a name, of the row with the coordinates {'/'.join(map(str, place))}")
        if not each["key"].startswith(PREFIX):
            yield each["key"], each["value"]


def _pairs(headers: Any) -> list[Header]:  # noqa: ANN401 - librdkafka gives pairs or nothing; its types say more
    return list(headers or ())


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
