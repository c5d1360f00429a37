"""Writes a status although the CRD, which is another release's, refuses some of its values.

One word that the CRD does not know must not keep a run from being recorded, and so from being started.  What is refused
is left out, as the API server itself leaves out what it does not know: the caller sees in the answer what was not kept.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from fencepost.contract.guidance.operations import APPLY_CRDS
from fencepost_operator.adapters.kubernetes.api_server import Invalid, Json
from fencepost_operator.api.codec import remove
from fencepost_operator.errors import Rejected

_TRIES: Final = 4
"""Writes of one status: each leaves out what the one before was refused for, or the part that cannot be without it."""
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


async def replace_status(replace: Callable[[Json], Awaitable[Json]], body: Json) -> Json:
    """Let `replace` write an object, and return it as it is then.  What is refused is taken out of `body`'s status.

    Raises PortError, Conflict also when the object is gone.  A refused condition is told, never left out: a status
    without conditions looks healthy to whoever waits for them.
    """
    for _ in range(_TRIES):
        try:
            return await replace(body)
        except Invalid as error:
            refusal = error
            if not _leave_out(body["status"], error.places):
                break
    remedy = f"correct what the message names, or apply the CRDs of the operator's chart: {APPLY_CRDS}"
    raise Rejected(str(refusal), remedy=remedy) from refusal


def _leave_out(status: Json, places: Iterable[str]) -> bool:
    """Leave out what is at the places, all of them looked up in the status as it was sent; return whether any was."""
    found = [_lookup(status, place.removeprefix("status")) for place in places if place.startswith("status.")]
    removed = [remove(status, steps) for steps in found if steps and steps[0] != "conditions"]
    return any(removed)


def _lookup(status: Json, place: str) -> list[str]:
    """Return the keys that lead to a place: as far as they are there, and not into a list.

    A place ends early where a required value is missing, or where a key has dots in it.
    """
    found: list[str] = []
    part: object = status
    for name, _ in _STEP.findall(place):
        if not isinstance(part, dict) or name not in part:
            break
        found.append(name)
        part = part[name]
    return found
