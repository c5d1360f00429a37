"""The commands of Kafka's own scripts in the runbooks, run on the testbed's Kafka as they are printed."""

from __future__ import annotations

import re
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from typing import Final

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import ConfigResource, OffsetSpec, ResourceType  # type: ignore[attr-defined]

from generators.decisions import RUNBOOKS
from harness.topics import open_transaction
from harness.waiting import eventually
from integration.driver.support import Kafka
from integration.kafka.brokers import IMAGE
from testbed.environment import Environment
from unit.docs.runbook_commands import filled, kafka_commands

pytestmark = pytest.mark.integration

COMMANDS: Final = kafka_commands(sorted(RUNBOOKS.glob("*.md")))
CLASSES: Final[Mapping[str, str]] = {
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions.sh": "org.apache.kafka.tools.TransactionsCommand",
}
"""What Kafka's scripts start; the testbed's image has Kafka's jars, and not the scripts."""


@pytest.fixture
def topic(environment: Environment) -> Iterator[str]:
    kafka, name = Kafka(environment.kafka_host), f"runbook-{uuid.uuid4().hex[:8]}"
    kafka.create(name, 1)
    yield name
    kafka.delete(name)


def run(environment: Environment, command: str, **values: str) -> str:
    """Run a command with its placeholders replaced, in a container of the broker's image; what it printed."""
    script, *arguments = filled(command, {"SERVER": environment.kafka_host, **values}).split()
    java = ["java", "-Xmx96m", "-XX:TieredStopAtLevel=1", "-cp", "/opt/kafka/lib/*", CLASSES[script]]
    ended = subprocess.run(
        [str(environment.docker), "run", "--rm", "--network", "host", IMAGE, *java, *arguments],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert ended.returncode == 0, f"{command}: {ended.stdout}{ended.stderr}"
    return ended.stdout


def of(*words: str) -> str:
    """The one command with these words."""
    (found,) = [command for command in COMMANDS if all(word in command for word in words)]
    return found


def transaction_starts(printed: str) -> list[str]:
    """The offsets at which transactions began that are open, of what `describe-producers` printed."""
    header, *rows = (re.split(r"\s*\t", line) for line in printed.splitlines() if line)
    starts = [row[header.index("CurrentTransactionStartOffset")] for row in rows]
    return [start for start in starts if start.isdecimal()]


def committed_end(environment: Environment, topic: str) -> int:
    partition, latest = TopicPartition(topic, 0), OffsetSpec.latest()  # type: ignore[no-untyped-call]
    admin = Kafka(environment.kafka_host).admin  # its answers end with it
    answers = admin.list_offsets({partition: latest}, isolation_level=IsolationLevel.READ_COMMITTED)
    return int(answers[partition].result().offset)


def test_every_command_has_a_test() -> None:
    assert {command.split()[0] for command in COMMANDS} == set(CLASSES)
    tested = ("describe-producers", "abort", "retention.ms", "min.insync.replicas", "--unavailable-partitions")
    assert len(COMMANDS) == len({of(words) for words in tested})


def test_where_each_partition_has_a_leader_none_is_named(environment: Environment, topic: str) -> None:
    """The command fails where a topic is deleted while it reads all of them, as other tests do."""
    said = eventually("all topics are read", lambda: [run(environment, of("--unavailable-partitions"))], seconds=60)
    assert topic not in said[0]


def test_a_transaction_that_stays_open_is_aborted_by_the_runbook(environment: Environment, topic: str) -> None:
    with open_transaction(environment.kafka_host, topic):
        assert committed_end(environment, topic) == 0
        (start,) = transaction_starts(run(environment, of("describe-producers"), TOPIC=topic, N="0"))
        run(environment, of("abort"), TOPIC=topic, N="0", OFFSET=start)
        assert committed_end(environment, topic) == 2, "the record and the marker of its end"


@pytest.mark.parametrize(("setting", "value"), [("retention.ms", "1209600000"), ("min.insync.replicas", "2")])
def test_a_topic_gets_the_setting_of_the_runbook(
    environment: Environment, topic: str, setting: str, value: str
) -> None:
    run(environment, of(setting), TOPIC=topic)
    resource, admin = ConfigResource(ResourceType.TOPIC, topic), Kafka(environment.kafka_host).admin
    (answer,) = admin.describe_configs([resource]).values()
    assert answer.result()[setting].value == value
