"""The ControllerRevision that keeps a spec which was in effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencepost_operator.api import Pipeline, Revision, Spec
from fencepost_operator.desired import labels
from fencepost_operator.desired.identity.hashes import config_map_hashes
from fencepost_operator.desired.owner import owner_reference


def revision_of(pipeline: Pipeline, spec: Spec, references: Mapping[str, str | None]) -> Revision:
    """Return the revision of a pipeline's spec; `references` holds a hash of each object that the spec names.

    Of these, the ConfigMaps count that the code and its environment come from.  A password may change at any time.
    """
    return Revision.of(pipeline.key.name, pipeline.written, config_map_hashes(spec, references))


def controller_revision(pipeline: Pipeline, revision: Revision) -> dict[str, Any]:
    """Return the manifest; an equal spec has the same one but for the generation that it was first seen in."""
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": revision.name,
            "namespace": pipeline.key.namespace,
            "labels": labels.revision_labels(pipeline.key),
            "ownerReferences": [owner_reference(pipeline)],
        },
        "revision": pipeline.generation,
        "data": revision.data,
    }
