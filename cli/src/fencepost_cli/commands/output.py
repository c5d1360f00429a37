"""What a command prints: a table for people or JSON for scripts on stdout, everything else on stderr."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fencepost_cli.errors import CliError
from fencepost_cli.readable import age, printable_text, timestamp
from fencepost_operator.text import single_line

_WIDE: Final = 1_000
"""Columns when the output is not a terminal: nothing is wrapped or cut."""
NOTHING: Final = "-"
_INDENT: Final = 40
_DUMPED: Final = 512
"""Bytes of a binary value that are shown in text output."""
_DUMPED_PER_LINE: Final = 32


class Format(StrEnum):
    """Of the output."""

    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; numbers are right-aligned."""

    title: str
    is_number: bool = False


def number(title: str) -> Column:
    """Return a column of numbers."""
    return Column(title, is_number=True)


def print_json(value: object) -> None:
    """Print a value of dicts, lists, texts, numbers and times."""
    sys.stdout.write(json.dumps(value, indent=2, default=_plain) + "\n")


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under their titles; either may be a tenant's text."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(
            Text(single_line(column.title, limit=200)),
            justify="right" if column.is_number else "left",
            no_wrap=column.is_number,
        )
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    _stdout().print(table)


def print_fields(fields: Mapping[str, object]) -> None:
    """Print each value on its own line."""
    table = Table(box=None, show_header=False, show_edge=False, pad_edge=False)
    for name, value in fields.items():
        table.add_row(Text(f"{name}:", style="bold"), _cell(value))
    _stdout().print(table)


def print_line(text: str = "", *, style: str = "") -> None:
    """Print a line of the report; the text may be a tenant's."""
    _stdout().print(Text(single_line(text, limit=4000), style=style))


def print_block(text: str, *, limit: int = 16_000) -> None:
    """Print a text of several lines, which may be a tenant's, with its indentation."""
    shown = text if len(text) <= limit else f"{text[:limit]}\n… {len(text) - limit:,} characters more; -o json has all"
    for line in shown.splitlines():
        indent = len(line) - len(line.lstrip(" "))
        _stdout().print(Text("  " + " " * min(indent, _INDENT) + single_line(line, limit=4000)))


def print_bytes(title: str, content: bytes | None, *, size: int | None = None) -> None:
    """Print what a record holds: text where it is printable UTF-8, otherwise its first bytes in hexadecimal."""
    if content is None:
        print_line(f"{title}: none")
        return
    text = printable_text(content)
    print_line(
        f"{title}: {size if size is not None else len(content):,} bytes"
        + ("" if text is not None else ", in hexadecimal")
    )
    if text is not None:
        print_block(text, limit=4000)
        return
    for start in range(0, min(len(content), _DUMPED), _DUMPED_PER_LINE):
        print_line(f"  {start:06x}  {content[start : start + _DUMPED_PER_LINE].hex(' ')}")
    if len(content) > _DUMPED:
        print_line(f"  … {len(content) - _DUMPED:,} bytes more; -o json has all in base64")


def bytes_json(content: bytes | None) -> dict[str, str] | None:
    """Return bytes for a script: as text where it is printable UTF-8, otherwise in base64."""
    if content is None:
        return None
    text = printable_text(content)
    if text is not None:
        return {"encoding": "utf-8", "data": text}
    return {"encoding": "base64", "data": base64.b64encode(content).decode()}


def note(text: str) -> None:
    """Print a message beside the report, on stderr."""
    _stderr().print(Text(f"note: {single_line(text, limit=2000)}"))


def print_error(error: CliError) -> None:
    """Print what happened and what to do; either may quote what a tenant or a broker wrote."""
    console = _stderr()
    console.print(Text.assemble(("error: ", "bold red"), single_line(error, limit=4000)))
    console.print(Text(f"remedy: {single_line(error.remedy, limit=4000)}"))


@contextmanager
def working(doing: str) -> Iterator[_Progress]:
    """Show on stderr what takes long, where that is a terminal."""
    console = _stderr()
    with console.status(Text(doing)) as status:
        yield _Progress(doing, status if console.is_terminal else None)


@dataclass(frozen=True, slots=True)
class _Progress:
    doing: str
    status: Any

    def show(self, text: str) -> None:
        """Show how far it is."""
        if self.status is not None:
            self.status.update(Text(single_line(f"{self.doing}: {text}", limit=200)))


def moment(value: datetime | None, *, now: datetime | None = None) -> str:
    """Return a time with its age: '2026-01-02T03:04:05Z (5m ago)'."""
    if value is None:
        return NOTHING
    seconds = (value - (now or datetime.now(UTC))).total_seconds()
    return f"{timestamp(value)} ({age(timedelta(seconds=-seconds))} ago)"


def _cell(value: object) -> Text:
    if value is None:
        return Text(NOTHING)
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    return Text(f"{value:,}" if isinstance(value, int) else single_line(value, limit=500))


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return timestamp(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON")


def _stdout() -> Console:
    return _console(Console(file=sys.stdout, highlight=False))


def _stderr() -> Console:
    return _console(Console(file=sys.stderr, highlight=False))


def _console(console: Console) -> Console:
    if not console.is_terminal:
        console.width = _WIDE
    return console
