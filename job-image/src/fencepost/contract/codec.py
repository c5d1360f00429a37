"""The JSON of the contract's types: msgspec checks it against their annotations."""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


class ContractError(ValueError):
    """The text cannot be read; the message names the field, or the version that this driver does not know."""


class NotJsonError(ContractError):
    """The text is not JSON, which every release writes: the ConfigMap was changed after the operator created it."""


def encode(value: object) -> str:
    """Return `value` on one line of JSON, keys sorted so that equal values are equal text."""
    return msgspec.json.encode(value, order="sorted").decode()


def decode(kind: type[T], text: str, name: str) -> T:
    """Return the `kind` that `text` has. Unknown fields are ignored; absent optional fields have their defaults.

    `name` is the text's in messages. Raises NotJsonError, and ContractError naming the path of the field that is
    missing or of another type, '$.source.topics[0]'.
    """
    try:
        raw = msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise NotJsonError(f"{name} is not JSON: {error}") from error
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise ContractError(f"{name}: {error}") from error
