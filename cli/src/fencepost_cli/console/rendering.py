"""Templates to pages: all text is escaped, and on one line where one line is shown."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse

from fencepost_cli.readable import age, timestamp
from fencepost_operator.text import single_line

_LONGEST: Final = 2000
_INDENT: Final = 40
_NOTHING: Final = "-"


def _line(text: object, limit: int = _LONGEST) -> str:
    """Return a tenant's text without line breaks, control characters and bidirectional marks."""
    return single_line(text, limit=limit)


def _block_line(text: str) -> str:
    """Return a line of a block, with its indentation."""
    indent = len(text) - len(text.lstrip(" "))
    return " " * min(indent, _INDENT) + single_line(text, limit=_LONGEST)


def _prose(text: str) -> str:
    """Return a clause of the guidance as the begin of a sentence, without Markdown."""
    return f"{text[:1].upper()}{text[1:]}".replace("`", "")


def _count(value: int | None) -> str:
    return _NOTHING if value is None else f"{value:,}"


def _ago(moment: datetime | None) -> str:
    return _NOTHING if moment is None else age(datetime.now(UTC) - moment)


def _moment(moment: datetime | None) -> str:
    return _NOTHING if moment is None else timestamp(moment)


def _segment(text: object) -> str:
    """Return a text as one part of a path."""
    return quote(str(text), safe="")


def _query(values: Mapping[str, str]) -> str:
    return urlencode({name: value for name, value in values.items() if value})


_TEMPLATES: Final = Environment(
    loader=PackageLoader("fencepost_cli.console"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters.update(
    ago=_ago, block_line=_block_line, count=_count, line=_line, moment=_moment, prose=_prose, query=_query,
    segment=_segment,
)  # fmt: skip


def text_of(template: str, values: Mapping[str, Any]) -> str:
    """Return a template filled with values."""
    return _TEMPLATES.get_template(template).render(values)


def page(template: str, values: Mapping[str, Any], *, status: int = 200) -> HTMLResponse:
    """Return a template as an answer."""
    return HTMLResponse(text_of(template, values), status)
