"""Which settings of Cassandra and Kafka let an acknowledged write be lost, as far as they can be read.

What cannot be read is unknown and no risk; it is named beside the risks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from fencepost_operator.api import (
    CassandraSpec,
    DurabilityStatus,
    Pipeline,
    ReconcileConfig,
    Spec,
    Status,
    WeakSetting,
)
from fencepost_operator.decision.wording import listed, with_remedy
from fencepost_operator.observation import (
    CassandraSettings,
    DurabilityFacts,
    Fact,
    Known,
    TopicSettings,
    Unknown,
)
from fencepost_operator.text import single_line

DURABILITY_AT_RISK: Final = "DurabilityAtRisk"
REPLICAS: Final = 3
"""With fewer, no node can be lost for good without losing the majority's copy, or the service."""
IN_SYNC: Final = 2
MOST: Final = 16
"""Weak settings, and unknown ones, that a status holds."""
_LONGEST: Final = 200
"""Characters of a text that Kafka or Cassandra said."""
_ONE: Final = frozenset({"ONE", "LOCAL_ONE", "ANY"})
_EVERY_DATACENTER: Final = frozenset({"EACH_QUORUM", "ALL"})
_SYNCHRONOUS: Final = frozenset({"batch", "group"})

_CONSISTENCY: Final = "cassandra.consistency"
"""The one that is the spec's own."""
SETTINGS: Final = (
    "cassandra.replication_factor",
    "cassandra.durable_writes",
    _CONSISTENCY,
    "cassandra.commitlog_sync",
    "kafka.replication.factor",
    "kafka.min.insync.replicas",
    "kafka.unclean.leader.election.enable",
)
"""The names of all settings that are checked."""


def is_due(pipeline: Pipeline, config: ReconcileConfig, now: datetime) -> bool:
    """Return whether the settings have to be read: never read, for another spec, or too long ago."""
    before = pipeline.status.durability
    if not isinstance(pipeline.spec, Spec) or pipeline.spec.suspend or pipeline.deleting_since is not None:
        return False
    if before is None or before.generation != pipeline.generation:
        return True
    pause = config.durability_interval if before.complete else config.durability_retry
    return now - before.checked_at >= timedelta(seconds=pause)


def durability(pipeline: Pipeline, facts: DurabilityFacts | None, now: datetime) -> DurabilityStatus | None:
    """Return the newest check: of these facts, or the previous one without facts.

    What was weak on a side that does not answer now is weak until it answers.
    """
    spec, before = pipeline.spec, pipeline.status.durability
    if facts is None or not isinstance(spec, Spec):
        return before
    known = before.weak if before is not None and before.generation == pipeline.generation else ()
    weak = [
        *(_consistency(spec.checkpoint.cassandra) if spec.checkpoint.cassandra else ()),
        *(_of_side("cassandra.", known) if _is_transient(facts.cassandra) else _of_cassandra(spec, facts)),
        *_of_kafka(facts, known),
    ]
    unknown = [*_unknown_of_cassandra(facts), *_unknown_of_kafka(facts)]
    transient = any(_is_transient(fact) for fact in (facts.cassandra, facts.topics, *facts.sinks.values()))
    return DurabilityStatus(
        checked_at=now,
        generation=pipeline.generation,
        complete=not transient,
        weak=tuple(weak[:MOST]),
        unknown=tuple(single_line(text, limit=_LONGEST) for text in unknown[:MOST]),
    )


def weak_settings(status: Status) -> str:
    """Return which settings are weak and what to do, '' when none is known to be."""
    found = status.durability
    if found is None or not found.weak:
        return ""
    named = "; ".join(f"{each.setting} of {each.where} is {each.found}, not {each.wanted}" for each in found.weak)
    unknown = f". Not known: {'; '.join(found.unknown)}" if found.unknown else ""
    remedies = dict.fromkeys(each.remedy for each in found.weak)
    return with_remedy(f"An acknowledged write can be lost: {named}{unknown}", *remedies)


def _is_transient(fact: object) -> bool:
    return isinstance(fact, Unknown) and fact.is_transient


def _of_side(side: str, known: Iterable[WeakSetting]) -> Iterator[WeakSetting]:
    return (each for each in known if each.setting.startswith(side) and each.setting != _CONSISTENCY)


def _consistency(checkpoint: CassandraSpec) -> Iterator[WeakSetting]:
    if checkpoint.consistency in _ONE:
        yield WeakSetting(
            setting=_CONSISTENCY,
            where="spec.checkpoint.cassandra",
            found=checkpoint.consistency,
            wanted="LOCAL_QUORUM or QUORUM",
            remedy="set spec.checkpoint.cassandra.consistency to LOCAL_QUORUM",
        )


def _of_cassandra(spec: Spec, facts: DurabilityFacts) -> Iterator[WeakSetting]:
    if not isinstance(facts.cassandra, Known):
        return
    found, checkpoint = facts.cassandra.value, spec.checkpoint.cluster
    replicas = {name: _replicas(found, name, checkpoint) for name, keyspace in found.keyspaces.items() if keyspace}
    few: dict[int, list[str]] = {}
    for name, count in sorted(replicas.items()):
        if count is not None and count < REPLICAS:
            few.setdefault(count, []).append(name)
    for count, names in sorted(few.items()):
        yield WeakSetting(
            setting="cassandra.replication_factor",
            where=f"keyspace {listed(names)}",
            found=str(count),
            wanted=str(REPLICAS),
            remedy=_more_replicas(names[0], found, checkpoint),
        )
    if volatile := sorted(
        name for name, keyspace in found.keyspaces.items() if keyspace and not keyspace.durable_writes
    ):
        yield WeakSetting(
            setting="cassandra.durable_writes",
            where=f"keyspace {listed(volatile)}",
            found="false",
            wanted="true",
            remedy=f"ALTER KEYSPACE {volatile[0]} WITH durable_writes = true",
        )
    # With replicas on three nodes and a majority that answers, a single node that loses its last seconds loses nothing.
    alone = bool(few) or checkpoint.consistency in _ONE
    if found.commitlog_sync is not None and found.commitlog_sync not in _SYNCHRONOUS and alone:
        yield WeakSetting(
            setting="cassandra.commitlog_sync",
            where="cassandra.yaml",
            found=single_line(found.commitlog_sync, limit=_LONGEST),
            wanted="batch or group",
            remedy="set commitlog_sync: group in cassandra.yaml of every node, or have 3 replicas and a quorum",
        )


def _more_replicas(keyspace: str, found: CassandraSettings, checkpoint: CassandraSpec) -> str:
    local = checkpoint.local_datacenter or next(iter(sorted(found.nodes)), "DATACENTER")
    count = found.nodes.get(local, 0)
    nodes = (
        f"add nodes to datacenter {single_line(local, limit=_LONGEST)}, which has {count}, then "
        if count < REPLICAS
        else ""
    )
    replication = f"{{'class': 'NetworkTopologyStrategy', '{single_line(local, limit=_LONGEST)}': {REPLICAS}}}"
    return f"{nodes}ALTER KEYSPACE {keyspace} WITH replication = {replication}, and nodetool repair --full {keyspace}"


def _replicas(found: CassandraSettings, name: str, checkpoint: CassandraSpec) -> int | None:
    """Return of how many replicas a majority acknowledges a write; None where the strategy does not say."""
    keyspace = found.keyspaces[name]
    strategy = keyspace.replication.get("class", "").rpartition(".")[2] if keyspace is not None else ""
    if keyspace is None or strategy not in {"SimpleStrategy", "NetworkTopologyStrategy"}:
        return None
    counts = {place: _count(text) for place, text in keyspace.replication.items() if place != "class"}
    if None in counts.values():
        return None
    if strategy == "SimpleStrategy":
        return counts.get("replication_factor")
    numbers = [count for count in counts.values() if count is not None]
    if checkpoint.consistency in _EVERY_DATACENTER:
        return min(numbers, default=0)
    if checkpoint.consistency.startswith("LOCAL_") and checkpoint.local_datacenter is not None:
        return counts.get(checkpoint.local_datacenter, 0)
    return sum(numbers)


def _count(text: str) -> int | None:
    """Return the replicas in '3', or in '3/1' with one transient replica."""
    full = text.partition("/")[0]
    return int(full) if full.isascii() and full.isdecimal() and len(full) < _LONGEST else None


def _unknown_of_cassandra(facts: DurabilityFacts) -> Iterator[str]:
    if isinstance(facts.cassandra, Unknown):
        yield f"all settings of Cassandra ({facts.cassandra.message})"
    if not isinstance(facts.cassandra, Known):
        return
    found = facts.cassandra.value
    if absent := sorted(name for name, keyspace in found.keyspaces.items() if keyspace is None):
        yield f"replication_factor of keyspace {listed(absent)}, which does not exist"
    if found.commitlog_sync is None:
        yield f"commitlog_sync ({found.unreadable})"


_Value = Callable[[TopicSettings], int | bool | None]

_ALTER_TOPIC: Final = "kafka-configs.sh --bootstrap-server SERVER --alter --topic TOPIC --add-config"
_TOPIC_SETTINGS: Final[tuple[tuple[str, _Value, Callable[[int | bool], bool], str, str], ...]] = (
    (
        "kafka.replication.factor",
        lambda topic: topic.replicas,
        lambda found: found < REPLICAS,
        str(REPLICAS),
        "add replicas with kafka-reassign-partitions.sh",
    ),
    (
        "kafka.min.insync.replicas",
        lambda topic: topic.min_insync_replicas,
        lambda found: found < IN_SYNC,
        f"{IN_SYNC}, with acks=all of the producers",
        f"{_ALTER_TOPIC} min.insync.replicas={IN_SYNC}",
    ),
    (
        "kafka.unclean.leader.election.enable",
        lambda topic: topic.unclean_leader_election,
        bool,
        "false",
        f"{_ALTER_TOPIC} unclean.leader.election.enable=false",
    ),
)
"""Name, where the value is, whether it is weak, what it should be, what to do."""


_Topics = Fact[Mapping[str, TopicSettings] | None]
_OF_SINK: Final = " of sink "


def _places(facts: DurabilityFacts) -> Iterator[tuple[str, _Topics]]:
    """Yield the source's topics, and those of each Kafka sink, with what follows their names in a message."""
    yield "", facts.topics
    yield from ((f"{_OF_SINK}{name}", topics) for name, topics in facts.sinks.items())


def _of_kafka(facts: DurabilityFacts, known: Iterable[WeakSetting]) -> Iterator[WeakSetting]:
    before = [each for each in known if each.setting.startswith("kafka.")]
    for place, topics in _places(facts):
        if _is_transient(topics):
            yield from (each for each in before if each.where.partition(_OF_SINK)[2] == place.removeprefix(_OF_SINK))
        else:
            yield from _weak_topics(place, topics)


def _weak_topics(place: str, topics: _Topics) -> Iterator[WeakSetting]:
    for name, value, is_weak, wanted, remedy in _TOPIC_SETTINGS:
        weak: dict[int | bool, list[str]] = {}
        for topic, settings in sorted(_known(topics).items()):
            if (found := value(settings)) is not None and is_weak(found):
                weak.setdefault(found, []).append(topic)
        for found, names in sorted(weak.items()):
            where = f"topic {listed(names)}{place}"
            yield WeakSetting(setting=name, where=where, found=str(found).lower(), wanted=wanted, remedy=remedy)


def _unknown_of_kafka(facts: DurabilityFacts) -> Iterator[str]:
    for place, topics in _places(facts):
        if isinstance(topics, Unknown):
            yield f"all settings of Kafka{place} ({topics.message})"
            continue
        if topics.value is None:
            yield f"all settings of Kafka{place}, to which only the driver may connect"
        for name, value, *_ in _TOPIC_SETTINGS:
            if unset := sorted(topic for topic, settings in _known(topics).items() if value(settings) is None):
                yield f"{name} of topic {listed(unset)}{place} (grant the account DescribeConfigs on it)"


def _known(topics: _Topics) -> Mapping[str, TopicSettings]:
    return (topics.value or {}) if isinstance(topics, Known) else {}
