"""The pipeline as the owner of what the operator creates: the garbage collector removes it with the pipeline."""

from __future__ import annotations

from typing import Any

from fencepost_operator.api import GROUP, KIND, VERSION, Pipeline


def owner_reference(pipeline: Pipeline) -> dict[str, Any]:
    """Return the controller reference to the pipeline object."""
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "name": pipeline.key.name,
        "uid": pipeline.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
