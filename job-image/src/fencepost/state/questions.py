"""What `fencepost state` asks of the process that reads the state with Spark, and what that process answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Self

from fencepost.contract.codec import decode, encode

READER: Final = "fencepost.spark.stateful.state_reader"
"""The module that reads a Request on its standard input, and writes an Answer to its standard output."""
JOIN_SIDES: Final = ("left", "right")
TIMERS: Final = "timers"
"""The store of the timers that are registered with transformWithState."""


class ExportFormat(StrEnum):
    """Of exported rows."""

    PARQUET = "parquet"
    JSONL = "jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """Where all rows go: a folder that does not exist yet, by its absolute path."""

    format: ExportFormat
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsQuestion:
    """Which rows of the state are meant.

    `operator` and `store` may be None where there is only one. `key` maps a field of the key, 'window.start', to its
    value as text. `limit` bounds the rows of an answer; an export has all.
    """

    operator: int | None = None
    store: str | None = None
    key: Mapping[str, str] = field(default_factory=dict)
    limit: int = 100
    export: Export | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorsQuestion:
    """Which operators the state has; `counted`: and how many rows."""

    counted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A question about the checkpoint at a location. `settings` are Spark's, with a secret; `scratch` is a folder."""

    location: str
    settings: Mapping[str, str] = field(repr=False)
    scratch: str
    operators: OperatorsQuestion | None = None
    rows: RowsQuestion | None = None

    def to_json(self) -> str:
        """Return the JSON for the reader."""
        return encode(self)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote. Raises ContractError."""
        return decode(cls, text, "the request")


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """One store of an operator: a side of a join, a variable or the timers of transformWithState, or Spark's 'default'.

    `rows` is None where they were not counted.
    """

    name: str
    rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A stateful operator of the query, by Spark's number and name."""

    id: int
    name: str
    partitions: int
    stores: tuple[Store, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of one store as JSON objects; `columns` are the paths to what an object has, a struct by its fields.

    `more`: the store has others. `exported` is the number of rows that were written to a folder instead.
    """

    operator: int
    store: str
    columns: tuple[tuple[str, ...], ...] = ()
    rows: tuple[str, ...] = ()
    more: bool = False
    exported: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why there is no answer, and what to do."""

    message: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """To a request: one of the three."""

    operators: tuple[Operator, ...] | None = None
    rows: Rows | None = None
    refusal: Refusal | None = None

    def to_json(self) -> str:
        """Return the JSON of the reader's output."""
        return encode(self)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote. Raises ContractError."""
        return decode(cls, text, "the answer")
