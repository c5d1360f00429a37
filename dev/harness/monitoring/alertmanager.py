"""A real Alertmanager, and a receiver that keeps its notifications."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import yaml

from harness.kubernetes.kubectl import Object
from harness.processes import ask, free_port, running
from harness.web_server import Quiet, serving
from testbed.environment import Environment


@dataclass(slots=True)
class Receiver:
    """What a webhook received: one notification per alert and change."""

    url: str = ""
    alerts: list[Object] = field(default_factory=list)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def take(self, notification: Object) -> None:
        """Keep the alerts of a notification."""
        with self._guard:
            self.alerts.extend(notification["alerts"])

    def forget(self, alert: str) -> None:
        """Forget the notifications of an alert, so that a test can wait for the same one again."""
        with self._guard:
            self.alerts[:] = [one for one in self.alerts if one["labels"]["alertname"] != alert]

    def received(self, alert: str, status: str = "firing", /, **labels: str) -> Object | None:
        """Return the first such alert, None before it arrives."""
        wanted = {"alertname": alert, **labels}.items()
        with self._guard:
            found = [one for one in self.alerts if one["status"] == status and wanted <= one["labels"].items()]
        return found[0] if found else None


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Serve a webhook on a free port."""
    kept = Receiver()

    class Handler(Quiet, BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            kept.take(json.loads(self.rfile.read(length)))
            self.acknowledge()

    with serving(Handler) as port:
        kept.url = f"http://127.0.0.1:{port}/"
        yield kept


@dataclass(frozen=True, slots=True)
class Alertmanager:
    """Its HTTP API."""

    address: str
    """host:port."""

    def alerts(self) -> list[Object]:
        """Return the alerts that are active."""
        return list(ask(f"http://{self.address}/api/v2/alerts"))


@contextmanager
def alertmanager(
    environment: Environment,
    folder: Path,
    *,
    webhook: str = "",
    host: str = "127.0.0.1",
    settings: Mapping[str, Any] | None = None,
) -> Iterator[Alertmanager]:
    """Run Alertmanager on an address of this machine.

    Without `settings`, the content of its file, it sends each alert to `webhook` alone, at once.
    """
    folder.mkdir(parents=True, exist_ok=True)
    content = settings or {
        "route": {
            "receiver": "webhook",
            "group_by": ["..."],
            "group_wait": "0s",
            "group_interval": "1s",
            "repeat_interval": "1h",
        },
        "receivers": [{"name": "webhook", "webhook_configs": [{"url": webhook, "send_resolved": True}]}],
    }
    (folder / "alertmanager.yaml").write_text(yaml.safe_dump(content))
    address = f"{host}:{free_port()}"
    command = [
        str(environment.kubectl.parent / "alertmanager"),
        f"--config.file={folder / 'alertmanager.yaml'}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
    ]
    with running(*command, log=folder / "alertmanager.log", ready=f"http://{address}/-/ready"):
        yield Alertmanager(address)
