"""Looks whether the CRDs are those of this operator, at its start and whenever one may have changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from fencepost_operator.api import Reason
from fencepost_operator.api.crds import APPLY_CRDS, KINDS, outdated
from fencepost_operator.backoff import jittered
from fencepost_operator.errors import PortError
from fencepost_operator.ports import Crds

log = logging.getLogger(__name__)

_INTERVAL: Final = 60.0
"""Seconds between two looks."""


def missing_gauge(registry: CollectorRegistry) -> Gauge:
    """Return the metric, by the plural of each kind."""
    return Gauge(
        "fencepost_crd_missing_fields",
        "Fields that the CustomResourceDefinition of a kind lacks: the API server drops them.",
        ["resource"],
        registry=registry,
    )


@dataclass(slots=True)
class CrdCheck:
    """Tells in the log, once for each change, and in a metric. Nothing waits for it: drivers stream on meanwhile."""

    crds: Crds
    registry: CollectorRegistry
    _gauge: Gauge = field(init=False)
    _seen: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _refused: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._gauge = missing_gauge(self.registry)

    async def look(self) -> None:
        """Look at each CRD once."""
        for plural in KINDS:
            try:
                missing = await self.crds.missing(plural)
            except PortError as error:
                self._unknown(plural, error)
            else:
                self._refused.discard(plural)
                self._gauge.labels(plural).set(len(missing))
                self._tell(plural, missing)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Look at once, and again and again while the context lasts."""
        task = asyncio.create_task(self._run(), name="CRDs")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(jittered(_INTERVAL))

    def _tell(self, plural: str, missing: tuple[str, ...]) -> None:
        before, self._seen[plural] = self._seen.get(plural, ()), missing
        if missing == before:
            return
        if missing:
            log.error("%s", outdated(plural, missing).message, extra={"reason": Reason.CRD_OUTDATED})
        else:
            log.info("the CustomResourceDefinition %s is this operator's now", plural, extra={"reason": "CrdUpToDate"})

    def _unknown(self, plural: str, error: PortError) -> None:
        """Say once that it is not known; what is known of it holds."""
        if plural in self._refused:
            return
        self._refused.add(plural)
        log.warning(
            "it is not known whether the CustomResourceDefinition %s is older than this operator: %s", plural, error,
            extra={"reason": Reason.CRD_OUTDATED, "remedy": f"{error.remedy}; or apply it: {APPLY_CRDS}"},
        )  # fmt: skip
