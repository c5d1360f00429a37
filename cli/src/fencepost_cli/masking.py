"""Masks: the content of a field, replaced by a keyed hash that has the same shape.

The same content has the same mask wherever it stands, so what was joined by it still is. Two contents may get the same
mask: there are ten masks of one digit.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from fencepost.contract import offset_key
from fencepost.local.record_lines import FileRecord
from fencepost_cli.errors import CliError

PARTS: Final = ("key", "value", "headers")
"""What the first word of a mask may be; one that begins otherwise is of the value."""
SYNTAX: Final = "write key, key.FIELD, value, value.FIELD or headers.NAME; FIELD may be a path, as in customer.email"
_INTEGER: Final = re.compile("-?(0|[1-9][0-9]{0,37})", re.ASCII)
_HEXADECIMAL: Final = re.compile("[0-9a-f]{8,}|[0-9A-F]{8,}", re.ASCII)
_UUID: Final = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
_UUID_KIND: Final = (14, 19)
"""The places of a UUID that say how the others are read."""
_LIMITS: Final = (2**7 - 1, 2**15 - 1, 2**31 - 1, 2**63 - 1)
"""The largest integers of Spark's types: a mask fits into the type that its content fits into."""


class _Unmaskable(Exception):
    """What cannot be masked: the message says what it is, and never what it holds."""


@dataclass(frozen=True, slots=True)
class Mask:
    """`part` of a record, and the way to a field of its JSON; for headers, the name."""

    part: str
    path: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join((self.part, *self.path))


def parse_masks(texts: Iterable[str]) -> tuple[Mask, ...]:
    """Return the masks of the command line. Raises CliError."""
    return tuple(_parse(text) for text in texts)


def _parse(text: str) -> Mask:
    words = text.split(".")
    part, *path = words if words[0] in PARTS else ["value", *words]
    if part == "headers":
        path = [".".join(path)] if path else [""]
    if not all(path):
        raise CliError(f"--mask {text!r} names no field", remedy=SYNTAX)
    return Mask(part, tuple(path))


@dataclass(slots=True)
class Masking:
    """Masks records under one key; whoever has the key can try contents."""

    masks: Sequence[Mask]
    key: bytes = field(repr=False)
    _used: set[Mask] = field(default_factory=set)

    def apply(self, record: FileRecord) -> FileRecord:
        """Return a record with its masks. Raises CliError for content that cannot be masked, without quoting it."""
        for mask in self.masks:
            try:
                record = self._masked(record, mask)
            except _Unmaskable as error:
                place = f"{offset_key(record.topic or '', record.partition)}@{record.offset}"
                raise CliError(
                    f"--mask {mask}: at {place} it {error}",
                    remedy="mask another field, or choose other records with --around",
                ) from error
        return record

    def check_used(self) -> None:
        """Raise CliError for a mask of something that no record has."""
        for mask in self.masks:
            if mask not in self._used:
                raise CliError(f"--mask {mask}: no record of the sample has it", remedy=SYNTAX)

    def _masked(self, record: FileRecord, mask: Mask) -> FileRecord:
        match mask.part:
            case "key":
                return replace(record, key=self._content(record.key, mask))
            case "value":
                return replace(record, value=self._content(record.value, mask))
            case _:
                named = Mask("headers", ())
                headers = [
                    (name, self._content(content, named) if (name,) == mask.path else content)
                    for name, content in record.headers
                ]
                if any((name,) == mask.path for name, _ in headers):
                    self._used.add(mask)
                return replace(record, headers=tuple(headers))

    def _content(self, content: bytes | None, mask: Mask) -> bytes | None:
        if content is None:
            return None
        found = _container(content)
        if found is None and mask.path:
            raise _Unmaskable("is in something else than a JSON object")
        if found is not None:
            masked = self._field(found, mask.path, mask)
            # A lone surrogate, which JSON has as an escape, stays one.
            return json.dumps(masked, separators=(",", ":"), ensure_ascii=False).encode(errors="backslashreplace")
        self._used.add(mask)
        try:
            return self._text(content.decode()).encode()
        except UnicodeDecodeError:
            return self._stream(content, len(content))

    def _field(self, value: Any, path: tuple[str, ...], mask: Mask) -> Any:  # noqa: ANN401 - JSON
        """Return JSON with a mask in place of the field at a path; a list stands for each of its elements."""
        if not path:
            self._used.add(mask)
            return self._leaf(value)
        if isinstance(value, list):
            return [self._field(each, path, mask) for each in value]
        if isinstance(value, dict) and path[0] in value:
            return {**value, path[0]: self._field(value[path[0]], path[1:], mask)}
        return value

    def _leaf(self, value: Any) -> Any:  # noqa: ANN401 - JSON
        match value:
            case None:
                return None
            case bool():
                raise _Unmaskable("is a boolean, and its mask would be one of two values")
            case str():
                return self._text(value)
            case int():
                return self._integer(value)
            case float():
                return self._number(value)
            case list():
                return [self._leaf(each) for each in value]
            case _:
                return {name: self._leaf(each) for name, each in value.items()}

    def _text(self, text: str) -> str:
        """Return letters for letters and digits for digits; all else stays. Raises _Unmaskable for a time."""
        if _INTEGER.fullmatch(text):
            return str(self._integer(int(text)))
        if _is_time(text):
            raise _Unmaskable("is a time, and its mask would be none")
        stream = self._stream(text.encode(errors="surrogatepass"), len(text))
        if _UUID.fullmatch(text):
            masked = [_hexadecimal(one, number) for one, number in zip(text, stream, strict=True)]
            return "".join(text[place] if place in _UUID_KIND else one for place, one in enumerate(masked))
        same = _hexadecimal if _is_hexadecimal(text) else _alike
        return "".join(same(one, number) for one, number in zip(text, stream, strict=True))

    def _integer(self, value: int) -> int:
        """Return an integer with as many digits, which fits into the same types."""
        size = abs(value)
        digits = len(str(size))
        low, high = int(f"1{'0' * (digits - 1)}") if digits > 1 else int(value < 0), int("9" * digits)
        high = min(high, next((limit for limit in _LIMITS if size <= limit), high))
        number = int.from_bytes(self._stream(str(size).encode(), 32))
        return (low + number % (high - low + 1)) * (-1 if value < 0 else 1)

    def _number(self, value: float) -> float:
        """Return a number whose digits are others, but for zeros and the exponent."""
        mantissa, exponent, power = repr(value).partition("e")
        if not any(one.isdigit() for one in mantissa):
            raise _Unmaskable("is not a finite number")
        stream = self._stream(mantissa.encode(), len(mantissa))
        masked = [
            str(1 + number % 9) if one in "123456789" else one for one, number in zip(mantissa, stream, strict=True)
        ]
        return float("".join(masked) + exponent + power)

    def _stream(self, content: bytes, length: int) -> bytes:
        return hashlib.shake_256(hmac.digest(self.key, content, "sha256")).digest(length)


def _container(content: bytes) -> Any:  # noqa: ANN401 - JSON
    """Return the JSON object or list that some bytes are; None for anything else."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict | list) else None


def _is_time(text: str) -> bool:
    if text.isdigit():
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_hexadecimal(text: str) -> bool:
    return _HEXADECIMAL.fullmatch(text) is not None and not text.isalpha()


def _alike(one: str, number: int) -> str:
    if one.isdigit():
        return string.digits[number % 10]
    if one.isalpha():
        return (string.ascii_uppercase if one.isupper() else string.ascii_lowercase)[number % 26]
    return one


def _hexadecimal(one: str, number: int) -> str:
    digits = string.digits + ("ABCDEF" if one.isupper() else "abcdef")
    return digits[number % 16] if one in string.hexdigits else one
