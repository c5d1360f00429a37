"""Kubernetes Events about a pipeline: one object for each (reason, message), with a count."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from typing import Any, Final

from fencepost_operator.adapters.kubernetes.api_server import (
    EVENTS,
    FIELD_MANAGER,
    AlreadyExists,
    ApiServer,
    Json,
    NamespaceEnds,
)
from fencepost_operator.api import Event
from fencepost_operator.errors import Conflict, PortError
from fencepost_operator.ports import Clock

log = logging.getLogger(__name__)

_MESSAGE_LIMIT: Final = 1024
"""The API server's limit, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecorder:
    """Writes Events.  Their names follow from their content, so a repeat finds the one that is there."""

    api: ApiServer
    clock: Clock
    instance: str
    """The pod that reports."""

    async def record(self, about: Json, event: Event) -> None:
        """Record one Event about an object; a failure is logged and forgotten: Events are for people."""
        try:
            await self._record(about, event)
        except NamespaceEnds:
            return  # the API server creates nothing there any more
        except (PortError, Conflict) as error:
            log.warning("the Event %s could not be recorded: %s", event.reason, error)

    async def _record(self, about: Json, event: Event) -> None:
        body = self._body(about, event)
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        try:
            await self.api.create(EVENTS, namespace=namespace, body=body)
        except AlreadyExists:
            seen = await self.api.get(EVENTS, namespace=namespace, name=name)
            count = {"count": (seen or {}).get("count", 0) + 1, "lastTimestamp": body["lastTimestamp"]}
            await self.api.merge(EVENTS, namespace=namespace, name=name, body=count)

    def _body(self, about: Json, event: Event) -> dict[str, Any]:
        metadata = about["metadata"]
        now = self.clock.now().isoformat(timespec="seconds").replace("+00:00", "Z")
        identity = "\0".join((metadata["uid"], event.type, event.reason, event.message))
        return {
            "metadata": {
                "name": f"{metadata['name']}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}",
                "namespace": metadata["namespace"],
            },
            "involvedObject": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
            "type": event.type.value,
            "reason": str(event.reason),
            "message": event.message.encode()[:_MESSAGE_LIMIT].decode(errors="ignore"),
            "source": {"component": FIELD_MANAGER},
            "reportingComponent": FIELD_MANAGER,
            "reportingInstance": self.instance,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
