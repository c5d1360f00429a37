"""GitHub's Markdown in the form that Python-Markdown reads alike.

The two differ in lists. GitHub takes the width of the marker as the indentation of an item's content, and begins a
list right after a line of text; Python-Markdown wants four spaces, and an empty line before.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

INDENT: Final = 4
_ITEM: Final = re.compile(r"(\s*)([-*+]|\d+[.)])(\s+|$)")
_LINK: Final = re.compile(r"(\]\()([^)\s]+)(\))")
_OWN_BLOCKS: Final = frozenset({"fence", "table_open"})


@dataclass(frozen=True, slots=True)
class _Item:
    """Lines [start, end) of a list's item at a depth from 1 on, whose content begins at a column."""

    start: int
    end: int
    depth: int
    column: int
    marker: str


def with_wide_lists(text: str) -> str:
    """Return the text with four spaces for each level of a list, and empty lines around lists and blocks in items."""
    lines = text.splitlines()
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    items, breaks = _items(tokens, lines), _breaks(tokens, lines)
    made: list[str] = []
    for number, line in enumerate(lines):
        around = [item for item in items if item.start <= number < item.end]
        if number in breaks and made and made[-1].strip():
            made.append("")
        made.append(_indented(line, number, around))
    return "\n".join(made) + "\n"


def _items(tokens: list[Token], lines: list[str]) -> list[_Item]:
    """Return every item, an outer one before those in it."""
    found: list[_Item] = []
    depth = 0
    for token in tokens:
        depth += {"list_item_open": 1, "list_item_close": -1}.get(token.type, 0)
        if token.type == "list_item_open" and token.map is not None:
            first = lines[token.map[0]]
            outer = max((item.column for item in found if item.start <= token.map[0] < item.end), default=0)
            marker = _ITEM.match(first[outer:])
            if marker is None:
                raise ValueError(f"no marker of a list's item in {first!r}")
            column = outer + len(marker[0]) if marker[3] else outer + len(marker[0]) + 1
            found.append(_Item(token.map[0], token.map[1], depth, column, marker[2]))
    return found


def _breaks(tokens: list[Token], lines: list[str]) -> set[int]:
    """Return the lines before which an empty one belongs.

    These are lists outside of lists, blocks within items, and an item after one with such a block.
    """
    found: set[int] = set()
    open_items: list[bool] = []
    """Of each item around a token, whether it holds a block."""
    had_block = False
    for token in tokens:
        match token.type:
            case "list_item_close":
                had_block = open_items.pop()
            case "list_item_open" if had_block and token.map is not None:
                found.add(token.map[0])
        if token.type == "list_item_open":
            open_items.append(False)
        had_block = had_block and token.type == "list_item_close"
        if token.map is None:
            continue
        is_list = token.type in {"bullet_list_open", "ordered_list_open"} and not open_items
        is_block = token.type in _OWN_BLOCKS and bool(open_items)
        if is_block:
            open_items = [True] * len(open_items)
        if is_list or is_block:
            found |= {token.map[0], token.map[1]} if token.map[1] < len(lines) else {token.map[0]}
    return found


def _indented(line: str, number: int, around: list[_Item]) -> str:
    if not around or not line.strip():
        return line
    inner = around[-1]
    if number == inner.start:
        content = line[inner.column :]
        # An item that begins on the line of the outer one, such as `- - a`, is not used in these pages.
        return " " * (INDENT * (inner.depth - 1)) + f"{inner.marker:<{INDENT - 1}} {content}".rstrip()
    kept = line[min(inner.column, len(line) - len(line.lstrip())) :]
    return " " * (INDENT * inner.depth) + kept


def with_links(text: str, moved: Callable[[str], str]) -> str:
    """Return the text with each link's target replaced, outside of code."""
    made: list[str] = []
    fence = ""
    for line in text.split("\n"):
        mark = re.match(r"\s*(```+|~~~+)", line)
        if mark and (not fence or line.strip() == fence):
            fence = "" if fence else mark[1]
        made.append(line if fence or mark else _LINK.sub(lambda link: link[1] + moved(link[2]) + link[3], line))
    return "\n".join(made)
