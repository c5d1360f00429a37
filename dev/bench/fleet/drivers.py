"""What stands for the drivers of a fleet: they claim and commit through the real fence, and read nothing.

All of them share one session of Cassandra and a few threads.  Each commits every `every` seconds, up to the end of its
topic, which a producer moves.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Producer, TopicCollection
from confluent_kafka.admin import AdminClient

from bench.fleet.requests import Object, RequestError, Requests
from fencepost.contract import DriverConfig, offset_key
from fencepost.fence import Fence, Fenced, FenceError, FenceRow
from fencepost.fence.cassandra.table import CassandraFenceTable
from fencepost.fence.protocol import Starting
from fencepost.kafka.answers import topics_of
from flights.console import Console

_AT_ONCE: Final = 8
_PRODUCED_EVERY: Final = 1.0
_RECORDS: Final = 10
"""Records of each topic per production."""
_ANSWER: Final = 30.0


@dataclass(slots=True)
class Topics:
    """The topics that pipelines share, with one partition each; `ends` grow while records flow."""

    bootstrap: str
    names: tuple[str, ...]
    ids: Mapping[str, str] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """Produce while the block runs."""
        over = threading.Event()
        admin = AdminClient({"bootstrap.servers": self.bootstrap})  # its answers end with it
        answers = admin.describe_topics(TopicCollection(list(self.names)))
        for answer in answers.values():
            answer.result(_ANSWER)
        self.ids = topics_of(answers).ids
        producer = Producer({"bootstrap.servers": self.bootstrap})

        def produce() -> None:
            while not over.wait(_PRODUCED_EVERY):
                for name in self.names:
                    for _ in range(_RECORDS):
                        producer.produce(name, value=b"record", on_delivery=self._delivered)
                producer.flush(_ANSWER)

        thread = threading.Thread(target=produce, name="producer")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _delivered(self, error: object, message: object) -> None:
        if error is None:
            self.ends[message.topic()] = message.offset() + 1  # type: ignore[attr-defined]


@dataclass(slots=True)
class _Driver:
    """One driver's process: its pod's uid, its fence, and the row as it left it."""

    uid: str
    config: DriverConfig
    fence: Fence
    row: FenceRow | None = None


@dataclass(slots=True)
class Drivers:
    """All drivers. `every` is in seconds."""

    requests: Requests
    table: CassandraFenceTable
    topics: Topics
    console: Console
    every: float
    commits: int = 0
    _living: dict[str, _Driver] = field(default_factory=dict)
    _due: list[tuple[float, int, str]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Let drivers work while the block runs."""
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="driver") as pool:
            thread = threading.Thread(target=self._work, args=(pool,), name="drivers")
            thread.start()
            try:
                yield
            finally:
                self._over.set()
                thread.join()

    @property
    def claimed(self) -> int:
        """How many living drivers hold their fence."""
        with self._lock:
            return sum(driver.row is not None for driver in self._living.values())

    def start(self, pod: Object) -> None:
        """Begin a driver, as its pod's container does."""
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/configmaps/{metadata['labels']['job-name']}"
        config = DriverConfig.from_json(self.requests.ask("GET", path)["data"]["config.json"])
        with self._lock:
            self._living[metadata["uid"]] = _Driver(metadata["uid"], config, Fence(self.table, config.pipeline))
            heapq.heappush(self._due, (time.monotonic(), next(self._numbers), metadata["uid"]))

    def end(self, uid: str) -> None:
        """End a driver, wherever it is."""
        with self._lock:
            self._living.pop(uid, None)

    def _work(self, pool: ThreadPoolExecutor) -> None:
        while not self._over.wait(0.02):
            with self._lock:
                now, due = time.monotonic(), []
                while self._due and self._due[0][0] <= now:
                    due.append(heapq.heappop(self._due)[2])
                drivers = [self._living[uid] for uid in due if uid in self._living]
            for driver in drivers:
                pool.submit(self._step, driver)

    def _step(self, driver: _Driver) -> None:
        try:
            driver.row = self._claim(driver) if driver.row is None else self._commit(driver, driver.row)
        except Fenced:
            self.end(driver.uid)
            return
        except (FenceError, RequestError) as error:
            self.console.line(f"fleet: driver of {driver.config.pipeline}: {error}")
        with self._lock:
            heapq.heappush(self._due, (time.monotonic() + self.every, next(self._numbers), driver.uid))

    def _claim(self, driver: _Driver) -> FenceRow:
        config = driver.config

        def start(row: FenceRow) -> Starting:
            found = dict(row.offsets) or self._ends(config)
            ids = {topic: self.topics.ids[topic] for topic in config.source.topics}
            return Starting(offsets=found, planned=found, topic_ids=ids)

        return driver.fence.claim(
            epoch=config.epoch, driver=driver.uid, code=config.code, start=start, owner=config.owner
        )

    def _commit(self, driver: _Driver, row: FenceRow) -> FenceRow:
        ends = self._ends(driver.config)
        records = sum(ends.values()) - sum(row.offsets.values())
        if records <= 0:
            return row
        after = driver.fence.commit(row, offsets=ends, planned=ends, records=records, duration_ms=200)
        self.commits += 1
        return after

    def _ends(self, config: DriverConfig) -> dict[str, int]:
        return {offset_key(topic, 0): self.topics.ends.get(topic, 0) for topic in config.source.topics}
