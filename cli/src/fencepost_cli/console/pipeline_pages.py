"""The page of one pipeline, and its parts, each of which says what keeps it from being shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from fencepost.contract.guidance import guidance_of
from fencepost.fence import FenceRow
from fencepost_cli.console.batches import PHASES, batches
from fencepost_cli.console.content import MOST_CHARACTERS, MOST_HEADERS, content_of, headers_shown
from fencepost_cli.console.open_stores import Opened, OpenStores
from fencepost_cli.console.rendering import page
from fencepost_cli.console.story import SPANS, Mark, Story, faults, story
from fencepost_cli.dead_letters import Selection, headers_of, partitions_of, place_of
from fencepost_cli.dead_letters import page as page_of_letters
from fencepost_cli.errors import CliError
from fencepost_cli.explanation import explained, named, steps_of, words_of
from fencepost_cli.ports import Objects, Related
from fencepost_cli.trials import outcome
from fencepost_operator.api import ObjectKey, read_rewind, read_status, read_trial
from fencepost_operator.desired import labels

LETTERS: Final = 50
"""Dead letters on one page."""
TRIALS: Final = 20
SAMPLES: Final = 30
"""Rows of one trial that differ: the operator reports as many."""
TAIL: Final = 2000
"""Lines of the driver's log in which the newest batches are."""
_USUAL_SPAN: Final = "1h"


@dataclass(frozen=True, slots=True)
class PipelinePages:
    """Answers with what the API server and the pipeline's Cassandra have."""

    objects: Objects
    stores: OpenStores

    def whole(self, request: Request) -> Response:
        """Return the page, with the status; the browser asks for the other parts."""
        key = _key(request)
        try:
            values = self._status(key)
        except CliError as error:
            return page("pipeline_failure.html", {"key": key, "error": error}, status=404)
        return page("pipeline.html", {**values, "spans": tuple(SPANS), "span": _span(request)})

    def status(self, request: Request) -> Response:
        """Return state, figures, conditions, and the newest failure with its log."""
        return _part("pipeline_status.html", lambda: self._status(_key(request)))

    def record(self, request: Request) -> Response:
        """Return what the fence's tables have: lag and rate, epochs, commits, snapshots and dead letters."""
        key, span = _key(request), _span(request)

        def read() -> dict[str, Any]:
            marks, note = self._faults(key)
            with self.stores.of(key) as opened:
                return {"key": key, "span": span, "note": note, **_record(opened, marks, span)}

        return _part("pipeline_record.html", read)

    def batches(self, request: Request) -> Response:
        """Return the newest batches by phase."""
        key = _key(request)

        def read() -> dict[str, Any]:
            run = read_status(self.objects.pipeline(key).get("status")).run
            found = batches(self._log(key.namespace, run.pod_name)) if run and run.pod_name else []
            return {"batches": found, "phases": (*PHASES, "other")}

        return _part("pipeline_batches.html", read)

    def trials(self, request: Request) -> Response:
        """Return the PipelineTrials, the newest first."""
        key = _key(request)

        def read() -> dict[str, Any]:
            found = [read_trial(body) for body in self.objects.related(key, Related.TRIALS)]
            newest_first = sorted(found, key=lambda one: one.created_at, reverse=True)[:TRIALS]
            return {"trials": [(one, outcome(one)) for one in newest_first], "most_samples": SAMPLES}

        return _part("pipeline_trials.html", read)

    def rewinds(self, request: Request) -> Response:
        """Return the PipelineRewinds, the newest first."""
        key = _key(request)

        def read() -> dict[str, Any]:
            found = [read_rewind(body) for body in self.objects.related(key, Related.REWINDS)]
            return {"rewinds": sorted(found, key=lambda one: one.created_at, reverse=True)[:LETTERS]}

        return _part("pipeline_rewinds.html", read)

    def letter(self, request: Request) -> Response:
        """Return the page of one dead letter, with its content."""
        key, path = _key(request), request.path_params
        with self.stores.of(key) as opened:
            listed = list(
                opened.store.letters(path["topic"], path["partition"], start=path["offset"], until=path["offset"] + 1)
            )
            letters = [found for one in listed if (found := opened.store.letter(one)) is not None]
        if not letters:
            raise HTTPException(404)
        shown = [
            {
                "letter": one,
                "place": place_of(one),
                "parts": (("Value", content_of(one.value, one.value_size)), ("Key", content_of(one.key))),
                "headers": headers_shown(one),
                "more_headers": max(len(headers_of(one) or ()) - MOST_HEADERS, 0),
                "traceback": (one.traceback or "")[:MOST_CHARACTERS].splitlines(),
            }
            for one in letters
        ]
        return page("letter.html", {"key": key, "shown": shown})

    def runbook(self, request: Request) -> Response:
        """Return what a reason means, with commands for the pipeline that the query names."""
        reason, given = request.path_params["reason"], request.query_params
        guidance = guidance_of(reason)
        if guidance is None:
            raise HTTPException(404)
        words = named(ObjectKey(given.get("namespace", ""), given.get("name", "")))
        if given.get("epoch", "").isdecimal():
            words["EPOCH"] = given["epoch"]
        values = {"reason": reason, "guidance": guidance, "steps": steps_of(reason, words), "words": words}
        return page("runbook.html", values)

    def _status(self, key: ObjectKey) -> dict[str, Any]:
        body = self.objects.pipeline(key)
        return {
            "key": key,
            "status": read_status(body.get("status")),
            "explained": explained(body),
            "words": words_of(body),
        }

    def _faults(self, key: ObjectKey) -> tuple[list[Mark], CliError | None]:
        try:
            return faults(self.objects.related(key, Related.EVENTS)), None
        except CliError as error:
            return [], error

    def _log(self, namespace: str, pod: str) -> str:
        parts = list[str]()
        self.objects.container_log(ObjectKey(namespace, pod), parts.append, container=labels.DRIVER, tail=TAIL)
        return "".join(parts)


def _record(opened: Opened, marks: Sequence[Mark], span: str) -> dict[str, Any]:
    """Return the values of the part. Raises CliError."""
    store, until = opened.store, datetime.now(UTC)
    since = until - SPANS[span]
    entries = opened.history.newest(store, since=since)
    row = store.row()
    found = story(entries, marks, since=since, until=until)
    letters, error = _letters(opened, row)
    return {
        "row": row,
        "story": found,
        "series": json.dumps(_series(found)),
        "peak_lag": max((point.lag for point in found.points if point.lag is not None), default=None),
        "peak_rate": round(max((point.rate or 0 for point in found.points), default=0)),
        "is_idle": not entries,
        "snapshots": store.snapshots()[:LETTERS],
        "letters": letters,
        "letters_error": error,
        "places": [place_of(one) for one in letters],
    }


def _letters(opened: Opened, row: FenceRow | None) -> tuple[Sequence[Any], CliError | None]:
    try:
        wanted = Selection()
        return page_of_letters(opened.store, partitions_of(wanted, row), wanted, limit=LETTERS).letters, None
    except CliError as error:
        return (), error


def _series(found: Story) -> dict[str, list[Any]]:
    """Return what the chart draws: seconds since 1970, values, and moments of epochs and faults."""
    return {
        "time": [point.at.timestamp() for point in found.points],
        "lag": [point.lag for point in found.points],
        "rate": [point.rate for point in found.points],
        "epochs": [epoch.start.timestamp() for epoch in found.epochs[1:]],
        "faults": [mark.at.timestamp() for mark in found.marks],
    }


def _part(template: str, read: Callable[[], dict[str, Any]]) -> Response:
    """Return a part of a page; where it cannot be read, the reason and the remedy in its place."""
    try:
        values = read()
    except CliError as error:
        return page("part_failure.html", {"error": error})
    return page(template, values)


def _key(request: Request) -> ObjectKey:
    return ObjectKey(request.path_params["namespace"], request.path_params["name"])


def _span(request: Request) -> str:
    given = request.query_params.get("span", _USUAL_SPAN)
    return given if given in SPANS else _USUAL_SPAN
