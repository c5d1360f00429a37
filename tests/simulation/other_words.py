"""What another release of the operator recorded in words that this one does not know."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fencepost_operator.api import ObjectKey, read_status, write_status
from simulation.world import SimulatedWorld

WORD: Final = "WordOfAnotherRelease"


def write(world: SimulatedWorld, key: ObjectKey) -> None:
    """Replace each reason and severity that the status stores, and read it as the operator does."""
    pipeline = world.pipeline(key)
    if pipeline is None:
        return
    written = write_status(pipeline.status)
    for name in ("failure", "rolledBack", "loss"):
        if written.get(name):
            written[name]["reason"] = WORD
    for page in written.get("pages", []):
        page["severity"] = WORD  # its reason is the key under which receivers know it
    world.pipelines[key] = replace(pipeline, status=read_status(written))
