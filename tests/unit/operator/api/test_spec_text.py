"""No text of a tenant holds what ends a line: in the spec's own words, at any depth, in keys and values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.manifests import spec
from fencepost_operator.api import Spec, parse
from fencepost_operator.api.forbidden_text import FORBIDDEN

BREAKS = "\n\r\x0b\x0c\x85\u2028\u2029\x00\x1b\x7f\ud800"


def strings(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return ([path] if isinstance(value, str) else []) + [p for key, part in parts for p in strings(part, (*path, key))]


def full() -> dict[str, Any]:
    return spec(
        cluster={
            "image": "i", "sparkConf": {"spark.a": "b"}, "nodeSelector": {"a": "b"}, "priorityClassName": "p",
            "tolerations": [{"key": "a", "value": "b"}], "worker": {"resources": {"limits": {"cpu": "1"}}},
            "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "a"}]}},
        },
        job={
            "image": "i", "entrypoint": "a:b", "args": ["a"], "env": [{"name": "A", "value": "b"}],
            "envFrom": [{"secretRef": {"name": "s"}}], "codeFrom": {"configMapName": "c"},
        },
    )  # fmt: skip


def test_the_full_spec_is_one() -> None:
    assert isinstance(parse({"spec": full()}), Spec)


@pytest.mark.parametrize("character", BREAKS, ids=lambda c: f"U+{ord(c):04X}")
@pytest.mark.parametrize("path", strings(full()), ids=lambda path: ".".join(map(str, path)))
def test_a_line_break_in_any_text_is_a_violation_there(path: tuple[str | int, ...], character: str) -> None:
    body = full()
    place: Any = body
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] += f"{character}x"
    found = parse({"spec": body})
    assert not isinstance(found, Spec)
    field = "spec" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    assert any(v.field == field and f"U+{ord(character):04X}" in v.problem and v.remedy for v in found), found


@pytest.mark.parametrize("character", BREAKS, ids=lambda c: f"U+{ord(c):04X}")
def test_a_line_break_in_a_key_is_a_violation_and_is_not_repeated(character: str) -> None:
    body = full()
    body["cluster"]["sparkConf"] = {f"spark.a{character}b": "c"}
    found = parse({"spec": body})
    assert not isinstance(found, Spec)
    assert any("its name" in violation.problem for violation in found)
    assert all(character not in str(violation) for violation in found)


def test_the_merge_key_of_yaml_is_a_violation_there() -> None:
    """The operator applies no manifest with such a key, quoted or not."""
    body = full()
    body["cluster"]["affinity"]["podAffinity"]["<<"] = {"topologyKey": "b"}
    found = parse({"spec": body})
    assert not isinstance(found, Spec)
    assert [violation.field for violation in found] == ["spec.cluster.affinity.podAffinity.<<"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from([*spec(), "cluster", "suspend", "restart", "batchInterval"]), JSON))
def test_no_spec_makes_parse_raise(changes: dict[str, Any]) -> None:
    found = parse({"spec": spec(**changes)})
    if not isinstance(found, Spec):
        assert all(len(str(violation)) < 2000 for violation in found)
        assert not any(FORBIDDEN.search(str(violation)) for violation in found), found
