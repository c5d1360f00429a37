"""Where a run sends traces and lineage. Credentials are never part of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class TelemetryReceiver(StrEnum):
    """Who receives it, named as in `spec.observability`."""

    OPEN_TELEMETRY = "openTelemetry"
    OPEN_LINEAGE = "openLineage"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTelemetryEndpoint:
    """The address of a collector that takes OTLP over HTTP, without the path of a signal."""

    endpoint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLineageEndpoint:
    """The address of a receiver of OpenLineage's events, without the path of its API, and the namespace of the job.

    `namespace` '' is the pipeline's own.
    """

    url: str
    namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observability:
    """The receivers of a run; None sends nothing."""

    open_telemetry: OpenTelemetryEndpoint | None = None
    open_lineage: OpenLineageEndpoint | None = None
