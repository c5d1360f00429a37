"""Which snapshots of a pipeline are pinned: by specs that run or may run, and by the trial of an upgrade.

Bodies are read as the API server has them, whatever else their specs say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from fencepost_operator.api.model import name_in_json
from fencepost_operator.api.status import KEPT_SPECS

_REVISIONS: Final = tuple((name_in_json(name), "revision") for name in KEPT_SPECS)
"""Where a status names the kept specs that may run."""


def pinned_by_pipelines(bodies: Iterable[Mapping[str, Any]], pipeline: str) -> tuple[set[str], set[str]]:
    """Return the ids of the snapshots that the bodies of a namespace pin, and the revisions that may pin others."""
    found, revisions = set[str](), set[str]()
    for body in bodies:
        found.update(_pinned(body.get("spec"), pipeline))
        revisions.update(_texts(body.get("status"), *_REVISIONS))
        metadata = body.get("metadata")
        if isinstance(metadata, Mapping) and metadata.get("name") == pipeline:
            found.update(_texts(body.get("status"), ("upgradeTrial", "snapshot")))
    return found, revisions


def pinned_by_revision(body: Mapping[str, Any], pipeline: str) -> Iterator[str]:
    """Yield the ids of the snapshots that the spec in a ControllerRevision pins."""
    data = body.get("data")
    yield from _pinned(data.get("spec") if isinstance(data, Mapping) else None, pipeline)


def _pinned(spec: object, pipeline: str) -> Iterator[str]:
    entries = _at(spec, "source", "pinnedStates")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and entry.get("pipeline") == pipeline:
            yield str(entry.get("snapshot"))


def _texts(status: object, *places: tuple[str, ...]) -> Iterator[str]:
    """Yield what a status has at these places, as far as it is a text."""
    for place in places:
        found = _at(status, *place)
        if isinstance(found, str) and found:
            yield found


def _at(body: object, *names: str) -> object:
    found = body
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
