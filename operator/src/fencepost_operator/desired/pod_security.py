"""Security contexts of every pod and container of a pipeline: Pod Security `restricted`, with a read-only root.

The chart of the Spark cluster states them as well, and Helm's post-renderer compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

USER: Final = 10001

POD_SECURITY: Final[Mapping[str, Any]] = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "runAsGroup": 0,
    "fsGroup": 0,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY: Final[Mapping[str, Any]] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
