"""What the schema of a type is, and the YAML of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

import pytest
import yaml
from pydantic import Field

from fencepost_operator.api.checks import DurationRange, Matching, Rule, keyed_by
from fencepost_operator.api.fields import Seconds
from fencepost_operator.api.model import Model
from generators.crds import Schema, Schemas
from generators.yaml_text import yaml_text


class Colour(StrEnum):
    """Words."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Model):
    """A part of the whole."""

    name: Annotated[str, Field(max_length=8), Matching("[a-z]+", "a name", in_words=True)]
    """Name of the part."""
    colour: Colour = Colour.RED
    """Its colour.

    Developers read this paragraph.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole(Model):
    """Everything."""

    MARKS = (Rule("self.count > 0", "must not be empty", field_path=".parts"),)

    count: Annotated[int, Field(ge=1, le=9)]
    """How many."""
    parts: Annotated[tuple[Part, ...], keyed_by("name")] = ()
    """The parts."""
    main_part: Part | None = None
    wait_for: Annotated[Seconds, DurationRange("1s", "1h", "5s")] = 90.0
    """How long."""
    labels: Annotated[Mapping[Annotated[str, Field(max_length=3)], int], Field(max_length=2)] = field(
        default_factory=dict
    )
    """Numbers by label."""


PART: Schema = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {
            "description": "Name of the part.",
            "type": "string",
            "maxLength": 8,
            "x-kubernetes-validations": [{"rule": "self.matches('^[a-z]+$')", "message": "name: must be a name"}],
        },
        "colour": {"description": "Its colour.", "type": "string", "enum": ["red", "blue"], "default": "red"},
    },
}


def test_a_field_says_its_type_bounds_rules_default_and_description() -> None:
    duration = "self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$')"
    within = f"{duration} && duration(self) >= duration('1s') && duration(self) <= duration('1h')"
    message = "waitFor: must be a duration from 1s to 1h, such as 5s"
    assert Schemas(is_open=False).of(Whole, (), "whole") == {
        "type": "object",
        "required": ["count"],
        "x-kubernetes-validations": [
            {"fieldPath": ".parts", "rule": "self.count > 0", "message": "parts: must not be empty"}
        ],
        "properties": {
            "count": {"description": "How many.", "type": "integer", "format": "int32", "minimum": 1, "maximum": 9},
            "parts": {
                "description": "The parts.",
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": PART,
            },
            "mainPart": {"description": "A part of the whole.", **PART},
            "waitFor": {
                "description": "How long.",
                "type": "string",
                "maxLength": 32,
                "default": "90s",
                "x-kubernetes-validations": [{"rule": within, "message": message}],
            },
            "labels": {
                "description": "Numbers by label.",
                "type": "object",
                "maxProperties": 2,
                "x-kubernetes-validations": [
                    {
                        "rule": "self.all(k, k.size() <= 3)",
                        "message": "labels: every key must have at most 3 characters",
                    }
                ],
                "additionalProperties": {"type": "integer", "format": "int64"},
            },
        },
    }


def test_a_status_that_another_release_wrote_passes() -> None:
    found = Schemas(is_open=True).of(Part, (), "part")
    assert "required" not in found
    assert found["properties"]["colour"] == {"description": "Its colour.", "type": "string"}


def test_a_bound_without_a_keyword_is_an_error() -> None:
    with pytest.raises(TypeError, match="has no keyword"):
        Schemas(is_open=False).of(int, (Field(multiple_of=2),), "even")


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "it's: quoted",
        'a "word"',
        "^\\x00\u2028\u2029$",
        "long words, " * 20 + "end",
        "two  blanks " * 20,
        "n²+n",
        "- a",
        "true",
        "12",
        " a ",
    ],
)
def test_yaml_is_read_as_it_was(text: str) -> None:
    data = {"deep": [{"text": text, "more": {"words": ["a", "b"], "n": 1}}]}
    written = yaml_text(data)
    assert yaml.safe_load(written) == data
    assert not set(written) & set("\u2028\u2029"), "parsers of YAML 1.1 and 1.2 differ about them"


def test_long_text_is_folded() -> None:
    text = " ".join(["word"] * 100)
    lines = yaml_text({"deep": [{"text": text}]}).splitlines()
    assert lines[1] == "  - text: >-"
    assert max(map(len, lines)) <= 120
