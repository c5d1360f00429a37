"""Which requests an API server gets, from its audit log."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata"}],
}
_OPERATOR: Final = ("fencepost-operator", "kopf", "Helm")
"""How the user agents of the operator and of what it starts begin."""


@dataclass(slots=True)
class Audit:
    """The log of an API server, read from where it was read last."""

    path: Path
    _read: int = 0

    def new(self) -> Counter[str]:
        """Return how many requests of the operator are new, by 'verb resource'."""
        found: Counter[str] = Counter()
        with self.path.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                event = json.loads(line)
                if event.get("userAgent", "").startswith(_OPERATOR):
                    found[f"{event['verb']} {_resource(event)}"] += 1
        return found


def is_write(request: str) -> bool:
    """Return whether a request, as `Audit.new` names it, changes something."""
    return request.partition(" ")[0] in {"create", "update", "patch", "delete"}


def _resource(event: dict[str, dict[str, str]]) -> str:
    place = event.get("objectRef") or {}
    return "/".join(filter(None, (place.get("resource", "other"), place.get("subresource"))))
