"""What a record holds, as a page shows it: text, or bytes in hexadecimal; never more than a browser can bear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fencepost.fence.letters import DeadLetter
from fencepost_cli.dead_letters import headers_of
from fencepost_cli.readable import printable_text

MOST_CHARACTERS: Final = 64 * 1024
MOST_BYTES: Final = 4 * 1024
MOST_HEADERS: Final = 100
"""A record of 1 MiB has room for some 300,000."""
PER_LINE: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Lines to show of `size` bytes; `is_cut` says that there is more."""

    size: int
    is_text: bool
    lines: Sequence[str]
    is_cut: bool


def content_of(content: bytes | None, size: int | None = None) -> Content | None:
    """Return what to show of bytes; None for a record without them."""
    if content is None:
        return None
    text, size = printable_text(content), len(content) if size is None else size
    if text is not None:
        shown = text[:MOST_CHARACTERS]
        return Content(size=size, is_text=True, lines=shown.split("\n"), is_cut=len(text) > len(shown))
    shown_bytes = content[:MOST_BYTES]
    lines = [_dumped(start, shown_bytes[start : start + PER_LINE]) for start in range(0, len(shown_bytes), PER_LINE)]
    return Content(size=size, is_text=False, lines=lines, is_cut=len(content) > MOST_BYTES)


def headers_shown(letter: DeadLetter) -> Sequence[tuple[str, Content | None]] | None:
    """Return the first headers of a letter, None where it holds something that no driver writes."""
    headers = headers_of(letter)
    return None if headers is None else [(name, content_of(content)) for name, content in headers[:MOST_HEADERS]]


def _dumped(start: int, piece: bytes) -> str:
    readable = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)  # noqa: PLR2004 - printable ASCII
    return f"{start:06x}  {piece.hex(' '):<{PER_LINE * 3}} {readable}"
