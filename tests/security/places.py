"""Every place of a manifest that holds text of a tenant's: each string of the spec and each key of a map in it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from unit.crds.schema import ROOT, Schema, walk

Step: TypeAlias = str | int

SPEC: Final[Schema] = ROOT["properties"]["spec"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where one text stands: the steps from the manifest's root, and whether it is the key at that place.

    `pattern` is the same place as `unit.crds.schema.walk` writes it.
    """

    steps: tuple[Step, ...]
    is_key: bool
    pattern: str

    @property
    def field(self) -> str:
        """The field as a violation names it, up to the last step without free text."""
        steps = self.steps[:-1] if self.is_key else self.steps
        return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")

    def written(self, body: dict[str, Any], text: str) -> dict[str, Any]:
        """A copy of the manifest with this text in this place."""
        changed = copy.deepcopy(body)
        *way, last = self.steps
        holder: Any = changed
        for step in way:
            holder = holder[step]
        if self.is_key:
            holder[text] = holder.pop(last)
        else:
            holder[last] = text
        return changed


def places(body: dict[str, Any]) -> list[Place]:
    """Every place in a manifest's spec."""
    return list(_places(body["spec"], SPEC, ("spec",), "spec"))


def patterns() -> set[str]:
    """Every place that the CRD has, as patterns."""
    found = set()
    for path, schema in walk(SPEC, "spec"):
        if schema.get("type") == "string" or schema.get("x-kubernetes-int-or-string"):
            found.add(path)
        if "additionalProperties" in schema:
            found.add(f"{path}{{key}}")
    return found


def sample(schema: Schema) -> Any:
    """A value with every field of the schema, and one item in every list and map."""
    if "properties" in schema:
        return {name: sample(part) for name, part in schema["properties"].items()}
    if "items" in schema:
        return [sample(schema["items"])]
    if "additionalProperties" in schema:
        return {"key": sample(schema["additionalProperties"])}
    if "enum" in schema:
        return schema["enum"][0]
    return schema.get("minimum", 1) if schema["type"] == "integer" else "text"


def _places(value: Any, schema: Schema, steps: tuple[Step, ...], pattern: str) -> Iterator[Place]:
    if schema.get("type") == "string" or schema.get("x-kubernetes-int-or-string"):
        yield Place(steps, is_key=False, pattern=pattern)
    for name, part in schema.get("properties", {}).items():
        if name in value:
            yield from _places(value[name], part, (*steps, name), f"{pattern}.{name}")
    if "items" in schema:
        for index, item in enumerate(value):
            yield from _places(item, schema["items"], (*steps, index), f"{pattern}[]")
    if "additionalProperties" in schema:
        for key in value:
            yield Place((*steps, key), is_key=True, pattern=f"{pattern}{{key}}")
            yield from _places(value[key], schema["additionalProperties"], (*steps, key), f"{pattern}{{}}")
