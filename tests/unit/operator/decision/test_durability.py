"""Which settings are at risk, when they are read, and how they are reported."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from fakes.manifests import body, spec
from fakes.stage import POLICY, Stage
from fakes.world import DURABLE_TOPIC, REPLICATED
from fencepost.fence.cassandra.schema import replication
from fencepost_operator.adapters.cassandra.durability_settings import read_settings
from fencepost_operator.api import DurabilityStatus, KafkaConnection, Pipeline, Reason, Spec, State, read_pipeline
from fencepost_operator.decision.durability import DURABILITY_AT_RISK, durability
from fencepost_operator.decision.outcome import Outcome
from fencepost_operator.decision.reporting.events import status_events
from fencepost_operator.desired.connections import kafka_connection, sink_connections
from fencepost_operator.desired.identity.hashes import fingerprints, referenced
from fencepost_operator.observation import (
    CassandraSettings,
    DurabilityFacts,
    KeyspaceSettings,
    Known,
    TopicSettings,
    Unknown,
    UnknownReason,
)
from present import present

SAFE = CassandraSettings(
    nodes={"datacenter1": 3}, keyspaces={"fencepost": REPLICATED, "shop": REPLICATED}, commitlog_sync="periodic"
)


def pipeline(**cassandra: Any) -> Pipeline:
    return read_pipeline(body(checkpoint={"cassandra": {"contactPoints": ["c"], **cassandra}}))


def check(
    cassandra: CassandraSettings = SAFE, topic: TopicSettings = DURABLE_TOPIC, **checkpoint: Any
) -> DurabilityStatus:
    facts = DurabilityFacts(cassandra=Known(cassandra), topics=Known({"orders": topic}))
    return present(durability(pipeline(**checkpoint), facts, Stage().world.now))


def weak(found: DurabilityStatus) -> dict[str, str]:
    return {each.setting: each.found for each in found.weak}


def replicated(**replicas: str) -> CassandraSettings:
    keyspace = KeyspaceSettings(
        replication={"class": "org.apache.cassandra.locator.NetworkTopologyStrategy", **replicas}
    )
    return replace(SAFE, keyspaces={"fencepost": keyspace})


def test_three_replicas_and_a_quorum_are_safe_with_the_default_commit_log() -> None:
    assert check() == DurabilityStatus(checked_at=Stage().world.now, generation=1, complete=True)


@pytest.mark.parametrize(
    ("facts", "checkpoint", "expected"),
    [
        (
            replicated(datacenter1="1"),
            {},
            {"cassandra.replication_factor": "1", "cassandra.commitlog_sync": "periodic"},
        ),
        (replace(replicated(datacenter1="1"), commitlog_sync="group"), {}, {"cassandra.replication_factor": "1"}),
        # The local datacenter is what a LOCAL_ level asks.
        (
            replicated(datacenter1="2", other="3"),
            {},
            {"cassandra.replication_factor": "2", "cassandra.commitlog_sync": "periodic"},
        ),
        (replicated(datacenter1="2", other="3"), {"consistency": "QUORUM"}, {}),
        (
            replicated(datacenter1="2", other="3"),
            {"consistency": "EACH_QUORUM"},
            {"cassandra.replication_factor": "2", "cassandra.commitlog_sync": "periodic"},
        ),
        (replicated(other="3"), {}, {"cassandra.replication_factor": "0", "cassandra.commitlog_sync": "periodic"}),
        (SAFE, {"consistency": "ONE"}, {"cassandra.consistency": "ONE", "cassandra.commitlog_sync": "periodic"}),
        (
            replace(SAFE, keyspaces={"shop": replace(REPLICATED, durable_writes=False)}),
            {},
            {"cassandra.durable_writes": "false"},
        ),
        (
            replace(
                SAFE,
                keyspaces={"k": KeyspaceSettings(replication={"class": "SimpleStrategy", "replication_factor": "1"})},
            ),
            {},
            {"cassandra.replication_factor": "1", "cassandra.commitlog_sync": "periodic"},
        ),
        # An unknown strategy, and a factor that is not a number, say nothing.
        (replace(SAFE, keyspaces={"k": KeyspaceSettings(replication={"class": "LocalStrategy"})}), {}, {}),
        (replicated(datacenter1="many"), {}, {}),
        (replicated(datacenter1="9" * 5000), {}, {}),
    ],
)
def test_cassandras_settings(facts: CassandraSettings, checkpoint: dict[str, Any], expected: dict[str, str]) -> None:
    assert weak(check(facts, **checkpoint)) == expected


def test_topics_settings() -> None:
    topic = TopicSettings(replicas=1, min_insync_replicas=1, unclean_leader_election=True)
    found = check(topic=topic)
    assert weak(found) == {
        "kafka.replication.factor": "1",
        "kafka.min.insync.replicas": "1",
        "kafka.unclean.leader.election.enable": "true",
    }
    assert all(each.where == "topic orders" and each.remedy for each in found.weak)


COPIES = {"name": "copies", "kafka": {"topic": "out"}}
AWAY = {
    "name": "away",
    "kafka": {"topic": "far", "bootstrapServers": "other:9092", "propertiesFrom": {"secretName": "other"}},
}


def test_topics_of_sinks_are_checked_where_they_are() -> None:
    weak_topic = TopicSettings(replicas=3, min_insync_replicas=1, unclean_leader_election=False)
    facts = DurabilityFacts(
        cassandra=Known(SAFE),
        topics=Known({"orders": DURABLE_TOPIC}),
        sinks={"copies": Known({"out": weak_topic}), "away": Known(None)},
    )
    found = present(durability(pipeline(), facts, Stage().world.now))
    assert [(each.setting, each.where) for each in found.weak] == [
        ("kafka.min.insync.replicas", "topic out of sink copies")
    ]
    assert found.unknown == ("all settings of Kafka of sink away, to which only the driver may connect",)
    assert found.complete


def test_a_sink_whose_kafka_does_not_answer_hides_no_risk() -> None:
    weak_topic, now = replace(DURABLE_TOPIC, replicas=1), Stage().world.now
    before = pipeline()
    facts = DurabilityFacts(
        cassandra=Known(SAFE), topics=Known({"orders": weak_topic}), sinks={"copies": Known({"out": weak_topic})}
    )
    first = durability(before, facts, now)
    silent = Unknown(reason=UnknownReason.UNREACHABLE, message="no answer")
    after = replace(before, status=replace(before.status, durability=first))
    found = durability(after, replace(facts, sinks={"copies": silent}), now)
    assert found is not None
    assert [each.where for each in found.weak] == ["topic orders", "topic out of sink copies"]
    assert found.weak == present(first).weak
    assert not found.complete


def test_a_sink_is_reached_as_the_source_is_unless_it_names_a_cluster() -> None:
    read = read_pipeline(body(sinks=[COPIES, AWAY]))
    assert isinstance(read.spec, Spec)
    source = kafka_connection(read.key, read.spec)
    found = sink_connections(read.key, read.spec)
    assert found["copies"] == replace(source, topics=("out",))
    assert found["away"] == KafkaConnection(
        namespace=read.key.namespace, bootstrap_servers="other:9092", topics=("far",), properties={},
        properties_secret="other",  # noqa: S106 - a Secret's name
    )  # fmt: skip


async def test_the_operator_asks_for_the_topic_of_a_sink() -> None:
    stage = Stage()
    stage.world.topic_settings = replace(DURABLE_TOPIC, replicas=1)
    stage.world.apply(body(sinks=[COPIES]))
    await stage.running()
    assert "kafka.replication.factor of topic out of sink copies is 1, not 3" in at_risk(stage)


def test_what_cannot_be_read_is_unknown_and_no_risk() -> None:
    facts = replace(SAFE, commitlog_sync=None, unreadable="GRANT SELECT", keyspaces={"shop": None})
    found = check(facts, TopicSettings(replicas=3))
    assert not found.weak
    assert found.complete
    text = "; ".join(found.unknown)
    for name in ("keyspace shop", "commitlog_sync (GRANT SELECT)", "kafka.min.insync.replicas of topic orders"):
        assert name in text


def test_a_side_that_does_not_answer_is_asked_again_sooner() -> None:
    silent = Unknown(reason=UnknownReason.UNREACHABLE, message="no answer")
    found = present(durability(pipeline(), DurabilityFacts(cassandra=silent, topics=Known(None)), Stage().world.now))
    assert not found.complete
    assert [text.partition(" (")[0] for text in found.unknown] == [
        "all settings of Cassandra",
        "all settings of Kafka, to which only the driver may connect",
    ]


async def test_a_side_that_does_not_answer_ends_no_risk_that_was_found_there() -> None:
    stage = await running(topic_settings=replace(DURABLE_TOPIC, replicas=1))
    before, now = stage.pipeline, stage.world.now
    steady = Outcome(status=before.status, state=State.RUNNING, reason=Reason(stage.ready()), message="as before")
    for message in ("no answer within 8 s", "broker 3 is down"):
        silent = Unknown(reason=UnknownReason.UNREACHABLE, message=message)
        found = present(durability(before, DurabilityFacts(cassandra=Known(SAFE), topics=silent), now))
        assert weak(found) == {"kafka.replication.factor": "1"}
        after = replace(before.status, durability=found)
        assert not status_events(before.status, after, steady, POLICY, asks_to_run=True)
    answered = durability(before, DurabilityFacts(cassandra=Known(SAFE), topics=Known({"orders": DURABLE_TOPIC})), now)
    assert not present(answered).weak


@pytest.mark.parametrize(
    "replication", [{"class": None}, {"class": "SimpleStrategy", "replication_factor": None}, {1: 2}]
)
def test_a_replication_of_other_types_is_text(replication: dict[Any, Any]) -> None:
    session = Answers(replication)
    found = read_settings(session, ["fencepost"])
    assert not weak(check(found))


@dataclass(frozen=True, slots=True)
class Answers:
    """A Cassandra whose keyspaces are replicated like this."""

    replication: dict[Any, Any]

    def execute(self, select: str, values: tuple[str, ...] = ()) -> Any:
        del values
        row = SimpleNamespace(data_center=7, replication=self.replication, durable_writes=True, value="batch")
        return _Rows([row]) if "system" in select else _Rows([])


class _Rows(list[Any]):
    @property
    def current_rows(self) -> list[Any]:
        return self

    def one(self) -> Any:
        return self[0] if self else None


def test_a_hostile_answer_stays_small() -> None:
    keyspaces = {
        f"k{n}": KeyspaceSettings(replication={"class": "NetworkTopologyStrategy", "x" * 9000: "1"}) for n in range(500)
    }
    nodes = {"é'\n" * 5000: 1}
    found = check(CassandraSettings(nodes=nodes, keyspaces=keyspaces, commitlog_sync="y" * 99_999))
    assert sum(len(str(each)) for each in found.weak) < 4000


async def running(**settings: Any) -> Stage:
    stage = Stage()
    for name, value in settings.items():
        setattr(stage.world, name, value)
    stage.world.apply(body())
    await stage.running()
    return stage


def at_risk(stage: Stage) -> str:
    conditions = stage.pipeline.status.conditions
    return next((c.message for c in conditions if c.type == DURABILITY_AT_RISK), "")


async def test_each_weak_setting_is_named_while_the_pipeline_is_ready() -> None:
    stage = await running(topic_settings=replace(DURABLE_TOPIC, replicas=1, min_insync_replicas=1))
    message = at_risk(stage)
    assert "kafka.replication.factor of topic orders is 1, not 3" in message
    assert "min.insync.replicas=2" in message
    assert next(c.status for c in stage.pipeline.status.conditions if c.type == "Ready") == "True"
    reported = [event for event in stage.world.events if event[0] == "DurabilityAtRisk"]
    assert len(reported) == 1
    await stage.run(20)
    assert [event for event in stage.world.events if event[0] == "DurabilityAtRisk"] == reported


async def test_a_check_is_made_once_per_day_and_after_a_change_of_the_spec() -> None:
    stage = await running(topic_settings=replace(DURABLE_TOPIC, replicas=1))
    first = present(stage.pipeline.status.durability)
    stage._operator = None  # a restart does not check again
    stage.world.topic_settings = DURABLE_TOPIC
    await stage.run(30)
    assert stage.pipeline.status.durability == first
    stage.world.change(stage.key, batchInterval="7s")
    await stage.run(60)
    assert not at_risk(stage)
    assert stage.world.events[-1][0] != "DurabilityAtRisk"
    assert "Durable" in set(stage.reported)
    stage.world.keyspaces["shop"] = KeyspaceSettings(replication={"class": "SimpleStrategy", "replication_factor": "1"})
    stage.world.rate = 0.0
    stage.world.now += timedelta(seconds=POLICY.durability_interval - 120)
    await stage.turn()
    assert not at_risk(stage)
    stage.world.now += timedelta(seconds=180)
    await stage.turn()
    assert "keyspace shop is 1" in at_risk(stage)


def test_a_new_keyspace_has_three_replicas_or_as_many_as_there_are_nodes() -> None:
    nodes = {"east": 5, "west": 2}
    assert replication(nodes, strategy="NetworkTopologyStrategy", factor=None) == {
        "class": "NetworkTopologyStrategy",
        "east": 3,
        "west": 2,
    }
    assert replication({"one": 1}, strategy="SimpleStrategy", factor=None)["replication_factor"] == 1
    assert replication(nodes, strategy="NetworkTopologyStrategy", factor=2)["replication_factor"] == 2


@pytest.mark.parametrize("secret", ["kafka", "account", "certificates"])
async def test_a_secret_that_rotates_replaces_the_run_gracefully(secret: str) -> None:
    stage = Stage()
    source = {"kafka": {**spec()["source"]["kafka"], "propertiesFrom": {"secretName": "kafka"}}}
    cassandra = {
        "contactPoints": ["cassandra"],
        "credentialsFrom": {"secretName": "account"},
        "tls": {"secretName": "certificates"},
    }
    for name in ("kafka", "account", "certificates"):
        stage.world.references["shop", f"Secret/{name}"] = "before"
    stage.world.apply(body(source=source, checkpoint={"cassandra": cassandra}))
    await stage.running()
    before = stage.world.newest_pod().driver
    stage.world.references["shop", f"Secret/{secret}"] = "after"
    await stage.until(lambda: before.exit_code is not None)
    await stage.running()
    assert before.exit_code == 0, "it was asked to stop, and finished its batch"
    assert stage.world.newest_pod().driver is not before
    assert stage.pipeline.status.failure is None


def test_options_with_their_defaults_change_no_fingerprint() -> None:
    def run_hash(**cassandra: Any) -> str:
        found = pipeline(**cassandra).spec
        assert not isinstance(found, tuple)
        return fingerprints(found, dict.fromkeys(referenced(found), "x")).run

    plain = run_hash()
    assert run_hash(serialConsistency="SERIAL") == plain
    others = {
        run_hash(serialConsistency="LOCAL_SERIAL"),
        run_hash(tls={"secretName": "a"}),
        run_hash(tls={"secretName": "a", "verifyHostname": False}),
        run_hash(tls={"secretName": "a", "serverName": "c"}),
    }
    assert len(others) == 4
    assert plain not in others
