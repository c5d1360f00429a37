"""Which tool writes an object from a repository: what another client changes there, it takes back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_BY_KEY: Final[Mapping[str, str]] = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
}
"""Keys of labels and annotations that the tools set on each object."""
_BY_WRITER: Final[Mapping[str, str]] = {
    "argocd-controller": "Argo CD",
    "argocd-application-controller": "Argo CD",
    "kustomize-controller": "Flux",
    "helm-controller": "Flux",
    "helm": "Helm",
}
"""Names under which they write."""


def manager_of(metadata: Mapping[str, Any]) -> str:
    """Return the tool, '' where none is known to write the object."""
    marks = {**_mapping(metadata.get("labels")), **_mapping(metadata.get("annotations"))}
    by_key = next((tool for key, tool in _BY_KEY.items() if key in marks), "")
    by_writer = next((_BY_WRITER[name] for name in _writers(metadata) if name in _BY_WRITER), "")
    return by_key or by_writer or ("Helm" if marks.get("app.kubernetes.io/managed-by") == "Helm" else "")


def _mapping(found: object) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}


def _writers(metadata: Mapping[str, Any]) -> Iterator[str]:
    for entry in metadata.get("managedFields") or ():
        if isinstance(entry, Mapping) and not entry.get("subresource"):
            yield str(entry.get("manager"))
