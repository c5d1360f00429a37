"""A reader of Java's properties format, by the words of java.util.Properties.load."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_BLANK: Final = " \t\f"
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def load(text: str) -> dict[str, str]:
    """Return the properties in a file's text; of two with one key the last one counts."""
    return {_plain(key): _plain(value) for key, value in map(_split, _logical_lines(text))}


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without comments, each joined with its continuations. Only CR and LF end a line."""
    natural = iter(re.split(r"\r\n|\r|\n", text))
    for start in natural:
        line = start.lstrip(_BLANK)
        if not line or line[0] in "#!":
            continue
        while (len(line) - len(line.rstrip("\\"))) % 2:
            line = line[:-1] + next(natural, "").lstrip(_BLANK)
        yield line


def _split(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in f"=:{_BLANK}":
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return line[:end], rest


def _plain(text: str) -> str:
    def unescape(match: re.Match[str]) -> str:
        digits, letter = match.group(1), match.group(2)
        return chr(int(digits, 16)) if digits else _LETTERS.get(letter, letter)

    units = re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", unescape, text, flags=re.DOTALL)
    return units.encode("utf-16", "surrogatepass").decode("utf-16")  # Java's text is UTF-16: pairs become one character
