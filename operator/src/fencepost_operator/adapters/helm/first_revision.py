"""The first revision of a release as Helm writes it: a Secret that any helm reads, and the objects that it names.

Helm takes most of its CPU time to get to know the API server and to compare what is there with what is wanted.  Where
nothing is there, neither is needed.  The format is that of Helm 3 (pkg/storage/driver/secrets.go, pkg/release).
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

PENDING: Final = "pending-install"
DEPLOYED: Final = "deployed"
_DESCRIPTIONS: Final = {PENDING: "Initial install underway", DEPLOYED: "Install complete"}
_OWN_FILES: Final = frozenset({"Chart.yaml", "values.yaml", "values.schema.json"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRevision:
    """A release that begins; `namespace` is where Helm keeps it, `manifest` has an object per line, as JSON."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    """Beside Helm's own."""
    chart: Mapping[str, Any]
    values: Mapping[str, Any] = field(repr=False)
    manifest: str = field(repr=False)
    at: datetime

    def secret(self, status: str) -> dict[str, Any]:
        """Return the Secret at this status."""
        own = {"name": self.name, "owner": "helm", "status": status, "version": "1"}
        moment = "createdAt" if status == PENDING else "modifiedAt"
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": f"sh.helm.release.v1.{self.name}.v1",
                "namespace": self.namespace,
                "labels": {**self.labels, **own, moment: str(int(self.at.timestamp()))},
            },
            "type": "helm.sh/release.v1",
            "data": {"release": base64.b64encode(self._packed(status)).decode()},
        }

    def objects(self) -> Iterator[dict[str, Any]]:
        """Yield the objects in the order in which Helm creates them, with the marks by which it knows its own."""
        ours = {"meta.helm.sh/release-name": self.name, "meta.helm.sh/release-namespace": self.namespace}
        for line in self.manifest.splitlines():
            if line == "---":
                continue
            item = json.loads(line)
            metadata = item["metadata"]
            metadata["labels"] = {**(metadata.get("labels") or {}), "app.kubernetes.io/managed-by": "Helm"}
            metadata["annotations"] = {**(metadata.get("annotations") or {}), **ours}
            yield item

    def _packed(self, status: str) -> bytes:
        moment = self.at.isoformat()
        release = {
            "name": self.name,
            "namespace": self.namespace,
            "version": 1,
            "info": {
                "first_deployed": moment,
                "last_deployed": moment,
                "deleted": "",
                "description": _DESCRIPTIONS[status],
                "status": status,
            },
            "chart": self.chart,
            "config": self.values,
            "manifest": self.manifest,
        }
        return base64.b64encode(gzip.compress(json.dumps(release).encode()))


@cache
def chart_of(folder: Path) -> Mapping[str, Any]:
    """Return a chart as Helm keeps it in a release. Raises OSError, and yaml.YAMLError."""
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    others = [name for name in files if name not in _OWN_FILES]
    return {
        "metadata": yaml.safe_load(files["Chart.yaml"].read_text()),
        "lock": None,
        "templates": [_file(name, files[name]) for name in others if name.startswith("templates/")],
        "values": yaml.safe_load(files["values.yaml"].read_text()),
        "schema": _encoded(files["values.schema.json"]) if "values.schema.json" in files else "",
        "files": [_file(name, files[name]) for name in others if not name.startswith("templates/")],
    }


def _file(name: str, path: Path) -> Mapping[str, str]:
    return {"name": name, "data": _encoded(path)}


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
