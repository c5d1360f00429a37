"""The CustomResourceDefinitions of our kinds in the API server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fencepost_operator.adapters.kubernetes.api_server import ApiServer, Resource
from fencepost_operator.api import GROUP
from fencepost_operator.api.crd_fields import missing_fields

_CRDS: Final = Resource(prefix="/apis/apiextensions.k8s.io/v1", plural="customresourcedefinitions")


@dataclass(frozen=True, slots=True)
class KubernetesCrds:
    """Implements the Crds port."""

    api: ApiServer

    async def missing(self, plural: str) -> tuple[str, ...] | None:
        """Return the fields that the CRD of this kind lacks or limits; None without a CRD: NotServed tells of that."""
        found = await self.api.get(_CRDS, name=f"{plural}.{GROUP}")
        return missing_fields(plural, found) if found is not None else None
