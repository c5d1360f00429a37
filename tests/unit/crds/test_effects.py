"""A change of a field does what its Effect says: the hashes and the spec that stands in follow it, for every field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from typing import Any

import pytest

from fakes.manifests import KEY, body
from fencepost_operator.api import ReconcileConfig, Spec, read_pipeline
from fencepost_operator.api.effects import Effect, declared_effects, settings, standing_in
from fencepost_operator.api.model import Model, fields_of
from fencepost_operator.api.spec.affinity import Affinity
from fencepost_operator.api.spec.checkpoint import PostgresqlSpec, PostgresqlTlsSpec
from fencepost_operator.api.spec.pods import (
    EnvFromReference,
    EnvFromSource,
    EnvVar,
    ResourceRequirements,
    SecretReference,
    Toleration,
)
from fencepost_operator.api.spec.sinks import SINK_KINDS, CreateTableSpec, PostgresqlSinkSpec, PurgeIndexSpec, SinkSpec
from fencepost_operator.api.spec.state import StateSpec
from fencepost_operator.desired.identity.hashes import bounds_hash, fingerprints
from fencepost_operator.desired.jobs.driver_config import driver_config
from unit.crds.schema import at

CREATE = {"partitionKey": ["a"], "clusteringKey": [{"column": "b"}], "compaction": {"class": "c"}}
FULL = body(
    job={"image": "i", "entrypoint": "a:b", "codeFrom": {"configMapName": "code"}},
    sinks=[
        {
            "name": "table",
            "cassandra": {"keyspace": "shop", "table": "orders", "createTable": CREATE, "purgeIndex": {}},
        },
        {
            "name": "topic",
            "kafka": {"topic": "out", "bootstrapServers": "b:9092", "propertiesFrom": {"secretName": "s"}},
        },
        {
            "name": "files",
            "files": {
                "path": "s3://lake/x",
                "folders": ["a"],
                "endpoint": "https://s3",
                "region": "r",
                "credentialsFrom": {"secretName": "s"},
            },
        },
        {"name": "http", "http": {"url": "https://h", "headersFrom": {"secretName": "s"}}},
        {"name": "function", "function": {"entrypoint": "a:b", "optionsFrom": {"secretName": "s"}}},
        {"name": "plugin", "plugin": {"kind": "p", "optionsFrom": {"secretName": "s"}}},
    ],
    source={
        "kafka": {
            "bootstrapServers": "b:9092",
            "topics": ["t"],
            "propertiesFrom": {"secretName": "s"},
            "schemaRegistry": {"url": "http://r", "credentialsFrom": {"secretName": "s"}},
            "key": {"format": "avro", "subject": "k", "version": 1},
            "value": {"format": "protobuf", "subject": "v", "version": 1, "message": "m"},
        },
        "pinnedStates": [{"name": "n", "pipeline": "p", "snapshot": "6b1cf520-cb3f-11f0-8000-0123456789ab"}],
    },
    checkpoint={
        "cassandra": {
            "contactPoints": ["c"],
            "tls": {"secretName": "t"},
            "credentialsFrom": {"secretName": "s"},
            "localDatacenter": "d",
            "consistency": "QUORUM",
        }
    },
    cluster={"autoscale": {"maxWorkers": 3}},
    onPoison={"action": "deadLetter"},
    failover={},
    observability={
        "openTelemetry": {"endpoint": "http://c", "credentialsFrom": {"secretName": "s"}},
        "openLineage": {"url": "http://l", "credentialsFrom": {"secretName": "s"}},
    },
)
READ = read_pipeline(FULL).spec
assert isinstance(READ, Spec)
ELSEWHERE = PostgresqlSpec(
    hosts=("h",),
    tls=PostgresqlTlsSpec(secret_name="t", server_name="n"),  # noqa: S106 - a Secret's name
    credentials_from=SecretReference(secret_name="s"),  # noqa: S106
)
BESIDE = SinkSpec(name="beside", postgresql=PostgresqlSinkSpec(table="t"))
BEFORE = replace(
    READ,
    state=StateSpec(),
    checkpoint=replace(READ.checkpoint, postgresql=ELSEWHERE),
    sinks=(*READ.sinks, BESIDE),
)
"""`parse` refuses some fields of a stateful pipeline, and a second database of the fence."""
Place = tuple[str | int, ...]


def leaves(value: Any, place: Place = (), path: str = "") -> Iterator[tuple[Place, str]]:
    """Yield where each field is in the dataclasses, and its path in the CRD."""
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields_of(value):
            inner = f"{path}.{field.in_json}".removeprefix(".")
            yield from leaves(getattr(value, field.name), (*place, field.name), inner)
    elif isinstance(value, tuple) and value and is_dataclass(value[0]):
        for index, part in enumerate(value):
            yield from leaves(part, (*place, index), f"{path}[]")
    else:
        yield place, path


def changed(value: Any, place: Place) -> Any:
    """Return the value with another one at that place."""
    if not place:
        return other(value)
    step, rest = place[0], place[1:]
    if isinstance(step, int):
        return (*value[:step], changed(value[step], rest), *value[step + 1 :])
    return replace(value, **{step: changed(getattr(value, step), rest)})


def other(value: Any) -> Any:  # noqa: PLR0911 - a table
    match value:
        case Enum():
            return next(each for each in type(value) if each is not value)
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value}x"
        case tuple() if value:
            return value[:-1] if len(value) > 1 else (f"{value[0]}x",)
        case tuple():
            return ("x",)
        case Mapping():
            return {**value, "x": "1"}
        case _:
            return "x"


GIVEN: dict[str, Any] = {
    "job.env": (EnvVar(name="A", value="1"),),
    "job.envFrom": (EnvFromSource(secret_ref=EnvFromReference(name="s")),),
    "job.resources": ResourceRequirements(limits={"cpu": "1"}),
    "cluster.worker.resources": ResourceRequirements(limits={"cpu": "1"}),
    "cluster.master.resources": ResourceRequirements(limits={"cpu": "1"}),
    "cluster.tolerations": (Toleration(key="a"),),
    "cluster.affinity": Affinity(),
    "source.kafka.minRecordsPerBatch": 5,
    "source.kafka.maxBytesPerBatch": 1024**3,
}
KINDS = {f"sinks[].{kind}" for kind in SINK_KINDS}
"""A sink has one of them; each stands for its fields."""
FIELDS = {path: place for place, path in leaves(BEFORE) if path not in KINDS}
EFFECTS = dict(declared_effects(Spec))


def with_change(path: str) -> Spec:
    assert isinstance(BEFORE, Spec)
    place = FIELDS[path]
    found = _set(BEFORE, place, GIVEN[path]) if path in GIVEN else changed(BEFORE, place)
    assert isinstance(found, Spec)
    return found


def _set(value: Any, place: Place, given: Any) -> Any:
    step = place[0]
    assert isinstance(step, str)
    return replace(value, **{step: given if len(place) == 1 else _set(getattr(value, step), place[1:], given)})


def effect_of(path: str) -> Effect:
    steps = path.replace("[]", "").split(".")
    places = (".".join(steps[:count]) for count in range(len(steps), 0, -1))
    return next(EFFECTS[place] for place in places if place in EFFECTS)


@pytest.mark.parametrize("path", sorted(FIELDS))
def test_a_change_of_a_field_does_what_its_effect_says(path: str) -> None:
    assert isinstance(BEFORE, Spec)
    references: dict[str, str | None] = {}
    after, effect = with_change(path), effect_of(path)
    was, now = fingerprints(BEFORE, references), fingerprints(after, references)
    assert after != BEFORE
    assert (now.cluster != was.cluster) is (effect is Effect.NEW_CLUSTER)
    assert (now.run != was.run) is (effect in {Effect.NEW_CLUSTER, Effect.NEW_RUN})
    assert (bounds_hash(after) != bounds_hash(BEFORE)) is (effect is Effect.NEXT_RUN)
    assert (standing_in(BEFORE, after) == BEFORE) is effect.starts_a_run
    assert (standing_in(BEFORE, after) == after) is not effect.starts_a_run
    if effect is Effect.NEXT_RUN and path != "onPoison.failures":
        assert run_of(after) != run_of(BEFORE), "the configuration of the next run has it"


def test_an_image_of_the_driver_alone_needs_no_new_cluster() -> None:
    assert isinstance(BEFORE, Spec)
    one = replace(BEFORE, cluster=replace(BEFORE.cluster, image="workers"))
    was, now = (fingerprints(each, {}) for each in (one, replace(one, job=replace(one.job, image="other"))))
    assert now.cluster == was.cluster
    assert now.run != was.run


def test_a_field_without_an_effect_is_refused() -> None:
    @dataclass(frozen=True, slots=True)
    class Unmarked(Model):
        field: int = 1

    with pytest.raises(TypeError, match="field has no Effect"):
        list(settings(Unmarked(field=2)))


def run_of(spec: Spec) -> object:
    config = ReconcileConfig(cluster_uid="c")
    return driver_config(key=KEY, spec=spec, references={}, config=config, epoch=1, generation=1)


def crd_fields(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the paths of the CRD's fields that have no fields of their own."""
    for name, field in schema.get("properties", {}).items():
        inner = f"{path}.{name}".removeprefix(".")
        item = field.get("items", {})
        if "properties" in field and not inner.endswith(("affinity", "resources")):
            yield from crd_fields(field, inner)
        elif "properties" in item and not inner.startswith(("job.env", "job.imagePull", "cluster.tolerations")):
            yield from crd_fields(item, f"{inner}[]")
        else:
            yield inner


@pytest.mark.parametrize("path", sorted(crd_fields(at("spec"))))
def test_every_field_of_the_crd_has_an_effect_and_is_in_this_test(path: str) -> None:
    assert effect_of(path)
    assert path in FIELDS


def test_the_full_spec_leaves_no_object_out() -> None:
    kinds = {type(part) for part in _parts(BEFORE)}
    assert {CreateTableSpec, PurgeIndexSpec, SecretReference} <= kinds


def _parts(value: Any) -> Iterator[Any]:
    if is_dataclass(value) and not isinstance(value, type):
        yield value
        for field in fields(value):
            yield from _parts(getattr(value, field.name))
    elif isinstance(value, tuple):
        for part in value:
            yield from _parts(part)
