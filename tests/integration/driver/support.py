"""A pipeline on the testbed's Kafka and Cassandra, with its driver in a container of the job image on local Spark.

The image because that is what runs, and because its class-data-sharing archive takes three quarters off a start; the
package in it is this checkout's.
"""

from __future__ import annotations

import json
import signal
import subprocess
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from cassandra.cluster import Session
from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import fencepost
from fakes.driver_configs import USUAL
from fencepost.contract import (
    Acceptance,
    CassandraEndpoint,
    CassandraSink,
    DriverConfig,
    ExitCode,
    KafkaSource,
    Loss,
    ReportedLoss,
    Variable,
    Verdict,
    commit_ms,
)
from fencepost.fence import Fence, FenceRow
from fencepost.fence.cassandra.session import connect
from fencepost.fence.cassandra.table import CassandraFenceTable, create_schema
from fencepost.fence.table import FenceTable
from flights.history import HistoryRow, read_history
from flights.topics import Topics, create_topic
from harness.fences import read_row
from harness.pipelines import SHORT_LIVED
from harness.waiting import eventually
from present import present
from testbed.environment import Environment

CODE = Path(__file__).with_name("pipelines")
PACKAGE = Path(fencepost.__file__).parent
PACKAGE_IN_IMAGE = "/opt/fencepost/venv/lib/python3.11/site-packages/fencepost"


class Kafka:
    """The testbed's Kafka, or another one; `replicas` are those of new topics."""

    def __init__(self, servers: str, replicas: int = 1) -> None:
        self.servers = servers
        self.replicas = replicas
        self.admin = AdminClient({"bootstrap.servers": servers})

    def create(self, topic: str, partitions: int = 4, **config: str) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=self.replicas, config=config)
        create_topic(self.admin, new)

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions, and wait until clients know them: before, a producer refuses their records."""
        Topics(self.servers).grow(topic, partitions)

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(30)

    def delete_records(self, topic: str, *, partition: int, before: int) -> None:
        """Do what retention does."""
        part = TopicPartition(topic, partition, before)
        self.admin.delete_records([part])[part].result(30)

    def produce(self, topic: str, count: int, *, partitions: int = 4, start: int = 0) -> None:
        """Produce records numbered from `start`, round robin; each one is confirmed."""
        self.send(
            topic,
            (
                {
                    "value": json.dumps({"n": number, "x": number / 2, "city": f"c{number % 7}"}),
                    "key": str(number % 100),
                    "partition": number % partitions,
                }
                for number in range(start, start + count)
            ),
        )

    def send(self, topic: str, records: Iterable[Mapping[str, Any]]) -> None:
        """Produce records, each one as the arguments of `Producer.produce`; each one is confirmed."""
        refused: list[KafkaError] = []

        def confirm(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                refused.append(error)

        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "enable.idempotence": True,
                "linger.ms": 20,
                "message.timeout.ms": 60000,
            }
        )
        for record in records:
            while True:
                try:
                    producer.produce(topic, **record, on_delivery=confirm)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(60) == 0
        assert not refused, refused[0]


@dataclass(slots=True)
class Run:
    """A driver process."""

    process: subprocess.Popen[bytes]
    docker: str
    container: str
    termination_log: Path
    log: Path

    def wait(self, timeout: float = 240) -> int:
        return self.process.wait(timeout)

    def verdict(self) -> Verdict:
        found = Verdict.from_json(self.termination_log.read_text())
        assert found is not None, self.log.read_text()[-4000:]
        return found

    def committed(self) -> list[dict[str, Any]]:
        """The log's lines about committed batches."""
        lines = [line for line in self.log.read_text().splitlines() if '"message": "committed"' in line]
        return [json.loads(line) for line in lines]

    def signal(self, number: signal.Signals) -> None:
        kill = [self.docker, "kill", f"--signal={number.name}", self.container]
        subprocess.run(kill, check=True, capture_output=True)

    def pause(self) -> None:
        """Stop every process of the container where it is: the driver, its JVM, and the Python workers."""
        subprocess.run([self.docker, "pause", self.container], check=True, capture_output=True)

    def resume(self) -> None:
        """Let them continue."""
        subprocess.run([self.docker, "unpause", self.container], check=True, capture_output=True)

    def kill(self) -> None:
        """Kill it, unless it ends meanwhile."""
        with suppress(subprocess.CalledProcessError):  # no container of this name runs any more
            self.signal(signal.SIGKILL)
        self.process.wait(60)

    def stop(self) -> None:
        """Ask it to end, as the kubelet does: the batch in progress is committed."""
        self.signal(signal.SIGTERM)
        assert self.wait() == ExitCode.STOPPED, self.log.read_text()[-6000:]

    def end(self) -> None:
        if self.process.poll() is None:
            self.kill()


@dataclass(slots=True)
class Pipeline:
    """One pipeline: a topic, a table and a fence row, all of its own."""

    kafka: Kafka
    session: Session
    config: DriverConfig
    credentials: tuple[str, str]
    folder: Path
    docker: str
    image: str
    writable: tuple[Path, ...] = ()
    """Folders that the containers share with the test."""
    volumes: dict[str, Path] = field(default_factory=dict)
    """Folders by their path in the driver's container, read-only there."""
    runs: list[Run] = field(default_factory=list)

    @property
    def topic(self) -> str:
        return self.config.source.topics[0]

    @property
    def fence(self) -> Fence:
        return Fence(self._table, self.config.pipeline)

    @property
    def _table(self) -> FenceTable:
        return CassandraFenceTable.over(self.session, self.config.fence_keyspace)

    def recorded(self, loss: str) -> ReportedLoss:
        """The loss with this id, as the driver recorded it."""
        reports = self._table.read_losses(self.config.pipeline, commit_ms(self.row().committed_at))
        return next(report for report in reports if report.loss.id == loss)

    def accept(self, loss: Loss, choice: str = "") -> None:
        """Accept a loss as the operator does."""
        self._table.accept_loss(self.config.pipeline, loss, Acceptance(by="kim", choice=choice, at=datetime.now(UTC)))

    def row(self) -> FenceRow:
        return present(read_row(self.fence))

    def take_over(self) -> DriverConfig:
        """Start a new epoch as the operator does; return the configuration of its run."""
        fence = self.fence
        row = read_row(fence) or fence.create("test/test")
        after = fence.take_over(row, owner="test/test")
        self.config = replace(self.config, epoch=after.epoch)
        return self.config

    def start(self, config: DriverConfig | None = None, *command: str, **variables: str) -> Run:
        """Start a driver process, or another command of the image; without a configuration, under a new epoch."""
        chosen = config or self.take_over()
        number = len(self.runs)
        log = self.folder / f"driver-{number}.log"
        last = self.folder / f"last-words-{number}"
        environment = {
            Variable.CONFIG: chosen.to_json(),
            Variable.POD_UID: f"pod-{number}",
            Variable.CASSANDRA_USERNAME: self.credentials[0],
            Variable.CASSANDRA_PASSWORD: self.credentials[1],
            **variables,
        }
        container = f"{self.topic}-{number}"
        last.touch()
        last.chmod(0o666)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [
                    self.docker, "run", "--rm", "--name", container, "--network", "host", "--read-only",
                    "--tmpfs", "/tmp:exec", "--user", "1000660000:0", "--cap-drop", "ALL",  # noqa: S108 - in the container
                    "--volume", f"{PACKAGE}:{PACKAGE_IN_IMAGE}:ro", "--volume", f"{CODE}:/opt/fencepost/code:ro",
                    "--volume", f"{last}:/dev/termination-log",
                    *(f"--volume={source}:{target}:ro" for target, source in self.volumes.items()),
                    *(f"--volume={folder}:{folder}" for folder in self.writable),
                    *(f"--env={key}={value}" for key, value in environment.items()), self.image, *command,
                ],
                stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        run = Run(process, self.docker, container, last, log)
        self.runs.append(run)
        return run

    def committed_records(self) -> int:
        """How far the fence row is, in records from the topic's beginning."""
        row = read_row(self.fence)
        return sum(row.offsets.values()) if row is not None else 0

    def wait_committed(self, records: int, timeout: float = 240) -> None:
        run = self.runs[-1]
        eventually(
            f"{records} records are committed",
            lambda: self.committed_records() >= records or run.process.poll() is not None,
            seconds=timeout,
            pause=0.1,
        )
        assert self.committed_records() >= records, run.log.read_text()[-6000:]

    def rows(self) -> list[Any]:
        """What is in the table, which has the topic's name."""
        return list(self.session.execute(f"SELECT * FROM driver_tests.{self.topic}", timeout=60))  # noqa: S608

    def history(self) -> Sequence[HistoryRow]:
        """The fence's changes, oldest first."""
        return read_history(self.session, self.config.fence_keyspace, self.config.pipeline)


TABLE = (
    "CREATE TABLE {keyspace}.{table} (partition int, bucket bigint, offset bigint, n bigint, x double, city text,"
    " at timestamp, PRIMARY KEY ((partition, bucket), offset))"
)


def make(
    environment: Environment,
    session: Session,
    folder: Path,
    *,
    servers: str | None = None,
    replicas: int = 1,
    topic: Mapping[str, str] | None = None,
    **source: Any,
) -> Pipeline:
    """Make a topic of four partitions, a table, a fence row's schema, and the configuration of a first run.

    `servers` are those of another Kafka than the testbed's, `topic` are the topic's settings.
    """
    name = f"t{uuid.uuid4().hex[:10]}"
    kafka = Kafka(servers or environment.kafka_host, replicas)
    kafka.create(name, 4, **(topic or {}))
    session.execute(TABLE.format(keyspace="driver_tests", table=name))
    config = replace(
        USUAL,
        pipeline=f"test/test/{name}",
        epoch=0,
        entrypoint="parse:transform",
        args=("1000",),
        code="test",
        source=KafkaSource(
            bootstrap_servers=kafka.servers, topics=(name,), **{"max_records_per_batch": 1000, **source}
        ),
        sinks=(CassandraSink(name="rows", keyspace="driver_tests", table=name),),
        cassandra=CassandraEndpoint(contact_points=(environment.cassandra_host,), port=environment.cassandra_port),
        fence_keyspace="driver_tests",
        batch_interval=0.2,
        spark_conf=SHORT_LIVED,
    )
    credentials = (environment.cassandra_username, environment.cassandra_password)
    return Pipeline(kafka, session, config, credentials, folder, str(environment.docker), environment.job_image)


def open_session(environment: Environment, *, create: bool = True) -> Session:
    """Connect as the environment's account; `create` the tests' keyspace."""
    session = connect(
        CassandraEndpoint(contact_points=(environment.cassandra_host,), port=environment.cassandra_port),
        credentials=(environment.cassandra_username, environment.cassandra_password),
        request_timeout=20,
    )
    if create:
        create_schema(session, "driver_tests", {"class": "SimpleStrategy", "replication_factor": 1})
    return session


def spans(history: Sequence[HistoryRow]) -> Iterator[tuple[Mapping[str, int], Mapping[str, int]]]:
    """Yield the offsets before and after each change that has some."""
    changes = [dict(change.offsets) for change in history]
    yield from pairwise(changes)
