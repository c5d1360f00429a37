"""Java's properties format, as `java.util.Properties.load` reads it.

The result is printable ASCII with one property per line, whatever the keys and values hold: every other character is
written as `\\uXXXX`.  Such a file can be passed through any other format without a change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f", "\\": "\\\\"}
_SPECIAL: Final = frozenset("#!=:")
_PRINTABLE: Final = range(0x20, 0x7F)


def dump(properties: Mapping[str, str]) -> str:
    """Return the text of a properties file, in the order of the mapping."""
    return "".join(f"{_key(key)}={_value(value)}\n" for key, value in properties.items())


def _key(text: str) -> str:
    return "".join(f"\\{unit}" if unit in _SPECIAL or unit == " " else _escaped(unit) for unit in _units(text))


def _value(text: str) -> str:
    """Escape a value. Its leading spaces are escaped too, since a reader skips them after the separator."""
    spaces = len(text) - len(text.lstrip(" "))
    return "\\ " * spaces + "".join(_escaped(unit) for unit in _units(text[spaces:]))


def _escaped(unit: str) -> str:
    if unit in _SHORT:
        return _SHORT[unit]
    return unit if ord(unit) in _PRINTABLE else f"\\u{ord(unit):04x}"


def _units(text: str) -> str:
    """Return the text as UTF-16 code units, one character each: Java escapes a pair as two."""
    raw = text.encode("utf-16-be", "surrogatepass")
    return "".join(chr(int.from_bytes(raw[at : at + 2], "big")) for at in range(0, len(raw), 2))
