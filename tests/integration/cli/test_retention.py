"""`fencepost retention` on a real Kafka, and accounts that may not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress

import pytest
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from fencepost.contract import KafkaSource
from fencepost_cli.errors import CliError
from fencepost_cli.ports import KafkaAccess, NewRecord
from fencepost_cli.retention import ANNOTATION, SIZE, TIME, Change, Setting, TopicSettings
from fencepost_cli.stores.kafka.producer import open_producer
from fencepost_cli.stores.kafka.settings import KafkaSettings, open_settings
from harness.waiting import eventually
from integration.cli.scene import Scene, on_the_api_server
from integration.kafka.accounts import Topic, properties_of, topic_of, wait_granted
from integration.operator.cluster import PIPELINES
from present import present
from testbed.environment import Environment, load

pytestmark = pytest.mark.integration

DAY = 86_400_000


def access(topic: str, properties: dict[str, str]) -> KafkaAccess:
    servers = properties["bootstrap.servers"]
    return KafkaAccess(
        endpoint=KafkaSource(bootstrap_servers=servers, topics=(topic,)), topics=(topic,), properties=properties
    )


def settings_of(environment: Environment, topic: str) -> TopicSettings:
    with open_settings(access(topic, {"bootstrap.servers": environment.kafka_host})) as settings:
        return settings.read(topic)


def note_of(scene: Scene) -> str | None:
    place = {"namespace": scene.key.namespace, "name": scene.key.name}
    body = present(on_the_api_server(scene.environment, lambda api: api.get(PIPELINES, **place)))
    note: str | None = (body["metadata"].get("annotations") or {}).get(ANNOTATION)
    return note


def test_an_inherited_retention_is_extended_twice_and_inherited_again(scene: Scene) -> None:
    """The testbed's broker keeps records without end: the topic's own limits come first."""
    environment, topic = scene.environment, scene.topic
    with open_settings(access(topic, {"bootstrap.servers": environment.kafka_host})) as settings:
        settings.write(Change(topic=topic, values={SIZE: 10**9}))
    unlimited = settings_of(environment, topic)
    assert unlimited.settings == {TIME: Setting(-1, False), SIZE: Setting(10**9, True)}
    printed = scene.json("retention", "extend", str(scene.key), "--to", "7d", "--lift-size", "--by", "ann")
    assert printed["topics"][0]["settings"] == {SIZE: {"from": 10**9, "to": -1}}

    with open_settings(access(topic, {"bootstrap.servers": environment.kafka_host})) as settings:
        settings.write(Change(topic=topic, values={TIME: DAY}))
    for days in (3, 5):
        scene.json("retention", "extend", str(scene.key), "--to", f"{days}d")
    assert settings_of(environment, topic).settings == {TIME: Setting(5 * DAY, True), SIZE: Setting(-1, True)}
    noted = json.loads(note_of(scene) or "")[topic]
    assert noted[TIME] == {"before": DAY, "own": True, "set": [3 * DAY, 5 * DAY]}
    assert noted[SIZE] == {"before": 10**9, "own": True, "set": [-1]}

    unread = scene.fencepost("retention", "restore", str(scene.key), "--yes")
    assert unread.returncode == 2
    assert "uncommitted records, and retention.bytes=1000000000" in unread.stderr
    scene.json("retention", "restore", str(scene.key), "--yes", "--force")
    assert settings_of(environment, topic).settings == {TIME: Setting(DAY, True), SIZE: Setting(10**9, True)}
    assert note_of(scene) is None
    ended = scene.fencepost("retention", "restore", str(scene.key), "--yes")
    assert ended.returncode == 2
    assert "nothing is noted" in ended.stderr


def test_an_override_that_was_not_there_is_deleted(scene: Scene) -> None:
    """Written into the note by hand, because this broker's own retention cannot be extended."""
    environment, topic = scene.environment, scene.topic
    with open_settings(access(topic, {"bootstrap.servers": environment.kafka_host})) as settings:
        settings.write(Change(topic=topic, values={TIME: 2 * DAY, SIZE: None}))
    note = {topic: {TIME: {"before": DAY, "own": False, "set": [2 * DAY]}, "by": "ann", "at": "2026-01-01"}}
    body = {"metadata": {"annotations": {ANNOTATION: json.dumps(note)}}}
    place = {"namespace": scene.key.namespace, "name": scene.key.name}
    on_the_api_server(environment, lambda api: api.merge(PIPELINES, body=body, **place))
    unread = scene.fencepost("retention", "restore", str(scene.key), "--yes")
    assert unread.returncode == 2
    assert "does not say how old the oldest uncommitted record" in unread.stderr
    scene.json("retention", "restore", str(scene.key), "--yes", "--force")
    assert settings_of(environment, topic).settings == {TIME: Setting(-1, False), SIZE: Setting(-1, False)}


@pytest.fixture
def topic() -> Iterator[Topic]:
    with topic_of(load()) as topic:
        yield topic


def granted(settings: KafkaSettings, topic: str) -> bool:
    with suppress(CliError):
        return bool(settings.read(topic))
    return False


def test_an_account_hears_which_right_it_lacks(topic: Topic) -> None:
    environment = load()
    properties = properties_of(environment, "SCRAM-SHA-512")
    change = Change(topic=topic.name, values={TIME: DAY})
    topic.grant(environment.kafka_username, AclOperation.DESCRIBE, AclOperation.READ)
    wait_granted(topic, properties)
    place = access(topic.name, properties)
    with open_settings(place) as settings:
        with pytest.raises(CliError, match="may not DescribeConfigs") as refused:
            settings.read(topic.name)
        assert f"--operation DescribeConfigs --topic {topic.name}" in refused.value.remedy
        with pytest.raises(CliError, match="may not AlterConfigs") as refused:
            settings.check(change)
        assert f"--operation AlterConfigs --topic {topic.name}" in refused.value.remedy
    assert settings_of(environment, topic.name).settings[TIME] == Setting(-1, False)

    record = NewRecord(topic=topic.name, partition=0, key=None, value=b"v", headers=())
    with open_producer(place) as producer, pytest.raises(CliError, match="did not store") as refused:
        producer.send(record)
    assert f"--operation Write --topic {topic.name}" in refused.value.remedy

    topic.grant(
        environment.kafka_username, AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
    )
    with open_settings(place) as settings:
        eventually("the ACL is known", lambda: granted(settings, topic.name), seconds=30)
        settings.check(change)
        settings.write(change)
        assert settings.read(topic.name).settings[TIME] == Setting(DAY, True)
    with open_producer(place) as producer:
        assert producer.send(record) == f"{topic.name}/0@10"


def test_a_value_that_the_broker_refuses_is_reported(scene: Scene) -> None:
    with open_settings(access(scene.topic, {"bootstrap.servers": scene.environment.kafka_host})) as settings:
        with pytest.raises(CliError, match="did not answer about topic"):
            settings.check(Change(topic=scene.topic, values={TIME: -7}))
        with pytest.raises(CliError) as missing:
            settings.read("cli-absent")
    assert "choose topics that exist" in missing.value.remedy
