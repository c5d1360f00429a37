"""`spec.observability`: receivers of what the driver says of its batches, besides its metrics and its log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from fencepost.contract import OpenLineageEndpoint, OpenTelemetryEndpoint
from fencepost_operator.api.fields import HttpAddress, Line
from fencepost_operator.api.model import Model
from fencepost_operator.api.spec.pods import SecretReference


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTelemetrySpec(Model, OpenTelemetryEndpoint):
    """A collector that takes OTLP over HTTP as JSON. The driver sends it a trace of each batch."""

    endpoint: HttpAddress
    """Address of the collector, such as http://collector.observability.svc:4318; the driver appends /v1/traces."""
    credentials_from: SecretReference | None = None
    """Secret with the keys that the collector asks for: token, or username and password; headers with a line `name:
    value` for each; ca.crt with the authorities of its certificate; tls.crt and tls.key of a client certificate.
    Without ca.crt, the image's own authorities count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLineageSpec(Model, OpenLineageEndpoint):
    """A receiver of OpenLineage's events. The driver says when a run starts, is running and ends, what it reads and
    what it writes.
    """

    url: HttpAddress
    """Address of the receiver, such as http://marquez.observability.svc:5000; the driver appends /api/v1/lineage."""
    namespace: Annotated[Line, Field(max_length=253)] = ""
    """Namespace of the job in the receiver. By default that of the pipeline."""
    credentials_from: SecretReference | None = None
    """Secret with the keys that the receiver asks for, as of openTelemetry.credentialsFrom; token is its API key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservabilitySpec(Model):
    """Where the driver sends traces of its batches and lineage of its runs. It sends none by default. The operator
    connects to none of the receivers, and none of them delays or fails a batch.
    """

    open_telemetry: OpenTelemetrySpec | None = None
    open_lineage: OpenLineageSpec | None = None

    @property
    def secrets(self) -> dict[str, str]:
        """The Secrets with credentials, by the receiver that asks for them."""
        found: dict[str, SecretReference | None] = {
            "openTelemetry": self.open_telemetry.credentials_from if self.open_telemetry else None,
            "openLineage": self.open_lineage.credentials_from if self.open_lineage else None,
        }
        return {name: each.secret_name for name, each in found.items() if each is not None}
