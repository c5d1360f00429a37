"""A schema as a registry has it, and what its readers have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from fencepost.contract import Reason
from fencepost.contract.formats import Format
from fencepost.errors import BadSpec

Convert = Callable[[object], object]
"""Makes of what a library decodes what Arrow takes for the column's type. It does not get None."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema and those that it refers to, each after what it needs itself.

    `text` is JSON; of Protobuf it is the FileDescriptorProto in base64. `references` are pairs of name and text.
    """

    format: Format
    text: str
    references: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """The type of a column, or of a part of it, and what converts its values; None where Arrow takes them."""

    type: pa.DataType
    convert: Convert | None = None

    def listed(self) -> Part:
        """Return a list of these."""
        convert = self.convert
        if convert is None:
            return Part(pa.list_(self.type))
        return Part(
            pa.list_(self.type),
            lambda items: [None if item is None else convert(item) for item in items],  # type: ignore[attr-defined]
        )

    def mapped(self, key: pa.DataType | None = None) -> Part:
        """Return a map to these, from text unless `key` says otherwise. Arrow takes a map as pairs."""
        convert, kind = self.convert, pa.map_(key or pa.string(), self.type)
        if convert is None:
            return Part(kind, lambda entries: list(entries.items()))  # type: ignore[attr-defined]
        return Part(
            kind,
            lambda entries: [
                (name, None if value is None else convert(value))
                for name, value in entries.items()  # type: ignore[attr-defined]
            ],
        )


class Reader(Protocol):
    """Decodes what any schema wrote into the columns of one schema."""

    type: pa.DataType

    def decoder(self, writer: Schema) -> Callable[[bytes], object]:
        """Return what decodes a payload of a writer's schema into a value that Arrow takes for `type`.

        Both raise whatever they find wrong with the schema or the payload.
        """
        ...


def unsupported(place: str, what: str, remedy: str) -> BadSpec:
    """Return the error for a schema that has no columns; `place` is a field of the schema, '' for all of it."""
    return BadSpec(
        f"the schema to read with{f', field {place}' if place else ''}: {what}",
        reason=Reason.SCHEMA_INVALID,
        remedy=remedy,
    )
