"""The check, when the operator starts, that the CustomResourceDefinitions are not older than the operator."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from fencepost.contract.guidance.operations import APPLY_CRDS
from fencepost_operator.adapters.kubernetes.api_server import ApiServer, Resource
from fencepost_operator.api import GROUP
from fencepost_operator.api.crd_fields import KINDS, missing_fields
from fencepost_operator.errors import Denied, Rejected

log = logging.getLogger(__name__)

_CRDS: Final = Resource(prefix="/apis/apiextensions.k8s.io/v1", plural="customresourcedefinitions")
_SHOWN: Final = 5
"""Fields that the message names."""


async def require_current_crds(api: ApiServer) -> None:
    """Raise Rejected where a CRD lacks a field of this operator, which the API server would drop; PortError.

    A CRD that the operator may not read counts as current.
    """
    for plural in KINDS:
        name = f"{plural}.{GROUP}"
        try:
            found = await api.get(_CRDS, name=name)
        except Denied as error:
            log.warning("the CRD %s is not checked: %s", name, error, extra={"remedy": error.remedy})
            continue
        if found is None:
            raise Rejected(f"the CRD {name} does not exist", remedy=f"apply it: {APPLY_CRDS}")
        if missing := missing_fields(plural, found):
            raise Rejected(
                f"the CRD {name} is older than the operator: it lacks {_shortened(missing)}",
                remedy=f"apply the CRDs of the operator's chart: {APPLY_CRDS}",
            )


def _shortened(fields: Sequence[str]) -> str:
    more = len(fields) - _SHOWN
    return ", ".join(fields[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
