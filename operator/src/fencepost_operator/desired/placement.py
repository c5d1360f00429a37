"""On which nodes pods would rather not be."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

_WEIGHT: Final = 100
"""The largest that Kubernetes takes."""


def avoiding(affinity: Mapping[str, Any], nodes: Collection[str]) -> dict[str, Any]:
    """Return an affinity that prefers other nodes than these, beside what it asks for anyway.

    A preference alone: where nothing else has room, a node that is silent for a moment is better than none.
    """
    if not nodes:
        return dict(affinity)
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in sorted(nodes)]
    of_nodes = dict(affinity.get("nodeAffinity") or {})
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    term = {"weight": _WEIGHT, "preference": {"matchFields": fields}}
    return {**affinity, "nodeAffinity": {**of_nodes, preferred: [*(of_nodes.get(preferred) or []), term]}}
