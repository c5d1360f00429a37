"""The page of all pipelines, and the part of it that is refreshed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from fencepost_cli.console.fleet import COLUMNS, MOST_ROWS, NUMBERS, ROWS, Choice, chosen, states
from fencepost_cli.console.latest_list import LatestList, Seen
from fencepost_cli.console.rendering import page, text_of
from fencepost_operator.api import State

_LONGEST: Final = 200
"""Characters of a filter."""


@dataclass(frozen=True, slots=True)
class FleetPages:
    """Answers with the list that was read last, as the request's query chooses from it."""

    fleet: LatestList

    def whole(self, request: Request) -> Response:
        """Return the page."""
        values = _values(self.fleet.last(), _choice(request))
        return page("fleet.html", {**values, "states": [state.value for state in State], "rows_html": _part(values)})

    def rows(self, request: Request) -> Response:
        """Return the rows, or nothing where the page has them already."""
        return _rows(request, self.fleet.last())

    def refresh(self, request: Request) -> Response:
        """Return the rows of the latest list, or nothing where the page has them already."""
        return _rows(request, self.fleet.now())


def _rows(request: Request, seen: Seen) -> Response:
    part = _part(_values(seen, _choice(request)))
    if request.query_params.get("seen") == part.version:
        return Response(status_code=204)
    return HTMLResponse(part.html)


def _values(seen: Seen, choice: Choice) -> dict[str, Any]:
    found = chosen(seen.rows, choice)
    return {
        "rows": found[: choice.shown],
        "matching": len(found),
        "more": min(choice.shown + ROWS, MOST_ROWS) if len(found) > choice.shown < MOST_ROWS else None,
        "total": len(seen.rows),
        "counts": states(seen.rows),
        "choice": choice,
        "seen": seen,
        "columns": [(name, name in NUMBERS) for name in COLUMNS],
    }


@dataclass(frozen=True, slots=True)
class _Part:
    html: str
    version: str

    def __html__(self) -> str:
        return self.html


def _part(values: dict[str, Any]) -> _Part:
    text = text_of("fleet_rows.html", values)
    version = hashlib.sha256(text.encode()).hexdigest()[:16]
    return _Part(f'{text}<input type="hidden" form="filter" name="seen" value="{version}">', version)


def _choice(request: Request) -> Choice:
    given = request.query_params
    return Choice(
        words=given.get("words", "")[:_LONGEST],
        state=given.get("state", "")[:_LONGEST],
        sort=given.get("sort", "")[:20],
        shown=_number(given.get("shown", "")),
    )


def _number(text: str) -> int:
    """Return how many rows the query asks for."""
    try:
        return max(ROWS, min(int(text), MOST_ROWS))
    except ValueError:
        return ROWS
