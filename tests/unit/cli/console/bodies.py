"""Pipelines as the API server has them, and a browser of the console that shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.testclient import TestClient

from fakes.manifests import body
from fencepost_cli.access import Overrides
from fencepost_cli.console.application import application
from fencepost_cli.console.latest_list import LatestList
from fencepost_cli.console.open_stores import OpenStores
from fencepost_cli.errors import CliError
from fencepost_cli.ports import Json, Listing
from fencepost_operator.api import ObjectKey
from unit.cli.world import World

TOKEN = "a-token"  # noqa: S105 - of these tests
PORT = 8765
URL = f"http://127.0.0.1:{PORT}"
SINCE = "2026-01-02T03:04:05Z"


def pipeline(
    name: str = "orders",
    namespace: str = "shop",
    *,
    state: str = "Running",
    ready: str = "True",
    message: str = "commits",
    annotations: Mapping[str, str] | None = None,
    **status: Any,
) -> dict[str, Any]:
    """A pipeline with a status; `status` has more of its fields."""
    found = body(ObjectKey(namespace, name))
    found["metadata"] |= {"creationTimestamp": SINCE, "annotations": dict(annotations or {})}
    condition: dict[str, Any] = {"type": "Ready", "status": ready, "reason": "Streaming", "message": message}
    condition |= {"lastTransitionTime": SINCE, "observedGeneration": 1}
    found["status"] = {"observedGeneration": 1, "state": state, "message": message, "conditions": [condition], **status}
    return found


@dataclass(slots=True)
class Lists:
    """What the API server answers to a list, and how often it was asked."""

    bodies: Sequence[Json] = ()
    namespace: str = ""
    error: CliError | None = None
    asked: int = 0
    now: float = 0.0
    world: World = field(default_factory=World.usual)
    notes: list[str] = field(default_factory=list)
    latest: LatestList = field(init=False)

    def __post_init__(self) -> None:
        self.latest = LatestList(self.read, clock=lambda: self.now)

    def read(self) -> Listing:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return Listing(self.bodies, self.namespace)

    def stranger(self) -> TestClient:
        """A browser that has not opened the console's address."""
        stores = OpenStores(self.world.ports, self.world, Overrides(), self.notes.append)
        served = application(fleet=self.latest, objects=self.world, stores=stores, token=TOKEN, port=PORT)
        return TestClient(served, base_url=URL, raise_server_exceptions=False)

    def browser(self) -> TestClient:
        """A browser that has."""
        client = self.stranger()
        assert client.get(f"/?token={TOKEN}").status_code == 200
        return client
