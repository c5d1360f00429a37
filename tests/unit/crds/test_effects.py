"""What the table says that a change of a field does is what the hashes make of it, for every field of the CRD."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import reduce
from typing import Any

import pytest
from pydantic.alias_generators import to_camel

from fakes.manifests import KEY, body
from fencepost_operator.api import ReconcileConfig, Spec, read_pipeline
from fencepost_operator.api.effects import EFFECTS, Effect, effect_of
from fencepost_operator.api.spec import SINK_KINDS, CreateTableSpec, PurgeIndexSpec, SecretReference
from fencepost_operator.desired.driver_config import driver_config
from fencepost_operator.desired.hashes import fingerprints
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
        {"name": "function", "function": {"entrypoint": "a:b", "optionsFrom": {"secretName": "s"}}},
        {"name": "plugin", "plugin": {"kind": "p", "optionsFrom": {"secretName": "s"}}},
    ],
    checkpoint={"cassandra": {"contactPoints": ["c"], "tls": {"secretName": "t"}, "localDatacenter": "d"}},
    onPoison={"action": "deadLetter"},
)
BEFORE = read_pipeline(FULL).spec
assert isinstance(BEFORE, Spec)
Place = tuple[str | int, ...]


def leaves(value: Any, place: Place = (), path: str = "") -> Iterator[tuple[Place, str]]:
    """Yield where each field is in the dataclasses, and its path in the CRD."""
    if is_dataclass(value) and not isinstance(value, type):
        hints = typing.get_type_hints(type(value), include_extras=True)
        for field in fields(value):
            inner = f"{path}.{name_in_json(field.name, hints[field.name])}".removeprefix(".")
            yield from leaves(getattr(value, field.name), (*place, field.name), inner)
    elif isinstance(value, tuple) and value and is_dataclass(value[0]):
        for index, part in enumerate(value):
            yield from leaves(part, (*place, index), f"{path}[]")
    else:
        yield place, path


def name_in_json(name: str, hint: Any) -> str:
    for extra in getattr(hint, "__metadata__", ()):
        if alias := getattr(extra, "validation_alias", None):
            return ".".join(alias.path)
    return to_camel(name)


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
    "job.env": ({"name": "A", "value": "1"},),
    "job.envFrom": ({"secretRef": {"name": "s"}},),
    "cluster.tolerations": ({"key": "a"},),
    "source.kafka.minRecordsPerBatch": 5,
    "source.kafka.maxBytesPerBatch": 1024**3,
}
KINDS = {f"sinks[].{kind}" for kind in SINK_KINDS}
"""A sink has one of them; each stands for its fields."""
FIELDS = {path: place for place, path in leaves(BEFORE) if path not in KINDS}


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


@pytest.mark.parametrize("path", sorted(FIELDS))
def test_a_change_of_a_field_does_what_the_table_says(path: str) -> None:
    assert isinstance(BEFORE, Spec)
    references: dict[str, str | None] = {}
    after, effect = with_change(path), effect_of(path)
    was, now = fingerprints(BEFORE, references), fingerprints(after, references)
    assert after != BEFORE
    assert (now.cluster != was.cluster) is (effect is Effect.NEW_CLUSTER)
    assert (now.run != was.run) is (effect in {Effect.NEW_CLUSTER, Effect.NEW_RUN})
    if effect is Effect.NEXT_RUN:
        assert run_of(after) != run_of(BEFORE), "the configuration of the next run has it"


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
def test_every_field_of_the_crd_is_in_the_table_and_in_this_test(path: str) -> None:
    assert effect_of(path)
    assert path in FIELDS


@pytest.mark.parametrize("path", sorted(EFFECTS))
def test_the_table_names_no_other_field(path: str) -> None:
    found = reduce(lambda schema, step: schema["properties"][step], path.split("."), at("spec"))
    assert found


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
