"""Looks whether the CRDs are those of this operator, at its start and each minute."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from fencepost.contract.guidance.operations import APPLY_CRDS
from fencepost_operator.api import Reason
from fencepost_operator.api.crd_fields import KINDS, outdated
from fencepost_operator.backoff import jittered
from fencepost_operator.errors import PortError
from fencepost_operator.ports import Crds

log = logging.getLogger(__name__)

_INTERVAL: Final = 60.0
"""Seconds between two looks."""
_REPORTED_AGAIN: Final = 60
"""Looks after which the same is told again: an older log may be gone."""


def missing_gauge(registry: CollectorRegistry) -> Gauge:
    """Return the metric, by the plural of each kind."""
    return Gauge(
        "fencepost_crd_missing_fields",
        "Fields that the CustomResourceDefinition of a kind lacks, or limits in a status: they may not be kept.",
        ["resource"],
        registry=registry,
    )


@dataclass(slots=True)
class CrdCheck:
    """Tells in the log, at each change and each hour, and in a metric. Nothing waits for it: drivers stream on."""

    crds: Crds
    registry: CollectorRegistry
    _gauge: Gauge = field(init=False)
    _seen: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _refused: set[str] = field(default_factory=set)
    _looks: int = 0

    def __post_init__(self) -> None:
        self._gauge = missing_gauge(self.registry)

    async def look(self) -> None:
        """Look at each CRD once."""
        self._looks += 1
        for plural in KINDS:
            try:
                missing = await self.crds.missing(plural)
            except PortError as error:
                self._unknown(plural, error)
            else:
                self._refused.discard(plural)
                self._know(plural, missing)

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
            try:
                await self.look()
            except Exception:
                log.exception("the CustomResourceDefinitions cannot be compared with this operator's types")
            await asyncio.sleep(jittered(_INTERVAL))

    def _know(self, plural: str, missing: tuple[str, ...] | None) -> None:
        if missing is None:
            self._seen.pop(plural, None)
            self._drop(plural)
            return
        self._gauge.labels(plural).set(len(missing))
        before, self._seen[plural] = self._seen.get(plural, ()), missing
        if missing != before or (missing and self._looks % _REPORTED_AGAIN == 0):
            self._tell(plural, missing)

    def _drop(self, plural: str) -> None:
        with suppress(KeyError):
            self._gauge.remove(plural)

    def _tell(self, plural: str, missing: tuple[str, ...]) -> None:
        if missing:
            log.error("%s", outdated(plural, missing).message, extra={"reason": Reason.CRD_OUTDATED})
        else:
            log.info("the CustomResourceDefinition %s is this operator's now", plural, extra={"reason": "CrdUpToDate"})

    def _unknown(self, plural: str, error: PortError) -> None:
        """Say once that it is not known."""
        self._drop(plural)
        if plural in self._refused:
            return
        self._refused.add(plural)
        log.warning(
            "it is not known whether the CustomResourceDefinition %s is older than this operator: %s", plural, error,
            extra={"reason": Reason.CRD_OUTDATED, "remedy": f"{error.remedy}; or apply it: {APPLY_CRDS}"},
        )  # fmt: skip
