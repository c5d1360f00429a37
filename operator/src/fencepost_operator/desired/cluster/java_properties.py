"""Java's properties format, as `java.util.Properties.load` reads it.

The result is printable ASCII with one property per line, whatever the keys and values hold: every other character is
written as `\\uXXXX`.  Such a file can be passed through any other format without a change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f", "\\": "\\\\"}
_ESCAPED: Final = re.compile(r"[^ -~]|\\")
_SEPARATORS: Final = re.compile(r"[#!=: ]")


def dump(properties: Mapping[str, str]) -> str:
    """Return the text of a properties file, in the order of the mapping."""
    return "".join(f"{_key(key)}={_value(value)}\n" for key, value in properties.items())


def _key(text: str) -> str:
    return _SEPARATORS.sub(r"\\\g<0>", _text(text))


def _value(text: str) -> str:
    """Escape a value. Its leading spaces are escaped too, since a reader skips them after the separator."""
    shown = text.lstrip(" ")
    return "\\ " * (len(text) - len(shown)) + _text(shown)


def _text(text: str) -> str:
    return _ESCAPED.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    """Return a character as Java escapes it, by its UTF-16 code units: a pair as two."""
    character = found[0]
    if character in _SHORT:
        return _SHORT[character]
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
